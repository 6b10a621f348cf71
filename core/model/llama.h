// The forward functions of a Llama decoder's units over core/ops.
#pragma once

#include <memory>

#include "core/model/model.h"
#include "core/model/rope.h"

namespace shale {

// For a unit of describe(architecture); checks the shapes it is given.
UnitForward llama_forward(const Architecture&, const UnitInfo&, std::shared_ptr<RopeTables>);

}  // namespace shale
