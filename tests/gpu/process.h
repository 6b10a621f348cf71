// Child processes with a limit, for checks that must not take each other down.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace shale {

struct Ended {
  int code = 0;      // exit code, or 128 + signal; -1: the limit passed and it was killed
  std::string text;  // what it told: a function's return value, or a program's standard output and error
};

// Runs the function in a fork of this process. What it throws becomes code 1 and the message.
Ended run_forked(double seconds, const std::function<std::pair<int, std::string>()>&);
Ended run_program(double seconds, const std::vector<std::string>& words);

}  // namespace shale
