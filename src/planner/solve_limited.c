/* The solver where the host's capacity limits: Lagrangian relaxation. A byte on the host has a price in
 * seconds, which the costs of layers contain; at each price the table gives the exact answer, and decides
 * which clusters are on the host and which on storage. The price is bisected until the answer fits; memory
 * that is left is filled. */
#include "planner/solve_int.h"

#include "base/alloc.h"
#include "base/format_bytes.h"

#include <string.h>

/* Prices in seconds per byte: the first one tried, and the last one. */
static const double first_price = 0x1p-40, last_price = 0x1p10;
/* Bisections between two prices: with units so large that the device has at most MAX_UNITS, for speed; then
 * with HTH_PLAN_UNIT, within 1 % of these prices. */
enum { N_BISECTION = 24, MAX_UNITS = 8192, N_LAST_BISECTION = 4 };

/* The next clusters of a layer that move from storage to the host: their number, bytes, and seconds saved per
 * byte. */
typedef struct promotion {
    uint32_t n;
    uint64_t bytes;
    double rate;
} promotion;

typedef struct search {
    const hth_plan_model *model;
    const hth_plan_machine *machine;
    const hth_plan_roles *roles;
    const hth_plan_options *options;
    hth_plan_division *now, *best; /* [n_layer] */
    hth_plan_answer *answers;      /* [n_layer + 2] */
    promotion *promotions;         /* [n_layer] */
    double seconds, bound; /* seconds: time of best, below 0: none fits yet; no placement takes less than bound */
    bool head;             /* best has the head on the device */
    double low, high;      /* prices of a bisection's end */
    uint64_t host, unit;   /* bytes of the last answer on the host; of the unit to begin with */
    uint64_t unit_used;    /* bytes of the last table's unit */
} search;

static uint64_t count_host(const search *s, const hth_plan_division *divisions, bool head)
{
    hth_plan_bytes bytes[HTH_PLAN_MAX_HOME];
    hth_plan_count(s->model, s->machine, s->options, divisions, head, bytes);
    return bytes[s->roles->i_host].total;
}

static double seconds_of(const search *s, uint32_t l, const hth_plan_division *d)
{
    return hth_plan_layer_time(&s->model->layers[l], s->machine, s->options->context, d).total;
}

/* Finds the gain of layer l from moving clusters from storage to the host, up to the next one that is ever read. */
static void find_promotion(search *s, uint32_t l)
{
    const hth_plan_layer *layer = &s->model->layers[l];
    hth_plan_division d = s->now[l];
    promotion *m = &s->promotions[l];
    uint32_t host = s->roles->i_host, n = d.n_cluster[host + 1], first = layer->n_cluster - n;
    *m = (promotion){.n = n > 0};
    if (n == 0) return;
    while (m->n < n && layer->share[first + m->n - 1] <= 0) m->n++;
    d.n_cluster[host] += m->n, d.n_cluster[host + 1] -= m->n;
    m->bytes = layer->cluster_bytes[HTH_PLAN_HOST] * m->n;
    m->rate = (seconds_of(s, l, &s->now[l]) - seconds_of(s, l, &d)) / ((double)m->bytes + 0.5);
}

/* Moves clusters from storage into the host's memory that is left, by seconds per byte. */
static void fill_host(search *s, uint64_t left)
{
    for (uint32_t l = 0; l < s->model->n_layer; l++) find_promotion(s, l);
    for (;;) {
        uint32_t next = 0;
        double rate = 0;
        for (uint32_t l = 0; l < s->model->n_layer; l++) {
            const promotion *m = &s->promotions[l];
            if (m->rate > rate && m->bytes <= left) rate = m->rate, next = l;
        }
        if (rate <= 0) return;
        left -= s->promotions[next].bytes;
        s->now[next].n_cluster[s->roles->i_host] += s->promotions[next].n;
        s->now[next].n_cluster[s->roles->i_host + 1] -= s->promotions[next].n;
        find_promotion(s, next);
    }
}

/* The placement of a candidate becomes the best one, if it fits and is the fastest. */
static void update_best(search *s, const hth_plan_table *t, const hth_plan_answer *b)
{
    uint64_t capacity = s->roles->host->capacity;
    double seconds = hth_plan_head_seconds(s->model, b->head ? s->roles->device : s->roles->host);
    hth_plan_table_divide(t, b, s->now);
    uint64_t used = count_host(s, s->now, b->head);
    if (used > capacity) return;
    if (b->n_device > 0) seconds += s->roles->device->sync_latency;
    if (s->roles->storage) fill_host(s, capacity - used);
    for (uint32_t l = 0; l < s->model->n_layer; l++) seconds += seconds_of(s, l, &s->now[l]);
    if (s->seconds >= 0 && seconds >= s->seconds) return;
    s->seconds = seconds, s->head = b->head;
    memcpy(s->best, s->now, s->model->n_layer * sizeof *s->now);
}

