// The files of the folder as the host lends it, and how texts of files are read: as events, so that memory stays within
// a small multiple of the text whatever it holds.
#pragma once

#include <nlohmann/json.hpp>

#include "shale/plugin.hpp"

namespace hf {

using Json = nlohmann::json;

inline constexpr char kSingle[] = "model.safetensors";
inline constexpr char kIndex[] = "model.safetensors.index.json";
inline constexpr char kConfig[] = "config.json";

[[noreturn]] void corrupt(const std::string& file, const std::string& what);  // SHALE_CORRUPT
std::string in_quotes(const std::string& name);  // a name out of a file, fit for one line of text

struct Folder {
  const shale::sdk::Plugin& plugin;
  const shale_files& table;
  shale_folder* folder;

  std::vector<std::string> names() const;
  std::uint64_t size(const std::string& file) const;
  std::string read(const std::string& file, std::uint64_t offset, std::uint64_t n) const;
  void write(const std::string& file, const std::string& text) const;
  void copy(const std::string& file, const Folder& from) const;  // of any size
};

// Events of one JSON text; open containers are counted. Everything else is refused as corrupt, with the file's name.
class Events : public nlohmann::json_sax<Json> {
 public:
  explicit Events(std::string file) : file_(std::move(file)) {}
  void read(const std::string& text);  // all of it

  // The parser's words for the events below.
  bool null() final { return value(What::null); }
  bool boolean(bool) final { return value(What::other); }
  bool number_integer(number_integer_t) final { return value(What::other); }
  bool number_unsigned(number_unsigned_t n) final { return on_count(n), true; }
  bool number_float(number_float_t, const string_t&) final { return value(What::other); }
  bool string(string_t& text) final { return on_text(text), true; }
  bool binary(binary_t&) final { return value(What::other); }
  bool start_object(std::size_t) final { return open(What::object); }
  bool key(string_t& name) final { return on_key(name), true; }
  bool end_object() final { return close(); }
  bool start_array(std::size_t) final { return open(What::list); }
  bool end_array() final { return close(); }
  bool parse_error(std::size_t at, const std::string&, const nlohmann::detail::exception&) final;

 protected:
  enum class What { object, list, null, other };
  int depth() const { return depth_; }  // containers around the value at hand
  [[noreturn]] void bad(const std::string& what) const { corrupt(file_, what); }
  virtual void on_key(std::string&) = 0;
  virtual void on_text(std::string&) = 0;
  virtual void on_count(std::uint64_t) = 0;
  virtual void on_value(What) = 0;  // a container begins, or a value that is neither text nor count
  virtual void on_close() {}        // depth() is already that around the container

 private:
  bool value(What what) { return on_value(what), true; }
  bool open(What);
  bool close() { return --depth_, on_close(), true; }

  std::string file_;
  int depth_ = 0;
};

}  // namespace hf
