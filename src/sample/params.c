/* Defaults and ranges of a sampler's parameters. Called by hth_sampler_open. The ranges exclude values that can
 * only be mistakes, and all that would need unbounded memory or arithmetic. */
#include "sample/params.h"

#include <math.h>

hearth_sampler_options hearth_sampler_defaults(void)
{
    return (hearth_sampler_options){.size = sizeof(hearth_sampler_options)};
}

typedef struct float_range {
    const char *field;
    float value;
    double low, high;
} float_range;

/* NaN is in no range. */
static hearth_status check_float(float_range r, hearth_error *err)
{
    double v = (double)r.value;
    if (v >= r.low && v <= r.high) return HEARTH_OK;
    return hth_fail(err, HEARTH_ERROR_ARGUMENT, "%s is %g; it must lie in %g to %g", r.field, v,
                    r.low, r.high);
}

static hearth_status check_int(const char *field, int64_t value, int64_t low, int64_t high,
                               hearth_error *err)
{
    if (value >= low && value <= high) return HEARTH_OK;
    return hth_fail(err, HEARTH_ERROR_ARGUMENT, "%s is %lld; it must lie in %lld to %lld", field,
                    (long long)value, (long long)low, (long long)high);
}

static hearth_status check_bias(const hearth_sampler_options *p, int32_t n_vocab, hearth_error *err)
{
    if (p->n_bias > 0 && !p->bias)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "bias is NULL, but n_bias is %zu", p->n_bias);
    for (size_t i = 0; i < p->n_bias; i++) {
        if (p->bias[i].id < 0 || p->bias[i].id >= n_vocab)
            return hth_fail(err, HEARTH_ERROR_ARGUMENT,
                            "bias[%zu].id is %d; it must lie in 0 to %d", i, (int)p->bias[i].id,
                            (int)n_vocab - 1);
        if (!(p->bias[i].bias < INFINITY))
            return hth_fail(err, HEARTH_ERROR_ARGUMENT,
                            "bias[%zu].bias is %g; it must be finite, or -infinity to ban", i,
                            (double)p->bias[i].bias);
        if (p->bias[i].reserved[0] || p->bias[i].reserved[1])
            return hth_fail(err, HEARTH_ERROR_ARGUMENT, "bias[%zu].reserved is not zero", i);
    }
    return HEARTH_OK;
}

hearth_status hth_sample_check_params(const hearth_sampler_options *p, int32_t n_vocab,
                                      hearth_error *err)
{
    const float_range floats[] = {
        {"temperature", p->temperature, 0.0, 100.0},
        {"typical_p", p->typical_p, 0.0, 1.0},
        {"top_p", p->top_p, 0.0, 1.0},
        {"min_p", p->min_p, 0.0, 1.0},
        {"repeat_penalty", p->repeat_penalty, p->repeat_penalty == 0.0f ? 0.0 : (double)0.01f, 100.0},
        {"presence_penalty", p->presence_penalty, -100.0, 100.0},
        {"frequency_penalty", p->frequency_penalty, -100.0, 100.0},
        {"top_n_sigma", p->top_n_sigma, 0.0, 1000.0},
        {"xtc_probability", p->xtc_probability, 0.0, 1.0},
        {"xtc_threshold", p->xtc_threshold, 0.0, 1.0},
        {"dynatemp_range", p->dynatemp_range, 0.0, 100.0},
        {"dynatemp_exponent", p->dynatemp_exponent, 0.0, 100.0},
        {"dry_multiplier", p->dry_multiplier, 0.0, 1000.0},
        {"dry_base", p->dry_base, p->dry_base == 0.0f ? 0.0 : 1.0, 100.0},
        {"mirostat_tau", p->mirostat_tau, 0.0, 100.0},
        {"mirostat_eta", p->mirostat_eta, 0.0, 10.0},
    };
    hearth_status status = check_int("n_vocab", n_vocab, 1, INT32_MAX, err);
    for (size_t i = 0; i < sizeof floats / sizeof *floats && status == HEARTH_OK; i++)
        status = check_float(floats[i], err);
    if (status == HEARTH_OK) status = check_int("top_k", p->top_k, 0, INT32_MAX, err);
    if (status == HEARTH_OK)
        status = check_int("repeat_last_n", p->repeat_last_n, -1, HTH_SAMPLER_MAX_LAST_N, err);
    if (status == HEARTH_OK) status = check_int("dry_last_n", p->dry_last_n, -1, HTH_SAMPLER_MAX_LAST_N, err);
    if (status == HEARTH_OK)
        status = check_int("dry_allowed_length", p->dry_allowed_length, 0, HTH_SAMPLER_MAX_LAST_N, err);
    if (status == HEARTH_OK) status = check_int("mirostat", p->mirostat, 0, 2, err);
    if (status == HEARTH_OK && p->n_dry_breaker > 0 && !p->dry_breakers)
        status = hth_fail(err, HEARTH_ERROR_ARGUMENT, "dry_breakers is NULL, but n_dry_breaker is %zu", p->n_dry_breaker);
    for (size_t i = 0; i < p->n_dry_breaker && status == HEARTH_OK; i++)
        if (!p->dry_breakers[i])
            status = hth_fail(err, HEARTH_ERROR_ARGUMENT, "dry_breakers[%zu] is NULL", i);
    return status == HEARTH_OK ? check_bias(p, n_vocab, err) : status;
}
