// AdamW (Loshchilov & Hutter 2019) on the shards a rank owns, in one pass over each.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "core/sharding/shard.h"

namespace shale {

struct AdamWOptions {
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1;
  bool decay_norms = true;  // false: norms and biases are not decayed
};

class AdamW {
 public:
  // trainable: the names of all parameters that train, on any rank.
  AdamW(const AdamWOptions&, const std::vector<std::string>& trainable);

  // One update of every trainable parameter in `shards`, with gradients multiplied by grad_scale (clipping and
  // unscaling in one). p = p (1 - lr wd) - lr / (1 - beta1^t) m / (sqrt(v / (1 - beta2^t)) + eps), t counted per
  // parameter, as in torch.optim.AdamW. Writes master, exp_avg, exp_avg_sq; leaves grad.
  void step(std::deque<Shard>& shards, double lr, double grad_scale);

  // Updates so far per parameter name, the same on all ranks; part of a snapshot.
  std::map<std::string, std::int64_t>& updates() { return updates_; }

 private:
  AdamWOptions options_;
  std::map<std::string, std::int64_t> updates_;
};

}  // namespace shale
