#define TABLE_SIZE (sizeof(shale_plugin) + 8)
#include "good.h"
