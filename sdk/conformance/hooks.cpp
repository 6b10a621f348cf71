#include "hooks.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace shale::conform {
namespace {

constexpr double kAnything = std::numeric_limits<double>::infinity();

std::uint64_t salt_of(const Flat& f, const Moment& m, std::uint32_t rank) {
  return ((m.step * 8 + m.micro_step) * 64 + f.c.unit * 8 + f.c.index) * 64 + rank;
}

shale_exchange_call call_of(const Flat& f, shale_lane* lane, const Moment& m) {
  SHALE_VAR(shale_exchange_call, c);
  c.step = m.step, c.micro_step = m.micro_step, c.is_last = m.last;
  c.grad_scale = m.grad_scale, c.after_skip = m.after_skip;
  c.flat = &f.c, c.lane = lane;
  return c;
}

std::uint32_t place_of(const std::vector<std::uint32_t>& part, std::uint32_t rank) {
  return static_cast<std::uint32_t>(std::find(part.begin(), part.end(), rank) - part.begin());
}

// What the plain gather puts at element k.
double gathered(const Flat& f, std::uint64_t k) {
  if (k >= f.c.numel) return 0;
  std::byte memory[8];
  store(f.role().master_dtype, memory, 0, any_value(k, f.c.unit * 8 + f.c.index));
  const double master = load(f.role().master_dtype, memory, 0);
  store(f.role().compute_dtype, memory, 0, master);
  return load(f.role().compute_dtype, memory, 0);
}

double most(const std::vector<double>& values) {
  double m = 0;
  for (double v : values) m = std::max(m, std::fabs(v));
  return m;
}

std::string at(const std::string& name, std::uint32_t rank, std::uint64_t k) {
  return name + ": element " + std::to_string(k) + " on rank " + std::to_string(rank);
}

std::string number(double v) {
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", v);
  return text;
}

}  // namespace

Problems Work::check(const World& w) const {
  const std::string about = to_text(w.shape()) + ": " + name;
  for (std::uint32_t r = 0; r < to.size(); ++r) {
    const std::string rank = about + ", rank " + std::to_string(r);
    if (!to[r].intact() || (!from.empty() && !from[r].intact())) return {rank + ": wrote beside a tensor"};
    if (keeps_from && !from[r].same_bits(before[r])) return {rank + ": changed what it may only read"};
    for (std::uint64_t k = 0; k < to[r].size(); ++k) {
      const double got = to[r].get(k), wanted = want[r][k];
      if (!std::isfinite(got)) return {at(about, r, k) + " was not written, or is not finite"};
      if (std::fabs(got - wanted) > limit[r])
        return {at(about, r, k) + " is " + number(got) + ", not " + number(wanted) +
                (limit[r] == 0 ? "" : " within " + number(limit[r]))};
    }
    if (!to[r].same_bits(to[same_as[r]]))
      return {rank + ": has other bits than rank " + std::to_string(same_as[r]) + ", which receives the same"};
  }
  return {};
}

Work& add_gather(World& w, Works& works, std::size_t flat, std::uint32_t group, double tolerance) {
  const Flat& any = w.flat(flat);
  const auto& plan = w.plan_of(any);
  const bool shard = group == plan.shard_group;
  Work& work = works.emplace_back();
  work.name = (shard ? "gather of " : "gather of the kept pieces of ") + any.name();
  work.flat = flat, work.keeps_from = true;
  const std::uint64_t total = any.c.chunk * w.part(plan.shard_group, 0).size();
  std::vector<double> all(total);
  for (std::uint64_t k = 0; k < total; ++k) all[k] = gathered(any, k);
  for (std::uint32_t r = 0; r < w.size(); ++r) {
    const auto& part = w.part(group, r);
    if (shard) {
      work.from.push_back(w.rank(r).masters[flat].copy());
    } else {
      Buffer& piece = work.from.emplace_back(any.role().compute_dtype, total / part.size());
      for (std::uint64_t k = 0; k < piece.size(); ++k) piece.set(k, all[place_of(part, r) * piece.size() + k]);
    }
    work.before.push_back(work.from[r].copy());
    work.to.emplace_back(any.role().compute_dtype, total);
    work.want.push_back(all);
    work.limit.push_back(w.changes_math() ? tolerance * most(all) : 0);
    work.same_as.push_back(plan.replica_at == SHALE_NEVER ? part[0] : 0);
  }
  const std::uint32_t purpose = !shard                                        ? SHALE_FOR_BACKWARD
                                : plan.gather_at == SHALE_GATHER_AFTER_UPDATE ? SHALE_FOR_UPDATE
                                                                              : SHALE_FOR_FORWARD;
  work.hook = [&w, &work, group, purpose](Rank& r, shale_lane* lane) {
    shale_exchange_call c = call_of(r.flats[work.flat], lane, {});
    c.purpose = purpose, c.group = group;
    c.ways = static_cast<std::uint32_t>(w.part(group, r.id).size());
    const shale_tensor from = work.from[r.id].tensor(true), to = work.to[r.id].tensor();
    return r.exchange->gather(r.plugin->self(), &c, &from, &to);
  };
  return work;
}

