// One made plugin: its host table, its options, its life, and every call into it.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string>

#include "core/base/error.h"
#include "core/loader/options.h"
#include "core/loader/plugin_library.h"
#include "core/loader/services.h"
#include "core/loader/status.h"

namespace shale {

// What an instance is made from; library and choice are copied, log and run outlive it.
struct InstanceSpec {
  std::shared_ptr<const PluginLibrary> library;
  PluginChoice choice;
  std::unique_ptr<CheckedOptions> options;  // free of errors
  const Log* log = nullptr;
  const RunContext* run = nullptr;  // null: only planning
};

// Why a call failed. origin: of the option or of the plugin's choice, for errors of the configuration; else "".
struct Failure {
  Code code = Code::internal;
  Origin origin;
  std::string text;
  bool secondary = false;
  [[noreturn]] void raise() const;  // as Error "origin: text"
};

class PluginInstance {
 public:
  explicit PluginInstance(InstanceSpec);  // does not call the plugin yet
  ~PluginInstance();
  PluginInstance(const PluginInstance&) = delete;
  PluginInstance& operator=(const PluginInstance&) = delete;

  // Once. What is wrong with the configuration in the plugin's eyes goes to `errors`, all else is thrown.
  void create(ConfigErrors& errors);
  const Descriptor& descriptor() const { return descriptor_; }
  LoadedPlugin facts() const;
  void* self() const { return self_; }  // first argument of the plugin's functions
  FilesService& files() { return services_.files(); }
  HookServices& hooks() { return services_.hooks(); }
  const std::string& choice_origin() const { return spec_.choice.origin.text; }

  // The table of an interface, cut or filled to our size. Error{config} when there is none or it is too short.
  template <class Table>
  Table table(const char* id) const;
  // The same of one that a plugin may do without: nothing when it is not declared or the plugin answers NULL.
  template <class Table>
  std::optional<Table> optional_table(const char* id) const;

  // Calls the plugin: body() returns its shale_status*. `doing` is for messages ("plan"). What it answers, or throws
  // although it must not, becomes a Failure; a thrown exception has the code `thrown`. Any thread, several at once.
  template <class F>
  std::optional<Failure> attempt(const char* doing, Code thrown, F&& body) const;
  template <class F>
  void call(const char* doing, Code thrown, F&& body) const {
    if (const auto failure = attempt(doing, thrown, body)) failure->raise();
  }

  // What a status says. Bad options get file:line:col of their value.
  Failure explain(Status, const char* doing) const;
  // Error for an answer that the core refuses although the plugin saw nothing wrong with it.
  [[noreturn]] void refuse(Code, const std::string& why) const;

 private:
  const void* find_interface(const char* id) const;
  Failure failure(Code, const std::string& text) const;
  Failure threw(const char* doing, Code, const std::string& what) const;
  [[noreturn]] void bad_table(const char* id, const void* table, std::size_t baseline) const;
  std::string label(bool with_path) const;

  InstanceSpec spec_;
  const Descriptor& descriptor_;
  Services services_;
  shale_host host_;
  void* self_ = nullptr;
  bool created_ = false;
};

template <class Table>
Table PluginInstance::table(const char* id) const {
  const void* theirs = find_interface(id);
  Table mine;
  if (!take(static_cast<const Table*>(theirs), mine)) bad_table(id, theirs, kBaseline<Table>);
  return mine;
}

template <class Table>
std::optional<Table> PluginInstance::optional_table(const char* id) const {
  const auto& declared = descriptor_.interfaces;
  if (std::find(declared.begin(), declared.end(), id) == declared.end()) return std::nullopt;
  const void* theirs = find_interface(id);
  if (theirs == nullptr) return std::nullopt;
  Table mine;
  if (!take(static_cast<const Table*>(theirs), mine)) bad_table(id, theirs, kBaseline<Table>);
  return mine;
}

template <class F>
std::optional<Failure> PluginInstance::attempt(const char* doing, Code thrown, F&& body) const {
  Status status;
  try {
    status.reset(body());
  } catch (const std::exception& e) {
    return threw(doing, thrown, e.what());
  } catch (...) {
    return threw(doing, thrown, "of unknown type");
  }
  if (status) return explain(std::move(status), doing);
  return std::nullopt;
}

}  // namespace shale
