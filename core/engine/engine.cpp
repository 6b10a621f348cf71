#include "core/engine/engine.h"

#include <algorithm>
#include <limits>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <torch/csrc/autograd/autograd.h>

#include "core/base/error.h"

namespace shale {

void Engine::initialise(const Values& values) {
  constexpr std::int64_t kPart = 1 << 22;  // elements asked for at once: a whole embedding in float64 is gigabytes
  at::NoGradGuard off;
  drain();
  for (auto& s : shards_)
    for (auto& piece : s.pieces) {
      const auto& r = piece.range;
      for (std::int64_t done = 0; done < r.count; done += kPart) {
        const auto n = std::min(kPart, r.count - done), begin = r.parameter_begin + done;
        s.master.narrow(0, r.shard_begin + done, n).copy_(values(*piece.parameter, begin, begin + n));
      }
    }
  hooks_.states().fill();
  weights_changed();
}

void Engine::weights_changed() {
  at::NoGradGuard off;
  hooks_.now.purpose = Purpose::update;
  weights_.invalidate(weight_slots_);
  for (std::size_t u = 0; u < units_.size(); ++u)
    if (plan_.units[u].gather_at == GatherAt::after_update) weights_.prefetch(units_[u]);
}

// The weights of a position are in their slots on return, and the next ones are on their way.
void Engine::before(std::size_t position, int direction) {
  auto& p = positions_[position];
  weights_.acquire(*p.unit);
  for (auto* owner : p.borrowed) weights_.acquire(*owner);
  const int ahead = plan_.units[p.unit_index].prefetch;
  for (int i = 1; i <= ahead; ++i) {
    const auto next = static_cast<std::int64_t>(position) + direction * i;
    if (next < 0 || next >= static_cast<std::int64_t>(positions_.size())) break;
    if (direction < 0 && next < static_cast<std::int64_t>(first_trained_)) break;  // backward ends before it
    weights_.prefetch(*positions_[next].unit);
  }
}

void Engine::after(std::size_t position) {
  weights_.release(*positions_[position].unit);
  for (auto* owner : positions_[position].borrowed) weights_.release(*owner);
}

at::Tensor Engine::run(std::size_t position, const ModelInput& input, const at::Tensor& x) {
  auto& p = positions_[position];
  weights_.verify(*p.unit);
  for (auto* owner : p.borrowed) weights_.verify(*owner);
  return model_.forward[p.unit_index](input, p.weights, x);
}

at::Tensor Engine::forward(const ModelInput& input, std::vector<Segment>* tape) {
  for (auto& slot : weight_slots_) {  // an error may have left one busy
    if (slot.busy) record(slot.free);
    slot.busy = false;
  }
  hooks_.now.purpose = tape ? Purpose::forward : Purpose::evaluation;
  at::Tensor h;
  for (std::size_t i = 0; i < positions_.size(); ++i) {
    before(i, +1);
    const bool trains = tape && i >= first_trained_;
    const bool again = options_.checkpoint_layers && positions_[i].unit->info->kind == UnitKind::layer;
    Segment s{i, h.defined() ? h.detach() : h, {}};
    if (trains && i > first_trained_) s.in.set_requires_grad(true);
    {
      at::AutoGradMode mode(trains && !again);
      h = run(i, input, s.in);
    }
    if (trains && !again) s.out = h;
    if (trains) tape->push_back(std::move(s));
    after(i);
  }
  return h;
}

void Engine::backward(std::vector<Segment>& tape, const ModelInput& input, const at::Tensor& seed) {
  at::Tensor grad = seed;
  hooks_.now.purpose = Purpose::backward;
  for (; !tape.empty(); tape.pop_back()) {
    auto& s = tape.back();
    auto& p = positions_[s.position];
    before(s.position, -1);
    gradients_.open(*p.unit);
    for (auto* owner : p.borrowed) gradients_.open(*owner);
    if (!s.out.defined()) {
      at::AutoGradMode on(true);
      s.out = run(s.position, input, s.in);
    } else {
      weights_.verify(*p.unit);
    }
    torch::autograd::backward({s.out}, {grad});
    grad = s.in.defined() ? s.in.grad() : at::Tensor();
    after(s.position);
    if (!p.unit->pinned) close(p.unit_index);
  }
  for (std::size_t u = 0; u < units_.size(); ++u)
    if (units_[u].pinned) close(static_cast<int>(u));
}

// Gradients that are reduced at the boundary only stay open until then.
void Engine::close(int unit) {
  if (plan_.units[unit].reduce_at == SyncAt::boundary && !last_micro_step_) return;
  gradients_.close(units_[unit], unit, last_micro_step_);
}

void Engine::begin_step(std::int64_t step, double grad_scale, bool after_skip) {
  hooks_.now.after_skip = after_skip;
  hooks_.now.step = step, hooks_.now.grad_scale = grad_scale, hooks_.now.micro_step = -1;
  gradients_.abandon(units_, grad_slots_);  // of a step that ended in an error
  gradients_.settle();
  gradients_.begin_step(units_);
}

double Engine::forward_backward(const Batch& batch, double seed, bool last) {
  last_micro_step_ = last;
  hooks_.now.last = last, ++hooks_.now.micro_step;
  const ModelInput input{batch.tokens.to(options_.device), batch.targets.to(options_.device)};
  std::vector<Segment> tape;
  tape.reserve(positions_.size());
  const auto loss = forward(input, &tape).detach();
  check(!tape.empty(), "every parameter of the model is frozen: there is nothing to train");
  if (loss.scalar_type() != at::kDouble && seed > std::numeric_limits<float>::max())
    fail(Code::config, "a loss scale of ", hooks_.now.grad_scale, " is beyond the range of float32; lower it");
  backward(tape, input, at::full({}, seed, loss.options()));
  return loss.item<double>();  // last, for it waits for the device
}

void Engine::end_step() {
  gradients_.finish(grad_slots_);
  weights_.settle();
}

void Engine::conclude(bool skipped) { hooks_.step_end(skipped); }

bool Engine::outer_step() {
  at::NoGradGuard off;
  return hooks_.outer_step(units_);
}

void Engine::drain() {
  hooks_.drain();
  weights_.drain(weight_slots_);
}

double Engine::evaluate(const Batch& batch) {
  at::NoGradGuard off;
  const ModelInput input{batch.tokens.to(options_.device), batch.targets.to(options_.device)};
  return forward(input, nullptr).item<double>();
}

at::Tensor Engine::logits(const at::Tensor& tokens) {
  at::NoGradGuard off;
  return forward({tokens.to(options_.device), {}}, nullptr);
}

void Engine::each_parameter(const std::function<void(const ParameterInfo&, const at::Tensor&)>& visit) {
  at::NoGradGuard off;
  hooks_.now.purpose = Purpose::evaluation;
  for (std::size_t i = 0; i < positions_.size(); ++i) {
    auto& u = *positions_[i].unit;
    weights_.acquire(u);
    for (std::size_t k = 0; k < u.info->parameters.size(); ++k)
      visit(u.info->parameters[k], positions_[i].weights[k].value.detach());
    weights_.release(u);
  }
}

std::map<std::string, Traffic> Engine::traffic_by_purpose() const {
  auto out = hooks_.traffic();
  for (auto& [name, g] : groups_) out[name.substr(0, name.find('.'))] += g->traffic();
  return out;
}

Traffic Engine::traffic() const {
  Traffic sum;
  for (auto& [purpose, traffic] : traffic_by_purpose()) sum += traffic;
  return sum;
}

}  // namespace shale
