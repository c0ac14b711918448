/* The proof of neuron-major down: every type at every level of this machine against the C
 * reference, and the reference against products in double; the four properties of sparsity.
 * `--bench` measures instead (support/kernels/bench.h). */
#include "support/kernels/bench.h"
#include "support/kernels/axpy_case.h"

#include "base/bits.h"

enum { MAX_WEIGHT = 1 << 19, MAX_OUT = 1 << 14 };

static down_case the_case;
static int64_t expected[MAX_OUT], got[MAX_OUT];

typedef struct call {
    hth_axpy_fn *f;
    hth_axpy_job job;
} call;

static void do_call(void *p)
{
    call *c = p;
    c->f(&c->job);
}

static void fail(const char *what, hth_cpu level, size_t o)
{
    const rows_shape *s = &the_case.shape.rows;
    test_fail(
        __FILE__, __LINE__,
        "%s at %s: %s, output %zu (expected %lld, got %lld); %zu rows, %zu outputs, gap %zu, shift %zu, "
        "side %d, %s, h %s, list %d",
        rows_type_name(s->type), hth_cpu_name(level), what, o, (long long)expected[o], (long long)got[o],
        s->n_row, s->n_col, s->row_gap, s->shift, (int)s->side, proof_kind_name(s->kind),
        proof_kind_name(the_case.shape.h_kind), the_case.shape.list);
}

static bool is_whole(void)
{
    return guard_is_whole(&the_case.sums) && guard_is_whole(&the_case.offsets) && guard_is_whole(&the_case.chain);
}

/* The rows of `job` with the level's kernel, then wide[n_out] (zeroed before). A chain that is out
 * of bounds shows as one in wide. False after a fault, which is reported. */
static bool compute(hth_cpu level, const hth_axpy_job *job, int64_t *acc64)
{
    hth_kernels table = proof_kernels(level);
    hth_type type = the_case.shape.rows.type;
    call c = {table.axpy[type], *job};
    bool ok = guard_call(do_call, &c);
    if (!ok) fail("memory fault", level, 0);
    if (ok && !is_whole()) fail("wrote outside its outputs", level, 0);
    memset(acc64, 0, job->n_out * sizeof *acc64);
    if (!down_flush(&table, type, job, acc64)) acc64[0] += 1;
    return ok;
}

static void check_equal(const char *what, hth_cpu level)
{
    for (size_t o = 0; o < the_case.job.n_out; o++)
        if (expected[o] != got[o]) {
            fail(what, level, o);
            return;
        }
}

static bool compare_with_reference(hth_cpu level)
{
    if (!compute(HTH_CPU_GENERIC, &the_case.job, expected)) return false;
    if (!compute(level, &the_case.job, got)) return false;
    check_equal("not the reference's bits", level);
    return true;
}

static down_shape random_shape(test_random *r, hth_type type)
{
    static const size_t gaps[] = {0, 0, 1, 2, 7, 64};
    size_t unit = rows_block(type), max = unit == 256 ? 4 : unit == 32 ? 35 : 70;
    down_shape s = {.rows = {.type = type}};
    s.rows.n_col = unit * (1 + test_random_below(r, (uint32_t)max));
    s.rows.n_row = test_random_below(r, 4) ? test_random_below(r, 24) : test_random_below(r, 70);
    s.rows.row_gap = gaps[test_random_below(r, 6)];
    if (test_random_below(r, 3)) s.rows.shift = test_random_below(r, 64);
    s.rows.side = test_random_below(r, 2) ? GUARD_BEHIND : GUARD_BEFORE;
    s.rows.kind = (proof_kind)test_random_below(r, PROOF_N_KIND);
    s.h_kind = (proof_kind)test_random_below(r, PROOF_N_KIND);
    s.list = 1 + (int)test_random_below(r, 4);
    if (!rows_quantised(type) && s.list == 4) s.list = 3;
    return s;
}

static void for_each_level(void (*check)(hth_cpu level, hth_type type, test_random *r))
{
    hth_cpu levels[PROOF_MAX_LEVEL];
    int n_level = proof_levels(levels);
    down_case_open(&the_case, MAX_WEIGHT, MAX_OUT);
    for (int l = 0; l < n_level; l++) {
        test_random r = proof_random();
        for (int t = 0; t < ROWS_N_FULL; t++) check(levels[l], rows_types[t], &r);
    }
    down_case_close(&the_case);
}

