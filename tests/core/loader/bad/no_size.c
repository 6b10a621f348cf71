#define TABLE_SIZE 0
#include "good.h"
