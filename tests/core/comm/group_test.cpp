#include "core/comm/group.h"

#include <cstring>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/CPUAllocator.h>

#include "core/base/error.h"
#include "tests/core/comm/ranks.h"

namespace shale {
namespace {

constexpr at::ScalarType kTypes[] = {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf, at::kLong, at::kByte};

// Small whole numbers, exact in every type, different per rank: [n]
at::Tensor numbers(int rank, std::int64_t n, at::ScalarType type) {
  return at::arange(n, at::kLong).mul_(7).add_(31 * (rank + 1)).remainder_(17).to(type);
}

at::Tensor piece(const at::Tensor& full, int position, int ways) {
  const std::int64_t n = full.numel() / ways;
  return full.narrow(0, n * position, n);
}

// Values whose sum depends on the order.
at::Tensor odd_numbers(int rank, std::int64_t n, at::ScalarType type) {
  const at::Tensor out = at::empty({n}, at::kDouble);
  for (std::int64_t i = 0; i < n; ++i) {
    const double sign = (i + rank) % 3 == 0 ? -1 : 1;
    out.data_ptr<double>()[i] = sign * (1.0 + static_cast<double>((i * 2654435761U + rank * 40503U) % 1000003) / 1.7e3);
  }
  return out.to(type);
}

class Ranks : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(, Ranks, testing::Values(1, 2, 3, 4));

TEST_P(Ranks, GatherFillsEveryPieceInPlace) {
  on_ranks(GetParam(), [](World& world) {
    Group& group = world.everyone();
    for (const at::ScalarType type : kTypes) {
      for (const std::int64_t n : {0, 1, 3, 1000, 70001}) {
        const at::Tensor full = at::zeros({n * group.size()}, type);
        piece(full, group.rank(), group.size()).copy_(numbers(group.rank(), n, type));
        group.all_gather(full)->wait();
        for (int r = 0; r < group.size(); ++r) {
          EXPECT_TRUE(at::equal(piece(full, r, group.size()), numbers(r, n, type))) << type << " " << n << " " << r;
        }
      }
    }
  });
}

TEST_P(Ranks, ReduceScatterSumsExactly) {
  on_ranks(GetParam(), [](World& world) {
    Group& group = world.everyone();
    for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
      for (const at::ScalarType wide : {at::kFloat, at::kDouble}) {
        if (type == at::kDouble && wide == at::kFloat) continue;
        for (const std::int64_t n : {0, 1, 5, 4097, 70001}) {
          const std::int64_t all = n * group.size();
          const at::Tensor full = numbers(group.rank(), all, type), before = full.clone();
          const at::Tensor staging = at::empty({all}, type), mine = at::full({n}, 99, wide);
          group.reduce_scatter(mine, full, staging)->wait();
          at::Tensor expected = at::zeros({n}, at::kDouble);
          for (int r = 0; r < group.size(); ++r) {
            expected += piece(numbers(r, all, at::kDouble), group.rank(), group.size());
          }
          EXPECT_TRUE(at::equal(mine, expected.to(wide))) << type << " into " << wide << " " << n;
          EXPECT_TRUE(at::equal(full, before)) << "the input must stay";
        }
      }
    }
  });
}

TEST_P(Ranks, ReduceScatterAddsInRankOrderBitForBit) {
  on_ranks(GetParam(), [](World& world) {
    Group& group = world.everyone();
    const std::int64_t n = 12345, all = n * group.size();
    for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16}) {
      const at::ScalarType wide = type == at::kDouble ? at::kDouble : at::kFloat;
      at::Tensor expected = piece(odd_numbers(0, all, type), group.rank(), group.size()).to(wide);
      for (int r = 1; r < group.size(); ++r) {
        expected = expected + piece(odd_numbers(r, all, type), group.rank(), group.size()).to(wide);
      }
      for (int repeat = 0; repeat < 5; ++repeat) {
        const at::Tensor mine = at::empty({n}, wide), staging = at::empty({all}, type);
        group.reduce_scatter(mine, odd_numbers(group.rank(), all, type), staging)->wait();
        EXPECT_EQ(std::memcmp(mine.data_ptr(), expected.data_ptr(), mine.nbytes()), 0) << type << " " << repeat;
      }
    }
  });
}

TEST_P(Ranks, AllReduceSumMaxMin) {
  on_ranks(GetParam(), [](World& world) {
    Group& group = world.everyone();
    for (const at::ScalarType type : kTypes) {
      for (const std::int64_t n : {0, 1, 777, 70001}) {
        std::vector<at::Tensor> expected(3, numbers(0, n, at::kDouble));
        for (int r = 1; r < group.size(); ++r) {
          const at::Tensor other = numbers(r, n, at::kDouble);
          expected[0] = expected[0] + other;
          expected[1] = expected[1].maximum(other);
          expected[2] = expected[2].minimum(other);
        }
        for (const Reduction reduction : {Reduction::sum, Reduction::max, Reduction::min}) {
          const at::Tensor inout = numbers(group.rank(), n, type);
          group.all_reduce(inout, reduction)->wait();
          EXPECT_TRUE(at::equal(inout, expected[static_cast<std::size_t>(reduction)].to(type))) << type << " " << n;
        }
      }
    }
  });
}

