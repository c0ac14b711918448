/* Panels: putting rows into them loses nothing, and the kernels that take them give the bits of
 * the reference's rows, for every type and level that has such kernels. */
#include "support/kernels/rows_case.h"

enum { MAX_WEIGHT = 1 << 20, MAX_INPUT_SIZE = 1 << 19, MAX_Y = 1 << 15 };

static rows_case the_case;
static guard panel_memory, mul_mat_q, tile_d, tile_sums;
static float expected[MAX_Y], got[MAX_Y];

static void open_all(void)
{
    rows_case_open(&the_case, MAX_WEIGHT, MAX_INPUT_SIZE);
    guard_open(&panel_memory, MAX_WEIGHT + 64);
    guard_open(&mul_mat_q, 4 * MAX_INPUT_SIZE);
    guard_open(&tile_d, MAX_INPUT_SIZE / 2);
    guard_open(&tile_sums, MAX_INPUT_SIZE / 2);
}

static void close_all(void)
{
    guard *all[] = {&panel_memory, &mul_mat_q, &tile_d, &tile_sums};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) guard_close(all[i]);
    rows_case_close(&the_case);
}

/* ---- the layout -------------------------------------------------------------------------- */

TEST(a_row_comes_out_of_a_panel_as_it_went_in)
{
    static uint8_t rows[16 * 8192], panel[16 * 8192], row[8192];
    test_random r = proof_random();
    for (int t = 0; t < ROWS_N_FULL; t++) {
        hth_type type = rows_types[t];
        CHECK(hth_panel_supported(type));
        for (size_t n_block = 1; n_block <= 35; n_block++) {
            size_t size = rows_bytes(type, n_block * rows_block(type)), stride = size + n_block % 3;
            proof_fill_bytes(&r, rows, 16 * stride);
            hth_panel_pack(type, n_block, rows, stride, panel);
            for (size_t i = 0; i < 16; i++) {
                memset(row, 0xa5, size);
                hth_panel_row(type, n_block, panel, i, row);
                if (memcmp(row, rows + i * stride, size) != 0)
                    test_fail(__FILE__, __LINE__, "%s: row %zu of %zu blocks differs", rows_type_name(type),
                              i, n_block);
            }
        }
    }
}

/* Byte `at` of a row's block begins at byte 16 * at of the panel's, blocks in the order of sums. */
TEST(a_panel_is_in_the_order_of_the_partial_sums)
{
    enum { N_BLOCK = 11, SIZE = 18 };
    static uint8_t rows[16 * N_BLOCK * SIZE], panel[sizeof rows];
    static const int order[N_BLOCK] = {0, 8, 1, 9, 2, 10, 3, 4, 5, 6, 7};
    for (int r = 0; r < 16; r++)
        for (int b = 0; b < N_BLOCK; b++) memset(rows + (r * N_BLOCK + b) * SIZE, r << 4 | b, SIZE);
    hth_panel_pack(HTH_TYPE_Q4_0, N_BLOCK, rows, N_BLOCK * SIZE, panel);
    for (int p = 0; p < N_BLOCK; p++)
        for (int r = 0; r < 16; r++) {
            CHECK_INT(panel[p * 16 * SIZE + 2 * r], r << 4 | order[p]);      /* scales */
            CHECK_INT(panel[p * 16 * SIZE + 32 + 4 * r], r << 4 | order[p]); /* the first four bytes */
            CHECK_INT(panel[p * 16 * SIZE + 32 + 3 * 64 + 4 * r], r << 4 | order[p]); /* the last */
        }
}

/* ---- the kernels --------------------------------------------------------------------------- */

typedef struct call {
    hth_rows_fn *f;
    hth_rows job;
} call;

static void do_call(void *p)
{
    call *c = p;
    c->f(&c->job);
}

static void fail(const char *what, hth_cpu level, const hth_rows *job, size_t i)
{
    const rows_shape *s = &the_case.shape;
    test_fail(__FILE__, __LINE__,
              "%s at %s: %s, output %zu (expected %a, got %a); %zu rows, %zu columns, %zu tokens, layout %d, "
              "shift %zu, side %d, %s, list %d, fetch %d",
              rows_type_name(s->type), hth_cpu_name(level), what, i, i < MAX_Y ? (double)expected[i] : 0.0,
              i < MAX_Y ? (double)got[i] : 0.0, s->n_row, s->n_col, s->n_tok, (int)job->layout, s->shift,
              (int)s->side, proof_kind_name(s->kind), s->list, (int)job->prefetch);
}

static bool compute(hth_rows_fn *f, hth_cpu level, const hth_rows *job, float *out)
{
    call c = {f, *job};
    size_t size = rows_case_n_y(&the_case) * sizeof(float);
    memset(job->y, 0xa5, size);
    bool ok = guard_call(do_call, &c);
    if (!ok) fail("memory fault", level, job, 0);
    if (ok && !guard_is_whole(&the_case.y)) fail("wrote outside y", level, job, 0);
    memcpy(out, job->y, size);
    return ok;
}

