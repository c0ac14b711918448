/* forward/router.c: which experts a token's logits choose and with which weights, against definitions in float (bits,
 * docs/arithmetic.md 6) and in double; ties, groups, the bias of the choice, small sums, and logits that are not
 * finite. */
#include "forward/router.h"

#include "base/bits.h"
#include "support/kernels/proof.h"

enum { MAX_N = 300 };

static const hth_router_score scores[] = {HTH_SCORE_SOFTMAX, HTH_SCORE_SIGMOID, HTH_SCORE_SOFTMAX_CHOSEN};
enum { N_SCORE = sizeof scores / sizeof *scores };

static const char *score_name(hth_router_score s)
{
    return s == HTH_SCORE_SOFTMAX ? "softmax" : s == HTH_SCORE_SIGMOID ? "sigmoid" : "softmax of the chosen";
}

typedef struct route {
    uint32_t chosen[MAX_N];
    float weights[MAX_N];
} route;

static hth_router plain_router(hth_router_score score, uint32_t n_expert, uint32_t n_used)
{
    return (hth_router){.n_expert = n_expert, .n_used = n_used, .n_group = 1, .n_group_used = 1, .score = score,
                        .scale = 1.0f};
}

static route run(const hth_kernels *k, const hth_router *r, const float *logits)
{
    float copy[MAX_N], scratch[MAX_N];
    route got;
    memcpy(copy, logits, r->n_expert * sizeof *copy);
    memset(scratch, 0xff, sizeof scratch), memset(&got, 0xff, sizeof got);
    hth_route(k, r, 0, copy, scratch, got.chosen, got.weights);
    return got;
}

static route run_here(const hth_router *r, const float *logits)
{
    hth_kernels k = proof_kernels(hth_cpu_detect());
    return run(&k, r, logits);
}

/* Whether these experts are chosen, ascending. */
static bool chose(const route *r, uint32_t n, const uint32_t *experts)
{
    return memcmp(r->chosen, experts, n * sizeof *experts) == 0;
}
#define CHOSE(R, ...)                                                                                        \
    CHECK(chose(R, sizeof((uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t), (uint32_t[]){__VA_ARGS__}))

/* ---- definitions ------------------------------------------------------------------------------------------ */

/* The n largest of n_score, of equal ones the first. `gap`: by how much another one would have to grow, if less. */
static void choose(const double *score, uint32_t n_score, uint32_t n, bool *is_chosen, double *gap)
{
    for (uint32_t i = 0; i < n_score; i++) {
        uint32_t n_before = 0;
        for (uint32_t j = 0; j < n_score; j++)
            if (score[j] > score[i] || (score[j] >= score[i] && j < i)) n_before++;
        is_chosen[i] = n_before < n;
    }
    for (uint32_t i = 0; i < n_score; i++)
        for (uint32_t j = 0; j < n_score; j++)
            if (is_chosen[i] && !is_chosen[j] && score[i] - score[j] < *gap) *gap = score[i] - score[j];
}

static double two_largest(const double *score, uint32_t n)
{
    double most = -HUGE_VAL;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t j = 0; j < i; j++) most = fmax(most, score[i] + score[j]);
    return most;
}

/* Experts of the groups that are not chosen cannot be. */
static void exclude_groups(const hth_router *r, double *score, double *gap)
{
    double groups[MAX_N];
    bool is_chosen[MAX_N];
    uint32_t n = r->n_expert / r->n_group;
    for (uint32_t g = 0; g < r->n_group; g++) groups[g] = two_largest(score + g * n, n);
    choose(groups, r->n_group, r->n_group_used, is_chosen, gap);
    for (uint32_t i = 0; i < r->n_expert; i++)
        if (!is_chosen[i / n]) score[i] = -1e300;
}

static void softmax_d(double *x, uint32_t n)
{
    double sum = 0, most = x[0];
    for (uint32_t i = 0; i < n; i++) most = fmax(most, x[i]);
    for (uint32_t i = 0; i < n; i++) sum += x[i] = exp(x[i] - most);
    for (uint32_t i = 0; i < n; i++) x[i] /= sum;
}

