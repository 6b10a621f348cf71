// Cases about the hooks of shale.sharding.exchange/1, on simulated ranks.
#include <cmath>
#include <limits>

#include "hooks.h"

namespace shale::conform {
namespace {

constexpr std::uint64_t kLate = 100001;  // past any warm-up

bool is_declared(const shale_desc& d, const std::string& id) {
  for (const char* const* k = d.interfaces; k != nullptr && *k != nullptr; ++k)
    if (id == *k) return true;
  return false;
}

// Under its default options a plugin answers what it declares; others may leave an optional interface without use.
Problems table_problems(const World& w, const shale_desc& d, bool defaults) {
  const auto *x = w.exchange(), *nothing = static_cast<const shale_exchange*>(nullptr);
  const auto* o = w.outer();
  if (x != nullptr ? !is_declared(d, SHALE_EXCHANGE) : defaults && is_declared(d, SHALE_EXCHANGE))
    return {"exchange/1 is declared and not answered, or hidden"};
  if (o != nullptr ? !is_declared(d, SHALE_OUTER) : defaults && is_declared(d, SHALE_OUTER))
    return {"outer/1 is declared and not answered, or hidden"};
  if (x != nothing && !SHALE_HAS(x, step_end)) return {"the table of exchange/1 is shorter than ABI 0.1's"};
  if (x != nothing && !x->gather && !x->reduce && !x->replicate) return {"exchange/1 has no hook"};
  if (o != nullptr && !SHALE_HAS(o, apply)) return {"the table of outer/1 is shorter than ABI 0.1's"};
  if (o != nullptr && o->apply == nullptr) return {"outer/1 lacks apply"};
  return {};
}

// Plan numbers that only make sense with hooks, or never with them.
Problems plan_problems(const World& w) {
  Problems out;
  for (std::uint32_t u = 0; u < w.plan().units.size(); ++u) {
    const auto& plan = *w.plan().units[u];
    const std::string name = "unit " + std::to_string(u) + " ";
    if (plan.outer_every != 0 && w.outer() == nullptr) out.push_back(name + "has outer_every, but there is no outer/1");
    if (plan.replica_at == SHALE_NEVER && (w.outer() == nullptr || plan.outer_every == 0))
      out.push_back(name + "never sums over replicas, and no outer/1 call brings them together");
    if (plan.join != 0) out.push_back(name + "is joined to another, which goes with no hook");
  }
  return out;
}

// Puts `value` on the last rank of each part that `work` sums over.
void poison(World& w, Work& work, double value, bool at_end) {
  const bool reduce = !work.from.empty();
  const auto& plan = w.plan_of(w.flat(work.flat));
  const auto group = reduce ? plan.shard_group : plan.replica_group;
  for (std::uint32_t r = 0; r < w.size(); ++r) {
    if (w.part(group, r).back() != r) continue;
    Buffer& where = reduce ? work.from[r] : work.to[r];
    const auto last = reduce ? w.flat(work.flat).c.numel : where.size();
    if (where.size() != 0) where.set(at_end ? last - 1 : 0, value);
  }
}

// Whether each part that saw the poison says so: reduce on some rank, replicate on each.
Problems must_show(const World& w, const Work& work) {
  const bool reduce = !work.from.empty();
  const auto& plan = w.plan_of(w.flat(work.flat));
  const auto group = reduce ? plan.shard_group : plan.replica_group;
  for (std::uint32_t r = 0; r < w.size(); ++r) {
    std::uint32_t shown = 0, of = 0;
    for (auto other : w.part(group, r)) {
      const Buffer& b = work.to[other];
      bool finite = true;
      for (std::uint64_t k = 0; k < b.size(); ++k) finite = finite && std::isfinite(b.get(k));
      shown += !finite, of += b.size() != 0;
    }
    if (of != 0 && shown < (reduce ? 1 : of))
      return {to_text(w.shape()) + ": " + work.name +
              ": a gradient that is not finite went in, finite numbers came out"};
  }
  return {};
}

Problems poisoned_step(World& w, const Moment& m, double value, double tolerance) {
  Works works;
  add_reductions(w, works, m, tolerance);
  Queue queue;
  for (auto& work : works) {
    poison(w, work, value, m.step % 2 == 0);
    queue.push_back({work.name, w.flat(work.flat).c.unit, work.hook});
  }
  Problems out = w.run({{}, queue});
  for (auto& work : works)
    if (out.empty()) out = must_show(w, work);
  if (out.empty()) out = w.step_end(m.step, true);
  return out;
}

Problems clean_step(World& w, const Moment& m, double tolerance) {
  Works none, works;
  add_reductions(w, works, m, tolerance);
  Problems out = run_works(w, {&none, &works});
  if (out.empty()) out = w.step_end(m.step, false);
  return out;
}

}  // namespace

Problems check_hooks(const Subject& subject) {
  return each_world(subject, [&](World& w) {
    Problems out = table_problems(w, w.rank(0).plugin->desc(), subject.given.empty());
    return out.empty() ? plan_problems(w) : out;
  });
}

Problems check_gather(const Subject& subject) {
  return each_world(subject, [&](World& w) {
    Works works;
    add_gathers(w, works, subject.tolerance);
    return run_works(w, {&works});
  });
}

Problems check_reduce(const Subject& subject) {
  return each_world(subject, [&](World& w) {
    Works none, works;
    for (std::size_t k = 0; k < w.flats(); ++k) {
      if (!has_reduce(w, w.flat(k))) continue;
      const bool each = w.plan_of(w.flat(k)).reduce_at == SHALE_AT_MICRO_STEP;
      if (each) add_reduce(w, works, k, {.step = 1, .micro_step = 0, .last = false}, subject.tolerance);
      add_reduce(w, works, k, {.step = 1, .micro_step = 1}, subject.tolerance);
      add_reduce(w, works, k, {.step = 2, .micro_step = 1, .grad_scale = 1024}, subject.tolerance);
    }
    return run_works(w, {&none, &works});
  });
}

Problems check_replicate(const Subject& subject) {
  return each_world(subject, [&](World& w) {
    Problems out;
    for (std::uint64_t step : {1ul, 2ul, kLate, kLate + 1, kLate + 2}) {
      Works none, works;
      for (std::size_t k = 0; k < w.flats(); ++k)
        if (has_replicate(w, w.flat(k)))
          add_replicate(w, works, k, {.step = step, .grad_scale = step % 2 == 0 ? 1024.0 : 1.0});
      if (out.empty()) out = run_works(w, {&none, &works});
      if (out.empty()) out = w.step_end(step, false);
    }
    return out;
  });
}

Problems check_not_finite(const Subject& subject) {
  return each_world(subject, [&](World& w) {
    Problems out;
    std::uint64_t step = 0;
    for (std::uint64_t from : {0ul, kLate})
      for (double value : {std::numeric_limits<double>::infinity(), std::nan(""), -HUGE_VAL, std::nan("")}) {
        const Moment m{.step = from + ++step % 4, .micro_step = 1, .after_skip = step % 4 != 1};
        if (out.empty()) out = poisoned_step(w, m, value, subject.tolerance);
      }
    return out;
  });
}

Problems check_skipped(const Subject& subject) {
  return each_world(subject, [&](World& w) {
    Problems out;
    for (std::uint64_t from : {1ul, kLate}) {
      if (out.empty()) out = clean_step(w, {.step = from}, subject.tolerance);
      if (out.empty()) out = poisoned_step(w, {.step = from + 1}, HUGE_VAL, subject.tolerance);
      if (out.empty()) out = clean_step(w, {.step = from + 2, .after_skip = true}, subject.tolerance);
      if (out.empty()) out = clean_step(w, {.step = from + 3}, subject.tolerance);
    }
    return out;
  });
}

Problems check_lanes(const Subject& subject) {
  return each_world(subject, [&](World& w) {
    Works gathers, reductions;
    for (int k = 0; k < 3; ++k) add_gathers(w, gathers, subject.tolerance);
    for (std::uint32_t k = 0; k < 3; ++k)
      add_reductions(w, reductions, {.step = kLate, .micro_step = k, .last = k == 2}, subject.tolerance);
    return run_works(w, {&gathers, &reductions});
  });
}

}  // namespace shale::conform
