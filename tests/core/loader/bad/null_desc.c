#define DESCS {NULL}
#define N_DESCS 1
#include "good.h"
