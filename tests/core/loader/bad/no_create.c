#define CREATE NULL
#include "good.h"
