#include "board.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>

#include "shale/services.h"

namespace shale::conform {
namespace {

std::byte* at(const shale_tensor& t, std::uint64_t byte) { return static_cast<std::byte*>(t.data) + byte; }

void move(const shale_tensor& to, std::uint64_t to_byte, const shale_tensor& from, std::uint64_t from_byte,
          std::uint64_t n) {
  if (n != 0) std::memmove(at(to, to_byte), at(from, from_byte), n);
}

double together(std::uint32_t op, double a, double b) {
  if (op == SHALE_SUM) return a + b;
  if (std::isnan(a) || std::isnan(b)) return std::nan("");
  return op == SHALE_MAX ? std::max(a, b) : std::min(a, b);
}

// Element k over all ranks, in rank order. Floats are added up in fp32, or in fp64 when that is where they go.
double reduced(const std::vector<Post*>& all, std::uint64_t k) {
  const auto dtype = all[0]->send.dtype;
  const bool narrow = is_float(dtype) && all[0]->recv.dtype != SHALE_F64;
  double value = load(dtype, all[0]->send.data, k);
  for (std::size_t r = 1; r < all.size(); ++r) {
    value = together(all[0]->choice, value, load(dtype, all[r]->send.data, k));
    if (narrow) value = static_cast<double>(static_cast<float>(value));
  }
  return value;
}

void perform(const std::vector<Post*>& all) {
  const std::string what = all[0]->what;
  const std::uint64_t n = all.size();
  if (what == "all_gather") {
    for (auto* to : all)
      for (std::uint64_t k = 0; k < n; ++k) move(to->recv, k * bytes(to->send), all[k]->send, 0, bytes(all[k]->send));
  } else if (what == "all_to_all") {
    const auto piece = bytes(all[0]->send) / n;
    for (std::uint64_t to = 0; to < n; ++to)
      for (std::uint64_t k = 0; k < n; ++k) move(all[to]->recv, k * piece, all[k]->send, to * piece, piece);
  } else if (what == "broadcast") {
    for (auto* to : all) move(to->recv, 0, all[all[0]->choice]->send, 0, bytes(to->recv));
  } else {  // all_reduce, reduce_scatter: recv of rank k is the elements from k x its length on, or all of them
    const bool pieces = what == "reduce_scatter";
    std::vector<double> sums(count(all[0]->send));
    for (std::uint64_t k = 0; k < sums.size(); ++k) sums[k] = reduced(all, k);
    for (std::uint64_t r = 0; r < n; ++r)
      for (std::uint64_t k = 0; k < count(all[r]->recv); ++k)
        store(all[r]->recv.dtype, all[r]->recv.data, k, sums[pieces ? r * count(all[r]->recv) + k : k]);
  }
}

std::string text_of(const Post& p) {
  std::string out = std::string(p.what) + " of " + std::to_string(count(p.send)) + " elements of " +
                    std::to_string(SHALE_DTYPE_BITS(p.send.dtype)) + " bits";
  if (p.choice != 0) out += std::string(p.what[0] == 'b' ? ", root " : ", operation ") + std::to_string(p.choice);
  return out + " in hook call " + std::to_string(p.number);
}

bool reducible(std::uint32_t dtype) { return is_number(dtype) && SHALE_DTYPE_BITS(dtype) >= 16; }

}  // namespace

std::string problem(const Post& p, const std::vector<std::uint32_t>& part) {
  const std::string what = p.what;
  const std::uint64_t ranks = part.size();
  const auto send = count(p.send), recv = count(p.recv);
  const bool reduces = what == "reduce_scatter" || what == "all_reduce", swaps = what == "all_to_all";
  const bool alone = what == "all_reduce" || what == "broadcast";  // one tensor, read and written
  if (auto wrong = problem(p.send, alone); !wrong.empty()) return what + ": what it sends " + wrong;
  if (auto wrong = problem(p.recv, true); !wrong.empty()) return what + ": what it receives into " + wrong;
  const bool widens = what == "reduce_scatter" && p.choice == SHALE_SUM && is_float(p.send.dtype) &&
                      (p.recv.dtype == SHALE_F32 || p.recv.dtype == SHALE_F64);
  if (p.send.dtype != p.recv.dtype && !widens) return what + ": send and recv differ in dtype";
  if (reduces && !reducible(p.send.dtype)) return what + ": reduces floats and integers of 16 bits and more only";
  if (reduces && p.choice > SHALE_MIN) return what + ": there is no operation " + std::to_string(p.choice);
  if (what == "broadcast" && p.choice >= ranks) return what + ": there is no root " + std::to_string(p.choice);
  if ((what == "all_gather" && recv != ranks * send) || (what == "reduce_scatter" && send != ranks * recv) ||
      (swaps && (send != recv || send % ranks != 0)))
    return what + ": " + std::to_string(send) + " elements to send and " + std::to_string(recv) +
           " to receive do not fit " + std::to_string(ranks) + " ranks";
  if ((swaps || what == "reduce_scatter") && overlap(p.send, p.recv)) return what + ": send and recv overlap";
  const auto place = static_cast<std::uint64_t>(std::find(part.begin(), part.end(), p.rank) - part.begin());
  if (what == "all_gather" && overlap(p.send, p.recv) && p.send.data != at(p.recv, place * bytes(p.send)))
    return what + ": send lies in recv, but not at this rank's place";
  return "";
}

Board::Board(std::vector<std::vector<std::uint32_t>> groups, double wait_limit) : wait_limit_(wait_limit) {
  for (auto& color : groups) {
    auto& of_rank = parts_.emplace_back(color.size());
    for (std::uint32_t rank = 0; rank < color.size(); ++rank)
      for (std::uint32_t other = 0; other < color.size(); ++other)
        if (color[rank] == color[other]) of_rank[rank].push_back(other);
    states_.resize(color.size());
  }
}

const std::vector<std::uint32_t>& Board::part(std::uint32_t group, std::uint32_t rank) const {
  return parts_.at(group).at(rank);
}

void Board::start() {
  const std::lock_guard lock(mutex_);
  std::fill(states_.begin(), states_.end(), State::running);
  open_.clear();
  cause_.clear();
}

void Board::leave(std::uint32_t rank) {
  const std::lock_guard lock(mutex_);
  states_[rank] = State::gone;
  look_for_stuck();
}

std::string Board::cause() const {
  const std::lock_guard lock(mutex_);
  return cause_;
}

std::string Board::meet(Post& post) {
  std::unique_lock lock(mutex_);
  if (!cause_.empty()) return cause_;
  const auto& part = parts_[post.group][post.rank];
  auto& here = open_[{post.group, part[0]}];
  here.push_back(&post);
  if (here.size() == part.size()) {
    complete(here);
    return cause_;
  }
  states_[post.rank] = State::waiting;
  look_for_stuck();
  const auto over = [&] { return post.done || !cause_.empty(); };
  if (!changed_.wait_for(lock, std::chrono::duration<double>(wait_limit_), over)) {
    cause_ = missing(here) + " did not come within the time limit";
    changed_.notify_all();
  }
  states_[post.rank] = State::running;
  return post.done ? "" : cause_;
}

void Board::complete(std::vector<Post*>& all) {
  std::sort(all.begin(), all.end(), [](auto* a, auto* b) { return a->rank < b->rank; });
  for (auto* p : all)
    if (text_of(*p) != text_of(*all[0]) || p->send.dtype != all[0]->send.dtype || p->recv.dtype != all[0]->recv.dtype) {
      cause_ = "ranks of group " + std::to_string(p->group) + " call different things: rank " +
               std::to_string(all[0]->rank) + " " + text_of(*all[0]) + ", rank " + std::to_string(p->rank) + " " +
               text_of(*p);
      break;
    }
  if (cause_.empty()) {
    perform(all);
    for (auto* p : all) p->done = true, states_[p->rank] = State::running;
  }
  all.clear();
  changed_.notify_all();
}

std::string Board::missing(const std::vector<Post*>& here) const {
  const Post& p = *here[0];
  const auto& part = parts_[p.group][p.rank];
  const auto gone = [&](auto rank) { return states_[rank] == State::gone; };
  const auto absent = [&](auto rank) {
    return std::none_of(here.begin(), here.end(), [&](auto* other) { return other->rank == rank; });
  };
  auto found = std::find_if(part.begin(), part.end(), gone);
  if (found == part.end()) found = std::find_if(part.begin(), part.end(), absent);
  return "rank " + std::to_string(p.rank) + " waits in " + text_of(p) + " of group " + std::to_string(p.group) +
         ", and rank " + std::to_string(*found);
}

void Board::look_for_stuck() {
  if (!cause_.empty()) return;
  const bool all_wait = std::none_of(states_.begin(), states_.end(), [](State s) { return s == State::running; });
  for (auto& [key, here] : open_) {
    if (here.empty()) continue;
    const auto& part = parts_[key.first][key.second];
    const bool gone = std::any_of(part.begin(), part.end(), [&](auto rank) { return states_[rank] == State::gone; });
    if (gone) cause_ = missing(here) + " has returned from its hook";
    if (!gone && all_wait) cause_ = missing(here) + " waits in another group";
    if (!cause_.empty()) break;
  }
  if (!cause_.empty()) changed_.notify_all();
}

}  // namespace shale::conform
