/* The proof of attention: every level of this machine against the C reference, bit for bit, for all types of cache,
 * between guard pages, with poisoned values at masked positions; and what attention promises whatever its
 * kernel: a row's bits depend on what it sees alone. `--bench` measures instead (support/kernels/bench.h). */
#include "base/bits.h"
#include "support/kernels/bench.h"
#include "support/kernels/attn_case.h"
#include "support/guard.h"
#include "support/kernels/proof.h"

enum { MAX_D = 288, MAX_QUERY = 48, MAX_CACHE = 90000, MAX_OUT = 2 * MAX_QUERY };

/* One job over a cache of n_pos positions: its last row sees all of them. */
typedef struct shape {
    hearth_kv_type type;
    size_t d, n_row, n_head, n_pos, window, shift;
    float cap;
    bool slopes, sinks;
    proof_kind kind;
} shape;

enum { N_ROOM = 9 };
static guard rooms[N_ROOM]; /* keys, values, q, rounded q, scratch, weighted values, parts, slopes, sinks */
static float plain[MAX_CACHE], queries[MAX_QUERY * MAX_D], query_d[MAX_QUERY * MAX_D / 32];
static const uint8_t *k_pages[MAX_CACHE / HTH_KV_PAGE + 1], *v_pages[MAX_CACHE / HTH_KV_PAGE + 1];
static int32_t query_sum[MAX_QUERY * MAX_D / 32];

static size_t n_query(const shape *s) { return s->n_row * s->n_head; }
static size_t first_n_pos(const shape *s) { return s->n_pos - s->n_row + 1; }

static size_t first_seen(const shape *s)
{
    return s->window > 0 && first_n_pos(s) > s->window ? first_n_pos(s) - s->window : 0;
}

/* What no row sees, at the start of a window and behind the last position, becomes NaN. */
static void poison(const shape *s, float *rows, size_t n_pos)
{
    for (size_t i = 0; i < n_pos * s->d; i++)
        if (i / s->d < first_seen(s) || i / s->d >= s->n_pos) rows[i] = hth_float_of(0x7fc00000u);
}

static void fill_rows(test_random *r, const shape *s, size_t n_pos)
{
    proof_fill_f32(r, s->kind, plain, n_pos * s->d);
    poison(s, plain, n_pos);
}

/* One value per head: slopes from 2^-8 on, sinks around the scores. */
static const float *fill_heads(test_random *r, guard *g, size_t n_head, bool want, float base, float range)
{
    float *x = guard_place(g, n_head * sizeof *x, GUARD_BEHIND, 0);
    for (size_t i = 0; i < n_head; i++) x[i] = base + range * test_random_float(r);
    return want ? x : NULL;
}

/* Caches, queries and a job without outputs. */
static hth_attn make_job(test_random *r, const hth_kernels *k, const shape *s)
{
    size_t size = attend_cache_size(s->type, s->d, s->n_pos), n = n_query(s) * s->d;
    size_t n_whole = hth_kv_layout_n_group(s->n_pos) * HTH_KV_GROUP;
    uint8_t *keys = guard_place(&rooms[0], size, GUARD_BEHIND, 0),
            *values = guard_place(&rooms[1], size, GUARD_BEHIND, 0);
    fill_rows(r, s, n_whole);
    attend_put_keys(k, s->type, keys, s->d, n_whole, plain);
    fill_rows(r, s, n_whole);
    attend_put_values(k, s->type, values, s->d, n_whole, plain);
    proof_fill_f32(r, PROOF_PLAIN, queries, n);
    float *q = guard_place(&rooms[2], n * sizeof *q, GUARD_BEHIND, s->shift);
    int8_t *rounded = guard_place(&rooms[3], n, GUARD_BEHIND, 0);
    memcpy(q, queries, n * sizeof *q);
    if (s->type == HEARTH_KV_F16) hth_attn_round_queries(q, n);
    if (s->type == HEARTH_KV_Q8_0) k->quant_act(q, n, rounded, query_d, query_sum);
    attend_page_table(s->type, s->d, s->n_pos, keys, k_pages);
    attend_page_table(s->type, s->d, s->n_pos, values, v_pages);
    const float *slopes = fill_heads(r, &rooms[7], s->n_head, s->slopes, 0.25f, 0.24609375f),
                *sinks = fill_heads(r, &rooms[8], s->n_head, s->sinks, 0.0f, 4.0f);
    return (hth_attn){.k_pages = k_pages, .v_pages = v_pages, .d_head = s->d, .n_row = s->n_row, .n_head = s->n_head,
                      .n_pos = first_n_pos(s), .window = s->window, .q = q,
                      .q_q8 = {.q = rounded, .d = query_d, .sum = query_sum}, .q_stride = s->n_head * s->d,
                      .scale = 0.125f, .cap = s->cap, .inverse_cap = s->cap != 0.0f ? 1.0f / s->cap : 0.0f,
                      .slopes = slopes, .sinks = sinks};
}