/* The reference is checked by itself where a machine has no other level too. */
static void for_each_type(void (*check)(hth_type type, test_random *r))
{
    test_random r = proof_random();
    down_case_open(&the_case, MAX_WEIGHT, MAX_OUT);
    for (int t = 0; t < ROWS_N_FULL; t++) check(rows_types[t], &r);
    down_case_close(&the_case);
}

/* ---- bits ------------------------------------------------------------------------------------ */

static void random_shapes(hth_cpu level, hth_type type, test_random *r)
{
    for (int i = 0; i < 300; i++) {
        down_shape s = random_shape(r, type);
        down_case_make(&the_case, r, &s);
        if (!compare_with_reference(level)) return;
    }
}

TEST(down_equals_the_reference_between_guard_pages) { for_each_level(random_shapes); }

/* Every number of blocks (or floats) up to past twice the unrolled width, every number of rows up
 * to past twice those of a pass, at both pages. */
static void all_widths(hth_cpu level, hth_type type, test_random *r)
{
    size_t unit = rows_block(type), n_width = unit == 256 ? 3 : unit == 32 ? 19 : 35;
    for (size_t i = 1; i <= n_width; i++)
        for (size_t n_row = 0; n_row <= 19; n_row++) {
            down_shape s = {.rows = {.type = type, .n_row = n_row, .n_col = i * unit}, .list = 2};
            s.rows.side = (i + n_row) % 2 ? GUARD_BEHIND : GUARD_BEFORE;
            down_case_make(&the_case, r, &s);
            if (!compare_with_reference(level)) return;
        }
}

TEST(down_equals_the_reference_at_every_width_and_number_of_rows) { for_each_level(all_widths); }

static void all_shifts(hth_cpu level, hth_type type, test_random *r)
{
    test_random same = *r;
    for (size_t shift = 0; shift < 64; shift++) {
        down_shape s = {.rows = {.type = type, .n_row = 11, .n_col = 768, .shift = shift}, .list = 2};
        *r = same;
        down_case_make(&the_case, r, &s);
        if (!compute(level, &the_case.job, shift == 0 ? expected : got)) return;
        if (shift > 0) check_equal("result depends on alignment", level);
    }
}

TEST(down_does_not_depend_on_alignment) { for_each_level(all_shifts); }

/* Outputs in two calls, cut at a block of 256 (floats: anywhere). */
static void cut_columns(hth_cpu level, hth_type type, test_random *r)
{
    for (int i = 0; i < 60; i++) {
        down_shape s = random_shape(r, type);
        if (rows_quantised(type)) s.rows.n_col += 256;
        down_case_make(&the_case, r, &s);
        if (!compute(level, &the_case.job, expected)) return;
        size_t unit = rows_quantised(type) ? 256 : 1;
        size_t cut = unit * test_random_below(r, (uint32_t)(s.rows.n_col / unit) + 1);
        hth_axpy_job first = the_case.job, second = the_case.job;
        first.n_out = cut, second.n_out -= cut;
        second.w += down_bytes(type, cut), second.sums += cut, second.chain += cut;
        if (rows_quantised(type)) second.offsets += cut / hth_axpy_sub_block(type);
        if (!compute(level, &first, got) || !compute(level, &second, got + cut)) return;
        if (!rows_quantised(type)) continue; /* whose flags stand elsewhere now: checked below */
        check_equal("result depends on the cut into outputs", level);
    }
}

TEST(down_does_not_depend_on_the_cut_into_outputs) { for_each_level(cut_columns); }

/* Chains as they are, before a flush takes their -0 and NaN. */
static void chains(hth_cpu level, hth_type type, test_random *r)
{
    static float right[MAX_OUT];
    if (rows_quantised(type)) return;
    hth_kernels reference = proof_kernels(HTH_CPU_GENERIC);
    hth_kernels table = proof_kernels(level);
    for (int i = 0; i < 300; i++) {
        down_shape s = random_shape(r, type);
        down_case_make(&the_case, r, &s);
        hth_axpy_job job = the_case.job;
        size_t n = job.n_out, size = n * sizeof(float), a = test_random_below(r, (uint32_t)job.n + 1);
        size_t cut = test_random_below(r, (uint32_t)n + 1);
        for (size_t o = 0; o < n; o++) right[o] = job.chain[o] = i % 2 ? -0.0f : test_random_float(r);
        float *guarded = job.chain;
        job.chain = right;
        reference.axpy[type](&job);
        job.chain = guarded;
        for (int half = 0; half < 2; half++) { /* rows and outputs in two calls each */
            hth_axpy_job part = job;
            part.n = half ? job.n - a : a;
            if (half) part.list += a, part.h += a;
            part.n_out = cut;
            table.axpy[type](&part);
            part.w += down_bytes(type, cut), part.chain += cut, part.n_out = n - cut;
            table.axpy[type](&part);
        }
        if (!is_whole()) fail("wrote outside its outputs", level, 0);
        if (proof_differ_f32(right, guarded, n) < n) fail("another chain", level, 0);
        memset(guarded, 0, size);
    }
}

