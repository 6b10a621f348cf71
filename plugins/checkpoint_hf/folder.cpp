#include "folder.h"

#include <algorithm>

using shale::sdk::str;
using shale::sdk::view;

namespace hf {

namespace {
constexpr int kDeepest = 16;
constexpr std::size_t kLongestQuote = 100;
constexpr std::uint64_t kCopyBytes = 1 << 20;
}  // namespace

void corrupt(const std::string& file, const std::string& what) { throw shale::sdk::Error(SHALE_CORRUPT, file, what); }

std::string in_quotes(const std::string& name) {
  std::string out = "'";
  for (const char c : name.substr(0, kLongestQuote)) out += c < 0x20 || c == 0x7f || c == '\'' ? '?' : c;
  return out + (name.size() > kLongestQuote ? "...'" : "'");
}

std::vector<std::string> Folder::names() const {
  std::vector<std::string> out;
  for (shale_str name{};;) {
    plugin.ok(table.list(table.ctx, folder, static_cast<std::uint32_t>(out.size()), &name));
    if (name.len == 0) return out;
    out.emplace_back(view(name));
  }
}

std::uint64_t Folder::size(const std::string& file) const {
  shale_file* open = nullptr;
  std::uint64_t bytes = 0;
  plugin.ok(table.open(table.ctx, folder, str(file), &open, &bytes));
  plugin.ok(table.close(table.ctx, open));
  return bytes;
}

std::string Folder::read(const std::string& file, std::uint64_t offset, std::uint64_t n) const {
  shale_file* open = nullptr;
  std::uint64_t bytes = 0;
  plugin.ok(table.open(table.ctx, folder, str(file), &open, &bytes));
  if (offset > bytes || n > bytes - offset) corrupt(file, "has become shorter while it was read");
  std::string out(n, '\0');
  plugin.ok(table.read(table.ctx, open, offset, out.data(), n));
  plugin.ok(table.close(table.ctx, open));
  return out;
}

void Folder::write(const std::string& file, const std::string& text) const {
  shale_file* open = nullptr;
  plugin.ok(table.create(table.ctx, folder, str(file), &open));
  plugin.ok(table.append(table.ctx, open, text.data(), text.size()));
  plugin.ok(table.close(table.ctx, open));
}

void Folder::copy(const std::string& file, const Folder& from) const {
  shale_file *source = nullptr, *target = nullptr;
  std::uint64_t size = 0;
  plugin.ok(from.table.open(from.table.ctx, from.folder, str(file), &source, &size));
  plugin.ok(table.create(table.ctx, folder, str(file), &target));
  std::string part;
  for (std::uint64_t at = 0; at < size; at += part.size()) {
    part.resize(std::min(kCopyBytes, size - at));
    plugin.ok(from.table.read(from.table.ctx, source, at, part.data(), part.size()));
    plugin.ok(table.append(table.ctx, target, part.data(), part.size()));
  }
  plugin.ok(table.close(table.ctx, target));
  plugin.ok(from.table.close(from.table.ctx, source));
}

void Events::read(const std::string& text) {
  // The parser takes a zero byte for the end of the text.
  if (text.find('\0') != std::string::npos) bad("is no valid JSON: it holds a zero byte");
  Json::sax_parse(text, this);
}

bool Events::open(What what) {
  on_value(what);
  if (++depth_ > kDeepest) bad("is nested too deep");
  return true;
}

bool Events::parse_error(std::size_t at, const std::string&, const nlohmann::detail::exception&) {
  bad("is no valid JSON: byte " + std::to_string(at));
}

}  // namespace hf
