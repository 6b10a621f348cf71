#include "core/comm/c10d_world.h"

#include <unistd.h>
#include <csignal>

#include <algorithm>
#include <future>
#include <map>
#include <thread>
#include <type_traits>

#include <c10/util/Logging.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/comm/c10d_group.h"
#include "core/comm/local_group.h"
#include "core/comm/net.h"
#include "core/comm/rank_claim.h"

namespace shale {
namespace {

using Milliseconds = std::chrono::milliseconds;
using Keys = std::vector<std::string>;

constexpr double kLongestPause = 0.1;  // seconds between two questions to the store
constexpr double kHandshake = 8;       // seconds within which whoever listens at the port must answer as the store
constexpr double kAnswer = 20;         // seconds within which the store must answer later: a stopped rank 0 never does
constexpr double kFarewell = 5;        // seconds a rank that is done stays for the others to finish
constexpr const char* kDuplicate = "duplicate";
constexpr const char* kComplete = "complete";

Milliseconds milliseconds(double seconds) {
  return Milliseconds(std::max<std::int64_t>(1, static_cast<std::int64_t>(seconds * 1e3)));
}

// Calls `there` until it is true, ever more seldom; false after `seconds`.
template <class Condition>
bool poll_until(double seconds, Condition&& there) {
  const double end = now() + seconds;
  for (double pause = 0.001; !there(); pause = std::min(kLongestPause, pause * 1.5)) {
    if (now() >= end) return false;
    std::this_thread::sleep_for(std::chrono::duration<double>(pause));
  }
  return true;
}

// The job's keys in the TCPStore. Asks instead of waiting there: a wait would keep the connection, which all threads of
// the process share, and c10d writes warnings when it ends without success.
class JobStore final : public c10d::PrefixStore {
 public:
  using c10d::PrefixStore::PrefixStore;
  void wait(const Keys& keys) override { wait(keys, getTimeout()); }
  void wait(const Keys& keys, const Milliseconds& timeout) override {
    if (poll_until(std::chrono::duration<double>(timeout).count(), [&] { return check(keys); })) return;
    C10_THROW_ERROR(DistStoreError, str("Timed out waiting for store key ", keys.empty() ? "" : keys[0]));
  }
  std::vector<uint8_t> get(const std::string& key) override {
    wait({key}, getTimeout());
    return PrefixStore::get(key);
  }
  std::vector<std::vector<uint8_t>> multiGet(const Keys& keys) override {
    wait(keys, getTimeout());
    return PrefixStore::multiGet(keys);
  }
};
using JobStorePtr = c10::intrusive_ptr<JobStore>;

std::string text_of(const std::vector<uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }
std::vector<uint8_t> bytes_of(const std::string& text) { return {text.begin(), text.end()}; }

class C10dStore final : public Store {
 public:
  C10dStore(JobStorePtr job, int rank) : job_(std::move(job)), rank_(rank) {}
  void set(const std::string& key, const std::string& value) override {
    guarded(key, [&] { job_->set(user(key), bytes_of(value)); });
  }
  std::string get(const std::string& key) override {
    return guarded(key, [&] { return text_of(job_->get(user(key))); });
  }
  std::int64_t add(const std::string& key, std::int64_t by) override {
    return guarded(key, [&] { return job_->add(user(key), by); });
  }

 private:
  static std::string user(const std::string& key) { return "user/" + key; }

  template <class Call>
  std::invoke_result_t<Call> guarded(const std::string& key, Call&& call) {
    try {
      return call();
    } catch (const std::exception& error) {
      const std::string reason = plain_reason(error);
      if (is_silence(reason))
        fail(Code::dist, "rank ", rank_, ": the job's store does not answer, asked for \"", key,
             "\"; is rank 0 stopped?");
      if (is_timeout(reason)) {
        const double limit = std::chrono::duration<double>(job_->getTimeout()).count();
        fail(Code::dist, "rank ", rank_, ": no rank set \"", key, "\" in the job's store within ", limit, " s");
      }
      const std::string text =
          str("rank ", rank_, ": the job's store is gone, asking for \"", key, "\" (", reason, ")");
      throw Error(Code::dist, text).mark_secondary();
    }
  }

