// A TOML file as a flat list of what it says, with positions; everything about TOML itself ends here. Private to this
// room.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/config/values.h"

namespace shale {

// One key with its value, or the header of a table (`is_table`).
struct Line {
  std::vector<std::string> path;  // {"training", "steps"}
  bool is_table = false;
  Written written;
  Origin key, value;  // "run.toml:4:1", "run.toml:4:9"
};

// The whole text of a regular UTF-8 file, without byte-order mark and carriage returns before line ends. Error{config}
// naming the file (and line) when it is missing, a folder, too big, UTF-16 or not UTF-8.
std::string read_text_file(const std::string& file);

// Keys in the order of the file, each table before what it holds; nothing below three levels. Error{config} with
// file:line:col on a syntax error, such as a table or key that is given twice.
std::vector<Line> parse_toml(const std::string& file, const std::string& text);

// Bytes before the first one that is no part of a well-formed UTF-8 sequence; text.size() when all is well.
std::size_t valid_utf8(std::string_view text);

}  // namespace shale
