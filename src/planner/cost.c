/* The cost of a placement: seconds of a token by layer and division, and bytes. The only statement of the
 * cost model (docs/plan.md); the solvers only choose among its values. The simulation of
 * tests/support/planner must not call it. */
#include "planner/plan_int.h"

#include "base/alloc.h"
#include "base/format_bytes.h"

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

static double larger(double a, double b) { return a > b ? a : b; }

static double whole_rate(const hth_plan_tier *h) { return h->rates.at[HTH_PLAN_N_KNOT - 1]; }

double hth_plan_head_seconds(const hth_plan_model *model, const hth_plan_tier *home)
{
    return (double)model->head_bytes / whole_rate(home) + home->dispatch;
}

/* ---- clusters -------------------------------------------------------------------------------- */

static double cluster_seconds(const hth_plan_layer *l, const hth_plan_tier *h, uint32_t i)
{
    double share = l->share[i] > h->min_active_share ? l->share[i] : h->min_active_share;
    if (l->has_experts) return (double)l->cluster_bytes[h->kind] * l->share[i] / whole_rate(h);
    return (double)l->cluster_bytes[h->kind] * share / hth_plan_rate(&h->rates, share);
}

/* The probability that the device does not wait for a cluster elsewhere: that no neuron is active, neurons taken as
 * independent. For experts it always waits. */
static double none_active(const hth_plan_layer *l, uint32_t i)
{
    double none = 1 - l->share[i];
    if (l->has_experts) return 0;
    for (int n = HTH_CLUSTER_NEURONS; n > 1; n /= 2) none *= none;
    return none;
}

/* Bytes of keys and values that a token reads behind `context` positions. */
static double kv_read(const hth_plan_layer *l, uint32_t context)
{
    return (double)l->kv_bytes * (l->kv_window > 0 && l->kv_window < context ? l->kv_window : context);
}

/* Attention of a device whose keys and values the host has. */
static double trip_seconds(const hth_plan_layer *l, const hth_plan_tier *h, uint32_t context)
{
    return l->n_trip * h->sync_latency + (double)l->trip_bytes / h->way_rate + kv_read(l, context) / h->kv_rate;
}

static double attention_seconds(const hth_plan_layer *l, const hth_plan_tier *h, uint32_t context)
{
    bool is_away = h->kind == HTH_PLAN_DEVICE && l->n_trip > 0;
    double seconds =
        ((double)(l->attention_bytes - l->idle_bytes) + (is_away ? 0 : kv_read(l, context))) / whole_rate(h);
    if (is_away) seconds += trip_seconds(l, h, context);
    return h->kind == HTH_PLAN_DEVICE ? seconds + l->n_dispatch * h->dispatch : seconds;
}

static double hot_dispatches(const hth_plan_layer *l, const hth_plan_tier *h, uint32_t n_cluster)
{
    return h->kind == HTH_PLAN_DEVICE && n_cluster > 0 ? l->n_dispatch_hot * h->dispatch : 0;
}

/* ---- one layer ------------------------------------------------------------------------------- */

/* The clusters of a home that does not have the layer's attention. */
typedef struct part {
    uint32_t home;
    double seconds;     /* expected */
    double none_active; /* the probability that none of its neurons is active */
    double latency;     /* seconds: values to that home and back */
} part;

/* Adds the parts of other homes to t, which holds attention and the clusters of its home: `own` seconds of
 * these. A layer without active neurons elsewhere does not wait; else it waits for the latest. */
static void split_time(hth_plan_time *t, double own, const part *parts, uint32_t n_part, double merge)
{
    double no_part_active = 1, max_wait = 0;
    for (uint32_t i = 0; i < n_part; i++) {
        const part *p = &parts[i];
        double active = 1 - p->none_active;
        t->merge += merge;
        no_part_active *= p->none_active;
        if (active <= 0) continue;
        t->sync += active * p->latency;
        double wait = p->latency + p->seconds / active - own;
        if (wait <= max_wait) continue;
        max_wait = wait;
        t->bound = active * p->latency > p->seconds ? HTH_PLAN_BOUND_SYNC : p->home;
    }
    t->total += t->merge;
    if (max_wait > 0) t->total += (1 - no_part_active) * max_wait;
}

