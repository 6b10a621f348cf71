#define SHARDING_TABLE NULL
#include "good.h"