Work& add_reduce(World& w, Works& works, std::size_t flat, const Moment& m, double tolerance) {
  const Flat& any = w.flat(flat);
  const std::uint32_t group = w.plan_of(any).shard_group;
  Work& work = works.emplace_back();
  work.name = "reduce of " + any.name() + ", step " + std::to_string(m.step);
  work.flat = flat;
  const auto gradient = [any = &any, m](std::uint64_t k, std::uint32_t rank) {
    return k < any->c.numel ? m.grad_scale * whole_value(k, salt_of(*any, m, rank)) : 0;
  };
  for (std::uint32_t r = 0; r < w.size(); ++r) {
    const auto& part = w.part(group, r);
    const auto& range = w.rank(r).flats[flat].c;
    Buffer& full = work.from.emplace_back(any.role().grad_dtype, any.c.chunk * part.size());
    for (std::uint64_t k = 0; k < full.size(); ++k) full.set(k, gradient(k, r));
    Buffer& shard = work.to.emplace_back(any.role().accumulate_dtype, range.length);
    auto& want = work.want.emplace_back();
    for (std::uint64_t k = 0; k < range.length; ++k) {
      shard.set(k, whole_value(k, r + 77));
      want.push_back(shard.get(k));
      for (auto other : part) want.back() += gradient(range.begin + k, other);
    }
    const double largest = 2 * m.grad_scale * static_cast<double>(part.size());  // whole_value is at most 2
    work.limit.push_back(w.changes_math() ? tolerance * largest : 0);
    work.same_as.push_back(r);
  }
  work.hook = [&w, &work, group, m](Rank& r, shale_lane* lane) {
    shale_exchange_call c = call_of(r.flats[work.flat], lane, m);
    c.purpose = SHALE_FOR_BACKWARD, c.group = group;
    c.ways = static_cast<std::uint32_t>(w.part(group, r.id).size());
    const shale_tensor from = work.from[r.id].tensor(), to = work.to[r.id].tensor();
    return r.exchange->reduce(r.plugin->self(), &c, &from, &to);
  };
  return work;
}

Work& add_replicate(World& w, Works& works, std::size_t flat, const Moment& m) {
  const Flat& any = w.flat(flat);
  const std::uint32_t group = w.plan_of(any).replica_group;
  Work& work = works.emplace_back();
  work.name = "replicate of " + any.name() + ", step " + std::to_string(m.step);
  work.flat = flat;
  for (std::uint32_t r = 0; r < w.size(); ++r) {
    const auto& part = w.part(group, r);
    const auto& range = w.rank(r).flats[flat].c;
    Buffer& shard = work.to.emplace_back(any.role().accumulate_dtype, range.length);
    auto& want = work.want.emplace_back(range.length, 0.0);
    for (std::uint64_t k = 0; k < range.length; ++k) {
      shard.set(k, m.grad_scale * whole_value(range.begin + k, salt_of(any, m, r)));
      for (auto other : part) want[k] += m.grad_scale * whole_value(range.begin + k, salt_of(any, m, other));
    }
    work.limit.push_back(w.changes_math() ? kAnything : 0);
    work.same_as.push_back(part[0]);
  }
  work.hook = [&w, &work, group, m](Rank& r, shale_lane* lane) {
    shale_exchange_call c = call_of(r.flats[work.flat], lane, m);
    c.purpose = SHALE_FOR_BACKWARD, c.group = group;
    c.ways = static_cast<std::uint32_t>(w.part(group, r.id).size());
    const shale_tensor to = work.to[r.id].tensor();
    return r.exchange->replicate(r.plugin->self(), &c, &to);
  };
  return work;
}

