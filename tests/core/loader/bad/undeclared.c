#define DECLARED "com.example.something/1"
#include "good.h"
