#define SHARDING_PLAN NULL
#include "good.h"
