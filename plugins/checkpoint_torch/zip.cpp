#include "zip.h"

#include <vector>

namespace torch_file {
namespace {

constexpr std::uint64_t kEnd = 22, kLocator = 20, kWideEnd = 56, kCentral = 46, kLocal = 30;
constexpr std::uint64_t kFull16 = 0xffff, kFull32 = 0xffffffff;
constexpr std::uint64_t kLargestDirectory = std::uint64_t{1} << 30;
constexpr unsigned kEncrypted = 1, kSizesFollow = 8;

struct Directory {
  std::uint64_t begin = 0, bytes = 0, entries = 0;
};

struct Entry {
  std::string name;
  unsigned flags = 0, method = 0;
  std::uint64_t stored = 0, size = 0, header = 0;  // header: offset of the local one
};

bool is(std::string_view bytes, std::size_t at, const char* signature) {
  return bytes.substr(at, 4) == std::string_view(signature, 4);
}

// A field of the short end record must say what the wide one says, or that it is too narrow.
void widen(const Source& source, std::uint64_t& field, std::uint64_t full, std::uint64_t wide) {
  if (field != full && field != wide) source.corrupt("the two end records of the zip file differ");
  field = wide;
}

// The wide end record, if there is one; `at` becomes its position.
void read_wide_end(Source& source, Directory& found, std::uint64_t& at) {
  if (at < kLocator + kWideEnd) return;
  const std::string locator = source.bytes(at - kLocator, kLocator);
  if (!is(locator, 0, "PK\6\7")) return;
  const std::uint64_t begin = at - kLocator - kWideEnd;
  if (number(locator, 4, 4) != 0 || number(locator, 16, 4) != 1) source.corrupt(at, "a zip file of several parts");
  if (number(locator, 8, 8) != begin) source.corrupt(at - kLocator, "points to no zip64 end record");
  const std::string end = source.bytes(begin, kWideEnd);
  if (!is(end, 0, "PK\6\6") || number(end, 4, 8) != kWideEnd - 12) source.corrupt(begin, "no zip64 end record");
  if (number(end, 16, 8) != 0 || number(end, 24, 8) != number(end, 32, 8))
    source.corrupt(begin, "a zip file of several parts");
  widen(source, found.entries, kFull16, number(end, 32, 8));
  widen(source, found.bytes, kFull32, number(end, 40, 8));
  widen(source, found.begin, kFull32, number(end, 48, 8));
  at = begin;
}

Directory find_directory(Source& source) {
  if (source.size() < kEnd) source.corrupt(std::to_string(source.size()) + " bytes are too few for a zip file");
  std::uint64_t at = source.size() - kEnd;
  const std::string end = source.bytes(at, kEnd);
  if (!is(end, 0, "PK\5\6") || number(end, 20, 2) != 0) {
    if (source.bytes(0, 1) == "\x80")
      source.unsupported("is the format of torch.save before 1.6; load it and save it again with a current PyTorch");
    source.corrupt("does not end in the end record of a zip file: it was cut, or something was added");
  }
  if (number(end, 4, 4) != 0 || number(end, 8, 2) != number(end, 10, 2))
    source.corrupt(at, "a zip file of several parts");
  Directory found{number(end, 16, 4), number(end, 12, 4), number(end, 10, 2)};
  read_wide_end(source, found, at);
  if (found.bytes > at || found.begin != at - found.bytes)
    source.corrupt(at, "the directory of the zip file does not lie before its end record");
  if (found.bytes > kLargestDirectory || found.entries > found.bytes / kCentral)
    source.corrupt(at, std::to_string(found.entries) + " records do not fit the directory");
  return found;
}

// Replaces what is too wide for its field by what the zip64 part of `extra` says, in the order of the standard.
void read_extra(const Source& source, std::string_view extra, Entry& entry) {
  for (std::size_t at = 0; at + 4 <= extra.size();) {
    const std::size_t id = number(extra, at, 2), n = number(extra, at + 2, 2);
    if (n > extra.size() - at - 4) break;
    const std::string_view body = extra.substr(at + 4, n);
    at += 4 + n;
    if (id != 1) continue;
    std::size_t next = 0;
    for (std::uint64_t* field : {&entry.size, &entry.stored, &entry.header}) {
      if (*field != kFull32) continue;
      if (body.size() - next < 8) source.corrupt("the zip64 sizes of " + shown(entry.name) + " are cut");
      *field = number(body, next, 8);
      next += 8;
    }
  }
}

Entry read_entry(const Source& source, std::string_view directory, std::size_t& at, std::uint64_t begin) {
  if (directory.size() - at < kCentral || !is(directory, at, "PK\1\2"))
    source.corrupt(begin + at, "no entry of a zip directory");
  const std::size_t name = number(directory, at + 28, 2), extra = number(directory, at + 30, 2);
  const std::size_t comment = number(directory, at + 32, 2);
  if (directory.size() - at - kCentral < name + extra + comment)
    source.corrupt(begin + at, "the entry reaches past the zip directory");
  Entry entry;
  entry.name = directory.substr(at + kCentral, name);
  entry.flags = static_cast<unsigned>(number(directory, at + 8, 2));
  entry.method = static_cast<unsigned>(number(directory, at + 10, 2));
  entry.stored = number(directory, at + 20, 4);
  entry.size = number(directory, at + 24, 4);
  entry.header = number(directory, at + 42, 4);
  read_extra(source, directory.substr(at + kCentral + name, extra), entry);
  if (entry.flags & kEncrypted) source.unsupported(shown(entry.name) + " is encrypted");
  if (entry.method != 0) source.unsupported(shown(entry.name) + " is compressed; only stored records can be read");
  if (entry.stored != entry.size) source.corrupt(begin + at, shown(entry.name) + " is stored in another size");
  at += kCentral + name + extra + comment;
  return entry;
}

Record read_local(Source& source, const Entry& entry, std::uint64_t end) {
  if (entry.header > end || end - entry.header < kLocal)
    source.corrupt(entry.header, "the header of " + shown(entry.name) + " lies outside the file");
  const std::string head = source.bytes(entry.header, kLocal);
  if (!is(head, 0, "PK\3\4")) source.corrupt(entry.header, "no header of a zip record");
  const std::uint64_t name = number(head, 26, 2), extra = number(head, 28, 2), room = end - entry.header - kLocal;
  if (name + extra > room || entry.size > room - name - extra)
    source.corrupt(entry.header, shown(entry.name) + " reaches past the records of the zip file");
  if (source.bytes(entry.header + kLocal, name) != entry.name)
    source.corrupt(entry.header, "the name of " + shown(entry.name) + " differs from that in the zip directory");
  const std::uint64_t size = number(head, 22, 4);
  const bool told = (number(head, 6, 2) & kSizesFollow) == 0 && size != kFull32;
  if (number(head, 8, 2) != 0 || (told && size != entry.size))
    source.corrupt(entry.header, "the size of " + shown(entry.name) + " differs from that in the zip directory");
  return {entry.header + kLocal + name + extra, entry.size};
}

}  // namespace

Archive::Archive(Source& source) : source_(source) {
  const Directory found = find_directory(source);
  const std::string directory = source.bytes(found.begin, found.bytes);
  if (directory.find("/constants.pkl") != std::string::npos)
    source.unsupported("is a TorchScript archive, not a file of torch.save");
  std::vector<std::pair<std::uint64_t, std::uint64_t>> spans;  // header to end of data
  std::string root;
  std::size_t at = 0;
  for (std::uint64_t k = 0; k < found.entries; ++k) {
    const std::size_t begin = at;
    const Entry entry = read_entry(source, directory, at, found.begin);
    const std::size_t slash = entry.name.find('/');
    if (slash == std::string::npos || (k > 0 && entry.name.substr(0, slash) != root))
      source.corrupt(found.begin + begin, shown(entry.name) + " is not under the one root folder of torch.save");
    root = entry.name.substr(0, slash);
    const Record record = read_local(source, entry, found.begin);
    spans.emplace_back(entry.header, record.offset + record.bytes);
    if (!records_.emplace(entry.name.substr(slash + 1), record).second)
      source.corrupt(found.begin + begin, shown(entry.name) + " is there twice");
  }
  if (at != directory.size()) source.corrupt(found.begin + at, "more zip entries than the end record counts");
  std::ranges::sort(spans);
  for (std::size_t k = 1; k < spans.size(); ++k)
    if (spans[k].first < spans[k - 1].second) source.corrupt(spans[k].first, "two records of the zip file overlap");
  check_torch();
}

void Archive::check_torch() const {
  constexpr std::uint64_t kShort = 16;
  std::string version = text("version", kShort);
  while (!version.empty() && (version.back() == '\n' || version.back() == '\r')) version.pop_back();
  const bool one_digit = version.size() == 1 && version[0] >= '1' && version[0] <= '9';
  if (!one_digit && version != "10") source_.unsupported("version " + shown(version) + " of torch.save is not known");
  if (find("byteorder") && text("byteorder", kShort) != "little")
    source_.unsupported("byte order " + shown(text("byteorder", kShort)) + " cannot be read, only 'little'");
}

const Record* Archive::find(const std::string& name) const {
  const auto found = records_.find(name);
  return found == records_.end() ? nullptr : &found->second;
}

const Record& Archive::at(const std::string& name) const {
  const Record* record = find(name);
  if (!record) source_.corrupt("the record " + shown(name) + " is missing");
  return *record;
}

std::string Archive::text(const std::string& name, std::uint64_t most) const {
  const Record& record = at(name);
  if (record.bytes > most)
    source_.corrupt(record.offset, shown(name) + " has " + std::to_string(record.bytes) + " bytes, too many");
  return source_.bytes(record.offset, record.bytes);
}

}  // namespace torch_file