TEST_P(Ranks, AllReduceGivesTheSameBitsEverywhereAndEveryTime) {
  on_ranks(GetParam(), [](World& world) {
    Group& group = world.everyone();
    at::Tensor first;
    for (int repeat = 0; repeat < 5; ++repeat) {
      const at::Tensor inout = odd_numbers(group.rank(), 54321, at::kFloat);
      group.all_reduce(inout, Reduction::sum)->wait();
      if (!first.defined()) first = inout;
      EXPECT_TRUE(at::equal(first, inout));
    }
    const at::Tensor all = at::empty({group.size() * first.numel()}, at::kFloat);
    piece(all, group.rank(), group.size()).copy_(first);
    group.all_gather(all)->wait();
    for (int r = 0; r < group.size(); ++r) EXPECT_TRUE(at::equal(piece(all, r, group.size()), first));
  });
}

TEST_P(Ranks, BroadcastFromEachRoot) {
  on_ranks(GetParam(), [](World& world) {
    Group& group = world.everyone();
    for (const at::ScalarType type : kTypes) {
      for (int root = 0; root < group.size(); ++root) {
        const at::Tensor inout = numbers(group.rank(), 1001, type);
        group.broadcast(inout, root)->wait();
        EXPECT_TRUE(at::equal(inout, numbers(root, 1001, type)));
      }
    }
    group.broadcast(at::empty({0}), 0)->wait();
  });
}

TEST_P(Ranks, AllToAllTransposesPieces) {
  on_ranks(GetParam(), [](World& world) {
    Group& group = world.everyone();
    for (const at::ScalarType type : kTypes) {
      for (const std::int64_t n : {0, 1, 999}) {
        const at::Tensor in = numbers(group.rank(), n * group.size(), type), out = at::zeros_like(in);
        group.all_to_all(out, in)->wait();
        for (int r = 0; r < group.size(); ++r) {
          const at::Tensor sent = piece(numbers(r, n * group.size(), type), group.rank(), group.size());
          EXPECT_TRUE(at::equal(piece(out, r, group.size()), sent));
        }
      }
    }
  });
}

TEST_P(Ranks, SendAndReceiveAroundTheRing) {
  if (GetParam() == 1) return;
  on_ranks(GetParam(), [](World& world) {
    Group& group = world.everyone();
    const int next = (group.rank() + 1) % group.size(), last = (group.rank() + group.size() - 1) % group.size();
    const at::Tensor first = at::empty({5}), second = at::empty({6}, at::kDouble);
    Works works;  // tags tell messages apart, whatever the order of the receives
    works.push_back(group.recv(second, last, 8));
    works.push_back(group.recv(first, last, 7));
    works.push_back(group.send(at::full({5}, group.rank(), at::kFloat), next, 7));
    works.push_back(group.send(at::full({6}, group.rank() + 0.5, at::kDouble), next, 8));
    wait_all(works);
    EXPECT_TRUE(works.empty());
    EXPECT_TRUE(at::equal(first, at::full({5}, last, at::kFloat)));
    EXPECT_TRUE(at::equal(second, at::full({6}, last + 0.5, at::kDouble)));
  });
}

TEST_P(Ranks, ManyTransfersUnderWayAtOnce) {
  on_ranks(GetParam(), [](World& world) {
    Group& group = world.everyone();
    std::vector<at::Tensor> fulls;
    Works works;
    for (int i = 0; i < 40; ++i) {
      fulls.push_back(at::zeros({group.size() * (1 + i * 37)}, at::kFloat));
      piece(fulls.back(), group.rank(), group.size()).fill_(100 * i + group.rank());
      works.push_back(group.all_gather(fulls.back()));
    }
    while (!works.empty()) works.pop_back();  // in any order, and a dropped work is waited for
    for (int i = 0; i < 40; ++i) {
      for (int r = 0; r < group.size(); ++r) {
        const at::Tensor got = piece(fulls[static_cast<std::size_t>(i)], r, group.size());
        EXPECT_TRUE(at::equal(got, at::full_like(got, 100 * i + r)));
      }
    }
  });
}

