/* Replays of the policy of experts' slots: hits, misses and uploads of traces for which they are known. */
#include "base/alloc.h"
#include "store/expert_replay.h"
#include "support/test.h"

enum { N_EXPERT = 32, N_USED = 4, N_LAYER = 3, N_TOK = 600 };

/* Experts for each token and layer. */
typedef struct trace {
    uint32_t chosen[N_TOK][N_LAYER][N_USED];
} trace;

static void get(void *user, uint32_t i_layer, uint64_t i_tok, bool is_guess, uint32_t *chosen)
{
    const trace *t = user;
    CHECK(!is_guess && i_layer >= 10);
    memcpy(chosen, t->chosen[i_tok % N_TOK][i_layer - 10], sizeof t->chosen[0][0]);
}

static hth_expert_counts replay(trace *t, uint32_t n_layer, uint32_t n_slot, hth_expert_replay_options o,
                                hth_expert_counts *by_layer)
{
    hth_expert_replay_layer layers[N_LAYER];
    hth_expert_counts all = {0};
    uint64_t n_miss = 0, n_step = 0;
    for (uint32_t i = 0; i < n_layer; i++)
        layers[i] = (hth_expert_replay_layer){10 + i, N_EXPERT, N_USED, n_slot, NULL};
    o.layers = layers, o.n_layer = n_layer, o.trace = get, o.user = t;
    if (o.n_tok == 0) o.n_tok = N_TOK;
    CHECK_OK(hth_expert_replay(&o, by_layer, &all, err));
    for (uint64_t i = 0; i < HTH_EXPERT_MISS_BINS; i++) n_miss += i * all.misses[i], n_step += all.misses[i];
    CHECK_INT(all.n_pair, o.n_tok * n_layer * N_USED);
    CHECK_INT(all.n_step, o.n_tok * n_layer);
    CHECK_INT(n_step, all.n_step);
    CHECK_INT(n_miss, all.n_pair - all.n_hit);
    return all;
}

static const hth_expert_replay_options unlimited = {.n_upload_layer = UINT32_MAX, .n_upload = UINT32_MAX};

/* All tokens use the last experts, which are absent at first. */
static void use_last(trace *t)
{
    for (uint32_t i = 0; i < N_TOK; i++)
        for (uint32_t l = 0; l < N_LAYER; l++)
            for (uint32_t k = 0; k < N_USED; k++) t->chosen[i][l][k] = N_EXPERT - N_USED + k;
}

/* Skewed, and an expert of a token is one of the next with probability sticky. */
static void draw(trace *t, double sticky)
{
    test_random random = {9};
    for (uint32_t l = 0; l < N_LAYER; l++)
        for (uint32_t i = 0; i < N_TOK; i++) {
            bool taken[N_EXPERT] = {false};
            uint32_t n = 0;
            for (uint32_t k = 0; i > 0 && k < N_USED; k++)
                if (test_random_between(&random, 0.0, 1.0) < sticky) taken[t->chosen[i - 1][l][k]] = true, n++;
            while (n < N_USED) {
                uint32_t e = N_EXPERT - 1 - test_random_below(&random, 1 + test_random_below(&random, N_EXPERT));
                if (!taken[e]) taken[e] = true, n++;
            }
            for (uint32_t e = 0, k = 0; e < N_EXPERT; e++)
                if (taken[e]) t->chosen[i][l][k++] = e;
        }
}

TEST(uploads_end_in_time_for_the_token_that_a_replay_says)
{
    trace t;
    use_last(&t);
    for (uint32_t delay = 0; delay < 4; delay++) {
        hth_expert_replay_options o = unlimited;
        o.n_delay = delay;
        hth_expert_counts c = replay(&t, 1, 8, o, NULL);
        CHECK_INT(c.misses[N_USED], 1 + delay);
        CHECK_INT(c.misses[0], N_TOK - 1 - delay);
        CHECK_INT(c.n_upload, N_USED);
        o.n_upload_layer = 1;
        c = replay(&t, 1, 8, o, NULL);
        CHECK_INT(c.misses[N_USED], 1 + delay);
        for (uint32_t k = 1; k < N_USED; k++) CHECK_INT(c.misses[k], 1);
    }
}

TEST(a_budget_of_all_layers_is_spent_by_gain)
{
    trace t;
    hth_expert_counts by_layer[N_LAYER];
    hth_expert_replay_options o = unlimited;
    use_last(&t);
    o.n_upload = 1;
    hth_expert_counts c = replay(&t, N_LAYER, 8, o, by_layer);
    CHECK_INT(c.n_upload, N_LAYER * N_USED);
    for (uint32_t l = 0; l < N_LAYER; l++) CHECK_INT(by_layer[l].n_upload, N_USED);
    CHECK_INT(c.n_pair - c.n_hit, N_LAYER * N_USED * (N_LAYER * N_USED + 1) / 2);
}

