/* Shaders of the choice of experts as C functions (shader_params.h), by the C level of the kernels. They run on the
 * reference device, from any thread. */
#include "forward/gpu/ref/ref_int.h"

#include "forward/router.h"

#include <string.h>

void hth_ref_router_rows(const hth_dispatch_args *c)
{
    hth_kernels k;
    hth_push_router_rows push;
    hth_kernels_init(&k, HTH_CPU_GENERIC);
    memcpy(&push, c->push, sizeof push);
    uint32_t n_tok = hth_gpu_tokens(c, 0, (uint64_t)c->grid[1] * c->consts[HTH_ROUTER_ROWS_TOKENS]),
             n_row = (uint32_t)hth_min_u64(push.n_row, (uint64_t)c->grid[0] * HTH_ROUTER_ROWS);
    for (size_t t = 0; t < n_tok; t++) {
        float *y = hth_ref_row(c->bind[4], push.y, t);
        k.dot_rows(c->bind[1], n_row, push.n_col, hth_ref_row(c->bind[2], push.x, t), y);
        if (push.has_bias) k.add(y, c->bind[3], n_row, y);
    }
}

static void choose_constant(const hth_router *router, uint32_t *chosen, float *weights)
{
    for (uint32_t i = 0; i < router->n_used; i++) chosen[i] = i, weights[i] = router->scale;
}

/* Gives spare slots to the experts that have none. */
static void place(const hth_dispatch_args *c, const hth_push_route *push, const uint32_t *chosen)
{
    uint32_t *step = c->bind[0], *reads = (uint32_t *)c->bind[5] + push->reads_at, n = 0;
    for (uint32_t i = 0; i < push->n_used; i++) {
        uint32_t *slot = &step[push->slots_at + chosen[i]];
        reads[HTH_READS_HEAD + 2 * push->n_used + i] = chosen[i];
        if (*slot != HTH_STEP_NO_SLOT) continue;
        *slot = step[push->spares_at + n];
        reads[HTH_READS_HEAD + 2 * n] = *slot, reads[HTH_READS_HEAD + 2 * n + 1] = chosen[i];
        n++;
    }
    for (uint32_t k = 0; k < 3; k++) reads[HTH_READS_GRID_WORDS * k + 2] = n;
    reads[HTH_READS_JOBS] = n;
}

void hth_ref_route(const hth_dispatch_args *c)
{
    hth_kernels k;
    hth_push_route push;
    float logits[HTH_ROUTE_MAX], scratch[HTH_ROUTE_MAX], weights[HTH_ROUTE_MAX_USED];
    hth_kernels_init(&k, HTH_CPU_GENERIC);
    memcpy(&push, c->push, sizeof push);
    const hth_router router = {.select_bias = push.has_select_bias ? c->bind[2] : NULL,
                               .n_expert = c->consts[HTH_ROUTE_N],
                               .n_used = push.n_used,
                               .n_group = push.n_group,
                               .n_group_used = push.n_group_used,
                               .score = (hth_router_score)c->consts[HTH_ROUTE_SCORE],
                               .normalise = push.normalises,
                               .scale = push.scale};
    const float *scale = push.has_expert_scale ? c->bind[3] : NULL;
    bool is_constant = c->consts[HTH_ROUTE_SCORE] == HTH_ROUTE_CONSTANT;
    for (size_t t = 0; t < hth_gpu_tokens(c, 0, c->grid[0]); t++) {
        uint32_t *chosen = (uint32_t *)c->bind[4] + t * push.y.stride + push.y.at;
        if (is_constant) {
            choose_constant(&router, chosen, weights);
        } else {
            memcpy(logits, hth_ref_row(c->bind[1], push.x, t), router.n_expert * sizeof *logits);
            hth_route(&k, &router, 0, logits, scratch, chosen, weights);
        }
        if (push.given_at > 0)
            memcpy(chosen, (uint32_t *)c->bind[0] + push.given_at + t * push.n_used, push.n_used * sizeof *chosen);
        for (uint32_t i = 0; scale && i < push.n_used; i++) weights[i] *= scale[chosen[i]];
        memcpy(chosen + push.n_used, weights, push.n_used * sizeof *weights);
        if (c->consts[HTH_ROUTE_PLACES]) place(c, &push, chosen);
    }
}

/* The expert of a pair; those without a slot are one. */
static uint32_t expert_of(const hth_dispatch_args *c, const hth_push_group_pairs *push, uint32_t chosen)
{
    return hth_step_has_slot(c->bind[0], push->slots_at, chosen) ? chosen : c->consts[HTH_GROUP_PAIRS_N] - 1;
}

/* The groups of an expert: their pairs, of all n_tok tokens, and their heads. Returns where the next one's are. */
static uint32_t *group_of(const hth_dispatch_args *c, const hth_push_group_pairs *push, uint32_t n_tok, uint32_t expert,
                          uint32_t *to)
{
    const uint32_t of = c->consts[HTH_GROUP_PAIRS_PAIRS], *pairs = c->bind[1], n_used = push->n_used;
    uint32_t n = 0;
    for (size_t i = 0; i < (size_t)n_tok * n_used; i++) {
        const uint32_t *id = pairs + i / n_used * 2 * n_used + i % n_used;
        if (expert_of(c, push, *id) != expert) continue;
        if (n == of) to += hth_group_words(of), n = 0;
        to[0] = expert, to[2 + n] = (uint32_t)i, to[2 + of + n] = id[n_used];
        to[1] = ++n;
    }
    return n > 0 ? to + hth_group_words(of) : to;
}

void hth_ref_group_pairs(const hth_dispatch_args *c)
{
    hth_push_group_pairs push;
    memcpy(&push, c->push, sizeof push);
    uint32_t n_tok = hth_gpu_tokens(c, 0, UINT32_MAX), *groups = c->bind[2], *to = groups + HTH_GROUPS_HEAD;
    for (uint32_t i = 0; i < c->consts[HTH_GROUP_PAIRS_N]; i++) to = group_of(c, &push, n_tok, i, to);
    groups[0] = (uint32_t)(to - groups - HTH_GROUPS_HEAD) / hth_group_words(c->consts[HTH_GROUP_PAIRS_PAIRS]);
}
