#define MINOR_MIN (SHALE_ABI_MINOR + 7)
#include "good.h"
