/* Asks src/measure/storage_plan.h for the expected speed, and for the least and the most. */
#define _GNU_SOURCE
#include "common/storage_forecast.h"
#include "common/options/field_names.h"

#include "base/alloc.h"
#include "device/device.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* Part of the experts that a router names for the next layer, at best (docs/plan.md). */
#define GOOD_FORESIGHT 0.8

hearth_status storage_forecast_at(const storage_forecast *f, const hth_memory_division *division,
                                  const hth_storage_machine *machine, hth_storage_speed *out,
                                  hearth_error *err)
{
    return hth_storage_predict(f->model, division, machine, &f->tokens, out, err);
}

/* With other experts than expected, if these are an assumption. */
static hearth_status predict_range(const storage_forecast *f, hth_estimate estimate,
                                   const hth_route_trace_spec *route, hth_storage_speed *out,
                                   hearth_error *err)
{
    const hth_storage_machine machine = hth_storage_machine_at(&f->machine, estimate);
    hth_storage_tokens tokens = f->tokens;
    if (f->assumed) tokens.route = route;
    return hth_storage_predict(f->model, &f->division, &machine, &tokens, out, err);
}

static void limit_range(double expected, double *least, double *most)
{
    if (*most > expected) *most = expected;
    if (*least < expected) *least = expected;
}

static hearth_status predict(storage_forecast *f, hearth_error *err)
{
    const hth_route_trace_spec uniform = {.seed = 1};
    hth_route_trace_spec foreseen = f->route;
    foreseen.foreseen = GOOD_FORESIGHT;
    hearth_status st = storage_forecast_at(f, &f->division, &f->machine, &f->expected, err);
    if (st == HEARTH_OK) st = predict_range(f, HTH_ESTIMATE_WORST, &uniform, &f->least, err);
    if (st == HEARTH_OK) st = predict_range(f, HTH_ESTIMATE_BEST, &foreseen, &f->most, err);
    if (st != HEARTH_OK) return st;
    /* In a small cache right guesses can cost more than they save. */
    limit_range(f->expected.seconds, &f->least.seconds, &f->most.seconds);
    limit_range(f->expected.first_seconds, &f->least.first_seconds, &f->most.first_seconds);
    return HEARTH_OK;
}

static hearth_status predict_prompt(storage_forecast *f, const forecast_options *o, hearth_error *err)
{
    hth_storage_tokens tokens = f->tokens;
    tokens.n = f->n_prompt = o->n_prompt;
    tokens.n_together = o->n_batch == HEARTH_BATCH_AUTO ? f->model->n_batch : o->n_batch;
    return hth_storage_predict(f->model, &f->division, &f->machine, &tokens, &f->prompt, err);
}

hearth_status storage_forecast_open(storage_forecast *f, const char *path,
                                    const hearth_model_options *options, const forecast_options *forecast,
                                    hearth_error *err)
{
    const hth_route_trace_spec *route = forecast->route;
    hearth_model_options o = *options;
    *f = (storage_forecast){.tokens = {.n = forecast->n, .seed = 1}};
    hearth_status st = hth_engine_choose_io(&o, err);
    if (st == HEARTH_OK) st = hth_engine_open_divided(path, &o, &f->model, &f->division, err);
    if (st != HEARTH_OK) return st;
    if (forecast->again)
        hth_calibration_cache_evict_others(
            hth_calibration_cpu_fingerprint(&f->model->kernels, hth_pool_default_threads(o.n_thread)), NULL, 0);
    if (forecast->profile) st = hth_profile_open(forecast->profile, f->model->model, &f->profile, err);
    f->tokens.profile = f->profile;
    bool has_experts = f->model->model->hparams.experts.n_expert > 0;
    f->assumed = has_experts && !route;
    if (route) f->route = *route;
    else if (has_experts && st == HEARTH_OK)
        st = hth_storage_usual_route(f->model, &f->frequency, &f->route, err);
    if (route || has_experts) f->tokens.route = &f->route;
    if (st == HEARTH_OK)
        st = hth_storage_machine_measure(f->model, &f->division, o.io, o.n_thread, forecast->memory,
                                         &f->machine, err);
    if (st == HEARTH_OK) st = predict(f, err);
    return st == HEARTH_OK && forecast->n_prompt > 0 ? predict_prompt(f, forecast, err) : st;
}

void storage_forecast_close(storage_forecast *f)
{
    hth_memory_division_free(&f->division);
    hth_profile_close(f->profile);
    hearth_model_close(f->model);
    hth_free(f->frequency);
    *f = (storage_forecast){0};
}

/* Measuring leaves this part of the limit to the rest of the process. */
enum { MEMORY_PART = 2 };

static expected_speed speed_of(double expected, double least, double most)
{
    return (expected_speed){tokens_per_second(expected), tokens_per_second(least), tokens_per_second(most)};
}

/* Whether a GPU may compute a part of the model. The forecast does not cover GPUs, so nothing is measured then. */
static bool may_use_device(const char *name)
{
    char gpu[32];
    if (!name || strcmp(name, "none") == 0) return false;
    return strcmp(name, "auto") != 0 || hth_device_find_discrete(gpu);
}

static storage_expectation expect(const char *path, const hearth_model_options *options,
                                  const hth_route_trace_spec *route, uint32_t n)
{
    storage_expectation e = {0};
    storage_forecast f;
    hearth_error err;
    const forecast_options forecast = {
        .route = route, .n = n > 0 ? n : 1, .memory = options->ram / MEMORY_PART};
    hearth_log_set(NULL, NULL); /* the process that runs the model says the same */
    if (may_use_device(options->gpu.device)) {
        snprintf(e.why, sizeof e.why, "a part of the model may lie on a GPU");
        return e;
    }
    if (storage_forecast_open(&f, path, options, &forecast, &err) != HEARTH_OK) {
        (void)name_options(e.why, sizeof e.why, err.message);
    } else if (!f.division.fits) {
        e.first = speed_of(f.expected.first_seconds, f.least.first_seconds, f.most.first_seconds);
        e.next = speed_of(f.expected.seconds, f.least.seconds, f.most.seconds);
        e.assumed = f.assumed;
    }
    storage_forecast_close(&f);
    return e;
}

/* In a process of its own: what it allocates must not count in the limit of this one, which has no threads yet. It ends
 * with this one, however that ends. */
storage_expectation expect_storage_speed(const char *path, const hearth_model_options *options,
                                         const hth_route_trace_spec *route, uint32_t n)
{
    storage_expectation e = {0};
    const storage_expectation none = {.why = "the process that measures did not answer"};
    int ends[2];
    if (!path || options->ram == 0 || options->mmap) return e;
    if (pipe(ends) != 0) return none;
    pid_t self = getpid(), child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != self) _exit(1);
        e = expect(path, options, route, n);
        _exit(write(ends[1], &e, sizeof e) == (ssize_t)sizeof e ? 0 : 1);
    }
    close(ends[1]);
    if (child < 0 || read(ends[0], &e, sizeof e) != (ssize_t)sizeof e) e = none;
    close(ends[0]);
    if (child > 0) waitpid(child, NULL, 0);
    return e;
}
