#include "core/base/text.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include <gtest/gtest.h>

namespace shale {
namespace {

TEST(Text, JoinsAnythingThatPrints) {
  EXPECT_EQ(str("rank ", 3, ' ', 1.5, std::string("!")), "rank 3 1.5!");
  EXPECT_EQ(str(), "");
  const std::vector<std::string> parts{"a", "", "c"};
  EXPECT_EQ(join(parts, ", "), "a, , c");
  EXPECT_EQ(join(std::vector<std::string>{}, ", "), "");
}

TEST(Text, SplitKeepsEmptyParts) {
  EXPECT_EQ(split("", ':'), std::vector<std::string>{});
  EXPECT_EQ(split("a", ':'), (std::vector<std::string>{"a"}));
  EXPECT_EQ(split("a::b", ':'), (std::vector<std::string>{"a", "", "b"}));
  EXPECT_EQ(split(":", ':'), (std::vector<std::string>{"", ""}));
  EXPECT_EQ(split("a:", ':'), (std::vector<std::string>{"a", ""}));
}

TEST(Text, NearestFindsTypingErrors) {
  const std::vector<std::string> keys{"steps", "seq_len", "local_batch_size", "global_batch_size", "lr", "eps"};
  EXPECT_EQ(nearest("stpes", keys), "steps");  // two neighbours swapped
  EXPECT_EQ(nearest("step", keys), "steps");
  EXPECT_EQ(nearest("seq-len", keys), "seq_len");
  EXPECT_EQ(nearest("Local_Batch_Size", keys), "local_batch_size");
  EXPECT_EQ(nearest("globl_batchsize", keys), "global_batch_size");
  EXPECT_EQ(nearest("lr", keys), "lr");
}

TEST(Text, NearestOffersNothingFarAway) {
  const std::vector<std::string> keys{"steps", "seq_len", "lr", "eps", "fp8"};
  EXPECT_EQ(nearest("", keys), "");
  EXPECT_EQ(nearest("zzzzzz", keys), "");
  EXPECT_EQ(nearest("abc", keys), "");
  EXPECT_EQ(nearest("xy", keys), "");
  EXPECT_EQ(nearest("steps", std::vector<std::string>{}), "");
  EXPECT_EQ(nearest(std::string(100000, 's'), keys), "");  // must not take quadratic time
}

TEST(Text, HumanBytes) {
  EXPECT_EQ(human_bytes(0), "0 B");
  EXPECT_EQ(human_bytes(1023), "1023 B");
  EXPECT_EQ(human_bytes(1536), "1.5 KiB");
  EXPECT_EQ(human_bytes(1.5 * 1024 * 1024), "1.5 MiB");
  EXPECT_EQ(human_bytes(1024.0 * 1024 * 1024 - 1), "1.0 GiB");
  EXPECT_EQ(human_bytes(-2048), "-2.0 KiB");
  EXPECT_EQ(human_bytes(std::nan("")), "nan B");
}

TEST(Text, HumanSeconds) {
  EXPECT_EQ(human_seconds(0.0123), "12.3ms");
  EXPECT_EQ(human_seconds(4.2), "4.2s");
  EXPECT_EQ(human_seconds(59.96), "1m00s");
  EXPECT_EQ(human_seconds(190), "3m10s");
  EXPECT_EQ(human_seconds(3720), "1h02m");
  EXPECT_EQ(human_seconds(400000), "111h06m");
  EXPECT_EQ(human_seconds(std::numeric_limits<double>::infinity()), "infs");
}

TEST(Text, ExactReadsBackToTheSameBits) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 20000; ++i) {
    const std::uint64_t bits = random();
    double value = 0;
    std::memcpy(&value, &bits, sizeof value);
    if (std::isnan(value)) continue;
    const double back = std::strtod(exact(value).c_str(), nullptr);
    ASSERT_EQ(std::memcmp(&back, &value, sizeof value), 0) << exact(value);
  }
  EXPECT_EQ(exact(0.1), "0.1");
  EXPECT_EQ(exact(std::nan("")), "nan");
  EXPECT_EQ(exact(-std::numeric_limits<double>::infinity()), "-inf");
}

}  // namespace
}  // namespace shale
