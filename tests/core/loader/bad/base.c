/* Good, under an id of its own: fills the kinds that a test is not about. */
#define ID "base"
#include "good.h"
