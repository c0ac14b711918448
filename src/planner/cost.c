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

/* ---- tokens of several sequences in a step --------------------------------------------------------- */

/* What the seconds of a step depend on beside model and machine. */
typedef struct step {
    uint32_t context, n_seq;
} step;

static step step_of(const hth_plan_options *options, uint32_t context)
{
    return (step){.context = context, .n_seq = options->n_seq > 0 ? options->n_seq : 1};
}

static double power(double x, uint32_t n)
{
    double product = 1;
    for (; n > 0; n /= 2, x *= x)
        if (n % 2 == 1) product *= x;
    return product;
}

/* Least seconds in which a home multiplies weights by the values of all tokens, if each has `bytes` of them. */
static double product_seconds(const hth_plan_tier *h, double bytes, const step *s)
{
    return s->n_seq > 1 && h->product_rate > 0 ? s->n_seq * bytes / h->product_rate : 0;
}

/* The share of a cluster's bytes that any of the tokens reads, neurons of different sequences taken as independent. */
static double read_share(const hth_plan_layer *l, uint32_t i, const step *s)
{
    double rest = 1 - l->whole_share;
    if (s->n_seq == 1) return l->share[i];
    return rest > 0 ? 1 - rest * power((1 - l->share[i]) / rest, s->n_seq) : 1;
}

/* Of n experts, those that any of the tokens chooses, if each chooses so many of them, none oftener than another. */
static double chosen_by_any(uint32_t n, double chosen, const step *s)
{
    if (s->n_seq == 1 || chosen >= n) return chosen;
    return n * (1 - power(1 - chosen / n, s->n_seq));
}

static double sync_seconds(const hth_plan_tier *h, const step *s) { return h->sync_latency + (s->n_seq - 1) * h->sync_more; }

double hth_plan_sync_seconds(const hth_plan_tier *home, const hth_plan_options *options)
{
    const step s = step_of(options, 0);
    return sync_seconds(home, &s);
}

double hth_plan_head_seconds(const hth_plan_model *model, const hth_plan_tier *home, const hth_plan_options *options)
{
    const step s = step_of(options, 0);
    double bytes = (double)model->head_bytes;
    return larger(bytes / whole_rate(home), product_seconds(home, bytes, &s)) + home->dispatch;
}

/* ---- clusters -------------------------------------------------------------------------------- */

static double cluster_seconds(const hth_plan_layer *l, const hth_plan_tier *h, uint32_t i, const step *s)
{
    double bytes = (double)l->cluster_bytes[h->kind], share = larger(read_share(l, i, s), h->min_active_share);
    if (l->has_experts) return bytes * l->share[i] / whole_rate(h);
    return larger(bytes * share / hth_plan_rate(&h->rates, share), product_seconds(h, bytes * l->share[i], s));
}

/* Experts [first, end), all of them a token's. */
static double experts_seconds(const hth_plan_layer *l, const hth_plan_tier *h, uint32_t first, uint32_t end, const step *s)
{
    double chosen = 0, bytes = (double)l->cluster_bytes[h->kind];
    for (uint32_t i = first; i < end; i++) chosen += l->share[i];
    return larger(bytes * chosen_by_any(end - first, chosen, s) / whole_rate(h), product_seconds(h, bytes * chosen, s));
}

/* The probability that the device does not wait for a cluster elsewhere: that no neuron is active, neurons taken as
 * independent. For experts it always waits. */
static double none_active(const hth_plan_layer *l, uint32_t i, const step *s)
{
    double none = 1 - read_share(l, i, s);
    if (l->has_experts) return 0;
    for (int n = HTH_CLUSTER_NEURONS; n > 1; n /= 2) none *= none;
    return none;
}

/* Bytes of keys and values that all tokens read behind the positions of their sequences. */
static double kv_bytes_of(const hth_plan_layer *l, const step *s)
{
    uint64_t seen = (uint64_t)l->kv_window * s->n_seq;
    return (double)l->kv_bytes * (double)(seen > 0 && seen < s->context ? seen : s->context);
}