  JobStorePtr job_;
  int rank_;
};

std::string place(const Launch& launch) { return str(launch.master, ":", launch.port); }

// Until somebody listens there: c10d's own retry sleeps a second at a time and writes warnings.
void wait_for_server(const Launch& launch, double end, RankClaim& claim) {
  const bool there = poll_until(end - now(), [&] {
    claim.check();
    return answers(launch.master, launch.port, std::clamp(end - now(), 0.01, 2.0));
  });
  if (there) return;
  fail(Code::dist, "start-up: rank ", launch.rank, " of ", launch.world, " found nobody at ", place(launch), " within ",
       launch.init_timeout,
       " s; missing: ", launch.agent_store ? "the launcher's store" : "rank 0, which serves the store there",
       "; check that it runs, MASTER_ADDR, MASTER_PORT and firewalls");
}

using TcpStore = c10::intrusive_ptr<c10d::Store>;

// TCPStore's constructor has no limit of its own once somebody has accepted the connection and stays silent, so it runs
// on a thread that is left behind in that case; the process ends with the error.
TcpStore connect_store(const Launch& launch, const c10d::TCPStoreOptions& options) {
  std::packaged_task<TcpStore()> task(
      [host = launch.master, options]() -> TcpStore { return c10::make_intrusive<c10d::TCPStore>(host, options); });
  std::future<TcpStore> store = task.get_future();
  const QuietThreads quiet;
  std::thread thread(std::move(task));
  if (store.wait_for(options.timeout) == std::future_status::ready) {
    thread.join();
    return store.get();
  }
  thread.detach();
  fail(Code::dist, "no answer");
}

TcpStore open_store(const Launch& launch, double end, RankClaim& claim) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(launch.port);
  options.isServer = launch.rank == 0 && !launch.agent_store;
  options.waitWorkers = false;
  options.timeout = milliseconds(std::min(launch.init_timeout, kHandshake));
  OwnedFd listening(options.isServer ? launch.listen_fd : -1);
  if (options.isServer) {
    if (!listening) listening = listen_at(launch.master, launch.port);
    options.masterListenFd = listening.release();
  } else {
    wait_for_server(launch, end, claim);
  }
  try {
    TcpStore store = connect_store(launch, options);
    store->setTimeout(milliseconds(launch.init_timeout));
    limit_answers_from(launch.port, std::min(launch.init_timeout, kAnswer));
    return store;
  } catch (const std::exception& error) {
    fail(Code::dist, "start-up: rank ", launch.rank, " of ", launch.world, ": whoever listens at ", place(launch),
         " does not answer as the job's store (", plain_reason(error), "); is port ", launch.port,
         " of that host taken by another program?");
  }
}

// "3, 5-9, 12"
std::string ranges(const std::vector<int>& ranks) {
  Keys out;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    out.push_back(last == i ? str(ranks[i]) : str(ranks[i], last == i + 1 ? ", " : "-", ranks[last]));
    i = last + 1;
  }
  return join(out, ", ");
}

// Start-up in the store: every rank leaves its host's identity and waits for everybody else's.
class Meeting {
 public:
  Meeting(const Launch& launch, double end, JobStore& store) : launch_(launch), end_(end), store_(store) {}

  void announce() {
    const std::string who = str("process ", getpid(), " of ", host_name());
    const std::string me = str(launch_.rank);
    if (store_.add("join/" + me, 1) != 1) {
      const bool known = poll_until(2, [&] { return store_.check({"who/" + me}); });
      const std::string first = known ? text_of(store_.get("who/" + me)) : "another process";
      const std::string text = str("start-up: duplicate rank ", me, ": ", first, " and ", who,
                                   " were both started as rank ", me, "; check RANK");
      store_.set(kDuplicate, bytes_of(text));
      throw Error(Code::dist, text);
    }
    store_.set("who/" + me, bytes_of(who));
    store_.set("host/" + me, bytes_of(host_identity()));
    if (store_.add("joined", 1) == launch_.world) store_.set(kComplete, bytes_of("1"));
  }

  std::vector<std::uint32_t> nodes(RankClaim& claim) {
    const bool complete = poll_until(end_ - now(), [&] {
      claim.check();
      if (store_.check({kDuplicate})) throw Error(Code::dist, text_of(store_.get(kDuplicate)));
      return store_.check({kComplete});
    });
    if (!complete) report_missing();
    Keys keys;
    for (int r = 0; r < launch_.world; ++r) keys.push_back(str("host/", r));
    std::map<std::string, std::uint32_t> number;
    std::vector<std::uint32_t> out;
    for (const auto& host : store_.multiGet(keys)) {
      const auto next = static_cast<std::uint32_t>(number.size());
      out.push_back(number.try_emplace(text_of(host), next).first->second);
    }
    return out;
  }

 private:
  [[noreturn]] void report_missing() {
    std::vector<int> missing;
    for (int r = 0; r < launch_.world; ++r) {
      if (!store_.check({str("host/", r)})) missing.push_back(r);
    }
    fail(Code::dist, "start-up: ", launch_.world - static_cast<int>(missing.size()), " of ", launch_.world,
         " ranks joined at ", place(launch_), " within ", launch_.init_timeout, " s; missing: rank ", ranges(missing),
         "; check that they run and that WORLD_SIZE is right");
  }

  const Launch& launch_;
  double end_;
  JobStore& store_;
};

// Where peers of other hosts reach this process.
std::string own_address(const Launch& launch, bool one_host) {
  std::string address = route_to(launch.master);
  if (!is_loopback(address)) return address;
  if (one_host) return "127.0.0.1";
  address = route_to("192.0.2.1");  // kept for documentation by RFC 5737: asks for the default route, sends nothing
  if (!is_loopback(address)) return address;
  fail(Code::dist, "start-up: rank ", launch.rank, " would listen on ", address,
       ", which other hosts cannot reach; set GLOO_SOCKET_IFNAME to the network interface to use");
}

