#define DESCS {&sharding_desc, &sharding_desc}
#define N_DESCS 2
#include "good.h"
