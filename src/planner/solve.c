/* The fastest placement, by dynamic programming over layers and units of memory. A table row holds, for the
 * first l layers, the minimum seconds with at most u units, in whole quanta, so that sums are exact and ties
 * are ties. Only a window of each row is stored: below it more memory is free than all later layers could
 * use, above it more is used than all earlier ones do. A layer's placement takes part only if no smaller one
 * equals it. */
#include "planner/solve_int.h"

#include "base/alloc.h"

/* Largest sum of seconds in quanta, and the value for "does not fit": their sum stays below 2^31. */
static const double max_quanta = 536870912.0;
enum { NO_FIT = 1 << 30, BLOCK = 4096 };
static const uint64_t max_cells = (uint64_t)1 << 26, max_steps = (uint64_t)1 << 33;

/* ---- options --------------------------------------------------------------------------------- */

static uint64_t layer_units(const hth_plan_table *t, uint32_t l, uint32_t k)
{
    return hth_plan_units(hth_plan_layer_bytes(&t->model->layers[l], t->request, k), t->unit);
}

/* The best option at each size, in current units. */
static void collect_options(hth_plan_table *t)
{
    uint32_t n = 0;
    t->reach[0] = 0;
    for (uint32_t l = 0; l < t->model->n_layer; l++) {
        const double *seconds = t->curves[l].seconds;
        t->first[l] = n;
        for (uint32_t k = 0; k <= t->model->layers[l].n_cluster; k++) {
            hth_plan_option o = {layer_units(t, l, k), k, (int32_t)(seconds[k] / t->quantum + 0.5)};
            if (n > t->first[l] && o.quanta >= t->options[n - 1].quanta) continue;
            /* Two of one size: only the faster takes part. */
            if (n > t->first[l] && o.units == t->options[n - 1].units) n--;
            t->options[n++] = o;
        }
        t->reach[l + 1] = t->reach[l] + t->options[n - 1].units;
    }
    t->first[t->model->n_layer] = n;
}

hearth_status hth_plan_table_open(hth_plan_table *t, hearth_error *err)
{
    size_t n = t->model->n_layer, n_option = 0;
    double max = 0;
    hearth_status st = hth_plan_curves(t->model, t->roles, t->request, &t->curves, err);
    if (st != HEARTH_OK) return st;
    for (size_t l = 0; l < n; l++) {
        double worst = 0;
        for (uint32_t k = 0; k <= t->model->layers[l].n_cluster; k++)
            if (t->curves[l].seconds[k] > worst) worst = t->curves[l].seconds[k];
        n_option += t->model->layers[l].n_cluster + 1;
        max += worst;
    }
    t->quantum = max > 0 ? max / max_quanta : 1;
    t->capacity = n_option * sizeof *t->options + (3 * n + 4) * sizeof(uint64_t) + (n + 1) * sizeof *t->first;
    t->options = hth_alloc(t->capacity, 1);
    if (!t->options) return hth_fail_memory(err, t->capacity, "a plan's options");
    t->reach = (uint64_t *)(t->options + n_option);
    t->low = t->reach + n + 1;
    t->at = (size_t *)(t->low + n + 1);
    t->first = (uint32_t *)(t->at + n + 2);
    collect_options(t);
    return HEARTH_OK;
}

void hth_plan_table_close(hth_plan_table *t)
{
    hth_plan_curves_free(t->curves);
    hth_free(t->options);
    hth_free(t->cells);
}

/* ---- rows ------------------------------------------------------------------------------------ */

static uint64_t row_end(const hth_plan_table *t, uint32_t l)
{
    return t->reach[l] < t->high ? t->reach[l] : t->high;
}

/* Sets windows that cover every query of `lowest` units to t->high; returns whether table and work stay
 * bounded. */
