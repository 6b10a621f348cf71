// Checks what a plugin says about itself.
#pragma once

#include "core/loader/plugin_library.h"

namespace shale {

// Error{config} for one that is malformed ("a bug of the plugin"). What a descriptor asks of the host is checked by
// check_served, so that `shale plugin info` can show it all the same.
Descriptor read_descriptor(const shale_desc*);

// Error{config} naming an interface it declares or a service it needs that this shale does not serve.
void check_served(const Descriptor&);

}  // namespace shale
