/* The choice of experts on the null device and on the first that Vulkan knows: logits, choices and weights have the bits of
 * the CPU, and pairs are grouped by expert in their order. */
#include "base/bits.h"
#include "forward/gpu/shader_params.h"
#include "forward/router.h"
#include "support/device/shaders.h"
#include "support/kernels/proof.h"

static const char *const devices[] = {"null", "vulkan:0"};
enum { N_DEVICE = 2, MAX_TOK = 11, MAX_EXPERT = 384, MAX_COL = 700, MAX_USED = 12, N_CASE = 40 };
enum { N_PAIR_WORD = (MAX_TOK + 1) * (2 * MAX_USED + 4), N_LOGIT = (MAX_TOK + 1) * (MAX_EXPERT + 8) };

typedef struct scene {
    hth_device *device;
    const char *name;
    hth_kernels k;
    test_random r;
    uint32_t n_tok, step[HTH_STEP_ROWS + MAX_EXPERT + 2 * MAX_TOK * MAX_USED];
    uint32_t expected_step[HTH_STEP_ROWS + MAX_EXPERT + 2 * MAX_TOK * MAX_USED];
    uint32_t reads[8 + HTH_READS_HEAD + 3 * MAX_USED], expected_reads[8 + HTH_READS_HEAD + 3 * MAX_USED];
    float weight[MAX_EXPERT * MAX_COL], x[(MAX_TOK + 1) * (MAX_COL + 8)], bias[MAX_EXPERT], scale[MAX_EXPERT];
    float logits[N_LOGIT], expected_logits[N_LOGIT];
    uint32_t pairs[N_PAIR_WORD], expected[N_PAIR_WORD];
} scene;

static void on_each(void (*fn)(scene *))
{
    for (size_t i = 0; i < N_DEVICE; i++) {
        static scene s;
        s = (scene){.name = devices[i], .k = proof_kernels(HTH_CPU_GENERIC), .r = proof_random()};
        s.device = shaders_open(devices[i]);
        if (!s.device) continue;
        fn(&s);
        shaders_close(s.device);
    }
}

static void begin(scene *s, uint32_t max_tok)
{
    s->n_tok = 1 + test_random_below(&s->r, max_tok);
    s->step[HTH_STEP_N_TOK] = s->n_tok;
    memset(s->expected, SHADERS_POISON, sizeof s->expected);
    memset(s->expected_logits, SHADERS_POISON, sizeof s->expected_logits);
}

static hth_rows_at rows_of(scene *s, uint32_t n)
{
    uint32_t at = test_random_below(&s->r, 4);
    return (hth_rows_at){n + at + test_random_below(&s->r, 4), at};
}

/* ---- logits ------------------------------------------------------------------------------------------ */

static void check_rows(scene *s, uint32_t i)
{
    static const uint32_t together[] = {1, 8, 2, 4};
    uint32_t n_together = together[i % 4], n_row = i % 7 == 0 ? 1 : 1 + test_random_below(&s->r, MAX_EXPERT),
             n_col = 4 + test_random_below(&s->r, MAX_COL - 4);
    bool is_wide = i % 3 > 0, has_bias = i / 2 % 2;
    if (is_wide) n_col = n_col / 4 * 4;
    begin(s, MAX_TOK);
    proof_fill_f32(&s->r, i % 5 ? PROOF_PLAIN : PROOF_WIDE, s->weight, (size_t)n_row * n_col);
    proof_fill_f32(&s->r, i % 6 ? PROOF_PLAIN : PROOF_OUTLIER, s->x, sizeof s->x / sizeof *s->x);
    proof_fill_f32(&s->r, PROOF_PLAIN, s->bias, MAX_EXPERT);
    const hth_push_router_rows push = {n_row, n_col, has_bias, rows_of(s, n_col), rows_of(s, n_row)};
    for (uint32_t t = 0; t < s->n_tok; t++) {
        float *y = s->expected_logits + t * push.y.stride + push.y.at;
        s->k.dot_rows(s->weight, n_row, n_col, s->x + t * push.x.stride + push.x.at, y);
        if (has_bias) s->k.add(y, s->bias, n_row, y);
    }
    shaders_run run = {.id = HTH_SHADER_router_rows,
                       .consts = (const uint32_t[]){n_together, is_wide, 64 * n_together},
                       .push = &push,
                       .bind = {{s->step, sizeof s->step},
                                {s->weight, (size_t)n_row * n_col * 4},
                                {s->x, sizeof s->x},
                                {s->bias, sizeof s->bias},
                                {s->logits, sizeof s->logits}},
                       .grid = {(n_row + HTH_ROUTER_ROWS - 1) / HTH_ROUTER_ROWS,
                                (s->n_tok + n_together) / n_together + 1, 1}};
    if (!shaders_do(s->device, &run)) return;
    size_t at = proof_differ_f32(s->logits, s->expected_logits, N_LOGIT);
    if (at < N_LOGIT)
        test_fail(__FILE__, __LINE__, "%s, %u rows of %u, %u tokens: y[%zu] is %a, not %a", s->name, n_row, n_col,
                  s->n_tok, at, (double)s->logits[at], (double)s->expected_logits[at]);
}

