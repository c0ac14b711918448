/* Figures of machines that were not measured, and folders to keep them in. */
#include "support/models/made_up.h"

#include "support/test.h"

hth_calibration made_up_gpu(hth_type type, double faster)
{
    hth_calibration c = {.type = type, .bytes = UINT64_MAX, .dispatch = 1e-9, .h2d_rate = 1e10, .d2h_rate = 1e10};
    c.cpu_rate = (hth_sample_stats){1e9, 0.9e9, 1.1e9};
    c.device_rate = (hth_sample_stats){faster * 1e9, faster * 0.9e9, faster * 1.1e9};
    for (int i = 0; i < HTH_PLAN_N_KNOT; i++) c.cpu_down[i] = 1e9;
    c.device_prompt = c.device_prompts[0] = faster * 1e10, c.cpu_prompt = 1e10, c.pack_rate = 1e10;
    for (int i = 0; i < 2; i++) c.sync_latency[i] = 1e-7 * (2 - i), c.sync_latency_99[i] = 3e-7;
    return c;
}

void made_up_cache_open(char folder[512])
{
    snprintf(folder, 512, "%s", test_scratch("cache"));
    setenv("HEARTH_CACHE", folder, 1);
}

void made_up_cache_close(const char *folder)
{
    char command[600];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    CHECK_INT(system(command), 0);
    setenv("HEARTH_CACHE", "", 1);
}
