#define NEEDS SHALE_LOG_SERVICE
#include "good.h"
