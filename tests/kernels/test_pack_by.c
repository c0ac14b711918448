/* Rounding by importance: the weighted error is no larger than without importance, and level with what llama.cpp's
 * quantize_* reach on the same rows; extremes give finite weights; nothing is written beside the row. */
#include "base/bits.h"
#include "support/guard.h"
#include "support/kernels/proof.h"
#include "support/kernels/weighted_rows.h"

static hth_kernels table(void) { return proof_kernels(hth_cpu_detect()); }

/* Weighted squared errors of llama.cpp v0.5.0 (ggml_quantize_chunk with an importance matrix) on the rows of
 * weighted_rows.h, divided by the weighted squares of the weights. */
static const struct {
    hth_type type;
    double theirs[WEIGHTED_KINDS];
} types[] = {
    {HTH_TYPE_Q4_0, {6.0399e-03, 1.3183e-02, 1.5201e-02}},   {HTH_TYPE_Q4_1, {4.3949e-03, 5.3917e-03, 4.4840e-03}},
    {HTH_TYPE_Q5_0, {1.4631e-03, 3.2515e-03, 3.8975e-03}},   {HTH_TYPE_Q5_1, {1.0406e-03, 1.2813e-03, 1.0495e-03}},
    {HTH_TYPE_Q2_K, {6.4550e-02, 5.2538e-02, 7.0692e-02}},   {HTH_TYPE_Q3_K, {1.8998e-02, 2.6528e-02, 4.3964e-02}},
    {HTH_TYPE_Q4_K, {4.5080e-03, 5.8644e-03, 4.9369e-03}},   {HTH_TYPE_Q5_K, {1.1490e-03, 1.6700e-03, 1.5466e-03}},
    {HTH_TYPE_Q6_K, {2.7100e-04, 4.9509e-04, 6.6972e-04}},   {HTH_TYPE_IQ4_NL, {5.2436e-03, 7.5636e-03, 7.9563e-03}},
    {HTH_TYPE_IQ4_XS, {5.3290e-03, 7.9090e-03, 8.0377e-03}}, {HTH_TYPE_IQ3_S, {1.6296e-02, 1.8762e-02, 2.6885e-02}},
    {HTH_TYPE_IQ3_XXS, {2.8128e-02, 2.1820e-02, 3.9195e-02}}, {HTH_TYPE_IQ2_S, {5.5731e-02, 7.0646e-02, 9.1642e-02}},
    {HTH_TYPE_IQ2_XS, {7.9826e-02, 7.6595e-02, 1.1671e-01}}, {HTH_TYPE_IQ2_XXS, {1.0464e-01, 1.2698e-01, 1.5498e-01}},
    {HTH_TYPE_IQ1_M, {1.7947e-01, 1.3554e-01, 1.9296e-01}}, {HTH_TYPE_IQ1_S, {2.1462e-01, 2.2065e-01, 2.3419e-01}},
};
enum { N_TYPE = sizeof types / sizeof *types, N_GRID = 7, N_FULL = N_TYPE - N_GRID };

enum { N = WEIGHTED_ROWS * WEIGHTED_COLS };
static float x[N], importance[WEIGHTED_COLS], back[WEIGHTED_COLS];
static uint8_t row[4 * WEIGHTED_COLS];

/* By importance, or all alike. */
static double weighted_error(const hth_kernels *k, hth_type type, bool by_importance)
{
    double error = 0.0, size = 0.0;
    for (int r = 0; r < WEIGHTED_ROWS; r++) {
        const float *from = x + r * WEIGHTED_COLS;
        if (by_importance) k->pack_by[type](from, importance, WEIGHTED_COLS, row);
        else k->pack[type](from, WEIGHTED_COLS, row);
        k->unpack[type](row, WEIGHTED_COLS, back);
        for (int c = 0; c < WEIGHTED_COLS; c++) {
            double e = (double)back[c] - (double)from[c];
            error += (double)importance[c] * e * e;
            size += (double)importance[c] * (double)from[c] * (double)from[c];
        }
    }
    return error / size;
}

