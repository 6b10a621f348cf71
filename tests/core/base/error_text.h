// What a refusal says.
#pragma once

#include <string>

#include <gtest/gtest.h>

#include "core/base/error.h"

namespace shale {

// The text of the Error that `act` throws: one line of the expected class, or the test fails.
template <class Act>
std::string error_text(Code code, const Act& act) {
  try {
    act();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was refused";
  return "";
}

}  // namespace shale
