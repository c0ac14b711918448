/* The proof of the row kernels: every type at every level of this machine against the
 * C reference. `--bench` measures instead (support/kernels/bench.h). */
#include "support/kernels/bench.h"
#include "support/kernels/rows_case.h"

#include "base/bits.h"

enum { MAX_WEIGHT = 1 << 19, MAX_INPUT_SIZE = 1 << 18, MAX_Y = 1 << 14 };

static rows_case the_case;
static float expected[MAX_Y], got[MAX_Y];

typedef struct call {
    hth_rows_fn *f;
    hth_rows job;
} call;

static void do_call(void *p)
{
    call *c = p;
    c->f(&c->job);
}

static void fail(const char *what, hth_cpu level, size_t i)
{
    const rows_shape *s = &the_case.shape;
    test_fail(__FILE__, __LINE__,
              "%s at %s: %s, output %zu (expected %a, got %a); %zu rows, %zu columns, %zu tokens, gaps %zu "
              "and %zu, shift %zu, side %d, %s, list %d",
              rows_type_name(s->type), hth_cpu_name(level), what, i, i < MAX_Y ? (double)expected[i] : 0.0,
              i < MAX_Y ? (double)got[i] : 0.0, s->n_row, s->n_col, s->n_tok, s->row_gap, s->y_gap, s->shift,
              (int)s->side, proof_kind_name(s->kind), s->list);
}

/* Poisons y, computes rows [first, end) of the case with the level's kernel and copies
 * y to out. False after a fault, which is reported. */
static bool compute(hth_cpu level, size_t first, size_t end, float *out)
{
    hth_kernels table = proof_kernels(level);
    call c = {table.rows[the_case.shape.type], the_case.job};
    c.job.first = first, c.job.end = end;
    size_t size = rows_case_n_y(&the_case) * sizeof(float);
    memset(the_case.job.y, 0xa5, size);
    bool ok = guard_call(do_call, &c);
    if (!ok) fail("memory fault", level, 0);
    if (ok && !guard_is_whole(&the_case.y)) fail("wrote outside y", level, 0);
    memcpy(out, the_case.job.y, size);
    return ok;
}

static void check_equal(const char *what, hth_cpu level)
{
    size_t n = rows_case_n_y(&the_case), i = proof_differ_f32(expected, got, n);
    if (i < n) fail(what, level, i);
}

/* Every output must be written and the gaps must not. The poison cannot be a result
 * by chance in both runs: the reference is poisoned in the same way. */
static bool compare_with_reference(hth_cpu level)
{
    if (!compute(HTH_CPU_GENERIC, 0, the_case.job.end, expected)) return false;
    if (!compute(level, 0, the_case.job.end, got)) return false;
    check_equal("not the reference's bits", level);
    return true;
}

static rows_shape random_shape(test_random *r, hth_type type)
{
    static const size_t gaps[] = {0, 0, 1, 2, 7, 64};
    bool quantised = rows_quantised(type);
    uint32_t n = test_random_below(r, quantised ? 12 : 68);
    if (test_random_below(r, 8) == 0) n = quantised ? 33 + n : 500 + n;
    /* One draw a statement: the order of draws must not depend on the compiler. */
    rows_shape s = {.type = type, .n_col = rows_block(type) * (size_t)(n + 1)};
    s.n_row = test_random_below(r, 4) ? test_random_below(r, 12) : test_random_below(r, 40);
    s.n_tok = 1 + test_random_below(r, 9);
    if (n < 16 && test_random_below(r, 8) == 0) s.n_tok = 10 + test_random_below(r, 70);
    s.row_gap = gaps[test_random_below(r, 6)];
    s.y_gap = gaps[test_random_below(r, 6)];
    if (test_random_below(r, 3)) s.shift = test_random_below(r, 64);
    s.side = test_random_below(r, 2) ? GUARD_BEHIND : GUARD_BEFORE;
    s.kind = (proof_kind)test_random_below(r, PROOF_N_KIND);
    if (test_random_below(r, 2)) s.list = 1 + (int)test_random_below(r, 3);
    return s;
}