static bool init_windows(hth_plan_table *t, uint64_t lowest)
{
    uint32_t n = t->model->n_layer;
    uint64_t cells = 0, steps = 0;
    if (t->high > t->reach[n]) t->high = t->reach[n];
    if (lowest > t->high) lowest = t->high;
    for (uint32_t l = 0; l <= n; l++) {
        uint64_t later = t->reach[n] - t->reach[l];
        t->low[l] = lowest > later ? lowest - later : 0;
        t->at[l] = cells;
        uint64_t width = row_end(t, l) - t->low[l] + 1;
        cells += width;
        if (l > 0) steps += width * (t->first[l] - t->first[l - 1]);
    }
    t->at[n + 1] = cells;
    return cells <= max_cells && steps <= max_steps;
}

/* The value for at most u units in the first l layers. */
static int32_t value_at(const hth_plan_table *t, uint32_t l, uint64_t u)
{
    uint64_t end = row_end(t, l);
    return t->cells[t->at[l] + (u < end ? u : end) - t->low[l]];
}

static void relax(int32_t *restrict to, const int32_t *restrict from, size_t n, int32_t quanta)
{
    for (size_t i = 0; i < n; i++) {
        int32_t x = from[i] + quanta;
        to[i] = x < to[i] ? x : to[i];
    }
}

/* Relaxes cells [from, to) of the row after layer l (from 0) with one of its placements. Values above the
 * previous row's end equal its last cell; make_monotone propagates them. */
static void take_option(hth_plan_table *t, uint32_t l, const hth_plan_option *o, uint64_t from, uint64_t to)
{
    uint64_t low = t->low[l], end = row_end(t, l) + 1;
    uint64_t begin = low + o->units > from ? low + o->units : from,
             stop = end + o->units < to ? end + o->units : to;
    if (begin < stop)
        relax(t->cells + t->at[l + 1] + begin - t->low[l + 1], t->cells + t->at[l] + begin - o->units - low,
              stop - begin, o->quanta);
    else if (begin == from && from >= end + o->units && from == t->low[l + 1]) {
        int32_t x = t->cells[t->at[l + 1] - 1] + o->quanta, *cell = t->cells + t->at[l + 1];
        if (x < *cell) *cell = x;
    }
}

/* More memory is never worse. */
static void make_monotone(int32_t *row, size_t n)
{
    for (size_t i = 1; i < n; i++)
        if (row[i - 1] < row[i]) row[i] = row[i - 1];
}

static void fill_row(hth_plan_table *t, uint32_t l)
{
    size_t n = t->at[l + 2] - t->at[l + 1];
    int32_t *row = t->cells + t->at[l + 1];
    uint64_t low = t->low[l + 1], end = low + n;
    for (size_t i = 0; i < n; i++) row[i] = NO_FIT;
    for (uint64_t from = low; from < end; from += BLOCK) {
        uint64_t to = end - from > BLOCK ? from + BLOCK : end;
        for (uint32_t i = t->first[l]; i < t->first[l + 1]; i++) take_option(t, l, &t->options[i], from, to);
    }
    make_monotone(row, n);
    for (size_t i = 0; i < n; i++)
        if (row[i] > NO_FIT) row[i] = NO_FIT;
}

/* Fills the table for queries of lowest to high bytes of layers. */
static hearth_status fill_table(hth_plan_table *t, uint64_t lowest, uint64_t high, hearth_error *err)
{
    t->high = high / t->unit;
    while (!init_windows(t, lowest / t->unit)) {
        t->unit *= 2;
        collect_options(t);
        t->high = high / t->unit;
    }
    size_t n = t->at[t->model->n_layer + 1];
    hth_free(t->cells);
    t->cells = hth_alloc(n, sizeof *t->cells);
    if (!t->cells) return hth_fail_memory(err, n * sizeof *t->cells, "a plan's table");
    for (uint32_t l = 0; l < t->model->n_layer; l++) fill_row(t, l);
    return HEARTH_OK;
}

/* ---- best plan for a budget ------------------------------------------------------------------ */

static void offer(hth_plan_answer *b, hth_plan_answer x)
{
    if (x.seconds < b->seconds) *b = x;
}

