/* The speed to expect of a model with a limit of memory: for hearth plan, and beside measured figures of run and
 * bench. */
#ifndef HEARTH_APPS_COMMON_STORAGE_FORECAST_H
#define HEARTH_APPS_COMMON_STORAGE_FORECAST_H

#include "measure/storage_plan.h"

/* Tokens that are generated, after as many others, if nothing else is asked for. */
enum { FORECAST_TOKENS = 128 };

typedef struct storage_forecast {
    hearth_model *model; /* without its matrices */
    hth_memory_division division;
    hth_storage_machine machine;
    hth_storage_tokens tokens;
    hth_route_trace_spec route; /* the experts of tokens */
    hth_profile *profile;
    double *frequency;
    bool assumed; /* nothing is known of the experts that are used */
    uint32_t n_prompt;
    hth_storage_speed prompt; /* for one prompt token, if n_prompt is not 0 */
    hth_storage_speed expected;
    hth_storage_speed least, most; /* by the slowest and the fastest figures, and assumptions */
} storage_forecast;

typedef struct forecast_options {
    const hth_route_trace_spec *route; /* NULL: an assumption about experts */
    const char *profile;               /* a file of hearth profile; NULL: none */
    uint32_t n;                        /* tokens */
    uint32_t n_prompt, n_batch;        /* tokens of a prompt, and of a step of it; 0: none */
    uint64_t memory;                   /* bytes that the measurement may allocate */
    bool again;                        /* the cores are measured although they were before */
} forecast_options;

/* Opens the model of `path` up to its weights, measures the machine, and predicts the speed. Takes a second, more at
 * the first time. storage_forecast_close closes it, also on failure. As hearth_model_open, which refuses the same
 * limits. */
hearth_status storage_forecast_open(storage_forecast *f, const char *path,
                                    const hearth_model_options *options, const forecast_options *forecast,
                                    hearth_error *err);
void storage_forecast_close(storage_forecast *f);

/* The expected speed in other circumstances. */
hearth_status storage_forecast_at(const storage_forecast *f, const hth_memory_division *division,
                                  const hth_storage_machine *machine, hth_storage_speed *out,
                                  hearth_error *err);

/* Tokens per second; `expected` 0: the model is in memory, or nothing can be said. */
typedef struct expected_speed {
    double expected, least, most;
} expected_speed;

typedef struct storage_expectation {
    expected_speed first, next; /* speed of the first n tokens, which fill the cache, and of the next n */
    bool assumed;               /* the used experts are assumed, not known */
    char why[600];              /* why nothing can be said; "": something is, or the model is in memory */
} storage_expectation;
/* The expected speed of n generated tokens with these options and their memory limit. It is called before the model is
 * opened. */
storage_expectation expect_storage_speed(const char *path, const hearth_model_options *options,
                                         const hth_route_trace_spec *route, uint32_t n);

static inline double tokens_per_second(double seconds) { return seconds > 0.0 ? 1.0 / seconds : 0.0; }

#endif
