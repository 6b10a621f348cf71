#include "items.h"

#include <cstdio>

namespace shale::test {

struct FormatOnFolder::Calls {
  FormatOnFolder& me;
  std::vector<Stored> items;

  static std::string text(shale_str s) { return s.len == 0 ? "" : std::string(s.ptr, s.len); }

  static shale_status* add_item(void* ctx, const shale_item* from, std::uint32_t* id) {
    auto& items = static_cast<Calls*>(ctx)->items;
    *id = static_cast<std::uint32_t>(items.size());
    Stored item{from->kind, from->role, from->dtype, text(from->name), text(from->key), text(from->alias_of),
                "",         {},         ""};
    item.shape.assign(from->shape, from->shape + from->ndim);
    if (from->value) item.value = text_of(*from->value);
    items.push_back(item);
    return nullptr;
  }
  static shale_status* add_raw(void* ctx, std::uint32_t id, const shale_box* box, shale_str name,
                               std::uint64_t offset) {
    auto& calls = *static_cast<Calls*>(ctx);
    Stored& item = calls.items.at(id);
    const std::string& file = calls.me.files().at(text(name));
    const std::uint64_t n = bytes_of(item.dtype, {box->extent, box->extent + box->ndim});
    if (offset > file.size() || n > file.size() - offset)
      return calls.me.host_.make(SHALE_CORRUPT, "add_raw", "the box lies outside the file");
    return calls.place(item, *box, file.substr(offset, n));
  }
  static shale_status* add_coded(void* ctx, std::uint32_t id, const shale_box* box, shale_str token, std::uint64_t n) {
    auto& calls = *static_cast<Calls*>(ctx);
    Stored& item = calls.items.at(id);
    if (n > std::uint64_t{1} << 24) return calls.me.host_.make(SHALE_CORRUPT, "add_coded", "the box is too large");
    item.coded = true;
    std::string bytes(n, '\0');
    shale_status* bad = calls.me.table_.read(calls.me.instance_.self(), calls.me.folder_.get(), token, bytes.data(), n);
    return bad ? bad : calls.place(item, *box, bytes);
  }

