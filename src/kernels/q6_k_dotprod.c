/* Rows and panels of Q6_K, AArch64 level dotprod. */
#include "kernels/q6_k_arm.h"

enum { OFFSET_SHIFT = 5 };
static const hth_type panel_type = HTH_TYPE_Q6_K;

#include "kernels/panel_ops_neon.h"
#include "kernels/panel_words.h"

#include "kernels/panel_q6_k.h"

#include "kernels/panel_256_neon.h"

void hth_kernels_q6_k_dotprod(hth_kernels *k)
{
    k->rows[HTH_TYPE_Q6_K] = rows;
    k->panels[HTH_TYPE_Q6_K] = panels;
    k->layout[HTH_TYPE_Q6_K] = HTH_LAYOUT_PANELS;
}
