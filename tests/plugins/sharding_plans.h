// Asks a built-in strategy for its plan, through the fake host of sdk/conformance.
#pragma once

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plans.h"
#include "plugin_files.h"

namespace shale {

using namespace conform;

inline constexpr std::uint32_t kSelf = SHALE_GROUP_SELF, kWorld = SHALE_GROUP_WORLD;

struct Asked {
  Answer answer;
  ShardingAnswer plan;
};

inline Asked ask_for(const std::string& name, const Given& given, const ModelShape& shape, std::uint32_t world,
                     std::uint32_t node_size = 4) {
  FakeHost host;
  const Library library(plugin_file(name));
  const Instance plugin(library, SHALE_KIND_SHARDING, host, given);
  const FakeModel model(shape);
  const FakeTopology topology(world, node_size);
  Asked asked;
  asked.answer = ask(plugin, {model, topology}, asked.plan);
  EXPECT_EQ(host.live(), 0);
  if (asked.answer.code == 0) {
    EXPECT_THAT(problems(asked.plan, model), testing::IsEmpty());
  }
  return asked;
}

inline std::vector<std::uint32_t> reshard_groups(const ShardingAnswer& plan) {
  std::vector<std::uint32_t> groups;
  for (auto& u : plan.units) groups.push_back(u->reshard_group);
  return groups;
}

inline std::vector<std::uint32_t> all(std::uint32_t world) {
  std::vector<std::uint32_t> ranks(world);
  for (std::uint32_t rank = 0; rank < world; ++rank) ranks[rank] = rank;
  return ranks;
}

}  // namespace shale