/* The answer at a price: its bytes on the host, and a bound of all placements. all: the fastest of the
 * table's answers may become the best one. An answer's seconds, less the price of the whole capacity, bound
 * the placements with as many layers on the device: those that cannot win are skipped. */
static hearth_status try_price(search *s, double price, bool all, hearth_error *err)
{
    hth_plan_table t = {
        .model = s->model, .roles = s->roles, .request = s->options, .price = price, .unit = s->unit};
    hth_plan_answers c = {.all = s->answers};
    hearth_status st = hth_plan_table_open(&t, err);
    if (st == HEARTH_OK) st = hth_plan_table_fill(&t, s->roles->device->capacity, err);
    if (st == HEARTH_OK) {
        hth_plan_answer b = hth_plan_table_best(&t, s->roles->device->capacity, &c);
        double slack = t.quantum * s->model->n_layer +
                       price * (double)(s->roles->host->capacity - s->roles->host->fixed_bytes);
        if (t.unit == HTH_PLAN_UNIT && b.seconds - slack > s->bound) s->bound = b.seconds - slack;
        if (all) update_best(s, &t, &b);
        for (uint32_t i = 0; all && i < c.n; i++)
            if (s->seconds < 0 || c.all[i].seconds - slack < s->seconds) update_best(s, &t, &c.all[i]);
        hth_plan_table_divide(&t, &b, s->now);
        s->host = count_host(s, s->now, b.head), s->unit_used = t.unit;
    }
    hth_plan_table_close(&t);
    return st;
}

/* Bisects the lowest price at which the answer fits, from `high`, or `factor` times more and more, down. */
static hearth_status bisect(search *s, double low, double high, double factor, int n, hearth_error *err)
{
    uint64_t capacity = s->roles->host->capacity;
    bool is_last = s->unit == HTH_PLAN_UNIT;
    hearth_status st = try_price(s, high, is_last, err);
    while (st == HEARTH_OK && s->host > capacity && high < last_price) {
        low = high, high *= factor;
        st = try_price(s, high, is_last, err);
    }
    s->low = low, s->high = high;
    if (s->host > capacity) return st;
    for (int i = 0; st == HEARTH_OK && i < n; i++) {
        double middle = (low + high) / 2;
        st = try_price(s, middle, i >= n / 4, err);
        if (s->host > capacity) low = middle;
        else high = middle;
    }
    s->low = low, s->high = high;
    return st;
}

/* In large units first, then in small ones, whose answers may need another price. */
static hearth_status find_price(search *s, hearth_error *err)
{
    const hth_plan_tier *host = s->roles->host;
    while (s->roles->device->capacity / s->unit > MAX_UNITS) s->unit *= 2;
    hearth_status st = bisect(s, 0, first_price, 16, N_BISECTION, err);
    s->unit = HTH_PLAN_UNIT;
    if (st == HEARTH_OK) st = bisect(s, s->low * 0.99, s->high * 1.01, 2, N_LAST_BISECTION, err);
    if (st != HEARTH_OK || s->seconds >= 0) return st;
    return hth_fail(err, HEARTH_ERROR_ARGUMENT, "plan: %s: at least %s are needed, but %s are given",
                    host->name, hth_format_bytes(s->host).text, hth_format_bytes(host->capacity).text);
}

hearth_status hth_plan_solve_limited(const hth_plan_model *model, const hth_plan_machine *machine,
                                     const hth_plan_roles *roles, const hth_plan_options *options,
                                     hth_plan *out, hearth_error *err)
{
    search s = {.model = model,
                .machine = machine,
                .roles = roles,
                .options = options,
                .seconds = -1,
                .unit = HTH_PLAN_UNIT};
    size_t n = model->n_layer,
           size = (n + 2) * sizeof *s.answers + n * (sizeof *s.promotions + 2 * sizeof *s.now);
    s.answers = hth_alloc(size, 1);
    if (!s.answers) return hth_fail_memory(err, size, "a plan");
    s.promotions = (promotion *)(s.answers + n + 2);
    s.now = (hth_plan_division *)(s.promotions + n), s.best = s.now + n;
    hearth_status st = find_price(&s, err);
    if (st == HEARTH_OK) st = hth_plan_evaluate(model, machine, options, s.best, s.head, out, err);
    if (st == HEARTH_OK) out->seconds_bound = s.bound, out->unit = s.unit_used;
    hth_free(s.answers);
    return st;
}