/* The inputs of the case in tiles that end (or begin) at a guard page. */
static hth_tiles make_tiles(void)
{
    const rows_shape *s = &the_case.shape;
    const hth_act *act = &the_case.job.act;
    size_t n = hth_n_tiled(s->n_tok) * s->n_col, block = rows_block(s->type);
    hth_tiles tiles = {0};
    if (!rows_quantised(s->type)) {
        tiles.x = guard_place(&mul_mat_q, (s->n_tok == 1 ? s->n_col : n) * sizeof(float), s->side, 0);
        for (size_t t = 0; t < s->n_tok; t++)
            hth_tiles_put_floats(&tiles, t, s->n_tok, s->n_col, act->x + t * s->n_col);
        return tiles;
    }
    tiles.q = guard_place(&mul_mat_q, n, s->side, 0);
    tiles.d = guard_place(&tile_d, n / block * sizeof(float), s->side, 0);
    if (block == 32) tiles.offset = guard_place(&tile_sums, n / 32 * sizeof(int32_t), s->side, 0);
    else tiles.sum_16 = guard_place(&tile_sums, n / 16 * sizeof(int16_t), s->side, 0);
    for (size_t t = 0; t < s->n_tok; t++) {
        const int8_t *q = act->q + t * s->n_col;
        const float *d = act->d + t * (s->n_col / block);
        if (block == 32) hth_tiles_put(&tiles, t, s->n_col, q, d, act->sum + t * (s->n_col / 32));
        else hth_tiles_put_256(&tiles, t, s->n_col, q, d, act->sum_16 + t * (s->n_col / 16));
    }
    return tiles;
}

static void check_equal(hth_cpu level, const hth_rows *job, const char *what)
{
    size_t n = rows_case_n_y(&the_case), i = proof_differ_f32(expected, got, n);
    if (i < n) fail(what, level, job, i);
}

/* The rows of the case as panels, behind one another at a guard page. */
static const uint8_t *make_panels(void)
{
    const rows_shape *s = &the_case.shape;
    size_t size = rows_bytes(s->type, s->n_col);
    uint8_t *w = guard_place(&panel_memory, s->n_row * size, s->side, s->shift);
    for (size_t i = 0; i < s->n_row; i += HTH_PANEL_ROW)
        hth_panel_pack(s->type, s->n_col / rows_block(s->type), the_case.job.w + i * the_case.job.row_size,
                       the_case.job.row_size, w + i * size);
    return w;
}

/* The reference's rows against the level's panels, in both layouts, fetched in every way, whole and cut. */
static bool check_case(hth_cpu level)
{
    hth_kernels reference = proof_kernels(HTH_CPU_GENERIC);
    hth_kernels table = proof_kernels(level);
    const rows_shape *s = &the_case.shape;
    hth_rows job = the_case.job;
    if (!compute(reference.rows[s->type], HTH_CPU_GENERIC, &job, expected)) return false;
    job.act.tiles = make_tiles();
    if (s->n_tok > 1) {
        if (!compute(table.panels[s->type], level, &job, got)) return false;
        check_equal(level, &job, "rows in file order give other bits");
    }
    if (job.list || !hth_panel_supported(s->type)) return true;
    job.w = make_panels(), job.row_size = rows_bytes(s->type, s->n_col), job.layout = HTH_LAYOUT_PANELS;
    for (job.prefetch = HTH_PREFETCH_L2_L1; job.prefetch <= HTH_PREFETCH_SPARSE; job.prefetch++) {
        if (!compute(table.panels[s->type], level, &job, got)) return false;
        check_equal(level, &job, "panels give other bits");
    }
    job.prefetch = table.prefetch;
    if (s->n_row <= HTH_PANEL_ROW) return true;
    hth_rows last = job;
    last.first = s->n_row - HTH_PANEL_ROW;
    memcpy(got, expected, sizeof got);
    if (!compute(table.panels[s->type], level, &last, got)) return false;
    for (size_t t = 0; t < s->n_tok; t++) /* what the call must not have touched is poison in got */
        memcpy(got + t * job.y_stride, expected + t * job.y_stride, last.first * sizeof *got);
    check_equal(level, &last, "the last panel alone gives other bits");
    return true;
}

