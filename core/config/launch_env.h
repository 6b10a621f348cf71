// Reading launcher variables: numbers that must be numbers, Slurm's compressed lists. Private to this room.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/config/environment.h"

namespace shale {

// The variable as a number within [least, most], or nothing when it is unset. Error{config} naming variable and value.
std::optional<std::int64_t> number(const Environment&, const std::string& name, std::int64_t least, std::int64_t most);

// The first of the names that is set, with its value.
struct Found {
  std::string name;
  std::int64_t value = 0;
};
std::optional<Found> first_number(const Environment&, const std::vector<std::string>& names, std::int64_t least,
                                  std::int64_t most);

// "gpu[01-03,7],head" -> gpu01 gpu02 gpu03 gpu7 head. Error{config} naming the variable; at most 100,000 hosts.
std::vector<std::string> expand_hosts(const std::string& variable, const std::string& list);

// "8(x2),4" -> 8 8 4.
std::vector<std::int64_t> expand_tasks(const std::string& variable, const std::string& list);

// A port below the ephemeral range that all ranks of a job compute alike from what names the job.
int port_of_job(const std::string& job);

}  // namespace shale
