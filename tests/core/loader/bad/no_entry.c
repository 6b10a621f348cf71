#define NO_ENTRY
#include "good.h"