TEST(chains_have_the_bits_of_the_reference) { for_each_level(chains); }

/* Rows longer than any tile, and more of them than a pass takes. */
static void long_rows(hth_cpu level, hth_type type, test_random *r)
{
    size_t unit = rows_quantised(type) ? rows_block(type) : 1;
    for (int past = -1; past <= 1; past += 2) {
        down_shape s = {.rows = {.type = type, .n_row = 9}, .list = 2};
        s.rows.n_col = past < 0 ? 8192 - unit : 8192 + unit;
        down_case_make(&the_case, r, &s);
        if (!compare_with_reference(level)) return;
    }
}

TEST(long_rows_equal_the_reference) { for_each_level(long_rows); }

/* ---- bounds ----------------------------------------------------------------------------------- */

/* Where the halves of a block lie; and bytes that make every integer of a block 1, or 0: two ranges
 * and their values. */
typedef struct type_bytes {
    hth_type type;
    int d, m; /* -1: none */
    int low, low_end, low_one, high, high_end, high_one, low_zero, high_zero;
} type_bytes;

static const type_bytes layouts[] = {
    {HTH_TYPE_Q8_0, 0, -1, 2, 34, 0x01, 0, 0, 0, 0, 0},
    {HTH_TYPE_Q4_0, 0, -1, 2, 18, 0x99, 0, 0, 0, 0x88, 0},
    {HTH_TYPE_Q4_1, 0, 2, 4, 20, 0x11, 0, 0, 0, 0, 0},
    {HTH_TYPE_Q5_0, 0, -1, 6, 22, 0x11, 2, 6, 0xff, 0, 0xff},
    {HTH_TYPE_Q5_1, 0, 2, 8, 24, 0x11, 4, 8, 0, 0, 0},
    {HTH_TYPE_IQ4_NL, 0, -1, 2, 18, 0x88, 0, 0, 0, 0x88, 0},
    {HTH_TYPE_MXFP4, -1, -1, 1, 17, 0x11, 0, 0, 0, 0, 0},
    {HTH_TYPE_Q2_K, 80, 82, 16, 80, 0x55, 0, 0, 0, 0, 0},
    {HTH_TYPE_Q3_K, 108, -1, 32, 96, 0x55, 0, 32, 0xff, 0, 0xff},
    {HTH_TYPE_Q4_K, 0, 2, 16, 144, 0x11, 0, 0, 0, 0, 0},
    {HTH_TYPE_Q5_K, 0, 2, 48, 176, 0x11, 16, 48, 0, 0, 0},
    {HTH_TYPE_Q6_K, 208, -1, 0, 128, 0x11, 128, 192, 0xaa, 0, 0xaa},
    {HTH_TYPE_IQ4_XS, 0, -1, 8, 136, 0x88, 0, 0, 0, 0x88, 0},
};

static const type_bytes *layout_of(hth_type type)
{
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
        if (layouts[i].type == type) return &layouts[i];
    return NULL;
}

/* Makes all integers of a row 1 or 0. */
static void set_integers(const type_bytes *t, uint8_t *row, size_t n_out, bool one)
{
    size_t size = down_bytes(t->type, rows_block(t->type));
    for (size_t b = 0; b < n_out / rows_block(t->type); b++, row += size) {
        memset(row + t->low, one ? t->low_one : t->low_zero, (size_t)(t->low_end - t->low));
        memset(row + t->high, one ? t->high_one : t->high_zero, (size_t)(t->high_end - t->high));
    }
}

static void set_halves(hth_type type, uint8_t *row, size_t n_out, int at, uint16_t half)
{
    size_t size = down_bytes(type, rows_block(type));
    for (size_t b = 0; at >= 0 && b < n_out / rows_block(type); b++) hth_store_u16(row + b * size + (size_t)at, half);
}

