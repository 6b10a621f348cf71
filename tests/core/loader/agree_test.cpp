// Ranks as threads: the group below carries what all_gather_text needs.
#include <barrier>
#include <cstring>
#include <thread>

#include "support.h"

namespace shale {
namespace {

using test::bad;
using test::good_config;
using test::TempFolder;

struct Shared {
  explicit Shared(int world) : barrier(world), buffers(static_cast<std::size_t>(world)) {}
  std::barrier<> barrier;
  std::vector<at::Tensor> buffers;
};

struct Done : Work {
  void wait() override {}
};

class ThreadGroup : public Group {
 public:
  ThreadGroup(Shared& shared, int rank) : shared_(shared), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(shared_.buffers.size()); }
  const std::string& name() const override { return name_; }
  std::unique_ptr<Work> all_gather(const at::Tensor& full) override {
    shared_.buffers[static_cast<std::size_t>(rank_)] = full;
    shared_.barrier.arrive_and_wait();
    const auto piece = full.nbytes() / shared_.buffers.size();
    for (std::size_t r = 0; r < shared_.buffers.size(); ++r)
      if (r != static_cast<std::size_t>(rank_))
        std::memcpy(static_cast<char*>(full.data_ptr()) + r * piece,
                    static_cast<const char*>(shared_.buffers[r].const_data_ptr()) + r * piece, piece);
    shared_.barrier.arrive_and_wait();
    return std::make_unique<Done>();
  }
  std::unique_ptr<Work> reduce_scatter(const at::Tensor&, const at::Tensor&, const at::Tensor&) override {
    return no();
  }
  std::unique_ptr<Work> all_reduce(const at::Tensor&, Reduction) override { return no(); }
  std::unique_ptr<Work> broadcast(const at::Tensor&, int) override { return no(); }
  std::unique_ptr<Work> all_to_all(const at::Tensor&, const at::Tensor&) override { return no(); }
  std::unique_ptr<Work> send(const at::Tensor&, int, int) override { return no(); }
  std::unique_ptr<Work> recv(const at::Tensor&, int, int) override { return no(); }
  void barrier() override { shared_.barrier.arrive_and_wait(); }

 private:
  static std::unique_ptr<Work> no() { fail(Code::internal, "not used by agree"); }
  Shared& shared_;
  int rank_;
  std::string name_ = "everyone";
};

// What each rank ended with: "" = fine, else "<code>: <text>".
template <class F>
std::vector<std::string> on_ranks(int world, F&& body) {
  Shared shared(world);
  std::vector<std::string> ends(static_cast<std::size_t>(world));
  std::vector<std::jthread> threads;
  for (int r = 0; r < world; ++r)
    threads.emplace_back([&, r] {
      ThreadGroup group(shared, r);
      try {
        body(group);
      } catch (const Error& e) {
        ends[static_cast<std::size_t>(r)] = str(static_cast<int>(e.code()), ": ", e.what());
      }
    });
  threads.clear();
  return ends;
}

void load_as(Group& group, const Config& config, const PluginPaths& paths = {}) {
  const Log log(1);
  load_plugins_together(group, config, paths, log, nullptr);
}

// One message, the same on every rank.
std::string message_of(const std::vector<std::string>& ends) {
  for (const std::string& end : ends) EXPECT_EQ(end, ends[0]);
  EXPECT_EQ(ends[0].find('\n'), std::string::npos);
  return ends[0];
}

TEST(Agree, EqualRanks) {
  EXPECT_EQ(message_of(on_ranks(3, [](Group& g) { load_as(g, good_config()); })), "");
}

TEST(Agree, ADifferentFileOnOneRank) {
  const TempFolder mine, other;
  mine.copy(bad("good"), "sharding_good.so");
  other.copy(bad("long_table"), "sharding_good.so");
  const std::string text = message_of(on_ranks(4, [&](Group& g) {
    Config c = good_config();
    c.sharding.plugin = "good";
    load_as(g, c, {{g.rank() == 2 ? other.path() : mine.path()}});
  }));
  test::expect_contains(text, {"2: the sharding plugin is not the same on all ranks: rank 2 has good 1.2.3, file hash ",
                               other.path() + "/sharding_good.so", "ranks 0, 1 and 3 have good 1.2.3", mine.path(),
                               "install the same files on every node"});
  EXPECT_EQ(text.find("precision"), std::string::npos) << text;
}

TEST(Agree, ADifferentPluginAndConfiguration) {
  const std::string text = message_of(on_ranks(2, [](Group& g) {
    Config c = good_config();
    if (g.rank() == 1) c.hash = "beef", c.precision.plugin = bad("moody");
    load_as(g, c);
  }));
  test::expect_contains(text,
                        {"the configuration is not the same on all ranks: rank 1 has hash beef (/configs/run.toml), "
                         "rank 0 has hash cafe",
                         "the precision plugin is not the same", "rank 1 has moody 1.2.3"});
}

TEST(Agree, CompareAloneAfterLoading) {
  const std::string text = message_of(on_ranks(2, [](Group& g) {
    const Log log(1);
    Config c = good_config();
    if (g.rank() == 1) c.hash = "beef";
    agree(g, c, *load_plugins(c, {}, log));
  }));
  test::expect_contains(text, {"2: the configuration"});
}

TEST(Agree, AFailureOnOneRankEndsAll) {
  const std::string text = message_of(on_ranks(3, [](Group& g) {
    load_as(g, g.rank() == 1 ? test::with_sharding("options", {test::option("fail", std::string("create_other"))})
                             : test::with_sharding("options"));
  }));
  test::expect_contains(text, {"6: [sharding] options: create: a table: of 12 bytes (on rank 1 of 3 ranks)"});
}

TEST(Agree, TheSameFailureEverywhereIsSaidOnce) {
  const std::string text = message_of(on_ranks(2, [](Group& g) { load_as(g, test::with_sharding("wrong_major")); }));
  test::expect_contains(text, {"2: run.toml:2:10: [sharding] plugin: ", "built for plugin ABI 1.1"});
  EXPECT_EQ(text.find("on rank"), std::string::npos);
}

TEST(Agree, OddBytesInTextsAreHarmless) {
  EXPECT_EQ(message_of(on_ranks(2,
                                [](Group& g) {
                                  Config c = good_config();
                                  c.file = "/configs/\xff\xfe.toml";
                                  load_as(g, c);
                                })),
            "");
}

}  // namespace
}  // namespace shale
