// A fault that a run asks for by options: what, where, on which rank, at which step.
#pragma once

#include <unistd.h>
#include <csignal>
#include <cstdlib>

#include <stdexcept>

#include "shale/plugin.hpp"

namespace faulty {

using namespace shale::sdk;

inline constexpr shale_option kAction =
    choice("action", "none", "none|kill|stop|abort|hang|error|throw|raw_throw|skip",
           "raw_throw: past the SDK, through the C border; skip: leaves out one collective");
inline constexpr shale_option kRank = integer("rank", "0", {"0", "1024", "ranks"}, "the rank it happens on");
inline constexpr shale_option kStep = integer("step", "0", {"0", "1000000", "steps"}, "0 = the first time");

struct RawThrow {};  // not caught by the plugin, see raw()

class Fault {
 public:
  explicit Fault(const Plugin& p) : action_(p.config.text("action")), where_(p.config.text("where")) {
    const auto* run = static_cast<const shale_run*>(p.host->get_service(p.host->ctx, SHALE_RUN_SERVICE));
    mine_ = run != nullptr && run->rank == p.config.count("rank");
    step_ = static_cast<std::uint64_t>(p.config.integer("step"));
  }

  // Does it, if it is to happen here and now. step 0: outside of steps.
  void at(std::string_view where, std::uint64_t step) const {
    if (!due(where, step) || action_ == "none" || action_ == "skip") return;
    if (action_ == "kill") std::raise(SIGKILL);
    if (action_ == "stop") std::raise(SIGSTOP);
    if (action_ == "abort") std::abort();
    while (action_ == "hang") pause();
    if (action_ == "error") throw Error(SHALE_INTERNAL, std::string(where), "was told to fail");
    if (action_ == "throw") throw std::runtime_error("was told to throw");
    if (action_ == "raw_throw") throw RawThrow{};
  }
  bool skips(std::string_view where, std::uint64_t step) const { return action_ == "skip" && due(where, step); }

 private:
  bool due(std::string_view where, std::uint64_t step) const {
    return mine_ && where == where_ && (step_ == 0 || step == step_);
  }
  std::string action_, where_;
  bool mine_ = false;
  std::uint64_t step_ = 0;
};

// Like guard() of the SDK, but a RawThrow goes on into the core, as an exception of a careless plugin would.
template <class P, class F>
shale_status* raw(void* self, F&& f) {
  P& p = *static_cast<P*>(static_cast<Plugin*>(self));
  try {
    f(p);
    return nullptr;
  } catch (const RawThrow&) {
    throw std::runtime_error("was thrown through the border");
  } catch (...) {
    return current_exception(p.host);
  }
}

}  // namespace faulty
