// SIGINT and SIGTERM ask the run to stop after the step. A second SIGINT ends the process at once; more SIGTERMs change
// nothing, because whoever signals a whole process group (timeout, a batch system) delivers several.
#pragma once

namespace shale {

// Installs the handlers for its lifetime; the number of the signal received so far, or 0. One at a time.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  int received() const;
};

}  // namespace shale
