/* Peaks of AArch64 with smmla, which multiplies two rows of eight bytes by two. */
#include "measure/machine/peaks_arm.h"

#define SMMLA(SUM) "smmla v" SUM ".4s, v30.16b, v31.16b\n\t"

PEAK_LOOP(bytes_two_by_two, SIXTEEN(SMMLA))

const hth_peak hth_peaks_i8mm[] = {
    {"smmla 4s", HTH_PEAK_INT8, 16, 16 * 32, bytes_two_by_two},
    {0},
};