static void rows(scene *s)
{
    for (uint32_t i = 0; i < N_CASE; i++) check_rows(s, i);
}
TEST(logits_have_the_bits_of_the_cpu) { on_each(rows); }

/* ---- choices ----------------------------------------------------------------------------------------- */

/* Some experts have a slot; spare ones follow. */
static void fill_slots(scene *s, uint32_t n)
{
    for (uint32_t e = 0; e < n; e++)
        s->step[HTH_STEP_ROWS + e] = test_random_below(&s->r, 3) == 0 ? test_random_below(&s->r, n) : HTH_STEP_NO_SLOT;
    for (uint32_t k = 0; k < MAX_USED; k++) s->step[HTH_STEP_ROWS + MAX_EXPERT + k] = 5000 + k;
}

/* Different experts for each token. */
static void give(scene *s, uint32_t n, uint32_t n_used, uint32_t given_at)
{
    for (uint32_t t = 0; given_at > 0 && t < s->n_tok; t++) {
        uint32_t first = test_random_below(&s->r, n);
        for (uint32_t k = 0; k < n_used; k++) s->step[given_at + t * n_used + k] = (first + k) % n;
    }
}

/* Many are equal; with broken one of them is infinite or NaN. */
static void fill_logits(scene *s, uint32_t i, bool is_broken)
{
    proof_fill_f32(&s->r, PROOF_PLAIN, s->logits, N_LOGIT);
    for (uint32_t k = 0; k < N_LOGIT; k++) {
        float large = s->logits[k] * 30.0f;
        s->logits[k] = i % 3 == 0 ? (float)(int)(s->logits[k] * 4.0f) : i % 3 == 1 ? large : s->logits[k];
    }
    if (is_broken) s->logits[test_random_below(&s->r, 20)] = hth_float_of(i % 2 ? 0x7f800000u : 0xffc00001u);
}

static void expect_route(scene *s, const hth_push_route *push, const hth_router *router, uint32_t score)
{
    for (uint32_t t = 0; t < s->n_tok; t++) {
        float logits[MAX_EXPERT], scratch[MAX_EXPERT], weights[MAX_USED];
        uint32_t *to = s->expected + t * push->y.stride + push->y.at;
        memcpy(logits, s->logits + t * push->x.stride + push->x.at, router->n_expert * sizeof *logits);
        if (score != HTH_ROUTE_CONSTANT) hth_route(&s->k, router, 0, logits, scratch, to, weights);
        for (uint32_t i = 0; i < router->n_used; i++) {
            if (score == HTH_ROUTE_CONSTANT) to[i] = i, weights[i] = router->scale;
            if (push->given_at > 0) to[i] = s->step[push->given_at + t * push->n_used + i];
            if (push->has_expert_scale) weights[i] *= s->scale[to[i]];
            to[router->n_used + i] = hth_bits_of(weights[i]);
        }
    }
}

