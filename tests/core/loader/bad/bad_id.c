#define ID "not an id"
#include "good.h"
