#define CAPS (SHALE_CAP_CPU | SHALE_CAP_NEEDS_EVEN_NODES)
#include "good.h"
