/* The cost of a placement: seconds of a token by layer and number of clusters on the device, and bytes. The only
 * statement of the cost model (docs/plan.md); the solvers only choose among its values. The simulation
 * of tests/support/planner must not call it. */
#include "planner/plan_int.h"

#include "base/alloc.h"
#include "base/format_bytes.h"
#include "base/checked_math.h"

#include <string.h>

const double hth_plan_knots[HTH_PLAN_N_KNOT] = {0.05, 0.2, 0.5, 1.0};

double hth_plan_rate(const hth_plan_rates *rates, double share)
{
    const double *x = hth_plan_knots, *y = rates->at;
    if (share <= x[0]) return y[0];
    for (int i = 1; i < HTH_PLAN_N_KNOT; i++)
        if (share <= x[i]) return y[i - 1] + (y[i] - y[i - 1]) * (share - x[i - 1]) / (x[i] - x[i - 1]);
    return y[HTH_PLAN_N_KNOT - 1];
}

static double whole_rate(const hth_plan_rates *rates) { return rates->at[HTH_PLAN_N_KNOT - 1]; }

/* ---- one layer ------------------------------------------------------------------------------- */

static double attention_seconds(const hth_plan_layer *l, const hth_plan_rates *rates, uint32_t context)
{
    return ((double)l->attention_bytes + (double)l->kv_bytes * context) / whole_rate(rates);
}

static double hot_seconds(const hth_plan_layer *l, const hth_plan_machine *m, uint32_t i)
{
    double share = l->share[i] > m->min_active_share ? l->share[i] : m->min_active_share;
    return (double)l->device_bytes * share / hth_plan_rate(&m->device, share);
}

static double cold_seconds(const hth_plan_layer *l, const hth_plan_machine *m, uint32_t i)
{
    return (double)l->cpu_bytes * l->share[i] / hth_plan_rate(&m->cpu, l->share[i]);
}

/* The probability that no neuron of a cluster is active, neurons taken as independent. */
static double none_active(double share)
{
    double none = 1 - share;
    for (int n = HTH_PLAN_CLUSTER; n > 1; n /= 2) none *= none;
    return none;
}

/* A layer with attention on the device: hot and cold seconds, the probability that no cold neuron is active, and
 * the number of hot clusters. A layer without active cold neurons does not wait. */
static hth_plan_time split_time(const hth_plan_layer *l, const hth_plan_machine *m, uint32_t context,
                                double hot, double cold, double silent, uint32_t k)
{
    hth_plan_time t = {.device = hot + (k > 0 ? l->n_dispatch_hot * m->dispatch : 0), .cpu = cold};
    double fires = 1 - silent;
    t.attention = attention_seconds(l, &m->device, context) + l->n_dispatch * m->dispatch;
    t.total = t.attention + t.device;
    if (k == l->n_cluster) return t;
    t.merge = m->merge;
    t.total += t.merge;
    if (fires <= 0) return t;
    t.sync = fires * m->sync_latency;
    double beyond = m->sync_latency + cold / fires - t.device;
    if (beyond <= 0) return t;
    t.total += fires * beyond;
    t.bottleneck = t.sync > cold ? HTH_PLAN_BOUND_SYNC : HTH_PLAN_BOUND_CPU;
    return t;
}

static hth_plan_time cpu_time(const hth_plan_layer *l, const hth_plan_machine *m, uint32_t context)
{
    double seconds = attention_seconds(l, &m->cpu, context);
    for (uint32_t i = 0; i < l->n_cluster; i++) seconds += cold_seconds(l, m, i);
    return (hth_plan_time){.cpu = seconds, .total = seconds, .bottleneck = HTH_PLAN_BOUND_CPU};
}

