/* Peaks of the AArch64 baseline: the fused multiply-add, and the three instructions that compute a product of
 * 16 bytes. */
#include "measure/machine/peaks_arm.h"

#define FMLA(SUM) "fmla v" SUM ".4s, v30.4s, v31.4s\n\t"
#define BYTES(SUM)                                                                                           \
    "smull v29.8h, v30.8b, v31.8b\n\t"                                                                       \
    "smlal2 v29.8h, v30.16b, v31.16b\n\t"                                                                    \
    "sadalp v" SUM ".4s, v29.8h\n\t"

PEAK_LOOP(fma_four, SIXTEEN(FMLA))
PEAK_LOOP(bytes_sixteen, SIXTEEN(BYTES))

const hth_peak hth_peaks_neon[] = {
    {"smull, smlal2, sadalp", HTH_PEAK_INT8, 48, 16 * 16, bytes_sixteen},
    {"fmla 4s", HTH_PEAK_F32, 16, 16 * 4, fma_four},
    {0},
};
