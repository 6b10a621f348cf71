// A host small enough to read, for trying a plugin without shale. Structs a plugin sees are allocated at exactly their
// declared size, so that a sanitizer notices a read past struct_size.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "idle.h"
#include "shale/services.h"

namespace shale::conform {

// A status as a value; code 0 = fine.
struct Answer {
  std::uint32_t code = 0;
  std::string where, text;
};
std::string to_text(const Answer&);

// A copy of the first `size` bytes of a struct; bytes past the struct are 0x5a. struct_size becomes `size`. Without a
// sanitizer more filler follows, so that a plugin that reads on sees rubbish and not what happens to lie there.
class Exactly {
 public:
  Exactly(const void* from, std::size_t have, std::size_t size);
  void* get() const { return memory_.get(); }

 private:
  std::unique_ptr<std::byte[]> memory_;
};

// Answers for one instance at a time. Not movable: the table points to it.
class FakeHost {
 public:
  explicit FakeHost(std::size_t size = sizeof(shale_host), std::uint16_t major = SHALE_ABI_MAJOR,
                    std::uint16_t minor = SHALE_ABI_MINOR);
  FakeHost(const FakeHost&) = delete;
  FakeHost& operator=(const FakeHost&) = delete;

  const shale_host* get() const { return static_cast<const shale_host*>(table_.get()); }
  shale_status* make(std::uint32_t code, const std::string& where, const std::string& text);
  Answer take(shale_status*);         // what it says; frees it. NULL is fine
  int live() const { return live_; }  // statuses made and not freed yet
  void offer(const std::string& service, const void* table) { services_[service] = table; }

 private:
  static const void* service(void* ctx, const char* id);

  std::atomic<int> live_ = 0;  // hooks on two lanes make statuses at once
  IdleServices idle_;
  std::map<std::string, const void*> services_;
  Exactly table_;
};

using Given = std::map<std::string, std::string>;  // option -> value as a user would write it, without quotes

// Options with defaults filled in, as a plugin gets them. std::invalid_argument for a key the plugin does not declare,
// one it demands, or a text that is not of the type. Bounds are not checked: plugins are tried beyond them too.
class Values {
 public:
  Values(const shale_desc&, const Given&);
  const shale_config* get() const { return &config_; }

 private:
  shale_value parse(const shale_option&, const std::string& text);

  std::deque<std::string> texts_;
  std::deque<std::vector<shale_str>> lists_;
  std::vector<shale_value> values_;
  shale_config config_{};
};

// An opened plugin file; stays open until the process ends.
class Library {
 public:
  explicit Library(const std::string& path);  // std::runtime_error with the linker's words
  const shale_plugin* table(const FakeHost& host) const { return entry_(host.get()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  const shale_plugin* (*entry_)(const shale_host*) = nullptr;
};

const shale_desc* find_kind(const shale_plugin&, std::uint32_t kind);  // NULL = not in the file
std::vector<const shale_option*> options_of(const shale_desc&);

struct Refused : std::runtime_error {  // create said no
  explicit Refused(Answer a) : std::runtime_error(to_text(a)), answer(std::move(a)) {}
  Answer answer;
};

// One instance: made here, destroyed with this.
class Instance {
 public:
  Instance(const Library&, std::uint32_t kind, FakeHost&, const Given& = {});
  Instance(const Instance&) = delete;
  Instance& operator=(const Instance&) = delete;
  ~Instance() { plugin_->destroy(self_); }

  void* self() const { return self_; }
  FakeHost& host() const { return host_; }
  const shale_desc& desc() const { return *desc_; }
  const void* find(const char* id) const { return plugin_->get_interface(self_, id); }
  // The table of an interface; std::runtime_error when there is none.
  template <class Table>
  const Table& table(const char* id) const {
    if (const void* t = find(id)) return *static_cast<const Table*>(t);
    throw std::runtime_error(std::string(desc_->id) + " does not answer to " + id);
  }

 private:
  FakeHost& host_;
  const shale_plugin* plugin_ = nullptr;
  const shale_desc* desc_ = nullptr;
  std::unique_ptr<Values> values_;
  void* self_ = nullptr;
};

}  // namespace shale::conform
