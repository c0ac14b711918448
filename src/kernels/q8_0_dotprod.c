/* Rows and panels of Q8_0, AArch64 level dotprod. */
#include "kernels/q8_0_arm.h"

static const hth_type panel_type = HTH_TYPE_Q8_0;

#include "kernels/panel_ops_neon.h"
#include "kernels/panel_words.h"

#include "kernels/panel_q8_0.h"

#include "kernels/panel_32_neon.h"

void hth_kernels_q8_0_dotprod(hth_kernels *k)
{
    k->rows[HTH_TYPE_Q8_0] = rows;
    k->panels[HTH_TYPE_Q8_0] = panels;
    k->layout[HTH_TYPE_Q8_0] = HTH_LAYOUT_PANELS;
}
