#include "core/train/snapshots.h"

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstring>

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/loader/plugins.h"
#include "core/train/load.h"

namespace shale {
namespace {

constexpr std::int64_t kMostKept = 1'000'000'000;
constexpr std::int64_t kAlign = 64;  // bytes between the copies of pieces

std::int64_t room(std::int64_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

}  // namespace

// What the thread leaves for the stepping thread.
struct Snapshots::Outbox {
  std::atomic<bool> busy{false};
  std::int64_t step = -1;  // the others are read when not busy
  std::exception_ptr error;
};

Snapshots::Snapshots(Run& run, std::string folder)
    : run_(run), folder_(std::move(folder)), outbox_(std::make_unique<Outbox>()), born_(std::uncaught_exceptions()) {
  const auto& c = run.config().checkpoint;
  if (c.enable)
    group_ = run.around.world.group(world_partition(run.around.world.size()), "snapshots", c.timeout_seconds);
}

Snapshots::~Snapshots() {
  if (!thread_.joinable()) return;
  if (std::uncaught_exceptions() > born_) group_->abort();  // what is half written is no snapshot
  thread_.join();
}

Snapshots::Outcome Snapshots::save() {
  const double begin = now();
  const auto& c = run_.config().checkpoint;
  const bool background = c.async_mode == "async";
  if (background && c.while_saving == "skip" && busy_anywhere()) return Outcome::skipped;
  if (outbox_->busy || thread_.joinable()) finish();
  auto spec = describe_state(run_, folder_);
  if (background) {
    copy_pieces(spec);
    write_in_background(std::move(spec));
  } else {
    write(spec);
  }
  blocked_ = now() - begin;
  return background ? Outcome::started : Outcome::saved;
}

// Some rank may be a moment later than the others.
bool Snapshots::busy_anywhere() { return all_reduce(run_.everyone(), outbox_->busy ? 1.0 : 0.0, Reduction::max) > 0; }

void Snapshots::copy_pieces(SnapshotSpec& spec) {
  std::int64_t bytes = 0;
  for (auto& piece : spec.pieces) bytes += room(static_cast<std::int64_t>(piece.data.nbytes()));
  if (!staging_.defined() || staging_.numel() < bytes) staging_ = at::empty({bytes}, at::TensorOptions(at::kByte));
  auto* to = static_cast<char*>(staging_.data_ptr());
  for (auto& piece : spec.pieces) {
    auto copy = at::from_blob(to, piece.data.sizes(), at::TensorOptions(piece.data.scalar_type()));
    copy.copy_(piece.data);
    to += room(static_cast<std::int64_t>(piece.data.nbytes()));
    piece.data = copy;
  }
}

void Snapshots::write(const SnapshotSpec& spec) {
  save_snapshot(*group_, run_.around.plugins.checkpoint(), spec);
  const auto& c = run_.config().checkpoint;
  if (run_.around.world.rank() == 0 && c.keep_latest_k > 0)
    retain(folder_, static_cast<int>(std::min(c.keep_latest_k, kMostKept)), c.resume);
}

void Snapshots::write_in_background(SnapshotSpec spec) {
  outbox_->busy = true;
  sigset_t all, old;  // signals belong to the stepping thread
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &old);
  thread_ = std::thread([this, spec = std::move(spec)] {
    try {
      write(spec);
      outbox_->step = static_cast<std::int64_t>(spec.step);
    } catch (...) {
      outbox_->error = std::current_exception();
    }
    outbox_->busy = false;
  });
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
}

std::int64_t Snapshots::completed() { return outbox_->busy ? -1 : finish(); }

std::int64_t Snapshots::finish() {
  if (thread_.joinable()) thread_.join();
  if (auto error = std::exchange(outbox_->error, nullptr)) std::rethrow_exception(error);
  return std::exchange(outbox_->step, -1);
}

std::int64_t staging_bytes(const Run& run, const MemoryPlan& memory) {
  const auto& c = run.config().checkpoint;
  if (!c.enable || c.async_mode != "async") return 0;
  const int rank = run.around.world.rank();
  std::int64_t bytes = memory.states;
  for (std::size_t u = 0; u < memory.units.size(); ++u) {
    const auto& plan = run.plans.sharding.units[u];
    const bool writes = plan.replica_at == SyncAt::never ||
                        members(run.plans.sharding.groups[plan.replica_group], rank).front() == rank;
    for (auto& f : memory.units[u].flats) {
      const auto width = [](at::ScalarType t) { return static_cast<std::int64_t>(c10::elementSize(t)); };
      if (!writes) continue;
      bytes += f.range.length * width(f.precision.master);
      if (!f.layout.frozen) bytes += 2 * f.range.length * width(f.precision.moments);
    }
  }
  return bytes;
}

}  // namespace shale