/* What follows for slots and reads, of one token. */
static void expect_places(scene *s, const hth_push_route *push)
{
    uint32_t n = 0, *reads = s->expected_reads + push->reads_at;
    for (uint32_t i = 0; i < push->n_used; i++) {
        uint32_t id = s->expected[push->y.at + i];
        if (s->step[push->slots_at + id] == HTH_STEP_NO_SLOT) {
            uint32_t spare = s->step[push->spares_at + n];
            s->expected_step[push->slots_at + id] = spare;
            reads[HTH_READS_HEAD + 2 * n] = spare, reads[HTH_READS_HEAD + 2 * n + 1] = id;
            n++;
        }
        reads[HTH_READS_HEAD + 2 * push->n_used + i] = id;
    }
    reads[2] = reads[6] = reads[10] = reads[HTH_READS_JOBS] = n;
}

/* NaN is NaN, whatever its bits. */
static bool is_same(uint32_t a, uint32_t b)
{
    float x = hth_float_of(a), y = hth_float_of(b);
    return a == b || (x != x && y != y && a != 0x01010101u * SHADERS_POISON);
}

static void check_route(scene *s, uint32_t i)
{
    static const uint32_t n_experts[] = {1, 8, 60, 128, MAX_EXPERT, 33};
    uint32_t score = i % HTH_N_SCORE, n = n_experts[i / 2 % 6], n_used = 1 + test_random_below(&s->r, MAX_USED);
    bool has_groups = n >= 8 && n % 4 == 0 && i % 3 > 0;
    bool places = i % 5 == 1 || i % 5 == 3;
    if (n_used > n) n_used = n;
    begin(s, places ? 1 : MAX_TOK);
    fill_slots(s, n);
    fill_logits(s, i, i % 8 == 7);
    proof_fill_f32(&s->r, PROOF_PLAIN, s->bias, MAX_EXPERT);
    proof_fill_f32(&s->r, PROOF_PLAIN, s->scale, MAX_EXPERT);
    const hth_push_route push = {.n_used = n_used,
                                 .n_group = has_groups ? 4 : 1,
                                 .n_group_used = has_groups ? 1 + i % 3 : 1,
                                 .has_select_bias = score != HTH_ROUTE_CONSTANT && i / 3 % 2,
                                 .has_expert_scale = i / 4 % 2,
                                 .normalises = i / 5 % 2,
                                 .scale = i % 4 ? 1.0f : 2.5f,
                                 .x = rows_of(s, n),
                                 .y = rows_of(s, 2 * n_used),
                                 .given_at = i % 7 > 4 ? HTH_STEP_ROWS + MAX_EXPERT + MAX_USED : 0,
                                 .slots_at = HTH_STEP_ROWS,
                                 .spares_at = HTH_STEP_ROWS + MAX_EXPERT,
                                 .reads_at = i % 8};
    const hth_router router = {.select_bias = push.has_select_bias ? s->bias : NULL,
                               .n_expert = n,
                               .n_used = n_used,
                               .n_group = push.n_group,
                               .n_group_used = push.n_group_used,
                               .score = (hth_router_score)score,
                               .normalise = push.normalises,
                               .scale = push.scale};
    if (score == HTH_ROUTE_CONSTANT && push.normalises) return; /* of no model */
    give(s, n, n_used, push.given_at);
    memset(s->expected_reads, SHADERS_POISON, sizeof s->expected_reads);
    expect_route(s, &push, &router, score);
    memcpy(s->expected_step, s->step, sizeof s->step);
    if (places) expect_places(s, &push);
    shaders_run run = {.id = HTH_SHADER_route,
                       .consts = (const uint32_t[]){score, n, i % 2 ? 64 : 128, places},
                       .push = &push,
                       .bind = {{s->step, sizeof s->step},
                                {s->logits, sizeof s->logits},
                                {s->bias, sizeof s->bias},
                                {s->scale, sizeof s->scale},
                                {s->pairs, sizeof s->pairs},
                                {s->reads, sizeof s->reads}},
                       .grid = {MAX_TOK + 1, 1, 1}};
    if (!shaders_do(s->device, &run)) return;
    CHECK(memcmp(s->step, s->expected_step, sizeof s->step) == 0);
    CHECK(memcmp(s->reads, s->expected_reads, sizeof s->reads) == 0);
    for (size_t w = 0; w < N_PAIR_WORD; w++)
        if (!is_same(s->pairs[w], s->expected[w])) {
            test_fail(__FILE__, __LINE__, "%s, case %u, %u of %u experts, score %u: word %zu is %#x, not %#x", s->name, i,
                      n_used, n, score, w, s->pairs[w], s->expected[w]);
            return;
        }
}