TEST(rounding_by_importance_errs_no_more_than_llama_cpp_and_than_without)
{
    hth_kernels k = table();
    for (int i = 0; i < N_TYPE; i++) {
        hth_type type = types[i].type;
        printf("     %s:", hth_type_find(type)->name);
        for (int kind = 0; kind < WEIGHTED_KINDS; kind++) {
            weighted_fill(kind, x, importance);
            double by = weighted_error(&k, type, true), without = k.pack[type] ? weighted_error(&k, type, false) : by;
            printf(" %.3f of theirs, %.3f of without;", by / types[i].theirs[kind], by / without);
            CHECK(by <= without && by <= (type == HTH_TYPE_IQ1_S ? 1.15 : 1.05) * types[i].theirs[kind]);
        }
        printf("\n");
    }
}

/* IQ1, IQ2 and IQ3 keep the size of a row, which costs some error (pack_grid_ref.c): so the bound of IQ1_S. */
TEST(weights_of_grids_keep_their_size)
{
    hth_kernels k = table();
    for (int i = N_FULL; i < N_TYPE; i++)
        for (int kind = 0; kind < WEIGHTED_KINDS; kind++) {
            double xx = 0.0, xy = 0.0;
            weighted_fill(kind, x, importance);
            for (int r = 0; r < WEIGHTED_ROWS; r++) {
                const float *from = x + r * WEIGHTED_COLS;
                k.pack_by[types[i].type](from, importance, WEIGHTED_COLS, row);
                k.unpack[types[i].type](row, WEIGHTED_COLS, back);
                for (int c = 0; c < WEIGHTED_COLS; c++) {
                    double wx = (double)importance[c] * (double)from[c];
                    xx += wx * (double)from[c], xy += wx * (double)back[c];
                }
            }
            if (!CHECK(fabs(xy / xx - 1.0) < 1e-3)) printf("     %s: %.5f\n", hth_type_find(types[i].type)->name, xy / xx);
        }
}

/* A block of random bytes with a normal scale, and its first sub-block with the largest scale, which sets d. */
static void random_block(test_random *r, hth_type type, uint8_t *p)
{
    uint16_t d = hth_f32_to_f16(0.001f + 0.0001f * (float)test_random_below(r, 100));
    for (size_t i = 0; i < hth_type_row_size(type, 256); i++) p[i] = (uint8_t)test_random_below(r, 256);
    if (type == HTH_TYPE_IQ1_M) {
        for (int i = 0; i < 4; i++) p[49 + 2 * i] = (uint8_t)((p[49 + 2 * i] & 15) | (d >> 4 * i & 15) << 4);
        p[48] |= 7;
        return;
    }
    hth_store_u16(p, d);
    switch (type) {
    case HTH_TYPE_IQ2_XXS: p[9] |= 0xf0; break;
    case HTH_TYPE_IQ2_XS: p[66] |= 15; break;
    case HTH_TYPE_IQ2_S: p[74] |= 15; break;
    case HTH_TYPE_IQ3_XXS: p[69] |= 0xf0; break;
    case HTH_TYPE_IQ3_S: p[106] |= 15; break;
    default: p[35] |= 0x70; break; /* IQ1_S */
    }
}