/* Attention of a device whose keys and values the host has. */
static double trip_seconds(const hth_plan_layer *l, const hth_plan_tier *h, const step *s)
{
    return l->n_trip * sync_seconds(h, s) + s->n_seq * (double)l->trip_bytes / h->way_rate + kv_bytes_of(l, s) / h->kv_rate;
}

static double attention_seconds(const hth_plan_layer *l, const hth_plan_tier *h, const step *s)
{
    bool is_away = h->kind == HTH_PLAN_DEVICE && l->n_trip > 0;
    double idle = (double)l->idle_bytes * power(l->idle_share, s->n_seq - 1), read = (double)l->attention_bytes - idle,
           states = (s->n_seq - 1) * (double)l->moved_bytes, one = (double)(l->attention_bytes - l->idle_bytes - l->moved_bytes),
           seconds = (read + states + (is_away ? 0 : kv_bytes_of(l, s))) / whole_rate(h);
    seconds = larger(seconds, product_seconds(h, one, s));
    if (is_away) seconds += trip_seconds(l, h, s);
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
                                double attention, uint32_t k, const step *s)
{
    return (slots_cost){.attention = attention + device->merge,
                        .beside = l->n_dispatch_beside * device->dispatch,
                        .dispatches = hot_dispatches(l, device, k),
                        .hot = (double)l->cluster_bytes[HTH_PLAN_DEVICE] / whole_rate(device),
                        .latency = sync_seconds(device, s) + sync_seconds(host, s),
                        .cold = (double)l->cluster_bytes[HTH_PLAN_HOST] / whole_rate(host)};
}

/* Of a token with so many experts in slots and so many missing, the host taking longer by `moving`. */
static double device_or_host(const slots_cost *c, double n_hot, double n_miss, double moving)
{
    return larger(c->dispatches + n_hot * c->hot, c->latency + n_miss * c->cold + moving - c->beside);
}

/* Seconds of a layer with k slots: over tokens by how many of their experts have no slot, the longer of device and host. */
static double slots_seconds(const hth_plan_layer *l, const hth_plan_tier *device, const hth_plan_tier *host, double attention,
                            uint32_t k, const step *s)
{
    const slots_cost c = slots_cost_of(l, device, host, attention, k, s);
    double used = 0, missing = 0, seconds = c.attention;
    if (s->n_seq > 1)
        return seconds + larger(c.dispatches + experts_seconds(l, device, 0, k, s),
                                c.latency + experts_seconds(l, host, k, l->n_cluster, s) - c.beside);
    for (uint32_t i = 0; i < l->n_cluster; i++) used += l->share[i], missing += i < k ? 0 : l->share[i];
    if (!l->misses) return seconds + device_or_host(&c, used - missing, missing, 0);
    for (uint32_t m = 0; m <= l->n_used; m++)
        seconds += l->misses[k * (l->n_used + 1) + m] *
                   device_or_host(&c, l->n_used - m, m, moving_seconds(l, device, host, larger(c.attention - c.beside, 0), k, m));
    return seconds;
}

/* Seconds of a layer with k slots on a device that reads missing experts itself, which it does in steps of one token;
 * never: it cannot. */
static double read_seconds(const hth_plan_layer *l, const hth_plan_tier *device, const step *s, uint32_t k)
{
    double used = 0, missing = 0, never = 1e300;
    bool can = s->n_seq == 1 && l->n_spare > 0 && device->read_rate > 0 && k >= 2 * l->n_spare && k < l->n_cluster;
    if (!can) return never;
    for (uint32_t i = 0; i < l->n_cluster; i++) {
        used += l->share[i];
        if (i >= k - l->n_spare) missing += l->share[i];
    }
    return attention_seconds(l, device, s) + (l->n_dispatch_hot + l->n_dispatch_read) * device->dispatch +
           used * (double)l->cluster_bytes[HTH_PLAN_DEVICE] / whole_rate(device) +
           missing * (double)l->cluster_bytes[HTH_PLAN_HOST] / device->read_rate;
}

