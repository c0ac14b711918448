/* Which instructions kernels may use: cumulative levels, which a model or HEARTH_CPU can lower. A level never changes a
 * result. */
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

/* The highest level that the machine and its operating system support. */
hth_cpu hth_cpu_detect(void);
/* The first feature that the next higher level needs and the machine lacks; NULL at the highest level. */
const char *hth_cpu_missing_feature(void);

/* True if the machine multiplies pairs of bf16 at its highest level (AVX-512 BF16, FEAT_BF16). */
bool hth_cpu_has_bf16_dot(void);

/* The family of an AMD CPU (25: Zen 3 and 4, 26: Zen 5); 0: another vendor. Only prefetching depends on it. */
unsigned hth_cpu_amd_family(void);

/* True if a machine of level `machine` can run `level`. */
int hth_cpu_has(hth_cpu machine, hth_cpu level);

/* The level to use: the one of that name (hearth_model_options.cpu), NULL: the one in HEARTH_CPU, else the machine's.
 * ARGUMENT if that is no level or one that the machine lacks. */
hearth_status hth_cpu_choose(const char *name, hth_cpu *level, hearth_error *err);

#endif
