// One write call as one file of torch.save.
#pragma once

#include "shale/plugin.hpp"

namespace torch_file {

void write(const shale::sdk::Plugin&, const shale_save&);

}  // namespace torch_file
