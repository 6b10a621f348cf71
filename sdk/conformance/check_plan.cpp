// Cases about answers: plans for several models and worlds, options at their bounds, other hosts, refusals.
#include "checks.h"
#include "plans.h"

namespace shale::conform {
namespace {

constexpr std::uint32_t kWorlds[] = {1, 2, 3, 4, 8, 12};
constexpr ModelShape kModels[] = {
    {.layers = 1}, {.layers = 5}, {.tied = true}, {.tied = true, .frozen = true}, {.repeated = true}};

// The plan as text; a refusal is a sound answer too if it says why.
template <class Out>
std::string answer_of(const Instance& plugin, const PlanQuestion& q, const std::string& about, Problems& out) {
  Out plan;
  const Answer answer = ask(plugin, q, plan);
  if (plugin.host().live() != 0) out.push_back(about + ": a status was made and not handed on");
  if (answer.code != 0) {
    if (answer.text.empty()) out.push_back(about + ": refused without a text");
    if (answer.code == SHALE_BAD_ARGUMENT || answer.code == SHALE_INTERNAL)
      out.push_back(about + ": " + to_text(answer));
    if (answer.code == SHALE_BAD_OPTION) {
      bool known = false;
      for (const shale_option* o : options_of(plugin.desc())) known = known || answer.where == o->key;
      if (!known) out.push_back(about + ": BAD_OPTION names " + answer.where + ", which is not an option");
    }
    return to_text(answer);
  }
  for (auto& problem : problems(plan, q.model)) out.push_back(about + ": " + problem);
  return plan.text();
}

std::string plan_text(const Instance& plugin, const PlanQuestion& q, const std::string& about, Problems& out) {
  switch (plugin.desc().kind) {
    case SHALE_KIND_SHARDING:
      return answer_of<ShardingAnswer>(plugin, q, about, out);
    case SHALE_KIND_PRECISION:
      return answer_of<PrecisionAnswer>(plugin, q, about, out);
    case SHALE_KIND_OFFLOAD:
      return answer_of<OffloadAnswer>(plugin, q, about, out);
    default:
      return "";  // checkpoint formats make no plan
  }
}

std::string about(const std::string& what, std::uint32_t world) { return what + std::to_string(world) + " ranks"; }

template <class Visit>
void for_each_kind(const std::string& file, Visit&& visit) {
  const FakeHost host;
  const Library library(file);
  const shale_plugin& p = *library.table(host);
  for (std::uint32_t k = 0; k < p.n_descs; ++k) visit(library, *p.descs[k]);
}

// A value at each end, and one beyond the representable where there is no bound.
std::vector<std::string> values_to_try(const shale_option& o) {
  std::vector<std::string> values;
  if (o.type == SHALE_OPT_BOOL) values = {"true", "false"};
  if (o.min != nullptr) values.push_back(o.min);
  if (o.max != nullptr) values.push_back(o.max);
  if (o.type == SHALE_OPT_INT && o.max == nullptr) values.push_back("4294967296");
  if (o.type == SHALE_OPT_INT && o.min == nullptr) values.push_back("-1");
  const std::string choices = o.choices ? o.choices : "";
  for (std::size_t begin = 0; begin < choices.size();) {
    const auto end = std::min(choices.find('|', begin), choices.size());
    values.push_back(choices.substr(begin, end - begin));
    begin = end + 1;
  }
  return values;
}

void try_option(const Library& library, const shale_desc& d, const Given& given, const std::string& what,
                Problems& out) {
  FakeHost host;
  const FakeModel model;
  try {
    const Instance plugin(library, d.kind, host, given);
    for (auto world : kWorlds) plan_text(plugin, {model, FakeTopology(world, 4)}, about(what + ", ", world), out);
  } catch (const Refused& r) {
    if (r.answer.code != SHALE_BAD_OPTION || r.answer.text.empty()) out.push_back(what + ": create: " + r.what());
  }
}

void fail_each_call(const Instance& plugin, Problems& out) {
  const FakeModel model;
  const FakeTopology topology(4, 2);
  Problems ignored;
  const std::string whole = plan_text(plugin, {model, topology}, "plan", ignored);
  for (int k = 0; k < 10000; ++k) {
    Problems found;
    const std::string text = plan_text(plugin, {model, topology, k}, "refused call " + std::to_string(k), found);
    if (text == whole) return;  // fewer calls than k: none was refused
    if (text.find("refused on purpose") == std::string::npos)
      out.push_back("the builder refused call " + std::to_string(k) + ", and plan did not say so");
    if (plugin.host().live() != 0) out.push_back("a refused call leaks its status");
    if (!out.empty()) return;
  }
}

}  // namespace

Problems check_plans(const Subject& subject) {
  Problems out;
  for_each_kind(subject.file, [&](const Library& library, const shale_desc& d) {
    FakeHost host, other;
    const Instance plugin(library, d.kind, host, least_given(d)), twin(library, d.kind, other, least_given(d));
    for (auto& shape : kModels)
      for (auto world : kWorlds) {
        const FakeModel model(shape);
        const FakeTopology topology(world, 4);
        const PlanQuestion q{model, topology};
        const std::string first = plan_text(plugin, q, about("", world), out);
        if (plan_text(plugin, q, about("", world), out) != first) out.push_back("two plans for one question differ");
        if (plan_text(twin, q, about("", world), out) != first) out.push_back("plans of two instances differ");
      }
  });
  return out;
}

Problems check_bounds(const Subject& subject) {
  Problems out;
  for_each_kind(subject.file, [&](const Library& library, const shale_desc& d) {
    for (const shale_option* o : options_of(d))
      for (auto& value : values_to_try(*o)) {
        Given given = least_given(d);
        given[o->key] = value;
        try_option(library, d, given, std::string(o->key) + " = " + value, out);
      }
  });
  return out;
}

Problems check_newer_host(const Subject& subject) {
  Problems out;
  for_each_kind(subject.file, [&](const Library& library, const shale_desc& d) {
    FakeHost host, newer(sizeof(shale_host) + 64, SHALE_ABI_MAJOR, SHALE_ABI_MINOR + 7);
    const Instance here(library, d.kind, host, least_given(d)), there(library, d.kind, newer, least_given(d));
    const FakeModel model;
    const FakeTopology topology(4, 2), longer(4, 2, sizeof(shale_topology) + 32);
    if (plan_text(here, {model, topology}, "", out) != plan_text(there, {model, longer}, "newer", out))
      out.push_back("the plan differs in a newer host");
  });
  return out;
}

Problems check_refusals(const Subject& subject) {
  Problems out;
  for_each_kind(subject.file, [&](const Library& library, const shale_desc& d) {
    FakeHost host;
    const Instance plugin(library, d.kind, host, least_given(d));
    fail_each_call(plugin, out);
  });
  return out;
}

}  // namespace shale::conform
