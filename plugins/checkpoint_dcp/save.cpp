#include "save.h"

#include <map>
#include <sstream>
#include <vector>

#include "metadata.h"
#include "pickler.h"
#include "tensors.h"
#include "zip_writer.h"

using namespace shale::sdk;
using torch_file::Pickler;
using torch_file::ZipWriter;

namespace dcp {
namespace {

constexpr char kModule[] = "torch.distributed.checkpoint.metadata";

std::vector<std::string> path_of(const shale_item& item) {
  const std::string name(view(item.name)), key(view(item.key));
  if (item.role == SHALE_ROLE_WEIGHT || item.role == SHALE_ROLE_BUFFER) return {"model", name};
  if (item.role == SHALE_ROLE_OPTIMIZER) return {"optimizer", "state", name, key};
  if (item.role == SHALE_ROLE_RUN) return {"run", key};
  return {"plugins", name + "/" + key};
}

std::string joined(const std::vector<std::string>& path) {
  std::string out;
  for (const std::string& part : path) out += (out.empty() ? "" : ".") + part;
  return out;
}

class OutFile {
 public:
  OutFile(const Plugin& plugin, shale_folder* folder, const std::string& name)
      : plugin_(plugin), table_(plugin.service<shale_files>(SHALE_FILES_SERVICE)) {
    plugin_.ok(table_.create(table_.ctx, folder, str(name), &file_));
  }
  void put(const void* bytes, std::uint64_t n) {
    plugin_.ok(table_.append(table_.ctx, file_, bytes, n));
    at_ += n;
  }
  void close() { plugin_.ok(table_.close(table_.ctx, file_)); }
  std::uint64_t position() const { return at_; }

  // A whole file of torch.save with this object and, for a tensor, its bytes; where it begins and how long it is.
  std::pair<std::uint64_t, std::uint64_t> add(const std::string& object, const void* data, std::uint64_t bytes) {
    constexpr std::uint64_t kAlignment = 64;
    const std::string pad((kAlignment - at_ % kAlignment) % kAlignment, '\0');
    put(pad.data(), pad.size());
    const std::uint64_t begin = at_;
    const std::string pickle = "\x80\x02" + object + ".", little = "little", version = "3\n";
    ZipWriter zip([&](const void* from, std::uint64_t n) { put(from, n); });
    zip.add("archive/data.pkl", pickle.size(), [&] { return pickle.data(); });
    zip.add("archive/byteorder", little.size(), [&] { return little.data(); });
    if (data) zip.add("archive/data/0", bytes, [&] { return data; });
    zip.add("archive/version", version.size(), [&] { return version.data(); });
    zip.finish();
    return {begin, zip.position()};
  }

 private:
  const Plugin& plugin_;
  const shale_files& table_;
  shale_file* file_ = nullptr;
  std::uint64_t at_ = 0;
};

// A chunk or value as a line of a report; names hold no blanks.
struct Line {
  std::string file, kind;  // kind: t, b (byte string, as a tensor) or v
  std::uint32_t role = 0, dtype = 0;
  std::vector<std::string> path;
  std::vector<std::int64_t> shape, begin, extent;
  std::pair<std::uint64_t, std::uint64_t> place;

  std::string text() const {
    std::ostringstream out;
    out << file << ' ' << kind << ' ' << role << ' ' << dtype << ' ' << place.first << ' ' << place.second << ' '
        << path.size();
    for (const std::string& part : path) out << ' ' << part;
    out << ' ' << shape.size();
    for (const auto* list : {&shape, &begin, &extent})
      for (const std::int64_t n : *list) out << ' ' << n;
    out << '\n';
    return out.str();
  }
  static Line of(const std::string& text) {
    std::istringstream in(text);
    Line out;
    std::size_t parts = 0, dims = 0;
    in >> out.file >> out.kind >> out.role >> out.dtype >> out.place.first >> out.place.second >> parts;
    out.path.resize(parts);
    for (std::string& part : out.path) in >> part;
    in >> dims;
    for (auto* list : {&out.shape, &out.begin, &out.extent}) {
      list->resize(dims);
      for (std::int64_t& n : *list) in >> n;
    }
    return out;
  }
};

Pickler& size(Pickler& out, const std::vector<std::int64_t>& sizes) {
  return out.global("torch", "Size").op("(").tuple(sizes).op("tR");
}

// The pickle of .metadata, from the lines of all parts.
class Metadata {
 public:
  void add(const Line& line) {
    const std::string fqn = joined(line.path);
    auto [at, fresh] = chunks_.try_emplace(fqn);
    if (fresh) {
      planner_.text(fqn).op("(");
      for (const std::string& part : line.path) planner_.text(part);
      planner_.op("t");
    }
    const std::size_t index = at->second.size();
    at->second.push_back(line);
    places_.global(kModule, "MetadataIndex").op(")\x81}(").text("fqn").text(fqn).text("index");
    line.kind == "v" ? places_.op("N") : places_.integer(static_cast<std::int64_t>(index));
    if (line.kind != "v") size(places_.text("offset"), line.begin);
    places_.op("ub").global("torch.distributed.checkpoint.filesystem", "_StorageInfo").op(")\x81}(");
    places_.text("relative_path").text(line.file);
    places_.text("offset").integer(static_cast<std::int64_t>(line.place.first));
    places_.text("length").integer(static_cast<std::int64_t>(line.place.second)).op("ub");
  }

