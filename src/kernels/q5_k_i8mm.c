/* Panels of Q5_K, AArch64 level i8mm. Rows are those of dotprod. */
#define HAS_MINIMUM 1
enum { BLOCK_SIZE = 176, SCALE_AT = 0, MINIMUM_AT = 2, OFFSET_SHIFT = -1 };

#include "kernels/panel_ops_neon.h"

static const hth_type panel_type = HTH_TYPE_Q5_K;

#include "kernels/panel_words.h"

#include "kernels/panel_q5_k.h"

#include "kernels/panel_256_neon.h"

void hth_kernels_q5_k_i8mm(hth_kernels *k)
{
    k->panels[HTH_TYPE_Q5_K] = panels;
    k->layout[HTH_TYPE_Q5_K] = HTH_LAYOUT_PANELS;
}
