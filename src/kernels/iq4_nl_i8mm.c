/* Panels of IQ4_NL, AArch64 level i8mm. Rows are those of dotprod. */
#define HAS_MINIMUM 0
enum { BLOCK_SIZE = 18 };

#include "kernels/panel_ops_neon.h"

static const hth_type panel_type = HTH_TYPE_IQ4_NL;

#include "kernels/panel_words.h"

#include "kernels/panel_iq4_nl.h"

#include "kernels/panel_32_neon.h"

void hth_kernels_iq4_nl_i8mm(hth_kernels *k)
{
    k->panels[HTH_TYPE_IQ4_NL] = panels;
    k->layout[HTH_TYPE_IQ4_NL] = HTH_LAYOUT_PANELS;
}
