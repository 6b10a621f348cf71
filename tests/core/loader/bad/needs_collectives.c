#define NEEDS SHALE_COLLECTIVES_SERVICE
#include "good.h"
