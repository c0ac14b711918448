/* Neuron-major down for types in blocks of 32 with AVX2. The including file defines
 *   BLOCK_SIZE, HAS_MINIMUM
 *   block_scales(p)      the scales of eight blocks; block_minima(p) if there are minima
 *   two_rows(a, b, w)    a block of two rows as pairs: outputs 8i to 8i + 7 in w[i]
 *   PAIR_SHIFT           pairs are too large by 2^PAIR_SHIFT; -1: no offset
 * This file defines down(job). docs/arithmetic.md 6. */
#define HAS_AXPY
#define BLOCK_COL 32
#include "kernels/axpy/axpy_loop.h"
#include "kernels/axpy/axpy_32_x86.h"

HTH_INLINE void add_outputs(const down_rows *r, size_t at, int32_t *sums, int32_t *offsets)
{
    _Alignas(32) int32_t c[AXPY_ROWS / 2][8];
    take_coefficients(r, at, c, offsets);
    for (size_t i = 0; i < 8; i++) {
        size_t from = at + i * BLOCK_SIZE;
        __m256i s[4], w[4];
        fetch_next(r, AXPY_ROWS, from, from + BLOCK_SIZE);
        for (int k = 0; k < 4; k++) s[k] = load_256(sums + 32 * i + 8 * k);
        HTH_UNROLL
        for (int p = 0; p < AXPY_ROWS / 2; p++) {
            __m256i pair = _mm256_set1_epi32(c[p][i]);
            two_rows(r->row[2 * p] + from, r->row[2 * p + 1] + from, w);
            for (int k = 0; k < 4; k++) s[k] = _mm256_add_epi32(s[k], _mm256_madd_epi16(w[k], pair));
        }
        for (int k = 0; k < 4; k++) store_256(sums + 32 * i + 8 * k, s[k]);
    }
}