static float largest_weight(hth_type type, const uint8_t *row, size_t n_out)
{
    static float x[MAX_OUT];
    float top = 0;
    hth_kernels k = proof_kernels(HTH_CPU_GENERIC);
    k.unpack[type](row, n_out, x);
    for (size_t o = 0; o < n_out; o++) top = fabsf(x[o]) > top ? fabsf(x[o]) : top;
    return top;
}

/* Weights of integers 1 without minima show the scales, of integers 0 the minima. */
static void largest_scales(hth_type type, test_random *r)
{
    if (!rows_quantised(type)) {
        CHECK(hth_axpy_absmax_scale(type, (const uint8_t *)"12345678", 2) == 0);
        return;
    }
    const type_bytes *t = layout_of(type);
    for (int i = 0; i < 100; i++) {
        down_shape s = random_shape(r, type);
        s.rows.n_row = 1, s.rows.kind = (proof_kind)(i % PROOF_SPECIAL);
        down_case_make(&the_case, r, &s);
        uint8_t *row = the_case.w.p;
        float d = hth_axpy_absmax_scale(type, row, s.rows.n_col), plain = 0;
        if (t->m >= 0) {
            set_integers(t, row, s.rows.n_col, false);
            plain = largest_weight(type, row, s.rows.n_col) / 16;
            set_halves(type, row, s.rows.n_col, t->m, 0);
        }
        set_integers(t, row, s.rows.n_col, true);
        float of_scales = largest_weight(type, row, s.rows.n_col);
        plain = of_scales > plain ? of_scales : plain;
        if (type == HTH_TYPE_IQ4_NL || type == HTH_TYPE_IQ4_XS || t->m < 0) CHECK(of_scales == plain);
        if (d != plain)
            test_fail(__FILE__, __LINE__, "%s: D %a, expected %a", rows_type_name(type), (double)d, (double)plain);
        static const uint16_t not_finite[] = {0x7c00, 0xfc00, 0x7e00, 0xfe01};
        uint16_t bad = not_finite[i % 4];
        size_t block = down_bytes(type, rows_block(type)) *
                       test_random_below(r, (uint32_t)(s.rows.n_col / rows_block(type)));
        if (t->m >= 0 && i % 2) hth_store_u16(row + block + t->m, bad);
        else if (t->d >= 0) hth_store_u16(row + block + t->d, bad);
        else row[block] = 255;
        CHECK(isnan(hth_axpy_absmax_scale(type, row, s.rows.n_col)));
    }
}

TEST(largest_scale_is_that_of_the_unpacked_weights) { for_each_type(largest_scales); }

static float any_float(test_random *r, int low, int high)
{
    float f = (float)ldexp(1 + test_random_below(r, 1 << 23) * 0x1p-23,
                           low + (int)test_random_below(r, (uint32_t)(high - low)));
    return test_random_below(r, 8) ? f : 0;
}

TEST(scale_of_coefficients_is_the_largest_that_fits)
{
    test_random r = proof_random();
    for (int i = 0; i < 20000; i++) {
        bool wild = i % 2;
        float h = any_float(&r, wild ? -149 : -20, wild ? 128 : 40),
              d = any_float(&r, wild ? -149 : -24, wild ? 127 : 16);
        if (i % 5 == 0) h = 32766.0f * (float)ldexp(1, (int)test_random_below(&r, 30)), d = 0x1p-9f;
        if (i % 5 == 1) h = nextafterf(32766.0f * 0x1p-5f, INFINITY), d = 0x1p-9f;
        float scale = hth_axpy_scale(&h, 1, d, -100), expected_scale = down_largest_scale(h, d, 32);
        if (scale != expected_scale)
            test_fail(__FILE__, __LINE__, "h %a, D %a: 2^k %a, expected %a", (double)h, (double)d,
                      (double)scale, (double)expected_scale);
    }
    static const float wrong[][2] = {{NAN, 1}, {1, NAN}, {INFINITY, 0}};
    for (int i = 0; i < 3; i++) CHECK(hth_axpy_scale(wrong[i], 1, wrong[i][1], -100) == 0);
}