static void for_each_level(void (*check)(hth_cpu level, hth_type type, test_random *r))
{
    hth_cpu levels[PROOF_MAX_LEVEL];
    int n_level = proof_levels(levels);
    rows_case_open(&the_case, MAX_WEIGHT, MAX_INPUT_SIZE);
    for (int l = 0; l < n_level; l++) {
        test_random r = proof_random();
        for (int t = 0; t < ROWS_N_TYPE; t++) check(levels[l], rows_types[t], &r);
    }
    rows_case_close(&the_case);
}

static void random_shapes(hth_cpu level, hth_type type, test_random *r)
{
    for (int i = 0; i < 250; i++) {
        rows_shape s = random_shape(r, type);
        rows_case_make(&the_case, r, &s);
        if (!compare_with_reference(level)) return;
    }
}

TEST(rows_equal_the_reference_between_guard_pages) { for_each_level(random_shapes); }

/* Every number of blocks (or floats) up to three past twice the unrolled width, at
 * both pages, every kind of number, one token and a tile with a rest. */
static void all_widths(hth_cpu level, hth_type type, test_random *r)
{
    size_t unit = rows_block(type), n = rows_quantised(type) ? 19 : 35;
    for (size_t i = 1; i <= n; i++) {
        for (int kind = 0; kind < PROOF_N_KIND; kind++) {
            rows_shape s = {.type = type, .n_row = 3, .n_col = i * unit, .n_tok = kind % 2 ? 1 : 5};
            s.kind = (proof_kind)kind;
            s.side = (i + (size_t)kind / 2) % 2 ? GUARD_BEHIND : GUARD_BEFORE;
            rows_case_make(&the_case, r, &s);
            if (!compare_with_reference(level)) return;
        }
    }
}

TEST(rows_equal_the_reference_at_every_width_and_kind_of_number) { for_each_level(all_widths); }

/* Products too small for a float make partial sums of -0; the padding of a ragged end
 * must leave them so. Only a row whose sixteen partial sums are all -0 shows it. */
static void minus_zeros(hth_cpu level, hth_type type, test_random *r)
{
    if (rows_quantised(type)) return;
    for (size_t n_col = 16; n_col < 48; n_col++) {
        rows_shape s = {.type = type, .n_row = 1, .n_col = n_col, .n_tok = 5, .kind = PROOF_ZEROS};
        rows_case_make(&the_case, r, &s);
        float x = -0x1p-149f, w = 0x1p-100f;
        for (size_t i = 0; i < n_col; i++) {
            uint8_t *place = the_case.w.p + i * rows_bytes(type, 1);
            if (type == HTH_TYPE_F32) hth_store_f32(place, w);
            else hth_store_u16(place, type == HTH_TYPE_F16 ? 1 : hth_f32_to_bf16(w));
        }
        for (size_t i = 0; i < n_col * s.n_tok; i++) hth_store_f32(the_case.x.p + 4 * i, x);
        if (!compare_with_reference(level)) return;
        CHECK_INT(hth_bits_of(expected[0]), 0x80000000u);
    }
}

TEST(ragged_ends_leave_minus_zero_alone) { for_each_level(minus_zeros); }

static void all_shifts(hth_cpu level, hth_type type, test_random *r)
{
    test_random same = *r;
    size_t n_col = rows_block(type) == 256 ? 768 : 704;
    for (size_t shift = 0; shift < 64; shift++) {
        rows_shape s = {.type = type, .n_row = 3, .n_col = n_col, .n_tok = 2, .shift = shift};
        *r = same;
        rows_case_make(&the_case, r, &s);
        if (!compute(level, 0, the_case.job.end, shift == 0 ? expected : got)) return;
        if (shift > 0) check_equal("result depends on alignment", level);
    }
}

