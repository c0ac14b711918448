/* sample/dry.c against every repetition looked for one by one; breakers, copies, failures of memory. */
#include "sample/dry.h"

#include "support/faults.h"
#include "support/test.h"

#include <math.h>

enum { N_VOCAB = 12 };

/* The repetitions that end behind token i of text[n] and are the end of the text, not across a breaker. */
static void reference(const int32_t *text, size_t n, const hearth_sampler_options *o, const hth_dry_breaker *b, size_t n_breaker,
                      double *penalty)
{
    size_t limit = n;
    int32_t longest[N_VOCAB] = {0};
    for (size_t i = 0; i < n && limit == n; i++) /* i: from the end */
        for (size_t k = 0; k < n_breaker; k++) {
            bool is_there = text[n - 1 - i] == b[k].token && b[k].n_tail <= i;
            for (size_t t = 0; t < b[k].n_tail && is_there; t++) is_there = text[n - i + t] == b[k].tail[t];
            if (is_there && (limit == n || i - b[k].n_tail < limit)) limit = i - b[k].n_tail;
        }
    for (size_t end = 1; end < n; end++) {
        int32_t length = 0;
        while ((size_t)length < end && text[end - 1 - (size_t)length] == text[n - 1 - (size_t)length]) length++;
        if ((size_t)length > limit) length = (int32_t)limit;
        if (length > longest[text[end]]) longest[text[end]] = length;
    }
    for (size_t k = 0; k < n_breaker; k++)
        if (b[k].n_tail == 0) longest[b[k].token] = 0; /* such a token lengthens none */
    for (int i = 0; i < N_VOCAB; i++)
        penalty[i] = longest[i] >= o->dry_allowed_length
                         ? (double)o->dry_multiplier * pow((double)o->dry_base, longest[i] - o->dry_allowed_length) : 0.0;
}

TEST(penalties_are_those_of_all_repetitions)
{
    int32_t tail[] = {3};
    const hth_dry_breaker breakers[] = {{1, 0, NULL}, {2, 1, tail}};
    test_random r = {1};
    for (int i = 0; i < 3000; i++) {
        const hearth_sampler_options o = {.dry_multiplier = 0.5f, .dry_base = 1.25f, .dry_allowed_length = 1 + i % 3};
        const size_t n_breaker = (size_t)(i % 3), capacity = 5 + test_random_below(&r, 60), n = test_random_below(&r, 90);
        const uint32_t n_letter = 2 + test_random_below(&r, N_VOCAB - 2);
        int32_t text[90];
        float logits[N_VOCAB] = {0};
        double penalty[N_VOCAB] = {0};
        hth_dry *d = NULL;
        CHECK_OK(hth_dry_open(N_VOCAB, &o, capacity, breakers, n_breaker, &d, err));
        for (size_t k = 0; k < n; k++) hth_dry_accept(d, text[k] = (int32_t)test_random_below(&r, n_letter));
        const size_t n_seen = n < capacity ? n : capacity;
        hth_dry_apply(d, logits);
        if (n_seen > (size_t)o.dry_allowed_length) reference(text + n - n_seen, n_seen, &o, breakers, n_breaker, penalty);
        for (int k = 0; k < N_VOCAB; k++)
            if (fabs((double)logits[k] + penalty[k]) > 1e-5 * (1.0 + penalty[k]))
                test_fail(__FILE__, __LINE__, "text %d, token %d: %g, not %g", i, k, (double)logits[k], -penalty[k]);
        float again[N_VOCAB] = {0};
        hth_dry_apply(d, again); /* nothing of the first call is left */
        CHECK(memcmp(again, logits, sizeof logits) == 0);
        hth_dry_close(d);
    }
}

TEST(zeros_are_the_defaults_and_banned_tokens_stay_banned)
{
    const int32_t text[] = {4, 5, 6, 7, 4, 5, 6};
    hth_dry *d = NULL;
    float logits[N_VOCAB] = {[7] = 1.0f, [5] = -INFINITY};
    CHECK_OK(hth_dry_open(N_VOCAB, &(hearth_sampler_options){.dry_multiplier = 1.0f}, 100, NULL, 0, &d, err));
    for (int i = 0; i < 7; i++) hth_dry_accept(d, text[i]);
    hth_dry_apply(d, logits);
    CHECK(fabs((double)logits[7] - (1.0 - 1.75)) < 1e-6 && logits[5] == -INFINITY && logits[4] == 0.0f);
    hth_dry_forget(d);
    logits[7] = 1.0f;
    hth_dry_apply(d, logits);
    CHECK(logits[7] == 1.0f);
    hth_dry_close(d);
}

TEST(a_breaker_is_not_penalised_itself)
{
    int32_t tail[] = {5};
    const hth_dry_breaker breakers[] = {{1, 1, tail}, {3, 0, NULL}};
    const int32_t text[] = {4, 5, 6, 3, 9, 4, 5, 6, 7, 4, 5, 6, 1, 4, 5, 6};
    hth_dry *d = NULL;
    float logits[N_VOCAB] = {0};
    CHECK_OK(hth_dry_open(N_VOCAB, &(hearth_sampler_options){.dry_multiplier = 1.0f}, 100, breakers, 2, &d, err));
    for (size_t i = 0; i < sizeof text / sizeof *text; i++) hth_dry_accept(d, text[i]);
    hth_dry_apply(d, logits);
    CHECK(logits[3] == 0.0f && logits[7] == -1.75f);
    CHECK(logits[1] == -1.75f); /* alone it breaks nothing */
    hth_dry_close(d);
}

TEST(copies_go_on_alike)
{
    hth_dry *a = NULL, *b = NULL;
    float x[N_VOCAB] = {0}, y[N_VOCAB] = {0};
    CHECK_OK(hth_dry_open(N_VOCAB, &(hearth_sampler_options){.dry_multiplier = 1.0f, .dry_allowed_length = 1}, 7, NULL, 0, &a, err));
    for (int i = 0; i < 20; i++) hth_dry_accept(a, i % 3);
    CHECK_OK(hth_dry_copy(a, &b, err));
    hth_dry_accept(a, 0), hth_dry_accept(b, 0);
    hth_dry_apply(a, x), hth_dry_apply(b, y);
    CHECK(memcmp(x, y, sizeof x) == 0 && x[1] < 0.0f);
    hth_dry_close(a);
    hth_dry_close(b);
    CHECK_OK(hth_dry_copy(NULL, &b, err));
    CHECK(!b);
}

static hearth_status open_and_copy(const fault_paths *p, hearth_error *err)
{
    int32_t tail[] = {3};
    const hth_dry_breaker breaker = {2, 1, tail};
    hth_dry *a, *b = NULL;
    (void)p;
    hearth_status st = hth_dry_open(N_VOCAB, &(hearth_sampler_options){.dry_multiplier = 1.0f}, 3000, &breaker, 1, &a, err);
    if (st != HEARTH_OK) return st;
    st = hth_dry_copy(a, &b, err);
    hth_dry_close(a);
    hth_dry_close(b);
    return st;
}

TEST(every_allocation_may_fail) { fault_survive("dry", open_and_copy, 4, 0, 0); }