/* Of rows whose sub-blocks have no large value some are packed to others that are near. */
TEST(rows_that_a_grid_holds_become_their_own_bytes)
{
    enum { N_BLOCK = 200 };
    hth_kernels k = table();
    test_random r = proof_random();
    for (int i = N_FULL; i < N_TYPE; i++) {
        hth_type type = types[i].type;
        int n_same = 0;
        for (int b = 0; b < N_BLOCK; b++) {
            uint8_t block[128], packed[128];
            double error = 0.0, size = 0.0;
            random_block(&r, type, block);
            for (int c = 0; c < 256; c++) importance[c] = 1.0f + 0.1f * (float)test_random_below(&r, 100);
            k.unpack[type](block, 256, x);
            k.pack_by[type](x, importance, 256, packed);
            k.unpack[type](packed, 256, back);
            n_same += memcmp(block, packed, hth_type_row_size(type, 256)) == 0;
            for (int c = 0; c < 256; c++) {
                double e = (double)back[c] - (double)x[c];
                error += (double)importance[c] * e * e, size += (double)importance[c] * (double)x[c] * (double)x[c];
            }
            CHECK(error < 0.01 * size);
        }
        if (!CHECK(n_same > N_BLOCK * 19 / 20)) printf("     %s: %d of %d\n", hth_type_find(type)->name, n_same, N_BLOCK);
    }
}

TEST(blocks_of_zeros_become_zeros)
{
    hth_kernels k = table();
    weighted_fill(1, x, importance);
    memset(x, 0, 512 * sizeof *x);
    for (int i = 0; i < N_TYPE; i++) {
        k.pack_by[types[i].type](x, importance, 512, row);
        k.unpack[types[i].type](row, 512, back);
        for (int c = 0; c < 512; c++)
            if (!CHECK(back[c] == 0.0f)) return;
    }
}

/* Columns without importance cost nothing; a row of them alone is still a finite one. */
TEST(columns_without_importance_count_for_nothing)
{
    hth_kernels k = table();
    for (int i = N_FULL; i < N_TYPE; i++) {
        double e[2], finite = 0.0;
        for (int without = 0; without < 2; without++) {
            weighted_fill(0, x, importance);
            for (int c = 0; c < WEIGHTED_COLS; c += 2) importance[c] = without ? 0.0f : importance[c];
            e[without] = weighted_error(&k, types[i].type, true);
        }
        CHECK(e[1] < e[0]);
        memset(importance, 0, sizeof importance);
        k.pack_by[types[i].type](x, importance, WEIGHTED_COLS, row);
        k.unpack[types[i].type](row, WEIGHTED_COLS, back);
        for (int c = 0; c < WEIGHTED_COLS; c++) finite += (double)back[c];
        CHECK(isfinite(finite));
    }
}

/* Such rows are refused before they are packed (quantize.c); whatever becomes of them, their neighbours are unharmed. */
TEST(a_block_that_is_not_finite_leaves_the_next_one_alone)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY, 3e38f};
    hth_kernels k = table();
    uint8_t other[sizeof row];
    for (int i = N_FULL; i < N_TYPE; i++) {
        size_t size = hth_type_row_size(types[i].type, 256);
        weighted_fill(1, x, importance);
        k.pack_by[types[i].type](x, importance, 512, row);
        for (int b = 0; b < 4; b++) {
            x[100] = bad[b];
            k.pack_by[types[i].type](x, importance, 512, other);
            CHECK_BYTES(other + size, row + size, size);
        }
    }
}

/* The types have the same values; the scales of IQ4_XS are rounded once more. */
TEST(iq4_xs_errs_little_more_than_iq4_nl)
{
    hth_kernels k = table();
    for (int kind = 0; kind < WEIGHTED_KINDS; kind++) {
        weighted_fill(kind, x, importance);
        for (int c = 0; c < WEIGHTED_COLS; c++) importance[c] = 1.0f;
        double nl = weighted_error(&k, HTH_TYPE_IQ4_NL, false), xs = weighted_error(&k, HTH_TYPE_IQ4_XS, false);
        printf("     IQ4_NL %.3e, IQ4_XS %.3e\n", nl, xs);
        CHECK(xs < 1.03 * nl);
    }
}

/* Where all columns count alike there is nothing to gain, and little to lose. */
TEST(equal_importance_errs_as_none)
{
    hth_kernels k = table();
    weighted_fill(0, x, importance);
    for (int c = 0; c < WEIGHTED_COLS; c++) importance[c] = 1.0f;
    for (int i = 0; i < N_TYPE; i++) {
        if (!k.pack[types[i].type]) continue;
        double ratio = weighted_error(&k, types[i].type, true) / weighted_error(&k, types[i].type, false);
        if (!CHECK(ratio < 1.03)) printf("     %s: %.4f\n", hth_type_find(types[i].type)->name, ratio);
    }
}

