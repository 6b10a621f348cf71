#include <map>

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/loader/plugins.h"

namespace shale {
namespace {

using Json = nlohmann::json;

// One thing that must be the same on all ranks: [sharding] "full_shard 0.1.0, file hash 1234".
struct Fact {
  std::string thing, value, where;  // where: not compared, for the message
};

std::vector<Fact> facts_of(const Config& config, const Plugins& plugins) {
  std::vector<Fact> facts{{"the configuration", "hash " + config.hash, config.file}};
  for (const LoadedPlugin& p : plugins.loaded())
    facts.push_back({str("the ", p.kind, " plugin"), str(p.id, " ", p.version, ", file hash ", p.hash), p.path});
  return facts;
}

std::string to_message(const std::vector<Fact>& facts) {
  Json out = Json::array();
  for (const Fact& f : facts) out.push_back({f.thing, f.value, f.where});
  return Json{{"facts", out}}.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string to_message(const Error& e) {
  return Json{{"code", static_cast<int>(e.code())}, {"text", e.what()}}.dump(-1, ' ', false,
                                                                             Json::error_handler_t::replace);
}

std::vector<Fact> from_message(const Json& message) {
  std::vector<Fact> facts;
  for (const Json& f : message.at("facts")) facts.push_back({f.at(0), f.at(1), f.at(2)});
  return facts;
}

// "rank 1", "ranks 1, 2 and 5", "ranks 0-6 and 8"
std::string rank_list(const std::vector<int>& ranks) {
  std::vector<std::string> runs;
  for (std::size_t k = 0; k < ranks.size();) {
    std::size_t end = k;
    while (end + 1 < ranks.size() && ranks[end + 1] == ranks[end] + 1) ++end;
    runs.push_back(end == k       ? str(ranks[k])
                   : end == k + 1 ? str(ranks[k], ", ", ranks[end])
                                  : str(ranks[k], "-", ranks[end]));
    k = end + 1;
  }
  const std::string last = runs.back();
  runs.pop_back();
  return str(ranks.size() == 1 ? "rank " : "ranks ", join(runs, ", "), runs.empty() ? "" : " and ", last);
}

// How one thing differs, or "" when it does not: the most ranks are right, of equal numbers the one with rank 0.
std::string difference(const std::vector<std::vector<Fact>>& ranks, std::size_t k) {
  std::map<std::string, std::vector<int>> who;  // value -> ranks
  for (std::size_t r = 0; r < ranks.size(); ++r) who[ranks[r][k].value].push_back(static_cast<int>(r));
  if (who.size() == 1) return "";
  const auto* most = &*who.begin();
  for (const auto& entry : who)
    if (entry.second.size() > most->second.size() ||
        (entry.second.size() == most->second.size() && entry.second[0] < most->second[0]))
      most = &entry;
  const auto with_path = [&](const auto& entry) {
    const Fact& f = ranks[static_cast<std::size_t>(entry.second[0])][k];
    return str(rank_list(entry.second), entry.second.size() == 1 ? " has " : " have ", entry.first,
               f.where.empty() ? "" : " (" + f.where + ")");
  };
  std::string text = ranks[0][k].thing + " is not the same on all ranks: ";
  for (const auto& entry : who)
    if (&entry != most) text += with_path(entry) + ", ";
  return text + with_path(*most);
}

// The first failure, and on which ranks there was one.
[[noreturn]] void raise_failure(const std::vector<Json>& ranks, const std::vector<int>& failed) {
  const Json& first = ranks[static_cast<std::size_t>(failed[0])];
  const std::string text = first.at("text");
  const bool everywhere = failed.size() == ranks.size();
  fail(static_cast<Code>(first.at("code").get<int>()), text,
       everywhere ? "" : str(" (on ", rank_list(failed), " of ", ranks.size(), " ranks)"));
}

void compare(Group& everyone, const std::string& mine) {
  std::vector<Json> ranks;
  std::vector<int> failed;
  for (const std::string& message : all_gather_text(everyone, mine)) {
    ranks.push_back(Json::parse(message));
    if (ranks.back().contains("code")) failed.push_back(static_cast<int>(ranks.size()) - 1);
  }
  if (!failed.empty()) raise_failure(ranks, failed);
  std::vector<std::vector<Fact>> facts;
  for (const Json& message : ranks) facts.push_back(from_message(message));
  std::vector<std::string> differences;
  for (std::size_t k = 0; k < facts[0].size(); ++k)
    if (std::string text = difference(facts, k); !text.empty()) differences.push_back(std::move(text));
  if (!differences.empty())
    fail(Code::config, join(differences, "; "),
         ": give all ranks the same configuration and install the same files on ", "every node");
}

}  // namespace

void agree(Group& everyone, const Config& config, const Plugins& plugins) {
  compare(everyone, to_message(facts_of(config, plugins)));
}

std::unique_ptr<Plugins> load_plugins_together(Group& everyone, const Config& config, const PluginPaths& paths,
                                               const Log& log, const RunContext* run) {
  std::unique_ptr<Plugins> plugins;
  std::string mine;
  try {
    plugins = load_plugins(config, paths, log, run);
    mine = to_message(facts_of(config, *plugins));
  } catch (const Error& e) {
    mine = to_message(e);
  } catch (const std::exception& e) {
    mine = to_message(Error(Code::internal, e.what()));
  }
  compare(everyone, mine);
  return plugins;
}

}  // namespace shale
