#include "core/config/toml_file.h"

#include <algorithm>

// The parser asserts what bad input can break ("[.a]"); the code behind its assertions reports the error properly.
#undef NDEBUG
#define TOML_ASSERT(expr) static_cast<void>(0)
#include <toml++/toml.h>

namespace shale {
namespace {

// A chain of dotted keys makes one table inside another for each part; nothing real comes near this many.
constexpr int kMostDots = 64;

Origin at(const std::string& file, const toml::source_region& where) {
  return {str(file, ":", where.begin.line, ":", where.begin.column)};
}

std::string type_of(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::table:
      return "a table";
    case toml::node_type::array: {
      if (node.is_array_of_tables()) return "a list of tables";
      return "a list";
    }
    case toml::node_type::string:
      return "a string";
    case toml::node_type::integer:
      return "an integer";
    case toml::node_type::floating_point:
      return "a number with a fraction";
    case toml::node_type::boolean:
      return "true or false";
    default:
      return "a date or time";
  }
}

std::optional<RawValue> value_of(const toml::node& node) {
  if (const auto* b = node.as_boolean()) return b->get();
  if (const auto* n = node.as_integer()) return n->get();
  if (const auto* x = node.as_floating_point()) return x->get();
  if (const auto* text = node.as_string()) return text->get();
  const toml::array* list = node.as_array();
  if (list == nullptr) return std::nullopt;
  std::vector<std::string> out;
  for (const toml::node& item : *list) {
    const auto* text = item.as_string();
    if (text == nullptr) return std::nullopt;
    out.push_back(text->get());
  }
  return out;
}

// toml++ sorts keys by name; messages follow the file.
struct Child {
  const toml::key* key;
  const toml::node* node;
};

std::vector<Child> children(const toml::table& table) {
  std::vector<Child> out;
  for (auto&& [key, node] : table) out.push_back({&key, &node});
  std::ranges::stable_sort(out, [](const Child& a, const Child& b) {
    const auto &x = a.key->source().begin, &y = b.key->source().begin;
    return x.line != y.line ? x.line < y.line : x.column < y.column;
  });
  return out;
}

constexpr std::size_t kLevels = 3;  // section, "options", option

void flatten(const std::string& file, const toml::table& table, const std::vector<std::string>& path,
             std::vector<Line>& out) {
  for (const auto& [key, node] : children(table)) {
    Line line;
    line.path = path;
    line.path.emplace_back(key->str());
    line.is_table = node->is_table();
    line.written = {value_of(*node), type_of(*node)};
    line.key = at(file, key->source());
    line.value = at(file, line.is_table ? key->source() : node->source());
    out.push_back(line);
    if (line.is_table && line.path.size() < kLevels) flatten(file, *node->as_table(), line.path, out);
  }
}

// Deep chains would be walked recursively by the parser's own clean-up and could exhaust the stack.
void refuse_deep(const std::string& file, const std::string& text) {
  int dots = 0;
  std::size_t line = 1;
  for (const char c : text) {
    if (c == '\n') ++line;
    if (c == '\n' || c == '=' || c == ',') dots = 0;
    if (c == '.' && ++dots > kMostDots) {
      fail(Code::config, file, ":", line, ": more than ", kMostDots, " dots between two commas, '=' or line ends");
    }
  }
}

}  // namespace

std::vector<Line> parse_toml(const std::string& file, const std::string& text) {
  refuse_deep(file, text);
  std::vector<Line> out;
  try {
    const toml::table root = toml::parse(text, file);
    flatten(file, root, {}, out);
  } catch (const toml::parse_error& error) {
    std::string what(error.description());
    std::ranges::replace(what, '\n', ' ');
    fail(Code::config, at(file, error.source()).text, ": ", what);
  }
  return out;
}

}  // namespace shale
