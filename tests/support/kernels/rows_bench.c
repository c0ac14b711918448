/* One gibibyte of weights (more than the caches of any machine known), read once by each kernel and by a plain
 * loop, in turn; then tiles of tokens over a part that stays in cache. Figures of one run can be compared with each
 * other, not with those of another hour. */
#include "support/kernels/bench.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "kernels/kernels.h"
#include "support/kernels/proof.h"
#include "support/kernels/rows_case.h"

enum { N_ROUND = 5, N_COL = 4096, N_TOK = 64 };
static const size_t weight_size = (size_t)1 << 30, cached_size = (size_t)1 << 20;

typedef struct {
    char name[48];
    hth_rows_fn *f; /* NULL: only load */
    hth_rows job;
    double bytes, seconds[N_ROUND];
} entry;

static uint64_t sink;

/* One value of every cache line, with the prefetch that the kernels have too: what
 * memory gives when nothing is computed. */
static void load_only(const uint8_t *p, size_t n)
{
    uint64_t any[4] = {0};
    for (size_t i = 0; i + 256 <= n; i += 256) {
        for (size_t line = 0; line < 4; line++) {
            uint64_t v;
            __builtin_prefetch(p + i + 64 * line + 4096, 0, 3);
            memcpy(&v, p + i + 64 * line, sizeof v);
            any[line] |= v;
        }
    }
    sink += any[0] + any[1] + any[2] + any[3];
}

static void measure(entry *e, int round)
{
    uint64_t start = hth_clock_ns();
    if (e->f) e->f(&e->job);
    else load_only(e->job.w, (size_t)e->bytes);
    e->seconds[round] = (double)(hth_clock_ns() - start) * 1e-9;
}

static double print(entry *e, double limit)
{
    qsort(e->seconds, N_ROUND, sizeof *e->seconds, bench_by_size);
    double scale = e->bytes * 1e-9, median = scale / e->seconds[N_ROUND / 2];
    printf("%-28s %7.2f (%.2f-%.2f) GB/s", e->name, median, scale / e->seconds[N_ROUND - 1], scale / e->seconds[0]);
    if (limit > 0) printf("  %5.1f %% of load only", 100.0 * median / limit);
    printf("\n");
    return median;
}

typedef struct bench {
    hth_tiles tiles, tiles_256;
    uint8_t *w;
    float *x, *d, *y;
    int8_t *q;
    int32_t *sum;
    int8_t *q_256;
    float *d_256;
    int16_t *sum_16;
} bench;

_Alignas(64) static uint8_t work[HTH_PANEL_WORK];

/* The bytes are random: they are rows as well as panels. */
static void add_entry(entry *e, const bench *b, const hth_kernels *table, hth_type type, size_t size,
                      size_t n_tok, hth_layout layout)
{
    size_t row_size = rows_bytes(type, N_COL), n_row = size / row_size;
    snprintf(e->name, sizeof e->name, "%s %s %s %zu tok.%s", rows_type_name(type), hth_cpu_name(table->level),
             layout == HTH_LAYOUT_PANELS ? "panels" : "rows", n_tok, size == cached_size ? " (cache)" : "");
    e->f = layout == HTH_LAYOUT_PANELS ? table->panels[type] : table->rows[type];
    if (!hth_panel_supported(type)) layout = HTH_LAYOUT_ROWS; /* panels are made of rows on the way */
    n_row = n_row / HTH_PANEL_ROW * HTH_PANEL_ROW;
    e->bytes = (double)(n_row * row_size);
    e->job = (hth_rows){.w = b->w, .row_size = row_size, .n_col = N_COL, .end = n_row, .n_tok = n_tok, .y = b->y,
                        .y_stride = n_row, .layout = layout, .prefetch = table->prefetch, .work = work,
                        .act = {.x = b->x, .q = b->q, .d = b->d, .sum = b->sum, .tiles = b->tiles}};
    if (rows_block(type) == 256)
        e->job.act = (hth_act){.q = b->q_256, .d = b->d_256, .sum_16 = b->sum_16, .tiles = b->tiles_256};
}

/* Part of the name, or one of several names with commas between. */
static bool is_wanted(const char *name, const char *filter)
{
    size_t n = strlen(name);
    if (!strchr(filter, ',')) return strstr(name, filter) != NULL;
    for (const char *p = filter; p; p = strchr(p, ',')) {
        if (*p == ',') p++;
        if (strncmp(p, name, n) == 0 && (p[n] == ',' || p[n] == '\0')) return true;
    }
    return false;
}

