// Whole tensors for formats that hold nothing else, over real connections.
#include "core/checkpoint/collect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/base/text.h"
#include "tests/core/checkpoint/support.h"
#include "tests/core/comm/ranks.h"

namespace shale::test {
namespace {

TEST(Collect, AFormatWithoutBoxesGetsWholeTensors) {
  for (const bool one_writer : {false, true})
    for (const int ranks : {1, 2, 3, 5}) {
      SCOPED_TRACE(str(ranks, " ranks, one writer ", one_writer));
      const TempFolder temp;
      const auto state = make_state(1);
      on_ranks(ranks, [&](World& world) {
        PlainFormat format;
        format.held.boxes = false, format.held.one_writer = one_writer;
        bool wrote = false;
        format.at = [&](const std::string& point, int) { wrote |= point == "write"; };
        save_snapshot(world.everyone(), format, share(state, temp.path(), world.rank(), ranks));
        EXPECT_EQ(wrote, !one_writer || world.rank() == 0) << "rank " << world.rank();
      });
      PlainFormat format;
      const auto reader = SnapshotReader::open(temp / "step-00000000", format);
      EXPECT_EQ(difference(*reader, state, 2), "");
      EXPECT_TRUE(verify_snapshot(temp / "step-00000000").empty());
    }
}

TEST(Collect, SpreadsTensorsOverTheRanks) {
  const auto state = make_state(3);
  on_ranks(2, [&](World& world) {
    const auto mine = share(state, "unused", world.rank(), 2).pieces;
    FormatTraits traits;
    double bytes = 0, all = 0;
    for (auto& piece : collect_whole(world.everyone(), traits, mine)) bytes += static_cast<double>(piece.data.nbytes());
    for (auto& s : state) all += static_cast<double>(s.data.nbytes());
    EXPECT_LT(bytes, all * 0.75);
    EXPECT_EQ(all_reduce(world.everyone(), bytes, Reduction::sum), all);
    traits.one_writer = true;
    const auto one = collect_whole(world.everyone(), traits, mine);
    EXPECT_EQ(one.size(), world.rank() == 0 ? state.size() : 0);
  });
}

TEST(Collect, PiecesWithHolesOrOtherShapesAreABug) {
  on_ranks(2, [&](World& world) {
    const auto state = make_state(1);
    const auto attempt = [&](const std::function<void(Piece&)>& change) -> std::string {
      auto pieces = share(state, "unused", world.rank(), 2).pieces;
      if (world.rank() == 1) change(pieces[0]);
      try {
        collect_whole(world.everyone(), {}, pieces);
      } catch (const Error& e) {
        return e.what();
      }
      return "";
    };
    using testing::HasSubstr;
    EXPECT_THAT(attempt([](Piece& p) { p.begin += 1; }), HasSubstr("leave a hole or overlap at element 45"));
    EXPECT_THAT(attempt([](Piece& p) { p.begin -= 1; }), HasSubstr("leave a hole or overlap at element 45"));
    EXPECT_THAT(attempt([](Piece& p) { p.data = p.data.narrow(0, 0, 3); }), HasSubstr("hold 48 of 91 elements"));
    EXPECT_THAT(attempt([](Piece& p) { p.item.shape = {7, 13}; }), HasSubstr("disagree on its shape"));
  });
}

}  // namespace
}  // namespace shale::test