/* All in double; the smallest difference that decided a choice. */
static double route_in_double(const hth_router *r, const float *logits, uint32_t *chosen, double *weights)
{
    double score[MAX_N], select[MAX_N], gap = HUGE_VAL, sum = 0;
    bool is_chosen[MAX_N];
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->n_expert; i++) {
        score[i] = (double)logits[i];
        if (r->score == HTH_SCORE_SIGMOID) score[i] = 1 / (1 + exp(-score[i]));
    }
    if (r->score == HTH_SCORE_SOFTMAX) softmax_d(score, r->n_expert);
    for (uint32_t i = 0; i < r->n_expert; i++)
        select[i] = score[i] + (r->select_bias ? (double)r->select_bias[i] : 0.0);
    if (r->n_group > 1) exclude_groups(r, select, &gap);
    choose(select, r->n_expert, r->n_used, is_chosen, &gap);
    for (uint32_t i = 0; i < r->n_expert; i++)
        if (is_chosen[i]) chosen[n] = i, weights[n++] = score[i];
    if (r->score == HTH_SCORE_SOFTMAX_CHOSEN) softmax_d(weights, n);
    for (uint32_t i = 0; i < n; i++) sum += weights[i];
    for (uint32_t i = 0; i < n && r->normalise; i++) weights[i] /= fmax(sum, 0x1p-14);
    for (uint32_t i = 0; i < n; i++) weights[i] *= (double)r->scale;
    return gap;
}

/* The weights of chosen experts in the order of arithmetic.md. */
static void weigh_in_float(const hth_kernels *k, const hth_router *r, const float *logits, const uint32_t *chosen,
                           float *weights)
{
    float score[MAX_N], sum = 0.0f, reciprocal;
    memcpy(score, logits, r->n_expert * sizeof *score);
    if (r->score == HTH_SCORE_SOFTMAX) k->softmax(score, r->n_expert);
    for (uint32_t i = 0; i < r->n_expert && r->score == HTH_SCORE_SIGMOID; i++) k->sigmoid(&score[i], 1, &score[i]);
    for (uint32_t i = 0; i < r->n_used; i++) weights[i] = score[chosen[i]];
    if (r->score == HTH_SCORE_SOFTMAX_CHOSEN) k->softmax(weights, r->n_used);
    for (uint32_t i = 0; i < r->n_used; i++) sum = sum + weights[i];
    if (sum < 0x1p-14f) sum = 0x1p-14f;
    k->rcp(&sum, 1, &reciprocal);
    for (uint32_t i = 0; i < r->n_used && r->normalise; i++) weights[i] = weights[i] * reciprocal;
    for (uint32_t i = 0; i < r->n_used && r->scale != 1.0f; i++) weights[i] = weights[i] * r->scale;
}

/* ---- any router ---------------------------------------------------------------------------------------- */

static hth_router any_router(test_random *r, float *bias)
{
    static const uint32_t groups[] = {1, 1, 2, 4, 8};
    static const float factors[] = {1.0f, 2.5f, 16.0f};
    uint32_t n_group = groups[test_random_below(r, 5)], size = 2 + test_random_below(r, 31), n = n_group * size;
    hth_router router = plain_router(scores[test_random_below(r, N_SCORE)], n, 1);
    router.n_group = n_group, router.n_group_used = 1 + test_random_below(r, n_group);
    uint32_t most = router.n_group_used * size;
    router.n_used = 1 + test_random_below(r, most < 10 ? most : 10);
    router.normalise = test_random_below(r, 2), router.scale = factors[test_random_below(r, 3)];
    for (uint32_t i = 0; i < n; i++) bias[i] = test_random_float(r) * 0.3f;
    if (test_random_below(r, 2)) router.select_bias = bias;
    return router;
}

static bool near_double(const hth_router *r, const route *got, const float *logits)
{
    uint32_t chosen[MAX_N];
    double weights[MAX_N];
    if (route_in_double(r, logits, chosen, weights) < 1e-6) return true; /* float may choose another one */
    for (uint32_t i = 0; i < r->n_used; i++)
        if (chosen[i] != got->chosen[i] || fabs((double)got->weights[i] - weights[i]) > 1e-5 * weights[i] + 1e-9)
            return false;
    return true;
}

TEST(any_router_gives_its_definition_at_every_level)
{
    hth_cpu levels[1 + PROOF_MAX_LEVEL] = {HTH_CPU_GENERIC};
    int n_level = 1 + proof_levels(levels + 1);
    test_random r = proof_random();
    for (int l = 0; l < n_level; l++) {
        hth_kernels k = proof_kernels(levels[l]);
        for (int i = 0; i < 1500; i++) {
            float logits[MAX_N], bias[MAX_N], weights[MAX_N];
            hth_router router = any_router(&r, bias);
            for (uint32_t e = 0; e < router.n_expert; e++) logits[e] = test_random_float(&r) * (i % 2 ? 8.0f : 1.0f);
            route got = run(&k, &router, logits);
            weigh_in_float(&k, &router, logits, got.chosen, weights);
            bool same = proof_differ_f32(weights, got.weights, router.n_used) == router.n_used;
            if (same && near_double(&router, &got, logits)) continue;
            test_fail(__FILE__, __LINE__,
                      "%s at %s: %s; %u of %u experts, %u of %u groups, normalise %d, scale %g, bias %d",
                      score_name(router.score), hth_cpu_name(levels[l]), same ? "not as in double" : "other bits",
                      router.n_used, router.n_expert, router.n_group_used, router.n_group, router.normalise,
                      (double)router.scale, router.select_bias != NULL);
        }
    }
}

