// Cases about the hooks of shale.sharding.outer/1, and about what holds for all hooks: the same bits every time, and an
// end with a status when a service fails.
#include <algorithm>
#include <cmath>
#include <set>

#include "hooks.h"

namespace shale::conform {
namespace {

// First step in which a flat begins, and every `every` steps from there.
std::uint64_t first_due(const shale_unit_plan& p) {
  const std::uint64_t offset = p.outer_offset % p.outer_every;
  return offset == 0 ? p.outer_every : offset;
}

bool begins(const shale_unit_plan& p, std::uint64_t step) {
  return step % p.outer_every == p.outer_offset % p.outer_every;
}
bool applies(const shale_unit_plan& p, std::uint64_t step) {
  return step >= first_due(p) + p.outer_delay && begins(p, step - p.outer_delay);
}

std::set<std::uint64_t> event_steps(const World& w, int rounds) {
  std::set<std::uint64_t> steps;
  for (std::size_t k = 0; k < w.flats(); ++k) {
    if (!has_outer(w, w.flat(k))) continue;
    const auto& p = w.plan_of(w.flat(k));
    for (int round = 0; round < rounds; ++round) {
      const auto due = first_due(p) + static_cast<std::uint64_t>(round) * p.outer_every;
      steps.insert({due, due + p.outer_delay});
    }
  }
  return steps;
}

// What the optimizer did since the last event: the same on replicas, unless they drift.
void inner_steps(World& w, std::uint64_t step) {
  for (std::uint32_t r = 0; r < w.size(); ++r)
    for (std::size_t k = 0; k < w.flats(); ++k) {
      const Flat& f = w.rank(r).flats[k];
      const auto& p = w.plan_of(f);
      if (f.frozen()) continue;
      const std::uint32_t island = p.replica_at == SHALE_NEVER ? w.part(p.shard_group, r)[0] : 0;
      Buffer& master = w.rank(r).masters[k];
      for (std::uint64_t e = 0; e < f.c.length; ++e)
        master.set(e, master.get(e) + 0.01 * any_value(f.c.begin + e, step * 16 + island));
    }
}

Problems masters_problem(World& w, std::uint64_t step) {
  for (std::uint32_t r = 0; r < w.size(); ++r)
    for (std::size_t k = 0; k < w.flats(); ++k) {
      const Flat& f = w.flat(k);
      const auto& p = w.plan_of(f);
      if (!has_outer(w, f) || !applies(p, step)) continue;
      const Buffer& master = w.rank(r).masters[k];
      const std::string about = to_text(w.shape()) + ": apply of " + f.name() + ", step " + std::to_string(step) + ", ";
      if (!master.intact()) return {about + "rank " + std::to_string(r) + ": wrote beside the master"};
      for (std::uint64_t e = 0; e < master.size(); ++e)
        if (!std::isfinite(master.get(e))) return {about + "rank " + std::to_string(r) + ": a master is not finite"};
      const std::uint32_t first = w.part(p.replica_group, r)[0];
      const bool equal = p.outer_delay == 0 || p.replica_at != SHALE_NEVER;
      if (equal && !master.same_bits(w.rank(first).masters[k]))
        return {about + "the masters of ranks " + std::to_string(first) + " and " + std::to_string(r) + " differ"};
    }
  return {};
}

std::vector<std::uint64_t> scenario(const Library& library, const WorldShape& shape, const Subject& s, Problems& out) {
  std::vector<std::uint64_t> digests;
  World w(library, shape, s.given);
  const auto note = [&](const Works& works) {
    for (auto& work : works)
      for (auto& b : work.to) digests.push_back(b.digest());
  };
  Works gathers;
  add_gathers(w, gathers, s.tolerance);
  out = run_works(w, {&gathers});
  note(gathers);
  for (std::uint64_t step : {1, 2, 100001, 100002, 100003}) {
    Works none, works;
    add_reductions(w, works, {.step = step}, s.tolerance);
    if (out.empty()) out = run_works(w, {&none, &works});
    if (out.empty()) out = w.step_end(step, false);
    note(works);
  }
  if (out.empty()) out = run_outer(w, {.rounds = 2, .digests = &digests});
  return digests;
}

using Add = std::function<void(World&, std::size_t flat, Works&, Queue&)>;

struct Kind {  // of hooks: their lane, and how to call those of a flat
  std::uint32_t lane;
  Add add;
};

// The hooks of the first flat that has any; false = none has.
bool run_trial(World& w, const Kind& kind, Problems& out) {
  Works works;
  const auto lane = kind.lane;
  std::vector<Queue> queues(lane + 1);
  for (std::size_t k = 0; k < w.flats() && queues[lane].empty(); ++k) {
    kind.add(w, k, works, queues[lane]);
    for (auto& work : works) queues[lane].push_back({work.name, w.flat(k).c.unit, work.hook});
  }
  if (queues[lane].empty()) return false;
  out = w.run(queues);
  return true;
}

std::vector<Kind> kinds() {
  const Moment late{.step = 100001};
  return {{kGatherLane,
           [](World& w, std::size_t k, Works& works, Queue&) {
             if (has_gather(w, w.flat(k))) add_gather(w, works, k, w.plan_of(w.flat(k)).shard_group, 0);
             if (has_regather(w, w.flat(k))) add_gather(w, works, k, w.plan_of(w.flat(k)).reshard_group, 0);
           }},
          {kReduceLane,
           [late](World& w, std::size_t k, Works& works, Queue&) {
             if (has_reduce(w, w.flat(k))) add_reduce(w, works, k, late, 0);
             if (has_replicate(w, w.flat(k))) add_replicate(w, works, k, late);
           }},
          {kOuterLane, [](World& w, std::size_t k, Works&, Queue& queue) {
             if (!has_outer(w, w.flat(k))) return;
             if (w.outer()->begin != nullptr) queue.push_back(begin_call(w, k, 1));
             queue.push_back(apply_call(w, k, 1));
           }}};
}

// Refuses each service call of one rank in turn; the other ranks lose their peer.
Problems refuse_each(const Library& library, const WorldShape& shape, const Subject& s, const Kind& kind,
                     std::uint32_t rank) {
  for (int call = 0; call < 500; ++call) {
    World w(library, shape, s.given);
    w.fault = World::Fault{rank, call};
    Problems out;
    if (!run_trial(w, kind, out) || (out.empty() && !w.met_fault)) return {};
    const Problems at_end = w.destroy();
    out.insert(out.end(), at_end.begin(), at_end.end());
    for (auto& problem : out) problem += " (service call " + std::to_string(call) + " refused)";
    if (!out.empty()) return out;
  }
  return {};
}

}  // namespace

HookCall begin_call(World& w, std::size_t flat, std::uint64_t step) {
  const Flat& any = w.flat(flat);
  return {"begin of " + any.name() + ", step " + std::to_string(step), any.c.unit,
          [flat, step](Rank& r, shale_lane* lane) {
            SHALE_VAR(shale_outer_call, c);
            c.step = step, c.flat = &r.flats[flat].c, c.lane = lane;
            const Buffer before = r.masters[flat].copy();
            const shale_tensor master = r.masters[flat].tensor(true);
            shale_status* status = r.outer->begin(r.plugin->self(), &c, &master);
            if (!r.masters[flat].same_bits(before)) r.running(lane)->problems.push_back("changed the master");
            return status;
          }};
}

HookCall apply_call(World& w, std::size_t flat, std::uint64_t step) {
  const Flat& any = w.flat(flat);
  return {"apply of " + any.name() + ", step " + std::to_string(step), any.c.unit,
          [flat, step](Rank& r, shale_lane* lane) {
            SHALE_VAR(shale_outer_call, c);
            c.step = step, c.flat = &r.flats[flat].c, c.lane = lane;
            const shale_tensor master = r.masters[flat].tensor();
            return r.outer->apply(r.plugin->self(), &c, &master);
          }};
}

Problems run_outer(World& w, const OuterRun& run) {
  Problems out;
  for (auto step : event_steps(w, run.rounds)) {
    inner_steps(w, step);
    std::vector<Queue> queues(kLanes);
    for (std::size_t k = 0; k < w.flats(); ++k) {
      const auto& p = w.plan_of(w.flat(k));
      if (!has_outer(w, w.flat(k))) continue;
      if (begins(p, step) && w.outer()->begin != nullptr) queues[kOuterLane].push_back(begin_call(w, k, step));
      if (applies(p, step)) queues[kOuterLane].push_back(apply_call(w, k, step));
    }
    out = w.run(queues);
    if (out.empty()) out = masters_problem(w, step);
    if (!out.empty()) return out;
    for (std::uint32_t r = 0; run.digests != nullptr && r < w.size(); ++r)
      for (auto& master : w.rank(r).masters) run.digests->push_back(master.digest());
  }
  return out;
}

Problems check_outer(const Subject& subject) {
  return each_world(subject, [&](World& w) { return run_outer(w, {}); });
}

Problems check_repeat(const Subject& subject) {
  const Library library(subject.file);
  return each_world(subject, [&](World& w) -> Problems {
    Problems out;
    const auto first = scenario(library, w.shape(), subject, out);
    if (!out.empty()) return out;
    if (scenario(library, w.shape(), subject, out) != first)
      return {to_text(w.shape()) + ": fresh instances give other bits from the same numbers"};
    return out;
  });
}

Problems check_faults(const Subject& subject) {
  const Library library(subject.file);
  return each_world(subject, [&](World& w) {
    Problems out;
    if (w.size() == 1 || w.size() > 4 || w.shape().model.numbers != Numbers::f32) return out;
    for (auto& kind : kinds())
      for (std::uint32_t rank : {0u, w.size() - 1})
        if (out.empty()) out = refuse_each(library, w.shape(), subject, kind, rank);
    return out;
  });
}

}  // namespace shale::conform
