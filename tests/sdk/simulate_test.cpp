// The cases on simulated ranks: a right strategy passes all of them, and each wrong one is told what is wrong.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "board.h"
#include "checks.h"
#include "simulate.h"

namespace shale {
namespace {

using namespace conform;

std::string file_of(const std::string& name) { return SHALE_TEST_PLUGIN_DIR "/" + name + ".so"; }

const Check& check_named(const std::string& name) {
  for (auto& check : checks())
    if (name == check.name) return check;
  throw std::runtime_error("no case " + name);
}

Verdict verdict(const std::string& check, const std::string& plugin, const Given& given) {
  Subject subject(file_of(plugin));
  subject.given = given;
  return run_apart(check_named(check), subject);
}

struct Wrong {
  std::string fault, check, says;
  Given more = {};
  std::string plugin = "bad_hooks";
};
void PrintTo(const Wrong& w, std::ostream* to) { *to << w.fault << " by " << w.check; }

class BadHooks : public testing::TestWithParam<Wrong> {};

TEST_P(BadHooks, AreToldWhatIsWrong) {
  const Wrong& w = GetParam();
  Given given = w.more;
  given["fault"] = w.fault;
  const Verdict bad = verdict(w.check, w.plugin, given);
  EXPECT_EQ(bad.outcome, w.fault == "crash" ? Outcome::crash : Outcome::fail);
  ASSERT_FALSE(bad.problems.empty());
  EXPECT_NE(bad.problems[0].find(w.says), std::string::npos) << bad.problems[0];
  given["fault"] = "none";
  const Verdict good = verdict(w.check, w.plugin, given);
  EXPECT_EQ(good.outcome, Outcome::pass) << testing::PrintToString(good.problems);
}

const Given kDrift = {{"drift", "true"}};
const Wrong kWrong[] = {
    {"never_alone", "hooks", "no outer/1 call brings them together", kDrift},
    {"padding", "gather", "was not written"},
    {"far_padding", "gather", "is 1, not 0"},
    {"cleared", "gather", "was not written"},
    {"master", "gather", "changed what it may only read"},
    {"read_only", "gather", "is read-only"},
    {"beyond", "gather", "wrote beside a tensor"},
    {"much_scratch", "gather", "bytes of scratch, its plan says"},
    {"beside_scratch", "gather", "wrote beside its scratch"},
    {"kept", "gather", "gather of the kept pieces"},
    {"bits", "gather", ", not "},
    {"bits", "gather", "has other bits than rank 0", {}, "bad_hooks_math"},
    {"absent", "gather", "has returned from its hook"},
    {"other_group", "gather", "waits in"},
    {"two_groups", "gather", "waits in another group"},
    {"small_recv", "gather", "do not fit 2 ranks"},
    {"other_size", "reduce", "call different things"},
    {"average", "reduce", ", not "},
    {"overwrite", "reduce", ", not "},
    {"overwrite", "reduce", " within ", {}, "bad_hooks_math"},
    {"clamp", "not-finite", "finite numbers came out"},
    {"replica_bits", "replicate", ", not "},
    {"replica_bits", "replicate", "has other bits", {}, "bad_hooks_math"},
    {"remember", "skipped", "is not finite"},
    {"shared", "lanes", ", not "},
    {"begin_writes", "outer", "changed the master"},
    {"apart", "outer", "the masters of ranks", kDrift},
    {"late", "outer", "state delta must be the same", {{"drift", "true"}, {"delay", "1"}}},
    {"no_number", "outer", "a master is not finite", {{"delay", "2"}}},
    {"random", "repeat", "other bits from the same numbers", {}, "bad_hooks_math"},
    {"swallow", "faults", "answered fine"},
    {"leak", "faults", "not handed on"},
    {"crash", "faults", "signal"},
    {"last_words", "faults", "outside of a hook"},
};
INSTANTIATE_TEST_SUITE_P(Faults, BadHooks, testing::ValuesIn(kWrong),
                         [](const auto& info) { return info.param.fault + "_" + std::to_string(info.index); });

TEST(Hooks, RightStrategiesPassEveryCase) {
  for (auto* name : {"bad_hooks", "bad_hooks_math"})
    for (auto& check : checks()) {
      const Verdict v = verdict(check.name, name, {});
      EXPECT_EQ(v.outcome, Outcome::pass) << check.name << ": " << testing::PrintToString(v.problems);
    }
  for (const Given& given : {Given{{"drift", "true"}}, Given{{"drift", "true"}, {"delay", "2"}}})
    for (auto* check : {"hooks", "gather", "reduce", "lanes", "outer", "repeat", "faults"}) {
      const Verdict v = verdict(check, "bad_hooks", given);
      EXPECT_EQ(v.outcome, Outcome::pass) << check << ": " << testing::PrintToString(v.problems);
    }
}

TEST(Hooks, WhatIsDeclaredMustBeAnswered) {
  const Verdict v = verdict("hooks", "plain_hidden", {});
  ASSERT_EQ(v.outcome, Outcome::fail);
  EXPECT_NE(v.problems[0].find("declared and not answered"), std::string::npos) << v.problems[0];
}

TEST(Hooks, AWorldThatIsRefusedEverywhereIsNotAPass) {
  const Verdict v = verdict("gather", "plain_exchange", {{"nothing", "1"}});
  EXPECT_EQ(v.outcome, Outcome::fail);
}

TEST(Numbers, HalvesKeepEveryPattern) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto in = static_cast<std::uint16_t>(bits);
    std::uint16_t out = 0;
    for (auto dtype : {SHALE_F16, SHALE_BF16}) {
      const double value = load(dtype, &in, 0);
      store(dtype, &out, 0, value);
      if (std::isnan(value)) {
        EXPECT_TRUE(std::isnan(load(dtype, &out, 0))) << bits;
      } else {
        EXPECT_EQ(in, out) << dtype;
      }
    }
  }
}

