#include "core/comm/rank_report.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <new>

#include "core/base/clock.h"

namespace shale {
namespace {

constexpr std::size_t kLongestText = 3000;  // a pipe takes 4096 bytes in one piece

struct Header {
  double time;
  std::int32_t code, secondary;
  std::uint64_t length;
};

std::string first_line(const char* text) {
  const std::string all = text;
  return all.substr(0, all.find('\n'));
}

RankReport report_of(Code code, bool secondary, const std::string& text) { return {code, secondary, now(), text}; }

}  // namespace

Pipe make_pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) fail(Code::io, "launcher: cannot make a pipe: ", std::strerror(errno));
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  return {OwnedFd(ends[0]), OwnedFd(ends[1])};
}

void send_report(const OwnedFd& to, const RankReport& report) noexcept {
  const std::size_t length = std::min(report.text.size(), kLongestText);
  const Header header{report.time, static_cast<std::int32_t>(report.code), report.secondary ? 1 : 0, length};
  char record[sizeof header + kLongestText];
  std::memcpy(record, &header, sizeof header);
  std::memcpy(record + sizeof header, report.text.data(), length);
  if (write(to.get(), record, sizeof header + length) < 0) return;  // the launcher is gone, and so are we soon
}

std::optional<RankReport> read_report(const OwnedFd& from) {
  char record[sizeof(Header) + kLongestText];
  const ssize_t n = read(from.get(), record, sizeof record);
  Header header;
  if (n < static_cast<ssize_t>(sizeof header)) return std::nullopt;
  std::memcpy(&header, record, sizeof header);
  if (header.length > static_cast<std::size_t>(n) - sizeof header) return std::nullopt;
  const std::string text(record + sizeof header, header.length);
  return RankReport{static_cast<Code>(header.code), header.secondary != 0, header.time, text};
}

RankReport current_exception_report() {
  try {
    throw;
  } catch (const Error& error) {
    return report_of(error.code(), error.secondary(), error.what());
  } catch (const std::bad_alloc&) {
    return report_of(Code::io, false, "out of memory");
  } catch (const std::filesystem::filesystem_error& error) {
    return report_of(Code::io, false, str(error.path1().string(), ": ", error.code().message()));
  } catch (const std::exception& error) {
    return report_of(Code::internal, false, first_line(error.what()));
  } catch (...) {
    return report_of(Code::internal, false, "an exception of an unknown type");
  }
}

}  // namespace shale
