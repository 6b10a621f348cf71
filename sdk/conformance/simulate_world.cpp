#include "simulate.h"

#include <algorithm>
#include <cmath>
#include <thread>
#include <tuple>

namespace shale::conform {
namespace {

constexpr double kWaitLimit = 10;

std::vector<std::vector<const shale_param*>> flats_of(const shale_unit& unit) {
  using Key = std::tuple<bool, std::uint32_t, std::uint32_t, std::uint32_t>;
  std::vector<Key> keys;
  std::vector<std::vector<const shale_param*>> flats;
  for (std::uint32_t k = 0; k < unit.n_params; ++k) {
    const shale_param* p = unit.params[k];
    const Key key{(p->flags & SHALE_PARAM_FROZEN) != 0, p->master_dtype, p->compute_dtype, p->grad_dtype};
    const auto at = std::find(keys.begin(), keys.end(), key) - keys.begin();
    if (at == static_cast<std::ptrdiff_t>(keys.size())) keys.push_back(key), flats.emplace_back();
    flats[static_cast<std::size_t>(at)].push_back(p);
  }
  return flats;
}

// Whether two buffers hold the same numbers; any NaN equals any other.
bool same_numbers(const Buffer& a, const Buffer& b) {
  if (a.same_bits(b)) return true;
  for (std::uint64_t k = 0; k < a.size() && k < b.size(); ++k)
    if (a.get(k) != b.get(k) && !(std::isnan(a.get(k)) && std::isnan(b.get(k)))) return false;
  return a.size() == b.size();
}

}  // namespace

std::string to_text(const WorldShape& s) {
  constexpr const char* kNumbers[] = {"fp32", "fp64", "bf16 mixed"};
  return std::to_string(s.ranks) + " ranks, nodes of " + std::to_string(s.node_size) +
         (s.model.uneven ? ", small flats, " : ", ") + kNumbers[static_cast<int>(s.model.numbers)];
}

Flat::Flat(const shale_unit& unit, std::vector<const shale_param*> with, std::uint32_t index)
    : params(std::move(with)) {
  for (auto* p : params) {
    offsets.push_back(c.numel);
    c.numel += p->numel;
  }
  c.struct_size = sizeof c, c.unit = unit.index, c.index = index;
  c.n_params = static_cast<std::uint32_t>(params.size());
  c.params = params.data(), c.offsets = offsets.data();
}

void Flat::cut(std::uint32_t ways, std::uint32_t place, std::uint32_t align) {
  const std::uint64_t even = (c.numel + ways - 1) / ways, unit = std::max(align, 1u);
  c.chunk = ways == 1 ? c.numel : (even + unit - 1) / unit * unit;
  c.begin = std::min(c.numel, c.chunk * place);
  c.length = std::min(c.numel, c.begin + c.chunk) - c.begin;
}

std::string Flat::name() const { return "unit " + std::to_string(c.unit) + ", flat " + std::to_string(c.index); }

Rank::Rank(World& w, std::uint32_t k)
    : world(w),
      id(k),
      lane_service(conform::lane_service(this)),
      collectives(collective_service(this)),
      math(math_service(this)),
      run(run_service(this, w.size())) {
  host.offer(SHALE_LANE_SERVICE, &lane_service);
  host.offer(SHALE_COLLECTIVES_SERVICE, &collectives);
  host.offer(SHALE_MATH_SERVICE, &math);
  host.offer(SHALE_RUN_SERVICE, &run);
}

Lane* Rank::running(shale_lane* handle) {
  for (auto& lane : lanes)
    if (reinterpret_cast<shale_lane*>(&lane) == handle && lane.active) return &lane;
  return nullptr;
}

World::World(const Library& library, const WorldShape& shape, const Given& given)
    : shape_(shape), model_(shape.model), topology_(shape.ranks, shape.node_size) {
  for (std::uint32_t k = 0; k < shape.ranks; ++k) {
    ranks_.push_back(std::make_unique<Rank>(*this, k));
    bind(*ranks_.back(), library, given);
  }
  for (std::uint32_t lane = 0; lane < kLanes; ++lane) {
    boards_.push_back(std::make_unique<Board>(plan().groups, kWaitLimit));
    for (auto& r : ranks_) r->lanes[lane].rank = r.get(), r->lanes[lane].board = boards_.back().get();
  }
}

void World::bind(Rank& r, const Library& library, const Given& given) {
  r.plugin = std::make_unique<Instance>(library, SHALE_KIND_SHARDING, r.host, given);
  const Answer answer = ask(*r.plugin, {model_, topology_}, r.plan);
  if (answer.code != 0) throw Refused(answer);
  if (auto wrong = problems(r.plan, model_); !wrong.empty())
    throw std::runtime_error(to_text(shape_) + ": the plan is illegal: " + wrong[0]);
  if (r.plan.text() != plan().text()) throw std::runtime_error(to_text(shape_) + ": plans of two instances differ");
  changes_math_ = (r.plugin->desc().caps & SHALE_CAP_CHANGES_MATH) != 0;
  r.exchange = static_cast<const shale_exchange*>(r.plugin->find(SHALE_EXCHANGE));
  r.outer = static_cast<const shale_outer*>(r.plugin->find(SHALE_OUTER));
  make_flats(r);
  make_states(r);
}

void World::make_flats(Rank& r) {
  for (std::uint32_t u = 0; u < model_.get()->n_units; ++u) {
    const shale_unit& unit = *model_.get()->units[u];
    const auto& plan = *r.plan.units[u];
    const auto part = r.plan.part(plan.shard_group, r.id);
    const auto place = std::find(part.begin(), part.end(), r.id) - part.begin();
    std::uint32_t index = 0;
    for (auto& params : flats_of(unit)) {
      Flat& f = r.flats.emplace_back(unit, params, index++);
      f.cut(static_cast<std::uint32_t>(part.size()), static_cast<std::uint32_t>(place), plan.align);
      Buffer& master = r.masters.emplace_back(f.role().master_dtype, f.c.length);
      for (std::uint64_t k = 0; k < f.c.length; ++k) master.set(k, any_value(f.c.begin + k, u * 8 + f.c.index));
    }
  }
}

void World::make_states(Rank& r) {
  for (std::uint32_t id = 0; id < r.plan.states.size(); ++id) {
    const StateAnswer& s = r.plan.states[id];
    if (!is_number(s.dtype)) throw std::runtime_error("state " + s.name + " has a dtype that is no number");
    if (s.scope == SHALE_STATE_GLOBAL || s.scope == SHALE_STATE_RANK) {
      auto made = r.states.emplace(std::pair(id, nullptr), Buffer(s.dtype, s.numel)).first;
      fill_first(made->second, s, nullptr, nullptr);
      continue;
    }
    for (std::size_t k = 0; k < r.flats.size(); ++k) {
      const Flat& f = r.flats[k];
      if (f.frozen() || (s.unit != SHALE_ALL_UNITS && s.unit != f.c.unit)) continue;
      auto made = r.states.emplace(std::pair(id, &f.c), Buffer(s.dtype, f.c.length)).first;
      fill_first(made->second, s, &f, &r.masters[k]);
    }
  }
}

const std::vector<std::uint32_t>& World::part(std::uint32_t group, std::uint32_t rank) const {
  return boards_[0]->part(group, rank);
}

void World::run_queue(Rank& r, std::uint32_t which, const Queue& queue) {
  Lane& lane = r.lanes[which];
  lane.calls = 0, lane.answer = {}, lane.failed.clear();
  for (std::uint32_t n = 0; n < queue.size(); ++n) {
    lane.number = n, lane.taken = lane.staging = 0, lane.refused.clear();
    lane.budget = r.plan.units[queue[n].unit]->scratch_bytes;
    lane.active = true;
    shale_status* status = queue[n].hook(r, r.handle(which));
    lane.active = false;
    lane.answer = r.host.take(status);
    for (auto& memory : lane.scratch)
      if (!memory.intact()) lane.problems.push_back("wrote beside its scratch");
    lane.scratch.clear();
    if (!lane.refused.empty() && lane.answer.code == 0)
      lane.problems.push_back("a service refused (" + lane.refused + ") and the hook answered fine");
    if (lane.answer.code != 0 && lane.answer.text.empty()) lane.problems.push_back("answered without a text");
    for (auto& problem : lane.problems)
      if (!problem.starts_with("rank "))
        problem = "rank " + std::to_string(r.id) + ", " + queue[n].name + ": " + problem;
    if (lane.answer.code == 0) continue;
    lane.failed = queue[n].name;
    break;
  }
  lane.board->leave(r.id);
}

std::vector<std::string> World::run(const std::vector<Queue>& queues) {
  std::vector<std::thread> threads;
  for (std::uint32_t lane = 0; lane < queues.size(); ++lane) boards_[lane]->start();
  for (std::uint32_t lane = 0; lane < queues.size(); ++lane)
    for (auto& r : ranks_) threads.emplace_back([&, lane] { run_queue(*r, lane, queues[lane]); });
  for (auto& t : threads) t.join();
  std::vector<std::string> out;
  for (std::uint32_t lane = 0; lane < queues.size(); ++lane) judge(lane, out);
  if (out.empty() && !fault) compare_states(out);
  for (auto& problem : out) problem = to_text(shape_) + ": " + problem;
  return out;
}

void World::judge(std::uint32_t which, std::vector<std::string>& out) {
  const std::string cause = boards_[which]->cause();
  for (auto& r : ranks_) {
    out.insert(out.end(), r->lanes[which].problems.begin(), r->lanes[which].problems.end());
    r->lanes[which].problems.clear();
    for (auto& [key, state] : r->states)
      if (!state.intact()) out.push_back("a hook wrote beside state " + r->plan.states[key.first].name);
  }
  if (fault) return;
  if (!cause.empty()) out.push_back(cause + " (" + ranks_[0]->lanes[which].failed + ")");
  for (auto& r : ranks_)
    if (r->lanes[which].answer.code != 0 && out.empty())
      out.push_back("rank " + std::to_string(r->id) + ", " + r->lanes[which].failed + ": " +
                    conform::to_text(r->lanes[which].answer));
}

void World::compare_states(std::vector<std::string>& out) {
  for (auto& r : ranks_)
    for (auto& [key, mine] : r->states) {
      const StateAnswer& s = r->plan.states[key.first];
      std::uint32_t group = SHALE_GROUP_WORLD;
      std::size_t flat = 0;
      if (s.scope == SHALE_STATE_RANK || s.scope == SHALE_STATE_SHARD_RANK) continue;
      if (s.scope == SHALE_STATE_SHARD) {
        while (&r->flats[flat].c != key.second) ++flat;
        group = r->plan.units[key.second->unit]->replica_group;
      }
      Rank& first = *ranks_[part(group, r->id)[0]];
      const auto* other_flat = s.scope == SHALE_STATE_SHARD ? &first.flats[flat].c : nullptr;
      if (same_numbers(first.states.at({key.first, other_flat}), mine)) continue;
      out.push_back("state " + s.name + " must be the same on ranks " + std::to_string(first.id) + " and " +
                    std::to_string(r->id) + " and is not");
      return;
    }
}

std::vector<std::string> World::step_end(std::uint64_t step, bool skipped) {
  std::vector<std::string> out;
  for (auto& r : ranks_) {
    if (r->exchange == nullptr || r->exchange->step_end == nullptr) continue;
    const Answer a = r->host.take(r->exchange->step_end(r->plugin->self(), step, skipped ? 1 : 0));
    if (a.code != 0 && out.empty()) out.push_back(conform::to_text(shape_) + ": step_end: " + conform::to_text(a));
  }
  return out;
}

std::vector<std::string> World::destroy() {
  std::vector<std::string> out;
  for (auto& r : ranks_) {
    if (r->plugin == nullptr) continue;
    r->plugin.reset();
    if (r->host.live() != 0) out.push_back(to_text(shape_) + ": statuses were made and not handed on");
    if (const char* stray = r->stray)
      out.push_back(to_text(shape_) + ": calls " + stray + " outside of a hook, or on another hook's lane");
    if (!out.empty()) break;
  }
  return out;
}

}  // namespace shale::conform
