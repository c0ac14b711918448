/* sample/sampler.c: what each parameter promises, against a slow reference that
 * shares nothing with the sampler but the generator and the order of the filters. */
#include "base/alloc.h"
#include "sample/random.h"
#include "sample/sampler.h"
#include "support/test.h"

enum { MAX_VOCAB = 4096 };

static hearth_sampler_options neutral(void)
{
    return (hearth_sampler_options){.temperature = 1.0f, .typical_p = 1.0f, .top_p = 1.0f, .repeat_penalty = 1.0f};
}

/* ---- the reference ------------------------------------------------------------ */

typedef struct {
    double logit, p, distance;
    int32_t id;
} entry;

static int by_logit(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    if (x->logit != y->logit) return x->logit > y->logit ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

static int by_distance(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    if (x->distance != y->distance) return x->distance < y->distance ? -1 : 1;
    return by_logit(a, b);
}

static void softmax(entry *e, size_t n, double temperature)
{
    double sum = 0.0;
    for (size_t i = 0; i < n; i++) sum += e[i].p = exp((e[i].logit - e[0].logit) / temperature);
    for (size_t i = 0; i < n; i++) e[i].p /= sum;
}

static size_t keep_share(const entry *e, size_t n, double share)
{
    double sum = 0.0;
    for (size_t i = 0; i < n; i++)
        if ((sum += e[i].p) >= share) return i + 1;
    return n;
}

static size_t reference_typical(entry *e, size_t n, double p)
{
    softmax(e, n, 1.0);
    double entropy = 0.0;
    for (size_t i = 0; i < n; i++) entropy -= e[i].p > 0.0 ? e[i].p * log(e[i].p) : 0.0;
    for (size_t i = 0; i < n; i++) e[i].distance = fabs(-log(e[i].p) - entropy);
    qsort(e, n, sizeof *e, by_distance);
    n = keep_share(e, n, p);
    qsort(e, n, sizeof *e, by_logit);
    return n;
}

/* Options with the values that their zeros stand for. */
static hearth_sampler_options without_zeros(hearth_sampler_options p)
{
    if (p.typical_p == 0.0f) p.typical_p = 1.0f;
    if (p.top_p == 0.0f) p.top_p = 1.0f;
    if (p.repeat_penalty == 0.0f) p.repeat_penalty = 1.0f;
    if (p.repeat_last_n == 0) p.repeat_last_n = 64;
    return p;
}

static size_t above_sigma(entry *e, size_t n, double n_sigma)
{
    double mean = 0.0, square = 0.0, most = -HUGE_VAL;
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) mean += e[i].logit / (double)n, most = fmax(most, e[i].logit);
    for (size_t i = 0; i < n; i++) square += (e[i].logit - mean) * (e[i].logit - mean) / (double)n;
    for (size_t i = 0; i < n; i++)
        if (e[i].logit >= most - n_sigma * sqrt(square)) e[kept++] = e[i];
    return kept;
}

static double dynamic_temperature(entry *e, size_t n, const hearth_sampler_options *p)
{
    double entropy = 0.0, low = fmax(1e-6, (double)p->temperature - (double)p->dynatemp_range);
    softmax(e, n, 1.0);
    for (size_t i = 0; i < n; i++) entropy -= e[i].p > 0.0 ? e[i].p * log(e[i].p) : 0.0;
    return low + ((double)p->temperature + (double)p->dynatemp_range - low) *
                     pow(fmin(1.0, fmax(0.0, entropy / log((double)n))), p->dynatemp_exponent > 0.0f ? (double)p->dynatemp_exponent : 1.0);
}

