#define MORE_INTERFACES "shale.sharding/2", "com.example.something/1"
#include "good.h"
