// Joining a job: which rank this process is, the store the ranks meet at, and the groups made from it.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "core/comm/group.h"
#include "core/comm/topology.h"
#include "core/config/launch.h"

namespace c10d {
class Store;
}

namespace shale {

// Key-value store of the job (c10d's TCPStore). Any thread; every wait has the start-up time limit.
class Store {
 public:
  virtual ~Store() = default;
  virtual void set(const std::string& key, const std::string& value) = 0;
  virtual std::string get(const std::string& key) = 0;  // waits until it is there; Error{dist} naming the key
  virtual std::int64_t add(const std::string& key, std::int64_t by) = 0;
};

// Makes a group on a device; its members meet at the store, which is theirs alone.
using DeviceGroupMaker =
    std::function<std::unique_ptr<Group>(c10d::Store&, int rank, int size, const std::string& name)>;

class World {
 public:
  // Meets the other ranks within launch.init_timeout seconds, or Error{dist} saying how many of how many joined, which
  // ranks are missing and at which address and port. A world of one needs no network. From two ranks on the process
  // ignores SIGPIPE, and its threads started here take no signals.
  static std::unique_ptr<World> join(const Launch&);
  virtual ~World() = default;  // waits a few seconds for ranks that are still using it; not while an exception unwinds

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual int local_rank() const = 0;
  Store& store() { return *shared_store(); }
  virtual std::shared_ptr<Store> shared_store() = 0;  // for a thread that may outlive the World
  virtual const Topology& topology() const = 0;       // micro_steps, cuda and device fields are the caller's to fill
  // My part of the partition as a new group, its connections of its own. All ranks call it, in the same order, with the
  // same partition and name; it has the start-up time limit. Destroy groups before the World.
  // timeout: seconds that a wait may take, 0 = the run's.
  virtual std::unique_ptr<Group> group(const Partition&, const std::string& name, double timeout = 0) = 0;
  // The same on a device; a part of one rank gets a group without communication.
  virtual std::unique_ptr<Group> device_group(const Partition&, const std::string& name, const DeviceGroupMaker&) = 0;
  Group& everyone() { return *everyone_; }

 protected:
  std::unique_ptr<Group> everyone_;
};

}  // namespace shale