/* What may be drawn, with probabilities, best first; returns the number. */
static size_t reference(const hearth_sampler_options *given, const float *logits, int32_t n_vocab,
                        const int32_t *seen, size_t n_seen, hth_sample_random *random, entry *e)
{
    const hearth_sampler_options all = without_zeros(*given), *p = &all;
    size_t n = 0;
    for (int32_t i = 0; i < n_vocab; i++) {
        double x = (double)logits[i];
        for (size_t k = 0; k < p->n_bias; k++)
            if (p->bias[k].id == i) x = (double)(float)(x + (double)p->bias[k].bias);
        size_t window = p->repeat_last_n < 0 || (size_t)p->repeat_last_n > n_seen ? n_seen : (size_t)p->repeat_last_n;
        int count = 0;
        for (size_t k = n_seen - window; k < n_seen; k++) count += seen[k] == i;
        if (count > 0) {
            x = x > 0 ? x / (double)p->repeat_penalty : x * (double)p->repeat_penalty;
            x = (double)(float)(x - (double)p->presence_penalty - (double)p->frequency_penalty * count);
        }
        if (x > -HUGE_VAL) e[n++] = (entry){.logit = x, .id = i};
    }
    if (p->top_n_sigma > 0.0f) n = above_sigma(e, n, (double)p->top_n_sigma);
    qsort(e, n, sizeof *e, by_logit);
    if (p->top_k > 0 && n > (size_t)p->top_k) n = (size_t)p->top_k;
    if (p->typical_p < 1.0f) n = reference_typical(e, n, (double)p->typical_p);
    if (p->top_p < 1.0f) {
        softmax(e, n, 1.0);
        n = keep_share(e, n, (double)p->top_p);
    }
    if (p->min_p > 0.0f) {
        softmax(e, n, 1.0);
        size_t kept = 1;
        while (kept < n && e[kept].p >= (double)p->min_p * e[0].p) kept++;
        n = kept;
    }
    if (p->xtc_probability > 0.0f && p->xtc_threshold <= 0.5f && n > 1 &&
        hth_sample_random_unit(random) < (double)p->xtc_probability) {
        size_t last = 0;
        softmax(e, n, 1.0);
        for (size_t i = 0; i < n && e[i].p >= (double)p->xtc_threshold; i++) last = i;
        memmove(e, e + last, (n -= last) * sizeof *e);
    }
    softmax(e, n, p->dynatemp_range > 0.0f && n > 1 ? dynamic_temperature(e, n, p) : (double)(p->temperature + p->dynatemp_range));
    return n;
}

static int32_t reference_draw(const entry *e, size_t n, hth_sample_random *r)
{
    double u = hth_sample_random_unit(r), sum = 0.0;
    for (size_t i = 0; i < n; i++)
        if ((sum += e[i].p) > u) return e[i].id;
    return e[n - 1].id;
}

/* ---- against the reference -------------------------------------------------------- */

/* Few distinct values, so that ties occur; some banned. */
static void fill_logits(float *logits, int32_t n, test_random *r)
{
    float scale = (float)(1 + test_random_below(r, 8));
    bool coarse = test_random_below(r, 2) == 0;
    for (int32_t i = 0; i < n; i++) {
        logits[i] = test_random_float(r) * scale;
        if (coarse) logits[i] = roundf(logits[i] * 4.0f) / 4.0f;
        if (test_random_below(r, 50) == 0) logits[i] = -INFINITY;
    }
    logits[test_random_below(r, (uint32_t)n)] = scale;
}

static void compare_with_reference(hearth_sampler_options p, int32_t n_vocab, test_random *r)
{
    static float logits[MAX_VOCAB];
    static entry e[MAX_VOCAB];
    int32_t seen[40];
    size_t n_seen = 0;
    hth_sample_random expected_random;
    p.seed = test_random_next(r);
    hth_sample_random_seed(&expected_random, p.seed);
    CLOSED(hearth_sampler) *s = OPENED_BY(hth_sampler_open, hearth_sampler, n_vocab, &p);
    for (int step = 0; step < 40; step++) {
        fill_logits(logits, n_vocab, r);
        int32_t id = -1;
        CHECK_OK(hearth_sampler_sample(s, logits, &id, err));
        size_t n = reference(&p, logits, n_vocab, seen, n_seen, &expected_random, e);
        int32_t expected = reference_draw(e, n, &expected_random);
        if (!CHECK_INT(id, expected)) break;
        seen[n_seen++] = id;
        hearth_sampler_accept(s, id);
    }
}

TEST(draw_alone_equals_the_reference)
{
    test_random r = {11};
    for (int i = 0; i < 10; i++) {
        hearth_sampler_options p = neutral();
        p.temperature = 0.1f + (float)test_random_below(&r, 30) * 0.1f;
        compare_with_reference(p, 1 + (int32_t)test_random_below(&r, 600), &r);
    }
}

