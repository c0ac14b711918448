/* The speed with experts on three levels. A plan says how long each layer takes on the GPU, and how long an expert of the
 * host takes, as if all weights were in memory. The replay of storage_plan.h adds the waits for the file. */
#include "cli/device/plan_tiers.h"

#include "base/alloc.h"
#include "base/checked_math.h"
#include "common/options/model_args.h"
#include "common/storage_forecast.h"

/* Arrays of n_layer. */
typedef struct layers {
    uint32_t *n_slot;
    double *always, *expert;
} layers;

/* Takes what a plan says of layer i. */
static void fill_layer(const hth_plan_context *o, uint32_t i, layers *to)
{
    const hth_plan_layer *l = &o->input.layers[i];
    const hth_plan_division *d = &o->best.divisions[i];
    const hth_plan_tier *host = &o->machine.homes[o->machine.n_home - 1];
    double missing = 0.0;
    to->always[i] = o->best.layers[i].total, to->expert[i] = 0.0, to->n_slot[i] = 0;
    if (!l->has_experts) return;
    to->n_slot[i] = d->attention < o->n_part ? d->n_cluster[d->attention] : 0;
    to->expert[i] = (double)l->cluster_bytes[HTH_PLAN_HOST] / host->rates.at[HTH_PLAN_N_KNOT - 1];
    for (uint32_t k = to->n_slot[i]; k < l->n_cluster; k++) missing += l->share[k];
    to->always[i] -= missing * to->expert[i];
    if (to->always[i] < 0.0) to->always[i] = 0.0;
}

/* Bytes on GPUs that take no memory here, but for experts. Embeddings that are the head lie here, too. */
static uint64_t bytes_there(const hth_plan_context *o, bool tied)
{
    uint64_t there = 0;
    for (uint32_t i = 0; i < o->n_part; i++) there += o->best.bytes[i].attention + (tied ? 0 : o->best.bytes[i].head);
    return there;
}

/* Divides a limit without what lies on GPUs, which comes back when they are lost. False: it is too small. */
static bool divide(const hth_plan_context *o, const layers *l, uint64_t there, uint64_t limit, hth_memory_division *d)
{
    uint64_t slots = 0;
    for (uint32_t i = 0; i < o->input.n_layer; i++) {
        slots += o->input.layers[i].cluster_bytes[HTH_PLAN_HOST] * l->n_slot[i];
        for (uint32_t e = 0; e < l->n_slot[i]; e++) d->items.items[d->items.first_expert[i] + e].on_device = true;
    }
    there = hth_min_u64(there, d->matrices - d->tables), slots = hth_min_u64(slots, d->streamed);
    d->matrices -= there, d->streamed -= slots, d->back += there + slots;
    return hth_memory_divide_again(d, limit);
}

static hearth_status predict(const storage_forecast *f, const hth_plan_context *o, plan_tiers *t, hearth_error *err)
{
    const hth_route_trace_spec uniform = {.seed = 1};
    const hth_storage_machine worst = hth_storage_machine_at(&f->machine, HTH_ESTIMATE_WORST),
                              best = hth_storage_machine_at(&f->machine, HTH_ESTIMATE_BEST);
    hth_storage_tokens tokens = f->tokens;
    hth_storage_speed least = {0}, most = {0};
    hearth_status st = hth_storage_predict(f->model, &f->division, &f->machine, &tokens, &t->expected, err);
    if (st == HEARTH_OK) st = hth_storage_predict(f->model, &f->division, &best, &tokens, &most, err);
    if (f->assumed) tokens.route = &uniform;
    if (st == HEARTH_OK) st = hth_storage_predict(f->model, &f->division, &worst, &tokens, &least, err);
    t->least = least.seconds + o->seconds_worst - o->best.seconds;
    t->most = most.seconds + o->seconds_best - o->best.seconds;
    if (t->least < t->expected.seconds) t->least = t->expected.seconds;
    if (t->most > t->expected.seconds) t->most = t->expected.seconds;
    return st;
}

