// The services of a simulated rank: lanes with scratch and state, collectives, facts of the run.
#include <bit>
#include <cmath>
#include <numbers>

#include "simulate.h"

namespace shale::conform {
namespace {

Rank& rank_of(void* ctx) { return *static_cast<Rank*>(ctx); }
Answer bad(const char* where, const std::string& text) { return {SHALE_BAD_ARGUMENT, where, text}; }

// Takes from what the plan says; each block counts rounded up to 256 bytes.
Answer take(Lane& l, std::uint64_t n) {
  l.taken += (n + 255) / 256 * 256;
  if (l.taken <= l.budget) return {};
  l.problems.push_back("takes " + std::to_string(l.taken) + " bytes of scratch, its plan says " +
                       std::to_string(l.budget));
  return {SHALE_OUT_OF_MEMORY, "scratch", "more than the scratch_bytes of the plan"};
}

shale_status* scratch(void* ctx, shale_lane* lane, std::uint64_t n, void** out) {
  return serve(ctx, lane, "scratch", [&](Lane& l) {
    const Answer answer = take(l, n);
    if (answer.code == 0) *out = l.scratch.emplace_back(n).data();
    return answer;
  });
}

Buffer* find_state(Lane& l, std::uint32_t state, const shale_flat* flat) {
  const auto found = l.rank->states.find({state, flat});
  return found == l.rank->states.end() ? nullptr : &found->second;
}

shale_status* state(void* ctx, shale_lane* lane, std::uint32_t state, const shale_flat* flat, shale_tensor* out) {
  return serve(ctx, lane, "state", [&](Lane& l) -> Answer {
    Buffer* b = find_state(l, state, flat);
    if (b == nullptr) return bad("state", "there is no state " + std::to_string(state) + " of this flat");
    *out = b->tensor();
    return {};
  });
}

shale_status* reset(void* ctx, shale_lane* lane, std::uint32_t state, const shale_flat* flat) {
  return serve(ctx, lane, "reset", [&](Lane& l) -> Answer {
    Rank& r = *l.rank;
    Buffer* b = find_state(l, state, flat);
    if (b == nullptr) return bad("state", "there is no state " + std::to_string(state) + " of this flat");
    for (std::size_t k = 0; k < r.flats.size(); ++k)
      if (&r.flats[k].c == flat) fill_first(*b, r.plan.states[state], &r.flats[k], &r.masters[k]);
    if (flat == nullptr) fill_first(*b, r.plan.states[state], nullptr, nullptr);
    return {};
  });
}

void* stream(void*, shale_lane*) { return nullptr; }

std::uint32_t group_size(void* ctx, std::uint32_t group) {  // 0 = there is no such group
  Rank& r = rank_of(ctx);
  return group < r.plan.groups.size() ? static_cast<std::uint32_t>(r.plan.part(group, r.id).size()) : 0;
}

std::uint32_t group_rank(void* ctx, std::uint32_t group) {
  Rank& r = rank_of(ctx);
  std::uint32_t place = 0;
  if (group < r.plan.groups.size())
    for (auto other : r.plan.part(group, r.id)) place += other < r.id;
  return place;
}

shale_status* collective(void* ctx, shale_lane* lane, const Post& wanted) {
  return serve(ctx, lane, wanted.what, [&](Lane& l) -> Answer {
    Post post = wanted;
    post.rank = l.rank->id, post.number = l.number;
    if (post.group >= l.board->groups()) return bad("group", "there is no group " + std::to_string(post.group));
    const auto& part = l.board->part(post.group, post.rank);
    if (auto wrong = problem(post, part); !wrong.empty()) return bad(post.what, wrong);
    const bool staged = post.what == std::string("reduce_scatter") && part.size() > 1;
    if (const auto n = bytes(post.send); staged && n > l.staging) {
      l.staging = n;
      if (Answer a = take(l, n); a.code != 0) return a;
    }
    if (auto wrong = l.board->meet(post); !wrong.empty()) return {SHALE_TIMED_OUT, post.what, wrong};
    return {};
  });
}

shale_status* all_gather(void* ctx, shale_lane* lane, std::uint32_t group, const shale_tensor* send,
                         const shale_tensor* recv) {
  return collective(ctx, lane, {.what = "all_gather", .group = group, .send = *send, .recv = *recv});
}
constexpr auto reduce_scatter = [](void* ctx, shale_lane* lane, std::uint32_t group, std::uint32_t op,
                                   const shale_tensor* send, const shale_tensor* recv) -> shale_status* {
  return collective(ctx, lane, {.what = "reduce_scatter", .group = group, .choice = op, .send = *send, .recv = *recv});
};
shale_status* all_reduce(void* ctx, shale_lane* lane, std::uint32_t group, std::uint32_t op, const shale_tensor* t) {
  return collective(ctx, lane, {.what = "all_reduce", .group = group, .choice = op, .send = *t, .recv = *t});
}
shale_status* all_to_all(void* ctx, shale_lane* lane, std::uint32_t group, const shale_tensor* send,
                         const shale_tensor* recv) {
  return collective(ctx, lane, {.what = "all_to_all", .group = group, .send = *send, .recv = *recv});
}
shale_status* broadcast(void* ctx, shale_lane* lane, std::uint32_t group, std::uint32_t root, const shale_tensor* t) {
  return collective(ctx, lane, {.what = "broadcast", .group = group, .choice = root, .send = *t, .recv = *t});
}

std::uint32_t ending(void*) { return 0; }
void parallel(void*, std::uint32_t n, void (*job)(void*, std::uint32_t), void* arg) {
  for (std::uint32_t k = 0; k < n; ++k) job(arg, k);
}

std::uint64_t mixed(std::uint64_t x) {  // splitmix64
  x = (x + 0x9e3779b97f4a7c15u);
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

double uniform(std::uint64_t k, std::uint64_t salt) {  // (0, 1)
  return (static_cast<double>(mixed(mixed(salt) + k) >> 11) + 0.5) * 0x1p-53;
}

}  // namespace

double any_value(std::uint64_t k, std::uint64_t salt) {
  return std::sin(static_cast<double>(k) * 0.37 + static_cast<double>(salt) * 1.7) * static_cast<double>(1 + k % 7);
}

double whole_value(std::uint64_t k, std::uint64_t salt) {
  return static_cast<double>(mixed(mixed(salt) + k) % 33) / 8 - 2;
}

void fill_first(Buffer& b, const StateAnswer& state, const Flat* flat, const Buffer* master) {
  std::uint64_t salt = 0;
  for (char c : state.name) salt = mixed(salt + static_cast<unsigned char>(c));
  if (flat != nullptr) salt = mixed(salt + (std::uint64_t{flat->c.unit} << 8) + flat->c.index);
  for (std::uint64_t k = 0; k < b.size(); ++k) {
    const auto at = 2 * (k + (flat == nullptr ? 0 : flat->c.begin));
    const double normal =
        std::sqrt(-2 * std::log(uniform(at, salt))) * std::cos(2 * std::numbers::pi * uniform(at + 1, salt));
    const bool from_master = state.first == SHALE_STATE_MASTER && master != nullptr;
    b.set(k, state.first == SHALE_STATE_NORMAL ? normal : from_master ? master->get(k) : state.fill);
  }
}

shale_status* serve(void* ctx, shale_lane* handle, const char* what, const std::function<Answer(Lane&)>& call) {
  Rank& r = rank_of(ctx);
  Lane* lane = r.running(handle);
  if (lane == nullptr) {
    r.stray = what;
    return r.host.make(SHALE_BAD_ARGUMENT, "lane", std::string(what) + " on a lane that no hook was handed");
  }
  const auto& fault = r.world.fault;
  const bool refuse = fault && fault->rank == r.id && fault->call == lane->calls;
  ++lane->calls;
  if (refuse) r.world.met_fault = true;
  const Answer answer = refuse ? Answer{SHALE_TIMED_OUT, what, "refused on purpose"} : call(*lane);
  if (answer.code == 0) return nullptr;
  lane->refused = answer.text;
  return r.host.make(answer.code, answer.where, answer.text);
}

shale_lane_service lane_service(Rank* r) { return {sizeof(shale_lane_service), 0, r, stream, scratch, state, reset}; }
shale_collectives collective_service(Rank* r) {
  return {sizeof(shale_collectives),
          0,
          r,
          group_size,
          group_rank,
          all_gather,
          reduce_scatter,
          all_reduce,
          all_to_all,
          broadcast};
}
shale_run run_service(Rank* r, std::uint32_t world) {
  return {sizeof(shale_run), r->id, world, r->id, 1234, {"", 0}, 10, r, ending, parallel};
}

}  // namespace shale::conform
