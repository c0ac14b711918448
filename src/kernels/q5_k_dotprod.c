/* Rows and panels of Q5_K, AArch64 level dotprod. */
#include "kernels/q5_k_arm.h"

enum { OFFSET_SHIFT = -1 };
static const hth_type panel_type = HTH_TYPE_Q5_K;

#include "kernels/panel_ops_neon.h"
#include "kernels/panel_words.h"

#include "kernels/panel_q5_k.h"

#include "kernels/panel_256_neon.h"

void hth_kernels_q5_k_dotprod(hth_kernels *k)
{
    k->rows[HTH_TYPE_Q5_K] = rows;
    k->panels[HTH_TYPE_Q5_K] = panels;
    k->layout[HTH_TYPE_Q5_K] = HTH_LAYOUT_PANELS;
}
