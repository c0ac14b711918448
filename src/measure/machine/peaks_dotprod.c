/* Peaks of AArch64 with sdot, and with bfdot if the machine has it. bfdot is encoded as a number, because the
 * compiler flags of this level do not include it. */
#include "measure/machine/peaks_arm.h"

#define SDOT(SUM) "sdot v" SUM ".4s, v30.16b, v31.16b\n\t"
/* bfdot vSUM.4s, v30.8h, v31.8h */
#define BFDOT(SUM) ".inst 0x6e5fffc0 + " SUM "\n\t"

PEAK_LOOP(bytes_sixteen, SIXTEEN(SDOT))
PEAK_LOOP(bf16_eight, SIXTEEN(BFDOT))

const hth_peak hth_peaks_dotprod[] = {
    {"sdot 4s", HTH_PEAK_INT8, 16, 16 * 16, bytes_sixteen},
    {"bfdot 4s", HTH_PEAK_BF16, 16, 16 * 8, bf16_eight},
    {0},
};
