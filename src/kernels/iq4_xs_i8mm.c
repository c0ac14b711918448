/* Panels of IQ4_XS, AArch64 level i8mm. Rows are those of dotprod. */
#define HAS_MINIMUM 0
enum { BLOCK_SIZE = 136, SCALE_AT = 0, OFFSET_SHIFT = -1 };

#include "kernels/panel_ops_neon.h"

static const hth_type panel_type = HTH_TYPE_IQ4_XS;

#include "kernels/panel_words.h"

#include "kernels/panel_iq4_xs.h"

#include "kernels/panel_256_neon.h"

void hth_kernels_iq4_xs_i8mm(hth_kernels *k)
{
    k->panels[HTH_TYPE_IQ4_XS] = panels;
    k->layout[HTH_TYPE_IQ4_XS] = HTH_LAYOUT_PANELS;
}