static hth_plan_time placed_time(const hth_plan_layer *l, const hth_plan_machine *m, uint32_t context,
                                 int32_t k)
{
    double hot = 0, cold = 0, silent = 1;
    if (k == HTH_PLAN_CPU) return cpu_time(l, m, context);
    for (uint32_t i = 0; i < (uint32_t)k; i++) hot += hot_seconds(l, m, i);
    for (uint32_t i = l->n_cluster; i-- > (uint32_t)k;)
        cold += cold_seconds(l, m, i), silent *= none_active(l->share[i]);
    return split_time(l, m, context, hot, cold, silent, (uint32_t)k);
}

/* ---- curves ---------------------------------------------------------------------------------- */

/* workspace: n_cluster + 1 pairs. */
static void fill_curve(const hth_plan_layer *l, const hth_plan_machine *m, uint32_t context, double *workspace,
                       hth_plan_curve *out)
{
    double *cold = workspace, *silent = workspace + l->n_cluster + 1, hot = 0;
    cold[l->n_cluster] = 0, silent[l->n_cluster] = 1;
    for (uint32_t i = l->n_cluster; i-- > 0;) {
        cold[i] = cold[i + 1] + cold_seconds(l, m, i);
        silent[i] = silent[i + 1] * none_active(l->share[i]);
    }
    for (uint32_t k = 0; k <= l->n_cluster; k++) {
        out->seconds[k] = split_time(l, m, context, hot, cold[k], silent[k], k).total;
        if (k < l->n_cluster) hot += hot_seconds(l, m, k);
    }
    out->cpu = cpu_time(l, m, context).total;
}

hearth_status hth_plan_curves(const hth_plan_model *model, const hth_plan_machine *machine, uint32_t context,
                              hth_plan_curve **out, hearth_error *err)
{
    size_t n_value = 0, max = 0, size;
    for (uint32_t l = 0; l < model->n_layer; l++) {
        size_t n = (size_t)model->layers[l].n_cluster + 1;
        n_value += n;
        if (n > max) max = n;
    }
    size = model->n_layer * sizeof **out + (n_value + 2 * max) * sizeof(double);
    hth_plan_curve *curves = hth_alloc(size, 1);
    if (!curves) return hth_fail_memory(err, size, "the costs of layers");
    double *values = (double *)(curves + model->n_layer), *workspace = values + n_value;
    for (uint32_t l = 0; l < model->n_layer; l++) {
        curves[l].seconds = values;
        fill_curve(&model->layers[l], machine, context, workspace, &curves[l]);
        values += model->layers[l].n_cluster + 1;
    }
    *out = curves;
    return HEARTH_OK;
}

void hth_plan_curves_free(hth_plan_curve *curves) { hth_free(curves); }

uint64_t hth_plan_layer_bytes(const hth_plan_layer *l, const hth_plan_options *options, uint32_t k)
{
    return l->attention_bytes + l->kv_bytes * options->n_ctx + l->device_bytes * k;
}

uint64_t hth_plan_units(uint64_t bytes, uint64_t unit) { return bytes / unit + (bytes % unit != 0); }

double hth_plan_head_seconds(const hth_plan_model *model, const hth_plan_machine *machine, bool on_device)
{
    double bytes = (double)model->head_bytes;
    return on_device ? bytes / whole_rate(&machine->device) + machine->dispatch
                     : bytes / whole_rate(&machine->cpu);
}

double hth_plan_cpu_seconds(const hth_plan_model *model, const hth_plan_machine *machine,
                            const hth_plan_curve *curves)
{
    double seconds = hth_plan_head_seconds(model, machine, false);
    for (uint32_t l = 0; l < model->n_layer; l++) seconds += curves[l].cpu;
    return seconds;
}

/* ---- a whole placement ----------------------------------------------------------------------- */

static double token_seconds(const hth_plan_model *model, const hth_plan_machine *machine,
                            const hth_plan *plan, uint32_t context, hth_plan_time *layers)
{
    double seconds = plan->head_seconds + plan->transfer_seconds;
    for (uint32_t l = 0; l < model->n_layer; l++) {
        hth_plan_time t = placed_time(&model->layers[l], machine, context, plan->n_hot[l]);
        if (layers) layers[l] = t;
        seconds += t.total;
    }
    return seconds;
}