static void run_table(const bench *b, const char *filter, size_t size, size_t n_tok)
{
    hth_cpu levels[PROOF_MAX_LEVEL];
    int n_level = proof_levels(levels), n = 1;
    static entry entries[1 + 2 * ROWS_N_TYPE * PROOF_MAX_LEVEL];
    entries[0] = (entry){.name = "load only", .bytes = (double)size, .job = {.w = b->w}};
    for (int t = 0; t < ROWS_N_TYPE; t++)
        for (int l = 0; l < n_level; l++) {
            hth_kernels table = proof_kernels(levels[l]);
            if (!is_wanted(rows_type_name(rows_types[t]), filter)) continue;
            add_entry(&entries[n++], b, &table, rows_types[t], size, n_tok, HTH_LAYOUT_ROWS);
            if (table.panels[rows_types[t]] && (n_tok > 1 || hth_panel_supported(rows_types[t])))
                add_entry(&entries[n++], b, &table, rows_types[t], size, n_tok, HTH_LAYOUT_PANELS);
        }
    for (int round = 0; round < N_ROUND; round++)
        for (int i = 0; i < n; i++) measure(&entries[i], round);
    double limit = print(&entries[0], 0.0);
    for (int i = 1; i < n; i++) print(&entries[i], n_tok == 1 ? limit : 0.0);
}

static void put_tiles(const bench *b, size_t n_tok)
{
    for (size_t t = 0; t < n_tok; t++) {
        size_t at = t * N_COL;
        hth_tiles_put(&b->tiles, t, N_COL, b->q + at, b->d + at / 32, b->sum + at / 32);
        hth_tiles_put_256(&b->tiles_256, t, N_COL, b->q_256 + at, b->d_256 + at / 256, b->sum_16 + at / 16);
        hth_tiles_put_floats(&b->tiles, t, n_tok, N_COL, b->x + at);
    }
}

int rows_bench(const char *filter)
{
    test_random r = proof_random();
    bench b = {.w = hth_pages_alloc(weight_size), .x = hth_alloc(N_COL * N_TOK, 4),
               .q = hth_alloc(N_COL * N_TOK, 1), .d = hth_alloc(N_COL * N_TOK / 32, 4),
               .sum = hth_alloc(N_COL * N_TOK / 32, 4), .y = hth_alloc(weight_size / 512, 4),
               .q_256 = hth_alloc(N_COL * N_TOK, 1), .d_256 = hth_alloc(N_COL * N_TOK / 256, 4),
               .sum_16 = hth_alloc(N_COL * N_TOK / 16, 2)};
    size_t n_tiled = hth_n_tiled(N_TOK) * N_COL;
    b.tiles = (hth_tiles){.q = hth_alloc(n_tiled, 1), .d = hth_alloc(n_tiled / 32, 4),
                          .offset = hth_alloc(n_tiled / 32, 4), .x = hth_alloc(n_tiled, 4)};
    b.tiles_256 = (hth_tiles){
        .q = hth_alloc(n_tiled, 1), .d = hth_alloc(n_tiled / 256, 4), .sum_16 = hth_alloc(n_tiled / 16, 2)};
    if (!b.tiles.q || !b.tiles.d || !b.tiles.offset || !b.tiles.x || !b.tiles_256.q || !b.tiles_256.d ||
        !b.tiles_256.sum_16)
        return 1;
    if (!b.w || !b.x || !b.q || !b.d || !b.sum || !b.y || !b.q_256 || !b.d_256 || !b.sum_16) return 1;
    /* Odd bytes of 0x38..0x3f make ordinary floats of every type, even bytes of 0x40..0xbf
     * ordinary exponents (MXFP4): subnormal ones would cost time of their own. */
    for (size_t i = 0; i < weight_size; i += 8) {
        uint64_t bits = (test_random_next(&r) & 0x077f077f077f077fu) + 0x3840384038403840u;
        memcpy(b.w + i, &bits, 8);
    }
    proof_fill_f32(&r, PROOF_PLAIN, b.x, N_COL * N_TOK);
    hth_kernels table = proof_kernels(HTH_CPU_GENERIC);
    table.quant_act(b.x, N_COL * N_TOK, b.q, b.d, b.sum);
    table.quant_act_256(b.x, N_COL * N_TOK, b.q_256, b.d_256, b.sum_16);
    put_tiles(&b, 1);
    run_table(&b, filter, weight_size, 1);
    run_table(&b, filter, cached_size, 1);
    put_tiles(&b, N_TOK);
    run_table(&b, filter, weight_size, 2);
    run_table(&b, filter, cached_size, N_TOK);
    hth_pages_free(b.w, weight_size);
    return 0;
}
