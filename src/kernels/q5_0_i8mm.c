/* Panels of Q5_0, AArch64 level i8mm. Rows are those of dotprod. */
#define HAS_MINIMUM 0
enum { BLOCK_SIZE = 22 };

#include "kernels/panel_ops_neon.h"

static const hth_type panel_type = HTH_TYPE_Q5_0;

#include "kernels/panel_words.h"

#include "kernels/panel_q5_0.h"

#include "kernels/panel_32_neon.h"

void hth_kernels_q5_0_i8mm(hth_kernels *k)
{
    k->panels[HTH_TYPE_Q5_0] = panels;
    k->layout[HTH_TYPE_Q5_0] = HTH_LAYOUT_PANELS;
}