  // Puts the elements of a box where they belong in the tensor.
  shale_status* place(Stored& item, const shale_box& box, const std::string& from) {
    const std::uint64_t all = bytes_of(item.dtype, item.shape), width = SHALE_DTYPE_BITS(item.dtype) / 8;
    if (all > std::uint64_t{1} << 24) return me.host_.make(SHALE_CORRUPT, "place", "the tensor is too large");
    item.bytes.resize(all);
    for (std::uint64_t k = 0; k < from.size() / width; ++k) {
      std::uint64_t rest = k, to = 0, stride = 1;
      for (std::uint32_t d = box.ndim; d-- > 0; stride *= static_cast<std::uint64_t>(item.shape[d])) {
        const auto extent = static_cast<std::uint64_t>(box.extent[d]);
        to += (static_cast<std::uint64_t>(box.begin[d]) + rest % extent) * stride;
        rest /= extent;
      }
      if (to >= all / width) return me.host_.make(SHALE_CORRUPT, "place", "the box lies outside the tensor");
      item.bytes.replace(to * width, width, from, k * width, width);
    }
    return nullptr;
  }
};

std::vector<Stored> FormatOnFolder::describe() {
  Calls calls{*this, {}};
  const shale_index index{sizeof index, 0, &calls, Calls::add_item, Calls::add_raw, Calls::add_coded};
  take(table_.describe(instance_.self(), folder_.get(), &index));
  return calls.items;
}

namespace {

shale_value value_of(const std::string& text) {
  shale_value out{};
  out.is_set = 1;
  const std::string digits = text.substr(text.find(' ') + 1);
  if (text.starts_with("int")) out.type = SHALE_OPT_INT, out.i = std::stoll(digits);
  if (text.starts_with("float")) out.type = SHALE_OPT_FLOAT, out.f = std::stod(digits);
  if (text.starts_with("text")) out.type = SHALE_OPT_TEXT, out.s = {text.data() + 5, text.size() - 5};
  return out;
}

struct Saved {
  const std::vector<Stored>& items;
  std::string report;
};
shale_status* data(void* ctx, std::uint32_t k, const void** bytes) {
  *bytes = static_cast<Saved*>(ctx)->items[k].bytes.data();
  return nullptr;
}
shale_status* report(void* ctx, const void* bytes, std::uint64_t n) {
  static_cast<Saved*>(ctx)->report.append(static_cast<const char*>(bytes), n);
  return nullptr;
}

}  // namespace

bool FormatOnFolder::aliases() {
  shale_format traits{};
  traits.struct_size = sizeof traits;
  take(table_.format(instance_.self(), &traits));
  return (traits.flags & SHALE_FORMAT_ALIASES) != 0;
}

void FormatOnFolder::save(const std::vector<Stored>& all, std::uint32_t writers) {
  std::vector<shale_item> items(all.size());
  std::vector<shale_entry> entries(all.size());
  std::vector<shale_box> boxes(all.size());
  std::vector<shale_value> values(all.size());
  std::vector<const shale_entry*> pointers;
  for (std::size_t k = 0; k < all.size(); ++k) {
    const Stored& from = all[k];
    shale_item& to = items[k];
    to.struct_size = sizeof to, to.kind = from.kind, to.role = from.role, to.dtype = from.dtype;
    to.name = {from.name.data(), from.name.size()}, to.key = {from.key.data(), from.key.size()};
    to.alias_of = {from.alias_of.data(), from.alias_of.size()};
    to.ndim = static_cast<std::uint32_t>(from.shape.size());
    for (std::size_t d = 0; d < from.shape.size(); ++d) boxes[k].extent[d] = to.shape[d] = from.shape[d];
    boxes[k].struct_size = sizeof boxes[k], boxes[k].ndim = to.ndim;
    values[k] = value_of(from.value);
    to.value = from.kind == SHALE_ITEM_VALUE ? &values[k] : nullptr;
    const bool boxed = from.kind == SHALE_ITEM_TENSOR && from.alias_of.empty();
    entries[k] = {sizeof entries[k], 0, &to, boxed ? &boxes[k] : nullptr, from.bytes.size()};
    pointers.push_back(&entries[k]);
  }
  Saved saved{all, ""};
  const auto n = static_cast<std::uint32_t>(all.size());
  const shale_save call{sizeof call,     0,      writers, 0,     1, n, 0, writers, 3, folder_.get(),
                        pointers.data(), &saved, data,    report};
  take(table_.write(instance_.self(), &call));
  if (table_.finish == nullptr) return;
  const shale_str reports[] = {{saved.report.data(), saved.report.size()}};
  shale_finish end{};
  end.struct_size = sizeof end, end.n_reports = 1, end.step = 3, end.folder = folder_.get(), end.reports = reports;
  take(table_.finish(instance_.self(), &end));
}

void FormatOnFolder::take(shale_status* status) {
  const auto answer = host_.take(status);
  folder_.close_all();
  if (answer.code != 0) throw std::runtime_error(answer.where + ": " + answer.text);
}

std::string text_of(const shale_value& value) {
  if (value.type == SHALE_OPT_TEXT) return "text " + std::string(value.s.ptr, value.s.len);
  if (value.type != SHALE_OPT_FLOAT) return "int " + std::to_string(value.i);
  char digits[64];
  std::snprintf(digits, sizeof digits, "float %a", value.f);
  return digits;
}

std::uint64_t bytes_of(std::uint32_t dtype, const std::vector<std::int64_t>& shape) {
  std::uint64_t n = SHALE_DTYPE_BITS(dtype) / 8;
  for (const std::int64_t size : shape) n *= static_cast<std::uint64_t>(size);
  return n;
}

std::string line_of(const Stored& item) {
  std::string out = std::to_string(item.role) + "\t" + item.name + "\t" + item.key + "\t" + std::to_string(item.kind) +
                    "\t" + std::to_string(item.dtype) + "\t";
  for (const std::int64_t size : item.shape) out += std::to_string(size) + ",";
  out += "\t" + item.alias_of + "\t" + item.value + "\t" + (item.coded ? "coded" : "raw") + "\t";
  char hex[3];
  for (const char c : item.bytes) {
    std::snprintf(hex, sizeof hex, "%02x", static_cast<unsigned char>(c));
    out += hex;
  }
  return out;
}

}  // namespace shale::test