typedef struct split_call {
    hth_attn_fn *f;
    hth_attn job;
    size_t i_split;
} split_call;

static void invoke(void *p)
{
    split_call *c = p;
    c->f(&c->job, c->i_split);
}

/* One split: results of row r and head h at r * (n_head + 1) + h, the rest poisoned. */
static bool run_split(const hth_kernels *k, const shape *s, const hth_attn *job, size_t i_split,
                      float values[MAX_OUT * MAX_D], hth_attn_partial parts[MAX_OUT])
{
    size_t n_out = s->n_row * (s->n_head + 1);
    split_call c = {k->attn[s->type], *job, i_split};
    c.job.out_stride = s->n_head + 1;
    c.job.scratch = guard_place(&rooms[4], hth_attn_scratch(s->d, n_query(s)) * sizeof(float), GUARD_BEHIND, 0);
    memset(c.job.scratch, 0xff, hth_attn_scratch(s->d, n_query(s)) * sizeof(float));
    c.job.values = guard_place(&rooms[5], n_out * s->d * sizeof(float), GUARD_BEHIND, s->shift);
    c.job.partials = guard_place(&rooms[6], n_out * sizeof *parts, GUARD_BEFORE, 0);
    memset(c.job.values, 0x5a, n_out * s->d * sizeof(float));
    memset(c.job.partials, 0x5a, n_out * sizeof *parts);
    bool ok = guard_call(invoke, &c);
    memcpy(values, c.job.values, n_out * s->d * sizeof(float));
    memcpy(parts, c.job.partials, n_out * sizeof *parts);
    for (int i = 0; i < N_ROOM; i++) ok = ok && guard_is_whole(&rooms[i]);
    return ok;
}

/* Where a query's largest score or sum is NaN so are its values, and nothing else is promised. */
static bool same_part(const hth_attn_partial *a, const hth_attn_partial *b)
{
    bool broken = a->sum != a->sum && b->sum != b->sum;
    return broken || (proof_differ_f32(&a->sum, &b->sum, 1) == 1 && a->max == b->max);
}

static const char *type_name(hearth_kv_type type)
{
    return type == HEARTH_KV_F16 ? "f16" : type == HEARTH_KV_F32 ? "f32" : "q8_0";
}

static void check_splits(const hth_kernels *reference, const hth_kernels *table, const shape *s,
                         const hth_attn *job)
{
    static float expected[MAX_OUT * MAX_D], got[MAX_OUT * MAX_D];
    static hth_attn_partial e_parts[MAX_OUT], g_parts[MAX_OUT];
    size_t n_out = s->n_row * (s->n_head + 1), n = n_out * s->d, last = hth_attn_last_split(job);
    for (size_t i = hth_attn_first_split(job); i <= last; i++) {
        bool ok = run_split(reference, s, job, i, expected, e_parts) && run_split(table, s, job, i, got, g_parts);
        bool same = proof_differ_f32(expected, got, n) == n;
        for (size_t p = 0; p < n_out; p++) same = same && same_part(&e_parts[p], &g_parts[p]);
        if (ok && same) continue;
        test_fail(
            __FILE__, __LINE__,
            "attend %s at %s, split %zu: %s; d %zu, %zu rows of %zu heads, %zu positions, window %zu, cap "
            "%g, slopes %d, shift %zu, %s",
            type_name(s->type), hth_cpu_name(table->level), i,
            ok ? "not the reference's bits" : "fault, or wrote outside", s->d, s->n_row, s->n_head, s->n_pos,
            s->window, (double)s->cap, s->slopes, s->shift, proof_kind_name(s->kind));
        return;
    }
}

