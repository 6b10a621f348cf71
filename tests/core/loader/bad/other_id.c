#define ID "other"
#include "good.h"
