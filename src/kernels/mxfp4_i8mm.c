/* Panels of MXFP4, AArch64 level i8mm. Rows are those of dotprod. */
#define HAS_MINIMUM 0
enum { BLOCK_SIZE = 17 };

#include "kernels/panel_ops_neon.h"

static const hth_type panel_type = HTH_TYPE_MXFP4;

#include "kernels/panel_words.h"

#include "kernels/panel_mxfp4.h"

#include "kernels/panel_32_neon.h"

void hth_kernels_mxfp4_i8mm(hth_kernels *k)
{
    k->panels[HTH_TYPE_MXFP4] = panels;
    k->layout[HTH_TYPE_MXFP4] = HTH_LAYOUT_PANELS;
}
