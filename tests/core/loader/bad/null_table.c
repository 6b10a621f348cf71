#define ENTRY return NULL
#include "good.h"
