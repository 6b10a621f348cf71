// The records of a zip file that torch.save wrote: stored, never compressed, all under one root folder.
#pragma once

#include <map>

#include "source.h"

namespace torch_file {

struct Record {
  std::uint64_t offset = 0, bytes = 0;  // of the data
};

class Archive {
 public:
  // Checks every number of the file against its size, and that no two records share a byte.
  explicit Archive(Source&);
  const Record* find(const std::string& name) const;  // without the root folder; NULL = not there
  const Record& at(const std::string& name) const;
  std::string text(const std::string& name, std::uint64_t most) const;
  Source& source() const { return source_; }

 private:
  void check_torch() const;
  Source& source_;
  std::map<std::string, Record, std::less<>> records_;
};

}  // namespace torch_file
