/* The one table of kernels, filled from the C reference upward. This file shows which kernels exist at which
 * ISA level. */
#include "kernels/kernels.h"
#include "kernels/isa.h"

#include <string.h>

#define ADD(NAME, LEVEL) HTH_KERNELS_OF(NAME, LEVEL)(k);
#define ADD_QUANTS(LEVEL) HTH_FOR_EACH_QUANT(ADD, LEVEL)
#define ADD_KINDS(LEVEL) HTH_FOR_EACH_KIND(ADD, LEVEL)

static void init_reference(hth_kernels *k)
{
    ADD_KINDS(ref)
    ADD_QUANTS(ref)
    hth_kernels_codec_ref(k);
    hth_kernels_pack_32_ref(k);
    hth_kernels_pack_256_ref(k);
    hth_kernels_pack_iq4_ref(k);
    hth_kernels_pack_grid_ref(k);
    hth_kernels_pack_fixed_ref(k);
    hth_kernels_compact_ref(k);
}

#if defined(__x86_64__)
static void init_levels(hth_kernels *k, hth_cpu level)
{
    if (level < HTH_CPU_AVX2) return;
    ADD_KINDS(avx2)
    ADD_QUANTS(avx2)
    hth_kernels_compact_avx2(k);
    if (level < HTH_CPU_AVX512) return;
    ADD_KINDS(avx512)
    ADD_QUANTS(avx512)
    hth_kernels_compact_avx512(k);
    hth_kernels_act_q8_avx512(k);
}
#elif defined(__aarch64__)
static void init_levels(hth_kernels *k, hth_cpu level)
{
    if (level < HTH_CPU_NEON) return;
    ADD_KINDS(neon)
    ADD_QUANTS(neon)
    if (level < HTH_CPU_DOTPROD) return;
    ADD_QUANTS(dotprod)
    if (level < HTH_CPU_I8MM) return;
    ADD_QUANTS(i8mm)
}
#else
static void init_levels(hth_kernels *k, hth_cpu level) { (void)k, (void)level; }
#endif

/* Not measured before Zen 4 and after Zen 5. The C reference does not prefetch. The reference device builds its
 * table for each run of a shader, so HTH_CPU_GENERIC skips the CPU query, which takes tens of microseconds in a
 * virtual machine. */
static hth_prefetch_mode best_fetch(hth_cpu level)
{
    if (level == HTH_CPU_GENERIC) return HTH_PREFETCH_L2_L1;
    unsigned family = hth_cpu_amd_family();
    return family == 0 ? HTH_PREFETCH_L2_L1 : family < 26 ? HTH_PREFETCH_SPARSE : HTH_PREFETCH_L1;
}

void hth_kernels_init(hth_kernels *k, hth_cpu level)
{
    memset(k, 0, sizeof *k);
    k->level = level;
    k->prefetch = best_fetch(level);
    init_reference(k);
    init_levels(k, level);
    /* Panels of these types are too wide for this mode. Zen 4, AVX-512, one token from memory, rows and panels
     * in percent of load-only speed: Q5_K 64 and 40, Q6_K 79 and 40. All other types are faster in panels. */
    if (k->prefetch == HTH_PREFETCH_SPARSE)
        k->layout[HTH_TYPE_Q5_K] = k->layout[HTH_TYPE_Q6_K] = HTH_LAYOUT_ROWS;
}

bool hth_kernels_use_bf16_dot(hth_kernels *k)
{
#if defined(__x86_64__)
    if (k->level == HTH_CPU_AVX512 && hth_cpu_has_bf16_dot()) {
        k->panels[HTH_TYPE_BF16] = hth_panels_bf16_dot;
        return true;
    }
#endif
    return (void)k, false;
}
