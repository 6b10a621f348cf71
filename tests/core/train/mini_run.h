// A run of the small model on this process alone, without plugins or configuration file.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/train/run.h"

namespace shale {

class MiniRun {
 public:
  explicit MiniRun(const Config& = {});
  ~MiniRun();
  Run& operator*() { return *run_; }
  Run* operator->() { return run_.get(); }
  // A data file of token ids below the vocabulary of the model, for train_step.
  void open_data(const std::string& path);
  // All weights, one after the other, float64.
  at::Tensor weights();

 private:
  struct NoPlugins;
  Config config_;
  Log log_;
  std::unique_ptr<World> world_;
  std::unique_ptr<NoPlugins> plugins_;
  std::unique_ptr<ComputeDevice> device_;
  std::unique_ptr<Run> run_;
};

}  // namespace shale
