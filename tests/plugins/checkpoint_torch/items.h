// A format plugin on a folder in memory: what it says is in there, with the bytes, or what it says is wrong.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "folder.h"
#include "host.h"
#include "shale/checkpoint.h"

namespace shale::test {

struct Stored {
  std::uint32_t kind = 0, role = 0, dtype = 0;
  std::string name, key, alias_of, value;
  std::vector<std::int64_t> shape;
  std::string bytes;
  bool coded = false;
};

class FormatOnFolder {
 public:
  explicit FormatOnFolder(const std::string& plugin)
      : library_(plugin),
        instance_(library_, SHALE_KIND_CHECKPOINT, host_),
        table_(instance_.table<shale_checkpoint>(SHALE_CHECKPOINT)) {}

  std::map<std::string, std::string>& files() { return folder_.files; }
  std::uint32_t probe() { return table_.probe(instance_.self(), folder_.get()); }
  std::vector<Stored> describe();  // std::runtime_error with the plugin's or the host's words
  // All of `items` by one writer of `writers`; the bytes of a tensor may be fewer than its shape says.
  void save(const std::vector<Stored>& items, std::uint32_t writers = 1);
  bool aliases();  // can it hold them?
  int live() const { return host_.live(); }

 private:
  struct Calls;
  void take(shale_status*);  // throws what it says
  conform::FakeHost host_;
  conform::MemoryFolder folder_{host_};
  conform::Library library_;
  conform::Instance instance_;
  const shale_checkpoint& table_;
};

std::string text_of(const shale_value&);  // "int 7", "float 0x1p-1", "text a"
std::string line_of(const Stored&);       // all of it, bytes in hex
std::uint64_t bytes_of(std::uint32_t dtype, const std::vector<std::int64_t>& shape);

}  // namespace shale::test
