/* Rows of Q5_1 with AVX-512: nibbles and fifth bits; the minima have partial sums
 * of their own. */
#define HAS_MINIMUM 1
enum { BLOCK_SIZE = 24, OFFSET_SHIFT = -1 };

#include "kernels/x86_512_small.h"

HTH_INLINE group unpack(const uint8_t *p)
{
    group g = {.d = scales(p), .m = eight_halves(p, 2, BLOCK_SIZE)};
    HTH_UNROLL
    for (int i = 0; i < 4; i++) g.w[i] = add_fifth_bits(spread(p, i, 8), p, i, 4);
    return g;
}

#include "kernels/rows_tmpl.h"

HTH_INLINE __m256i block_bytes(const uint8_t *p) { return block_with_fifth(p + 8, p + 4); }
HTH_INLINE __m512 block_scales(const uint8_t *const row[16], size_t at) { return sixteen_halves(row, at); }
HTH_INLINE __m512 block_minima(const uint8_t *const row[16], size_t at)
{
    return sixteen_halves(row, at + 2);
}

#include "kernels/panel_avx512.h"

void hth_kernels_q5_1_avx512(hth_kernels *k) { k->rows[HTH_TYPE_Q5_1] = rows_by_panel; }
