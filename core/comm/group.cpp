#include "core/comm/group.h"

#include <algorithm>
#include <cstring>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "core/base/error.h"

namespace shale {

void wait_all(Works& works) {
  for (std::unique_ptr<Work>& work : works) work->wait();
  works.clear();
}

Traffic& Traffic::operator+=(const Traffic& more) {
  for (std::size_t i = 0; i < kOps; ++i) {
    ops[i].calls += more.ops[i].calls;
    ops[i].bytes += more.ops[i].bytes;
  }
  waited += more.waited;
  return *this;
}

const char* op_name(Op op) {
  static constexpr std::array<const char*, kOps> kNames = {"all_gather", "reduce_scatter", "all_reduce", "broadcast",
                                                           "barrier",    "all_to_all",     "send",       "recv"};
  return kNames[static_cast<std::size_t>(op)];
}

double all_reduce(Group& group, double value, Reduction reduction) {
  return all_reduce(group, std::vector<double>{value}, reduction)[0];
}

std::vector<double> all_reduce(Group& group, std::vector<double> values, Reduction reduction) {
  if (group.size() == 1 || values.empty()) return values;
  const at::Tensor numbers = at::empty({static_cast<std::int64_t>(values.size())}, at::kDouble);
  std::copy(values.begin(), values.end(), numbers.data_ptr<double>());
  group.all_reduce(numbers, reduction)->wait();
  std::copy_n(numbers.data_ptr<double>(), values.size(), values.begin());
  return values;
}

std::vector<std::string> all_gather_text(Group& group, const std::string& mine) {
  if (group.size() == 1) return {mine};
  const auto ways = static_cast<std::size_t>(group.size()), me = static_cast<std::size_t>(group.rank());
  const auto ways_64 = static_cast<std::int64_t>(ways);
  const at::Tensor lengths = at::zeros({ways_64}, at::kLong);
  auto* length = lengths.data_ptr<std::int64_t>();
  length[me] = static_cast<std::int64_t>(mine.size());
  group.all_gather(lengths)->wait();
  const std::int64_t longest = *std::max_element(length, length + ways);
  const at::Tensor bytes = at::zeros({ways_64 * longest}, at::kByte);
  auto* text = static_cast<char*>(bytes.data_ptr());
  if (!mine.empty()) std::memcpy(text + me * static_cast<std::size_t>(longest), mine.data(), mine.size());
  group.all_gather(bytes)->wait();
  std::vector<std::string> out;
  for (std::size_t r = 0; r < ways; ++r) {
    out.emplace_back(text + r * static_cast<std::size_t>(longest), static_cast<std::size_t>(length[r]));
  }
  return out;
}

}  // namespace shale