double hth_plan_slots_seconds(const hth_plan_layer *l, const hth_plan_machine *m, uint32_t n_miss)
{
    const hth_plan_tier *device = m->homes;
    const step one = {.n_seq = 1};
    const slots_cost c = slots_cost_of(l, device, &m->homes[m->n_home - 1], attention_seconds(l, device, &one), 1, &one);
    return c.attention + device_or_host(&c, l->n_used - n_miss, n_miss, 0);
}

double hth_plan_move_seconds(const hth_plan_layer *l, const hth_plan_machine *m)
{
    const hth_plan_tier *device = m->homes;
    double rate = device->read_rate > 0 ? device->read_rate : device->way_rate;
    return (double)l->cluster_bytes[HTH_PLAN_HOST] / rate;
}

/* Attention and all clusters on the host. */
static double cpu_seconds(const hth_plan_layer *l, const hth_plan_tier *host, const step *s)
{
    double seconds = attention_seconds(l, host, s);
    if (l->has_experts && s->n_seq > 1) return seconds + experts_seconds(l, host, 0, l->n_cluster, s);
    for (uint32_t i = 0; i < l->n_cluster; i++) seconds += cluster_seconds(l, host, i, s);
    return seconds;
}

/* The home of attention: seconds of its clusters [first, end); *all: of attention and these. */
static double own_seconds(const hth_plan_layer *l, const hth_plan_tier *h, const step *s, uint32_t first,
                          uint32_t end, double *all)
{
    double attention = attention_seconds(l, h, s), own = h->kind == HTH_PLAN_DEVICE ? 0 : attention;
    if (l->has_experts && s->n_seq > 1) own += experts_seconds(l, h, first, end, s);
    else
        for (uint32_t i = first; i < end; i++) own += cluster_seconds(l, h, i, s);
    own += hot_dispatches(l, h, end - first);
    *all = h->kind == HTH_PLAN_DEVICE ? attention + own : own;
    return h->kind == HTH_PLAN_DEVICE ? own : own - attention;
}

/* Adds clusters [first, end), of a home without attention. */
static void add_clusters(const hth_plan_layer *l, const hth_plan_tier *h, uint32_t first, uint32_t end, const step *s,
                         part *p)
{
    for (uint32_t i = end; i-- > first;)
        p->seconds += cluster_seconds(l, h, i, s), p->none_active *= none_active(l, i, s);
    p->seconds += hot_dispatches(l, h, end - first);
}

/* Seconds of a divided layer. */
static hth_plan_time layer_time(const hth_plan_layer *l, const hth_plan_machine *m, const step *s,
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
            own = own_seconds(l, home, s, first, end, &t.home[h]);
        } else if (end > first) {
            part p = {.home = h, .none_active = 1, .latency = sync_seconds(with_attention, s) + sync_seconds(home, s)};
            add_clusters(l, home, first, end, s, &p);
            t.home[h] = p.seconds;
            parts[n_part++] = p;
        }
        first = end;
    }
    double attention = t.home[d->attention] - own;
    t.total = t.home[d->attention];
    split_time(&t, own, parts, n_part, with_attention->merge);
    if (l->has_experts && n_part > 0 && with_attention->kind == HTH_PLAN_DEVICE)
        t.total = slots_seconds(l, with_attention, &m->homes[m->n_home - 1], attention, d->n_cluster[d->attention], s);
    double read = with_attention->kind == HTH_PLAN_DEVICE
                      ? read_seconds(l, with_attention, s, d->n_cluster[d->attention])
                      : t.total;
    if (read >= t.total) return t;
    hth_plan_time by_reads = {.total = read, .bound = d->attention};
    by_reads.home[d->attention] = read;
    return by_reads;
}

/* Whether the device reads what is missing in a divided layer: the message to the host is not in its time. */
static bool reads(const hth_plan_layer *l, const hth_plan_machine *m, const hth_plan_options *options,
                  const hth_plan_division *d)
{
    const step s = step_of(options, 0);
    const hth_plan_tier *h = &m->homes[d->attention];
    if (!l->has_experts || h->kind != HTH_PLAN_DEVICE) return false;
    double seconds = read_seconds(l, h, &s, d->n_cluster[d->attention]);
    return layer_time(l, m, &s, d).total >= seconds;
}

/* ---- curves ---------------------------------------------------------------------------------- */