/* Seconds that the host needs longer for m experts because others move to k slots after the layer before. The link takes
 * its rate of the host's memory, of which at least a quarter is left. `free`: until the host begins, moves cost nothing; those
 * that take longer than a layer go on in the next ones, which are taken to be like this one. */
static double moving_seconds(const hth_plan_layer *l, const hth_plan_tier *device, const hth_plan_tier *host, double free,
                             uint32_t k, double m)
{
    double rate = whole_rate(host), left = larger(rate - device->read_rate, rate / 4), both = 0,
           bytes = (double)l->cluster_bytes[HTH_PLAN_HOST], busy = m * bytes / left, layer = free + busy;
    if (!l->moves || device->read_rate <= 0 || busy <= 0) return 0;
    for (uint32_t n = 1; n < HTH_PLAN_N_MOVE; n++) {
        double seconds = n * bytes / device->read_rate;
        uint64_t n_layer = (uint64_t)(seconds / layer);
        both += l->moves[k * HTH_PLAN_N_MOVE + n] *
                ((double)n_layer * busy + larger(seconds - (double)n_layer * layer - free, 0));
    }
    return both * (1 - left / rate);
}

/* A layer with slots on a device whose other experts are on the host, for which the device waits in every token. */
typedef struct slots_cost {
    double attention, beside; /* beside: of the shared expert, while the device waits */
    double dispatches, hot, latency, cold; /* hot, cold: of an expert */
} slots_cost;

static slots_cost slots_cost_of(const hth_plan_layer *l, const hth_plan_tier *device, const hth_plan_tier *host,
                                double attention, uint32_t k)
{
    return (slots_cost){.attention = attention + device->merge,
                        .beside = l->n_dispatch_beside * device->dispatch,
                        .dispatches = hot_dispatches(l, device, k),
                        .hot = (double)l->cluster_bytes[HTH_PLAN_DEVICE] / whole_rate(device),
                        .latency = device->sync_latency + host->sync_latency,
                        .cold = (double)l->cluster_bytes[HTH_PLAN_HOST] / whole_rate(host)};
}

/* Of a token with so many experts in slots and so many missing, the host taking longer by `moving`. */
static double device_or_host(const slots_cost *c, double n_hot, double n_miss, double moving)
{
    return larger(c->dispatches + n_hot * c->hot, c->latency + n_miss * c->cold + moving - c->beside);
}

/* Seconds of a layer with k slots: over tokens by how many of their experts have no slot, the longer of device and host. */
static double slots_seconds(const hth_plan_layer *l, const hth_plan_tier *device, const hth_plan_tier *host, double attention,
                            uint32_t k)
{
    const slots_cost c = slots_cost_of(l, device, host, attention, k);
    double used = 0, missing = 0, seconds = c.attention;
    for (uint32_t i = 0; i < l->n_cluster; i++) used += l->share[i], missing += i < k ? 0 : l->share[i];
    if (!l->misses) return seconds + device_or_host(&c, used - missing, missing, 0);
    for (uint32_t m = 0; m <= l->n_used; m++)
        seconds += l->misses[k * (l->n_used + 1) + m] *
                   device_or_host(&c, l->n_used - m, m, moving_seconds(l, device, host, larger(c.attention - c.beside, 0), k, m));
    return seconds;
}

