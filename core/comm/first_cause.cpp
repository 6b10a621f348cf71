#include "core/comm/first_cause.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/base/clock.h"
#include "core/comm/rank_report.h"

namespace shale {
namespace {

constexpr double kLimit = 1.5;  // seconds for a cause to come, and again for the others to read it
constexpr double kAnswer = 1;   // seconds for the store to answer
constexpr int kMostNamed = 8;

// Asks the store until the count is reached.
bool reached(Store& store, const std::string& count, std::int64_t least, double seconds) {
  for (const double end = now() + seconds; store.add(count, 0) < least;) {
    if (now() >= end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return true;
}

// "3 text" in the store; only the first of several causes is told.
void tell(Store& store, int rank, const RankReport& mine) {
  if (store.add("causes", 1) != 1) return;
  store.set("first cause", str(static_cast<int>(mine.code), " ", mine.text, " (rank ", rank, " on ", host_name(), ")"));
  store.add("causes told", 1);
}

std::optional<Error> ask(Store& store, double seconds) {
  if (!reached(store, "causes told", 1, seconds)) return std::nullopt;
  const std::string told = store.get("first cause");
  const auto blank = told.find(' ');
  return Error(static_cast<Code>(std::stoi(told.substr(0, blank))), told.substr(blank + 1)).mark_secondary();
}

// What nobody told: who was killed, or sits on a host that is gone, leaves no word.
std::string silent(Store& store, int world) {
  std::vector<std::string> ranks;
  for (int r = 0; r < world; ++r)
    if (store.add(str("failed/", r), 0) == 0) ranks.push_back(str(r));
  if (ranks.empty() || ranks.size() > kMostNamed) return "";
  return str("; nothing was heard from rank ", join(ranks, ", "), ", so look there first");
}

// Everybody takes over the first cause. If none comes, only a lost one can be it, and one rank says so for all.
std::optional<Error> take_over(Store& store, int rank, int world, RankReport mine) {
  const bool first = store.add("losses", 1) == 1;
  if (auto cause = ask(store, first ? kLimit : kLimit + kAnswer)) return cause;
  if (!first) return std::nullopt;
  mine.text += silent(store, world);
  tell(store, rank, mine);
  return ask(store, kAnswer);
}

std::optional<Error> exchange(Store& store, int rank, int world, const RankReport& mine) {
  std::optional<Error> theirs;
  store.add(str("failed/", rank), 1);
  if (mine.secondary) {
    theirs = take_over(store, rank, world, mine);
  } else {
    tell(store, rank, mine);
  }
  store.add("causes read", 1);
  if (rank == 0) reached(store, "causes read", world, kLimit);  // the store may end with this rank
  return theirs;
}

// The store may be out of reach, and then it does not answer: a thread is left behind that waits for it.
std::optional<Error> exchange_in_time(World& world, const RankReport& mine) {
  std::packaged_task<std::optional<Error>()> task([store = world.shared_store(), rank = world.rank(),
                                                   size = world.size(),
                                                   mine] { return exchange(*store, rank, size, mine); });
  auto done = task.get_future();
  std::thread(std::move(task)).detach();
  const double limit = kAnswer + (mine.secondary ? kLimit + kAnswer : 0) + (world.rank() == 0 ? kLimit : 0);
  if (done.wait_for(std::chrono::duration<double>(limit)) != std::future_status::ready) return std::nullopt;
  try {
    return done.get();
  } catch (const Error&) {
    return std::nullopt;  // the store is gone
  }
}

}  // namespace

void rethrow_first_cause(World& world) {
  if (std::ranges::max(world.topology().node_of_rank) == 0) throw;
  const RankReport mine = current_exception_report();
  world.everyone().abort();  // who waits for this rank need not wait on
  if (const auto theirs = exchange_in_time(world, mine)) throw *theirs;
  throw;
}

}  // namespace shale