/* Below the safe exponent, halves of the sum of all coefficients are allowed. */
TEST(large_values_have_a_scale_while_few_coefficients_are_large)
{
    static float h[HTH_CLUSTER_NEURONS];
    test_random r = proof_random();
    int n_none = 0, n_some = 0;
    for (int i = 0; i < 3000; i++) {
        size_t n = 1 + test_random_below(&r, HTH_CLUSTER_NEURONS);
        uint32_t one_in = 1 + test_random_below(&r, 200);
        float d = any_float(&r, -10, 10);
        int safe = (int)test_random_below(&r, 30) - 5;
        for (size_t j = 0; j < n; j++)
            h[j] = test_random_below(&r, one_in) ? 0x1p-6f * test_random_float(&r) : any_float(&r, 0, 9);
        float scale = down_largest_scale(hth_axpy_absmax_h(h, n), d, 32);
        int below = safe - ilogbf(scale);
        double sum = 0;
        for (size_t j = 0; j < n; j++) sum += floor(fabs((double)h[j]) * (double)scale * (double)d) + (h[j] != 0);
        bool fits = below <= 0 || sum <= floor(ldexp(256 * 32767.0, -below));
        fits ? n_some++ : n_none++;
        CHECK(hth_axpy_scale(h, n, d, safe) == (fits ? scale : 0));
    }
    CHECK(n_none > 300 && n_some > 300);
}

/* All clusters of a layer with the largest coefficients and minima, in doubles. */
TEST(sums_of_a_layer_fit_from_the_safe_exponent_on)
{
    static const size_t layers[] = {1, 256, 257, 768, 4096, 11008, 53248, 65537, 1 << 20};
    for (size_t t = 0; t < ROWS_N_FULL; t++)
        for (size_t i = 0; rows_quantised(rows_types[t]) && i < sizeof layers / sizeof *layers; i++) {
            double neuron = 2.0 * 0x1p31 / (double)hth_axpy_limit(rows_types[t]), n = (double)hth_n_cluster(layers[i]);
            int k = hth_axpy_safe_exponent(rows_types[t], hth_n_cluster(layers[i]));
            CHECK(ldexp(256 * n * neuron, 32 - k) <= 0x1p63);
            CHECK(ldexp(256 * n * neuron, 32 - k) > 0x1p61);
        }
}

TEST(largest_h_counts_nan_as_largest)
{
    float h[] = {1, -3, 2, 0x1p-140f};
    CHECK(hth_axpy_absmax_h(h, 0) == 0 && hth_axpy_absmax_h(h, 1) == 1 && hth_axpy_absmax_h(h, 4) == 3);
    h[0] = INFINITY;
    CHECK(isinf(hth_axpy_absmax_h(h, 4)));
    h[3] = -NAN;
    CHECK(isnan(hth_axpy_absmax_h(h, 4)));
}

/* Without a scale nothing is added, but sums may be undefined for any h: nothing to compare; sanitizers and guard
 * pages watch. */
static void any_h(hth_cpu level, hth_type type, test_random *r)
{
    for (int i = 0; i < 40; i++) {
        down_shape s = random_shape(r, type);
        s.h_kind = PROOF_PLAIN;
        down_case_make(&the_case, r, &s);
        proof_fill_f32(r, i % 2 ? PROOF_BITS : PROOF_SPECIAL, (float *)(void *)the_case.h.p, the_case.job.n);
        if (!compute(HTH_CPU_GENERIC, &the_case.job, expected) || !compute(level, &the_case.job, got)) return;
    }
}

TEST(h_of_any_size_is_computed) { for_each_level(any_h); }

/* As many neurons as sums hold, the largest integers, coefficients and minima: one row again and
 * again, against 64 bits. */