/* ---- single promises -------------------------------------------------------------------------------- */

TEST(equal_logits_choose_the_first_experts)
{
    for (int s = 0; s < N_SCORE; s++)
        for (uint32_t n = 1; n <= 40; n++) {
            hth_router router = plain_router(scores[s], 40, n);
            float logits[40];
            for (int i = 0; i < 40; i++) logits[i] = 0.75f;
            route got = run_here(&router, logits);
            for (uint32_t i = 0; i < n; i++) {
                CHECK_INT(got.chosen[i], i);
                CHECK(proof_differ_f32(&got.weights[i], &got.weights[0], 1) == 1);
            }
        }
}

TEST(of_equal_logits_the_lower_index_is_chosen)
{
    const float logits[] = {1, 3, 2, 3, 2, 2, 3, -0.0f, 0.0f};
    for (int s = 0; s < N_SCORE; s++) {
        hth_router two = plain_router(scores[s], 9, 2), four = plain_router(scores[s], 9, 4),
                   nine = plain_router(scores[s], 9, 9);
        route got = run_here(&two, logits);
        CHOSE(&got, 1, 3);
        got = run_here(&four, logits);
        CHOSE(&got, 1, 2, 3, 6);
        got = run_here(&nine, logits);
        CHOSE(&got, 0, 1, 2, 3, 4, 5, 6, 7, 8);
        nine.n_used = 8; /* -0 equals +0 */
        got = run_here(&nine, logits);
        CHOSE(&got, 0, 1, 2, 3, 4, 5, 6, 7);
    }
}

/* Also where n_used is as large as it can be: softmax weights then add up to 1 by themselves. */
TEST(all_experts_can_be_used)
{
    float logits[64];
    test_random r = proof_random();
    for (int i = 0; i < 64; i++) logits[i] = test_random_float(&r) * 4;
    for (int s = 0; s < N_SCORE; s++) {
        hth_router router = plain_router(scores[s], 64, 64);
        router.normalise = scores[s] == HTH_SCORE_SIGMOID;
        route got = run_here(&router, logits);
        double sum = 0;
        for (uint32_t i = 0; i < 64; i++) {
            CHECK_INT(got.chosen[i], i);
            sum += (double)got.weights[i];
        }
        CHECK(fabs(sum - 1) < 1e-5);
    }
}

TEST(a_bias_of_the_choice_is_not_in_the_weights)
{
    const float logits[] = {0.5f, -0.5f, 0.25f, -1.0f}, bias[] = {-3.0f, 0.0f, 0.0f, 3.0f};
    for (int s = 0; s < N_SCORE; s++) {
        hth_router router = plain_router(scores[s], 4, 2);
        route without = run_here(&router, logits);
        CHOSE(&without, 0, 2);
        router.select_bias = bias;
        route with = run_here(&router, logits);
        CHOSE(&with, 2, 3);
        if (scores[s] != HTH_SCORE_SOFTMAX_CHOSEN) CHECK_BYTES(&with.weights[0], &without.weights[1], sizeof(float));
        CHECK(with.weights[0] > with.weights[1] && with.weights[1] > 0.0f);
    }
}

/* Group 0 has the largest score, group 1 the largest sum of two, group 2 the largest sum of all. */
TEST(the_score_of_a_group_is_the_sum_of_its_two_largest)
{
    const float logits[] = {4, -4, -4, -4, /**/ 1.5f, -4, -4, 3.0f, /**/ 1, 1, 1, 1};
    hth_router router = plain_router(HTH_SCORE_SOFTMAX_CHOSEN, 12, 2);
    router.n_group = 3, router.n_group_used = 1;
    route got = run_here(&router, logits);
    CHOSE(&got, 4, 7);
    router.n_used = 3; /* all from that group, though others have larger logits */
    got = run_here(&router, logits);
    CHOSE(&got, 4, 5, 7);
    router.n_group_used = 2, router.n_used = 5; /* 1 + 1 against 4 - 4 */
    got = run_here(&router, logits);
    CHOSE(&got, 4, 7, 8, 9, 10);
    router.n_group_used = 3, router.n_used = 2;
    got = run_here(&router, logits);
    CHOSE(&got, 0, 7);
}

