#define MINOR_MIN 0
#define MINOR_BUILT 0
#include "good.h"
