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

static const hth_type panel_type = HTH_TYPE_Q5_0;

#include "kernels/panel_ops_avx512.h"
#include "kernels/panel_words.h"

#include "kernels/panel_q5_0.h"

#include "kernels/panel_32_avx512.h"

void hth_kernels_q5_0_avx512(hth_kernels *k)
{
    k->rows[HTH_TYPE_Q5_0] = rows;
    k->panels[HTH_TYPE_Q5_0] = panels;
    k->layout[HTH_TYPE_Q5_0] = HTH_LAYOUT_PANELS;
}
