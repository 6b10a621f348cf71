#define TABLE_SIZE (offsetof(shale_plugin, get_interface))
#include "good.h"
