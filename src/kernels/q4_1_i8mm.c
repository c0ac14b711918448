/* Panels of Q4_1, AArch64 level i8mm. Rows are those of dotprod. */
#define HAS_MINIMUM 1
enum { BLOCK_SIZE = 20 };

#include "kernels/panel_ops_neon.h"

static const hth_type panel_type = HTH_TYPE_Q4_1;

#include "kernels/panel_words.h"

#include "kernels/panel_q4_1.h"

#include "kernels/panel_32_neon.h"

void hth_kernels_q4_1_i8mm(hth_kernels *k)
{
    k->panels[HTH_TYPE_Q4_1] = panels;
    k->layout[HTH_TYPE_Q4_1] = HTH_LAYOUT_PANELS;
}
