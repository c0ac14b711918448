/* What panels with AVX-512 share, whatever the blocks: sixteen rows in the lanes of a
 * register, the accumulators of an output, and the tree that grows from pass to pass. */
#ifndef HTH_KERNELS_PANEL_PARTS_AVX512_H
#define HTH_KERNELS_PANEL_PARTS_AVX512_H

#include "kernels/rows_walk.h"

enum {
    PANEL_ROW = 16,
    PANEL_TOK = 64,       /* tokens of a tile: their activations stay in the second cache */
    PANEL_LEAST_TOK = 12, /* with 8 a panel costs what it saves (Q8_0) or more (Q4_0) */
};

/* Halves of the tree that wait for their other half. */
typedef struct tree_sums {
    __m512 p[3][PANEL_TOK];
#if HAS_MINIMUM
    __m512 m[3][PANEL_TOK];
#endif
} tree_sums;

/* The accumulators of one output: its products and, where there are any, its minima. */
typedef struct output {
    __m512 p;
#if HAS_MINIMUM
    __m512 m;
#endif
} output;

HTH_INLINE output no_output(void)
{
#if HAS_MINIMUM
    return (output){_mm512_setzero_ps(), _mm512_setzero_ps()};
#else
    return (output){_mm512_setzero_ps()};
#endif
}

/* Sixteen rows of eight times four bytes to eight vectors of sixteen rows. */
HTH_INLINE void transpose(const __m512i z[8], __m512i w[8])
{
    __m512i mixed[2][4]; /* dwords i and i + 4 of rows 0 to 7, and of rows 8 to 15 */
    for (int h = 0; h < 2; h++) {
        __m512i a = _mm512_unpacklo_epi32(z[4 * h], z[4 * h + 1]);
        __m512i b = _mm512_unpackhi_epi32(z[4 * h], z[4 * h + 1]);
        __m512i c = _mm512_unpacklo_epi32(z[4 * h + 2], z[4 * h + 3]);
        __m512i d = _mm512_unpackhi_epi32(z[4 * h + 2], z[4 * h + 3]);
        mixed[h][0] = _mm512_unpacklo_epi64(a, c), mixed[h][1] = _mm512_unpackhi_epi64(a, c);
        mixed[h][2] = _mm512_unpacklo_epi64(b, d), mixed[h][3] = _mm512_unpackhi_epi64(b, d);
    }
    for (int i = 0; i < 4; i++) {
        w[i] = _mm512_shuffle_i32x4(mixed[0][i], mixed[1][i], 0x88);
        w[i + 4] = _mm512_shuffle_i32x4(mixed[0][i], mixed[1][i], 0xdd);
    }
}

/* Partial sum j meets those before it: two halves of every finished pair are added. Gives
 * the sum when j is the last. */
HTH_INLINE __m512 join(__m512 sums[3][PANEL_TOK], size_t j, size_t k, __m512 p)
{
    if (j & 1) p = _mm512_add_ps(sums[0][k], p);
    if ((j & 3) == 3) p = _mm512_add_ps(sums[1][k], p);
    if (j == 7) return _mm512_add_ps(sums[2][k], p);
    sums[j & 1 ? (j & 3) == 3 ? 2 : 1 : 0][k] = p;
    return p;
}

#endif
