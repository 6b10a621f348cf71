// AdamW and the gradient norm on shards of the device, against the CPU.
#include <cmath>
#include <deque>
#include <limits>

#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>

#include "core/optim/adamw.h"
#include "core/optim/norm.h"
#include "tests/gpu/check.h"

namespace shale {
namespace {

const std::vector<ParameterInfo>& parameters() {
  static const std::vector<ParameterInfo> two{{"matrix", {300, 70}, kLinear}, {"norm", {70}, kNorm}};
  return two;
}

// A rank that owns both parameters, and padding behind them that must not count.
Shard make_shard(at::Device device, at::ScalarType type) {
  const std::int64_t matrix = 300 * 70, norm = 70, n = matrix + norm;
  const auto options = at::TensorOptions(type).device(device);
  Shard s;
  s.layout.numel = n, s.layout.parameters = {0, 1}, s.layout.offsets = {0, matrix};
  s.range.length = n, s.range.chunk = n + 10;
  s.master = numbers({n}, 1, options);
  s.grad = numbers({n + 10}, 2, options).narrow(0, 0, n);
  s.exp_avg = at::zeros({n}, options), s.exp_avg_sq = at::zeros({n}, options);
  s.pieces = {{&parameters()[0], {}}, {&parameters()[1], {}}};
  s.pieces[0].range.count = matrix;
  s.pieces[1].range.shard_begin = matrix, s.pieces[1].range.count = norm;
  return s;
}

std::deque<Shard> train(at::Device device, at::ScalarType type, double grad_scale) {
  std::deque<Shard> shards;
  shards.push_back(make_shard(device, type));
  AdamW optimizer({.weight_decay = 0.3, .decay_norms = false}, {"matrix", "norm"});
  for (int i = 0; i < 5; ++i) {
    shards[0].grad.copy_(numbers({shards[0].range.length}, 10 + i, shards[0].grad.options()));
    const auto before = shards[0].grad.clone();
    optimizer.step(shards, 1e-2, grad_scale);
    expect(at::equal(shards[0].grad, before), "AdamW changed the gradient");
  }
  return shards;
}

void adamw(Bench& b, at::ScalarType type, double tolerance) {
  for (double scale : {1.0, 0.37}) {
    const auto found = train(b.on(), type, scale), wanted = train(at::kCPU, at::kDouble, scale);
    const double errors[] = {error_of(found[0].master, wanted[0].master), error_of(found[0].exp_avg, wanted[0].exp_avg),
                             error_of(found[0].exp_avg_sq, wanted[0].exp_avg_sq)};
    for (double e : errors) expect(e <= tolerance, "off by ", e, " at gradient scale ", scale);
  }
}

void norm(Bench& b) {
  for (auto type : {at::kFloat, at::kDouble}) {
    std::deque<Shard> here, there;
    for (int i = 0; i < 3; ++i) here.push_back(make_shard(b.on(), type)), there.push_back(make_shard(at::kCPU, type));
    here[1].counted = there[1].counted = false;
    const double found = squared_norm(here), wanted = squared_norm(there);
    expect(std::abs(found / wanted - 1) < 1e-6, "squared norm ", found, " instead of ", wanted);
    here[2].grad.fill_(std::numeric_limits<double>::infinity());
    expect(!std::isfinite(squared_norm(here)), "an infinite gradient has a finite norm");
  }
}

}  // namespace

void add_optim_checks(Checks& checks) {
  checks.push_back({"optim.adamw.float64", Needs::nothing, [](Bench& b) { adamw(b, at::kDouble, 1e-12); }});
  checks.push_back({"optim.adamw.float32", Needs::nothing, [](Bench& b) { adamw(b, at::kFloat, 1e-5); }});
  checks.push_back({"optim.norm", Needs::nothing, norm});
}

}  // namespace shale
