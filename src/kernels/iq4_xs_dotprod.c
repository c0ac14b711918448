/* Rows of IQ4_XS, AArch64 level dotprod. */
#include "kernels/iq4_xs_arm.h"

void hth_kernels_iq4_xs_dotprod(hth_kernels *k) { k->rows[HTH_TYPE_IQ4_XS] = rows; }
