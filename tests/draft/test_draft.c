/* Drafts of earlier text: which place they follow, how they repeat, and how many tokens of them are worth the measured
 * times. */
#include "draft/draft.h"
#include "support/test.h"

#define TOKENS(...) ((const int32_t[]){__VA_ARGS__}), sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t)

static void expect_place(const int32_t *tokens, size_t n, size_t place, uint32_t length)
{
    uint32_t found;
    CHECK_INT(hth_draft_find(tokens, n, &found), place);
    if (place < n) CHECK_INT(found, length);
}

TEST(the_longest_stretch_that_is_alike_is_followed)
{
    expect_place(TOKENS(1, 2, 3, 9, 1, 2, 4, 8, 1, 2), 6, 2);    /* the last one among equals */
    expect_place(TOKENS(7, 1, 2, 3, 9, 1, 2, 4, 7, 1, 2), 3, 3); /* a longer one before it */
    expect_place(TOKENS(5, 5, 5, 5), 3, 3);                      /* it may reach into itself */
    expect_place(TOKENS(1, 2, 3, 4, 3), 5, 0);                   /* one token is no stretch */
    expect_place(TOKENS(1, 2), 2, 0);
    expect_place(TOKENS(1), 1, 0);
    expect_place(NULL, 0, 0, 0);
}

/* Against a search that compares everything. */
TEST(the_place_is_that_of_a_plain_search)
{
    test_random r = {3};
    for (int i = 0; i < 3000; i++) {
        int32_t tokens[60];
        size_t n = test_random_below(&r, 60), best = n;
        uint32_t most = HTH_DRAFT_LEAST - 1, length;
        for (size_t k = 0; k < n; k++) tokens[k] = (int32_t)test_random_below(&r, 1 + (uint32_t)(i % 5));
        for (size_t end = 1; end < n; end++) {
            uint32_t k = 0;
            while (k < end && k < HTH_DRAFT_MOST && tokens[end - 1 - k] == tokens[n - 1 - k]) k++;
            if (k >= most && k >= HTH_DRAFT_LEAST) best = end, most = k;
        }
        CHECK_INT(hth_draft_find(tokens, n, &length), best);
        if (best < n) CHECK_INT(length, most);
    }
}

TEST(a_draft_goes_on_behind_the_end_as_the_text_repeats)
{
    int32_t draft[7];
    const int32_t text[] = {9, 1, 2, 3, 1, 2, 3, 1}, expected[] = {2, 3, 1, 2, 3, 1, 2};
    hth_draft_copy(text, 8, 5, 7, draft);
    CHECK_BYTES(draft, expected, sizeof draft);
}

/* ---- how many ------------------------------------------------------------------------------------------ */

static hth_draft_costs costs_of(double first, double each)
{
    hth_draft_costs c = {.model_seconds = 0.0};
    for (uint32_t n = 1; n <= HTH_DRAFT_MAX_TOKENS; n++) hth_draft_measure(&c, n, first + each * (n - 1));
    return c;
}

static uint32_t choose_one(const hth_draft_costs *c, hth_draft_history *h, hth_draft_source source)
{
    hth_draft_offer o = {.source = source, .n_most = HTH_DRAFT_MAX, .history = h};
    hth_draft_choose(c, &o, 1, 1, HTH_DRAFT_MAX);
    return o.n;
}

TEST(drafts_that_come_true_get_longer_and_others_end)
{
    const hth_draft_costs c = costs_of(1.0, 0.25);
    hth_draft_history h = hth_draft_history_begin();
    uint32_t first = choose_one(&c, &h, HTH_DRAFT_LONG);
    CHECK(first >= 1 && first <= 4);
    for (int i = 0; i < 30; i++) hth_draft_note(&h, HTH_DRAFT_LONG, true);
    CHECK_INT(choose_one(&c, &h, HTH_DRAFT_LONG), HTH_DRAFT_MAX);
    uint32_t other = choose_one(&c, &h, HTH_DRAFT_SHORT); /* another source knows nothing of it */
    CHECK(other >= 1 && other <= first);
    int n_failed = 0;
    for (; n_failed < 40 && choose_one(&c, &h, HTH_DRAFT_LONG) > 0; n_failed++)
        hth_draft_note(&h, HTH_DRAFT_LONG, false);
    CHECK(n_failed > 2 && n_failed < 40);
}

TEST(text_that_never_repeats_loses_little)
{
    const hth_draft_costs c = costs_of(1.0, 0.3);
    hth_draft_history h = hth_draft_history_begin();
    double lost = 0.0;
    const int n = 4000;
    for (int i = 0; i < n; i++) { /* each token has a draft, and none comes true */
        uint32_t k = choose_one(&c, &h, HTH_DRAFT_SHORT);
        lost += 0.3 * k;
        if (k > 0) hth_draft_note(&h, HTH_DRAFT_SHORT, false);
    }
    CHECK(lost > 0.0 && lost < 0.01 * n); /* it is tried again, seldom */
    for (int i = 0; i < n && choose_one(&c, &h, HTH_DRAFT_SHORT) == 0; i++) {
    }
    for (int i = 0; i < 12; i++) hth_draft_note(&h, HTH_DRAFT_SHORT, true);
    CHECK(choose_one(&c, &h, HTH_DRAFT_SHORT) > 2); /* until it repeats */
}

