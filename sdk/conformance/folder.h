// A snapshot folder in memory, and the service shale.files/1 over it.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <string>

#include "host.h"

namespace shale::conform {

class MemoryFolder {
 public:
  explicit MemoryFolder(FakeHost& host);  // offers the service on this host
  MemoryFolder(const MemoryFolder&) = delete;
  MemoryFolder& operator=(const MemoryFolder&) = delete;

  shale_folder* get() { return reinterpret_cast<shale_folder*>(this); }
  void close_all() { open_.clear(); }  // what a hook left open
  void serve(FakeHost& host) { host.offer(SHALE_FILES_SERVICE, &table_); }

  std::map<std::string, std::string> files;  // name -> content

 private:
  struct Open {
    std::string name;
    bool writing;
  };
  static shale_status* create(void*, shale_folder*, shale_str name, shale_file** out);
  static shale_status* append(void*, shale_file*, const void* bytes, std::uint64_t n);
  static shale_status* open(void*, shale_folder*, shale_str name, shale_file** out, std::uint64_t* size);
  static shale_status* read(void*, shale_file*, std::uint64_t offset, void* bytes, std::uint64_t n);
  static shale_status* close(void*, shale_file*);
  static shale_status* rename(void*, shale_folder*, shale_str from, shale_str to);
  static shale_status* list(void*, shale_folder*, std::uint32_t index, shale_str* name);
  static shale_status* reserve(void*, shale_file*, std::uint64_t) { return nullptr; }

  shale_file* add(const std::string& name, bool writing, shale_file** out);

  FakeHost& host_;
  std::list<Open> open_;
  shale_files table_;
};

}  // namespace shale::conform
