#define DESC_SIZE (offsetof(shale_desc, options))
#include "good.h"