TEST(top_k_equals_the_reference)
{
    test_random r = {12};
    for (int i = 0; i < 30; i++) {
        hearth_sampler_options p = neutral();
        p.top_k = 1 + (int32_t)test_random_below(&r, i % 2 ? 60 : 900);
        compare_with_reference(p, 1 + (int32_t)test_random_below(&r, 1200), &r);
    }
}

TEST(typical_equals_the_reference)
{
    test_random r = {13};
    for (int i = 0; i < 20; i++) {
        hearth_sampler_options p = neutral();
        p.typical_p = 0.05f + (float)test_random_below(&r, 9) * 0.1f;
        compare_with_reference(p, 1 + (int32_t)test_random_below(&r, 400), &r);
    }
}

TEST(top_p_and_min_p_equal_the_reference)
{
    test_random r = {14};
    for (int i = 0; i < 30; i++) {
        hearth_sampler_options p = neutral();
        if (i % 3 != 0) p.top_p = (float)test_random_below(&r, 100) * 0.01f;
        if (i % 3 != 1) p.min_p = (float)test_random_below(&r, 100) * 0.01f;
        compare_with_reference(p, 1 + (int32_t)test_random_below(&r, 600), &r);
    }
}

TEST(penalties_and_bias_equal_the_reference)
{
    test_random r = {15};
    for (int i = 0; i < 30; i++) {
        int32_t n_vocab = 2 + (int32_t)test_random_below(&r, 40);
        hearth_logit_bias bias[2] = {
            {.id = (int32_t)test_random_below(&r, (uint32_t)n_vocab), .bias = 2.5f},
            {.id = (int32_t)test_random_below(&r, (uint32_t)n_vocab), .bias = -1.25f}};
        hearth_sampler_options p = neutral();
        p.repeat_penalty = 1.0f + (float)test_random_below(&r, 10) * 0.1f;
        p.presence_penalty = test_random_float(&r);
        p.frequency_penalty = test_random_float(&r);
        p.repeat_last_n = (int32_t)test_random_below(&r, 12) - 1;
        p.bias = bias;
        p.n_bias = bias[0].id != bias[1].id ? 2 : 1;
        compare_with_reference(p, n_vocab, &r);
    }
}

TEST(sigma_xtc_and_dynamic_temperature_equal_the_reference)
{
    test_random r = {17};
    for (int i = 0; i < 60; i++) {
        hearth_sampler_options p = neutral();
        if (i % 3 == 0 || i > 45) p.top_n_sigma = 0.1f + (float)test_random_below(&r, 30) * 0.1f;
        if (i % 3 == 1 || i > 45) p.xtc_probability = i % 2 ? 1.0f : 0.5f, p.xtc_threshold = (float)test_random_below(&r, 8) * 0.1f;
        if (i % 3 == 2 || i > 45) p.dynatemp_range = (float)test_random_below(&r, 20) * 0.1f, p.dynatemp_exponent = (float)test_random_below(&r, 3) * 0.5f;
        if (p.xtc_threshold == 0.0f) p.xtc_threshold = 0.1f;
        compare_with_reference(p, 1 + (int32_t)test_random_below(&r, 600), &r);
    }
}

/* The sources' formulas, with libm. */
static size_t reference_mirostat(const hearth_sampler_options *p, const entry *e, size_t n, int32_t n_vocab, double mu)
{
    size_t kept = 0;
    if (p->mirostat == 2) {
        while (kept < n && e[kept].p > 0.0 && -log2(e[kept].p) <= mu) kept++;
        return kept > 0 ? kept : 1;
    }
    double products = 0.0, squares = 0.0;
    for (size_t i = 0; i + 1 < n && i < 99; i++) {
        double t = log((double)(i + 2) / (double)(i + 1));
        products += t * log(e[i].p / e[i + 1].p), squares += t * t;
    }
    double s = products / squares, epsilon = s - 1.0;
    double k = pow(epsilon * pow(2.0, mu) / (1.0 - pow((double)n_vocab, -epsilon)), 1.0 / s);
    return k < 1.0 ? 1 : k < (double)n ? (size_t)k : n;
}