/* Seconds of a layer with k slots on a device that reads missing experts itself; never: it cannot. */
static double read_seconds(const hth_plan_layer *l, const hth_plan_tier *device, uint32_t context, uint32_t k)
{
    double used = 0, missing = 0, never = 1e300;
    bool can = l->n_spare > 0 && device->read_rate > 0 && k >= 2 * l->n_spare && k < l->n_cluster;
    if (!can) return never;
    for (uint32_t i = 0; i < l->n_cluster; i++) {
        used += l->share[i];
        if (i >= k - l->n_spare) missing += l->share[i];
    }
    return attention_seconds(l, device, context) + (l->n_dispatch_hot + l->n_dispatch_read) * device->dispatch +
           used * (double)l->cluster_bytes[HTH_PLAN_DEVICE] / whole_rate(device) +
           missing * (double)l->cluster_bytes[HTH_PLAN_HOST] / device->read_rate;
}

double hth_plan_slots_seconds(const hth_plan_layer *l, const hth_plan_machine *m, uint32_t n_miss)
{
    const hth_plan_tier *device = m->homes;
    const slots_cost c = slots_cost_of(l, device, &m->homes[m->n_home - 1], attention_seconds(l, device, 0), 1);
    return c.attention + device_or_host(&c, l->n_used - n_miss, n_miss, 0);
}

double hth_plan_move_seconds(const hth_plan_layer *l, const hth_plan_machine *m)
{
    const hth_plan_tier *device = m->homes;
    double rate = device->read_rate > 0 ? device->read_rate : device->way_rate;
    return (double)l->cluster_bytes[HTH_PLAN_HOST] / rate;
}

/* Attention and all clusters on the host. */
static double cpu_seconds(const hth_plan_layer *l, const hth_plan_tier *host, uint32_t context)
{
    double seconds = attention_seconds(l, host, context);
    for (uint32_t i = 0; i < l->n_cluster; i++) seconds += cluster_seconds(l, host, i);
    return seconds;
}

/* The home of attention: seconds of its clusters [first, end); *all: of attention and these. */
static double own_seconds(const hth_plan_layer *l, const hth_plan_tier *h, uint32_t context, uint32_t first,
                          uint32_t end, double *all)
{
    double attention = attention_seconds(l, h, context), own = h->kind == HTH_PLAN_DEVICE ? 0 : attention;
    for (uint32_t i = first; i < end; i++) own += cluster_seconds(l, h, i);
    own += hot_dispatches(l, h, end - first);
    *all = h->kind == HTH_PLAN_DEVICE ? attention + own : own;
    return h->kind == HTH_PLAN_DEVICE ? own : own - attention;
}

/* Adds clusters [first, end), of a home without attention. */
static void add_clusters(const hth_plan_layer *l, const hth_plan_tier *h, uint32_t first, uint32_t end, part *p)
{
    for (uint32_t i = end; i-- > first;)
        p->seconds += cluster_seconds(l, h, i), p->none_active *= none_active(l, i);
    p->seconds += hot_dispatches(l, h, end - first);
}

/* Seconds of a divided layer. */
static hth_plan_time layer_time(const hth_plan_layer *l, const hth_plan_machine *m, uint32_t context,
                                const hth_plan_division *d)
{
    const hth_plan_tier *with_attention = &m->homes[d->attention];
    hth_plan_time t = {.bound = d->attention};
    part parts[HTH_PLAN_MAX_HOME] = {0};
    uint32_t n_part = 0, first = 0;
    double own = 0;
    for (uint32_t h = 0; h < m->n_home; h++) {
        const hth_plan_tier *home = &m->homes[h];
        uint32_t end = first + d->n_cluster[h];
        if (h == d->attention) {
            own = own_seconds(l, home, context, first, end, &t.home[h]);
        } else if (end > first) {
            part p = {.home = h, .none_active = 1, .latency = with_attention->sync_latency + home->sync_latency};
            add_clusters(l, home, first, end, &p);
            t.home[h] = p.seconds;
            parts[n_part++] = p;
        }
        first = end;
    }
    double attention = t.home[d->attention] - own;
    t.total = t.home[d->attention];
    split_time(&t, own, parts, n_part, with_attention->merge);
    if (l->has_experts && n_part > 0 && with_attention->kind == HTH_PLAN_DEVICE)
        t.total = slots_seconds(l, with_attention, &m->homes[m->n_home - 1], attention, d->n_cluster[d->attention]);
    double read = with_attention->kind == HTH_PLAN_DEVICE
                      ? read_seconds(l, with_attention, context, d->n_cluster[d->attention])
                      : t.total;
    if (read >= t.total) return t;
    hth_plan_time by_reads = {.total = read, .bound = d->attention};
    by_reads.home[d->attention] = read;
    return by_reads;
}

