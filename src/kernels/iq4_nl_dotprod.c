/* Rows and panels of IQ4_NL, AArch64 level dotprod. */
#include "kernels/iq4_nl_arm.h"

static const hth_type panel_type = HTH_TYPE_IQ4_NL;

#include "kernels/panel_ops_neon.h"
#include "kernels/panel_words.h"

#include "kernels/panel_iq4_nl.h"

#include "kernels/panel_32_neon.h"

void hth_kernels_iq4_nl_dotprod(hth_kernels *k)
{
    k->rows[HTH_TYPE_IQ4_NL] = rows;
    k->panels[HTH_TYPE_IQ4_NL] = panels;
    k->layout[HTH_TYPE_IQ4_NL] = HTH_LAYOUT_PANELS;
}
