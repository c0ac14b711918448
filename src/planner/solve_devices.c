/* A placement on several devices: each has consecutive layers, the first device the first ones, and divides the neurons
 * of its layers with the host as the only device of a machine does. Where the layers of one end and those of the next
 * begin is searched for; what each device makes of its layers is exact (solve.c). */
#include "planner/solve_int.h"

#include "base/alloc.h"

#include <string.h>

/* The fastest plan of device i_device and those behind it for the layers from `first` on. */
typedef struct tail {
    bool known, head; /* head: i_device has all these layers, and the head */
    double seconds;
    uint32_t end; /* end of the layers of i_device */
} tail;

typedef struct search {
    const hth_plan_model *model;
    const hth_plan_machine *machine;
    const hth_plan_options *options;
    uint32_t n_device;
    uint64_t unit; /* the largest of a table */
    tail *tails;   /* [n_device][n_layer + 1] */
} search;

/* One device with the host, and the layers from `first` on. */
typedef struct part {
    hth_plan_machine machine;
    hth_plan_model model;
    hth_plan_roles roles;
    hth_plan_table table;
} part;

static hearth_status open_part(search *s, uint32_t i_device, uint32_t first, part *p, hearth_error *err)
{
    const hth_plan_tier *d = &s->machine->homes[i_device];
    *p = (part){.machine = {.n_home = 2, .homes = {*d, s->machine->homes[s->n_device]}}, .model = *s->model};
    p->model.layers += first, p->model.n_layer -= first;
    p->roles = hth_plan_find_roles(&p->machine);
    p->table = (hth_plan_table){
        .model = &p->model, .roles = &p->roles, .request = s->options, .unit = HTH_PLAN_UNIT};
    hearth_status st = hth_plan_table_open(&p->table, err);
    if (st == HEARTH_OK) st = hth_plan_table_fill(&p->table, d->capacity, err);
    if (p->table.unit > s->unit) s->unit = p->table.unit;
    return st;
}

static hearth_status find_tail(search *s, uint32_t i_device, uint32_t first, double *seconds,
                               hearth_error *err);

static void offer(tail *best, double seconds, bool head, uint32_t end)
{
    if (!best->known || seconds < best->seconds) *best = (tail){true, head, seconds, end};
}

/* With n layers on the device of p, if they fit, and the others on those behind it. */
static hearth_status try_end(search *s, const part *p, uint32_t i_device, uint32_t first, uint32_t n,
                             tail *best, hearth_error *err)
{
    double rest = hth_plan_head_seconds(s->model, p->roles.host, s->options);
    hth_plan_answer here, with_head;
    uint64_t capacity = p->roles.device->capacity;
    if (!hth_plan_table_first(&p->table, capacity, n, false, &here)) return HEARTH_OK;
    if (first + n < s->model->n_layer) {
        hearth_status st = find_tail(s, i_device + 1, first + n, &rest, err);
        if (st != HEARTH_OK) return st;
    } else if (hth_plan_table_first(&p->table, capacity, n, true, &with_head)) {
        offer(best, with_head.seconds, true, first + n);
    }
    offer(best, here.seconds + rest, false, first + n);
    return HEARTH_OK;
}

/* The number of layers of a device that is not the last: of some at equal distances the best, then of those around it
 * at half the distance, and so on. Seconds fall, then rise with that number, but for roundings to clusters. */
static hearth_status find_end(search *s, uint32_t i_device, uint32_t first, tail *best, hearth_error *err)
{
    enum { N_FIRST = 8 };
    uint32_t n = s->model->n_layer - first, step = n / N_FIRST > 0 ? n / N_FIRST : 1;
    part p;
    hearth_status st = open_part(s, i_device, first, &p, err);
    if (st == HEARTH_OK) st = try_end(s, &p, i_device, first, n, best, err);
    for (uint32_t i = 0; st == HEARTH_OK && i < n; i += step)
        st = try_end(s, &p, i_device, first, i, best, err);
    while (st == HEARTH_OK && step > 1) {
        uint32_t middle = best->end - first;
        step = (step + 1) / 2;
        if (middle >= step) st = try_end(s, &p, i_device, first, middle - step, best, err);
        if (st == HEARTH_OK && middle + step <= n)
            st = try_end(s, &p, i_device, first, middle + step, best, err);
    }
    hth_plan_table_close(&p.table);
    return st;
}