/* Whether the device reads what is missing in a divided layer: the message to the host is not in its time. */
static bool reads(const hth_plan_layer *l, const hth_plan_machine *m, const hth_plan_division *d)
{
    const hth_plan_tier *h = &m->homes[d->attention];
    if (!l->has_experts || h->kind != HTH_PLAN_DEVICE) return false;
    double seconds = read_seconds(l, h, 0, d->n_cluster[d->attention]);
    return layer_time(l, m, 0, d).total >= seconds;
}

/* ---- curves ---------------------------------------------------------------------------------- */

/* Sums over the clusters from i on; [n_cluster + 1] each. */
typedef struct suffixes {
    double *cold, *none_active;
} suffixes;

/* The layer with k clusters on the device, and the others on the host. */
static double split_seconds(const hth_plan_layer *l, const hth_plan_roles *r, double attention, double hot,
                            const suffixes *s, uint32_t k)
{
    double own = hot + hot_dispatches(l, r->device, k);
    part p = {.seconds = s->cold[k], .none_active = s->none_active[k], .latency = r->device->sync_latency};
    hth_plan_time t = {.total = attention + own};
    if (l->has_experts && k < l->n_cluster) return slots_seconds(l, r->device, r->host, attention, k);
    split_time(&t, own, &p, k < l->n_cluster, r->device->merge);
    return t.total;
}

static void fill_curve(const hth_plan_layer *l, const hth_plan_roles *r, const hth_plan_options *options,
                       const suffixes *s, hth_plan_curve *out)
{
    uint32_t n = l->n_cluster, most = n - l->n_beyond;
    double hot = 0, attention = attention_seconds(l, r->device, options->context);
    out->cpu = cpu_seconds(l, r->host, options->context);
    s->cold[n] = 0, s->none_active[n] = 1;
    for (uint32_t i = n; i-- > 0;) {
        s->cold[i] = s->cold[i + 1] + cluster_seconds(l, r->host, i);
        s->none_active[i] = s->none_active[i + 1] * none_active(l, i);
    }
    for (uint32_t k = 0; k <= n; k++) {
        double split = split_seconds(l, r, attention, hot, s, k), read = read_seconds(l, r->device, options->context, k);
        out->seconds[k] = k > most ? out->seconds[most] : read < split ? read : split; /* equal: not taken */
        if (k < n) hot += cluster_seconds(l, r->device, k);
    }
}

hearth_status hth_plan_curves(const hth_plan_model *model, const hth_plan_roles *roles,
                              const hth_plan_options *options, hth_plan_curve **out, hearth_error *err)
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
    suffixes s = {workspace, workspace + max};
    for (uint32_t l = 0; l < model->n_layer; l++) {
        curves[l].seconds = values;
        fill_curve(&model->layers[l], roles, options, &s, &curves[l]);
        values += model->layers[l].n_cluster + 1;
    }
    *out = curves;
    return HEARTH_OK;
}

void hth_plan_curves_free(hth_plan_curve *curves) { hth_free(curves); }

/* ---- bytes ----------------------------------------------------------------------------------- */

uint64_t hth_plan_layer_bytes(const hth_plan_layer *l, const hth_plan_options *options, uint32_t k)
{
    uint64_t kv = l->n_trip > 0 ? 0 : l->kv_bytes * options->n_ctx;
    return l->attention_bytes + l->state_bytes + kv + l->cluster_bytes[HTH_PLAN_DEVICE] * k;
}

