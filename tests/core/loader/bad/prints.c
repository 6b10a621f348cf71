#include <stdio.h>
__attribute__((constructor)) static void speak(void) { puts("{\"hello\": 1}"), fflush(stdout); }
#include "good.h"
