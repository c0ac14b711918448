/* Which instructions kernels may use: cumulative levels, masked downward by
 * HEARTH_CPU. A level never changes a result. */
#ifndef HTH_BASE_CPU_H
#define HTH_BASE_CPU_H

#include "base/status.h"

#include <stdbool.h>

typedef enum hth_cpu {
    HTH_CPU_GENERIC = 0, /* C only */
    HTH_CPU_AVX2,        /* AVX2, FMA, F16C, BMI2 */
    HTH_CPU_AVX512,      /* and F, BW, DQ, VL, CD, VNNI, VBMI, VBMI2 */
    HTH_CPU_NEON,        /* AArch64 baseline */
    HTH_CPU_DOTPROD,     /* and sdot */
    HTH_CPU_I8MM,        /* and smmla */
} hth_cpu;

const char *hth_cpu_name(hth_cpu level);

/* The highest level that the machine and its system have. */
hth_cpu hth_cpu_detect(void);
/* The first thing that the next higher level wants and the machine lacks; NULL at the highest. */
const char *hth_cpu_missing_feature(void);

/* Whether the machine multiplies pairs of bf16 at its highest level (AVX-512 BF16, FEAT_BF16). */
bool hth_cpu_has_bf16_dot(void);

/* The family of a CPU of AMD's (25: Zen 3 and 4, 26: Zen 5), on which only how memory is fetched
 * ahead depends; 0: another's. */
unsigned hth_cpu_amd_family(void);

/* Whether a program on a machine of level `machine` may run `level`. */
int hth_cpu_has(hth_cpu machine, hth_cpu level);

/* The level to use: the machine's, or the one in HEARTH_CPU. ARGUMENT when
 * HEARTH_CPU names no level or one that this machine lacks. */
hearth_status hth_cpu_choose(hth_cpu *level, hearth_error *err);

#endif
