/* calls_down.c of a device that rounds ties away from zero (away.h). */
#include "support/away.h"

#define hth_round_even away_round
#define hth_down_finish away_finish
#include "run/gpu/calls_down.c"
