#define MORE_INTERFACES SHALE_EXCHANGE
#include "good.h"