TEST(mirostat_equals_the_reference_and_holds_the_surprise)
{
    enum { N = 500, N_STEP = 3000 };
    static entry e[MAX_VOCAB];
    static float logits[N];
    for (int i = 0; i < N; i++) logits[i] = -1.1f * logf((float)i + 1.5f);
    for (int version = 1; version <= 2; version++) {
        hearth_sampler_options p = neutral();
        p.temperature = 0.9f, p.mirostat = version, p.mirostat_tau = 3.0f, p.seed = 5, p.top_k = 1, p.min_p = 0.9f; /* unused */
        double mu = 2.0 * (double)p.mirostat_tau, surprise = 0.0;
        hth_sample_random random;
        hth_sample_random_seed(&random, p.seed);
        CLOSED(hearth_sampler) *s = OPENED_BY(hth_sampler_open, hearth_sampler, N, &p);
        for (int step = 0; step < N_STEP; step++) {
            int32_t id = -1;
            for (int32_t i = 0; i < N; i++) e[i] = (entry){.logit = (double)logits[i], .id = i};
            softmax(e, N, (double)p.temperature);
            size_t n = reference_mirostat(&p, e, N, N, mu);
            softmax(e, n, (double)p.temperature);
            CHECK_OK(hearth_sampler_sample(s, logits, &id, err));
            if (!CHECK_INT(id, reference_draw(e, n, &random))) break;
            surprise += -log2(e[id].p);
            mu -= (double)0.1f * (-log2(e[id].p) - (double)p.mirostat_tau);
        }
        CHECK(fabs(surprise / N_STEP - (double)p.mirostat_tau) < 0.1);
    }
}

TEST(all_filters_together_equal_the_reference)
{
    test_random r = {16};
    for (int i = 0; i < 30; i++) {
        hearth_sampler_options p = test_sampler_options();
        p.typical_p = 0.9f;
        p.repeat_penalty = 1.1f;
        p.top_k = 1 + (int32_t)test_random_below(&r, 100);
        compare_with_reference(p, MAX_VOCAB - (int32_t)test_random_below(&r, 100), &r);
    }
}

/* ---- draws ------------------------------------------------------------------------------ */

TEST(draws_have_the_stated_frequencies)
{
    const float logits[6] = {0.5f, -1.0f, 2.0f, 1.0f, -INFINITY, 0.0f};
    hearth_sampler_options p = neutral();
    p.seed = 42;
    CLOSED(hearth_sampler) *s = OPENED_BY(hth_sampler_open, hearth_sampler, 6, &p);
    enum { N_DRAW = 200000 };
    int count[6] = {0};
    for (int i = 0; i < N_DRAW; i++) {
        int32_t id = 0;
        CHECK_OK(hearth_sampler_sample(s, logits, &id, err));
        count[id]++;
    }
    double sum = 0.0, chi2 = 0.0;
    for (int i = 0; i < 6; i++) sum += exp((double)logits[i]);
    for (int i = 0; i < 6; i++) {
        double expected = N_DRAW * exp((double)logits[i]) / sum;
        if (expected > 0.0) chi2 += (count[i] - expected) * (count[i] - expected) / expected;
    }
    CHECK(chi2 < 18.5); /* 4 degrees of freedom, p = 0.001 */
    CHECK_INT(count[4], 0);
}

/* By mirostat too, whose candidates depend on all tokens before. */
TEST(a_drawn_token_is_one_that_is_listed_and_taking_it_is_the_same)
{
    enum { N = 300 };
    static float logits[N];
    test_random r = {9};
    for (int mirostat = 0; mirostat <= 2; mirostat++) {
        hearth_sampler_options p = test_sampler_options();
        p.mirostat = mirostat, p.mirostat_tau = 3.0f, p.mirostat_eta = 0.5f, p.repeat_penalty = 1.2f;
        CLOSED(hearth_sampler) *s = OPENED_BY(hth_sampler_open, hearth_sampler, N, &p);
        CLOSED(hearth_sampler) *other = OPENED_BY(hth_sampler_open, hearth_sampler, N, &p);
        for (int step = 0; step < 40; step++) {
            hth_sample_choice of;
            int32_t id = -1;
            size_t i = 0;
            for (int k = 0; k < N; k++) logits[k] = 3.0f * test_random_float(&r);
            CHECK_OK(hth_sampler_list(other, logits, &of, err));
            CHECK_OK(hearth_sampler_sample(s, logits, &id, err));
            while (i < of.n && of.c[i].id != id) i++;
            if (!CHECK(i < of.n && of.c[i].p > 0.0 && of.c[i].p <= of.sum)) break;
            CHECK_INT(hth_sampler_take(other, &of, i), id);
            hearth_sampler_accept(s, id), hearth_sampler_accept(other, id);
        }
        hth_sample_choice mine, others;
        CHECK_OK(hth_sampler_list(s, logits, &mine, err));
        CHECK_OK(hth_sampler_list(other, logits, &others, err));
        CHECK(mine.n > 1 && mine.n < N && mine.n == others.n && mine.sum == others.sum);
    }
}

