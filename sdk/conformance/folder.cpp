#include "folder.h"

#include <algorithm>
#include <cstring>
#include <iterator>

namespace shale::conform {
namespace {

MemoryFolder& mine(void* ctx) { return *static_cast<MemoryFolder*>(ctx); }

bool good_name(const std::string& name) {
  return !name.empty() && name[0] != '/' && name.find("..") == std::string::npos &&
         name.find('\0') == std::string::npos;
}

}  // namespace

MemoryFolder::MemoryFolder(FakeHost& host)
    : host_(host), table_{sizeof table_, 0, this, create, append, open, read, close, rename, list, reserve} {
  serve(host);
}

shale_file* MemoryFolder::add(const std::string& name, bool writing, shale_file** out) {
  open_.push_back({name, writing});
  return *out = reinterpret_cast<shale_file*>(&open_.back());
}

shale_status* MemoryFolder::create(void* ctx, shale_folder*, shale_str name, shale_file** out) {
  auto& f = mine(ctx);
  const std::string text(name.ptr, name.len);
  if (!good_name(text)) return f.host_.make(SHALE_BAD_ARGUMENT, "name", "is not a relative name");
  if (!f.files.emplace(text, "").second) return f.host_.make(SHALE_IO_ERROR, text, "exists already");
  f.add(text, true, out);
  return nullptr;
}

shale_status* MemoryFolder::append(void* ctx, shale_file* file, const void* bytes, std::uint64_t n) {
  auto& f = mine(ctx);
  const auto& o = *reinterpret_cast<Open*>(file);
  if (!o.writing) return f.host_.make(SHALE_BAD_ARGUMENT, o.name, "is open for reading");
  f.files[o.name].append(static_cast<const char*>(bytes), n);
  return nullptr;
}

shale_status* MemoryFolder::open(void* ctx, shale_folder*, shale_str name, shale_file** out, std::uint64_t* size) {
  auto& f = mine(ctx);
  const std::string text(name.ptr, name.len);
  const auto found = f.files.find(text);
  if (found == f.files.end()) return f.host_.make(SHALE_NOT_FOUND, text, "is not in the folder");
  *size = found->second.size();
  f.add(text, false, out);
  return nullptr;
}

shale_status* MemoryFolder::read(void* ctx, shale_file* file, std::uint64_t offset, void* bytes, std::uint64_t n) {
  auto& f = mine(ctx);
  const auto& o = *reinterpret_cast<Open*>(file);
  const std::string& content = f.files[o.name];
  if (offset > content.size() || n > content.size() - offset)
    return f.host_.make(SHALE_CORRUPT, o.name, "ends before the bytes asked for");
  std::memcpy(bytes, content.data() + offset, n);
  return nullptr;
}

shale_status* MemoryFolder::close(void* ctx, shale_file* file) {
  auto& f = mine(ctx);
  f.open_.remove_if([&](const Open& o) { return &o == reinterpret_cast<Open*>(file); });
  return nullptr;
}

shale_status* MemoryFolder::rename(void* ctx, shale_folder*, shale_str from, shale_str to) {
  auto& f = mine(ctx);
  auto node = f.files.extract(std::string(from.ptr, from.len));
  if (node.empty()) return f.host_.make(SHALE_NOT_FOUND, std::string(from.ptr, from.len), "is not in the folder");
  node.key() = std::string(to.ptr, to.len);
  f.files.insert(std::move(node));
  return nullptr;
}

shale_status* MemoryFolder::list(void* ctx, shale_folder*, std::uint32_t index, shale_str* name) {
  auto& f = mine(ctx);
  *name = {"", 0};
  if (index >= f.files.size()) return nullptr;
  const auto& text = std::next(f.files.begin(), index)->first;
  *name = {text.data(), text.size()};
  return nullptr;
}

}  // namespace shale::conform
