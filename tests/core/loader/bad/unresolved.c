#define ENTRY return symbol_that_nobody_has()
#include "shale/plugin.h"
const shale_plugin* symbol_that_nobody_has(void);
#include "good.h"