static void open_rooms(void)
{
    size_t out = MAX_OUT * MAX_D * sizeof(float);
    size_t sizes[N_ROOM] = {4 * MAX_CACHE, 4 * MAX_CACHE, out, out, 4 * hth_attn_scratch(MAX_D, MAX_QUERY),
                            out, out, out, out};
    for (int i = 0; i < N_ROOM; i++) guard_open(&rooms[i], sizes[i]);
}

static void close_rooms(void) { for (int i = 0; i < N_ROOM; i++) guard_close(&rooms[i]); }

/* Any shape: all widths around the vectors, groups of 1 to 9 heads, up to 16 rows. */
static shape any_shape(test_random *r, hearth_kv_type type, size_t i)
{
    static const size_t widths[] = {1, 2, 7, 8, 9, 15, 16, 17, 20, 31, 32, 33, 48, 64, 80, 96, 100, 128, 136, 256};
    static const size_t whole[] = {32, 64, 96, 128, 160, 256, 288};
    static const size_t positions[] = {16, 17, 31, 40, 255, 256, 257, 272, 300, 513, 600, 770};
    shape s = {.type = type, .n_row = 1 + test_random_below(r, 16), .n_head = 1 + test_random_below(r, 9)};
    while (n_query(&s) > MAX_QUERY) s.n_row /= 2;
    s.d = type == HEARTH_KV_Q8_0 ? whole[i % 7] : widths[i % 20];
    s.n_pos = positions[test_random_below(r, 12)];
    if (test_random_below(r, 4) == 0) s.n_row = 1, s.n_pos = 1 + test_random_below(r, 20);
    if (s.n_pos * s.d > MAX_CACHE - 16 * MAX_D) s.n_pos = 272;
    if (test_random_below(r, 2)) s.window = 1 + test_random_below(r, (uint32_t)s.n_pos);
    if (test_random_below(r, 3) == 0) s.cap = 3.0f;
    s.shift = 4 * (size_t)test_random_below(r, 3);
    s.slopes = test_random_below(r, 2), s.sinks = test_random_below(r, 2);
    s.kind = (proof_kind)test_random_below(r, PROOF_N_KIND);
    return s;
}

TEST(every_split_equals_the_reference_between_guard_pages)
{
    hth_cpu levels[PROOF_MAX_LEVEL];
    int n_level = proof_levels(levels);
    size_t n = test_is_long() ? 4000 : 80;
    open_rooms();
    test_random r = proof_random();
    hth_kernels table;
    hth_kernels reference = proof_kernels(HTH_CPU_GENERIC);
    for (size_t i = 0; i < n; i++)
        for (int type = 0; type < HTH_N_KV_TYPE; type++) {
            shape s = any_shape(&r, (hearth_kv_type)type, i);
            hth_attn job = make_job(&r, &reference, &s);
            for (int l = 0; l < n_level; l++) {
                hth_kernels_init(&table, levels[l]);
                check_splits(&reference, &table, &s, &job);
            }
        }
    close_rooms();
}

/* ---- what holds at every level ------------------------------------------------------------- */

static int all_levels(hth_cpu levels[1 + PROOF_MAX_LEVEL])
{
    levels[0] = HTH_CPU_GENERIC;
    return 1 + proof_levels(levels + 1);
}

/* A head of a row of a group gives what it gives alone, with a cache that ends behind it and
 * with infinite keys and values where it cannot see. */
