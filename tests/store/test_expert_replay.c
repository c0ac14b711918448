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

/* By the clock: a layer's seconds by its misses, and those of an upload. */
static double layer_seconds[N_USED + 1], upload_seconds;

static hth_expert_counts replay(trace *t, uint32_t n_layer, uint32_t n_slot, hth_expert_replay_options o,
                                hth_expert_counts *by_layer)
{
    hth_expert_replay_layer layers[N_LAYER];
    hth_expert_counts all = {0};
    uint64_t n_miss = 0, n_step = 0;
    for (uint32_t i = 0; i < n_layer; i++)
        layers[i] = (hth_expert_replay_layer){.i_layer = 10 + i,
                                              .n_expert = N_EXPERT,
                                              .n_used = N_USED,
                                              .n_slot = n_slot,
                                              .seconds = layer_seconds,
                                              .upload_seconds = upload_seconds};
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

/* Replays a second for each layer and `slow` more for each miss, on a link that carries an upload in `seconds`, one at a
 * time or `at_once`, for so many tokens. */
static hth_expert_counts replay_on_clock(trace *t, double slow, double seconds, uint32_t at_once, uint64_t n_tok,
                                         hth_expert_counts *by_layer)
{
    hth_expert_replay_options o = {
        .n_upload_layer = UINT32_MAX, .under_way = at_once * seconds, .min_gain = HTH_EXPERT_MIN_GAIN, .n_tok = n_tok};
    for (uint32_t m = 0; m <= N_USED; m++) layer_seconds[m] = 1.0 + slow * m;
    upload_seconds = seconds;
    return replay(t, N_LAYER, 8, o, by_layer);
}

TEST(a_token_finds_what_the_link_has_carried_when_it_begins)
{
    enum { N_ALL = N_LAYER * N_USED };
    trace t;
    use_last(&t);
    for (uint64_t n = 1, hits = 0, slow_hits = 0; n < 20; n++) {
        uint64_t found = n > 1 ? N_LAYER * (n - 1) - 1 : 0, slow_found = n > 2 ? n - 2 : 0;
        hits += found < N_ALL ? found : N_ALL, slow_hits += slow_found < N_ALL ? slow_found : N_ALL;
        for (int i = 1; i <= 2; i++) { /* an upload for each layer; the last one ends within the next token */
            hth_expert_counts c = replay_on_clock(&t, 0.0, 0.5 * i, 1, n, NULL);
            CHECK_INT(c.n_hit, hits);
            CHECK_INT(c.n_upload, N_LAYER * n < N_ALL ? N_LAYER * n : N_ALL);
        }
        hth_expert_counts c = replay_on_clock(&t, 0.0, N_LAYER, 1, n, NULL); /* one for each token */
        CHECK_INT(c.n_hit, slow_hits);
        CHECK_INT(c.n_upload, n < N_ALL ? n : N_ALL);
    }
}

TEST(layers_in_their_order_share_what_may_be_on_the_way_and_the_gain_that_it_takes)
{
    trace t;
    hth_expert_counts by_layer[N_LAYER];
    use_last(&t);
    hth_expert_counts c = replay_on_clock(&t, 0.0, 0.25, N_USED, 1, by_layer); /* room for those of a layer, which end in a second */
    for (uint32_t l = 0; l < N_LAYER; l++) CHECK_INT(by_layer[l].uploads[N_USED], 1);
    c = replay_on_clock(&t, 0.0, 100.0, 6, 1, by_layer); /* the second layer finds room for two, the third for none */
    CHECK(by_layer[0].n_upload == 4 && by_layer[1].n_upload == 2 && by_layer[2].n_upload == 0);
    c = replay_on_clock(&t, 0.0, 100.0, 6, 100, by_layer); /* until those of both have ended */
    CHECK(by_layer[0].n_upload == 4 && by_layer[1].n_upload == 2 && by_layer[2].n_upload == 0);
    c = replay_on_clock(&t, 0.0, 100.0, 6, 150, by_layer);
    CHECK(c.n_upload == 10 && by_layer[2].n_upload == 4);
}

TEST(tokens_that_miss_more_give_the_link_more_time)
{
    trace t;
    use_last(&t);
    hth_expert_counts quick = replay_on_clock(&t, 0.0, 3.0, 1, 6, NULL), slow = replay_on_clock(&t, 0.5, 3.0, 1, 6, NULL);
    CHECK_INT(quick.n_upload, 6);
    CHECK(slow.n_upload >= 11 && slow.n_hit > 2 * quick.n_hit);
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
    const hth_expert_replay_layer one = {.i_layer = 10, .n_expert = N_EXPERT, .n_used = N_USED, .n_slot = 4},
                                  layers[2] = {one, one};
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
