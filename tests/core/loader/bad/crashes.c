#define ENTRY return *(const shale_plugin* volatile*)16
#include "good.h"
