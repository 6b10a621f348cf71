// From written values to the typed ones of a Config and back to TOML. Private to this room.
#pragma once

#include <optional>
#include <string>

#include "core/config/schema.h"

namespace shale {

// A value as it stands in the file.
struct Written {
  std::optional<RawValue> value;  // nothing when no key can take such a value (a table, a date, a list of numbers)
  std::string type;               // "an integer", for messages
};

std::string raw_type(const RawValue&);

// Stores a value. Returns what is wrong with it, "" when all is well: "must be at least 1 (got 0)".
std::string assign(const Key&, const Written&, Config&);

// Text from the environment or the command line as the key's type. Errors as in assign.
std::string assign_text(const Key&, const std::string& text, Config&);

// Such text for an option of a plugin, whose type is not known here: TOML if it reads as such, otherwise a string.
RawValue guess(const std::string& text);

std::string toml_string(const std::string&);
std::string toml_value(const RawValue&);
std::string toml_key(const std::string&);  // bare if it may be
RawValue value_of(const Key&, const Config&);

}  // namespace shale
