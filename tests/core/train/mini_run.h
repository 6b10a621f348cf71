// A run of the small model without plugins or configuration file, on this process alone or replicated on all ranks.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/train/run.h"

namespace shale {

class MiniRun {
 public:
  explicit MiniRun(const Config& = {});
  explicit MiniRun(World&, const Config& = {});  // the world must outlive it
  ~MiniRun();
  Run& operator*() { return *run_; }
  Run* operator->() { return run_.get(); }
  // A data file of token ids below the vocabulary of the model, for train_step.
  void open_data(const std::string& path);
  // All weights, one after the other, float64.
  at::Tensor weights();

 private:
  struct NoPlugins;
  MiniRun(const Config&, std::unique_ptr<World> alone, World* shared);

  Config config_;
  Log log_;
  std::unique_ptr<World> alone_;
  World& world_;
  std::unique_ptr<NoPlugins> plugins_;
  std::unique_ptr<ComputeDevice> device_;
  std::unique_ptr<Run> run_;
};

}  // namespace shale