static double host_head(const hth_plan_table *t) { return hth_plan_head_seconds(t->model, t->roles->host, t->request); }

static double device_head(const hth_plan_table *t)
{
    return hth_plan_head_seconds(t->model, t->roles->device, t->request) + hth_plan_sync_seconds(t->roles->device, t->request);
}

static double cpu_seconds(const hth_plan_table *t)
{
    double seconds = host_head(t);
    for (uint32_t l = 0; l < t->model->n_layer; l++) seconds += t->curves[l].cpu;
    return seconds;
}

/* Seconds of all layers from l on with the CPU accumulate from the end. */
hth_plan_answer hth_plan_table_best(const hth_plan_table *t, uint64_t vram)
{
    uint32_t n = t->model->n_layer;
    uint64_t fixed = t->roles->device->fixed_bytes, head = t->model->head_bytes;
    hth_plan_answer b = {.seconds = cpu_seconds(t)};
    if (vram < fixed) return b;
    double rest = host_head(t) + hth_plan_sync_seconds(t->roles->device, t->request);
    uint64_t units = (vram - fixed) / t->unit;
    for (uint32_t l = n; l > 0; l--) {
        int32_t v = value_at(t, l, units);
        if (v < NO_FIT) offer(&b, (hth_plan_answer){v * t->quantum + rest, l, false, units});
        rest += t->curves[l - 1].cpu;
    }
    if (t->model->head_stays || vram - fixed < head) return b;
    units = (vram - fixed - head) / t->unit;
    int32_t v = value_at(t, n, units);
    if (v < NO_FIT) offer(&b, (hth_plan_answer){v * t->quantum + device_head(t), n, true, units});
    return b;
}

bool hth_plan_table_first(const hth_plan_table *t, uint64_t vram, uint32_t n, bool head, hth_plan_answer *out)
{
    const hth_plan_tier *d = t->roles->device;
    uint64_t needed = d->fixed_bytes + (head ? t->model->head_bytes : 0);
    *out = (hth_plan_answer){.n_device = n, .head = head};
    if (n == 0) return !head;
    if (vram < needed || (head && t->model->head_stays)) return false;
    out->units = (vram - needed) / t->unit;
    int32_t v = value_at(t, n, out->units);
    out->seconds = v * t->quantum + (head ? device_head(t) : hth_plan_sync_seconds(d, t->request));
    return v < NO_FIT;
}

/* From the last layer to the first. */
void hth_plan_table_divide(const hth_plan_table *t, const hth_plan_answer *b, hth_plan_division *divisions)
{
    uint64_t u = b->units;
    for (uint32_t l = t->model->n_layer; l-- > 0;) {
        divisions[l] = hth_plan_divide(t->roles, &t->model->layers[l], HTH_PLAN_CPU);
        if (l >= b->n_device) continue;
        int32_t v = value_at(t, l + 1, u);
        const hth_plan_option *o = t->options + t->first[l];
        while (o->units > u || value_at(t, l, u - o->units) + o->quanta != v) o++;
        divisions[l] = hth_plan_divide(t->roles, &t->model->layers[l], (int32_t)o->k);
        u -= o->units;
    }
}

static uint64_t more(uint64_t a, uint64_t b) { return a > UINT64_MAX - b ? UINT64_MAX : a + b; }
static uint64_t less(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }

hearth_status hth_plan_table_fill(hth_plan_table *t, uint64_t high, hearth_error *err)
{
    const hth_plan_tier *d = t->roles->device;
    return fill_table(t, less(less(d->capacity, d->fixed_bytes), t->model->head_bytes),
                      less(high, d->fixed_bytes), err);
}

/* ---- minimum useful memory ------------------------------------------------------------------- */

