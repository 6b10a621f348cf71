#include "core/comm/error_file.h"

#include <chrono>
#include <fstream>

#include <nlohmann/json.hpp>

namespace shale {

void write_error_file(const std::string& path, const Error& error, int rank) noexcept {
  if (path.empty()) return;
  try {
    const auto since_1970 = std::chrono::system_clock::now().time_since_epoch();
    // The agent reports the earliest whole second: a follow-up must not tie with its cause.
    const auto now = std::chrono::duration_cast<std::chrono::seconds>(since_1970).count();
    const auto seconds = now + (error.secondary() ? 2 : 0);
    const std::string text = str("[rank ", rank, "] ", code_name(error.code()), ": ", error.what());
    const nlohmann::json reason = {
        {"message",
         {{"message", text}, {"extraInfo", {{"py_callstack", ""}, {"timestamp", std::to_string(seconds)}}}}}};
    // Texts may hold file names, which need not be UTF-8.
    std::ofstream(path) << reason.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << '\n';
  } catch (const std::exception&) {
    return;
  }
}

}  // namespace shale
