// shale.collectives/1: blocking on the CPU, in the order of the lane on CUDA.
#include <array>

#include <ATen/ops/from_blob.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>

#include "core/base/error.h"
#include "core/loader/hook_services.h"
#include "core/loader/tensor_view.h"

namespace shale {
namespace {

HookServices& services(void* ctx) { return *static_cast<HookServices*>(ctx); }

shale_status* bad(const char* argument, const std::string& text) {
  return make_status(SHALE_BAD_ARGUMENT, argument, text);
}

// My part of a group on a lane; group null: alone.
struct Members {
  Group* group = nullptr;
  std::int64_t size = 1, rank = 0;
};

shale_status* find_members(HookServices& s, shale_lane& l, std::uint32_t id, Members& out) {
  const GroupPart part = s.part(id);
  if (part.size == 0) return bad("group", str("is ", id, ", an id that the plan did not give"));
  out = {l.lane->group(static_cast<int>(id)), part.size, part.rank};
  const bool alone = out.group == nullptr;
  check(alone ? part.size == 1
              : out.group->size() == static_cast<int>(part.size) && out.group->rank() == static_cast<int>(part.rank),
        "group ", id, " of a lane has ", alone ? 1 : out.group->size(), " members, that of the plan ", part.size);
  return nullptr;
}

void copy_bytes(const at::Tensor& to, const at::Tensor& from) {
  if (to.numel() > 0 && !same_memory(to, from)) byte_view(to).copy_(byte_view(from));
}

// Piece k of `ways` equal ones.
at::Tensor piece(const at::Tensor& all, std::int64_t ways, std::int64_t k) {
  return flat_view(all).narrow(0, k * (all.numel() / ways), all.numel() / ways);
}

shale_status* same_dtype(const at::Tensor& a, const char* name, const at::Tensor& b, const char* other) {
  if (a.scalar_type() == b.scalar_type()) return nullptr;
  return bad(name, str("is of ", c10::toString(a.scalar_type()), ", ", other, " of ", c10::toString(b.scalar_type())));
}

// long = ways x short
shale_status* check_ways(const at::Tensor& longer, const char* name, const at::Tensor& shorter, std::int64_t ways) {
  if (longer.numel() == shorter.numel() * ways) return nullptr;
  return bad(name, str("has ", longer.numel(), " elements, must have ", ways, " x ", shorter.numel()));
}

bool reducible(at::ScalarType t) {
  return t == at::kDouble || t == at::kFloat || t == at::kBFloat16 || t == at::kHalf || t == at::kLong ||
         t == at::kInt || t == at::kShort;
}

shale_status* check_reduction(const at::Tensor& t, const char* name, std::uint32_t op) {
  if (op > SHALE_MIN) return bad("op", str("is ", op));
  if (reducible(t.scalar_type())) return nullptr;
  return bad(name, str("is of ", c10::toString(t.scalar_type()),
                       "; reductions take floats and integers of 16 bits and ", "more"));
}

shale_status* gather_all(const Members& m, const at::Tensor& send, const at::Tensor& recv) {
  if (auto* problem = same_dtype(send, "send", recv, "recv")) return problem;
  if (auto* problem = check_ways(recv, "recv", send, m.size)) return problem;
  const at::Tensor mine = piece(recv, m.size, m.rank);
  if (!same_memory(send, mine) && overlaps(send, recv))
    return bad("send", "overlaps recv and is not its own place in it");
  copy_bytes(mine, send);
  if (m.group != nullptr && recv.numel() > 0) m.group->all_gather(byte_view(recv))->wait();
  return nullptr;
}

shale_status* exchange_all(const Members& m, const at::Tensor& send, const at::Tensor& recv) {
  if (auto* problem = same_dtype(send, "send", recv, "recv")) return problem;
  if (send.numel() != recv.numel() || send.numel() % m.size != 0)
    return bad("send", str("has ", send.numel(), " elements, recv ", recv.numel(), "; both need the same number, a ",
                           "multiple of ", m.size));
  if (overlaps(send, recv)) return bad("recv", "overlaps send");
  if (m.group == nullptr) copy_bytes(recv, send);
  if (m.group != nullptr && send.numel() > 0) m.group->all_to_all(byte_view(recv), byte_view(send))->wait();
  return nullptr;
}

// recv = the pieces of all, reduced in rank order; narrow floats are added in fp32 and rounded once.
void reduce_pieces(const at::Tensor& all, std::int64_t ways, std::uint32_t op, const at::Tensor& recv) {
  constexpr std::int64_t kTile = 1 << 16;
  const bool narrow = recv.scalar_type() == at::kBFloat16 || recv.scalar_type() == at::kHalf;
  const at::ScalarType type = narrow ? at::kFloat : recv.scalar_type();
  const at::Tensor out = flat_view(recv);
  for (std::int64_t begin = 0; begin < out.numel(); begin += kTile) {
    const std::int64_t n = std::min(kTile, out.numel() - begin);
    const auto part = [&](std::int64_t k) { return piece(all, ways, k).narrow(0, begin, n); };
    at::Tensor sum = part(0).to(type, false, true);
    for (std::int64_t k = 1; k < ways; ++k) {
      const at::Tensor next = part(k).to(type);
      if (op == SHALE_SUM) sum.add_(next);
      if (op == SHALE_MAX) at::maximum_out(sum, sum, next);
      if (op == SHALE_MIN) at::minimum_out(sum, sum, next);
    }
    out.narrow(0, begin, n).copy_(sum);
  }
}

// As long as `like`, from the lane's scratch: once per hook as long as no later call needs more.
at::Tensor staging_for(shale_lane& l, const at::Tensor& like) {
  const auto bytes = static_cast<std::int64_t>(like.nbytes());
  if (!l.staging.defined() || l.staging.numel() < bytes)
    l.staging = at::from_blob(l.lane->scratch(bytes), {bytes}, like.options().dtype(at::kByte));
  return at::from_blob(l.staging.data_ptr(), {like.numel()}, like.options());
}

shale_status* scatter(shale_lane& l, const Members& m, std::uint32_t op, const at::Tensor& send,
                      const at::Tensor& recv) {
  if (auto* problem = check_reduction(send, "send", op)) return problem;
  const bool wide = recv.scalar_type() == at::kFloat || recv.scalar_type() == at::kDouble;
  const bool sums = op == SHALE_SUM && wide && at::isFloatingType(send.scalar_type());  // in a type of recv's own
  if (!sums)
    if (auto* problem = same_dtype(send, "send", recv, "recv")) return problem;
  if (auto* problem = check_ways(send, "send", recv, m.size)) return problem;
  if (overlaps(send, recv)) return bad("recv", "overlaps send");
  if (recv.numel() == 0) return nullptr;
  if (m.group == nullptr) return flat_view(recv).copy_(flat_view(send)), nullptr;
  const at::Tensor staging = staging_for(l, send);
  if (sums) return m.group->reduce_scatter(flat_view(recv), flat_view(send), staging)->wait(), nullptr;
  m.group->all_to_all(byte_view(staging), byte_view(send))->wait();
  reduce_pieces(staging, m.size, op, recv);
  return nullptr;
}

shale_status* reduce_all(const Members& m, std::uint32_t op, const at::Tensor& inout) {
  if (auto* problem = check_reduction(inout, "inout", op)) return problem;
  if (m.group == nullptr || inout.numel() == 0) return nullptr;
  constexpr std::array kOpOf = {Reduction::sum, Reduction::max, Reduction::min};
  const bool widen = inout.scalar_type() == at::kShort;  // no backend reduces it
  const at::Tensor numbers = widen ? inout.to(at::kInt) : inout;
  m.group->all_reduce(numbers, kOpOf[op])->wait();
  if (widen) inout.copy_(numbers);
  return nullptr;
}

// ---- the table ----------------------------------------------------------------------------------------------------
std::uint32_t size(void* ctx, std::uint32_t group) { return services(ctx).part(group).size; }
std::uint32_t rank(void* ctx, std::uint32_t group) { return services(ctx).part(group).rank; }

// body(lane, members, send, recv)
template <class F>
shale_status* from_to(void* ctx, shale_lane* lane, std::uint32_t group,
                      std::pair<const shale_tensor*, const shale_tensor*> t, F&& body) {
  return services(ctx).answer(lane, [&](shale_lane& l) -> shale_status* {
    Members members;
    at::Tensor send, recv;
    if (auto* problem = find_members(services(ctx), l, group, members)) return problem;
    if (auto* problem = tensor_from_c(t.first, "send", Use::read, l.device, send)) return problem;
    if (auto* problem = tensor_from_c(t.second, "recv", Use::write, l.device, recv)) return problem;
    if (l.changing.defined() && overlaps(send, l.changing))
      return bad("send", "is the master, which the next steps may change while it is sent: copy it first");
    return body(l, members, send, recv);
  });
}

// body(members, inout)
template <class F>
shale_status* in_place(void* ctx, shale_lane* lane, std::uint32_t group, const shale_tensor* t, F&& body) {
  return services(ctx).answer(lane, [&](shale_lane& l) -> shale_status* {
    Members members;
    at::Tensor inout;
    if (auto* problem = find_members(services(ctx), l, group, members)) return problem;
    if (auto* problem = tensor_from_c(t, "inout", Use::write, l.device, inout)) return problem;
    return body(members, inout);
  });
}

shale_status* all_gather(void* ctx, shale_lane* lane, std::uint32_t group, const shale_tensor* send,
                         const shale_tensor* recv) {
  return from_to(
      ctx, lane, group, {send, recv},
      [](shale_lane&, const Members& m, const at::Tensor& s, const at::Tensor& r) { return gather_all(m, s, r); });
}
constexpr auto reduce_scatter = [](void* ctx, shale_lane* lane, std::uint32_t group, std::uint32_t op,
                                   const shale_tensor* send, const shale_tensor* recv) -> shale_status* {
  return from_to(ctx, lane, group, {send, recv},
                 [op](shale_lane& l, const Members& m, const at::Tensor& s, const at::Tensor& r) {
                   return scatter(l, m, op, s, r);
                 });
};
shale_status* all_reduce(void* ctx, shale_lane* lane, std::uint32_t group, std::uint32_t op,
                         const shale_tensor* inout) {
  return in_place(ctx, lane, group, inout,
                  [op](const Members& m, const at::Tensor& t) { return reduce_all(m, op, t); });
}
shale_status* all_to_all(void* ctx, shale_lane* lane, std::uint32_t group, const shale_tensor* send,
                         const shale_tensor* recv) {
  return from_to(
      ctx, lane, group, {send, recv},
      [](shale_lane&, const Members& m, const at::Tensor& s, const at::Tensor& r) { return exchange_all(m, s, r); });
}
shale_status* broadcast(void* ctx, shale_lane* lane, std::uint32_t group, std::uint32_t root,
                        const shale_tensor* inout) {
  return in_place(ctx, lane, group, inout, [root](const Members& m, const at::Tensor& t) -> shale_status* {
    if (root >= m.size) return bad("root", str("is ", root, ", the group has ", m.size, " ranks"));
    if (m.group != nullptr && t.numel() > 0) m.group->broadcast(byte_view(t), static_cast<int>(root))->wait();
    return nullptr;
  });
}

}  // namespace

shale_collectives collectives_table(HookServices* services) {
  return {sizeof(shale_collectives),
          0,
          services,
          size,
          rank,
          all_gather,
          reduce_scatter,
          all_reduce,
          all_to_all,
          broadcast};
}

}  // namespace shale
