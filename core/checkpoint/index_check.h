// What a format says about a folder is checked here before anything is read by it: names, shapes, bounds, overlap and
// coverage. Nothing in an index is trusted.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/checkpoint/format.h"

namespace shale {

// Size of a file of the folder, or Error{checkpoint} when it is not there or may not be used.
using FileSize = std::function<std::uint64_t(const std::string& name)>;

// Sorts items and drops boxes without elements. Error{checkpoint} naming `where`, the item and the numbers. Returns the
// boxes of each item, sorted by begin.
std::vector<std::vector<StoredBox>> checked_boxes(Index&, const FileSize&, const std::string& where);

// Do the boxes, all inside `shape`, hold every element exactly once? "" or what is wrong. O(n log n) in the boxes.
std::string coverage_problem(const std::vector<std::int64_t>& shape, const std::vector<StoredBox>& boxes);

}  // namespace shale
