/* Nothing is wrong with it. */
#include "good.h"
