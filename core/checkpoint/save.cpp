#include <filesystem>
#include <functional>
#include <map>
#include <optional>

#include <sys/stat.h>

#include "core/base/error.h"
#include "core/base/hash.h"
#include "core/checkpoint/collect.h"
#include "core/checkpoint/entries.h"
#include "core/checkpoint/json.h"
#include "core/checkpoint/manifest.h"
#include "core/checkpoint/posix.h"
#include "core/checkpoint/snapshot.h"

namespace shale {
namespace {

namespace fs = std::filesystem;

// Several byte strings in one: the length of each, ':' and its bytes. Reports of formats may hold anything.
std::string pack(const std::vector<std::string>& parts) {
  std::string out;
  for (const std::string& part : parts) out += std::to_string(part.size()) + ":" + part;
  return out;
}

std::vector<std::string> unpack(std::string_view text) {
  std::vector<std::string> out;
  while (!text.empty()) {
    const std::size_t colon = text.find(':');
    check(colon != std::string_view::npos, "a message between ranks is damaged");
    const std::size_t n = std::stoull(std::string(text.substr(0, colon)));
    check(n <= text.size() - colon - 1, "a message between ranks is damaged");
    out.emplace_back(text.substr(colon + 1, n));
    text.remove_prefix(colon + 1 + n);
  }
  return out;
}

// What `job` returned on each rank, or on all ranks the same Error, that of the first rank that failed. `job` makes no
// collective calls, so afterwards no rank is still at it.
std::vector<std::string> agree(Group& everyone, const std::function<std::string()>& job) {
  std::string mine;
  try {
    mine = pack({"", job()});
  } catch (const Error& bad) {
    mine = pack({std::to_string(static_cast<int>(bad.code())), bad.what()});
  } catch (const std::bad_alloc&) {
    mine = pack({std::to_string(static_cast<int>(Code::io)), "out of host memory while saving a snapshot"});
  } catch (const std::exception& bad) {
    mine = pack({std::to_string(static_cast<int>(Code::internal)), bad.what()});
  }
  std::vector<std::string> out;
  std::optional<Error> first;
  for (const std::string& text : all_gather_text(everyone, mine)) {
    const std::vector<std::string> parts = unpack(text);
    check(parts.size() == 2, "a message between ranks is damaged");
    if (!parts[0].empty() && !first) {
      const std::string by = everyone.size() > 1 ? str(" (rank ", out.size(), ")") : "";
      first.emplace(static_cast<Code>(std::stoi(parts[0])), parts[1] + by);
    }
    out.push_back(parts[1]);
  }
  if (first) throw *first;
  return out;
}

// The folder step-N, if there, is a whole snapshot that the new one may replace.
void check_replaceable(const std::string& path) {
  if (fs::symlink_status(path).type() == fs::file_type::not_found) return;
  try {
    const auto folder = Folder::for_reading(path);
    const std::string problem = missing_files(*folder, read_manifest(*folder));
    if (!problem.empty()) fail(Code::checkpoint, problem);
  } catch (const Error& bad) {
    fail(Code::io, path, ": is there and is no whole snapshot (", bad.what(), "); move it away to save this step");
  }
}

class Saving {
 public:
  Saving(Group& everyone, CheckpointFormat& format, const SnapshotSpec& spec)
      : everyone_(everyone),
        format_(format),
        spec_(spec),
        leader_(everyone.rank() == 0),
        temporary_(spec.root + "/" + saving_name(spec.step)),
        final_(spec.root + "/" + step_name(spec.step)) {}

  void run() {
    try {
      plan(agree(everyone_, [&] { return prepare(); }));
      const std::vector<std::string> written = agree(everyone_, [&] { return write(); });
      agree(everyone_, [&] {
        if (leader_) commit(written);
        return std::string();
      });
    } catch (const Error& bad) {
      // After a lost peer another rank may still be writing: what is there is removed by the next save.
      if (leader_ && bad.code() != Code::dist) discard();
      throw;
    }
  }

 private:
  std::string prepare() {
    if (leader_) make_folder();
    entries_.emplace(spec_, format_, leader_);
    Json items = Json::array(), beside = Json::array();
    for (const Item& item : spec_.items) items.push_back(item_to_json(item));
    for (const Item& item : entries_->beside()) beside.push_back(item_to_json(item));
    return pack({std::to_string(entries_->parts()), std::to_string(entries_->tensor_bytes()),
                 hash_text(json_text(items, "snapshot items")), json_text(beside, "snapshot items")});
  }

  void make_folder() {
    std::error_code bad;
    fs::create_directories(spec_.root, bad);
    if (bad) fail(Code::io, spec_.root, ": cannot be made: ", bad.message(), "; choose a folder that can be written");
    for (const std::string& name : Folder::for_reading(spec_.root)->list())
      if (is_left_over(name)) remove_folder(spec_.root + "/" + name);
    check_replaceable(final_);
    if (::mkdir(temporary_.c_str(), 0755) != 0) fail_io(temporary_, "cannot be made");
    folder_ = Folder::for_writing(temporary_);
    if (!spec_.model_json.empty()) put(kModelFile, spec_.model_json);
    if (!spec_.config_text.empty()) put(kConfigFile, spec_.config_text);
  }

