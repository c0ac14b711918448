/* Rows: one token from memory and from the second cache, and tiles of 64 tokens. */
#include "arithmetic_price.h"

#include "base/alloc.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_COL = 4096, N_TOK = 64, N_TILED = N_TOK, MAX_ROW = 1 << 18 };
static const size_t memory_size = (size_t)1 << 29, cache_size = (size_t)1 << 19;
static const hth_type types[] = {HTH_TYPE_Q4_0, HTH_TYPE_Q8_0, HTH_TYPE_F16};
enum { N_TYPE = 3 };

/* One part of the memory is read per timing, the next one by the next variant. */
enum { N_PART = 4 };

typedef struct rows_run {
    hth_rows_fn *rows; /* NULL: only load */
    hth_rows job;
    size_t size;
    bool moves; /* through the parts */
} rows_run;

uint64_t price_sink;

void price_load_only(const uint8_t *p, size_t n)
{
    uint64_t a = 0, b = 0, c = 0, d = 0;
    for (size_t i = 0; i + 64 <= n; i += 64) {
        __builtin_prefetch(p + i + 4096, 0, 3);
        uint64_t v[8];
        memcpy(v, p + i, sizeof v);
        a |= v[0] | v[1], b |= v[2] | v[3], c |= v[4] | v[5], d |= v[6] | v[7];
    }
    price_sink += a + b + c + d;
}

static void run_rows(void *arg)
{
    static size_t part;
    rows_run *r = arg;
    const uint8_t *start = r->job.w;
    if (r->moves) r->job.w += part++ % N_PART * (memory_size / N_PART);
    if (r->rows) r->rows(&r->job);
    else price_load_only(r->job.w, r->size);
    r->job.w = start;
}

typedef struct inputs {
    uint8_t *w;
    float *x, *d, *y, *z;
    int8_t *q;
    int32_t *sum;
    hth_tiles tiles;
} inputs;

/* Random bytes are rows as well as panels. */
static rows_run make_run(const inputs *in, const hth_kernels *k, hth_rows_fn *f, hth_type type, size_t size,
                         size_t n_tok)
{
    _Alignas(64) static uint8_t work[HTH_PANEL_WORK];
    size_t row_size = hth_type_row_size(type, N_COL), n_row = size / row_size / 32 * 32;
    return (rows_run){f,
                      {.w = in->w,
                       .row_size = row_size,
                       .prefetch = k->prefetch,
                       .work = work,
                       .n_col = N_COL,
                       .end = n_row,
                       .n_tok = n_tok,
                       .y = in->y,
                       .y_stride = n_row,
                       .act = {.x = in->x, .q = in->q, .d = in->d, .sum = in->sum, .tiles = in->tiles},
                       .layout = n_tok > 1 ? HTH_LAYOUT_PANELS : HTH_LAYOUT_ROWS},
                      n_row * row_size,
                      size != cache_size};
}

/* The free forms must compute the same thing, but for rounding. */
static double distance(const inputs *in, const rows_run *a, const rows_run *b)
{
    rows_run one = *a, other = *b;
    size_t n = a->job.n_tok * a->job.end;
    double error = 0, size = 0;
    one.moves = other.moves = false;
    other.job.y = in->z;
    run_rows(&one), run_rows(&other);
    for (size_t i = 0; i < n; i++) {
        double e = (double)in->y[i] - (double)in->z[i];
        error += e * e, size += (double)in->y[i] * (double)in->y[i];
    }
    return sqrt(error / size);
}