double stored(std::uint32_t dtype, double value) {
  std::byte memory[8];
  store(dtype, memory, 0, value);
  return load(dtype, memory, 0);
}

TEST(Numbers, RoundToTheNearestAndToEvenHalfWay) {
  EXPECT_EQ(stored(SHALE_BF16, 1 + 0x1p-8), 1);
  EXPECT_EQ(stored(SHALE_BF16, 1 + 3 * 0x1p-8), 1 + 0x1p-6);
  EXPECT_EQ(stored(SHALE_F16, 1 + 0x1p-11), 1);
  EXPECT_EQ(stored(SHALE_F16, 1 + 3 * 0x1p-11), 1 + 0x1p-9);
  EXPECT_EQ(stored(SHALE_F16, 65519), 65504);
  EXPECT_EQ(stored(SHALE_F16, 65520), std::numeric_limits<double>::infinity());
  EXPECT_EQ(stored(SHALE_F16, 0x1.8p-24), 0x1p-23);
  EXPECT_EQ(stored(SHALE_F16, 0x1.ffffp-15), 0x1p-14);
  EXPECT_EQ(stored(SHALE_BF16, -1e39), -std::numeric_limits<double>::infinity());
  EXPECT_EQ(stored(SHALE_I8, -1.9), -1);
  EXPECT_EQ(stored(SHALE_I8, 1000), 127);
  EXPECT_EQ(stored(SHALE_U8, -5), 0);
}

TEST(Guarded, NoticesAWriteOnEitherSide) {
  for (int at : {-1, 5}) {
    const Guarded memory(5);
    EXPECT_TRUE(memory.intact());
    static_cast<unsigned char*>(memory.data())[at] = 0;
    EXPECT_FALSE(memory.intact());
  }
}

Post post_of(const char* what, const Buffer& send, const Buffer& recv) {
  Post p{.what = what};
  p.send = send.tensor(), p.recv = recv.tensor();
  return p;
}

TEST(Board, RefusesWhatNoCollectiveTakes) {
  const std::vector<std::uint32_t> part = {0, 1};
  const Buffer two(SHALE_F32, 2), four(SHALE_F32, 4), bytes(SHALE_I8, 4);
  EXPECT_EQ(problem(post_of("all_gather", two, four), part), "");
  EXPECT_NE(problem(post_of("all_gather", four, two), part), "");
  EXPECT_NE(problem(post_of("all_gather", two, bytes), part), "");
  EXPECT_EQ(problem(post_of("reduce_scatter", four, two), part), "");
  EXPECT_NE(problem(post_of("all_reduce", bytes, bytes), part), "");
  EXPECT_NE(problem(post_of("all_to_all", four, four), part), "");  // in place
  Post far = post_of("broadcast", two, two);
  far.choice = 2;
  EXPECT_NE(problem(far, part), "");
  Post inside = post_of("all_gather", two, four);
  inside.send = shale_range(&inside.recv, 2, 2);  // the place of rank 1
  EXPECT_NE(problem(inside, part), "");
  inside.rank = 1;
  EXPECT_EQ(problem(inside, part), "");
  Post wide = post_of("reduce_scatter", four, Buffer(SHALE_F64, 2));
  EXPECT_EQ(problem(wide, part), "");
  wide.choice = SHALE_MAX;
  EXPECT_NE(problem(wide, part), "");
  Post strided = post_of("all_reduce", two, two);
  strided.recv.strides[0] = 2;
  EXPECT_NE(problem(strided, part), "");
}