TEST_P(Ranks, CountsAreTheFormulas) {
  on_ranks(GetParam(), [](World& world) {
    Group& group = world.everyone();
    const std::int64_t w = group.size(), n = 1024 * 12 * w, bytes = n * 4;
    const at::Tensor full = at::zeros({n}), staging = at::zeros({n}), mine = at::zeros({n / w});
    const Traffic before = group.traffic();
    group.all_gather(full)->wait();
    group.all_gather(full)->wait();
    group.reduce_scatter(mine, full, staging)->wait();
    group.all_reduce(full, Reduction::sum)->wait();
    group.broadcast(full, 0)->wait();
    group.all_to_all(staging, full)->wait();
    group.barrier();
    const auto count = [&](Op op) {
      return std::pair(group.traffic()[op].calls - before[op].calls, group.traffic()[op].bytes - before[op].bytes);
    };
    using Count = std::pair<std::int64_t, std::int64_t>;
    EXPECT_EQ(count(Op::all_gather), Count(2, 2 * bytes * (w - 1) / w));
    EXPECT_EQ(count(Op::reduce_scatter), Count(1, bytes * (w - 1) / w));
    EXPECT_EQ(count(Op::all_reduce), Count(1, 2 * bytes * (w - 1) / w));
    EXPECT_EQ(count(Op::broadcast), Count(1, group.rank() == 0 && w > 1 ? bytes : 0));
    EXPECT_EQ(count(Op::all_to_all), Count(1, bytes * (w - 1) / w));
    EXPECT_EQ(count(Op::barrier), Count(1, 0));
    EXPECT_EQ(count(Op::send), Count(0, 0));
    EXPECT_EQ(group.traffic().waited > 0, w > 1);
  });
}

// Counts bytes asked from the CPU allocator.
class CountingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t n) override {
    asked += static_cast<std::int64_t>(n);
    return behind_->allocate(n);
  }
  c10::DeleterFnPtr raw_deleter() const override { return behind_->raw_deleter(); }
  void copy_data(void* to, const void* from, std::size_t n) const override { std::memcpy(to, from, n); }
  std::int64_t asked = 0;

 private:
  c10::Allocator* behind_ = c10::GetCPUAllocator();
};

TEST_P(Ranks, GatherAndReduceScatterAllocateNoTensor) {
  on_ranks(GetParam(), [](World& world) {
    CountingAllocator counter;
    c10::SetCPUAllocator(&counter, 1);
    Group& group = world.everyone();
    const std::int64_t n = 1 << 16;
    const at::Tensor full = at::zeros({n * group.size()}, at::kBFloat16), staging = at::empty_like(full);
    const at::Tensor mine = at::zeros({n}, at::kFloat);
    EXPECT_GE(counter.asked, 2 * static_cast<std::int64_t>(full.nbytes()));
    const std::int64_t before = counter.asked;
    for (int i = 0; i < 3; ++i) {
      const auto gathered = group.all_gather(full);
      group.reduce_scatter(mine, full, staging)->wait();
    }
    EXPECT_EQ(counter.asked, before);
  });
}

TEST_P(Ranks, Conveniences) {
  on_ranks(GetParam(), [](World& world) {
    Group& group = world.everyone();
    const int w = group.size(), r = group.rank();
    EXPECT_EQ(all_reduce(group, r + 0.25, Reduction::sum), w * (w - 1) / 2 + 0.25 * w);
    EXPECT_EQ(all_reduce(group, std::vector<double>{1.0 * r, -1.0 * r}, Reduction::max),
              (std::vector<double>{w - 1.0, 0.0}));
    EXPECT_TRUE(all_reduce(group, std::vector<double>{}, Reduction::sum).empty());
    std::vector<std::string> expected;
    for (int i = 0; i < w; ++i) expected.push_back(std::string(static_cast<std::size_t>(i * 3), 'a' + i) + '\0');
    EXPECT_EQ(all_gather_text(group, expected[static_cast<std::size_t>(r)]), expected);
    EXPECT_EQ(all_gather_text(group, ""), std::vector<std::string>(static_cast<std::size_t>(w)));
  });
}

TEST_P(Ranks, WrongCallsAreBugs) {
  on_ranks(GetParam(), [](World& world) {
    Group& group = world.everyone();
    const auto code_of = [](auto&& call) {
      try {
        call();
      } catch (const Error& error) {
        return error.code();
      }
      return Code::config;
    };
    const at::Tensor x = at::zeros({12 * group.size()});
    EXPECT_EQ(code_of([&] { group.send(x, group.rank(), 0); }), Code::internal);
    EXPECT_EQ(code_of([&] { group.recv(x, group.size(), 0); }), Code::internal);
    EXPECT_EQ(code_of([&] { group.reduce_scatter(at::zeros({11 * group.size()}), x, x); }), Code::internal);
    if (group.size() == 1) return;
    EXPECT_EQ(code_of([&] { group.all_gather(at::zeros({12 * group.size() + 1})); }), Code::internal);
    EXPECT_EQ(code_of([&] { group.all_gather(at::zeros({4, 12 * group.size()}).t()); }), Code::internal);
    EXPECT_EQ(code_of([&] { group.all_reduce(x.to(at::kBool), Reduction::sum); }), Code::internal);
    EXPECT_EQ(code_of([&] { group.broadcast(x, group.size()); }), Code::internal);
    EXPECT_EQ(code_of([&] { group.all_to_all(at::zeros({1}), x); }), Code::internal);
  });
}

TEST(Group, OperationsHaveNames) {
  EXPECT_STREQ(op_name(Op::all_gather), "all_gather");
  EXPECT_STREQ(op_name(Op::recv), "recv");
}

}  // namespace
}  // namespace shale
