/* Rows of IQ4_NL, AArch64 level neon. */
#include "kernels/iq4_nl_arm.h"

void hth_kernels_iq4_nl_neon(hth_kernels *k) { k->rows[HTH_TYPE_IQ4_NL] = rows; }
