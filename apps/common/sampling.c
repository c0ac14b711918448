/* The defaults that the help of the options names, and numbers whose meaning differs from the library's. */
#include "common/sampling.h"

#include <float.h>

hearth_sampler_options sampling_defaults(void)
{
    return (hearth_sampler_options){.temperature = 0.8f,
                                    .top_k = 40,
                                    .typical_p = 1.0f,
                                    .top_p = 0.95f,
                                    .min_p = 0.05f,
                                    .repeat_penalty = 1.0f,
                                    .repeat_last_n = 64,
                                    .xtc_threshold = 0.1f,
                                    .dry_last_n = -1};
}

void sampling_finish(hearth_sampler_options *o)
{
    if (o->typical_p == 0.0f) o->typical_p = FLT_MIN;
    if (o->top_p == 0.0f) o->top_p = FLT_MIN;
    if (o->xtc_threshold == 0.0f) o->xtc_threshold = FLT_MIN;
    if (o->dry_last_n == 0) o->dry_multiplier = 0.0f;
    if (o->repeat_last_n == 0) o->repeat_penalty = o->presence_penalty = o->frequency_penalty = 0.0f;
}