static hearth_status open_forecast(const args *a, const hth_route_trace_spec *spec, uint64_t limit, storage_forecast *f,
                                   hearth_error *err)
{
    hearth_model_options o = wanted_model(a, args_operand(a, 0), 0);
    o.ram = limit;
    if (o.gpu.n_batch == HEARTH_BATCH_AUTO) o.gpu.n_batch = HTH_DEFAULT_BATCH; /* as with a GPU */
    *f = (storage_forecast){.tokens = {.n = FORECAST_TOKENS, .seed = 1}, .assumed = spec == NULL};
    hearth_status st = hth_engine_choose_io(&o, err);
    if (st == HEARTH_OK) st = hth_engine_open_divided(args_operand(a, 0), &o, &f->model, &f->division, err);
    if (st == HEARTH_OK && spec) f->route = *spec;
    else if (st == HEARTH_OK) st = hth_storage_usual_route(f->model, &f->frequency, &f->route, err);
    f->tokens.route = &f->route;
    return st == HEARTH_OK ? hth_storage_machine_measure(f->model, &f->division, o.io, o.n_thread, HTH_CALIBRATION_SIZE,
                                                         &f->machine, err)
                           : st;
}

hearth_status plan_tiers_make(const args *a, const hth_plan_context *o, const hth_route_trace_spec *spec, uint64_t limit,
                              bool tied, plan_tiers *t, hearth_error *err)
{
    uint64_t there = bytes_there(o, tied);
    uint32_t n = o->input.n_layer;
    layers l = {hth_alloc(n, sizeof *l.n_slot), hth_alloc(n, sizeof *l.always), hth_alloc(n, sizeof *l.expert)};
    storage_forecast f = {0};
    hearth_status st = l.n_slot && l.always && l.expert ? open_forecast(a, spec, limit + there, &f, err)
                                                        : hth_fail_memory(err, n * sizeof *l.always, "a plan");
    bool is_refused = st == HEARTH_ERROR_ARGUMENT; /* as a run with this limit is */
    if (st == HEARTH_OK && !f.division.fits) {
        for (uint32_t i = 0; i < n; i++) fill_layer(o, i, &l);
        t->applies = divide(o, &l, there, limit, &f.division) && !f.division.fits;
        const hth_storage_slots slots = {l.n_slot, l.always, l.expert, o->best.head_seconds + o->best.transfer_seconds};
        f.tokens.slots = &slots;
        t->read_rate = f.machine.read_rate.median;
        if (t->applies) st = predict(&f, o, t, err);
        t->applies &= st == HEARTH_OK;
    }
    if (is_refused) st = HEARTH_OK;
    storage_forecast_close(&f);
    hth_free(l.n_slot);
    hth_free(l.always);
    hth_free(l.expert);
    return st;
}

/* ---- output ------------------------------------------------------------------------------------------- */

static double in_memory(const plan_tiers *t) { return (1.0 - t->expected.on_device) * t->expected.hits; }

static double in_file(const plan_tiers *t) { return (1.0 - t->expected.on_device) * (1.0 - t->expected.hits); }

void plan_tiers_print(const plan_tiers *t)
{
    printf("With what is read from storage: %.2f tokens/s (%.2f to %.2f); of a token's experts %.1f %% are on the GPU, %.1f %% in "
           "memory, and %.1f %% are read, %.1f MiB at %.2f GB/s\n",
           tokens_per_second(t->expected.seconds), tokens_per_second(t->least), tokens_per_second(t->most),
           100.0 * t->expected.on_device, 100.0 * in_memory(t), 100.0 * in_file(t), t->expected.read_bytes * 0x1p-20,
           t->read_rate * 1e-9);
}

void plan_tiers_json(json *j, const plan_tiers *t)
{
    json_open(j, "storage", '{');
    json_float(j, "tokens_per_second", tokens_per_second(t->expected.seconds), 6);
    json_float(j, "tokens_per_second_least", tokens_per_second(t->least), 6);
    json_float(j, "tokens_per_second_most", tokens_per_second(t->most), 6);
    json_float(j, "on_device", t->expected.on_device, 6);
    json_float(j, "in_memory", in_memory(t), 6);
    json_float(j, "read", in_file(t), 6);
    json_float(j, "read_bytes", t->expected.read_bytes, 9);
    json_float(j, "disk_bytes_per_second", t->read_rate, 6);
    json_close(j, '}');
}