/* The last device may leave layers to the host. */
static hearth_status find_last(search *s, uint32_t i_device, uint32_t first, tail *best, hearth_error *err)
{
    part p;
    hearth_status st = open_part(s, i_device, first, &p, err);
    if (st == HEARTH_OK) {
        hth_plan_answer b = hth_plan_table_best(&p.table, p.roles.device->capacity);
        *best = (tail){true, b.head, b.seconds, first + b.n_device};
    }
    hth_plan_table_close(&p.table);
    return st;
}

static hearth_status find_tail(search *s, uint32_t i_device, uint32_t first, double *seconds,
                               hearth_error *err)
{
    tail *t = &s->tails[i_device * (s->model->n_layer + 1) + first], best = {0};
    hearth_status st = HEARTH_OK;
    if (!t->known) {
        st = i_device + 1 == s->n_device ? find_last(s, i_device, first, &best, err)
                                         : find_end(s, i_device, first, &best, err);
        *t = best;
    }
    *seconds = t->seconds;
    return st;
}

/* The divisions of the layers of device i, from `first` on. */
static hearth_status divide_part(search *s, uint32_t i_device, uint32_t first,
                                 hth_plan_division *divisions, bool *head, hearth_error *err)
{
    const tail *t = &s->tails[i_device * (s->model->n_layer + 1) + first];
    bool is_last = i_device + 1 == s->n_device;
    part p;
    hearth_status st = open_part(s, i_device, first, &p, err);
    if (st == HEARTH_OK) {
        uint64_t capacity = p.roles.device->capacity;
        hth_plan_answer b;
        if (is_last) b = hth_plan_table_best(&p.table, capacity);
        else hth_plan_table_first(&p.table, capacity, t->end - first, t->head, &b);
        hth_plan_table_divide(&p.table, &b, divisions + first);
        *head = b.head;
        for (uint32_t l = first; l < s->model->n_layer; l++) { /* from homes of one device to those of all */
            hth_plan_division *d = &divisions[l];
            uint32_t hot = d->n_cluster[0], cold = d->n_cluster[1];
            memset(d->n_cluster, 0, sizeof d->n_cluster);
            d->n_cluster[i_device] = hot, d->n_cluster[s->n_device] = cold;
            d->attention = d->attention == 0 ? i_device : s->n_device;
        }
    }
    hth_plan_table_close(&p.table);
    return st;
}

hearth_status hth_plan_solve_devices(const hth_plan_model *model, const hth_plan_machine *machine,
                                     uint32_t n_device, const hth_plan_options *options, hth_plan *out,
                                     hearth_error *err)
{
    size_t n_tail = n_device * ((size_t)model->n_layer + 1);
    size_t size = n_tail * sizeof(tail) + model->n_layer * sizeof(hth_plan_division);
    search s = {.model = model, .machine = machine, .options = options, .n_device = n_device};
    double seconds;
    bool head = false;
    s.tails = hth_alloc(size, 1);
    if (!s.tails) return hth_fail_memory(err, size, "a plan");
    hth_plan_division *divisions = (hth_plan_division *)(s.tails + n_tail);
    hearth_status st = find_tail(&s, 0, 0, &seconds, err);
    for (uint32_t i = 0, first = 0; st == HEARTH_OK && i < n_device && first < model->n_layer; i++) {
        st = divide_part(&s, i, first, divisions, &head, err);
        first = s.tails[i * (model->n_layer + 1) + first].end;
    }
    if (st == HEARTH_OK) st = hth_plan_evaluate(model, machine, options, divisions, head, out, err);
    if (st == HEARTH_OK) out->unit = s.unit;
    hth_free(s.tails);
    return st;
}