static void check_parallel(test_random *r, const hth_kernels *k, const shape *s)
{
    static float together[MAX_QUERY * MAX_D], alone[MAX_D], scratch[MAX_QUERY * (MAX_D + 300) + 16 * MAX_D];
    hth_attn job = make_job(r, k, s);
    job.scratch = scratch, job.out_stride = s->n_head;
    hth_attn_all_splits(k, s->type, &job, NULL, together);
    static float infinite[MAX_D];
    for (size_t i = 0; i < s->d; i++) infinite[i] = i % 2 ? hth_float_of(0x7f800000u) : -1e30f;
    for (size_t row = s->n_row; row-- > 0;) {
        for (size_t head = 0; head < s->n_head; head++) {
            hth_attn one = job;
            size_t at = row * job.q_stride + head * s->d;
            one.n_row = one.n_head = 1, one.n_pos += row, one.q += at;
            if (one.slopes) one.slopes += head;
            if (one.sinks) one.sinks += head;
            one.q_q8.q += at, one.q_q8.d += at / 32, one.q_q8.sum += at / 32;
            hth_attn_all_splits(k, s->type, &one, NULL, alone);
            if (proof_differ_f32(alone, together + (row * s->n_head + head) * s->d, s->d) == s->d) continue;
            test_fail(
                __FILE__, __LINE__,
                "%s at %s: row %zu of %zu, head %zu of %zu differs alone; d %zu, %zu positions, window %zu, "
                "slopes %d, sinks %d",
                type_name(s->type), hth_cpu_name(k->level), row, s->n_row, head, s->n_head, s->d, s->n_pos,
                s->window, s->slopes, s->sinks);
        }
        /* the rows before must not notice that this position has gone bad */
        hth_kv_layout_put_key(k, s->type, rooms[0].p, s->d, first_n_pos(s) + row - 1, infinite);
        hth_kv_layout_put_value(k, s->type, rooms[1].p, s->d, first_n_pos(s) + row - 1, infinite);
    }
}

TEST(a_row_depends_on_what_it_sees_alone)
{
    hth_cpu levels[1 + PROOF_MAX_LEVEL];
    int n_level = all_levels(levels);
    open_rooms();
    test_random r = proof_random();
    for (int l = 0; l < n_level; l++) {
        hth_kernels k = proof_kernels(levels[l]);
        for (size_t i = 0; i < 24; i++)
            for (int type = 0; type < HTH_N_KV_TYPE; type++) {
                shape s = any_shape(&r, (hearth_kv_type)type, i);
                s.kind = i % 4 ? PROOF_PLAIN : PROOF_WIDE;
                check_parallel(&r, &k, &s);
            }
    }
    close_rooms();
}

/* The positions of a window are all that counts, when it begins where a split does. */
TEST(a_window_that_begins_at_a_split_is_attention_over_its_positions_alone)
{
    enum { D = 32, N_POS = 700, FIRST = 256 };
    static float q[D], k[N_POS * D], v[N_POS * D], whole[D], alone[D];
    test_random r = proof_random();
    hth_kernels table = proof_kernels(HTH_CPU_GENERIC);
    proof_fill_f32(&r, PROOF_PLAIN, q, D);
    proof_fill_f32(&r, PROOF_PLAIN, k, N_POS * D);
    proof_fill_f32(&r, PROOF_PLAIN, v, N_POS * D);
    for (int type = 0; type < HTH_N_KV_TYPE; type++) {
        attend_alone a = {.type = (hearth_kv_type)type, .d_head = D, .first = FIRST, .n_pos = N_POS};
        a.q = q, a.keys = k, a.values = v, a.scale = 0.25f;
        attend_one(&table, &a, whole);
        a.keys = k + FIRST * D, a.values = v + FIRST * D, a.first = 0, a.n_pos = N_POS - FIRST;
        attend_one(&table, &a, alone);
        CHECK_BYTES(whole, alone, sizeof whole);
    }
}

/* ---- against double precision ---------------------------------------------------------------- */

static double worst_error(const attend_alone *a, const float *y)
{
    double sum = 0, values[MAX_D] = {0}, error = 0, size = 0;
    for (size_t j = a->first; j < a->n_pos; j++) {
        double score = 0;
        for (size_t i = 0; i < a->d_head; i++) score += (double)a->q[i] * (double)a->keys[j * a->d_head + i];
        score *= (double)a->scale;
        if (a->slope) score -= (double)*a->slope * (double)(a->n_pos - 1 - j);
        double w = exp(score);
        sum += w;
        for (size_t i = 0; i < a->d_head; i++) values[i] += w * (double)a->values[j * a->d_head + i];
    }
    if (a->sink) sum += exp((double)*a->sink);
    for (size_t i = 0; i < a->d_head; i++) {
        double e = values[i] / sum - (double)y[i], s = values[i] / sum;
        error = e > error ? e : -e > error ? -e : error;
        size = s > size ? s : -s > size ? -s : size;
    }
    return error / size;
}

