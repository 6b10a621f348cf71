// Hook calls with the tensors they work on, on all ranks of a simulated world, and what must be in them afterwards.
#pragma once

#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "checks.h"
#include "simulate.h"

namespace shale::conform {

struct Moment {
  std::uint64_t step = 1;
  std::uint32_t micro_step = 0;
  bool last = true, after_skip = false;
  double grad_scale = 1;
};

// One hook call on one flat.
struct Work {
  std::string name;
  std::size_t flat = 0;
  bool keeps_from = false;                // `from` must stay as it is
  std::deque<Buffer> from, before, to;    // [rank]; before: a copy of `from`, or empty
  std::vector<std::vector<double>> want;  // [rank][element of to]
  std::vector<double> limit;              // [rank] largest error; infinity = any finite number
  std::vector<std::uint32_t> same_as;     // [rank] a rank that must have the same bits in `to`
  std::function<shale_status*(Rank&, shale_lane*)> hook;

  Problems check(const World&) const;
};
using Works = std::deque<Work>;  // hooks point to their Work

Work& add_gather(World&, Works&, std::size_t flat, std::uint32_t group, double tolerance);
Work& add_reduce(World&, Works&, std::size_t flat, const Moment&, double tolerance);
Work& add_replicate(World&, Works&, std::size_t flat, const Moment&);

// Which hooks the plan of a flat asks for.
bool has_gather(const World&, const Flat&);
bool has_regather(const World&, const Flat&);  // of pieces kept over a part of the shard group
bool has_reduce(const World&, const Flat&);
bool has_replicate(const World&, const Flat&);
bool has_outer(const World&, const Flat&);

// Everything of one kind that the plan asks for, in the order a step has it.
void add_gathers(World&, Works&, double tolerance);
void add_reductions(World&, Works&, const Moment&, double tolerance);

// Runs each list on a lane of its own, all at once, and checks what came out.
Problems run_works(World&, const std::vector<Works*>& lanes);

struct OuterRun {
  int rounds = 3;
  std::vector<std::uint64_t>* digests = nullptr;  // of the masters after each event
};
// Inner steps that move the masters, and outer calls when they are due.
Problems run_outer(World&, const OuterRun&);
HookCall begin_call(World&, std::size_t flat, std::uint64_t step);
HookCall apply_call(World&, std::size_t flat, std::uint64_t step);

// Visits fresh worlds of several sizes and models until something is wrong. Plugins without hooks have none.
Problems each_world(const Subject&, const std::function<Problems(World&)>& visit);
bool has_hooks(const Library&);

}  // namespace shale::conform