TEST(Tensors, AreRefusedAsTheRealHostDoes) {
  const Buffer four(SHALE_F32, 4);
  const auto wrong = [&](auto&& change) {
    shale_tensor t = four.tensor();
    change(t);
    return problem(t, true);
  };
  EXPECT_EQ(wrong([](auto&) {}), "");
  EXPECT_NE(wrong([](auto& t) { t.read_only = 1; }), "");
  EXPECT_NE(wrong([](auto& t) { t.struct_size = 0; }), "");
  EXPECT_NE(wrong([](auto& t) { t.ndim = 9; }), "");
  EXPECT_NE(wrong([](auto& t) { t.dtype = SHALE_F4_E2M1; }), "");
  EXPECT_NE(wrong([](auto& t) { t.device_type = SHALE_DEVICE_CUDA; }), "");
  EXPECT_NE(wrong([](auto& t) { t.shape[0] = -1; }), "");
  EXPECT_NE(wrong([](auto& t) { t.data = nullptr; }), "");
  EXPECT_NE(wrong([](auto& t) { t.data = static_cast<char*>(t.data) + 1; }), "");
  EXPECT_NE(wrong([](auto& t) { t.strides[0] = 2; }), "");
}

TEST(Board, EndsAWaitForARankThatNeverComes) {
  Board board({{0, 0}}, 0.05);  // rank 1 runs on without a call
  board.start();
  const Buffer two(SHALE_F32, 2);
  Post p = post_of("all_reduce", two, two);
  EXPECT_NE(board.meet(p).find("rank 1 did not come within the time limit"), std::string::npos);
  EXPECT_NE(board.meet(p), "");
}

// Runs `hook` on both ranks of a world of two.
void on_two_ranks(const std::function<shale_status*(Rank&, shale_lane*)>& hook) {
  const Library library(file_of("bad_hooks"));
  World w(library, {2, 2, {}}, {});
  const auto problems = w.run({{{"a call", 0, hook}}});
  EXPECT_TRUE(problems.empty()) << testing::PrintToString(problems);
}

Buffer numbers(std::uint32_t dtype, const std::vector<double>& values) {
  Buffer b(dtype, values.size());
  for (std::size_t k = 0; k < values.size(); ++k) b.set(k, values[k]);
  return b;
}

std::vector<double> values(const Buffer& b) {
  std::vector<double> out;
  for (std::uint64_t k = 0; k < b.size(); ++k) out.push_back(b.get(k));
  return out;
}

TEST(Collectives, MoveAndAddWhatTheyShould) {
  on_two_ranks([](Rank& r, shale_lane* lane) -> shale_status* {
    const auto& c = r.collectives;
    const double mine = r.id;
    const Buffer a = numbers(SHALE_I8, {mine, mine + 2}), b = numbers(SHALE_F32, {mine, 5, 7, 10 * mine});
    Buffer gathered(SHALE_I8, 4), swapped(SHALE_F32, 4), scattered(SHALE_F32, 2),
        most = numbers(SHALE_I32, {mine, -mine});
    const auto at = a.tensor(), bt = b.tensor(), g = gathered.tensor(), s = swapped.tensor(), p = scattered.tensor();
    const auto m = most.tensor();
    EXPECT_EQ(c.all_gather(c.ctx, lane, SHALE_GROUP_WORLD, &at, &g), nullptr);
    EXPECT_EQ(c.all_to_all(c.ctx, lane, SHALE_GROUP_WORLD, &bt, &s), nullptr);
    EXPECT_EQ(c.reduce_scatter(c.ctx, lane, SHALE_GROUP_WORLD, SHALE_SUM, &bt, &p), nullptr);
    EXPECT_EQ(c.all_reduce(c.ctx, lane, SHALE_GROUP_WORLD, SHALE_MAX, &m), nullptr);
    EXPECT_EQ(c.broadcast(c.ctx, lane, SHALE_GROUP_WORLD, 1, &bt), nullptr);
    EXPECT_EQ(values(gathered), (std::vector<double>{0, 2, 1, 3}));
    EXPECT_EQ(values(swapped), r.id == 0 ? (std::vector<double>{0, 5, 1, 5}) : (std::vector<double>{7, 0, 7, 10}));
    EXPECT_EQ(values(scattered), r.id == 0 ? (std::vector<double>{1, 10}) : (std::vector<double>{14, 10}));
    EXPECT_EQ(values(most), (std::vector<double>{1, 0}));
    EXPECT_EQ(values(b), (std::vector<double>{1, 5, 7, 10}));
    return nullptr;
  });
}

