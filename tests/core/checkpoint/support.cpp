#include "support.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <sstream>
#include <thread>

#include <ATen/ops/empty.h>

#include "core/base/error.h"
#include "core/base/hash.h"
#include "core/checkpoint/manifest.h"

namespace shale::test {
namespace fs = std::filesystem;

namespace {

struct Meeting {
  explicit Meeting(int n) : size(n), places(static_cast<std::size_t>(n)) {}
  int size;
  std::vector<const at::Tensor*> places;
  std::mutex mutex;
  std::condition_variable all_here;
  int here = 0, round = 0;

  void meet() {
    std::unique_lock lock(mutex);
    const int mine = round;
    if (++here == size) {
      here = 0;
      ++round;
      all_here.notify_all();
    } else if (!all_here.wait_for(lock, std::chrono::seconds(60), [&] { return round != mine; })) {
      fail(Code::dist, "a rank did not come to the meeting");
    }
  }
};

class Done final : public Work {
 public:
  void wait() override {}
};

class ThreadGroup final : public Group {
 public:
  ThreadGroup(Meeting& meeting, int rank) : meeting_(meeting), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return meeting_.size; }
  const std::string& name() const override { return name_; }
  std::unique_ptr<Work> all_gather(const at::Tensor& full) override {
    meeting_.places[static_cast<std::size_t>(rank_)] = &full;
    meeting_.meet();
    const std::size_t piece = full.nbytes() / static_cast<std::size_t>(size());
    for (int r = 0; r < size(); ++r) {
      if (r == rank_ || piece == 0) continue;
      const std::size_t at = static_cast<std::size_t>(r) * piece;
      const auto* from = static_cast<const char*>(meeting_.places[static_cast<std::size_t>(r)]->const_data_ptr());
      std::memcpy(static_cast<char*>(full.mutable_data_ptr()) + at, from + at, piece);
    }
    meeting_.meet();
    return std::make_unique<Done>();
  }
  void barrier() override { meeting_.meet(); }
  std::unique_ptr<Work> reduce_scatter(const at::Tensor&, const at::Tensor&, const at::Tensor&) override {
    return no();
  }
  std::unique_ptr<Work> all_reduce(const at::Tensor&, Reduction) override { return no(); }
  std::unique_ptr<Work> broadcast(const at::Tensor&, int) override { return no(); }
  std::unique_ptr<Work> all_to_all(const at::Tensor&, const at::Tensor&) override { return no(); }
  std::unique_ptr<Work> send(const at::Tensor&, int, int) override { return no(); }
  std::unique_ptr<Work> recv(const at::Tensor&, int, int) override { return no(); }

 private:
  static std::unique_ptr<Work> no() { fail(Code::internal, "the test group only gathers"); }
  Meeting& meeting_;
  int rank_;
  std::string name_ = "threads";
};

void append(File& file, const std::string& text) { file.append(std::as_bytes(std::span(text))); }

std::string line_of(const WriteEntry& e, const std::string& file, std::uint64_t offset) {
  const Item& item = *e.item;
  std::string out = str(static_cast<int>(item.kind), " ", static_cast<int>(item.role), " ", item.name, " ", item.key,
                        " ", item.kind == ItemKind::value ? "none" : dtype_name(item.dtype), " ", item.shape.size());
  for (const std::int64_t dim : item.shape) out += str(" ", dim);
  if (item.kind == ItemKind::value) return out + str(" value ", std::get<std::int64_t>(item.value), "\n");
  if (!item.alias_of.empty()) return out + " alias " + item.alias_of + "\n";
  const Box box = e.box ? *e.box : whole(item.shape);
  out += str(" data ", file, " ", offset);
  for (std::size_t d = 0; d < box.begin.size(); ++d) out += str(" ", box.begin[d], " ", box.extent[d]);
  return out + "\n";
}

// Several writers hold boxes of one item: their lines lie apart.
Index merged(Index out) {
  std::map<std::string, std::size_t> first;
  std::vector<Item> items;
  std::vector<std::size_t> place;
  for (const Item& item : out.items) {
    const auto [where, is_new] = first.emplace(item.id(), items.size());
    if (is_new) items.push_back(item);
    place.push_back(where->second);
  }
  for (StoredBox& stored : out.boxes) stored.item = place[stored.item];
  out.items = std::move(items);
  return out;
}

}  // namespace

