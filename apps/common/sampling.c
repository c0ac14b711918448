/* The defaults that the help of the options names, and numbers whose meaning differs from the library's. */
#include "common/sampling.h"

#include "common/output.h"

#include <float.h>
#include <string.h>

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

/* ---- of a file ---------------------------------------------------------------------------------- */

static bool number_of(const hearth_metadata *m, double *number)
{
    if (m->type == HEARTH_METADATA_UNSIGNED) *number = (double)m->as_unsigned;
    else if (m->type == HEARTH_METADATA_SIGNED) *number = (double)m->as_signed;
    else if (m->type == HEARTH_METADATA_FLOAT) *number = m->as_float;
    else return false;
    return true;
}

static void take_sequence(const hearth_model *model, hearth_sampler_options *o)
{
    hearth_metadata m = {.size = sizeof m};
    if (hearth_model_find_metadata(model, "general.sampling.sequence", &m) != HEARTH_OK || !m.as_string) return;
    const char *why = sampling_keep(o, m.as_string);
    if (why) print_warning("general.sampling.sequence '%s' is left out: %s", m.as_string, why);
}

void sampling_of_model(const hearth_model *model, hearth_sampler_options *o)
{
    const struct {
        const char *key;
        float *real;
        int32_t *whole;
        double least, most;
    } values[] = {
        {"general.sampling.temp", &o->temperature, NULL, 0.0, 100.0},
        {"general.sampling.top_k", NULL, &o->top_k, -1.0, 4194304.0},
        {"general.sampling.top_p", &o->top_p, NULL, 0.0, 1.0},
        {"general.sampling.min_p", &o->min_p, NULL, 0.0, 1.0},
        {"general.sampling.xtc_probability", &o->xtc_probability, NULL, 0.0, 1.0},
        {"general.sampling.xtc_threshold", &o->xtc_threshold, NULL, 0.0, 1.0},
        {"general.sampling.penalty_last_n", NULL, &o->repeat_last_n, -1.0, 1048576.0},
        {"general.sampling.penalty_repeat", &o->repeat_penalty, NULL, 0.01, 100.0},
        {"general.sampling.mirostat", NULL, &o->mirostat, 0.0, 2.0},
        {"general.sampling.mirostat_tau", &o->mirostat_tau, NULL, 0.01, 100.0},
        {"general.sampling.mirostat_eta", &o->mirostat_eta, NULL, 0.0001, 10.0},
    };
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        hearth_metadata m = {.size = sizeof m};
        double x;
        if (hearth_model_find_metadata(model, values[i].key, &m) != HEARTH_OK || m.type == HEARTH_METADATA_NONE) continue;
        if (!number_of(&m, &x) || !(x >= values[i].least && x <= values[i].most))
            print_warning("%s is left out: expected a number from %g to %g", values[i].key, values[i].least, values[i].most);
        else if (values[i].real) *values[i].real = (float)x;
        else *values[i].whole = (int32_t)x;
    }
    if (o->top_k < 0) o->top_k = 0; /* off */
    take_sequence(model, o);
}

/* ---- lists of samplers ---------------------------------------------------------------------------- */

const char *const sampler_names[N_SAMPLER] = {"penalties", "dry",   "top_n_sigma", "top_k",      "typ_p",
                                              "top_p",     "min_p", "xtc",         "temperature"};

static void turn_off(hearth_sampler_options *o, size_t i)
{
    switch (i) {
    case 0: o->repeat_penalty = 1.0f, o->presence_penalty = o->frequency_penalty = 0.0f; break;
    case 1: o->dry_multiplier = 0.0f; break;
    case 2: o->top_n_sigma = 0.0f; break;
    case 3: o->top_k = 0; break;
    case 4: o->typical_p = 1.0f; break;
    case 5: o->top_p = 1.0f; break;
    case 6: o->min_p = 0.0f; break;
    case 7: o->xtc_probability = 0.0f; break;
    default: o->temperature = 1.0f, o->dynatemp_range = 0.0f; break;
    }
}

const char *sampling_keep(hearth_sampler_options *o, const char *list)
{
    size_t next = 0;
    bool kept[N_SAMPLER] = {false};
    for (const char *p = list; *p; p += strcspn(p, ";"), p += *p == ';') {
        size_t n = strcspn(p, ";"), i = next;
        while (i < N_SAMPLER && (strlen(sampler_names[i]) != n || memcmp(sampler_names[i], p, n) != 0)) i++;
        if (i == N_SAMPLER)
            return "expected some of penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature, in this order";
        kept[i] = true, next = i + 1;
    }
    for (size_t i = 0; i < N_SAMPLER; i++)
        if (!kept[i]) turn_off(o, i);
    return NULL;
}