uint64_t hth_plan_units(uint64_t bytes, uint64_t unit) { return bytes / unit + (bytes % unit != 0); }

static void count_layer(const hth_plan_layer *l, const hth_plan_options *options, const hth_plan_division *d,
                        uint32_t i_home, hth_plan_kind kind, hth_plan_bytes *to)
{
    bool attention = d->attention == i_home, has_kv = l->n_trip > 0 ? kind == HTH_PLAN_HOST : attention;
    uint64_t clusters = l->cluster_bytes[kind] * d->n_cluster[i_home],
             caches = (has_kv ? l->kv_bytes * options->n_ctx : 0) +
                      (attention && kind == HTH_PLAN_DEVICE ? l->state_bytes : 0),
             all = clusters + (attention ? l->attention_bytes : 0) + caches;
    if (attention) to->attention += l->attention_bytes;
    to->kv += caches;
    to->clusters += clusters;
    to->total += kind == HTH_PLAN_DEVICE ? hth_plan_units(all, HTH_PLAN_UNIT) * HTH_PLAN_UNIT : all;
}

/* Bytes of a valid placement by home. */
static void count_bytes(const hth_plan_model *model, const hth_plan_machine *machine,
                        const hth_plan_options *options, const hth_plan_division *divisions, bool head,
                        hth_plan_bytes bytes[HTH_PLAN_MAX_HOME])
{
    for (uint32_t h = 0; h < machine->n_home; h++) {
        const hth_plan_tier *home = &machine->homes[h];
        bool is_host = home->kind == HTH_PLAN_HOST, used = is_host;
        hth_plan_bytes *b = &bytes[h];
        *b = (hth_plan_bytes){0};
        for (uint32_t l = 0; l < model->n_layer; l++) {
            count_layer(&model->layers[l], options, &divisions[l], h, home->kind, b);
            used = used || divisions[l].attention == h || divisions[l].n_cluster[h] > 0;
        }
        if (head ? h == divisions[model->n_layer - 1].attention : is_host) b->head = model->head_bytes;
        if (used) b->fixed = home->fixed_bytes;
        b->total += b->fixed + b->head;
    }
}

/* ---- a whole placement ----------------------------------------------------------------------- */

static double token_seconds(const hth_plan_model *model, const hth_plan_machine *machine,
                            const hth_plan *plan, uint32_t context, hth_plan_time *layers)
{
    double seconds = plan->head_seconds + plan->transfer_seconds;
    for (uint32_t l = 0; l < model->n_layer; l++) {
        hth_plan_time t = layer_time(&model->layers[l], machine, context, &plan->divisions[l]);
        if (layers) layers[l] = t;
        seconds += t.total;
    }
    return seconds;
}

static hearth_status check_divisions(const hth_plan_model *model, const hth_plan_machine *machine,
                                     const hth_plan *p, hearth_error *err)
{
    uint32_t before = 0;
    for (uint32_t l = 0; l < model->n_layer; l++) {
        const hth_plan_division *d = &p->divisions[l];
        uint64_t n = 0;
        for (uint32_t h = 0; h < machine->n_home; h++) n += d->n_cluster[h];
        if (n != model->layers[l].n_cluster)
            return hth_fail(err, HEARTH_ERROR_ARGUMENT, "layer %u: %llu clusters have a home, but it has %u",
                            l, (unsigned long long)n, model->layers[l].n_cluster);
        if (d->attention >= machine->n_home)
            return hth_fail(err, HEARTH_ERROR_ARGUMENT, "layer %u: attention has no home", l);
        if (d->attention < before)
            return hth_fail(err, HEARTH_ERROR_ARGUMENT,
                            "layer %u has its attention on %s, after a layer on %s", l,
                            machine->homes[d->attention].name, machine->homes[before].name);
        before = d->attention;
    }
    if (p->head && machine->homes[before].kind != HTH_PLAN_DEVICE)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "the head is on a device, but layer %u is not",
                        model->n_layer - 1);
    return HEARTH_OK;
}

