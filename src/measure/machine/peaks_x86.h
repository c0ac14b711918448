/* The loop around x86 instructions. Assembly, so that no compiler moves or drops one. Twelve sums hide a
 * latency of 5 at two per cycle. Registers 12 to 15 are the inputs and hold 1.0f, because zeros may execute
 * faster. */
#ifndef HTH_MEASURE_PEAKS_X86_H
#define HTH_MEASURE_PEAKS_X86_H

#include "measure/machine/peaks.h"

#define TWELVE(BEFORE, AFTER)                                                                                \
    BEFORE "0" AFTER BEFORE "1" AFTER BEFORE "2" AFTER BEFORE "3" AFTER BEFORE "4" AFTER BEFORE              \
           "5" AFTER BEFORE "6" AFTER BEFORE "7" AFTER BEFORE "8" AFTER BEFORE "9" AFTER BEFORE              \
           "10" AFTER BEFORE "11" AFTER

/* Defines NAME, which runs BODY n_round times. WIDE is the name of the input registers. */
#define PEAK_LOOP(NAME, WIDE, BODY)                                                                          \
    static void NAME(uint64_t n_round)                                                                       \
    {                                                                                                        \
        const float one = 1.0f;                                                                              \
        if (n_round == 0) return;                                                                            \
        __asm__ volatile("vzeroall\n\t"                                                                      \
                         "vbroadcastss %1, %%" WIDE "12\n\t"                                                 \
                         "vbroadcastss %1, %%" WIDE "14\n\t"                                                 \
                         "vbroadcastss %1, %%" WIDE "15\n\t"                                                 \
                         ".p2align 5\n"                                                                      \
                         "1:\n\t" BODY "dec %0\n\t"                                                          \
                         "jnz 1b\n\t"                                                                        \
                         "vzeroupper"                                                                        \
                         : "+r"(n_round)                                                                     \
                         : "m"(one)                                                                          \
                         : "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8",     \
                           "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");                    \
    }

#endif