TEST(rows_do_not_depend_on_alignment) { for_each_level(all_shifts); }

/* The same outputs in three calls over rows, and in one call for each token. */
static void cut_calls(hth_cpu level, hth_type type, test_random *r)
{
    hth_kernels table = proof_kernels(level);
    for (int i = 0; i < 40; i++) {
        rows_shape s = random_shape(r, type);
        rows_case_make(&the_case, r, &s);
        hth_rows job = the_case.job;
        if (!compute(level, 0, job.end, expected)) return;
        size_t n = rows_case_n_y(&the_case), a = job.end / 3, b = a + (job.end - a) / 2;
        size_t cuts[] = {0, a, b, job.end};
        memset(job.y, 0xa5, n * sizeof(float));
        for (int part = 0; part < 3; part++) {
            job.first = cuts[part], job.end = cuts[part + 1];
            table.rows[type](&job);
        }
        memcpy(got, job.y, n * sizeof(float));
        check_equal("result depends on the split into rows", level);

        job = the_case.job;
        memset(job.y, 0xa5, n * sizeof(float));
        for (size_t t = 0; t < s.n_tok; t++) {
            hth_rows one = job;
            if (one.act.x) one.act.x += t * job.n_col;
            if (one.act.q) one.act.q += t * job.n_col;
            if (one.act.d) one.act.d += t * job.n_col / rows_act_block(type);
            if (one.act.sum) one.act.sum += t * job.n_col / 32;
            if (one.act.sum_16) one.act.sum_16 += t * job.n_col / 16;
            one.n_tok = 1;
            one.y += t * job.y_stride;
            table.rows[type](&one);
        }
        memcpy(got, the_case.job.y, n * sizeof(float));
        check_equal("result depends on the tokens that come together", level);
    }
}

TEST(rows_do_not_depend_on_the_split_into_calls) { for_each_level(cut_calls); }

/* The reference against sums in double of the weights and inputs that the blocks stand for: only the roundings of floats
 * are between them. */
static void check_against_double(test_random *r, hth_type type)
{
    static float w[4096];
    hth_kernels table = proof_kernels(HTH_CPU_GENERIC);
    size_t n_act = rows_act_block(type);
    rows_shape s = {.type = type, .n_row = 7, .n_col = 4096 / rows_block(type) * rows_block(type), .n_tok = 3};
    rows_case_make(&the_case, r, &s);
    const hth_rows *job = &the_case.job;
    if (!compute(HTH_CPU_GENERIC, 0, job->end, got)) return;
    for (size_t i = 0; i < s.n_row; i++) {
        table.unpack[type](job->w + i * job->row_size, s.n_col, w);
        for (size_t t = 0; t < s.n_tok; t++) {
            double y = 0, size = 0;
            for (size_t k = 0; k < s.n_col; k++) {
                size_t at = t * s.n_col + k;
                double x = (double)job->act.q[at] * (double)job->act.d[at / n_act];
                y += (double)w[k] * x, size += fabs((double)w[k] * x);
            }
            double error = fabs(y - (double)got[t * job->y_stride + i]);
            if (!(error <= 1e-6 * size)) fail("not the product in double", HTH_CPU_GENERIC, t * job->y_stride + i);
        }
    }
}

TEST(quantised_rows_are_the_product_in_double)
{
    test_random r = proof_random();
    rows_case_open(&the_case, MAX_WEIGHT, MAX_INPUT_SIZE);
    for (int t = 0; t < ROWS_N_TYPE; t++)
        if (rows_quantised(rows_types[t])) check_against_double(&r, rows_types[t]);
    rows_case_close(&the_case);
}

static void full_list(hth_cpu level, hth_type type, test_random *r)
{
    for (int i = 0; i < 20; i++) {
        rows_shape s = random_shape(r, type);
        s.list = 2;
        rows_case_make(&the_case, r, &s);
        if (!compute(level, 0, s.n_row, expected)) return;
        the_case.job.list = NULL;
        if (!compute(level, 0, s.n_row, got)) return;
        check_equal("the full list is not the dense product", level);
    }
}

