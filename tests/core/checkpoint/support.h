// What the checkpoint tests share: ranks as threads, a folder that vanishes, a plain format with places to fail at, and
// a small model state that any number of ranks can be given a share of.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/checkpoint/snapshot.h"
#include "core/comm/group.h"

namespace shale::test {

class TempFolder {
 public:
  enum class On { memory, disk };  // memory where there is a file system in it: fsync on a disk takes its time
  explicit TempFolder(On on = On::memory);
  ~TempFolder();
  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

std::string read_file(const std::string& path);
void write_file(const std::string& path, const std::string& bytes);
// Puts a manifest that fits the files of the folder, as if they had been written so.
void sign(const std::string& path);

// Calls job on n threads, each with its own member of one group. The errors by rank, "" where there was none.
std::vector<std::string> run_ranks(int n, const std::function<void(Group&)>& job);

// Data files with raw bytes and a text index. Everything can be switched off and everything can fail.
class PlainFormat final : public CheckpointFormat {
 public:
  PlainFormat();
  const std::string& id() const override { return id_; }
  FormatTraits traits() override { return held; }
  void write(const WriteCall&) override;
  void finish(const FinishCall&) override;
  int probe(Folder&) override { return 1; }
  Index describe(Folder&) override;
  void read(Folder&, const std::string& token, std::span<std::byte> to) override;

  FormatTraits held;
  bool coded = false;  // boxes are described by tokens and read through read()
  // Called with "write", "written", "finish", "finished" and, for write, who writes. Throws or kills to fail.
  std::function<void(const std::string& point, int writer)> at = [](const std::string&, int) {};

 private:
  std::string id_ = "plain";
};

struct State {
  Item item;
  at::Tensor data;  // 1-d, whole
};
std::vector<State> make_state(std::uint64_t seed);
SnapshotSpec share(const std::vector<State>&, const std::string& root, int rank, int world);
// Reads every tensor in `world` shares and compares bitwise; "" or the first difference.
std::string difference(SnapshotReader&, const std::vector<State>&, int world);
void save(const std::string& root, std::uint64_t step, int world, CheckpointFormat&, std::uint64_t seed = 1);

}  // namespace shale::test