// Process-wide, as a rank of a job needs it: a lost connection is an error of the call that used it, not the end of the
// process, and it is told once, by us. C10's own lines, with stacks, come back with TORCH_CPP_LOG_LEVEL=INFO.
void quiet_process() {
  std::signal(SIGPIPE, SIG_IGN);
  constexpr int kWarning = 1, kFatal = 3;
  if (FLAGS_caffe2_log_level == kWarning) FLAGS_caffe2_log_level = kFatal;
}

class C10dWorld final : public World {
 public:
  explicit C10dWorld(const Launch& launch) : launch_(launch) {
    const double end = now() + launch.init_timeout;
    if (!launch.interface_name.empty()) check_interface(launch.interface_name);
    if (launch.port < 1 || launch.port > 65535) {
      fail(Code::dist, "start-up: port ", launch.port, " of the master ", launch.master, " is not possible");
    }
    quiet_process();
    RankClaim claim(launch);
    tcp_ = open_store(launch, end, claim);
    job_ = c10::make_intrusive<JobStore>("shale/" + launch.prefix, tcp_);
    store_ = std::make_shared<C10dStore>(job_, launch.rank);
    meet(end, claim);
    const bool one_host = topology_.node_of_rank.back() == 0 && std::ranges::max(topology_.node_of_rank) == 0;
    device_ = open_device(launch.interface_name, own_address(launch, one_host));
    everyone_ = group(world_partition(launch.world), "world");
  }

  ~C10dWorld() override {
    if (std::uncaught_exceptions() == born_) say_farewell();
    everyone_.reset();
  }

  int rank() const override { return launch_.rank; }
  int size() const override { return launch_.world; }
  int local_rank() const override { return launch_.local_rank; }
  std::shared_ptr<Store> shared_store() override { return store_; }
  const Topology& topology() const override { return topology_; }

  std::unique_ptr<Group> group(const Partition& partition, const std::string& name, double timeout = 0) override {
    const double limit = timeout > 0 ? timeout : launch_.timeout;
    GroupSpec spec{name, part_of(partition, name), rank(), launch_.init_timeout, limit};
    const auto store = next_store(spec.ranks);
    if (spec.ranks.size() == 1) return make_local_group(name);
    return connect_group(spec, device_, store);
  }

  std::unique_ptr<Group> device_group(const Partition& partition, const std::string& name,
                                      const DeviceGroupMaker& make) override {
    const auto ranks = part_of(partition, name);
    const auto store = next_store(ranks);
    if (ranks.size() == 1) return make_local_group(name);
    const auto mine = std::find(ranks.begin(), ranks.end(), rank()) - ranks.begin();
    return make(*store, static_cast<int>(mine), static_cast<int>(ranks.size()), name);
  }

 private:
  std::vector<int> part_of(const Partition& partition, const std::string& name) const {
    check(static_cast<int>(partition.size()) == size(), "group \"", name, "\": a partition of ", partition.size(),
          " ranks in a world of ", size());
    return members(partition, rank());
  }

  // Groups are numbered as they are made, which is in the same order on all ranks.
  JobStorePtr next_store(const std::vector<int>& ranks) {
    return c10::make_intrusive<JobStore>(str("group/", groups_++, "/", ranks.front()), job_);
  }

  void meet(double end, RankClaim& claim) {
    try {
      Meeting meeting(launch_, end, *job_);
      meeting.announce();
      topology_.world = launch_.world;
      topology_.node_of_rank = meeting.nodes(claim);
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      const std::string reason = plain_reason(error), me = str("start-up: rank ", launch_.rank);
      if (is_timeout(reason))
        fail(Code::dist, me, ": the store at ", place(launch_), " does not answer any more; is rank 0 stopped, or its ",
             "host cut off?");
      throw Error(Code::dist, str(me, " lost the store at ", place(launch_), " (", reason, ")")).mark_secondary();
    }
  }

  // Nobody leaves while another still reads from the store or from a connection: closing one that has unread bytes on
  // it destroys what is on its way to the peer.
  void say_farewell() noexcept {
    try {
      job_->add("left", 1);
      poll_until(std::min(kFarewell, launch_.timeout), [&] { return job_->add("left", 0) >= launch_.world; });
    } catch (const std::exception&) {
      return;  // the others are gone already
    }
  }

  Launch launch_;
  Topology topology_;
  TcpStore tcp_;
  JobStorePtr job_;
  std::shared_ptr<C10dStore> store_;
  GlooDevice device_;
  int groups_ = 0;
  int born_ = std::uncaught_exceptions();
};

}  // namespace

std::unique_ptr<World> join_c10d_world(const Launch& launch) { return std::make_unique<C10dWorld>(launch); }

}  // namespace shale
