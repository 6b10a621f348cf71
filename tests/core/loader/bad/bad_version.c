#define VERSION "one"
#include "good.h"
