// Groups over NCCL: every operation in a group of one, and between two GPUs where there are two.
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include "core/base/error.h"
#include "tests/gpu/check.h"

namespace shale {
namespace {

struct Alone {
  explicit Alone(Bench& b) : bench(b), group(b.cuda->group({store.get(), 0, 1, "alone", 60})) {}
  Bench& bench;
  c10::intrusive_ptr<c10d::HashStore> store = c10::make_intrusive<c10d::HashStore>();
  std::unique_ptr<Group> group;
};

std::unique_ptr<Group> pair_of(Bench& b) {
  return b.world->device_group(world_partition(2), "pair", [&](c10d::Store& store, int rank, int size, auto& name) {
    return std::unique_ptr<Group>(b.cuda->group({&store, rank, size, name, 60}));
  });
}

at::TensorOptions on(const Bench& b, at::ScalarType type) { return at::TensorOptions(type).device(b.on()); }

// Numbers that a sum of few of them keeps exact in every type. At rank r they are r + 1 times as large.
at::Tensor whole(const Bench& b, std::int64_t n, at::ScalarType type, int rank) {
  return ((at::arange(n, at::kDouble) % 16) * (rank + 1)).to(type).to(b.on());
}

void equal(const char* what, const at::Tensor& found, const at::Tensor& wanted) {
  const double e = error_of(found, wanted);
  expect(e == 0, what, " is off by ", e);
}

void collectives(Bench& b, Group& g, at::ScalarType type) {
  const int me = g.rank(), ways = g.size();
  const std::int64_t n = 4096, total = n * ways;
  double factor = 0;  // what a sum over the ranks multiplies rank 0's numbers by
  for (int r = 0; r < ways; ++r) factor += r + 1;
  const auto first = whole(b, total, type, 0).to(at::kDouble);

  auto full = at::zeros({total}, on(b, type));
  full.narrow(0, me * n, n).copy_(whole(b, total, type, me).narrow(0, me * n, n));
  g.all_gather(full)->wait();
  for (int r = 0; r < ways; ++r)
    equal("all_gather", full.narrow(0, r * n, n), whole(b, total, type, r).narrow(0, r * n, n));

  const auto sum = type == at::kDouble ? at::kDouble : at::kFloat;
  auto mine = at::full({n}, 9, on(b, sum)), staging = at::zeros({total}, on(b, type));
  g.reduce_scatter(mine, whole(b, total, type, me), staging)->wait();
  equal("reduce_scatter", mine, first.narrow(0, me * n, n) * factor);

  auto all = whole(b, n, type, me);
  g.all_reduce(all, Reduction::sum)->wait();
  equal("all_reduce sum", all, first.narrow(0, 0, n) * factor);
  all = whole(b, n, type, me);
  g.all_reduce(all, Reduction::max)->wait();
  equal("all_reduce max", all, whole(b, n, type, ways - 1));
  all = whole(b, n, type, me);
  g.all_reduce(all, Reduction::min)->wait();
  equal("all_reduce min", all, whole(b, n, type, 0));

  all = whole(b, n, type, me);
  g.broadcast(all, ways - 1)->wait();
  equal("broadcast", all, whole(b, n, type, ways - 1));

  auto out = at::zeros({total}, on(b, type));
  g.all_to_all(out, whole(b, total, type, me))->wait();
  for (int r = 0; r < ways; ++r)
    equal("all_to_all", out.narrow(0, r * n, n), whole(b, total, type, r).narrow(0, me * n, n));
  g.barrier();
}

void every_type(Bench& b, Group& g) {
  for (auto type : {at::kFloat, at::kDouble, at::kBFloat16}) collectives(b, g, type);
}

void host_tensors(Group& g) {
  const auto numbers = at::full({4}, 2.0, at::kDouble);
  g.all_reduce(numbers, Reduction::sum)->wait();
  expect(numbers.sum().item<double>() == 8.0 * g.size(), "a tensor of the host was not summed");
  const double wanted = g.size() == 1 ? 1 : 3;
  const double found = all_reduce(g, g.rank() + 1.0, Reduction::sum);
  expect(found == wanted, "a sum of numbers of the host is ", found, " instead of ", wanted);
  const auto texts = all_gather_text(g, str("rank ", g.rank()));
  expect(static_cast<int>(texts.size()) == g.size() && texts.back() == str("rank ", g.size() - 1), "texts got lost");
}

void counts(Bench& b, Group& g) {
  const auto x = at::zeros({1000}, on(b, at::kFloat));
  const auto before = g.traffic()[Op::all_reduce];
  g.all_reduce(x, Reduction::sum)->wait();
  const auto after = g.traffic()[Op::all_reduce];
  const std::int64_t bytes = 2 * 4000 * (g.size() - 1) / g.size();
  expect(after.calls - before.calls == 1 && after.bytes - before.bytes == bytes, "counted ", after.bytes - before.bytes,
         " bytes instead of ", bytes);
}

// A collective starts behind the current stream and wait() holds the stream, not the host.
void ordered(Bench& b, Group& g) {
  Busy busy(b.on());
  auto x = at::zeros({1 << 20}, on(b, at::kFloat));
  busy.work();
  g.all_reduce(x, Reduction::sum)->wait();
  b.device.synchronize();
  busy.work();
  x.fill_(2);
  const auto work = g.all_reduce(x, Reduction::sum);
  work->wait();
  c10::Event end(at::kCUDA);
  end.record(c10::impl::VirtualGuardImpl(at::kCUDA).getStream(b.on()));
  expect(!end.query(), "wait() blocked the host");
  const auto y = x + 0;
  const float wanted = 2.0f * static_cast<float>(g.size());
  expect(y.min().item<float>() == wanted && y.max().item<float>() == wanted, "the sum was taken too early or read so");
}

void ends(Bench& b, Group& g) {
  auto x = at::zeros({10}, on(b, at::kFloat));
  g.all_reduce(x, Reduction::sum)->wait();
  b.device.synchronize();
  g.abort();
  try {
    g.all_reduce(x, Reduction::sum)->wait();
  } catch (const Error& e) {
    expect(e.code() == Code::dist && e.secondary(), "the error is not that of an ended group: ", e.what());
    return;
  }
  expect(false, "a group that was ended goes on");
}

void messages(Bench& b, Group& g) {
  const int me = g.rank(), other = 1 - me;
  const auto mine = whole(b, 5000, at::kFloat, me);
  auto theirs = at::zeros({5000}, on(b, at::kFloat));
  Works works;
  if (me == 0) {
    works.push_back(g.send(mine, other, 1)), works.push_back(g.recv(theirs, other, 2));
  } else {
    works.push_back(g.recv(theirs, other, 1)), works.push_back(g.send(mine, other, 2));
  }
  wait_all(works);
  equal("a message", theirs, whole(b, 5000, at::kFloat, other));
}

}  // namespace

void add_nccl_checks(Checks& checks) {
  const auto alone = [&](const char* name, std::function<void(Bench&, Group&)> run) {
    checks.push_back({str("nccl.one.", name), Needs::gpu, [run](Bench& b) { run(b, *Alone(b).group); }});
  };
  const auto both = [&](const char* name, std::function<void(Bench&, Group&)> run) {
    checks.push_back({str("nccl.two.", name), Needs::two_gpus, [run](Bench& b) { run(b, *pair_of(b)); }});
  };
  alone("collectives", every_type), alone("host_tensors", [](Bench&, Group& g) { host_tensors(g); });
  alone("counts", counts), alone("order", ordered), alone("ends", ends);
  both("collectives", every_type), both("host_tensors", [](Bench&, Group& g) { host_tensors(g); });
  both("counts", counts), both("order", ordered), both("messages", messages);
}

}  // namespace shale