static hearth_status count_bytes(const hth_plan_model *model, const hth_plan_options *options, hth_plan *p,
                                 hearth_error *err)
{
    for (uint32_t l = 0; l < model->n_layer; l++) {
        const hth_plan_layer *layer = &model->layers[l];
        int32_t k = p->n_hot[l];
        if (k < HTH_PLAN_CPU || k > (int64_t)layer->n_cluster)
            return hth_fail(err, HEARTH_ERROR_ARGUMENT, "layer %u: %d clusters on the device of %u", l, k,
                            layer->n_cluster);
        if (k == HTH_PLAN_CPU) continue;
        if (p->n_device < l)
            return hth_fail(err, HEARTH_ERROR_ARGUMENT, "layer %u is on the device after a CPU layer",
                            l);
        p->n_device = l + 1;
        p->attention_bytes += layer->attention_bytes;
        p->kv_bytes += layer->kv_bytes * options->n_ctx;
        p->cluster_bytes += layer->device_bytes * (uint32_t)k;
        p->vram +=
            hth_plan_units(hth_plan_layer_bytes(layer, options, (uint32_t)k), HTH_PLAN_UNIT) * HTH_PLAN_UNIT;
    }
    if (p->head && p->n_device < model->n_layer)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "the head is on the device, but layer %u is not",
                        p->n_device);
    if (p->n_device > 0) p->fixed_bytes = options->fixed_bytes;
    if (p->head) p->head_bytes = model->head_bytes;
    p->vram += p->fixed_bytes + p->head_bytes;
    if (p->vram > options->vram)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "the placement takes %s of the device, but %s are given",
                        hth_format_bytes(p->vram).text, hth_format_bytes(options->vram).text);
    return HEARTH_OK;
}

hearth_status hth_plan_evaluate(const hth_plan_model *model, const hth_plan_machine *machine,
                                const hth_plan_options *options, const int32_t *n_hot, bool head,
                                hth_plan *out, hearth_error *err)
{
    size_t n = model->n_layer, size = n * (sizeof *out->layers + sizeof *n_hot);
    hth_plan p = {.n_layer = model->n_layer, .head = head};
    hearth_status st = hth_plan_validate(model, machine, options, err);
    if (st != HEARTH_OK) return st;
    p.layers = hth_alloc(size, 1);
    if (!p.layers) return hth_fail_memory(err, size, "a plan");
    p.n_hot = (int32_t *)(p.layers + n);
    memcpy(p.n_hot, n_hot, n * sizeof *n_hot);
    st = count_bytes(model, options, &p, err);
    if (st != HEARTH_OK) {
        hth_plan_free(&p);
        return st;
    }
    p.seconds_cpu = hth_plan_head_seconds(model, machine, false);
    for (size_t l = 0; l < n; l++)
        p.seconds_cpu += cpu_time(&model->layers[l], machine, options->context).total;
    p.head_seconds = hth_plan_head_seconds(model, machine, head);
    p.transfer_seconds = p.n_device > 0 ? machine->sync_latency : 0;
    p.seconds = token_seconds(model, machine, &p, options->context, p.layers);
    p.seconds_empty = token_seconds(model, machine, &p, 0, NULL);
    p.seconds_full = token_seconds(model, machine, &p, options->n_ctx, NULL);
    *out = p;
    return HEARTH_OK;
}

void hth_plan_free(hth_plan *plan)
{
    hth_free(plan->layers);
    *plan = (hth_plan){0};
}

/* ---- validation ------------------------------------------------------------------------------ */

enum { MAX_LAYERS = 4096, MAX_CLUSTERS = 1 << 16 };
/* Sums of this many such values stay below 2^63, and as doubles below 2^53 units. */
static const uint64_t max_bytes = (uint64_t)1 << 44;
/* Rates below a byte per second and times above a day are mistakes; sums of the rest are finite. */
static const double least_rate = 1.0, most_rate = 1e18, most_seconds = 86400.0;

