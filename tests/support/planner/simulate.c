/* Simulates tokens through a placement in virtual time: activations are drawn, device and CPU each have a clock,
 * and data that one needs from the other advances its clock. It uses nothing of cost.c but the machine's rates, so
 * that the comparison with it is independent. */
#include "support/planner/plan_reference.h"

enum { N_PROBE = 200 };

/* ---- draws ----------------------------------------------------------------------------------- */

/* splitmix64 (Steele, Lea and Flood, 2014). */
static uint64_t next(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

static double unit(uint64_t *state) { return (double)(next(state) >> 11) * 0x1p-53; }

/* Active neurons of a cluster, each of its 256 with this probability. Two draws of 32 bits from one number. */
static uint32_t draw_cluster(uint64_t *state, double chance)
{
    uint32_t n = 0;
    if (chance <= 0) return 0;
    if (chance >= 1) return HTH_CLUSTER_NEURONS;
    uint64_t below = (uint64_t)(chance * 0x1p32);
    for (int i = 0; i < HTH_CLUSTER_NEURONS / 2; i++) {
        uint64_t z = next(state);
        n += (z & UINT32_MAX) < below;
        n += z >> 32 < below;
    }
    return n;
}

/* ---- transfers ------------------------------------------------------------------------------- */

/* When the host has what the device wrote at `now`, and the reverse. */
static double d2h_time(const hth_plan_link *link, double now, uint64_t bytes, uint64_t *state)
{
    return now + link->latency + (double)bytes / link->d2h_rate + link->wake + link->jitter * unit(state);
}

static double h2d_time(const hth_plan_link *link, double now, uint64_t bytes, uint64_t *state)
{
    return now + link->submit + link->latency + (double)bytes / link->h2d_rate + link->jitter * unit(state);
}

double hth_plan_probe(const hth_plan_link *link, uint64_t d2h_bytes, uint64_t h2d_bytes, uint64_t seed)
{
    double sorted[N_PROBE];
    for (int n = 0; n < N_PROBE; n++) {
        double x = h2d_time(link, d2h_time(link, 0, d2h_bytes, &seed), h2d_bytes, &seed);
        int i = n;
        for (; i > 0 && sorted[i - 1] > x; i--) sorted[i] = sorted[i - 1];
        sorted[i] = x;
    }
    return (sorted[N_PROBE / 2 - 1] + sorted[N_PROBE / 2]) / 2;
}

/* ---- a token --------------------------------------------------------------------------------- */

typedef struct sim_state {
    const hth_plan_model *model;
    const hth_plan_tier *gpu, *host;
    const hth_plan_link *link;
    uint32_t context;
    uint64_t state;
    double factor;      /* of this token's shares */
    double device, cpu; /* the clocks */
    double device_busy, cpu_busy;
    double split_busy,
        both; /* CPU time at split layers, and the part of it during which the device computes */
    uint64_t n_sync;
} sim_state;

static double stream(const hth_plan_tier *h, uint64_t bytes)
{
    return (double)bytes / h->rates.at[HTH_PLAN_N_KNOT - 1];
}

/* Computes the active rows of clusters [from, to), and counts the active neurons. */
static double read_active(sim_state *w, const hth_plan_layer *l, uint32_t from, uint32_t to,
                          const hth_plan_tier *h, uint32_t *n_active)
{
    double seconds = 0;
    for (uint32_t i = from; i < to; i++) {
        if (l->has_experts) {
            bool is_chosen = unit(&w->state) < l->share[i];
            *n_active += is_chosen;
            seconds += is_chosen ? stream(h, l->cluster_bytes[h->kind]) : 0;
            continue;
        }
        uint32_t n = draw_cluster(&w->state, l->share[i] < 1 ? l->share[i] * w->factor : 1);
        double share = (double)n / HTH_CLUSTER_NEURONS;
        *n_active += n;
        if (share < h->min_active_share) share = h->min_active_share;
        if (share > 0) seconds += (double)l->cluster_bytes[h->kind] * share / hth_plan_rate(&h->rates, share);
    }
    return seconds;
}

static double shared(double a0, double a1, double b0, double b1)
{
    double from = a0 > b0 ? a0 : b0, to = a1 < b1 ? a1 : b1;
    return to > from ? to - from : 0;
}

static void run_on_device(sim_state *w, double seconds)
{
    w->device += seconds;
    w->device_busy += seconds;
}

static void run_on_cpu(sim_state *w, double seconds)
{
    w->cpu += seconds;
    w->cpu_busy += seconds;
}

static uint64_t attention_bytes(const sim_state *w, const hth_plan_layer *l)
{
    return l->attention_bytes - l->idle_bytes + l->kv_bytes * w->context;
}

/* With its first k clusters on the device. */
static void simulate_device_layer(sim_state *w, const hth_plan_layer *l, uint32_t k)
{
    const hth_plan_tier *gpu = w->gpu;
    uint32_t n_hot = 0, n_cold = 0;
    run_on_device(w, l->n_dispatch * gpu->dispatch + stream(gpu, attention_bytes(w, l)));
    double sent = w->device;
    double hot = read_active(w, l, 0, k, gpu, &n_hot);
    run_on_device(w, hot + (k > 0 ? l->n_dispatch_hot * gpu->dispatch : 0));
    if (k == l->n_cluster) return;
    double cold = read_active(w, l, k, l->n_cluster, w->host, &n_cold);
    if (n_cold > 0 || l->has_experts) {
        double seen = d2h_time(w->link, sent, w->model->d2h_bytes, &w->state);
        if (w->cpu < seen) w->cpu = seen;
        double began = w->cpu;
        run_on_cpu(w, cold);
        w->split_busy += cold;
        w->both += shared(sent, w->device, began, w->cpu);
        double there = h2d_time(w->link, w->cpu, w->model->h2d_bytes, &w->state);
        if (w->device < there) w->device = there;
        w->n_sync++;
    }
    run_on_device(w, gpu->merge);
}

static void simulate_cpu_layer(sim_state *w, const hth_plan_layer *l)
{
    uint32_t n = 0;
    double cold = read_active(w, l, 0, l->n_cluster, w->host, &n);
    run_on_cpu(w, stream(w->host, attention_bytes(w, l)) + cold);
}

/* From the embedding, on the host, to the logits, on the host. Returns the time when they are there. */
static double simulate_token(sim_state *w, const hth_plan *plan)
{
    bool synced = plan->n_device == 0;
    w->device = w->cpu = 0;
    if (!synced) w->device = h2d_time(w->link, 0, w->model->h2d_bytes, &w->state);
    for (uint32_t l = 0; l < plan->n_layer; l++) {
        if (l < plan->n_device) {
            simulate_device_layer(w, &w->model->layers[l], plan->divisions[l].n_cluster[0]);
            continue;
        }
        if (!synced) w->cpu = d2h_time(w->link, w->device, w->model->d2h_bytes, &w->state);
        synced = true;
        simulate_cpu_layer(w, &w->model->layers[l]);
    }
    if (plan->head) run_on_device(w, w->gpu->dispatch + stream(w->gpu, w->model->head_bytes));
    if (!synced) w->cpu = d2h_time(w->link, w->device, w->model->d2h_bytes, &w->state);
    if (!plan->head) run_on_cpu(w, stream(w->host, w->model->head_bytes));
    return w->cpu;
}

/* ---- many tokens ----------------------------------------------------------------------------- */

/* Newton's method from above; the values fall until rounding stops them. */
static double root(double x)
{
    double y = x > 1 ? x : 1;
    if (x <= 0) return 0;
    for (;;) {
        double better = (y + x / y) / 2;
        if (better >= y) return y;
        y = better;
    }
}

static hearth_status check(const hth_plan_model *model, const hth_plan_machine *machine,
                           const hth_plan_link *link, const hth_plan *plan, const hth_plan_simulation *how,
                           hearth_error *err)
{
    const double values[] = {link->submit, link->wake, link->latency, link->jitter};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        if (!(values[i] >= 0 && values[i] <= 1))
            return hth_fail(err, HEARTH_ERROR_ARGUMENT, "simulation: %g s to cross; 0 to 1 is allowed",
                            values[i]);
    if (!(link->d2h_rate >= 1 && link->h2d_rate >= 1))
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "simulation: a bus of %g and %g bytes a second",
                        link->d2h_rate, link->h2d_rate);
    if (!(how->variation >= 0 && how->variation <= 1) || how->n_token == 0)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "simulation: %u tokens with a variation of %g",
                        how->n_token, how->variation);
    if (machine->n_home != 2)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "simulation: of a device and a host only");
    if (plan->n_layer != model->n_layer)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "simulation: a plan of %u layers for a model of %u",
                        plan->n_layer, model->n_layer);
    return HEARTH_OK;
}

