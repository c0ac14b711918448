/* Rows of Q4_1 with AVX-512: nibbles; the minima have partial sums of their own. */
#define HAS_MINIMUM 1
enum { BLOCK_SIZE = 20, OFFSET_SHIFT = -1 };

#include "kernels/x86_512_small.h"

HTH_INLINE group unpack(const uint8_t *p)
{
    group g = {.d = scales(p), .m = eight_halves(p, 2, BLOCK_SIZE)};
    HTH_UNROLL
    for (int i = 0; i < 4; i++) g.w[i] = spread(p, i, 4);
    return g;
}

#include "kernels/rows_tmpl.h"

HTH_INLINE __m256i block_bytes(const uint8_t *p) { return nibbles(p + 4); }
HTH_INLINE __m512 block_scales(const uint8_t *const row[16], size_t at) { return sixteen_halves(row, at); }
HTH_INLINE __m512 block_minima(const uint8_t *const row[16], size_t at)
{
    return sixteen_halves(row, at + 2);
}

#include "kernels/panel_avx512.h"

void hth_kernels_q4_1_avx512(hth_kernels *k) { k->rows[HTH_TYPE_Q4_1] = rows_by_panel; }