TEST(Math, ReadsNoOperandWhoseFactorIsZero) {
  on_two_ranks([](Rank& r, shale_lane* lane) -> shale_status* {
    const auto& m = r.math;
    Buffer x = numbers(SHALE_BF16, {std::nan(""), 3}), y = numbers(SHALE_F32, {std::nan(""), 4});
    const auto xt = x.tensor(), yt = y.tensor();
    EXPECT_EQ(m.axpby(m.ctx, lane, 0, &xt, 0, &yt), nullptr);
    EXPECT_EQ(values(y), (std::vector<double>{0, 0}));
    x.set(0, 1);
    EXPECT_EQ(m.axpby(m.ctx, lane, 2, &xt, 1, &yt), nullptr);
    EXPECT_EQ(values(y), (std::vector<double>{2, 6}));
    return nullptr;
  });
}

TEST(Math, RefusesIntegersAndOperandsThatOverlap) {
  on_two_ranks([](Rank& r, shale_lane* lane) -> shale_status* {
    const auto& m = r.math;
    const Buffer x = numbers(SHALE_F32, {1, 2, 3}), bytes = numbers(SHALE_I8, {1, 2, 3});
    const auto all = x.tensor(), low = shale_range(&all, 0, 2), high = shale_range(&all, 1, 2), i = bytes.tensor();
    EXPECT_EQ(r.host.take(m.copy(m.ctx, lane, &all, &i)).code, 0u);  // widens
    EXPECT_EQ(r.host.take(m.copy(m.ctx, lane, &i, &all)).code, SHALE_BAD_ARGUMENT);
    EXPECT_EQ(r.host.take(m.copy(m.ctx, lane, &low, &high)).code, SHALE_BAD_ARGUMENT);
    EXPECT_EQ(r.host.take(m.axpby(m.ctx, lane, 1, &i, 1, &all)).code, SHALE_BAD_ARGUMENT);
    EXPECT_EQ(r.host.take(m.axpby(m.ctx, lane, 1, &low, 1, &high)).code, SHALE_BAD_ARGUMENT);
    EXPECT_EQ(r.host.take(m.axpby(m.ctx, lane, 1, &all, 1, &all)).code, 0u);  // in place
    r.running(lane)->refused.clear();
    return nullptr;
  });
}

TEST(Math, MultipliesTransposedMatrices) {
  on_two_ranks([](Rank& r, shale_lane* lane) -> shale_status* {
    const auto& m = r.math;
    const Buffer a = numbers(SHALE_F32, {1, 2, 3, 4, 5, 6}), b = numbers(SHALE_F32, {1, 0, 2, 0, 1, 1});
    const Buffer c = numbers(SHALE_F64, {1, 1, 1, 1});
    const auto flat_a = a.tensor(), flat_b = b.tensor(), flat_c = c.tensor();
    const auto at = shale_matrix(&flat_a, 0, 2, 3), bt = shale_matrix(&flat_b, 0, 2, 3);
    const auto ct = shale_matrix(&flat_c, 0, 2, 2);
    EXPECT_EQ(m.matmul(m.ctx, lane, 2, 2, &at, &bt, 1, &ct), nullptr);  // 2 a b' + c
    EXPECT_EQ(values(c), (std::vector<double>{15, 11, 33, 23}));
    return nullptr;
  });
}

TEST(Math, OrthogonalisesColumnsAndClearsDependentOnes) {
  on_two_ranks([](Rank& r, shale_lane* lane) -> shale_status* {
    const auto& m = r.math;
    const Buffer a = numbers(SHALE_F64, {3, 6, 1, 4, 8, 1});  // 2 x 3; the second column is twice the first
    const auto flat = a.tensor(), t = shale_matrix(&flat, 0, 2, 3);
    EXPECT_EQ(m.orthogonalise(m.ctx, lane, &t), nullptr);
    const std::vector<double> want = {0.6, 0, 0.8, 0.8, 0, -0.6};
    for (std::size_t k = 0; k < want.size(); ++k) EXPECT_NEAR(a.get(k), want[k], 1e-12);
    return nullptr;
  });
}

}  // namespace
}  // namespace shale
