// ModelInfo and Topology as the C structs plugins read. They own all they point to.
#pragma once

#include <vector>

#include "core/comm/topology.h"
#include "core/loader/abi.h"
#include "core/model/description.h"
#include "core/precision/policy.h"

namespace shale {

class ModelView {
 public:
  // dtypes: the precision plan of this model, or null while it is being made.
  ModelView(const ModelInfo&, const PrecisionTable* dtypes);
  ModelView(const ModelView&) = delete;
  ModelView& operator=(const ModelView&) = delete;

  const shale_model* c() const { return &model_; }
  const ModelInfo& info() const { return info_; }
  std::uint32_t parameters() const { return static_cast<std::uint32_t>(places_.size()); }
  struct Place {
    std::size_t unit = 0, parameter = 0;
  };
  Place place(std::uint32_t id) const { return places_.at(id); }  // of a parameter id
  const std::string& name(std::uint32_t id) const;

 private:
  void add_parameter(const ParameterInfo&, Place, const PrecisionTable*);

  const ModelInfo info_;
  std::vector<Place> places_;
  std::vector<shale_param> params_;
  std::vector<const shale_param*> param_pointers_;
  std::vector<shale_unit> units_;
  std::vector<const shale_unit*> unit_pointers_;
  std::vector<std::uint32_t> order_;
  shale_model model_{};
};

class TopologyView {
 public:
  explicit TopologyView(const Topology&);
  TopologyView(const TopologyView&) = delete;
  TopologyView& operator=(const TopologyView&) = delete;
  const shale_topology* c() const { return &topology_; }

 private:
  std::vector<std::uint32_t> nodes_;
  shale_topology topology_{};
};

}  // namespace shale