static rows_shape random_shape(test_random *r, hth_type type)
{
    static const size_t gaps[] = {0, 0, 1, 2, 7, 64};
    uint32_t n = test_random_below(r, 14);
    if (!rows_quantised(type)) n = test_random_below(r, 90);
    if (test_random_below(r, 6) == 0) n = (rows_block(type) == 256 ? 30 : 180) + test_random_below(r, 40);
    if (!rows_quantised(type) && test_random_below(r, 16) == 0) n = 4090 + test_random_below(r, 40);
    rows_shape s = {.type = type, .n_col = rows_block(type) * (size_t)(n + 1)};
    s.n_row = HTH_PANEL_ROW * (size_t)(1 + test_random_below(r, n < 14 ? 4 : 2));
    s.n_tok = test_random_below(r, 3) ? 1 + test_random_below(r, 14) : 1;
    if (n < 8 && test_random_below(r, 8) == 0) s.n_tok = 120 + test_random_below(r, 20);
    s.row_gap = gaps[test_random_below(r, 6)];
    s.y_gap = gaps[test_random_below(r, 6)];
    if (test_random_below(r, 3)) s.shift = test_random_below(r, 64);
    s.side = test_random_below(r, 2) ? GUARD_BEHIND : GUARD_BEFORE;
    s.kind = (proof_kind)test_random_below(r, PROOF_N_KIND);
    if (test_random_below(r, 4) == 0) s.list = 2;
    return s;
}

static void for_each_level(void (*check)(hth_cpu level, hth_type type, test_random *r))
{
    hth_cpu levels[PROOF_MAX_LEVEL];
    int n_level = proof_levels(levels), n_checked = 0;
    open_all();
    for (int l = 0; l < n_level; l++) {
        test_random r = proof_random();
        hth_kernels table = proof_kernels(levels[l]);
        for (int t = 0; t < ROWS_N_TYPE; t++)
            if (table.panels[rows_types[t]]) check(levels[l], rows_types[t], &r), n_checked++;
            else CHECK(table.layout[rows_types[t]] != HTH_LAYOUT_PANELS);
    }
    close_all();
    CHECK(n_checked > 0 || hth_cpu_detect() == HTH_CPU_GENERIC);
}

static void random_shapes(hth_cpu level, hth_type type, test_random *r)
{
    for (int i = 0; i < 120; i++) {
        rows_shape s = random_shape(r, type);
        rows_case_make(&the_case, r, &s);
        if (!check_case(level)) return;
    }
}

/* Their own, so that the loop above passes none over. */
TEST(levels_above_the_lowest_have_panels_of_every_quantised_type)
{
    static const hth_cpu with[] = {HTH_CPU_AVX2, HTH_CPU_AVX512, HTH_CPU_DOTPROD, HTH_CPU_I8MM};
    for (size_t l = 0; l < sizeof with / sizeof *with; l++) {
        if (!hth_cpu_has(hth_cpu_detect(), with[l])) continue;
        hth_kernels table = proof_kernels(with[l]);
        hth_kernels lower = proof_kernels((hth_cpu)(with[l] - 1));
        for (int t = 0; t < ROWS_N_FULL; t++) {
            hth_type type = rows_types[t];
            if (!rows_quantised(type)) continue;
            if (!table.panels[type] || table.panels[type] == lower.panels[type])
                test_fail(__FILE__, __LINE__, "%s has no panels of %s", hth_cpu_name(with[l]), rows_type_name(type));
        }
    }
}

/* What is asked for ahead changes no result, so only this would notice the wrong choice. The definition asks
 * for nothing. */
TEST(every_level_fetches_as_this_cpu_does_best)
{
    unsigned amd = hth_cpu_amd_family();
    hth_prefetch_mode best = amd == 0 ? HTH_PREFETCH_L2_L1 : amd < 26 ? HTH_PREFETCH_SPARSE : HTH_PREFETCH_L1;
    for (int level = HTH_CPU_GENERIC; level <= HTH_CPU_I8MM; level++) {
        if (!hth_cpu_has(hth_cpu_detect(), (hth_cpu)level)) continue;
        hth_kernels table = proof_kernels((hth_cpu)level);
        CHECK(table.prefetch == (level == HTH_CPU_GENERIC ? HTH_PREFETCH_L2_L1 : best));
    }
}

TEST(panels_equal_the_reference_between_guard_pages) { for_each_level(random_shapes); }

/* Every number of blocks up to past the chunk of a pass, every number of tokens of a tile, every kind of number. */
static void all_widths(hth_cpu level, hth_type type, test_random *r)
{
    for (size_t n = 1; n <= (rows_quantised(type) ? 27u : 49u); n++)
        for (int kind = 0; kind < PROOF_N_KIND; kind++) {
            rows_shape s = {.type = type, .n_row = 16, .n_col = n * rows_block(type)};
            s.n_tok = 1 + (n + (size_t)kind) % 7, s.kind = (proof_kind)kind;
            s.side = n % 2 ? GUARD_BEHIND : GUARD_BEFORE;
            rows_case_make(&the_case, r, &s);
            if (!check_case(level)) return;
        }
}

TEST(panels_equal_the_reference_at_every_width_and_kind_of_number) { for_each_level(all_widths); }
