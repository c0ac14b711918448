/* Check of the solver, by Lagrangian relaxation: at a cost per byte each layer takes its own optimum; the cost
 * is bisected until everything fits, and the remaining memory is filled by the best single changes. Called by
 * tests and by sweeps over many budgets. Shares the layer costs with solve.c, and no step of the search. */
#include "planner/plan_int.h"
#include "support/planner/plan_reference.h"

#include "base/alloc.h"

#include <string.h>

enum { N_BISECTION = 50 };

typedef struct search {
    const hth_plan_model *model;
    const hth_plan_roles *roles;
    const hth_plan_options *options;
    const hth_plan_curve *curves;
    int32_t *now, *best; /* [n_layer] */
    uint32_t *first;     /* [n_layer + 1] where a layer's part of hull begins, ascending in k */
    uint32_t *hull;      /* the optima of a layer over all prices */
} search;

static uint64_t bytes_of(const search *s, uint32_t l, uint32_t k)
{
    return hth_plan_units(hth_plan_layer_bytes(&s->model->layers[l], s->options, k), HTH_PLAN_UNIT) *
           HTH_PLAN_UNIT;
}

/* Seconds that a layer saves per additional byte, from a to b clusters. A change that costs no byte counts as half
 * a byte. */
static double saved(const search *s, uint32_t l, uint32_t a, uint32_t b)
{
    uint64_t more = bytes_of(s, l, b) - bytes_of(s, l, a);
    return (s->curves[l].seconds[a] - s->curves[l].seconds[b]) / (more > 0 ? (double)more : 0.5);
}

/* The lower convex hull of a layer's seconds over its bytes, as far as it falls. */
static void find_hulls(search *s)
{
    uint32_t n = 0;
    for (uint32_t l = 0; l < s->model->n_layer; l++) {
        uint32_t first = s->first[l] = n;
        s->hull[n++] = 0;
        for (uint32_t k = 1; k <= s->model->layers[l].n_cluster; k++) {
            if (saved(s, l, s->hull[n - 1], k) <= 0) continue;
            while (n - first > 1 &&
                   saved(s, l, s->hull[n - 1], k) >= saved(s, l, s->hull[n - 2], s->hull[n - 1]))
                n--;
            s->hull[n++] = k;
        }
    }
    s->first[s->model->n_layer] = n;
}

/* The first n layers at a price in seconds per byte; returns their bytes. */
static uint64_t choose(const search *s, uint32_t n, double price)
{
    uint64_t bytes = 0;
    for (uint32_t l = 0; l < n; l++) {
        uint32_t low = s->first[l], high = s->first[l + 1] - 1;
        while (low < high) {
            uint32_t middle = (low + high) / 2;
            if (saved(s, l, s->hull[middle], s->hull[middle + 1]) > price) low = middle + 1;
            else high = middle;
        }
        s->now[l] = (int32_t)s->hull[low];
        bytes += bytes_of(s, l, s->hull[low]);
    }
    return bytes;
}

/* The best change of one layer that fits into `left`, by seconds per byte; false: no change helps. */
static bool improve(const search *s, uint32_t n, uint64_t *left)
{
    double best_rate = 0;
    uint32_t best_l = 0, best_k = 0;
    for (uint32_t l = 0; l < n; l++) {
        uint32_t now = (uint32_t)s->now[l];
        uint64_t held = bytes_of(s, l, now);
        for (uint32_t k = now + 1; k <= s->model->layers[l].n_cluster; k++) {
            if (bytes_of(s, l, k) - held > *left) break;
            double rate = saved(s, l, now, k);
            if (rate > best_rate) best_rate = rate, best_l = l, best_k = k;
        }
    }
    if (best_rate <= 0) return false;
    *left -= bytes_of(s, best_l, best_k) - bytes_of(s, best_l, (uint32_t)s->now[best_l]);
    s->now[best_l] = (int32_t)best_k;
    return true;
}

