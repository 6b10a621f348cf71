// The running state of a dynamic loss scale: one value per run, part of a snapshot.
#pragma once

#include "core/precision/policy.h"

namespace shale {

class LossScaler {
 public:
  explicit LossScaler(std::optional<LossScale>);
  double scale() const { return scale_; }  // 1 without a policy
  // After the finite check of a step: shrinks on overflow, grows after growth_steps clean ones. Error{numeric} after
  // max_skips overflows in a row.
  void update(bool finite);

  struct State {
    double scale = 1;
    int clean = 0, overflows = 0, skips = 0;
  };
  State state() const { return {scale_, clean_, overflows_, skips_}; }
  void restore(const State&);

 private:
  std::optional<LossScale> policy_;
  double scale_ = 1;
  int clean_ = 0;      // finite steps since the last change
  int overflows_ = 0;  // overflows since the last shrink, for hysteresis
  int skips_ = 0;      // overflows in a row
};

}  // namespace shale
