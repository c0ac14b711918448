/* GPUs of tests: descriptions with round rates, and their devices. */
#ifndef HEARTH_TESTS_SUPPORT_DEVICE_CARD_H
#define HEARTH_TESTS_SUPPORT_DEVICE_CARD_H

#include "device/device.h"

/* A byte a nanosecond of its own memory; two nanoseconds for a byte up, four for one down. */
#define CARD_RATES                                                                                           \
    "name = hand\nvram_bytes = 1M\nbandwidth = 1e9\npcie_up = 500e6\npcie_down = 250e6\n"                    \
    "pcie_latency_us = 1\ndispatch_us = 2\nsubmit_us = 20\nwake_us = 10\nflops = 1e12\n"
#define CARD_EXACT CARD_RATES "jitter = 0\nseed = 1\nclock = virtual\n"

/* Opens the GPU of this description, with memory and functions as in hth_device_spec. */
hearth_status card_open(const char *text, uint64_t memory, hth_shader_ref_fn *const *functions, hth_device **d,
                        hearth_error *err);

#endif
