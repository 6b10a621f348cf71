#include "core/checkpoint/copy.h"

namespace shale {

void for_each_run(const std::vector<std::int64_t>& shape, const Box& stored, const Box& part, const VisitRun& visit) {
  if (part.empty()) return;
  // Trailing dimensions that the part and the box span wholly belong to one run, and the first that they do not.
  std::size_t outer = shape.size();
  std::int64_t run = 1;
  while (outer > 0) {
    --outer;
    run *= part.extent[outer];
    if (part.extent[outer] != stored.extent[outer] || stored.extent[outer] != shape[outer]) break;
  }
  std::vector<std::int64_t> at = part.begin;
  while (true) {
    std::int64_t from = 0, to = 0;
    for (std::size_t d = 0; d < shape.size(); ++d) {
      from = from * stored.extent[d] + at[d] - stored.begin[d];
      to = to * shape[d] + at[d];
    }
    visit(from, to, run);
    std::size_t d = outer;
    while (d > 0 && ++at[d - 1] == part.begin[d - 1] + part.extent[d - 1]) {
      at[d - 1] = part.begin[d - 1];
      --d;
    }
    if (d == 0) return;
  }
}

}  // namespace shale