static float double_q[MAX_D], double_keys[MAX_CACHE], double_values[MAX_CACHE];

static attend_alone case_in_double(test_random *r, size_t d, size_t first, size_t n_pos)
{
    for (size_t i = 0; i < d; i++) double_q[i] = test_random_float(r) * 3;
    for (size_t i = 0; i < n_pos * d; i++)
        double_keys[i] = test_random_float(r) * 2, double_values[i] = test_random_float(r);
    return (attend_alone){.d_head = d, .first = first, .n_pos = n_pos, .q = double_q, .keys = double_keys,
                          .values = double_values, .scale = 0.125f};
}

/* Each type of cache costs what its bits say: its rounding, not more. */
static void check_in_double(attend_alone a)
{
    static const double bound[HTH_N_KV_TYPE] = {2e-3, 2e-5, 5e-2}, floor_[HTH_N_KV_TYPE] = {1e-6, 0, 1e-4};
    hth_kernels k = proof_kernels(HTH_CPU_GENERIC);
    float y[MAX_D];
    for (int type = 0; type < HTH_N_KV_TYPE; type++) {
        a.type = (hearth_kv_type)type;
        attend_one(&k, &a, y);
        double error = worst_error(&a, y);
        if (error < bound[type] && error >= floor_[type]) continue;
        test_fail(__FILE__, __LINE__, "%s, positions %zu to %zu, slope %g, sink %g: relative error %g",
                  type_name(a.type), a.first, a.n_pos, a.slope ? (double)*a.slope : 0.0,
                  a.sink ? (double)*a.sink : -HUGE_VAL, error);
    }
}

TEST(attention_is_right_to_the_precision_of_its_cache)
{
    test_random r = proof_random();
    check_in_double(case_in_double(&r, 64, 0, 400));
}

/* Within one split, at its ends, and over up to four; windows that begin within a split. Rows and heads of a job give
 * the same (a_row_depends_on_what_it_sees_alone). */
TEST(slopes_and_sinks_are_right_to_the_precision_of_the_cache)
{
    static const size_t spans[][2] = {{0, 1}, {0, 2}, {0, 255}, {0, 256}, {0, 257}, {0, 800}, {100, 300}, {300, 900}};
    static const float slopes[] = {0.5f, 0x1p-8f, 0x1.6a09e6p-5f}, sinks[] = {-3.0f, 0.0f, 2.5f, 9.0f};
    test_random r = proof_random();
    for (size_t i = 0; i < sizeof spans / sizeof *spans; i++) {
        attend_alone a = case_in_double(&r, 64, spans[i][0], spans[i][1]);
        for (int j = 0; j < 12; j++) {
            a.slope = &slopes[j % 3], a.sink = NULL;
            check_in_double(a);
            a.sink = &sinks[j % 4];
            check_in_double(a);
            a.slope = NULL;
            check_in_double(a);
        }
    }
}

/* A slope of 0 and a sink that no score can be below change no bit; a sink above all scores leaves no weight. */
TEST(slopes_and_sinks_have_neutral_values)
{
    static float none[MAX_D], y[MAX_D], zero[MAX_D];
    const float no_slope = 0.0f, no_sink = -INFINITY, all = 1e30f;
    test_random r = proof_random();
    hth_kernels k = proof_kernels(hth_cpu_detect());
    attend_alone a = case_in_double(&r, 64, 20, 700);
    for (int type = 0; type < HTH_N_KV_TYPE; type++) {
        a.type = (hearth_kv_type)type, a.slope = a.sink = NULL;
        attend_one(&k, &a, none);
        a.slope = &no_slope, a.sink = &no_sink;
        attend_one(&k, &a, y);
        CHECK_BYTES(y, none, 64 * sizeof *y);
        a.sink = &all;
        attend_one(&k, &a, y);
        for (int i = 0; i < 64; i++) y[i] = y[i] == 0.0f ? 0.0f : y[i]; /* of either sign */
        CHECK_BYTES(y, zero, 64 * sizeof *y);
    }
}

