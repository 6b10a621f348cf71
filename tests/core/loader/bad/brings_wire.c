#define MORE_INTERFACES SHALE_WIRE
#include "good.h"
