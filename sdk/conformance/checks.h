// What every plugin must do, as named cases. A case that crashes or hangs takes only its child process with it.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "host.h"

namespace shale::conform {

using Problems = std::vector<std::string>;  // empty = passed

// What is tried, and how.
struct Subject {
  Subject(std::string f) : file(std::move(f)) {}
  Subject(const char* f) : file(f) {}
  std::string file;
  Given given;              // options of a sharding plugin, for the cases on simulated ranks
  double tolerance = 0.02;  // of plugins that change the math: error over the largest number of a flat
};

struct Check {
  const char* name;
  const char* says;  // the rule, one sentence
  Problems (*run)(const Subject&);
};

std::span<const Check> checks();

enum class Outcome { pass, fail, crash, timeout };

struct Verdict {
  Outcome outcome = Outcome::pass;
  Problems problems;
};

// In a child process, for at most `seconds`.
Verdict run_apart(const Check&, const Subject&, double seconds = 60);
// In this process, for a debugger.
Verdict run_here(const Check&, const Subject&);

// The cases, by file.
Problems check_exports(const Subject&);
Problems check_entry(const Subject&);
Problems check_other_major(const Subject&);
Problems check_versions(const Subject&);
Problems check_descriptors(const Subject&);
Problems check_options(const Subject&);
Problems check_interfaces(const Subject&);
Problems check_lifecycle(const Subject&);
Problems check_quiet(const Subject&);
Problems check_plans(const Subject&);
Problems check_bounds(const Subject&);
Problems check_newer_host(const Subject&);
Problems check_refusals(const Subject&);
Problems check_format(const Subject&);
Problems check_round_trip(const Subject&);
Problems check_damage(const Subject&);
Problems check_hooks(const Subject&);
Problems check_gather(const Subject&);
Problems check_reduce(const Subject&);
Problems check_replicate(const Subject&);
Problems check_not_finite(const Subject&);
Problems check_skipped(const Subject&);
Problems check_lanes(const Subject&);
Problems check_outer(const Subject&);
Problems check_repeat(const Subject&);
Problems check_faults(const Subject&);

// id of the interface a kind must have; the kinds run from 1.
inline constexpr const char* kRequired[] = {"", "shale.sharding/1", "shale.precision/1", "shale.offload/1",
                                            "shale.checkpoint/1"};
// Required options get their smallest value, so that a plugin can be made without a user.
Given least_given(const shale_desc&);

}  // namespace shale::conform