/* Whether a device of any size gains anything. */
static bool is_ever_better(const hth_plan_table *t, double seconds_cpu)
{
    double seconds = hth_plan_sync_seconds(t->roles->device, t->request), cpu_head = host_head(t),
           gpu_head = hth_plan_head_seconds(t->model, t->roles->device, t->request), later = seconds_cpu - cpu_head;
    for (uint32_t l = 0; l < t->model->n_layer; l++) {
        seconds += t->options[t->first[l + 1] - 1].quanta * t->quantum;
        later -= t->curves[l].cpu;
        if (seconds + later + cpu_head < seconds_cpu) return true;
    }
    return seconds + gpu_head < seconds_cpu;
}

/* Grows the table until it gains; then bisects the minimum, to a unit. */
static hearth_status find_min(hth_plan_table *t, double seconds_cpu, uint64_t *min, hearth_error *err)
{
    uint64_t base = t->roles->device->fixed_bytes, below = 0, above = (uint64_t)1 << 28;
    uint64_t all = (t->reach[t->model->n_layer] + 1) * t->unit + t->model->head_bytes;
    *min = 0;
    if (!is_ever_better(t, seconds_cpu)) return HEARTH_OK;
    for (;; above *= 2) {
        hearth_status st = fill_table(t, 0, above, err);
        if (st != HEARTH_OK) return st;
        if (hth_plan_table_best(t, base + above).n_device > 0) break;
        /* The gain is below one quantum. */
        if (above > all) return HEARTH_OK;
    }
    while (above - below > HTH_PLAN_UNIT) {
        uint64_t middle = below + (above - below) / 2;
        if (hth_plan_table_best(t, base + middle).n_device > 0) above = middle;
        else below = middle;
    }
    *min = base + above;
    return HEARTH_OK;
}

/* ---- solution -------------------------------------------------------------------------------- */

/* The answer with one device or none. */
static hearth_status solve_table(hth_plan_table *t, const hth_plan_machine *machine, hth_plan *out,
                                 hearth_error *err)
{
    bool has_device = t->roles->i_host > 0;
    uint64_t grown = more(t->roles->device->capacity, has_device ? (uint64_t)1 << 30 : 0), min = 0;
    uint32_t n = t->model->n_layer;
    hearth_status st = hth_plan_table_fill(t, grown, err);
    if (st != HEARTH_OK) return st;
    hth_plan_division *divisions = hth_alloc(n, sizeof *divisions);
    if (!divisions) return hth_fail_memory(err, n * sizeof *divisions, "a plan");
    uint64_t unit = t->unit;
    hth_plan_answer b = hth_plan_table_best(t, t->roles->device->capacity),
                    with_gib = hth_plan_table_best(t, grown);
    hth_plan_table_divide(t, &b, divisions);
    st = hth_plan_evaluate(t->model, machine, t->request, divisions, b.head, out, err);
    hth_free(divisions);
    if (st == HEARTH_OK && has_device) st = find_min(t, out->seconds_cpu, &min, err);
    if (st != HEARTH_OK) {
        hth_plan_free(out);
        return st;
    }
    out->tps_per_gib = with_gib.seconds < b.seconds ? 1 / with_gib.seconds - 1 / b.seconds : 0;
    out->min_vram = min;
    out->unit = unit;
    return HEARTH_OK;
}

hearth_status hth_plan_solve(const hth_plan_model *model, const hth_plan_machine *machine,
                             const hth_plan_options *options, hth_plan *out, hearth_error *err)
{
    *out = (hth_plan){0};
    hearth_status st = hth_plan_validate(model, machine, options, err);
    if (st != HEARTH_OK) return st;
    const hth_plan_roles roles = hth_plan_find_roles(machine);
    if (roles.i_host > 1) return hth_plan_solve_devices(model, machine, roles.i_host, options, out, err);
    hth_plan_table t = {.model = model, .roles = &roles, .request = options, .unit = HTH_PLAN_UNIT};
    st = hth_plan_table_open(&t, err);
    if (st == HEARTH_OK) st = solve_table(&t, machine, out, err);
    hth_plan_table_close(&t);
    return st;
}