static void full_limit(hth_cpu level, hth_type type, test_random *r)
{
    static const uint8_t patterns[] = {0x00, 0x7f, 0x80, 0xff, 0x88, 0xf0};
    static int32_t list[4096];
    static float h[4096];
    if (!rows_quantised(type)) return;
    const type_bytes *t = layout_of(type);
    size_t limit = hth_axpy_limit(type);
    CHECK(limit <= 4096);
    for (int i = 0; i < 24; i++) {
        down_shape s = {.rows = {.type = type, .n_row = 1, .n_col = 256, .side = GUARD_BEHIND}, .list = 2};
        s.rows.kind = PROOF_LARGEST;
        down_case_make(&the_case, r, &s);
        uint8_t *row = the_case.w.p;
        memset(row, patterns[i / 4], the_case.w.size);
        if (type == HTH_TYPE_MXFP4)
            for (size_t b = 0; b < 8; b++) row[17 * b] = 127;
        set_halves(type, row, 256, t->d, i % 2 ? 0xbc00 : 0x3c00);     /* -1, 1 */
        set_halves(type, row, 256, t->m, i % 4 < 2 ? 0xcc00 : 0x4c00); /* -16, 16 */
        the_case.d_max = hth_axpy_absmax_scale(type, row, 256);
        if (the_case.d_max == 0.0f) continue;
        hth_axpy_job job = the_case.job;
        float top = 32766.0f / the_case.d_max;
        job.list = list, job.h = h, job.n = limit;
        job.scale = down_largest_scale(top, the_case.d_max, 100);
        for (size_t j = 0; j < limit; j++) h[j] = i % 3 ? top : -top;
        hth_axpy_job one = job;
        one.n = 1;
        if (!compute(HTH_CPU_GENERIC, &one, expected) || !compute(level, &job, got)) return;
        for (size_t o = 0; o < 256; o++) expected[o] *= (int64_t)limit;
        check_equal("sums are too narrow", level);
    }
}

TEST(sums_hold_as_many_neurons_as_they_say) { for_each_level(full_limit); }

/* ---- the end ------------------------------------------------------------------------------------ */

static void chain_flushes(hth_cpu level, test_random *r)
{
    static int64_t right[MAX_OUT];
    hth_kernels k = proof_kernels(level);
    for (int i = 0; i < 200; i++) {
        size_t n = test_random_below(r, 70);
        float *chain = guard_place(&the_case.chain, n * sizeof *chain, i % 2 ? GUARD_BEFORE : GUARD_BEHIND, 0);
        bool fits = true;
        proof_fill_f32(r, (proof_kind)(i % PROOF_N_KIND), chain, n);
        for (size_t o = 0; o < n; o++) {
            if (i % 3 && !(fabsf(chain[o]) < 0x1p23f)) chain[o] = o % 2 ? 0x1.fffffep22f : -0x1.fffffep22f;
            bool small = fabsf(chain[o]) < 0x1p23f;
            got[o] = right[o] = (int64_t)test_random_next(r) >> 8;
            right[o] += small ? (int64_t)trunc(ldexp((double)chain[o], 32)) : 0;
            fits = fits && small;
        }
        CHECK_INT(k.axpy_flush_chain(n, chain, got), fits);
        for (size_t o = 0; o < n; o++)
            if (got[o] != right[o] || hth_bits_of(chain[o]) != 0)
                test_fail(__FILE__, __LINE__, "%s: %lld, expected %lld", hth_cpu_name(level),
                          (long long)got[o], (long long)right[o]);
        CHECK(guard_is_whole(&the_case.chain));
    }
}

TEST(chains_become_integers_of_2_to_the_minus_32)
{
    hth_cpu levels[1 + PROOF_MAX_LEVEL] = {HTH_CPU_GENERIC};
    int n_level = 1 + proof_levels(levels + 1);
    test_random r = proof_random();
    down_case_open(&the_case, MAX_WEIGHT, MAX_OUT);
    for (int l = 0; l < n_level; l++) chain_flushes(levels[l], &r);
    down_case_close(&the_case);
}

static void sum_flushes(hth_cpu level, hth_type type, test_random *r)
{
    static int64_t acc64[MAX_OUT];
    hth_kernels k = proof_kernels(level);
    for (int i = 0; i < 60 && rows_quantised(type); i++) {
        size_t part = hth_axpy_sub_block(type), n = rows_block(type) * test_random_below(r, 9);
        int shift = (int)test_random_below(r, 60);
        int32_t *sums = guard_place(&the_case.sums, n * sizeof *sums, i % 2 ? GUARD_BEFORE : GUARD_BEHIND, 0);
        int32_t *offsets = guard_place(&the_case.offsets, n / part * sizeof *offsets, i % 2 ? GUARD_BEHIND : GUARD_BEFORE, 0);
        for (size_t o = 0; o < n / part; o++) offsets[o] = (int32_t)test_random_next(r);
        for (size_t o = 0; o < n; o++) {
            sums[o] = (int32_t)test_random_next(r);
            acc64[o] = (int64_t)test_random_next(r);
            int64_t sum = (int64_t)sums[o] - offsets[o / part];
            expected[o] = (int64_t)((uint64_t)acc64[o] + ((uint64_t)sum << shift));
        }
        k.axpy_flush(type, n, (float)ldexp(1, 32 - shift), sums, offsets, acc64);
        for (size_t o = 0; o < n; o++)
            if (acc64[o] != expected[o] || sums[o] != 0 || offsets[o / part] != 0)
                test_fail(__FILE__, __LINE__, "%s: %lld, expected %lld", hth_cpu_name(level), (long long)acc64[o],
                          (long long)expected[o]);
        CHECK(guard_is_whole(&the_case.sums) && guard_is_whole(&the_case.offsets));
    }
}

