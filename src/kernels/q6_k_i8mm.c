/* Panels of Q6_K, AArch64 level i8mm. Rows are those of dotprod. */
#define HAS_MINIMUM 0
enum { BLOCK_SIZE = 210, SCALE_AT = 208, OFFSET_SHIFT = 5 };

#include "kernels/panel_ops_neon.h"

static const hth_type panel_type = HTH_TYPE_Q6_K;

#include "kernels/panel_words.h"

#include "kernels/panel_q6_k.h"

#include "kernels/panel_256_neon.h"

void hth_kernels_q6_k_i8mm(hth_kernels *k)
{
    k->panels[HTH_TYPE_Q6_K] = panels;
    k->layout[HTH_TYPE_Q6_K] = HTH_LAYOUT_PANELS;
}