TEST(steps_that_cost_as_much_as_their_tokens_have_no_drafts)
{
    const hth_draft_costs c = costs_of(1.0, 1.0), flat = costs_of(1.0, 0.0);
    hth_draft_history h = hth_draft_history_begin();
    for (int i = 0; i < 10; i++) hth_draft_note(&h, HTH_DRAFT_LONG, i % 2 == 0);
    CHECK_INT(choose_one(&c, &h, HTH_DRAFT_LONG), 0);
    CHECK_INT(choose_one(&flat, &h, HTH_DRAFT_LONG), HTH_DRAFT_MAX);
    hth_draft_costs dear = flat; /* a model that takes as long as a step for each token */
    hth_draft_measure_model(&dear, 1.0);
    for (int i = 0; i < 10; i++) hth_draft_note(&h, HTH_DRAFT_MODEL, true);
    CHECK_INT(choose_one(&dear, &h, HTH_DRAFT_MODEL), 0);
    CHECK(choose_one(&dear, &h, HTH_DRAFT_LONG) > 0);
    const hth_draft_costs unknown = {.model_seconds = 0.0};
    CHECK_INT(choose_one(&unknown, &h, HTH_DRAFT_LONG), 0);
}

/* Beside 15 others, one that is always right may not slow them down by more than a quarter. */
TEST(sequences_that_share_a_step_wait_little_for_drafts_of_others)
{
    const hth_draft_costs c = costs_of(4.0, 0.2);
    hth_draft_history right = hth_draft_history_begin(), wrong = right;
    hth_draft_offer offers[16];
    uint32_t n = 0;
    for (int i = 0; i < 40; i++) {
        hth_draft_note(&right, HTH_DRAFT_LONG, true);
        hth_draft_note(&wrong, HTH_DRAFT_LONG, false);
    }
    for (int i = 0; i < 16; i++)
        offers[i] = (hth_draft_offer){
            .source = HTH_DRAFT_LONG, .n_most = HTH_DRAFT_MAX, .history = i < 4 ? &right : &wrong};
    hth_draft_choose(&c, offers, 16, 16, HTH_DRAFT_ROWS);
    for (int i = 0; i < 16; i++) {
        if (i >= 4) CHECK_INT(offers[i].n, 0);
        n += offers[i].n;
    }
    CHECK(n > 0 && hth_draft_seconds(&c, 16 + n) <= 1.25 * hth_draft_seconds(&c, 16));
    hth_draft_take_all(offers, 16, 6, 20);
    for (int i = 0; i < 16; i++) CHECK_INT(offers[i].n, i < 3 ? 6 : i == 3 ? 2 : 0);
}

TEST(times_between_measured_ones_lie_between_them)
{
    hth_draft_costs c = {.model_seconds = 0.0};
    CHECK(hth_draft_seconds(&c, 3) == 0.0);
    hth_draft_measure(&c, 1, 1.0);
    CHECK(hth_draft_seconds(&c, 5) > 1.0);
    hth_draft_measure(&c, 9, 3.0);
    CHECK(fabs(hth_draft_seconds(&c, 5) - 2.0) < 1e-12);
    CHECK(fabs(hth_draft_seconds(&c, 13) - 4.0) < 1e-12);
    hth_draft_measure(&c, 5, 9.0); /* disturbed: less counts more */
    hth_draft_measure(&c, 5, 1.0);
    CHECK(hth_draft_seconds(&c, 5) <= 5.0);
    hth_draft_measure(&c, HTH_DRAFT_MAX_TOKENS + 1, 1.0); /* not kept */
    CHECK(hth_draft_seconds(&c, HTH_DRAFT_MAX_TOKENS + 1) > 3.0);
    for (int i = 0; i < 300; i++) hth_draft_measure(&c, 2, 1.5);
    CHECK(hth_draft_seconds(&c, 1) == 0.0 && hth_draft_seconds(&c, 9) > 1.5); /* the others are too old */
    hth_draft_history h = hth_draft_history_begin();
    for (int i = 0; i < 40; i++) hth_draft_note(&h, HTH_DRAFT_LONG, true);
    CHECK_INT(choose_one(&c, &h, HTH_DRAFT_LONG), 0);
    hth_draft_measure(&c, 1, 1.0);
    CHECK(choose_one(&c, &h, HTH_DRAFT_LONG) > 0);
}
