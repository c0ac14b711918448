/* The memory of values: two of them share a place where no operation needs both. */
#include "model/program_int.h"

#include "base/alloc.h"

/* The operations that a value needs its memory for. A run of operations that are computed row by row may
 * be at different rows: the memory of what they read stays until the end of the run, and of the operation
 * that it prepares. */
static void find_lifetimes(hth_program *p)
{
    for (uint32_t i = p->n_op, end = 0; i-- > 0;) {
        const hth_op *op = &p->ops[i];
        const hth_view *const views[] = {op->in, op->out, op->temp};
        const int n[] = {HTH_OP_IN, HTH_OP_OUT, HTH_OP_TEMP};
        if (!hth_op_is_by_row(op->kind) || i + 1 == p->n_op) end = i;
        for (int k = 0; k < 3; k++)
            for (int j = 0; j < n[k]; j++) {
                if (hth_build_is_none(views[k][j])) continue;
                hth_value *v = &p->values[views[k][j].value];
                if (v->last_op < end) v->last_op = end;
                v->first_op = i;
            }
    }
    hth_value *x = &p->values[p->x.value], *hidden = &p->values[p->hidden.value];
    x->first_op = 0, hidden->first_op = p->output_norm;
    x->last_op = hidden->last_op = p->n_op; /* callers read them after a step */
}

static uint32_t words_of(const hth_value *v)
{
    uint32_t n = v->width * (v->element == HTH_SUMS ? 2u : 1u);
    return (n + 15) / 16 * 16;
}

/* Gives a value the lowest place that no other one needs meanwhile. live: those before it, by place. */
static void place(hth_program *p, uint32_t i, uint32_t *live, uint32_t *n_live)
{
    hth_value *v = &p->values[i];
    uint32_t at = 0, n = 0, to;
    for (uint32_t k = 0; k < *n_live; k++)
        if (p->values[live[k]].last_op >= v->first_op) live[n++] = live[k];
    *n_live = n;
    for (to = 0; to < n; to++) {
        const hth_value *other = &p->values[live[to]];
        if (other->domain != v->domain) continue;
        if (other->at >= at + words_of(v)) break;
        if (at < other->at + words_of(other)) at = other->at + words_of(other);
    }
    v->at = at;
    if (p->width[v->domain] < at + words_of(v)) p->width[v->domain] = at + words_of(v);
    for (to = n; to > 0 && p->values[live[to - 1]].at > at; to--) live[to] = live[to - 1];
    live[to] = i;
    (*n_live)++;
}

/* In the order of first use. */
bool hth_build_place_values(hth_program *p)
{
    uint32_t n = 0, n_live = 0, *live, *order = hth_alloc(2 * (size_t)p->n_value, sizeof *order);
    if (!order) return false;
    live = order + p->n_value;
    find_lifetimes(p);
    for (uint32_t i = 0; i < p->n_value; i++) {
        if (p->values[i].first_op == UINT32_MAX) continue; /* a target that was not needed */
        uint32_t to = n++;
        for (; to > 0 && p->values[order[to - 1]].first_op > p->values[i].first_op; to--)
            order[to] = order[to - 1];
        order[to] = i;
    }
    for (uint32_t i = 0; i < n; i++) place(p, order[i], live, &n_live);
    hth_free(order);
    return true;
}
