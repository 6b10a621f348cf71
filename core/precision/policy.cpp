#include "core/precision/policy.h"

#include "core/base/error.h"

namespace shale {
namespace {

bool is_float(at::ScalarType t) { return t == at::kDouble || t == at::kFloat || t == at::kBFloat16 || t == at::kHalf; }

void require(bool holds, const ParameterInfo& p, const char* what, at::ScalarType found, const char* expected) {
  if (!holds)
    fail(Code::config, "[precision] ", p.name, ": ", what, " dtype ", c10::toString(found), " is not supported here; ",
         "expected ", expected);
}

void validate_parameter(const ParameterPrecision& t, const ParameterInfo& p) {
  for (auto dtype : {t.master, t.compute, t.gather, t.grad, t.reduce, t.accumulate, t.moments})
    require(is_float(dtype), p, "a", dtype, "float64, float32, bfloat16 or float16");
  const bool wide = t.accumulate == at::kFloat || t.accumulate == at::kDouble;
  require(wide, p, "accumulate", t.accumulate, "float32 or float64");
  require(t.master == t.accumulate, p, "master", t.master, "the accumulate dtype");
  require(t.moments == t.master, p, "moments", t.moments, "the master dtype");
  const bool narrower = c10::elementSize(t.gather) < c10::elementSize(t.compute);
  require(t.gather == t.compute || narrower, p, "gather", t.gather, "the compute dtype or a narrower one");
  const bool fits = t.grad == t.compute || t.grad == t.accumulate;
  require(fits, p, "grad", t.grad, "the compute or the accumulate dtype");
  const bool summable = c10::elementSize(t.reduce) <= c10::elementSize(t.accumulate);
  require(summable, p, "reduce", t.reduce, "the accumulate dtype or a narrower one");
}

}  // namespace

std::string PrecisionTable::text() const {
  std::string out;
  for (auto& unit : units)
    for (auto& p : unit) {
      for (auto dtype : {p.master, p.compute, p.gather, p.grad, p.reduce, p.accumulate, p.moments})
        out += str(c10::toString(dtype), " ");
      out += "\n";
    }
  if (loss_scale) {
    const auto& s = *loss_scale;
    for (double x : {s.initial, s.growth, s.backoff, s.min, s.max}) out += exact(x) + " ";
    out += str(s.growth_steps, " ", s.hysteresis, " ", s.max_skips, "\n");
  }
  return out;
}

void validate(const PrecisionTable& table, const ModelInfo& model) {
  check(table.units.size() == model.units.size(), "precision table has ", table.units.size(), " units");
  for (std::size_t u = 0; u < model.units.size(); ++u) {
    auto& parameters = model.units[u].parameters;
    check(table.units[u].size() == parameters.size(), "precision table of unit ", model.units[u].name, " is short");
    for (std::size_t k = 0; k < parameters.size(); ++k) validate_parameter(table.units[u][k], parameters[k]);
  }
}

}  // namespace shale