/* Only ratios of importance count. */
TEST(importance_has_no_unit)
{
    hth_kernels k = table();
    uint8_t other[sizeof row];
    weighted_fill(1, x, importance);
    for (int i = 0; i < N_TYPE; i++) {
        hth_type type = types[i].type;
        memset(row, 0, sizeof row), memset(other, 0, sizeof other);
        k.pack_by[type](x, importance, WEIGHTED_COLS, row);
        for (int c = 0; c < WEIGHTED_COLS; c++) importance[c] *= 1024.0f;
        k.pack_by[type](x, importance, WEIGHTED_COLS, other);
        for (int c = 0; c < WEIGHTED_COLS; c++) importance[c] /= 1024.0f;
        CHECK_BYTES(row, other, sizeof row);
    }
}

TEST(extremes_of_weights_and_importance_stay_finite)
{
    enum { COLS = 512 };
    static const float weights[] = {0.0f, -0.0f, 1e-45f, -1e-38f, 1e-8f, 1.0f, -65504.0f, 65504.0f};
    static const float importances[] = {0x1p-20f, 1.0f, 1000.0f, (float)COLS};
    hth_kernels k = table();
    test_random r = proof_random();
    for (int i = 0; i < N_TYPE; i++)
        for (int run = 0; run < 60; run++) {
            hth_type type = types[i].type;
            float largest = 0.0f;
            uint32_t same = run < 8 ? (uint32_t)run : UINT32_MAX; /* all weights are one value */
            for (int c = 0; c < COLS; c++) {
                x[c] = same < 8 ? weights[same] : weights[test_random_below(&r, 8)];
                if (run >= 30 && c >= COLS / 2) x[c] = 0.01f * test_random_float(&r);
                importance[c] = importances[test_random_below(&r, 4)];
                largest = fabsf(x[c]) > largest ? fabsf(x[c]) : largest;
            }
            k.pack_by[type](x, importance, COLS, row);
            k.unpack[type](row, COLS, back);
            bool finite = true;
            for (int c = 0; c < COLS; c++) finite &= back[c] >= -2.5f * largest && back[c] <= 2.5f * largest;
            if (!CHECK(finite)) printf("     %s, run %d\n", hth_type_find(type)->name, run);
        }
}

TEST(rows_that_are_rounded_by_importance_write_their_bytes_alone)
{
    enum { COLS = 512 };
    hth_kernels k = table();
    guard g, gx, gw;
    guard_open(&g, 4 * COLS), guard_open(&gx, 4 * COLS), guard_open(&gw, 4 * COLS);
    weighted_fill(1, x, importance);
    for (int i = 0; i < N_TYPE; i++)
        for (int side = 0; side < 2; side++) {
            size_t size = hth_type_row_size(types[i].type, COLS);
            float *from = guard_place(&gx, COLS * sizeof *from, (guard_side)side, 0),
                  *weight = guard_place(&gw, COLS * sizeof *weight, (guard_side)side, 0);
            uint8_t *to = guard_place(&g, size, (guard_side)side, 0), again[4 * COLS];
            memcpy(from, x, COLS * sizeof *from), memcpy(weight, importance, COLS * sizeof *weight);
            k.pack_by[types[i].type](from, weight, COLS, to);
            memset(again, 0xff, sizeof again);
            k.pack_by[types[i].type](from, weight, COLS, again);
            CHECK_BYTES(to, again, size); /* every byte is written, whatever was there */
            CHECK(guard_is_whole(&g) && guard_is_whole(&gx) && guard_is_whole(&gw));
        }
    guard_close(&g), guard_close(&gx), guard_close(&gw);
}