  static void remove_folder(const std::string& path) {
    std::error_code bad;
    fs::remove_all(path, bad);
    if (bad) fail(Code::io, path, ": cannot be removed: ", bad.message());
  }

  void put(const char* name, const std::string& text) { folder_->create(name)->append(std::as_bytes(std::span(text))); }

  void plan(const std::vector<std::string>& ranks) {
    call_.n_writers = call_.all_parts = 0;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      const std::vector<std::string> told = unpack(ranks[rank]);
      const int parts = std::stoi(told.at(0));
      if (static_cast<int>(rank) == everyone_.rank()) {
        call_.writer = call_.n_writers;
        call_.first_part = call_.all_parts;
        call_.n_parts = parts;
      }
      call_.n_writers += parts > 0 ? 1 : 0;
      call_.all_parts += parts;
      total_bytes_ += std::stoull(told.at(1));
      check(told.at(2) == unpack(ranks[0]).at(2), "rank ", rank, " and rank 0 save different values at step ",
            spec_.step);
      for (const Json& json : parse_json(told.at(3), "snapshot items")) {
        Item item = item_from_json(json, "snapshot items");
        const std::string id = item.id();
        beside_.emplace(id, std::move(item));  // a tensor without elements comes from several ranks
      }
    }
  }

  std::string write() {
    std::string reports;
    if (entries_->parts() > 0 && !folder_) folder_ = Folder::for_writing(temporary_);
    for (std::size_t part = 0; part < entries_->parts(); ++part) {
      std::string report;
      call_.step = spec_.step;
      call_.part = static_cast<int>(part);
      call_.folder = folder_.get();
      call_.entries = entries_->part(part);
      call_.report = &report;
      format_.write(call_);
      reports += pack({report});
    }
    Json files = Json::array();
    if (folder_ && !leader_)
      for (const FileEntry& file : folder_->sync()) files.push_back(Json::array({file.name, file.bytes, file.hash}));
    if (leader_) folder_->sync();  // so that all ranks wait for their disks at the same time
    return pack({reports, json_text(files, temporary_)});
  }

  // Leader only. Until the last rename nothing of this step is visible.
  void commit(const std::vector<std::string>& ranks) {
    std::vector<std::string> reports;
    for (const std::string& rank : ranks) {
      const std::vector<std::string> told = unpack(rank);
      for (std::string& report : unpack(told.at(0))) reports.push_back(std::move(report));
      std::vector<FileEntry> files;
      for (const Json& file : parse_json(told.at(1), temporary_))
        files.push_back(
            {file.at(0).get<std::string>(), file.at(1).get<std::uint64_t>(), file.at(2).get<std::string>()});
      folder_->adopt(files);
    }
    const auto assets = spec_.assets.empty() ? nullptr : Folder::for_reading(spec_.assets);
    format_.finish({spec_.step, total_bytes_, folder_.get(), reports, spec_.model_json, assets.get()});
    if (!beside_.empty()) {
      Json items = Json::array();
      for (const auto& [id, item] : beside_) items.push_back(item_to_json(item));
      put(kRunFile, json_text({{"items", std::move(items)}}, temporary_));
    }
    write_manifest(*folder_, {format_.id(), spec_.step, everyone_.size(), spec_.plugins, folder_->sync()});
    folder_->sync();
    check_readable();
    publish();
  }

  // A snapshot that could not be loaded is refused here, while the last one is still the newest.
  void check_readable() {
    const auto reader = SnapshotReader::open(temporary_, format_);
    std::uint64_t bytes = 0;
    for (const Item& item : reader->items())
      if (item.kind == ItemKind::tensor && item.alias_of.empty())
        bytes += static_cast<std::uint64_t>(whole(item.shape).numel()) * c10::elementSize(item.dtype);
    if (bytes != total_bytes_)
      fail(Code::checkpoint, temporary_, ": holds ", bytes, " bytes of tensors, ", total_bytes_, " were written");
  }

  void publish() {
    check_replaceable(final_);
    if (!fs::exists(fs::symlink_status(final_))) {
      rename_new(temporary_, final_);
      return sync_folder(spec_.root);
    }
    if (!exchange(temporary_, final_))
      fail(Code::io, final_,
           ": is there, and this file system cannot exchange folders; move it away to save this step");
    sync_folder(spec_.root);
    discard();  // the replaced one, now under the temporary name
  }

  void discard() noexcept {
    std::error_code ignored;  // the next save tries again
    folder_.reset();
    fs::remove_all(temporary_, ignored);
  }

  Group& everyone_;
  CheckpointFormat& format_;
  const SnapshotSpec& spec_;
  const bool leader_;
  const std::string temporary_, final_;
  std::unique_ptr<Folder> folder_;
  std::optional<Entries> entries_;
  std::map<std::string, Item> beside_;
  WriteCall call_;
  std::uint64_t total_bytes_ = 0;
};

}  // namespace

void save_snapshot(Group& everyone, CheckpointFormat& format, const SnapshotSpec& spec) {
  const auto traits = format.traits();
  if (everyone.size() == 1 || (traits.boxes && !traits.one_writer)) return Saving(everyone, format, spec).run();
  SnapshotSpec whole = spec;
  whole.pieces = collect_whole(everyone, traits, spec.pieces);
  Saving(everyone, format, whole).run();
}

}  // namespace shale
