/* Windows of 32 steps are compared with the plan. A run counts as the window that was nearest to it: what else uses the
 * machine makes some windows slow, a wrong calibration makes all of them wrong. */
#include "engine/speed_check.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/sample_stats.h"

#include <stdio.h>

void hth_speed_check_expect(hth_speed_check *c, const hth_placement_builder *placed, const hth_kernels *kernels,
                            uint32_t n_thread)
{
    *c = (hth_speed_check){0};
    if (!(placed->seconds_full > 0.0)) return;
    for (uint32_t i = 0; i < placed->n_part; i++)
        if (placed->parts[i].info->kind == HTH_DEVICE_SIMULATED) return;
    c->seconds[0] = placed->seconds_empty, c->seconds[1] = placed->seconds, c->seconds[2] = placed->seconds_full;
    c->n_position = placed->parts[0].params.n_position;
    c->n_thread = hth_pool_default_threads(n_thread);
    c->type = hth_model_row_type(placed->model);
    c->n_device = placed->n_part;
    for (uint32_t i = 0; i < c->n_device; i++) {
        const hth_device_info *info = placed->parts[i].info;
        snprintf(c->devices[i].name, sizeof c->devices[i].name, "%s", info->name);
        c->devices[i].fingerprint = hth_calibration_fingerprint(info, kernels, c->n_thread);
    }
}

double hth_speed_check_expected(const hth_speed_check *c, uint32_t context)
{
    uint32_t half = c->n_position / 2, i = context < half ? 0 : 1, first = i * half;
    double share = (double)(context - first) / (double)(i == 0 ? half : c->n_position - half);
    return c->seconds[i] + (c->seconds[i + 1] - c->seconds[i]) * share;
}

/* By which factor it is away from 1. */
static double distance(double ratio) { return ratio < 1.0 ? 1.0 / ratio : ratio; }

static void keep_nearest(hth_speed_check *c, double ratio)
{
    double last;
    __atomic_load(&c->ratio, &last, __ATOMIC_RELAXED);
    while ((last == 0.0 || distance(ratio) < distance(last)) &&
           !__atomic_compare_exchange(&c->ratio, &last, &ratio, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
}

void hth_speed_check_add(hth_speed_check *c, hth_speed_window *w, uint32_t context, double seconds)
{
    if (c->n_device == 0 || context >= c->n_position || !(seconds > 0.0)) return;
    w->ratios[w->n++] = hth_speed_check_expected(c, context) / seconds;
    if (w->n < HTH_SPEED_WINDOW) return;
    keep_nearest(c, hth_sample_stats_of(w->ratios, w->n).median);
    w->n = 0;
}

void hth_speed_check_report(const hth_speed_check *c)
{
    if (c->ratio == 0.0) return;
    double expected = 1.0 / c->seconds[1];
    for (uint32_t i = 0; i < c->n_device; i++)
        if (hth_calibration_cache_doubt(c->devices[i].fingerprint, c->type, c->ratio))
            hth_log(HEARTH_LOG_INFO,
                    "%s: by its calibration with %s the plan expected %.2f tokens/s, and measured were %.2f (%+.0f %%): "
                    "it is measured again for the next plan",
                    c->devices[i].name, hth_type_find((uint32_t)c->type)->name, expected, expected * c->ratio,
                    100.0 * (c->ratio - 1.0));
}

hth_speed_step hth_speed_begin(hth_speed_check *c)
{
    hth_speed_step step = {.i_step = __atomic_add_fetch(&c->n_begun, 1, __ATOMIC_RELAXED)};
    step.alone = __atomic_add_fetch(&c->n_running, 1, __ATOMIC_RELAXED) == 1;
    step.start_ns = hth_clock_ns();
    return step;
}

void hth_speed_end(hth_speed_check *c, const hth_speed_step *step, hth_speed_window *w, uint32_t context)
{
    double seconds = hth_clock_since(step->start_ns);
    bool alone = step->alone && __atomic_load_n(&c->n_begun, __ATOMIC_RELAXED) == step->i_step;
    __atomic_sub_fetch(&c->n_running, 1, __ATOMIC_RELAXED);
    if (w && alone) hth_speed_check_add(c, w, context, seconds);
}
