// What every plugin must do, as named cases. A case that crashes or hangs takes only its child process with it.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "host.h"

namespace shale::conform {

using Problems = std::vector<std::string>;  // empty = passed

struct Check {
  const char* name;
  const char* says;  // the rule, one sentence
  Problems (*run)(const std::string& file);
};

std::span<const Check> checks();

enum class Outcome { pass, fail, crash, timeout };

struct Verdict {
  Outcome outcome = Outcome::pass;
  Problems problems;
};

// In a child process, for at most `seconds`.
Verdict run_apart(const Check&, const std::string& file, double seconds = 20);
// In this process, for a debugger.
Verdict run_here(const Check&, const std::string& file);

// The cases, by file.
Problems check_exports(const std::string& file);
Problems check_entry(const std::string& file);
Problems check_other_major(const std::string& file);
Problems check_versions(const std::string& file);
Problems check_descriptors(const std::string& file);
Problems check_options(const std::string& file);
Problems check_interfaces(const std::string& file);
Problems check_lifecycle(const std::string& file);
Problems check_quiet(const std::string& file);
Problems check_plans(const std::string& file);
Problems check_bounds(const std::string& file);
Problems check_newer_host(const std::string& file);
Problems check_refusals(const std::string& file);
Problems check_format(const std::string& file);
Problems check_round_trip(const std::string& file);
Problems check_damage(const std::string& file);

// id of the interface a kind must have; the kinds run from 1.
inline constexpr const char* kRequired[] = {"", "shale.sharding/1", "shale.precision/1", "shale.offload/1",
                                            "shale.checkpoint/1"};
// Required options get their smallest value, so that a plugin can be made without a user.
Given least_given(const shale_desc&);

}  // namespace shale::conform
