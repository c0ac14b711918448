/* Panels of Q3_K, AArch64 level i8mm. Rows are those of dotprod. */
#define HAS_MINIMUM 0
enum { BLOCK_SIZE = 110, SCALE_AT = 108, OFFSET_SHIFT = 2 };

#include "kernels/panel_ops_neon.h"

static const hth_type panel_type = HTH_TYPE_Q3_K;

#include "kernels/panel_words.h"

#include "kernels/panel_q3_k.h"

#include "kernels/panel_256_neon.h"

void hth_kernels_q3_k_i8mm(hth_kernels *k)
{
    k->panels[HTH_TYPE_Q3_K] = panels;
    k->layout[HTH_TYPE_Q3_K] = HTH_LAYOUT_PANELS;
}