static void choices(scene *s)
{
    for (uint32_t i = 0; i < 3 * N_CASE; i++) check_route(s, i);
}
TEST(choices_and_weights_have_the_bits_of_the_cpu) { on_each(choices); }

/* ---- groups ------------------------------------------------------------------------------------------ */

/* Experts without a slot are the last of n. */
static uint32_t grouped_as(const scene *s, const hth_push_group_pairs *push, uint32_t expert, uint32_t n)
{
    return hth_step_has_slot(s->step, push->slots_at, expert) ? expert : n - 1;
}

/* Every pair is in one group of its expert, with its weight; experts and their pairs ascend. */
static void check_groups(scene *s, const uint32_t *groups, const hth_push_group_pairs *push, uint32_t of, uint32_t n)
{
    uint32_t n_used = push->n_used;
    uint32_t n_pair = s->n_tok * n_used, n_found = 0, last = 0;
    for (uint32_t g = 0; g < groups[0]; g++) {
        const uint32_t *group = groups + HTH_GROUPS_HEAD + g * hth_group_words(of);
        bool is_full = g + 1 == groups[0] || group[hth_group_words(of)] != group[0] || group[1] == of;
        if (!CHECK(is_full && group[1] > 0 && group[1] <= of)) return;
        for (uint32_t k = 0; k < group[1]; k++, n_found++) {
            uint32_t i = group[2 + k], at = i / n_used * 2 * n_used + i % n_used, key = group[0] * n_pair + i;
            if (!CHECK(i < n_pair) || !CHECK(grouped_as(s, push, s->pairs[at], n) == group[0]) ||
                !CHECK(s->pairs[at + n_used] == group[2 + of + k]) || !CHECK(n_found == 0 || key > last))
                return;
            last = key;
        }
    }
    CHECK_INT(n_found, n_pair);
}

static void check_grouping(scene *s, uint32_t i)
{
    enum { MAX_OF = 16, N_WORD = HTH_GROUPS_HEAD + MAX_TOK * MAX_USED * (2 + 2 * MAX_OF) };
    static uint32_t groups[N_WORD];
    uint32_t n = i % 4 == 0 ? 3 : 1 + test_random_below(&s->r, MAX_EXPERT), of = i % 3 ? 8 : 1 + test_random_below(&s->r, MAX_OF),
             n_used = 1 + test_random_below(&s->r, MAX_USED);
    const hth_push_group_pairs push = {n_used, i % 4 < 2 ? HTH_STEP_ROWS : 0};
    begin(s, MAX_TOK);
    for (uint32_t e = 0; e < n; e++)
        s->step[HTH_STEP_ROWS + e] = e + 1 == n || test_random_below(&s->r, 2) ? HTH_STEP_NO_SLOT : test_random_below(&s->r, n);
    for (uint32_t w = 0; w < s->n_tok * 2 * n_used; w++)
        s->pairs[w] = w / n_used % 2 ? 1000 + w : test_random_below(&s->r, n);
    size_t n_word = HTH_GROUPS_HEAD + hth_max_groups(n, s->n_tok * n_used, of) * hth_group_words(of);
    shaders_run run = {.id = HTH_SHADER_group_pairs,
                       .consts = (const uint32_t[]){n, of, 64},
                       .push = &push,
                       .bind = {{s->step, sizeof s->step},
                                {s->pairs, (size_t)s->n_tok * 2 * n_used * sizeof *s->pairs},
                                {groups, n_word * sizeof *groups}},
                       .grid = {(n + 63) / 64, 1, 1}};
    if (shaders_do(s->device, &run)) check_groups(s, groups, &push, of, n);
}

static void grouping(scene *s)
{
    for (uint32_t i = 0; i < N_CASE; i++) check_grouping(s, i);
}
TEST(pairs_are_grouped_by_expert) { on_each(grouping); }
