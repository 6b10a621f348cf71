#include "core/model/strict_json.h"

#include <set>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/model/input_file.h"

namespace shale {
namespace {

using nlohmann::json;

constexpr int kMaxDepth = 16;  // of any JSON shale reads; a model folder needs 4

// Watches a parse for what the standard leaves open: repeated keys and nesting without end.
class Watch {
 public:
  explicit Watch(const std::string& where) : where_(where) {}

  bool operator()(int depth, json::parse_event_t event, const json& value) {
    using Event = json::parse_event_t;
    if (event == Event::object_start) open_.emplace_back();
    if (event == Event::object_end) open_.pop_back();
    if (event == Event::object_start || event == Event::array_start) {
      if (depth > kMaxDepth) fail(Code::input, where_, ": JSON nested deeper than ", kMaxDepth, " levels");
    }
    if (event == Event::key && !open_.back().insert(value.get<std::string>()).second) {
      fail(Code::input, where_, ": key ", shown(value), " appears twice in one JSON object");
    }
    return true;
  }

 private:
  const std::string& where_;
  std::vector<std::set<std::string>> open_;
};

// The library's message without its identifier, on one line and without bytes that are no text.
std::string reason(const json::exception& error) {
  std::string text = error.what();
  if (const auto end = text.find("] "); end != std::string::npos) text.erase(0, end + 2);
  for (char& c : text) {
    if (c < ' ' || c > '~') c = '?';
  }
  return text.size() > 200 ? text.substr(0, 200) + "..." : text;
}

}  // namespace

std::string shown(const json& value) {
  const std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
  return text.size() > 80 ? text.substr(0, 77) + "..." : text;
}

json parse_strict(std::string_view text, const std::string& where) {
  // The library takes a zero byte for the end of the text.
  if (text.find('\0') != std::string_view::npos) fail(Code::input, where, ": not valid JSON: it has a zero byte");
  try {
    return json::parse(text.begin(), text.end(), Watch(where));
  } catch (const json::exception& error) {
    fail(Code::input, where, ": not valid JSON: ", reason(error), looks_like(text));
  }
}

}  // namespace shale
