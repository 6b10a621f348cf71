// Moves a part of a stored box into a 1-d range of the tensor's row-major order, as few and as long runs as there are.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "core/checkpoint/item.h"

namespace shale {

// Calls visit(from, to, n) for every run of `part` that is contiguous both in the row-major data of `stored` and in the
// row-major order of the tensor: n elements at `from` of the box's data are elements `to`... of the tensor. In order.
// `part` lies inside `stored`, and `stored` inside `shape`.
using VisitRun = std::function<void(std::int64_t from, std::int64_t to, std::int64_t n)>;
void for_each_run(const std::vector<std::int64_t>& shape, const Box& stored, const Box& part, const VisitRun& visit);

}  // namespace shale