/* Places the first n layers in `capacity` bytes, into s->now; false: not even attention fits. */
static bool place(const search *s, uint32_t n, uint64_t capacity)
{
    uint64_t min = 0;
    for (uint32_t l = 0; l < n; l++) min += bytes_of(s, l, 0);
    if (min > capacity) return false;
    uint64_t bytes = choose(s, n, 0);
    if (bytes > capacity) {
        double low = 0, high = 1; /* at one second per byte no cluster pays off */
        while (choose(s, n, high) > capacity) high *= 1024;
        for (int i = 0; i < N_BISECTION; i++) {
            double middle = (low + high) / 2;
            if (choose(s, n, middle) > capacity) low = middle;
            else high = middle;
        }
        bytes = choose(s, n, high);
    }
    for (uint64_t left = capacity - bytes; improve(s, n, &left);) continue;
    return true;
}

/* Whether s->now with n layers on the device is faster than *seconds; then stores it as best. */
static bool offer(const search *s, uint32_t n, bool head, double *seconds)
{
    double sum = hth_plan_head_seconds(s->model, head ? s->roles->device : s->roles->host, s->options) +
                 (n > 0 ? hth_plan_sync_seconds(s->roles->device, s->options) : 0);
    for (uint32_t l = n; l < s->model->n_layer; l++) s->now[l] = HTH_PLAN_CPU;
    for (uint32_t l = 0; l < s->model->n_layer; l++)
        sum += l < n ? s->curves[l].seconds[s->now[l]] : s->curves[l].cpu;
    if (n > 0 && sum >= *seconds) return false;
    *seconds = sum;
    memcpy(s->best, s->now, s->model->n_layer * sizeof *s->now);
    return true;
}

hearth_status hth_plan_lagrangian(const hth_plan_model *model, const hth_plan_machine *machine,
                                  const hth_plan_options *options, hth_plan *out, hearth_error *err)
{
    hth_plan_curve *curves = NULL;
    hth_plan_roles roles;
    search s = {.model = model, .roles = &roles, .options = options};
    double seconds = 0;
    bool head = false;
    *out = (hth_plan){0};
    hearth_status st = hth_plan_validate(model, machine, options, err);
    if (st != HEARTH_OK) return st;
    roles = hth_plan_find_roles(machine);
    st = hth_plan_curves(model, &roles, options, &curves, err);
    if (st != HEARTH_OK) return st;
    uint64_t capacity = roles.device->capacity, fixed = roles.device->fixed_bytes;
    size_t n_layer = model->n_layer, n_option = 0;
    for (size_t l = 0; l < n_layer; l++) n_option += model->layers[l].n_cluster + 1;
    size_t size = n_layer * sizeof(hth_plan_division) + (3 * n_layer + 1 + n_option) * sizeof *s.now;
    s.curves = curves;
    hth_plan_division *divisions = hth_alloc(size, 1);
    if (!divisions) {
        st = hth_fail_memory(err, size, "a plan");
        goto done;
    }
    s.now = (int32_t *)(divisions + n_layer);
    s.best = s.now + n_layer;
    s.first = (uint32_t *)(s.best + n_layer);
    s.hull = s.first + n_layer + 1;
    find_hulls(&s);
    offer(&s, 0, false, &seconds);
    for (uint32_t n = 1; n <= model->n_layer && capacity >= fixed; n++)
        if (!place(&s, n, capacity - fixed)) break;
        else offer(&s, n, false, &seconds);
    if (capacity >= fixed && capacity - fixed >= model->head_bytes &&
        place(&s, model->n_layer, capacity - fixed - model->head_bytes))
        head = offer(&s, model->n_layer, true, &seconds);
    for (size_t l = 0; l < n_layer; l++) divisions[l] = hth_plan_divide(&roles, &model->layers[l], s.best[l]);
    st = hth_plan_evaluate(model, machine, options, divisions, head, out, err);
done:
    hth_free(divisions);
    hth_plan_curves_free(curves);
    return st;
}
