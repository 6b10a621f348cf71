// JSON of this room's own files, read without trust: depth and size are bounded, types checked, errors name the file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/checkpoint/folder.h"
#include "core/checkpoint/item.h"

namespace shale {

using Json = nlohmann::json;

// All of a small text file of the folder; Error{checkpoint} when it is missing or longer than `most`.
std::string read_text(Folder&, const std::string& name, std::uint64_t most);
Json parse_json(const std::string& text, const std::string& where);
std::string json_text(const Json&, const std::string& where);  // Error{checkpoint} for text that is not UTF-8

// A member of an object, of the wanted type, or Error{checkpoint} naming `where` and the key.
const Json& member(const Json&, const char* key, const std::string& where);
std::string text_of(const Json&, const char* key, const std::string& where);
std::uint64_t count_of(const Json&, const char* key, const std::string& where);
const std::vector<Json>& array_of(const Json&, const char* key, const std::string& where);

// Items with everything they have but tensor data; byte strings as hexadecimal digits.
Json item_to_json(const Item&);
Item item_from_json(const Json&, const std::string& where);

}  // namespace shale