/* docs/arithmetic.md 5: one more split with the score of the sink, weight 1 and values 0. */
TEST(a_sink_is_a_last_split)
{
    enum { N = 37 };
    static const float sinks[] = {-20.0f, -1.25f, 0.0f, 1.25f, 3.0f, 20.0f};
    test_random r = proof_random();
    hth_kernels k = proof_kernels(HTH_CPU_GENERIC);
    for (size_t i = 0; i < sizeof sinks / sizeof *sinks; i++) {
        float values[N], y[N], sum, max = test_random_float(&r) * 2;
        hth_attn_partial total = {.max = max, .sum = 1.0f + 100.0f * fabsf(test_random_float(&r))};
        proof_fill_f32(&r, PROOF_PLAIN, values, N);
        memcpy(y, values, sizeof y);
        float top = sinks[i] > max ? sinks[i] : max, of_sums[2] = {max - top, sinks[i] - top};
        k.exp(of_sums, 2, of_sums);
        sum = total.sum * of_sums[0] + of_sums[1];
        k.rcp(&sum, 1, &sum);
        hth_attn_finalize(&total, y, N, &sinks[i]);
        for (int j = 0; j < N; j++) values[j] = values[j] * of_sums[0] * sum;
        CHECK_BYTES(y, values, sizeof y);
    }
}

/* ---- the rounding of a cache ------------------------------------------------------------------- */

TEST(rounding_of_a_cache_is_the_same_everywhere_and_keeps_within_half_a_step)
{
    enum { N = 32 * 40 };
    static float x[N];
    int8_t expected[N], q[N];
    uint16_t e_d[N / 32], d[N / 32];
    hth_cpu levels[1 + PROOF_MAX_LEVEL];
    int n_level = all_levels(levels);
    test_random r = proof_random();
    hth_kernels k;
    for (int kind = 0; kind < PROOF_N_KIND; kind++) {
        proof_fill_f32(&r, (proof_kind)kind, x, N);
        hth_kernels_init(&k, HTH_CPU_GENERIC);
        k.quant_cache(x, N, expected, e_d);
        for (int l = 1; l < n_level; l++) {
            hth_kernels_init(&k, levels[l]);
            memset(q, 0x5a, sizeof q);
            k.quant_cache(x, N, q, d);
            CHECK_BYTES(expected, q, sizeof q);
            CHECK_BYTES(e_d, d, sizeof d);
        }
        for (int i = 0; i < N; i++) {
            double step = (double)hth_bf16_to_f32(e_d[i / 32]), off = (double)x[i] - step * expected[i];
            CHECK(expected[i] >= -127);
            if (step > 0 && !(off <= step * 0.50001 && off >= -step * 0.50001))
                test_fail(__FILE__, __LINE__, "%s: %g became %d steps of %g",
                          proof_kind_name((proof_kind)kind), (double)x[i], expected[i], step);
        }
    }
}

/* Blocks at and beyond the bounds of the rule (arithmetic.md 7). */
TEST(rounding_of_a_cache_at_its_bounds)
{
    float x[32] = {0};
    int8_t q[32];
    uint16_t d;
    hth_kernels k = proof_kernels(HTH_CPU_GENERIC);
    x[5] = -0x1p-61f;
    k.quant_cache(x, 32, q, &d);
    CHECK(d == 0 && q[5] == 0);
    x[5] = -0x1p-60f;
    k.quant_cache(x, 32, q, &d);
    CHECK(d != 0 && q[5] <= -126);
    x[5] = 0x1p61f;
    k.quant_cache(x, 32, q, &d);
    CHECK(d == 0x7fc0 && q[5] == 0);
    x[5] = 127.0f; /* 1/127 of it is 1, to the last bit or one more: rounded away, never below */
    k.quant_cache(x, 32, q, &d);
    CHECK(hth_bf16_to_f32(d) >= 1.0f && hth_bf16_to_f32(d) <= 1.01f && q[5] >= 126);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--bench") == 0) return attend_bench(argc > 2 ? argv[2] : "");
    return test_run_all(argc, argv);
}