TEST(same_seed_gives_same_ids_and_another_seed_others)
{
    float logits[100];
    test_random r = {3};
    for (int i = 0; i < 100; i++) logits[i] = test_random_float(&r);
    hearth_sampler_options p = test_sampler_options();
    hearth_sampler *s[3] = {0};
    for (int k = 0; k < 3; k++) {
        p.seed = k == 2 ? 6 : 5;
        CHECK_OK(hth_sampler_open(100, &p, &s[k], err));
    }
    int n_other = 0;
    for (int i = 0; i < 200; i++) {
        int32_t id[3];
        for (int k = 0; k < 3; k++) CHECK_OK(hearth_sampler_sample(s[k], logits, &id[k], err));
        CHECK_INT(id[0], id[1]);
        n_other += id[0] != id[2];
    }
    CHECK(n_other > 100);
    for (int k = 0; k < 3; k++) hearth_sampler_close(s[k]);
}

TEST(greedy_takes_the_largest_and_the_lowest_id_among_equals)
{
    hearth_sampler_options p = test_sampler_options();
    p.temperature = 0.0f;
    int32_t id = -1;
    CLOSED(hearth_sampler) *s = OPENED_BY(hth_sampler_open, hearth_sampler, 5, &p);
    CHECK_OK(hearth_sampler_sample(s, (float[5]){1, 3, 2, 3, 3}, &id, err));
    CHECK_INT(id, 1);
    CHECK_OK(hearth_sampler_sample(s, (float[5]){-INFINITY, -0.0f, 0.0f, -1, -2}, &id, err));
    CHECK_INT(id, 1);
}

/* Its share of the best one's probability is 1. */
TEST(min_p_keeps_what_is_as_likely_as_it_says)
{
    hearth_sampler_options p = neutral();
    bool drawn[3] = {false};
    int32_t id = -1;
    p.min_p = 1.0f;
    CLOSED(hearth_sampler) *s = OPENED_BY(hth_sampler_open, hearth_sampler, 3, &p);
    for (int i = 0; i < 100; i++) {
        CHECK_OK(hearth_sampler_sample(s, (float[3]){2, 1.5f, 2}, &id, err));
        drawn[id] = true;
    }
    CHECK(drawn[0] && !drawn[1] && drawn[2]);
}

/* A tiny temperature must act like none, and a huge spread must not overflow. */
TEST(extreme_logits_and_temperatures_draw_the_best)
{
    hearth_sampler_options p = neutral();
    int32_t id = -1;
    p.temperature = 1e-45f;
    hearth_sampler *s = OPENED_BY(hth_sampler_open, hearth_sampler, 3, &p);
    CHECK_OK(hearth_sampler_sample(s, (float[3]){3e38f, -3e38f, 2.9e38f}, &id, err));
    CHECK_INT(id, 0);
    hearth_sampler_close(s);
    p.temperature = 100.0f;
    CHECK_OK(hth_sampler_open(3, &p, &s, err));
    CHECK_OK(hearth_sampler_sample(s, (float[3]){-3e38f, 3e38f, -INFINITY}, &id, err));
    CHECK_INT(id, 1);
    hearth_sampler_close(s);
}

TEST(penalties_keep_finite_logits_finite)
{
    hearth_logit_bias bias = {.id = 1, .bias = 3e38f};
    hearth_sampler_options p = neutral();
    p.repeat_penalty = 100.0f;
    p.repeat_last_n = -1;
    p.bias = &bias;
    p.n_bias = 1;
    p.temperature = 0.0f;
    int32_t id = -1;
    CLOSED(hearth_sampler) *s = OPENED_BY(hth_sampler_open, hearth_sampler, 2, &p);
    CHECK_OK(hearth_sampler_sample(s, (float[2]){0.0f, 3e38f}, &id, err));
    CHECK_INT(id, 1);
    hearth_sampler_accept(s, 0);
    CHECK_OK(hearth_sampler_sample(s, (float[2]){-3e38f, -INFINITY}, &id, err));
    CHECK_INT(id, 0);
}

