/* Rows and panels of Q2_K, AArch64 level dotprod. */
#include "kernels/q2_k_arm.h"

enum { OFFSET_SHIFT = -1 };
static const hth_type panel_type = HTH_TYPE_Q2_K;

#include "kernels/panel_ops_neon.h"
#include "kernels/panel_words.h"

#include "kernels/panel_q2_k.h"

#include "kernels/panel_256_neon.h"

void hth_kernels_q2_k_dotprod(hth_kernels *k)
{
    k->rows[HTH_TYPE_Q2_K] = rows;
    k->panels[HTH_TYPE_Q2_K] = panels;
    k->layout[HTH_TYPE_Q2_K] = HTH_LAYOUT_PANELS;
}
