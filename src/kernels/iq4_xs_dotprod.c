/* Rows and panels of IQ4_XS, AArch64 level dotprod. */
#include "kernels/iq4_xs_arm.h"

enum { OFFSET_SHIFT = -1 };
static const hth_type panel_type = HTH_TYPE_IQ4_XS;

#include "kernels/panel_ops_neon.h"
#include "kernels/panel_words.h"

#include "kernels/panel_iq4_xs.h"

#include "kernels/panel_256_neon.h"

void hth_kernels_iq4_xs_dotprod(hth_kernels *k)
{
    k->rows[HTH_TYPE_IQ4_XS] = rows;
    k->panels[HTH_TYPE_IQ4_XS] = panels;
    k->layout[HTH_TYPE_IQ4_XS] = HTH_LAYOUT_PANELS;
}