TEST(tokens_leave_the_window_of_penalties)
{
    hearth_sampler_options p = neutral();
    p.temperature = 0.0f;
    p.presence_penalty = 5.0f;
    p.repeat_last_n = 2;
    CLOSED(hearth_sampler) *s = OPENED_BY(hth_sampler_open, hearth_sampler, 4, &p);
    const float logits[4] = {4, 3, 2, 1};
    for (int i = 0; i < 30; i++) {
        int32_t id = -1;
        CHECK_OK(hearth_sampler_sample(s, logits, &id, err));
        CHECK_INT(id, i % 3);
        hearth_sampler_accept(s, id);
    }
    hearth_sampler_accept(s, -1);
    hearth_sampler_accept(s, 4);
}

/* ---- refusals --------------------------------------------------------------------------- */

static void check_numeric(hearth_sampler_options p, const float *logits, const char *part)
{
    hearth_error refusal = {0};
    int32_t id;
    CLOSED(hearth_sampler) *s = OPENED_BY(hth_sampler_open, hearth_sampler, 3, &p);
    CHECK_INT(hearth_sampler_sample(s, logits, &id, &refusal), HEARTH_ERROR_NUMERIC);
    if (!strstr(refusal.message, part)) CHECK_TEXT(refusal.message, part);
}

TEST(logits_that_are_not_finite_are_numeric_errors)
{
    hearth_logit_bias ban_all[3] = {
        {.id = 0, .bias = -INFINITY}, {.id = 1, .bias = -INFINITY}, {.id = 2, .bias = -INFINITY}};
    for (int greedy = 0; greedy < 2; greedy++) {
        hearth_sampler_options p = test_sampler_options();
        if (greedy) p.temperature = 0.0f;
        check_numeric(p, (float[3]){0, NAN, 0}, "token 1 is not a number");
        check_numeric(p, (float[3]){0, 0, INFINITY}, "token 2 is +infinity");
        check_numeric(p, (float[3]){-INFINITY, -INFINITY, -INFINITY}, "all 3 tokens are banned");
        p.bias = ban_all;
        p.n_bias = 3;
        check_numeric(p, (float[3]){1, 2, 3}, "all 3 tokens are banned");
    }
}

static void check_refused(hearth_sampler_options p, const char *field)
{
    hearth_sampler *s = NULL;
    hearth_error err = {0};
    CHECK_INT(hth_sampler_open(10, &p, &s, &err), HEARTH_ERROR_ARGUMENT);
    CHECK(s == NULL);
    if (strncmp(err.message, field, strlen(field)) != 0) CHECK_TEXT(err.message, field);
}

