#define MAJOR (SHALE_ABI_MAJOR + 1)
#include "good.h"