/* Sums over the clusters from i on; [n_cluster + 1] each. */
typedef struct suffixes {
    double *cold, *none_active;
} suffixes;

/* The layer with k clusters on the device, and the others on the host. */
static double split_seconds(const hth_plan_layer *l, const hth_plan_roles *r, double attention, double hot,
                            const suffixes *sums, const step *s, uint32_t k)
{
    double own = hot + hot_dispatches(l, r->device, k);
    part p = {.seconds = sums->cold[k], .none_active = sums->none_active[k], .latency = sync_seconds(r->device, s)};
    hth_plan_time t = {.total = attention + own};
    if (l->has_experts && k < l->n_cluster) return slots_seconds(l, r->device, r->host, attention, k, s);
    split_time(&t, own, &p, k < l->n_cluster, r->device->merge);
    return t.total;
}

static void fill_curve(const hth_plan_layer *l, const hth_plan_roles *r, const hth_plan_options *options,
                       const suffixes *sums, hth_plan_curve *out)
{
    const step s = step_of(options, options->context);
    uint32_t n = l->n_cluster, most = n - l->n_beyond;
    double hot = 0, attention = attention_seconds(l, r->device, &s);
    out->cpu = cpu_seconds(l, r->host, &s);
    sums->cold[n] = 0, sums->none_active[n] = 1;
    for (uint32_t i = n; i-- > 0;) {
        sums->cold[i] = sums->cold[i + 1] + cluster_seconds(l, r->host, i, &s);
        sums->none_active[i] = sums->none_active[i + 1] * none_active(l, i, &s);
    }
    for (uint32_t k = 0; k <= n; k++) {
        double own = l->has_experts && s.n_seq > 1 ? experts_seconds(l, r->device, 0, k, &s) : hot,
               split = split_seconds(l, r, attention, own, sums, &s, k), read = read_seconds(l, r->device, &s, k);
        out->seconds[k] = k > most ? out->seconds[most] : read < split ? read : split; /* equal: not taken */
        if (k < n) hot += cluster_seconds(l, r->device, k, &s);
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

static double step_seconds(const hth_plan_model *model, const hth_plan_machine *machine, const hth_plan_options *options,
                           const hth_plan *plan, uint32_t context, hth_plan_time *layers)
{
    const step s = step_of(options, context);
    double seconds = plan->head_seconds + plan->transfer_seconds;
    for (uint32_t l = 0; l < model->n_layer; l++) {
        hth_plan_time t = layer_time(&model->layers[l], machine, &s, &plan->divisions[l]);
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
static void count_devices(const hth_plan_machine *machine, const hth_plan_options *options, hth_plan *p)
{
    for (uint32_t l = 0; l < p->n_layer; l++) {
        uint32_t h = p->divisions[l].attention;
        if (machine->homes[h].kind != HTH_PLAN_DEVICE) return;
        if (l == 0 || p->divisions[l - 1].attention != h)
            p->transfer_seconds += hth_plan_sync_seconds(&machine->homes[h], options);
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
    for (size_t l = 0; st == HEARTH_OK && l < n; l++)
        p.divisions[l].reads = reads(&model->layers[l], machine, options, &divisions[l]);
    if (st == HEARTH_OK) {
        count_bytes(model, machine, options, divisions, head, p.bytes);
        st = check_capacity(machine, &p, err);
    }
    if (st != HEARTH_OK) {
        hth_plan_free(&p);
        return st;
    }
    const hth_plan_tier *host = host_of(machine);
    const step s = step_of(options, options->context);
    p.seconds_cpu = hth_plan_head_seconds(model, host, options);
    for (size_t l = 0; l < n; l++) p.seconds_cpu += cpu_seconds(&model->layers[l], host, &s);
    p.head_seconds =
        hth_plan_head_seconds(model, head ? &machine->homes[divisions[n - 1].attention] : host, options);
    count_devices(machine, options, &p);
    p.seconds = step_seconds(model, machine, options, &p, options->context, p.layers);
    p.seconds_empty = step_seconds(model, machine, options, &p, 0, NULL);
    p.seconds_full = step_seconds(model, machine, options, &p, options->n_ctx, NULL);
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
