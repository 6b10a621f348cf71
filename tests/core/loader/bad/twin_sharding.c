#define ID "twin"
#define DESCS {&sharding_desc}
#define N_DESCS 1
#include "good.h"