namespace {

// shale calls neither gather nor reduce where a part of the group is one rank.
bool is_split(const World& w, const Flat& f) { return w.part(w.plan_of(f).shard_group, 0).size() > 1; }

}  // namespace

bool has_gather(const World& w, const Flat& f) {
  return w.exchange() != nullptr && w.exchange()->gather != nullptr && is_split(w, f);
}
bool has_regather(const World& w, const Flat& f) {
  const auto& plan = w.plan_of(f);
  return has_gather(w, f) && w.part(plan.reshard_group, 0).size() > 1 &&
         w.plan().groups[plan.reshard_group] != w.plan().groups[plan.shard_group];
}
bool has_reduce(const World& w, const Flat& f) {
  return !f.frozen() && w.exchange() != nullptr && w.exchange()->reduce != nullptr && is_split(w, f);
}
bool has_replicate(const World& w, const Flat& f) {
  const auto& plan = w.plan_of(f);
  return !f.frozen() && w.exchange() != nullptr && w.exchange()->replicate != nullptr &&
         plan.replica_group != SHALE_GROUP_SELF && plan.replica_at != SHALE_NEVER;
}
bool has_outer(const World& w, const Flat& f) {
  return !f.frozen() && w.outer() != nullptr && w.plan_of(f).outer_every != 0;
}

void add_gathers(World& w, Works& works, double tolerance) {
  for (std::size_t k = 0; k < w.flats(); ++k) {
    if (has_gather(w, w.flat(k))) add_gather(w, works, k, w.plan_of(w.flat(k)).shard_group, tolerance);
    if (has_regather(w, w.flat(k))) add_gather(w, works, k, w.plan_of(w.flat(k)).reshard_group, tolerance);
  }
}

void add_reductions(World& w, Works& works, const Moment& m, double tolerance) {
  for (std::size_t k = w.flats(); k-- > 0;) {
    if (has_reduce(w, w.flat(k))) add_reduce(w, works, k, m, tolerance);
    if (has_replicate(w, w.flat(k))) add_replicate(w, works, k, m);
  }
}

Problems run_works(World& w, const std::vector<Works*>& lanes) {
  std::vector<Queue> queues;
  for (auto* works : lanes) {
    auto& queue = queues.emplace_back();
    for (auto& work : *works) queue.push_back({work.name, w.flat(work.flat).c.unit, work.hook});
  }
  Problems out = w.run(queues);
  for (auto* works : lanes)
    for (auto& work : *works) {
      if (!out.empty()) return out;
      out = work.check(w);
    }
  return out;
}

bool has_hooks(const Library& library) {
  const FakeHost host;
  const shale_desc* d = find_kind(*library.table(host), SHALE_KIND_SHARDING);
  if (d == nullptr) return false;
  for (const char* const* id = d->interfaces; id != nullptr && *id != nullptr; ++id)
    if (std::strcmp(*id, SHALE_EXCHANGE) == 0 || std::strcmp(*id, SHALE_OUTER) == 0) return true;
  return false;
}

Problems each_world(const Subject& subject, const std::function<Problems(World&)>& visit) {
  constexpr WorldShape kSizes[] = {{1, 1, {}}, {2, 2, {}}, {4, 2, {}}, {6, 4, {}}, {8, 4, {}}};
  constexpr ModelShape kModels[] = {{.layers = 1, .tied = true, .frozen = true},
                                    {.layers = 4, .uneven = true},
                                    {.layers = 2, .numbers = Numbers::bf16_mixed},
                                    {.layers = 3, .uneven = true, .numbers = Numbers::f64}};
  const Library library(subject.file);
  if (!has_hooks(library)) return {};
  std::string refusal;
  int visited = 0;
  for (auto& model : kModels)
    for (auto size : kSizes) {
      size.model = model;
      try {
        World w(library, size, subject.given);
        Problems out = visit(w);
        const Problems at_end = w.destroy();
        out.insert(out.end(), at_end.begin(), at_end.end());
        if (!out.empty()) return out;
        visited += model.numbers == Numbers::f32;
      } catch (const Refused& r) {
        refusal = to_text(size) + ": " + r.what();
      }
    }
  if (visited == 0) return {"no world can be simulated: " + refusal};
  return {};
}

}  // namespace shale::conform
