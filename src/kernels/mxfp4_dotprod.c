/* Rows and panels of MXFP4, AArch64 level dotprod. */
#include "kernels/mxfp4_arm.h"

static const hth_type panel_type = HTH_TYPE_MXFP4;

#include "kernels/panel_ops_neon.h"
#include "kernels/panel_words.h"

#include "kernels/panel_mxfp4.h"

#include "kernels/panel_32_neon.h"

void hth_kernels_mxfp4_dotprod(hth_kernels *k)
{
    k->rows[HTH_TYPE_MXFP4] = rows;
    k->panels[HTH_TYPE_MXFP4] = panels;
    k->layout[HTH_TYPE_MXFP4] = HTH_LAYOUT_PANELS;
}
