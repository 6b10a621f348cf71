#define DESCS {&precision_desc}
#define N_DESCS 1
#include "good.h"
