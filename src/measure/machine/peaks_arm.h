/* The loop around AArch64 instructions. Assembly, so that no compiler moves or drops one. Sixteen sums;
 * registers 30 and 31 are the inputs and hold 1.0f, because zeros may execute faster. */
#ifndef HTH_MEASURE_PEAKS_ARM_H
#define HTH_MEASURE_PEAKS_ARM_H

#include "measure/machine/peaks.h"

#define SIXTEEN(OP)                                                                                          \
    OP("0")                                                                                                  \
    OP("1")                                                                                                  \
    OP("2") OP("3") OP("4") OP("5") OP("6") OP("7") OP("8") OP("9") OP("10") OP("11") OP("12") OP("13")      \
        OP("14") OP("15")

#define PEAK_LOOP(NAME, BODY)                                                                                \
    static void NAME(uint64_t n_round)                                                                       \
    {                                                                                                        \
        if (n_round == 0) return;                                                                            \
        __asm__ volatile("fmov v30.4s, #1.0\n\t"                                                             \
                         "fmov v31.4s, #1.0\n\t" SIXTEEN(CLEAR) "1:\n\t" BODY "subs %0, %0, #1\n\t"          \
                                                                "b.ne 1b"                                    \
                         : "+r"(n_round)                                                                     \
                         :                                                                                   \
                         : "cc", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11",   \
                           "v12", "v13", "v14", "v15", "v29", "v30", "v31");                                 \
    }
#define CLEAR(SUM) "movi v" SUM ".4s, #0\n\t"

#endif
