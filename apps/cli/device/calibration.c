/* Writes the figures of a calibration; docs/bench.md lists them. */
#define _GNU_SOURCE
#include "cli/device/calibration.h"

#include <time.h>

static void print_rate(json *j, const char *key, const hth_sample_stats *s)
{
    json_open(j, key, '{');
    json_float(j, "median", s->median, 6);
    json_float(j, "min", s->min, 6);
    json_float(j, "max", s->max, 6);
    json_close(j, '}');
}

void print_calibration_date(const char *what, int64_t measured_at)
{
    const time_t at = (time_t)measured_at;
    struct tm local;
    char text[40];
    if (!localtime_r(&at, &local) || strftime(text, sizeof text, "%Y-%m-%d %H:%M", &local) == 0) return;
    printf("%s measured %s; if other programs were running then, --again measures again\n", what, text);
}

void json_calibration(json *j, const char *key, const hth_calibration *c)
{
    json_open(j, key, '{');
    json_word(j, "type", hth_type_find((uint32_t)c->type)->name);
    json_uint(j, "measured_bytes", c->bytes);
    print_rate(j, "device_bytes_per_second", &c->device_rate);
    print_rate(j, "cpu_bytes_per_second", &c->cpu_rate);
    json_open_compact(j, "cpu_neuron_bytes_per_second", '[');
    for (int i = 0; i < HTH_PLAN_N_KNOT; i++) json_float(j, NULL, c->cpu_down[i], 6);
    json_close(j, ']');
    json_float(j, "queued_seconds", c->sync_latency[HTH_SUBMIT_UPFRONT], 6);
    json_float(j, "queued_seconds_99", c->sync_latency_99[HTH_SUBMIT_UPFRONT], 6);
    json_float(j, "submitted_seconds", c->sync_latency[HTH_SUBMIT_ON_DEMAND], 6);
    json_float(j, "submitted_seconds_99", c->sync_latency_99[HTH_SUBMIT_ON_DEMAND], 6);
    json_float(j, "dispatch_seconds", c->dispatch, 6);
    json_float(j, "up_bytes_per_second", c->h2d_rate, 6);
    json_float(j, "down_bytes_per_second", c->d2h_rate, 6);
    if (c->read_rate > 0.0) json_float(j, "read_bytes_per_second", c->read_rate, 6);
    json_float(j, "device_prompt_bytes_tokens_per_second", c->device_prompt, 6);
    json_float(j, "cpu_prompt_bytes_tokens_per_second", c->cpu_prompt, 6);
    json_float(j, "staged_bytes_per_second", c->pack_rate, 6);
    json_int(j, "measured_at", c->measured_at);
    json_close(j, '}');
}
