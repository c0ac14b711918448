/* Machines of tests: figures that are kept as if they had been measured, in a folder of the test's own. */
#ifndef HEARTH_TESTS_SUPPORT_MODELS_MADE_UP_H
#define HEARTH_TESTS_SUPPORT_MODELS_MADE_UP_H

#include "placement/calibrate.h"

/* Of a GPU that reads `faster` times what the CPU does. */
hth_calibration made_up_gpu(hth_type type, double faster);

/* A cache folder, which is gone afterwards; then nothing is kept. */
void made_up_cache_open(char folder[512]);
void made_up_cache_close(const char *folder);

#endif