TempFolder::TempFolder(On on) {
  const bool memory = on == On::memory && fs::is_directory("/dev/shm");
  std::string name = (memory ? fs::path("/dev/shm") : fs::temp_directory_path()) / "shale-checkpoint-XXXXXX";
  check(::mkdtemp(name.data()) != nullptr, "no temporary folder");
  path_ = name;
}

TempFolder::~TempFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

void write_file(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

void sign(const std::string& path) {
  Manifest manifest = read_manifest(*Folder::for_reading(path));
  fs::remove(path + "/" + kManifestFile);
  manifest.files.clear();
  for (const std::string& name : Folder::for_reading(path)->list())
    manifest.files.push_back({name, fs::file_size(path + "/" + name), hash_file(path + "/" + name)});
  const auto folder = Folder::for_writing(path);
  write_manifest(*folder, manifest);
  folder->sync();
}

std::vector<std::string> run_ranks(int n, const std::function<void(Group&)>& job) {
  Meeting meeting(n);
  std::vector<std::string> errors(static_cast<std::size_t>(n));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < n; ++rank)
    threads.emplace_back([&, rank] {
      ThreadGroup group(meeting, rank);
      try {
        job(group);
      } catch (const Error& bad) {
        errors[static_cast<std::size_t>(rank)] = str(code_name(bad.code()), " ", bad.what());
      }
    });
  for (std::thread& thread : threads) thread.join();
  return errors;
}

PlainFormat::PlainFormat() {
  held.boxes = held.bytes = held.values = held.optimizer = held.aliases = true;
  held.dtypes = {at::kDouble, at::kFloat, at::kBFloat16, at::kLong, at::kByte};
}

void PlainFormat::write(const WriteCall& call) {
  at("write", call.writer);
  const std::string name = str("data-", call.first_part + call.part, "-of-", call.all_parts);
  const auto file = call.folder->create(name);
  std::uint64_t offset = 0;
  for (const WriteEntry& e : call.entries) {
    *call.report += line_of(e, name, offset);
    file->append({static_cast<const std::byte*>(e.data()), e.bytes});
    offset += e.bytes;
  }
  at("written", call.writer);
}

void PlainFormat::finish(const FinishCall& call) {
  at("finish", 0);
  const auto file = call.folder->create("index.part");
  for (const std::string& report : call.reports) append(*file, report);
  call.folder->rename("index.part", "index.txt");
  at("finished", 0);
}

Index PlainFormat::describe(Folder& folder) {
  const auto file = folder.open("index.txt");
  std::string text(file->size(), '\0');
  file->read(0, std::as_writable_bytes(std::span(text)));
  Index out;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream in(line);
    Item item;
    StoredBox stored;
    int kind = 0, role = 0;
    std::size_t dims = 0;
    std::string dtype, what;
    in >> kind >> role >> item.name >> item.key >> dtype >> dims;
    if (!in || kind < 1 || kind > 3 || role < 1 || role > 5 || dims > 100)
      fail(Code::checkpoint, "index.txt: bad line");
    item.kind = static_cast<ItemKind>(kind);
    item.role = static_cast<ItemRole>(role);
    item.shape.resize(dims);
    for (std::int64_t& dim : item.shape) in >> dim;
    in >> what;
    if (what == "value") in >> item.value.emplace<std::int64_t>();
    if (what == "alias") in >> item.alias_of;
    if (what == "data") in >> stored.file >> stored.offset;
    if (item.kind != ItemKind::value) item.dtype = dtype_of_name(dtype, "index.txt");
    const bool known = !out.items.empty() && out.items.back().id() == item.id();
    if (!known) out.items.push_back(item);
    if (what != "data") continue;
    stored.item = out.items.size() - 1;
    for (std::size_t d = 0; d < dims; ++d) in >> stored.box.begin.emplace_back() >> stored.box.extent.emplace_back();
    if (coded) {
      stored.token = str(stored.file, " ", stored.offset);
      stored.bytes = static_cast<std::uint64_t>(stored.box.numel()) * c10::elementSize(item.dtype);
    }
    out.boxes.push_back(stored);
  }
  return merged(std::move(out));
}

void PlainFormat::read(Folder& folder, const std::string& token, std::span<std::byte> to) {
  std::istringstream in(token);
  std::string name;
  std::uint64_t offset = 0;
  in >> name >> offset;
  folder.open(name)->read(offset, to);
}

