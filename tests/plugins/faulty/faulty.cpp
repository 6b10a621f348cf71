// Everything split over all ranks, and sharded, with a fault in create, plan, write or finish. The snapshots are those
// of sharded.
#include "fault.h"

// Its class without its entry.
#undef SHALE_PLUGIN
#define SHALE_PLUGIN(...)
#include "plugins/checkpoint_sharded/plugin.cpp"

namespace faulty {

class Shards : public Sharding {
 public:
  static constexpr Info info{.id = "faulty", .version = "1.0.0", .summary = "full shard that fails when told to"};
  static constexpr shale_option options[] = {kAction, kRank, kStep,
                                             choice("where", "plan", "create|plan", "the call it happens in")};
  explicit Shards(const Context& c) : Sharding(c), fault_(*this) { fault_.at("create", 0); }

  void plan(const shale_model&, const shale_topology&, ShardingPlan to) override {
    fault_.at("plan", 0);
    SHALE_VAR(shale_unit_plan, u);
    u.shard_group = u.reshard_group = SHALE_GROUP_WORLD;
    to.units(u);
  }

 private:
  Fault fault_;
};

class Files : public Sharded {
 public:
  static constexpr Info info = Sharded::info;
  static constexpr shale_option options[] = {kAction, kRank, kStep,
                                             choice("where", "write", "write|half|finish",
                                                    "half: between two files' "
                                                    "bytes, that is after write has left its data")};
  explicit Files(const Context& c) : Sharded(c), fault_(*this) {}

  void write(const shale_save& save) override {
    fault_.at("write", save.step);
    Sharded::write(save);
    fault_.at("half", save.step);
  }
  void finish(const shale_finish& all) override {
    fault_.at("finish", all.step);
    Sharded::finish(all);
  }

 private:
  Fault fault_;
};

constexpr shale_sharding kRawPlan{
    sizeof(shale_sharding), 0,
    [](void* s, const shale_model* m, const shale_topology* t, const shale_sharding_builder* b) {
      return raw<Shards>(s, [&](Shards& p) { p.plan(*m, *t, {p, *b}); });
    }};

const void* find(void* self, const char* id) {
  const bool of_shards = dynamic_cast<Shards*>(static_cast<Plugin*>(self)) != nullptr;
  return of_shards && std::string_view(id) == SHALE_SHARDING ? &kRawPlan : File<Shards, Files>::find(self, id);
}

}  // namespace faulty

extern "C" SHALE_EXPORT const shale_plugin* shale_plugin_entry_v1(const shale_host*) {
  using Both = shale::sdk::File<faulty::Shards, faulty::Files>;
  static constexpr shale_plugin table{
      sizeof(shale_plugin), SHALE_ABI_MAJOR, 1, SHALE_ABI_MINOR, 0, 2, Both::descs, &Both::create,
      &Both::destroy,       &faulty::find};
  return &table;
}
