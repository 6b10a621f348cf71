#include "core/base/error.h"

#include <set>

#include <gtest/gtest.h>

namespace shale {
namespace {

TEST(Error, CarriesCodeAndText) {
  try {
    fail(Code::input, "a.bin: found ", 3, ", expected ", 4);
    FAIL() << "fail() returned";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::input);
    EXPECT_STREQ(error.what(), "a.bin: found 3, expected 4");
    EXPECT_FALSE(error.secondary());
  }
}

TEST(Error, SecondaryIsMarked) {
  Error error(Code::dist, "peer lost");
  EXPECT_TRUE(error.mark_secondary().secondary());
}

TEST(Error, CheckThrowsOnlyWhenBroken) {
  EXPECT_NO_THROW(check(true, "fine"));
  try {
    check(false, "slot ", 2);
    FAIL() << "check() returned";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::internal);
    EXPECT_STREQ(error.what(), "slot 2");
  }
}

TEST(Error, NamesAndExitCodesAreThoseOfTheManual) {
  EXPECT_STREQ(code_name(Code::config), "E-config");
  EXPECT_STREQ(code_name(Code::input), "E-input");
  EXPECT_STREQ(code_name(Code::checkpoint), "E-ckpt");
  EXPECT_STREQ(code_name(Code::dist), "E-dist");
  EXPECT_STREQ(code_name(Code::io), "E-io");
  EXPECT_STREQ(code_name(Code::numeric), "E-num");
  EXPECT_STREQ(code_name(Code::internal), "E-bug");
  EXPECT_EQ(static_cast<int>(Code::config), 2);
  EXPECT_EQ(static_cast<int>(Code::numeric), 7);
  EXPECT_EQ(static_cast<int>(Code::internal), 70);
}

}  // namespace
}  // namespace shale