static hearth_status check_number(const char *name, double x, double min, double max, hearth_error *err)
{
    if (x >= min && x <= max) return HEARTH_OK; /* false for NaN */
    return hth_fail(err, HEARTH_ERROR_ARGUMENT, "plan: %s is %g; %g to %g is allowed", name, x, min, max);
}

static hearth_status check_rates(const char *name, const hth_plan_rates *rates, hearth_error *err)
{
    hearth_status st = HEARTH_OK;
    for (int i = 0; st == HEARTH_OK && i < HTH_PLAN_N_KNOT; i++)
        st = check_number(name, rates->at[i], least_rate, most_rate, err);
    return st;
}

static hearth_status check_machine(const hth_plan_machine *m, hearth_error *err)
{
    hearth_status st = check_rates("the device's rate", &m->device, err);
    if (st == HEARTH_OK) st = check_rates("the CPU's rate", &m->cpu, err);
    if (st == HEARTH_OK) st = check_number("the floor of shares", m->min_active_share, 0, 1, err);
    if (st == HEARTH_OK) st = check_number("the way between", m->sync_latency, 0, most_seconds, err);
    if (st == HEARTH_OK) st = check_number("a dispatch", m->dispatch, 0, most_seconds, err);
    if (st == HEARTH_OK) st = check_number("a merge", m->merge, 0, most_seconds, err);
    return st;
}

static hearth_status check_layer(const hth_plan_layer *l, uint32_t i, const hth_plan_options *options,
                                 hearth_error *err)
{
    uint64_t clusters, cpu, kv;
    if (l->n_cluster > MAX_CLUSTERS || l->n_dispatch > MAX_CLUSTERS || l->n_dispatch_hot > MAX_CLUSTERS)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT,
                        "plan: layer %u: %u clusters, %u and %u dispatches; at most %d are allowed", i, l->n_cluster,
                        l->n_dispatch, l->n_dispatch_hot, MAX_CLUSTERS);
    if (!hth_mul_u64(l->device_bytes, l->n_cluster, &clusters) ||
        !hth_mul_u64(l->kv_bytes, options->n_ctx, &kv) || !hth_mul_u64(l->cpu_bytes, l->n_cluster, &cpu) ||
        l->attention_bytes > max_bytes || clusters > max_bytes || kv > max_bytes || cpu > max_bytes)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "plan: layer %u holds more than %s of one kind", i,
                        hth_format_bytes(max_bytes).text);
    for (uint32_t k = 0; k < l->n_cluster; k++)
        if (!(l->share[k] >= 0 && l->share[k] <= 1))
            return hth_fail(err, HEARTH_ERROR_ARGUMENT,
                            "plan: layer %u: cluster %u has a share of %g; 0 to 1 is allowed", i, k, l->share[k]);
    return HEARTH_OK;
}

hearth_status hth_plan_validate(const hth_plan_model *model, const hth_plan_machine *machine,
                                const hth_plan_options *options, hearth_error *err)
{
    if (model->n_layer == 0 || model->n_layer > MAX_LAYERS)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "plan: %u layers; 1 to %d are allowed", model->n_layer,
                        MAX_LAYERS);
    if (model->head_bytes > max_bytes || options->fixed_bytes > max_bytes)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT,
                        "plan: %llu bytes of the head, %llu fixed; %llu are the most",
                        (unsigned long long)model->head_bytes, (unsigned long long)options->fixed_bytes,
                        (unsigned long long)max_bytes);
    if (options->context > options->n_ctx)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "plan: a token behind %u positions, but room for %u",
                        options->context, options->n_ctx);
    hearth_status st = check_machine(machine, err);
    for (uint32_t i = 0; st == HEARTH_OK && i < model->n_layer; i++)
        st = check_layer(&model->layers[i], i, options, err);
    return st;
}
