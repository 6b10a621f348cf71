#include <unistd.h>
#define ENTRY for (;;) pause()
#include "good.h"