static void compare(const inputs *in, const price_level *levels, hth_type type, size_t size, size_t n_tok,
                    size_t n_round)
{
    enum { PER = 1 + PRICE_MAX_FREE };
    price_variant v[1 + PRICE_N_LEVEL * PER];
    rows_run runs[1 + PRICE_N_LEVEL * PER];
    size_t n = 0, first[PRICE_N_LEVEL + 1];
    hth_kernels k;
    for (int l = 0; l < PRICE_N_LEVEL; l++) {
        price_table(l, &k);
        const price_free *free_forms = n_tok == 1 ? levels[l].decode[type] : levels[l].tile[type];
        first[l] = n;
        v[n] = (price_variant){.name = "settled"};
        runs[n++] =
            make_run(in, &k, n_tok > 1 && k.panels[type] ? k.panels[type] : k.rows[type], type, size, n_tok);
        for (size_t i = 0; i < PRICE_MAX_FREE && free_forms[i].rows; i++) {
            v[n] = (price_variant){.name = free_forms[i].name};
            runs[n++] = make_run(in, &k, free_forms[i].rows, type, size, n_tok);
            double d = distance(in, &runs[first[l]], &runs[n - 1]);
            if (strstr(free_forms[i].name, "settled") && d != 0)
                printf("WRONG: bits of %s differ\n", free_forms[i].name);
            if (!(d < 1e-4)) printf("WRONG: %s differs by %g\n", free_forms[i].name, d);
        }
    }
    first[PRICE_N_LEVEL] = n;
    v[n] = (price_variant){.name = "load only"};
    runs[n++] = make_run(in, &k, NULL, type, size, 1);
    for (size_t i = 0; i < n; i++) {
        v[i].run = run_rows, v[i].arg = &runs[i];
        double n_weight = (double)runs[i].job.end * N_COL;
        v[i].work = n_tok == 1 ? (double)runs[i].size * 1e-9 : n_weight * (double)n_tok * 1e-9;
    }
    if (n_tok > 1) n--;
    price_measure(v, n, n_round);
    for (int l = 0; l < PRICE_N_LEVEL; l++) {
        char what[96];
        snprintf(what, sizeof what, "%s, %s%s", hth_type_find(type)->name, price_level_name[l],
                 n_tok > 1            ? ""
                 : size == cache_size ? ", cached"
                                      : ", from memory");
        price_line(what, v + first[l], first[l + 1] - first[l], n_round);
        for (size_t i = first[l] + 1; i < first[l + 1] && n_tok > 1; i++)
            if (strchr(v[i].name, ','))
                printf("| … %s | %s | | | %+.0f %% |\n", v[i].name, price_text(&v[i], n_round),
                       100 * (price_ratio(&v[i],
                                          price_best(v + first[l] + 1, first[l + 1] - first[l] - 1, n_round),
                                          n_round) -
                              1));
    }
    if (n_tok == 1) printf("| load only | %s | | | |\n", price_text(&v[n - 1], n_round));
}

static uint64_t next_random(uint64_t *s)
{
    *s += 0x9E3779B97F4A7C15u;
    uint64_t z = (*s ^ (*s >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

void price_rows_tables(const price_level *levels, size_t n_round)
{
    uint64_t seed = 1;
    inputs in = {.w = hth_pages_alloc(memory_size + 8192),
                 .x = hth_alloc(N_COL * N_TOK, 4),
                 .d = hth_alloc(N_COL * N_TOK / 32, 4),
                 .y = hth_alloc(MAX_ROW, 4),
                 .z = hth_alloc(MAX_ROW, 4),
                 .q = hth_alloc(N_COL * N_TOK, 1),
                 .sum = hth_alloc(N_COL * N_TOK / 32, 4),
                 .tiles = {.q = hth_alloc(N_COL * N_TILED, 1),
                           .d = hth_alloc(N_COL * N_TILED / 32, 4),
                           .offset = hth_alloc(N_COL * N_TILED / 32, 4)}};
    if (!in.tiles.q || !in.tiles.d || !in.tiles.offset) return;
    if (!in.w || !in.x || !in.d || !in.y || !in.z || !in.q || !in.sum) return;
    /* Odd bytes of 0x38..0x3f make ordinary floats of every type. */
    for (size_t i = 0; i < memory_size; i += 8) {
        uint64_t bits = (next_random(&seed) & 0x07ff07ff07ff07ffu) | 0x3800380038003800u;
        memcpy(in.w + i, &bits, 8);
    }
    for (size_t i = 0; i < N_COL * N_TOK; i++) in.x[i] = (float)(int32_t)next_random(&seed) * 0x1p-31f;
    hth_kernels k;
    price_table(PRICE_AVX2, &k);
    k.quant_act(in.x, N_COL * N_TOK, in.q, in.d, in.sum);
    for (size_t t = 0; t < N_TOK; t++)
        hth_tiles_put(&in.tiles, t, N_COL, in.q + t * N_COL, in.d + t * N_COL / 32, in.sum + t * N_COL / 32);

    printf("\n### One token, rows of %d weights, GB/s\n\n| kernel | settled | best free | its form | price "
           "|\n|---|---|---|---|---|\n",
           N_COL);
    for (int t = 0; t < N_TYPE; t++) compare(&in, levels, types[t], memory_size / N_PART, 1, n_round);
    for (int t = 0; t < N_TYPE; t++) compare(&in, levels, types[t], cache_size, 1, n_round);
    printf("\n### %d tokens, rows in cache (512 KiB), G multiply-adds/s\n\n| kernel | settled | best free | "
           "its form | price |\n|---|---|---|---|---|\n",
           N_TOK);
    for (int t = 0; t < N_TYPE; t++) compare(&in, levels, types[t], cache_size, N_TOK, n_round);
    hth_pages_free(in.w, memory_size + 8192);
    hth_free(in.x), hth_free(in.d), hth_free(in.y), hth_free(in.z), hth_free(in.q), hth_free(in.sum);
    hth_free(in.tiles.q), hth_free(in.tiles.d), hth_free(in.tiles.offset);
}
