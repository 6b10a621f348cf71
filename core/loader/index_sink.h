// What describe() of a format fills in.
#pragma once

#include "core/checkpoint/format.h"
#include "core/loader/plan_builder.h"

namespace shale {

class IndexSink : public PlanBuilder {
 public:
  IndexSink();
  IndexSink(const IndexSink&) = delete;
  IndexSink& operator=(const IndexSink&) = delete;
  const shale_index* c() const { return &c_; }
  Index take() { return std::move(index_); }

 private:
  struct Calls;
  shale_status* add(std::uint32_t item, const shale_box*, StoredBox);
  Index index_;
  shale_index c_;
};

}  // namespace shale
