#include "core/loader/status.h"

#include "support.h"

namespace shale {
namespace {

TEST(Status, CodesAndExitCodesAreThoseOfTheHeader) {
  const std::pair<std::uint32_t, int> table[] = {{SHALE_BAD_OPTION, 2},
                                                 {SHALE_BAD_ARGUMENT, 70},
                                                 {SHALE_UNSUPPORTED, 2},
                                                 {SHALE_OUT_OF_MEMORY, 6},
                                                 {SHALE_NO_SPACE, 6},
                                                 {SHALE_IO_ERROR, 6},
                                                 {SHALE_NOT_FOUND, 3},
                                                 {SHALE_CORRUPT, 4},
                                                 {SHALE_TIMED_OUT, 5},
                                                 {SHALE_NOT_FINITE, 7},
                                                 {SHALE_INTERNAL, 70},
                                                 {0, 70},
                                                 {999, 70}};
  for (const auto& [code, exit] : table) EXPECT_EQ(static_cast<int>(code_of_status(code)), exit) << code;
  for (const Code code :
       {Code::config, Code::input, Code::checkpoint, Code::dist, Code::io, Code::numeric, Code::internal})
    EXPECT_EQ(code_of_status(status_of_code(code)), code);
}

TEST(Status, TheHostTable) {
  shale_host host{};
  set_status_functions(host);
  shale_status* s = host.status_make(nullptr, SHALE_CORRUPT, shale_text("file"), {"text", 4});
  EXPECT_EQ(host.status_code(s), SHALE_CORRUPT);
  EXPECT_EQ(to_text(host.status_where(s)), "file");
  EXPECT_EQ(to_text(host.status_text(s)), "text");
  host.status_free(s);
  host.status_free(nullptr);
  s = host.status_make(nullptr, 1, {nullptr, 5}, {nullptr, 0});
  EXPECT_EQ(to_text(host.status_where(s)), "");
  host.status_free(s);
}

TEST(Status, NothingCrossesTheBorder) {
  Status s(guarded([]() -> shale_status* { fail(Code::io, "/x: disk full"); }));
  EXPECT_EQ(s->code, SHALE_IO_ERROR);
  ASSERT_TRUE(s->cause);
  EXPECT_EQ(s->cause->code(), Code::io);
  s.reset(guarded([]() -> shale_status* { throw std::bad_alloc(); }));
  EXPECT_EQ(s->code, SHALE_OUT_OF_MEMORY);
  s.reset(guarded([]() -> shale_status* { throw std::runtime_error("other"); }));
  EXPECT_EQ(s->text, "other");
  s.reset(guarded([]() -> shale_status* { throw 3; }));
  EXPECT_EQ(s->code, SHALE_INTERNAL);
  s.reset(guarded([]() -> shale_status* { return nullptr; }));
  EXPECT_FALSE(s);
}

TEST(Status, MessagesStayOneLine) {
  EXPECT_EQ(one_line("a\nb\tc\x7f"), "a b c ");
  EXPECT_EQ(one_line(std::string(5000, 'x')).size(), 2003u);
}

}  // namespace
}  // namespace shale
