#include "core/comm/world.h"

#include <map>
#include <mutex>

#include "core/base/error.h"
#include "core/comm/c10d_world.h"
#include "core/comm/local_group.h"

namespace shale {
namespace {

class LocalStore final : public Store {
 public:
  void set(const std::string& key, const std::string& value) override {
    const std::lock_guard lock(mutex_);
    values_[key] = value;
  }
  std::string get(const std::string& key) override {
    const std::lock_guard lock(mutex_);
    const auto found = values_.find(key);
    if (found == values_.end()) fail(Code::dist, "store: key \"", key, "\" was never set, and this rank is alone");
    return found->second;
  }
  std::int64_t add(const std::string& key, std::int64_t by) override {
    const std::lock_guard lock(mutex_);
    return counts_[key] += by;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::string> values_;
  std::map<std::string, std::int64_t> counts_;
};

class LocalWorld final : public World {
 public:
  LocalWorld() { everyone_ = make_local_group("world"); }
  int rank() const override { return 0; }
  int size() const override { return 1; }
  int local_rank() const override { return 0; }
  std::shared_ptr<Store> shared_store() override { return store_; }
  const Topology& topology() const override { return topology_; }
  std::unique_ptr<Group> group(const Partition& partition, const std::string& name, double = 0) override {
    check(partition.size() == 1, "group \"", name, "\": a partition of ", partition.size(), " ranks in a world of one");
    return make_local_group(name);
  }
  std::unique_ptr<Group> device_group(const Partition& partition, const std::string& name,
                                      const DeviceGroupMaker&) override {
    return group(partition, name);
  }

 private:
  std::shared_ptr<Store> store_ = std::make_shared<LocalStore>();
  Topology topology_;
};

}  // namespace

std::unique_ptr<World> World::join(const Launch& launch) {
  if (launch.world < 1 || launch.rank < 0 || launch.rank >= launch.world) {
    fail(Code::dist, "start-up: rank ", launch.rank, " of ", launch.world, " ranks (from ", launch.source,
         ") is not possible");
  }
  if (launch.world == 1) return std::make_unique<LocalWorld>();
  return join_c10d_world(launch);
}

}  // namespace shale