TEST(sums_of_any_scale_become_integers_of_2_to_the_minus_32) { for_each_level(sum_flushes); }

/* One rounding: also where a double in between would make a tie of what is none. */
TEST(outputs_are_rounded_once)
{
    const int64_t acc64[] = {
        0, 1, -1, (1 << 24) + 1, (1 << 24) + 3, ((int64_t)1 << 60) + ((int64_t)1 << 36) + 1,
        -((int64_t)1 << 60) - ((int64_t)1 << 36) - 1, INT64_MAX, INT64_MIN,
    };
    const float right[] = {0, 1, -1, 0x1p24f, 0x1.000004p24f, 0x1.000002p60f, -0x1.000002p60f, 0x1p63f, -0x1p63f};
    float y[9];
    hth_axpy_finish(acc64, 9, y);
    for (int i = 0; i < 9; i++) CHECK(y[i] == 0x1p-32f * right[i]);
}

/* ---- sparsity ------------------------------------------------------------------------------------- */

/* All rows in double: what the integer form may be away from it is half a unit of each coefficient
 * times the integer, and of each minimum. */
static void dense_product(hth_type type, test_random *r)
{
    static float x[MAX_OUT], y[MAX_OUT];
    static double right[MAX_OUT];
    hth_kernels k = proof_kernels(HTH_CPU_GENERIC);
    for (int i = 0; i < 40; i++) {
        down_shape s = random_shape(r, type);
        s.rows.kind = PROOF_PLAIN, s.h_kind = PROOF_PLAIN, s.list = 2;
        down_case_make(&the_case, r, &s);
        hth_axpy_job *job = &the_case.job;
        memset(right, 0, sizeof right);
        double size = 0;
        for (size_t row = 0; row < s.rows.n_row; row++) {
            k.unpack[type](job->w + row * job->row_size, s.rows.n_col, x);
            for (size_t o = 0; o < s.rows.n_col; o++) right[o] += (double)job->h[row] * (double)x[o];
            for (size_t o = 0; o < s.rows.n_col; o++) size = fmax(size, fabs((double)job->h[row] * (double)x[o]));
        }
        double factor = rows_quantised(type) ? 1.0 / (double)job->scale : 0x1p-32;
        double unit = rows_quantised(type) ? 65.0 * factor : 1e-6 * size + 0x1p-31;
        if (!compute(HTH_CPU_GENERIC, job, got)) return;
        for (size_t o = 0; o < s.rows.n_col; o++) y[o] = (float)((double)got[o] * factor);
        for (size_t o = 0; o < s.rows.n_col; o++)
            if (fabs((double)y[o] - right[o]) > unit * (double)(s.rows.n_row + 1) + 1e-6 * fabs(right[o])) {
                test_fail(__FILE__, __LINE__, "%s: output %zu of %zu rows is %g, in double %g",
                          rows_type_name(type), o, s.rows.n_row, (double)y[o], right[o]);
                return;
            }
    }
}

TEST(the_full_list_equals_the_dense_product) { for_each_type(dense_product); }

static void empty_list(hth_cpu level, hth_type type, test_random *r)
{
    hth_kernels table = proof_kernels(level);
    down_shape s = {.rows = {.type = type, .n_row = 9, .n_col = 512}, .list = 1};
    down_case_make(&the_case, r, &s);
    guard *all[] = {&the_case.sums, &the_case.offsets, &the_case.chain};
    for (int i = 0; i < 3; i++) memset(all[i]->p, 0x5a, all[i]->size);
    table.axpy[type](&the_case.job);
    for (int i = 0; i < 3; i++)
        for (size_t at = 0; at < all[i]->size; at++)
            if (all[i]->p[at] != 0x5a) fail("the empty list touched an output", level, at);
}

