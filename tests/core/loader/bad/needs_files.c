#define NEEDS SHALE_FILES_SERVICE
#include "good.h"