TEST(full_list_equals_dense) { for_each_level(full_list); }

static void empty_list(hth_cpu level, hth_type type, test_random *r)
{
    rows_shape s = {.type = type, .n_row = 9, .n_col = rows_block(type) == 256 ? 512 : 320, .n_tok = 5, .y_gap = 11,
                    .list = 1};
    rows_case_make(&the_case, r, &s);
    if (!compute(level, 0, 0, got)) return;
    size_t n = rows_case_n_y(&the_case);
    memset(expected, 0xa5, n * sizeof *expected);
    check_equal("the empty list wrote an output", level);
}

TEST(empty_list_writes_nothing) { for_each_level(empty_list); }

static void protect_even_rows(bool readable)
{
    size_t page = guard_page_size(), stride = the_case.job.row_size;
    size_t size = rows_bytes(the_case.shape.type, the_case.shape.n_col);
    for (size_t i = 0; i < the_case.shape.n_row; i += 2)
        guard_protect(the_case.w.p + i * stride, (size + page - 1) / page * page, readable);
}

/* Rows that begin at a page; the even ones, which are not in the list, cannot be read. */
static void check_odd_rows(hth_cpu level, test_random *r, const rows_shape *s)
{
    int32_t odd[20];
    rows_case_make(&the_case, r, s);
    the_case.job.list = odd;
    the_case.job.end = s->n_row / 2;
    for (size_t i = 0; i < the_case.job.end; i++) odd[i] = (int32_t)(2 * i + 1);
    if (!compute(HTH_CPU_GENERIC, 0, the_case.job.end, expected)) return;
    protect_even_rows(false);
    if (compute(level, 0, the_case.job.end, got)) check_equal("the list gives other bits", level);
    protect_even_rows(true);
}

/* Once with rows that fill their pages to the last byte, and once with enough rows and tokens for tiles of both. */
static void unreadable_rows(hth_cpu level, hth_type type, test_random *r)
{
    size_t page = guard_page_size();
    rows_shape s = {.type = type, .n_row = 5, .n_tok = 1};
    s.n_col = type == HTH_TYPE_F32 ? 1024 : rows_quantised(type) ? 65536 : 2048;
    if (rows_bytes(type, s.n_col) % page == 0) check_odd_rows(level, r, &s);
    s = (rows_shape){.type = type, .n_row = 40, .n_col = rows_block(type) == 256 ? 768 : 704, .n_tok = 13};
    s.row_gap = page - rows_bytes(type, s.n_col);
    if (s.n_row * page <= MAX_WEIGHT) check_odd_rows(level, r, &s);
}

TEST(rows_outside_the_list_are_not_read) { for_each_level(unreadable_rows); }

/* Rows longer than any block of work that a level cuts. */
TEST(very_long_rows_equal_the_reference)
{
    hth_cpu levels[PROOF_MAX_LEVEL];
    int n_level = proof_levels(levels);
    test_random r = proof_random();
    rows_case_open(&the_case, 1 << 20, 1 << 19);
    for (int l = 0; l < n_level; l++)
        for (int t = 0; t < ROWS_N_TYPE; t++)
            for (int past = -1; past <= 1; past++) {
                rows_shape s = {.type = rows_types[t], .n_row = rows_quantised(rows_types[t]) ? 17 : 3};
                int step = rows_block(s.type) < 32 ? 32 : (int)rows_block(s.type);
                s.n_col = (size_t)(32768 + past * step), s.n_tok = 13;
                rows_case_make(&the_case, &r, &s);
                if (!compare_with_reference(levels[l])) break;
            }
    rows_case_close(&the_case);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--bench") == 0) return rows_bench(argc > 2 ? argv[2] : "");
    return test_run_all(argc, argv);
}
