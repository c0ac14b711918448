/* Panels of Q4_K, AArch64 level i8mm. Rows are those of dotprod. */
#define HAS_MINIMUM 1
enum { BLOCK_SIZE = 144, SCALE_AT = 0, MINIMUM_AT = 2, OFFSET_SHIFT = -1 };

#include "kernels/panel_ops_neon.h"

static const hth_type panel_type = HTH_TYPE_Q4_K;

#include "kernels/panel_words.h"

#include "kernels/panel_q4_k.h"

#include "kernels/panel_256_neon.h"

void hth_kernels_q4_k_i8mm(hth_kernels *k)
{
    k->panels[HTH_TYPE_Q4_K] = panels;
    k->layout[HTH_TYPE_Q4_K] = HTH_LAYOUT_PANELS;
}
