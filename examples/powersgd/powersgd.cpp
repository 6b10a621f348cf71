// powersgd: replicas like no_shard, that sum their gradients as products of two thin matrices (PowerSGD): one step of
// power iteration from the last step's result, and what a rank's gradient lost is added to its next one.
#include <algorithm>
#include <cmath>
#include <vector>

#include "shale/hooks.hpp"

using namespace shale::sdk;

class PowerSgd : public Sharding, public Exchange {
 public:
  static constexpr Info info{.id = "powersgd",
                             .version = "1.0.0",
                             .summary = "replicas that exchange low-rank gradients with error feedback (PowerSGD)",
                             .caps = SHALE_CAP_CPU | SHALE_CAP_CUDA | SHALE_CAP_CHANGES_MATH};
  static constexpr auto& needs = hook_services;  // lane, collectives, math
  static constexpr shale_option options[] = {
      integer("rank", "4", {"1", "64"}, "columns of the two matrices; more are nearer to the gradient and send more"),
      integer("start_step", "100", {"1", nullptr, "steps"}, "first step that compresses; those before it send all"),
      integer("min_numel", "4096", {"1", nullptr, "elements"}, "smaller parameters are sent whole"),
  };
  static const shale_exchange exchange;
  using Sharding::Sharding;

  void plan(const shale_model& model, const shale_topology&, ShardingPlan to) override {
    SHALE_VAR(shale_unit_plan, u);
    u.replica_group = SHALE_GROUP_WORLD;
    u.replica_at = SHALE_AT_BOUNDARY;
    rank_ = config.count("rank");
    column_.clear();
    std::uint64_t columns = 0;
    std::uint32_t dtype = SHALE_F32;
    for (std::uint32_t k = 0; k < model.n_units; ++k) {
      std::uint64_t sent = 0;
      for (std::uint32_t p = 0; p < model.units[k]->n_params; ++p) {
        const shale_param& w = *model.units[k]->params[p];
        if (w.accumulate_dtype == SHALE_F64) dtype = SHALE_F64;
        column_.resize(std::max<std::size_t>(column_.size(), w.id + 1), kWhole);
        sent += compressed(w) ? (rows(w) + w.numel / rows(w)) * rank_ : w.numel;
        if (!compressed(w) || column_[w.id] != kWhole) continue;
        column_[w.id] = columns;
        columns += w.numel / rows(w) * rank_;
      }
      u.scratch_bytes = (sent * sizeof(double) + 255) / 256 * 256;
      to.unit(k, u);
    }
    declare_states(to, columns, dtype);
  }

  // Two sums: of P = M Q together with what is sent whole, and of Q = M' P with orthogonal P. The sum of M is near P
  // Q'.
  void replicate(const shale_exchange_call& call, const shale_tensor& shard) {
    if (call.ways == 1) return;
    if (call.step < static_cast<std::uint64_t>(config.integer("start_step")) || columns_ == 0)
      return tools_.all_reduce(call.lane, call.group, shard);
    const shale_tensor error = tools_.state(call.lane, error_, call.flat), q = tools_.state(call.lane, q_);
    const bool forget = call.after_skip != 0;
    if (forget) tools_.reset(call.lane, error_, call.flat);
    std::vector<Piece> pieces;
    Sizes sizes = lay_out(call, shard, error, q, pieces);
    const shale_tensor all = tools_.scratch(call.lane, q, q.dtype, sizes.first + sizes.second);
    for (Piece& piece : pieces) {
      piece.first = shale_matrix(&all, piece.first_at, piece.rows, piece.matrix ? rank_ : 1);
      piece.second = shale_matrix(&all, sizes.first + piece.second_at, piece.columns, rank_);
      if (piece.matrix)
        project(call, piece, forget);
      else
        tools_.copy(call.lane, piece.first, piece.gradient);
    }
    tools_.all_reduce(call.lane, call.group, shale_range(&all, 0, sizes.first));
    for (const Piece& piece : pieces)
      if (piece.matrix)
        turn_back(call, piece);
      else
        tools_.copy(call.lane, piece.gradient, piece.first);
    if (sizes.second > 0) tools_.all_reduce(call.lane, call.group, shale_range(&all, sizes.first, sizes.second));
    for (const Piece& piece : pieces)
      if (piece.matrix) put_together(call, piece);
  }

 private:
  static constexpr std::uint64_t kWhole = ~std::uint64_t{0};

  struct Piece {  // one parameter
    bool matrix = false;
    std::uint64_t rows = 0, columns = 0, first_at = 0, second_at = 0;
    shale_tensor gradient, error;  // [rows, columns]
    shale_tensor q, noise;         // [columns, rank], kept
    shale_tensor first, second;    // what is sent: P [rows, rank] or all of it, then Q [columns, rank]
  };
  struct Sizes {
    std::uint64_t first = 0, second = 0;
  };