TEST(of_equal_groups_the_first_is_chosen_and_the_bias_counts)
{
    const float logits[] = {0, 1, 1, 0, 0.25f, 0.25f, 1, 0}, bias[] = {0, 0, 0, 0, 0, 0, 2, 0};
    hth_router router = plain_router(HTH_SCORE_SIGMOID, 8, 2);
    router.n_group = 4, router.n_group_used = 1;
    route got = run_here(&router, logits);
    CHOSE(&got, 0, 1);
    router.select_bias = bias;
    got = run_here(&router, logits);
    CHOSE(&got, 6, 7);
}

/* Weights below 2^-14 together are divided by that, so they stay small. */
TEST(a_small_sum_is_not_normalised_to_one)
{
    const float logits[] = {-20.0f, -21.0f, -22.0f, -40.0f};
    hth_router router = plain_router(HTH_SCORE_SIGMOID, 4, 2);
    route raw = run_here(&router, logits);
    router.normalise = true;
    route got = run_here(&router, logits);
    CHOSE(&got, 0, 1);
    for (int i = 0; i < 2; i++) CHECK(fabsf(got.weights[i] / (raw.weights[i] * 0x1p14f) - 1.0f) < 1e-6f);
    const float larger[] = {-9.0f, -9.0f, -9.0f, -9.0f}; /* 2.5e-4 together */
    got = run_here(&router, larger);
    CHECK(fabsf(got.weights[0] - 0.5f) < 1e-6f && fabsf(got.weights[1] - 0.5f) < 1e-6f);
}

TEST(the_scale_is_the_last_factor)
{
    const float logits[] = {0.5f, -0.5f, 0.25f, -1.0f};
    for (int s = 0; s < N_SCORE; s++)
        for (int normalise = 0; normalise < 2; normalise++) {
            hth_router router = plain_router(scores[s], 4, 3);
            router.normalise = normalise;
            route one = run_here(&router, logits);
            router.scale = 2.5f;
            route got = run_here(&router, logits);
            CHOSE(&got, 0, 1, 2);
            for (int i = 0; i < 3; i++) {
                float e = one.weights[i] * 2.5f;
                CHECK_BYTES(&got.weights[i], &e, sizeof e);
            }
        }
}

/* Whatever the logits are, the experts are different ones and exist; the caller indexes with them. */
static bool are_distinct(const hth_router *r, const route *got)
{
    for (uint32_t i = 0; i < r->n_used; i++)
        if (got->chosen[i] >= r->n_expert || (i > 0 && got->chosen[i] <= got->chosen[i - 1])) return false;
    return true;
}

/* One bad logit, wherever it is, ends as an error of the step: all weights are NaN. */
TEST(logits_that_are_not_finite_give_weights_that_are_not)
{
    const float bad[] = {NAN, -NAN, INFINITY, -INFINITY};
    float bias[24];
    test_random r = proof_random();
    for (int i = 0; i < 24; i++) bias[i] = test_random_float(&r);
    for (int i = 0; i < 4 * 24 * N_SCORE * 8; i++) {
        int at = i / 4 % 24, s = i / 96 % N_SCORE, form = i / 96 / N_SCORE;
        hth_router router = plain_router(scores[s], 24, 1 + test_random_below(&r, 8));
        router.normalise = form % 2, router.n_group = form / 2 % 2 ? 4 : 1, router.n_group_used = form / 2 % 2 ? 2 : 1;
        if (form / 4) router.select_bias = bias;
        float logits[24];
        for (int e = 0; e < 24; e++) logits[e] = test_random_float(&r) * 4;
        logits[at] = bad[i % 4];
        route got = run_here(&router, logits);
        bool all_nan = true;
        for (uint32_t e = 0; e < router.n_used; e++) all_nan = all_nan && got.weights[e] != got.weights[e];
        if (are_distinct(&router, &got) && all_nan) continue;
        test_fail(__FILE__, __LINE__, "%s, logit %d of 24 is %g: %u experts in %u groups are %s",
                  score_name(scores[s]), at, (double)bad[i % 4], router.n_used, router.n_group,
                  all_nan ? "not distinct" : "weighted");
        return;
    }
}

TEST(any_bits_choose_distinct_experts)
{
    test_random r = proof_random();
    for (int i = 0; i < 400 * PROOF_N_KIND; i++) {
        float logits[MAX_N], bias[MAX_N];
        hth_router router = any_router(&r, bias);
        proof_fill_f32(&r, (proof_kind)(i % PROOF_N_KIND), logits, router.n_expert);
        if (i % 3 == 0) proof_fill_f32(&r, (proof_kind)(i / 3 % PROOF_N_KIND), bias, router.n_expert);
        route got = run_here(&router, logits);
        CHECK(are_distinct(&router, &got));
    }
}