  std::string pickle() {
    Pickler items;
    for (const auto& [fqn, lines] : chunks_) add_item(items.text(fqn), lines);
    Pickler out;
    out.op("\x80\x02").global(kModule, "Metadata").op(")\x81}(");
    out.text("state_dict_metadata").op("}(" + items.take() + "u");
    out.text("planner_data").op("}(" + planner_.take() + "u");
    out.text("storage_data").op("}(" + places_.take() + "u");
    out.text("storage_meta").op("N").text("version").text("1.0.0");
    return out.op("ub.").take();
  }

 private:
  static void add_item(Pickler& out, const std::vector<Line>& lines) {
    const Line& first = lines[0];
    if (first.kind == "v") return (void)out.global(kModule, "BytesStorageMetadata").op(")\x81");
    out.global(kModule, "TensorStorageMetadata").op(")\x81}(").text("properties");
    out.global(kModule, "TensorProperties").op(")\x81(").global("torch", torch_file::type_of(first.dtype).name);
    out.global("torch.serialization", "_get_layout").op("(").text("torch.strided").op("tR\x89");
    out.global(kModule, "_MEM_FORMAT_ENCODING").op("(").integer(0).op("tR\x89tb");
    size(out.text("size"), first.shape).text("chunks").op("](");
    for (const Line& line : lines) {
      out.global(kModule, "ChunkStorageMetadata").op(")\x81}(");
      size(out.text("offsets"), line.begin);
      size(out.text("sizes"), line.extent).op("ub");
    }
    out.op("eub");
  }

  std::map<std::string, std::vector<Line>> chunks_;
  Pickler planner_, places_;
};

Line line_of(const shale_entry& entry) {
  const shale_item& item = *entry.item;
  Line line;
  line.kind = item.kind == SHALE_ITEM_VALUE ? "v" : item.kind == SHALE_ITEM_BYTES ? "b" : "t";
  line.role = item.role, line.dtype = line.kind == "b" ? SHALE_U8 : item.dtype, line.path = path_of(item);
  if (item.kind == SHALE_ITEM_VALUE) return line;
  line.shape.assign(item.shape, item.shape + item.ndim);
  line.begin.assign(item.ndim, 0);
  line.extent = line.shape;
  if (entry.box) line.begin.assign(entry.box->begin, entry.box->begin + item.ndim);
  if (entry.box) line.extent.assign(entry.box->extent, entry.box->extent + item.ndim);
  return line;
}

}  // namespace

void write(const Plugin& plugin, const shale_save& save) {
  const std::string name = "__" + std::to_string(save.first_part + save.part) + "_0.distcp";
  OutFile file(plugin, save.folder, name);
  std::string report;
  for (std::uint32_t k = 0; k < save.n_entries; ++k) {
    const shale_entry& entry = *save.entries[k];
    Line line = line_of(entry);
    line.file = name;
    const void* data = nullptr;
    Pickler object;
    if (line.kind == "v") {
      object.value(*entry.item->value);
    } else {
      plugin.ok(save.data(save.ctx, k, &data));
      object.tensor(line.dtype, line.extent, 0);
    }
    line.place = file.add(object.take(), data, entry.bytes);
    report += line.text();
  }
  file.close();
  plugin.ok(save.report(save.ctx, report.data(), report.size()));
}

void finish(const Plugin& plugin, const shale_finish& all) {
  Metadata metadata;
  std::map<std::string, std::string> lists = {{"buffers", ""}, {"bytes", ""}};
  for (std::uint32_t part = 0; part < all.n_reports; ++part) {
    std::istringstream report{std::string(view(all.reports[part]))};
    for (std::string text; std::getline(report, text);) {
      const Line line = Line::of(text);
      metadata.add(line);
      if (line.kind == "b") lists["bytes"] += joined(line.path) + " ";
      if (line.role == SHALE_ROLE_BUFFER) lists["buffers"] += line.path[1] + " ";
    }
  }
  OutFile own(plugin, all.folder, "__shale.distcp");
  for (const auto& [name, text] : lists) {
    Line line;
    line.file = "__shale.distcp", line.kind = "v", line.path = {"shale", name};
    line.place = own.add(Pickler().text(text).take(), nullptr, 0);
    metadata.add(line);
  }
  own.close();
  const std::string pickle = metadata.pickle();
  OutFile file(plugin, all.folder, kMetadata);
  file.put(pickle.data(), pickle.size());
  file.close();
}

}  // namespace dcp
