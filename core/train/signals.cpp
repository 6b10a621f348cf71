#include "core/train/signals.h"

#include <csignal>
#include <initializer_list>

namespace shale {
namespace {

// A handler can reach nothing but a variable like this.
volatile std::sig_atomic_t received_signal = 0;

void on_signal(int signal) {
  if (received_signal != 0 && signal == SIGINT) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
  if (received_signal == 0) received_signal = signal;
}

void install(void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  for (int signal : {SIGINT, SIGTERM}) sigaction(signal, &action, nullptr);
}

}  // namespace

StopSignals::StopSignals() {
  received_signal = 0;
  install(&on_signal);
}

StopSignals::~StopSignals() { install(SIG_DFL); }

int StopSignals::received() const { return received_signal; }

}  // namespace shale
