#define INTERFACE_SIZE (offsetof(shale_sharding, plan))
#include "good.h"
