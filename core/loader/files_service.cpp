#include "core/loader/files_service.h"

#include "core/loader/status.h"

namespace shale {
namespace {

shale_status* bad(const char* argument, const char* what) { return make_status(SHALE_BAD_ARGUMENT, argument, what); }

shale_status* name_problem_of(shale_str name, const char* argument) {
  if (name.ptr == nullptr || name.len == 0 || name.len > 255) return bad(argument, "must have 1..255 bytes");
  const std::string text = to_text(name);
  if (text == "." || text == ".." || text.find('/') != std::string::npos || text.find('\0') != std::string::npos)
    return bad(argument, "must be a plain file name");
  return nullptr;
}

}  // namespace

// First argument of each is the FilesService.
struct FilesService::Calls {
  static FilesService& service(void* ctx) { return *static_cast<FilesService*>(ctx); }

  static shale_status* create(void* ctx, shale_folder* folder, shale_str name, shale_file** out) {
    return guarded([&]() -> shale_status* {
      if (!service(ctx).lent(folder)) return bad("folder", "is not lent to this hook");
      if (out == nullptr) return bad("out", "is NULL");
      if (!folder->writing) return bad("folder", "is read only here");
      if (auto* problem = name_problem_of(name, "name")) return problem;
      return service(ctx).add_file(folder, folder->folder->create(to_text(name)), true, out);
    });
  }
  static shale_status* append(void* ctx, shale_file* file, const void* bytes, std::uint64_t n) {
    return guarded([&]() -> shale_status* {
      if (!service(ctx).is_open(file)) return bad("file", "is not open");
      if (!file->writing) return bad("file", "is read only");
      if (bytes == nullptr && n > 0) return bad("bytes", "is NULL");
      file->file->append({static_cast<const std::byte*>(bytes), n});
      return nullptr;
    });
  }
  static shale_status* reserve(void* ctx, shale_file* file, std::uint64_t bytes) {
    return guarded([&]() -> shale_status* {
      if (!service(ctx).is_open(file)) return bad("file", "is not open");
      if (!file->writing) return bad("file", "is read only");
      file->file->reserve(bytes);
      return nullptr;
    });
  }
  static shale_status* open(void* ctx, shale_folder* folder, shale_str name, shale_file** out, std::uint64_t* size) {
    return guarded([&]() -> shale_status* {
      if (!service(ctx).lent(folder)) return bad("folder", "is not lent to this hook");
      if (out == nullptr) return bad("out", "is NULL");
      if (auto* problem = name_problem_of(name, "name")) return problem;
      auto file = folder->folder->open(to_text(name));
      if (size != nullptr) *size = file->size();
      return service(ctx).add_file(folder, std::move(file), false, out);
    });
  }
  static shale_status* read(void* ctx, shale_file* file, std::uint64_t offset, void* bytes, std::uint64_t n) {
    return guarded([&]() -> shale_status* {
      if (!service(ctx).is_open(file)) return bad("file", "is not open");
      if (file->writing) return bad("file", "is open for writing");
      if (bytes == nullptr && n > 0) return bad("bytes", "is NULL");
      const std::uint64_t size = file->file->size();
      if (offset > size || n > size - offset)
        return make_status(SHALE_CORRUPT, "", str("bytes ", offset, "+", n, " lie outside a file of ", size, " bytes"));
      file->file->read(offset, {static_cast<std::byte*>(bytes), n});
      return nullptr;
    });
  }
  static shale_status* close(void* ctx, shale_file* file) {
    return guarded(
        [&]() -> shale_status* { return service(ctx).remove_file(file) ? nullptr : bad("file", "is not open"); });
  }
  static shale_status* rename(void* ctx, shale_folder* folder, shale_str from, shale_str to) {
    return guarded([&]() -> shale_status* {
      if (!service(ctx).lent(folder)) return bad("folder", "is not lent to this hook");
      if (!folder->renaming) return bad("folder", "has renames in finish only");
      if (auto* problem = name_problem_of(from, "from")) return problem;
      if (auto* problem = name_problem_of(to, "to")) return problem;
      folder->folder->rename(to_text(from), to_text(to));
      return nullptr;
    });
  }
  static shale_status* list(void* ctx, shale_folder* folder, std::uint32_t index, shale_str* name) {
    return guarded([&]() -> shale_status* {
      if (!service(ctx).lent(folder)) return bad("folder", "is not lent to this hook");
      if (name == nullptr) return bad("name", "is NULL");
      if (index == 0 || folder->lists.empty()) folder->lists.push_back(folder->folder->list());
      const auto& names = folder->lists.back();
      *name = index < names.size() ? to_c(names[index]) : shale_str{"", 0};
      return nullptr;
    });
  }
};

FilesService::FilesService() {
  table_ = {sizeof table_, 0,           this,          Calls::create,
            Calls::append, Calls::open, Calls::read,   Calls::close,
            Calls::rename, Calls::list, Calls::reserve};
}

shale_status* FilesService::add_file(shale_folder* folder, std::unique_ptr<File> file, bool writing, shale_file** out) {
  auto handle = std::make_unique<shale_file>(shale_file{std::move(file), writing});
  shale_file* key = handle.get();
  const std::lock_guard lock(mutex_);
  folder->files.emplace(key, std::move(handle));
  *out = key;
  return nullptr;
}

bool FilesService::remove_file(const shale_file* file) {
  const std::lock_guard lock(mutex_);
  for (shale_folder* folder : folders_)
    if (folder->files.erase(file) > 0) return true;
  return false;
}

bool FilesService::lent(const shale_folder* folder) {
  const std::lock_guard lock(mutex_);
  return folders_.contains(const_cast<shale_folder*>(folder));
}

bool FilesService::is_open(const shale_file* file) {
  const std::lock_guard lock(mutex_);
  for (const shale_folder* folder : folders_)
    if (folder->files.contains(file)) return true;
  return false;
}

FilesService::Lent::Lent(FilesService& service, Folder& folder, Use use) : service_(service) {
  folder_.folder = &folder;
  folder_.writing = use != Use::read;
  folder_.renaming = use == Use::finish;
  const std::lock_guard lock(service_.mutex_);
  service_.folders_.insert(&folder_);
}

FilesService::Lent::~Lent() {
  const std::lock_guard lock(service_.mutex_);
  service_.folders_.erase(&folder_);
}

}  // namespace shale