static hearth_status check_capacity(const hth_plan_machine *machine, const hth_plan *p, hearth_error *err)
{
    for (uint32_t h = 0; h < machine->n_home; h++)
        if (p->bytes[h].total > machine->homes[h].capacity)
            return hth_fail(err, HEARTH_ERROR_ARGUMENT, "the placement takes %s of %s, but %s are given",
                            hth_format_bytes(p->bytes[h].total).text, machine->homes[h].name,
                            hth_format_bytes(machine->homes[h].capacity).text);
    return HEARTH_OK;
}

static const hth_plan_tier *host_of(const hth_plan_machine *m)
{
    const hth_plan_tier *h = m->homes;
    while (h->kind != HTH_PLAN_HOST) h++;
    return h;
}

/* Counts layers on devices, and the transfers: into and out of each device. */
static void count_devices(const hth_plan_machine *machine, hth_plan *p)
{
    for (uint32_t l = 0; l < p->n_layer; l++) {
        uint32_t h = p->divisions[l].attention;
        if (machine->homes[h].kind != HTH_PLAN_DEVICE) return;
        if (l == 0 || p->divisions[l - 1].attention != h)
            p->transfer_seconds += machine->homes[h].sync_latency;
        p->n_device++;
    }
}

hearth_status hth_plan_evaluate(const hth_plan_model *model, const hth_plan_machine *machine,
                                const hth_plan_options *options, const hth_plan_division *divisions,
                                bool head, hth_plan *out, hearth_error *err)
{
    size_t n = model->n_layer, size = n * (sizeof *out->layers + sizeof *divisions);
    hth_plan p = {.n_layer = model->n_layer, .head = head};
    hearth_status st = hth_plan_validate(model, machine, options, err);
    if (st != HEARTH_OK) return st;
    p.layers = hth_alloc(size, 1);
    if (!p.layers) return hth_fail_memory(err, size, "a plan");
    p.divisions = (hth_plan_division *)(p.layers + n);
    memcpy(p.divisions, divisions, n * sizeof *divisions);
    st = check_divisions(model, machine, &p, err);
    for (size_t l = 0; st == HEARTH_OK && l < n; l++) p.divisions[l].reads = reads(&model->layers[l], machine, &divisions[l]);
    if (st == HEARTH_OK) {
        count_bytes(model, machine, options, divisions, head, p.bytes);
        st = check_capacity(machine, &p, err);
    }
    if (st != HEARTH_OK) {
        hth_plan_free(&p);
        return st;
    }
    const hth_plan_tier *host = host_of(machine);
    p.seconds_cpu = hth_plan_head_seconds(model, host);
    for (size_t l = 0; l < n; l++) p.seconds_cpu += cpu_seconds(&model->layers[l], host, options->context);
    p.head_seconds = hth_plan_head_seconds(model, head ? &machine->homes[divisions[n - 1].attention] : host);
    count_devices(machine, &p);
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

hth_plan_roles hth_plan_find_roles(const hth_plan_machine *m)
{
    static const hth_plan_tier none = {.fixed_bytes = 1, .rates = {{1, 1, 1, 1}}};
    const hth_plan_tier *host = host_of(m);
    return (hth_plan_roles){.device = host > m->homes ? &m->homes[0] : &none,
                            .host = host,
                            .i_host = (uint32_t)(host - m->homes)};
}

hth_plan_division hth_plan_divide(const hth_plan_roles *roles, const hth_plan_layer *layer, int32_t k)
{
    uint32_t hot = k > 0 ? (uint32_t)k : 0;
    hth_plan_division d = {.attention = k == HTH_PLAN_CPU ? roles->i_host : 0, .n_cluster = {hot}};
    d.n_cluster[roles->i_host] = layer->n_cluster - hot;
    return d;
}
