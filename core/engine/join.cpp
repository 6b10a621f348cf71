#include "core/engine/join.h"

#include <algorithm>
#include <iterator>

#include "core/base/error.h"

namespace shale {
namespace {

[[noreturn]] void refuse(const UnitInfo& unit, const std::string& why) {
  fail(Code::config, "[sharding] the plan joins unit ", unit.name, " to the one before it, but ", why);
}

void check_joinable(const ModelInfo& info, std::size_t second, const ShardPlan& plan) {
  const auto& unit = info.units[second];
  if (plan.own.any() || !plan.states.empty()) refuse(unit, "a strategy with hooks works on single units");
  if (second == 0) refuse(unit, "it is the first");
  const auto& before = info.units[second - 1];
  if (unit.kind != UnitKind::layer || before.kind != UnitKind::layer)
    refuse(unit,
           str("only layers can be joined, and ", unit.kind != UnitKind::layer ? unit.name : before.name, " is none"));
  if (!unit.borrows.empty() || !before.borrows.empty()) refuse(unit, "one of them uses parameters of another unit");
  const auto order = info.run_order();
  const auto both = {static_cast<int>(second) - 1, static_cast<int>(second)};
  for (int u : both)
    if (std::count(order.begin(), order.end(), u) != 1) refuse(unit, str(info.units[u].name, " does not run once"));
  if (std::search(order.begin(), order.end(), both.begin(), both.end()) == order.end())
    refuse(unit, str("it does not run right after ", before.name));
}

UnitForward in_turn(UnitForward first, UnitForward second, std::size_t first_weights) {
  return [=](const ModelInput& input, std::span<Weight> weights, const at::Tensor& x) {
    return second(input, weights.subspan(first_weights), first(input, weights.first(first_weights), x));
  };
}

template <class T>
void append(std::vector<T>& to, const std::vector<T>& more) {
  to.insert(to.end(), more.begin(), more.end());
}

template <class T>
void erase_at(std::vector<T>& from, std::size_t i) {
  from.erase(from.begin() + static_cast<std::ptrdiff_t>(i));
}

void drop_from_order(std::vector<int>& order, int unit) {
  std::erase(order, unit);
  for (int& u : order) u -= u > unit;
}

void join(Model& model, PrecisionTable& precision, ShardPlan& plan, std::size_t second) {
  auto& first = model.info.units[second - 1];
  const auto& unit = model.info.units[second];
  const auto first_weights = first.parameters.size();
  first.name += "+" + unit.name.substr(unit.name.rfind('.') + 1);
  first.layers += unit.layers;
  append(first.parameters, unit.parameters);
  append(precision.units[second - 1], precision.units[second]);
  model.forward[second - 1] = in_turn(model.forward[second - 1], model.forward[second], first_weights);
  drop_from_order(model.info.order, static_cast<int>(second));
  erase_at(model.info.units, second), erase_at(model.forward, second);
  erase_at(precision.units, second), erase_at(plan.units, second);
}

}  // namespace

void join_units(Model& model, PrecisionTable& precision, ShardPlan& plan) {
  for (std::size_t i = 0; i < plan.units.size(); ++i)
    if (plan.units[i].join) check_joinable(model.info, i, plan);
  for (auto i = plan.units.size(); i-- > 1;)
    if (plan.units[i].join) join(model, precision, plan, i);
}

}  // namespace shale
