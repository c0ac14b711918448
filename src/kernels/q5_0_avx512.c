/* Rows of Q5_0 with AVX-512: nibbles and fifth bits, without the -16, which the
 * sums of the activations take off. */
#define HAS_MINIMUM 0
enum { BLOCK_SIZE = 22, OFFSET_SHIFT = 4 };

#include "kernels/x86_512_small.h"

HTH_INLINE group unpack(const uint8_t *p)
{
    group g = {.d = scales(p)};
    HTH_UNROLL
    for (int i = 0; i < 4; i++) g.w[i] = add_fifth_bits(spread(p, i, 6), p, i, 2);
    return g;
}

#include "kernels/rows_tmpl.h"

HTH_INLINE __m256i block_bytes(const uint8_t *p) { return block_with_fifth(p + 6, p + 2); }
HTH_INLINE __m512 block_scales(const uint8_t *const row[16], size_t at) { return sixteen_halves(row, at); }

#include "kernels/panel_avx512.h"

void hth_kernels_q5_0_avx512(hth_kernels *k) { k->rows[HTH_TYPE_Q5_0] = rows_by_panel; }
