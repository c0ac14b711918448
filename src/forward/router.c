/* Scores of experts, the choice of the best, and their weights. experts.c calls hth_route for each token. */
#include "forward/router.h"

#include "base/bits.h"
#include "kernels/vector/math.h"

#include <string.h>

/* Marks the n largest of n_score scores with marks[i] = 1; of equal ones the first. Always n different ones. */
static void mark_largest(const float *scores, uint32_t n_score, uint32_t n, uint8_t *marks)
{
    memset(marks, 0, n_score);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t best = UINT32_MAX;
        for (uint32_t j = 0; j < n_score; j++)
            if (!marks[j] && (best == UINT32_MAX || scores[j] > scores[best])) best = j;
        marks[best] = 1;
    }
}

/* The sum of the two largest of n scores. */
static float score_of_group(const float *scores, uint32_t n)
{
    float first = scores[0], second = scores[1];
    if (second > first) first = scores[1], second = scores[0];
    for (uint32_t i = 2; i < n; i++) {
        if (scores[i] > first) second = first, first = scores[i];
        else if (scores[i] > second) second = scores[i];
    }
    return first + second;
}

/* Excludes the experts of all but the best groups. */
static void drop_groups(const hth_router *r, float *scores)
{
    static const float none = -3.4028234663852886e38f;
    float groups[HTH_MAX_EXPERT];
    uint8_t marks[HTH_MAX_EXPERT];
    uint32_t n = r->n_expert / r->n_group;
    for (uint32_t g = 0; g < r->n_group; g++) groups[g] = score_of_group(scores + g * n, n);
    mark_largest(groups, r->n_group, r->n_group_used, marks);
    for (uint32_t i = 0; i < r->n_expert; i++)
        if (!marks[i / n]) scores[i] = none;
}

/* Divides n weights by their sum, which is at least 2^-14. */
static void normalise(const hth_kernels *k, float *weights, uint32_t n)
{
    float sum = 0.0f, reciprocal;
    for (uint32_t i = 0; i < n; i++) sum += weights[i];
    if (sum < 0x1p-14f) sum = 0x1p-14f;
    k->rcp(&sum, 1, &reciprocal);
    k->scale(weights, reciprocal, n, weights);
}

static void sqrt_softplus(const hth_kernels *k, float *x, uint32_t n)
{
    k->softplus(x, n, x);
    for (uint32_t i = 0; i < n; i++) x[i] = (float)hth_sqrt_d((double)x[i]);
}

void hth_route(const hth_kernels *k, const hth_router *r, int32_t token, float *logits, float *scratch, uint32_t *chosen,
               float *weights)
{
    uint8_t marks[HTH_MAX_EXPERT];
    uint32_t n = r->n_expert, n_chosen = 0;
    if (!hth_all_finite(logits, n)) { /* a comparison with NaN would depend on the order of experts */
        for (uint32_t i = 0; i < r->n_used; i++) chosen[i] = i, weights[i] = hth_float_of(0x7fc00000u);
        return;
    }
    if (r->score == HTH_SCORE_SOFTMAX) k->softmax(logits, n);
    if (r->score == HTH_SCORE_SIGMOID) k->sigmoid(logits, n, logits);
    if (r->score == HTH_SCORE_SQRT_SOFTPLUS) sqrt_softplus(k, logits, n);
    if (r->select_bias) k->add(logits, r->select_bias, n, scratch);
    else memcpy(scratch, logits, n * sizeof *scratch);
    if (r->n_group > 1) drop_groups(r, scratch);
    if (r->by_token) {
        for (; n_chosen < r->n_used; n_chosen++) {
            chosen[n_chosen] = (uint32_t)r->by_token[(size_t)token * r->n_used + n_chosen];
            weights[n_chosen] = logits[chosen[n_chosen]];
        }
    } else {
        mark_largest(scratch, n, r->n_used, marks);
        for (uint32_t i = 0; i < n; i++)
            if (marks[i]) weights[n_chosen] = logits[i], chosen[n_chosen++] = i;
    }
    if (r->score == HTH_SCORE_SOFTMAX_CHOSEN) k->softmax(weights, n_chosen);
    if (r->normalise) normalise(k, weights, n_chosen);
    if (r->scale != 1.0f) k->scale(weights, r->scale, n_chosen, weights);
}