hearth_status hth_plan_simulate(const hth_plan_model *model, const hth_plan_machine *machine,
                                const hth_plan_link *link, const hth_plan_options *options,
                                const hth_plan *plan, const hth_plan_simulation *how, hth_plan_simulated *out,
                                hearth_error *err)
{
    sim_state w = {.model = model,
                   .gpu = &machine->homes[0],
                   .host = &machine->homes[1],
                   .link = link,
                   .context = options->context,
                   .state = how->seed};
    double sum = 0, squares = 0;
    *out = (hth_plan_simulated){0};
    hearth_status st = hth_plan_validate(model, machine, options, err);
    if (st == HEARTH_OK) st = check(model, machine, link, plan, how, err);
    if (st != HEARTH_OK) return st;
    for (uint32_t i = 0; i < how->n_token; i++) {
        w.factor = 1 + how->variation * (2 * unit(&w.state) - 1);
        double seconds = simulate_token(&w, plan);
        sum += seconds;
        squares += seconds * seconds;
        if (i == 0 || seconds < out->min) out->min = seconds;
        if (seconds > out->max) out->max = seconds;
    }
    double n = how->n_token;
    out->seconds = sum / n;
    out->deviation = root(squares / n - out->seconds * out->seconds);
    out->device_busy = w.device_busy / n;
    out->cpu_busy = w.cpu_busy / n;
    out->overlap = w.split_busy > 0 ? w.both / w.split_busy : 0;
    out->n_sync = (double)w.n_sync / n;
    return HEARTH_OK;
}
