#define DESCS {NULL}
#define N_DESCS 0
#include "good.h"