TEST(layers_in_their_order_share_what_may_move_and_the_gain_that_it_takes)
{
    trace t;
    hth_expert_counts by_layer[N_LAYER];
    hth_expert_replay_options o = unlimited;
    use_last(&t);
    o.n_upload = 1, o.in_order = true;
    hth_expert_counts c = replay(&t, N_LAYER, 8, o, by_layer);
    CHECK(c.n_upload > 0 && c.n_upload <= N_TOK && by_layer[0].n_upload >= by_layer[N_LAYER - 1].n_upload);
    CHECK_INT(by_layer[0].uploads[1], by_layer[0].n_upload);
    CHECK_INT(c.uploads[0] + c.uploads[1], N_TOK * N_LAYER);
    o.n_upload = UINT32_MAX;
    c = replay(&t, N_LAYER, 8, o, by_layer);
    for (uint32_t l = 0; l < N_LAYER; l++) CHECK_INT(by_layer[l].n_upload, N_USED);
}

TEST(uploads_before_the_counted_tokens_are_not_counted)
{
    trace t;
    hth_expert_replay_options o = unlimited;
    use_last(&t);
    o.n_warm_tok = 1, o.n_tok = 5;
    hth_expert_counts c = replay(&t, N_LAYER, 8, o, NULL);
    CHECK_INT(c.n_hit, c.n_pair);
    CHECK_INT(c.n_upload, 0);
}

TEST(all_slots_hit_and_none_misses)
{
    trace t;
    draw(&t, 0.3);
    hth_expert_counts c = replay(&t, N_LAYER, N_EXPERT, unlimited, NULL);
    CHECK_INT(c.n_hit, c.n_pair);
    CHECK_INT(c.n_upload, 0);
    c = replay(&t, N_LAYER, 0, unlimited, NULL);
    CHECK_INT(c.n_hit, 0);
    CHECK_INT(c.misses[N_USED], c.n_step);
}

/* Hits of the best slots that stay as they are, and of those that the tokens before used last. */
static uint64_t count_hits(const trace *t, uint32_t n_slot, bool recent)
{
    uint64_t n_hit = 0;
    for (uint32_t l = 0; l < N_LAYER; l++) {
        uint32_t n_use[N_EXPERT] = {0}, last[N_EXPERT] = {0};
        for (uint32_t i = 0; i < N_TOK * N_USED; i++) n_use[t->chosen[i / N_USED][l][i % N_USED]]++;
        for (uint32_t i = 0; i < N_TOK; i++) {
            const uint32_t *value = recent ? last : n_use;
            for (uint32_t k = 0; k < N_USED; k++) {
                uint32_t e = t->chosen[i][l][k], n_more = 0;
                for (uint32_t x = 0; x < N_EXPERT; x++) n_more += value[x] > value[e];
                n_hit += n_more < n_slot && value[e] > 0;
            }
            for (uint32_t k = 0; k < N_USED; k++) last[t->chosen[i][l][k]] = i + 1;
        }
    }
    return n_hit;
}

/* Costs in misses. Recency uploads every miss. Fixed slots know the trace in advance; the policy begins with the experts
 * that are used least. */
TEST(the_policy_costs_less_than_recency_and_little_more_than_fixed_slots)
{
    static trace t;
    hth_expert_replay_options o = unlimited;
    o.min_gain = HTH_EXPERT_MIN_GAIN;
    for (int sticky = 2; sticky <= 8; sticky += 3) {
        draw(&t, sticky * 0.1);
        hth_expert_counts c = replay(&t, N_LAYER, 12, o, NULL);
        double upload = (double)HTH_EXPERT_MIN_GAIN, cost = (double)(c.n_pair - c.n_hit) + upload * (double)c.n_upload,
               fixed = (double)(c.n_pair - count_hits(&t, 12, false)),
               recent = (1.0 + upload) * (double)(c.n_pair - count_hits(&t, 12, true));
        test_note("sticky 0.%d: cost %.0f, frequency %.0f, recency %.0f", sticky, cost, fixed, recent);
        CHECK(cost < recent && cost < 1.2 * fixed);
    }
}

TEST(memory_that_is_missing_is_an_error)
{
    static trace t;
    const hth_expert_replay_layer layers[2] = {{10, N_EXPERT, N_USED, 4, NULL}, {11, N_EXPERT, N_USED, 4, NULL}};
    hth_expert_replay_options o = unlimited;
    hth_expert_counts c;
    uint64_t n = 0;
    o.layers = layers, o.n_layer = 2, o.trace = get, o.user = &t, o.n_tok = 2;
    draw(&t, 0.0);
    for (hearth_status st = HEARTH_ERROR_MEMORY; st != HEARTH_OK && n < 20; n++) {
        hth_alloc_fail_at(n + 1, 0);
        st = hth_expert_replay(&o, NULL, &c, NULL);
        hth_alloc_fail_at(0, 0);
        CHECK(st == HEARTH_OK || st == HEARTH_ERROR_MEMORY);
    }
    CHECK_INT(n, 6);
}