TEST(the_empty_list_leaves_all_sums_untouched) { for_each_level(empty_list); }

/* The neurons in any order, in parts of any size, flushed between or not, at either level. */
static void any_order(hth_cpu level, hth_type type, test_random *r)
{
    static int32_t list[128];
    static float h[128];
    hth_kernels tables[2];
    if (!rows_quantised(type)) return;
    hth_kernels_init(&tables[0], level);
    hth_kernels_init(&tables[1], HTH_CPU_GENERIC);
    for (int i = 0; i < 60; i++) {
        down_shape s = random_shape(r, type);
        s.list = 3;
        down_case_make(&the_case, r, &s);
        hth_axpy_job job = the_case.job;
        if (!compute(HTH_CPU_GENERIC, &job, expected)) return;
        memcpy(list, job.list, job.n * sizeof *list);
        memcpy(h, job.h, job.n * sizeof *h);
        for (size_t n = job.n; n > 1; n--) {
            size_t k = test_random_below(r, (uint32_t)n);
            int32_t row = list[n - 1];
            float of_row = h[n - 1];
            list[n - 1] = list[k], h[n - 1] = h[k], list[k] = row, h[k] = of_row;
        }
        memset(got, 0, sizeof got);
        job.list = list, job.h = h;
        for (size_t left = job.n; left > 0; left -= job.n) {
            job.n = 1 + test_random_below(r, (uint32_t)left);
            job.n_prefetch = left - job.n;
            hth_kernels *k = &tables[test_random_below(r, 4) == 0];
            k->axpy[type](&job);
            if (test_random_below(r, 2)) down_flush(k, type, &job, got);
            job.list += job.n, job.h += job.n;
        }
        down_flush(&tables[0], type, &job, got);
        check_equal("result depends on the order or on the parts", level);
    }
}

TEST(disjoint_lists_in_any_order_equal_their_union) { for_each_level(any_order); }

static void protect_even_rows(bool readable)
{
    size_t page = guard_page_size(), stride = the_case.job.row_size;
    size_t size = down_bytes(the_case.shape.rows.type, the_case.shape.rows.n_col);
    for (size_t i = 0; i < the_case.shape.rows.n_row; i += 2)
        guard_protect(the_case.w.p + i * stride, (size + page - 1) / page * page, readable);
}

/* Rows that begin at a page; the even ones, which are not active, cannot be read. They come next in
 * the list, too: asking for them ahead is no access. */
static void check_odd_rows(hth_cpu level, test_random *r, const down_shape *s)
{
    int32_t list[40];
    size_t n_odd = s->rows.n_row / 2;
    down_case_make(&the_case, r, s);
    hth_axpy_job job = the_case.job;
    for (size_t i = 0; i < s->rows.n_row; i++) list[i] = (int32_t)(i < n_odd ? 2 * i + 1 : 2 * (i - n_odd));
    job.list = list, job.n = n_odd, job.n_prefetch = s->rows.n_row - n_odd;
    if (!compute(HTH_CPU_GENERIC, &job, expected)) return;
    protect_even_rows(false);
    if (compute(level, &job, got)) check_equal("the list gives other bits", level);
    protect_even_rows(true);
}

/* Once with rows that fill their pages to the last byte, and once with more rows than a pass takes
 * and a rest of blocks. */
static void unreadable_rows(hth_cpu level, hth_type type, test_random *r)
{
    size_t page = guard_page_size();
    down_shape s = {.rows = {.type = type, .n_row = 5}, .list = 2};
    s.rows.n_col = type == HTH_TYPE_F32 ? 1024 : rows_quantised(type) ? 16384 : 2048;
    if (down_bytes(type, s.rows.n_col) % page == 0 && 5 * down_bytes(type, s.rows.n_col) <= MAX_WEIGHT)
        check_odd_rows(level, r, &s);
    s.rows.n_row = 39, s.rows.n_col = rows_block(type) == 256 ? 768 : 352;
    s.rows.row_gap = page - down_bytes(type, s.rows.n_col);
    if (s.rows.n_row * page <= MAX_WEIGHT) check_odd_rows(level, r, &s);
}

TEST(no_byte_of_an_inactive_neuron_is_read) { for_each_level(unreadable_rows); }

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--bench") == 0) return down_bench(argc > 2 ? argv[2] : "");
    return test_run_all(argc, argv);
}
