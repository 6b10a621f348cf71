// Writes the snapshots of a run, one at a time, beside its steps if asked to.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <thread>

#include "core/checkpoint/snapshot.h"
#include "core/train/run.h"

namespace shale {

// Used by the stepping thread. Ranks make the same calls.
class Snapshots {
 public:
  // Collective when snapshots are on: they have connections and a time limit of their own, since a rank that writes may
  // take longer than any step. The run outlives it.
  Snapshots(Run&, std::string folder);
  ~Snapshots();  // waits for what is being written; while an exception unwinds it gives that up
  Snapshots(const Snapshots&) = delete;
  Snapshots& operator=(const Snapshots&) = delete;

  enum class Outcome { saved, started, skipped };
  // Takes the state as it is now. async_mode "disabled": returns when it is durable. "async": when it has been copied;
  // if the one before is still being written, waits for it or gives this one up, as checkpoint.while_saving says.
  Outcome save();

  // The step of a snapshot that has become durable in the background since the last call, or -1. Throws what a save in
  // the background failed with.
  std::int64_t completed();
  std::int64_t finish();  // the same, after waiting for it

  double blocked_seconds() const { return blocked_; }  // how long the last save() held up the steps

 private:
  bool busy_anywhere();
  void copy_pieces(SnapshotSpec&);
  void write(const SnapshotSpec&);
  void write_in_background(SnapshotSpec);

  Run& run_;
  const std::string folder_;
  std::unique_ptr<Group> group_;
  at::Tensor staging_;  // host memory the background save reads
  std::thread thread_;
  struct Outbox;
  std::unique_ptr<Outbox> outbox_;
  double blocked_ = 0;
  int born_;
};

// Bytes of host memory that copies for background saves take on this rank.
std::int64_t staging_bytes(const Run&, const MemoryPlan&);

}  // namespace shale
