#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "core/config/toml_file.h"

namespace shale {
namespace {

constexpr std::uintmax_t kMostBytes = 1 << 20;

// Length of the well-formed sequence at the start of text, or 0: no overlong forms, surrogates or values above 10FFFF.
std::size_t utf8_sequence(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  const std::size_t n = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < n) return 0;
  for (std::size_t i = 1; i < n; ++i) {
    if (byte(i) < 0x80 || byte(i) > 0xBF) return 0;
  }
  const bool overlong = (lead == 0xE0 && byte(1) < 0xA0) || (lead == 0xF0 && byte(1) < 0x90);
  const bool outside = (lead == 0xED && byte(1) > 0x9F) || (lead == 0xF4 && byte(1) > 0x8F);
  return overlong || outside ? 0 : n;
}

// UTF-16 shows by its mark or, without one, by zeros in every other byte of the first characters.
bool looks_utf16(std::string_view text) {
  if (text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF")) return true;
  return text.size() >= 4 && ((text[1] == 0 && text[3] == 0) || (text[0] == 0 && text[2] == 0));
}

std::string read_bytes(const std::string& file) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(file, error);
  if (!std::filesystem::exists(status)) fail(Code::config, file, ": no such file; give the path of a TOML file");
  if (std::filesystem::is_directory(status)) fail(Code::config, file, ": is a folder; give the path of a TOML file");
  if (!std::filesystem::is_regular_file(status)) {
    fail(Code::config, file, ": is no regular file; every rank must be able to read it");
  }
  const std::uintmax_t size = std::filesystem::file_size(file, error);
  if (!error && size > kMostBytes) {
    fail(Code::config, file, ": has ", size, " bytes, a configuration has at most ", kMostBytes, "; is it one?");
  }
  std::ifstream in(file, std::ios::binary);
  std::string text(std::istreambuf_iterator<char>(in), {});
  if (!in.is_open() || in.bad()) fail(Code::config, file, ": cannot be read: ", std::strerror(errno));
  return text;
}

}  // namespace

std::size_t valid_utf8(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t n = utf8_sequence(text.substr(at));
    if (n == 0) break;
    at += n;
  }
  return at;
}

std::string read_text_file(const std::string& file) {
  std::string text = read_bytes(file);
  if (looks_utf16(text)) fail(Code::config, file, ": is UTF-16 text; save it as UTF-8");
  if (text.starts_with("\xEF\xBB\xBF")) text.erase(0, 3);
  if (const std::size_t good = valid_utf8(text); good < text.size()) {
    const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(good), '\n');
    fail(Code::config, file, ":", line, ": is not UTF-8 text; save it as UTF-8");
  }
  for (std::size_t at = text.find("\r\n"); at != std::string::npos; at = text.find("\r\n", at)) text.erase(at, 1);
  return text;
}

}  // namespace shale
