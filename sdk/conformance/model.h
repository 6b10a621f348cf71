// A small decoder model and a topology, as plugins get to see them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "host.h"

namespace shale::conform {

// dtypes of all roles, as a precision plan would have set them. bf16_mixed: norms stay in fp32.
enum class Numbers { f32, f64, bf16_mixed };

struct ModelShape {
  int layers = 2;
  bool tied = false;      // the head uses the embedding's weight
  bool frozen = false;    // the embedding does not change
  bool repeated = false;  // the first layer runs a second time, last before the head
  bool uneven = false;    // layers of 1, 3 and 6 elements, so that some ranks own nothing
  Numbers numbers = Numbers::f32;
};

// Units: embedding, layers, head. Sizes are small and odd, so that nothing divides evenly.
class FakeModel {
 public:
  explicit FakeModel(const ModelShape& = {});
  FakeModel(const FakeModel&) = delete;
  FakeModel& operator=(const FakeModel&) = delete;
  const shale_model* get() const { return &model_; }
  std::uint32_t n_params() const { return static_cast<std::uint32_t>(params_.size()); }

 private:
  void add_unit(const std::string& name, std::uint32_t kind);
  void add_layer(int k, const ModelShape&);
  void set_dtypes(Numbers);
  void add_param(const std::string& name, std::vector<std::int64_t> shape, std::uint32_t flags);
  void link();

  std::vector<std::unique_ptr<std::string>> names_;
  std::vector<std::unique_ptr<shale_param>> params_;
  std::vector<std::unique_ptr<shale_unit>> units_;
  std::vector<std::vector<const shale_param*>> params_of_unit_;
  std::vector<const shale_unit*> unit_pointers_;
  std::vector<std::uint32_t> order_;
  shale_model model_{};
};

class FakeTopology {
 public:
  // bytes: the size of the struct; shorter than this build's for an older host, longer for a newer one.
  FakeTopology(std::uint32_t world, std::uint32_t node_size, std::size_t bytes = sizeof(shale_topology));
  const shale_topology* get() const { return static_cast<const shale_topology*>(table_.get()); }
  std::uint32_t world() const { return static_cast<std::uint32_t>(node_of_rank_.size()); }

 private:
  std::vector<std::uint32_t> node_of_rank_;
  Exactly table_;
};

}  // namespace shale::conform