std::vector<State> make_state(std::uint64_t seed) {
  std::vector<State> out;
  std::mt19937_64 random(seed);
  const auto add = [&](ItemRole role, const std::string& name, const std::string& key, at::ScalarType dtype,
                       std::vector<std::int64_t> shape) {
    Item item;
    item.role = role;
    item.name = name;
    item.key = key;
    item.dtype = dtype;
    item.shape = std::move(shape);
    const at::Tensor data = at::empty({whole(item.shape).numel()}, at::TensorOptions().dtype(dtype));
    auto* bytes = static_cast<unsigned char*>(data.mutable_data_ptr());
    for (std::size_t k = 0; k < data.nbytes(); ++k) bytes[k] = static_cast<unsigned char>(random());  // NaNs too
    out.push_back({std::move(item), data});
  };
  add(ItemRole::weight, "model.embed.weight", "weight", at::kFloat, {13, 7});
  add(ItemRole::weight, "model.layers.0.qkv", "weight", at::kBFloat16, {3, 5, 4});
  add(ItemRole::weight, "model.norm", "weight", at::kDouble, {5});
  add(ItemRole::weight, "model.scale", "weight", at::kFloat, {});
  add(ItemRole::weight, "model.one", "weight", at::kFloat, {1, 1, 1});
  add(ItemRole::optimizer, "model.embed.weight", "exp_avg", at::kFloat, {13, 7});
  add(ItemRole::optimizer, "model.embed.weight", "step", at::kLong, {});
  add(ItemRole::buffer, "mask", "buffer", at::kByte, {2, 3, 2, 3, 2});
  add(ItemRole::plugin, "powersgd", "nothing", at::kFloat, {0, 4});
  return out;
}

SnapshotSpec share(const std::vector<State>& state, const std::string& root, int rank, int world) {
  SnapshotSpec spec;
  spec.root = root;
  for (const State& s : state) {
    const std::int64_t n = s.data.numel(), begin = n * rank / world, end = n * (rank + 1) / world;
    spec.pieces.push_back({s.item, begin, s.data.narrow(0, begin, end - begin)});
  }
  const auto add = [&](ItemKind kind, const std::string& key, ItemValue value) {
    spec.items.push_back({kind, ItemRole::run, "run", key, at::kByte, {}, std::move(value), ""});
  };
  add(ItemKind::value, "step", std::int64_t{7});
  add(ItemKind::bytes, "rng.rank_0", std::string("\0\xff\n\"x", 5));
  add(ItemKind::bytes, "nothing", std::string());
  Item tied = state[0].item;
  tied.name = "lm_head.weight";
  tied.alias_of = state[0].item.name;
  spec.items.push_back(tied);
  spec.model_json = "{\"model_type\": \"llama\"}";
  spec.config_text = "[train]\nsteps = 3\n";
  spec.plugins = {"sharding full_shard 0.1.0"};
  return spec;
}

std::string difference(SnapshotReader& reader, const std::vector<State>& state, int world) {
  for (const State& s : state) {
    const Item* item = reader.find(s.item.role, s.item.name, s.item.key);
    if (!item) return s.item.id() + " is missing";
    if (item->shape != s.item.shape || item->dtype != s.item.dtype) return s.item.id() + " has another shape or dtype";
    for (int rank = 0; rank < world; ++rank) {
      const std::int64_t n = s.data.numel(), begin = n * rank / world, end = n * (rank + 1) / world;
      const at::Tensor back = at::empty({end - begin}, s.data.options());
      reader.read(*item, begin, back);
      const at::Tensor wanted = s.data.narrow(0, begin, end - begin);
      if (back.nbytes() > 0 && std::memcmp(back.const_data_ptr(), wanted.const_data_ptr(), back.nbytes()) != 0)
        return str(s.item.id(), " differs in [", begin, ", ", end, ")");
    }
  }
  return "";
}

void save(const std::string& root, std::uint64_t step, int world, CheckpointFormat& format, std::uint64_t seed) {
  const std::vector<State> state = make_state(seed);
  const auto errors = run_ranks(world, [&](Group& group) {
    SnapshotSpec spec = share(state, root, group.rank(), world);
    spec.step = step;
    save_snapshot(group, format, spec);
  });
  for (const std::string& error : errors)
    if (!error.empty()) fail(Code::io, error);
}

}  // namespace shale::test