  static std::uint64_t rows(const shale_param& w) { return w.ndim >= 2 ? static_cast<std::uint64_t>(w.shape[0]) : 1; }
  bool compressed(const shale_param& w) const {
    if ((w.flags & SHALE_PARAM_FROZEN) != 0 || w.ndim < 2 || w.numel < config.count("min_numel")) return false;
    return (rows(w) + w.numel / rows(w)) * rank_ < w.numel;
  }

  void declare_states(ShardingPlan& to, std::uint64_t columns, std::uint32_t dtype) {
    columns_ = columns;
    if (columns == 0) return;
    SHALE_VAR(shale_state, s);
    s.unit = SHALE_ALL_UNITS;
    s.dtype = dtype;
    s.scope = SHALE_STATE_SHARD_RANK;
    s.name = str("error");
    error_ = to.state(s);
    s.scope = SHALE_STATE_GLOBAL;
    s.numel = columns;
    s.name = str("q");
    q_ = to.state(s);
    s.first = SHALE_STATE_NORMAL;
    s.name = str("noise");
    noise_ = to.state(s);
  }

  Sizes lay_out(const shale_exchange_call& call, const shale_tensor& shard, const shale_tensor& error,
                const shale_tensor& q, std::vector<Piece>& pieces) {
    const shale_tensor noise = tools_.state(call.lane, noise_);
    Sizes sizes;
    for (std::uint32_t k = 0; k < call.flat->n_params; ++k) {
      const shale_param& w = *call.flat->params[k];
      Piece piece;
      piece.matrix = column_[w.id] != kWhole;
      piece.rows = piece.matrix ? rows(w) : w.numel;
      piece.columns = w.numel / piece.rows;
      piece.gradient = shale_matrix(&shard, call.flat->offsets[k], piece.rows, piece.columns);
      piece.first_at = sizes.first;
      sizes.first += piece.matrix ? piece.rows * rank_ : w.numel;
      if (piece.matrix) {
        piece.error = shale_matrix(&error, call.flat->offsets[k], piece.rows, piece.columns);
        piece.q = shale_matrix(&q, column_[w.id], piece.columns, rank_);
        piece.noise = shale_matrix(&noise, column_[w.id], piece.columns, rank_);
        piece.second_at = sizes.second;
        sizes.second += piece.columns * rank_;
      }
      pieces.push_back(piece);
    }
    return sizes;
  }

  // M = gradient + error; P = M Q. The error is kept for a loss scale of 1. A little noise brings columns of Q back
  // that became zero because a gradient had fewer directions than rank.
  void project(const shale_exchange_call& call, const Piece& piece, bool forget) const {
    tools_.axpby(call.lane, 0.01 / std::sqrt(static_cast<double>(piece.columns)), piece.noise, forget ? 0 : 1, piece.q);
    tools_.axpby(call.lane, call.grad_scale, piece.error, 1, piece.gradient);
    multiply(call, {0, 1, 0}, piece.gradient, piece.q, piece.first);
  }

  // P becomes orthogonal; Q = M' P; error = M - P Q'. A copy of Q goes on the wire.
  void turn_back(const shale_exchange_call& call, const Piece& piece) const {
    tools_.orthogonalise(call.lane, piece.first);
    multiply(call, {1, 1, 0}, piece.gradient, piece.first, piece.second);
    tools_.axpby(call.lane, 1 / call.grad_scale, piece.gradient, 0, piece.error);
    multiply(call, {2, -1 / call.grad_scale, 1}, piece.first, piece.second, piece.error);
  }

  // The gradient becomes P Q' of the summed Q, whose directions the next step starts from.
  void put_together(const shale_exchange_call& call, const Piece& piece) const {
    multiply(call, {2, 1, 0}, piece.first, piece.second, piece.gradient);
    tools_.copy(call.lane, piece.q, piece.second);
    tools_.orthogonalise(call.lane, piece.q);
  }

  struct Product {  // c = alpha op(a) op(b) + beta c; bit 0 of transpose: a, bit 1: b
    std::uint32_t transpose;
    double alpha, beta;
  };
  void multiply(const shale_exchange_call& call, Product how, const shale_tensor& a, const shale_tensor& b,
                const shale_tensor& c) const {
    const auto& math = tools_.math();
    ok(math.matmul(math.ctx, call.lane, how.transpose, how.alpha, &a, &b, how.beta, &c));
  }

  HookTools tools_{*this};
  std::uint32_t rank_ = 1;
  std::vector<std::uint64_t> column_;  // by parameter: first element of its Q, or kWhole
  std::uint64_t columns_ = 0;
  std::uint32_t error_ = 0, q_ = 0, noise_ = 0;
};

const shale_exchange PowerSgd::exchange = exchange_table<PowerSgd>();
SHALE_PLUGIN(PowerSgd)