#define REFUSE(FIELD, VALUE)                                                                                 \
    do {                                                                                                     \
        hearth_sampler_options p_ = test_sampler_options();                                                  \
        p_.FIELD = (VALUE);                                                                                  \
        check_refused(p_, #FIELD " is ");                                                                    \
    } while (0)

/* The same tokens by zeros, by NULL's meaning and by the neutral values; a temperature alone draws from all. */
TEST(zero_turns_each_stage_off)
{
    test_random r = {21};
    for (int i = 0; i < 20; i++) {
        hearth_sampler_options p = {.temperature = i % 4 == 0 ? 0.0f : 0.7f};
        if (i % 4 == 2) p.presence_penalty = 0.5f;
        if (i % 4 == 3) p.top_k = 20;
        if (p.temperature > 0.0f) compare_with_reference(p, 1 + (int32_t)test_random_below(&r, 600), &r);
        hearth_sampler_options same = without_zeros(p);
        CLOSED(hearth_sampler) *a = OPENED_BY(hth_sampler_open, hearth_sampler, 100, &p);
        CLOSED(hearth_sampler) *b = OPENED_BY(hth_sampler_open, hearth_sampler, 100, &same);
        for (int step = 0; step < 100; step++) {
            float logits[100];
            int32_t id[2] = {-1, -2};
            fill_logits(logits, 100, &r);
            CHECK_OK(hearth_sampler_sample(a, logits, &id[0], err));
            CHECK_OK(hearth_sampler_sample(b, logits, &id[1], err));
            CHECK_INT(id[0], id[1]);
            hearth_sampler_accept(a, id[0]);
            hearth_sampler_accept(b, id[1]);
        }
    }
    hearth_sampler_options defaults = hearth_sampler_defaults();
    CHECK_INT(defaults.size, sizeof defaults);
    defaults.size = 0;
    CHECK_BYTES(&defaults, &(hearth_sampler_options){0}, sizeof defaults);
}

TEST(fields_out_of_range_are_named)
{
    REFUSE(temperature, -0.1f);
    REFUSE(temperature, NAN);
    REFUSE(temperature, INFINITY);
    REFUSE(top_k, -1);
    REFUSE(typical_p, 1.01f);
    REFUSE(typical_p, NAN);
    REFUSE(top_p, -0.01f);
    REFUSE(top_p, 1.01f);
    REFUSE(min_p, -0.01f);
    REFUSE(min_p, 2.0f);
    REFUSE(repeat_penalty, 0.005f);
    REFUSE(repeat_penalty, NAN);
    REFUSE(repeat_penalty, -1.0f);
    REFUSE(presence_penalty, 101.0f);
    REFUSE(frequency_penalty, NAN);
    REFUSE(repeat_last_n, -2);
    REFUSE(repeat_last_n, HTH_SAMPLER_MAX_LAST_N + 1);

    hearth_logit_bias wrong[] = {{.id = 0, .bias = 1.0f}, {.id = 10, .bias = 1.0f}};
    hearth_sampler_options p = test_sampler_options();
    p.bias = wrong;
    p.n_bias = 2;
    check_refused(p, "bias[1].id is 10");
    wrong[1] = (hearth_logit_bias){.id = 3, .bias = INFINITY};
    check_refused(p, "bias[1].bias is ");
    wrong[1].bias = NAN;
    check_refused(p, "bias[1].bias is ");
    p.bias = NULL;
    check_refused(p, "bias is NULL");
}

/* ---- memory ------------------------------------------------------------------------------ */

TEST(picking_and_accepting_allocate_nothing_and_leave_logits_alone)
{
    enum { N = 2000 };
    float logits[N], before[N];
    test_random r = {8};
    for (int i = 0; i < N; i++) logits[i] = test_random_float(&r) * 9.0f;
    memcpy(before, logits, sizeof logits);
    hearth_sampler_options p = test_sampler_options();
    p.typical_p = 0.8f;
    p.repeat_penalty = 1.2f;
    for (int k = 0; k < 2; k++) {
        p.top_k = k == 0 ? 40 : 0;
        CLOSED(hearth_sampler) *s = OPENED_BY(hth_sampler_open, hearth_sampler, N, &p);
        uint64_t n_alloc = hth_alloc_count();
        for (int i = 0; i < 100; i++) {
            int32_t id = -1;
            CHECK_OK(hearth_sampler_sample(s, logits, &id, err));
            hearth_sampler_accept(s, id);
        }
        CHECK_INT(hth_alloc_count(), n_alloc);
    }
    CHECK_BYTES(logits, before, sizeof logits);
}

TEST(every_failing_allocation_is_an_error_and_leaks_nothing)
{
    hearth_logit_bias bias = {.id = 1, .bias = 1.0f};
    hearth_sampler_options p = test_sampler_options();
    p.repeat_penalty = 1.2f;
    p.bias = &bias;
    p.n_bias = 1;
    uint64_t held = hth_alloc_in_use();
    int n_failed = 0;
    for (uint64_t n = 1; n < 100; n++) {
        hearth_sampler *s = NULL;
        hearth_error err = {0};
        hth_alloc_fail_at(n, 0);
        hearth_status status = hth_sampler_open(50, &p, &s, &err);
        hth_alloc_fail_at(0, 0);
        hearth_sampler_close(s);
        CHECK_INT(hth_alloc_in_use(), held);
        if (status == HEARTH_OK) break;
        CHECK_INT(status, HEARTH_ERROR_MEMORY);
        n_failed++;
    }
    CHECK_INT(n_failed, 2);
}
