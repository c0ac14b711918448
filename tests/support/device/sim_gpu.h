/* GPUs of tests: descriptions with round rates, and their devices. */
#ifndef HEARTH_TESTS_SUPPORT_DEVICE_SIM_GPU_H
#define HEARTH_TESTS_SUPPORT_DEVICE_SIM_GPU_H

#include "device/device.h"

/* A byte a nanosecond of its own memory; two nanoseconds for a byte up, four for one down. */
#define SIM_GPU_RATES                                                                                           \
    "name = hand\nvram_bytes = 1M\nbandwidth = 1e9\npcie_up = 500e6\npcie_down = 250e6\n"                    \
    "pcie_latency_us = 1\ndispatch_us = 2\nsubmit_us = 20\nwake_us = 10\nflops = 1e12\n"
#define SIM_GPU_EXACT SIM_GPU_RATES "jitter = 0\nseed = 1\nclock = virtual\n"

/* Opens the GPU of this description, with memory and functions as in hth_device_spec. */
hearth_status sim_gpu_open(const char *text, uint64_t memory, hth_shader_ref_fn *const *functions, hth_device **d,
                        hearth_error *err);

#endif
