/* Rows of Q4_1 with AVX2. A register holds one block, a byte per weight in the
 * order of the activations; the minima have partial sums of their own. */
#define HAS_MINIMUM 1
enum { BLOCK_SIZE = 20, OFFSET_SHIFT = -1 };

#include "kernels/x86_256_small.h"

HTH_INLINE group unpack(const uint8_t *p)
{
    group g = {.d = scales(p, BLOCK_SIZE), .m = scales(p + 2, BLOCK_SIZE)};
    for (int i = 0; i < 8; i++) g.w[i] = nibbles(p + i * BLOCK_SIZE + 4);
    return g;
}

#include "kernels/rows_tmpl.h"

static const hth_type panel_type = HTH_TYPE_Q4_1;

#include "kernels/panel_ops_avx2.h"
#include "kernels/panel_words.h"

#include "kernels/panel_q4_1.h"

#include "kernels/panel_32_avx2.h"

void hth_kernels_q4_1_avx2(hth_kernels *k)
{
    k->rows[HTH_TYPE_Q4_1] = rows;
    k->panels[HTH_TYPE_Q4_1] = panels;
    k->layout[HTH_TYPE_Q4_1] = HTH_LAYOUT_PANELS;
}
