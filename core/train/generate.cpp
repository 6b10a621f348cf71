#include "core/train/generate.h"

#include <algorithm>
#include <cmath>
#include <random>

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include "core/base/error.h"
#include "core/checkpoint/snapshot.h"
#include "core/engine/engine.h"
#include "core/model/model.h"
#include "core/model/weights_file.h"

namespace shale {
namespace {

// One process, everything whole, nothing to train.
struct Inference {
  Model model;
  PrecisionTable precision;
  ShardPlan plan;
  std::unique_ptr<Engine> engine;
};

std::unique_ptr<Inference> make_inference(const Architecture& architecture, std::int64_t max_seq_len) {
  auto it = std::make_unique<Inference>();
  const std::vector<std::string> all{"*"};
  it->model = make_model(architecture, all, max_seq_len);
  for (auto& unit : it->model.info.units) it->precision.units.emplace_back(unit.parameters.size());
  it->plan.groups = {self_partition(1), world_partition(1)};
  it->plan.units.resize(it->model.info.units.size());
  const auto nobody = [](const Partition&, const std::string&) -> std::unique_ptr<Group> { return nullptr; };
  it->engine = std::make_unique<Engine>(it->model, it->precision, it->plan, nobody, EngineOptions{});
  return it;
}

// The folder as one of the two kinds it can be; file or reader is null.
struct Source {
  std::unique_ptr<WeightsFolder> file;
  std::unique_ptr<SnapshotReader> reader;
  Architecture architecture;
};

Source open_source(const std::string& folder, CheckpointFormat* format) {
  Source s;
  if (!format) {
    s.file = WeightsFolder::open(folder);
    s.architecture = read_architecture(folder);
  } else {
    s.reader = SnapshotReader::open(folder, *format);
    s.architecture = parse_architecture(s.reader->model_json(), folder + "/model.json");
  }
  return s;
}

at::Tensor read(Source& s, const std::string& folder, const ParameterInfo& p, std::int64_t begin, std::int64_t end) {
  if (s.file) return s.file->read(p.name, begin, end);
  const auto* item = s.reader->find(ItemRole::weight, p.name, "weight");
  if (!item) fail(Code::checkpoint, folder, ": holds no weight ", p.name);
  auto to = at::empty({end - begin}, at::TensorOptions(item->dtype));
  s.reader->read(*item, begin, to);
  return to;
}

std::int64_t draw(const at::Tensor& logits, const GenerateOptions& o, std::mt19937_64& random) {
  const auto row = logits.to(at::kDouble).contiguous();
  const double* x = row.const_data_ptr<double>();
  std::vector<std::int64_t> order(row.numel());
  for (std::size_t i = 0; i < order.size(); ++i) {
    order[i] = static_cast<std::int64_t>(i);
    if (!std::isfinite(x[i]))
      fail(Code::numeric, o.snapshot, ": the model gives token ", i, " the logit ", x[i],
           "; its weights are not finite or too large, take an earlier snapshot");
  }
  const auto k = o.temperature <= 0 ? 1 : o.top_k > 0 ? std::min<std::int64_t>(o.top_k, row.numel()) : row.numel();
  std::partial_sort(order.begin(), order.begin() + k, order.end(),
                    [&](auto a, auto b) { return x[a] != x[b] ? x[a] > x[b] : a < b; });
  if (k == 1) return order.front();
  std::vector<double> weight(k);
  for (std::int64_t i = 0; i < k; ++i) weight[i] = std::exp((x[order[i]] - x[order[0]]) / o.temperature);
  double total = 0;
  for (double w : weight) total += w;
  // A uniform number of our own: library distributions differ between implementations.
  double rest = static_cast<double>(random() >> 11) * 0x1p-53 * total;
  for (std::int64_t i = 0; i < k; ++i)
    if ((rest -= weight[i]) < 0) return order[i];
  return order[k - 1];
}

}  // namespace

void generate(const GenerateOptions& o, CheckpointFormat* format, const std::function<void(std::int64_t)>& emit) {
  const auto length = static_cast<std::int64_t>(o.prompt.size()) + o.max_new_tokens;
  auto source = open_source(o.snapshot, format);
  const auto it = make_inference(source.architecture, length);
  if (source.file) source.file->match(it->model.info, source.architecture);
  for (auto token : o.prompt)
    if (token < 0 || token >= it->model.architecture.vocab_size)
      fail(Code::config, "the prompt holds token ", token, ", but the vocabulary of ", o.snapshot, " has ",
           it->model.architecture.vocab_size, "; give the tokens with --ids");
  it->engine->initialise([&](const ParameterInfo& p, std::int64_t begin, std::int64_t end) {
    return read(source, o.snapshot, p, begin, end);
  });
  std::mt19937_64 random(o.seed);
  auto tokens = o.prompt;
  for (std::int64_t i = 0; i < o.max_new_tokens; ++i) {
    const auto n = static_cast<std::int64_t>(tokens.size());
    const auto from = std::max<std::int64_t>(0, n - it->model.architecture.max_positions);
    const auto input = at::from_blob(tokens.data() + from, {1, n - from}, at::TensorOptions(at::kLong));
    const auto next = draw(it->engine->logits(input).select(0, 0).select(0, n - from - 1), o, random);
    tokens.push_back(next);
    emit(next);
  }
}

}  // namespace shale
