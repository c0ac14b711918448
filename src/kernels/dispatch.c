/* The one table of kernels, filled from C upward. To see what exists at a level,
 * read this file. */
#include "kernels/kernels.h"
#include "kernels/isa.h"

#include <string.h>

static void init_reference(hth_kernels *k)
{
    hth_kernels_float_ref(k);
    hth_kernels_q8_0_ref(k);
    hth_kernels_q4_0_ref(k);
    hth_kernels_q4_1_ref(k);
    hth_kernels_q5_0_ref(k);
    hth_kernels_q5_1_ref(k);
    hth_kernels_iq4_nl_ref(k);
    hth_kernels_mxfp4_ref(k);
    hth_kernels_q2_k_ref(k);
    hth_kernels_q3_k_ref(k);
    hth_kernels_q4_k_ref(k);
    hth_kernels_q5_k_ref(k);
    hth_kernels_q6_k_ref(k);
    hth_kernels_iq4_xs_ref(k);
    hth_kernels_codec_ref(k);
    hth_kernels_pack_32_ref(k);
    hth_kernels_pack_256_ref(k);
    hth_kernels_vector_ref(k);
    hth_kernels_training_ref(k);
    hth_kernels_compact_ref(k);
    hth_kernels_attn_ref(k);
}

#if defined(__x86_64__)
static void init_levels(hth_kernels *k, hth_cpu level)
{
    if (level < HTH_CPU_AVX2) return;
    hth_kernels_float_avx2(k);
    hth_kernels_q8_0_avx2(k);
    hth_kernels_q4_0_avx2(k);
    hth_kernels_q4_1_avx2(k);
    hth_kernels_q5_0_avx2(k);
    hth_kernels_q5_1_avx2(k);
    hth_kernels_iq4_nl_avx2(k);
    hth_kernels_mxfp4_avx2(k);
    hth_kernels_q2_k_avx2(k);
    hth_kernels_q3_k_avx2(k);
    hth_kernels_q4_k_avx2(k);
    hth_kernels_q5_k_avx2(k);
    hth_kernels_q6_k_avx2(k);
    hth_kernels_iq4_xs_avx2(k);
    hth_kernels_vector_avx2(k);
    hth_kernels_training_avx2(k);
    hth_kernels_compact_avx2(k);
    hth_kernels_attn_avx2(k);
    if (level < HTH_CPU_AVX512) return;
    hth_kernels_float_avx512(k);
    hth_kernels_q8_0_avx512(k);
    hth_kernels_q4_0_avx512(k);
    hth_kernels_q4_1_avx512(k);
    hth_kernels_q5_0_avx512(k);
    hth_kernels_q5_1_avx512(k);
    hth_kernels_iq4_nl_avx512(k);
    hth_kernels_mxfp4_avx512(k);
    hth_kernels_q2_k_avx512(k);
    hth_kernels_q3_k_avx512(k);
    hth_kernels_q4_k_avx512(k);
    hth_kernels_q5_k_avx512(k);
    hth_kernels_q6_k_avx512(k);
    hth_kernels_iq4_xs_avx512(k);
    hth_kernels_vector_avx512(k);
    hth_kernels_training_avx512(k);
    hth_kernels_compact_avx512(k);
    hth_kernels_act_q8_avx512(k);
    hth_kernels_attn_avx512(k);
}
#elif defined(__aarch64__)
static void init_levels(hth_kernels *k, hth_cpu level)
{
    if (level < HTH_CPU_NEON) return;
    hth_kernels_float_neon(k);
    hth_kernels_q8_0_neon(k);
    hth_kernels_q4_0_neon(k);
    hth_kernels_q4_1_neon(k);
    hth_kernels_q5_0_neon(k);
    hth_kernels_q5_1_neon(k);
    hth_kernels_iq4_nl_neon(k);
    hth_kernels_mxfp4_neon(k);
    hth_kernels_q2_k_neon(k);
    hth_kernels_q3_k_neon(k);
    hth_kernels_q4_k_neon(k);
    hth_kernels_q5_k_neon(k);
    hth_kernels_q6_k_neon(k);
    hth_kernels_iq4_xs_neon(k);
    hth_kernels_vector_neon(k);
    hth_kernels_training_neon(k);
    hth_kernels_attn_neon(k);
    if (level < HTH_CPU_DOTPROD) return;
    hth_kernels_q8_0_dotprod(k);
    hth_kernels_q4_0_dotprod(k);
    hth_kernels_q4_1_dotprod(k);
    hth_kernels_q5_0_dotprod(k);
    hth_kernels_q5_1_dotprod(k);
    hth_kernels_iq4_nl_dotprod(k);
    hth_kernels_mxfp4_dotprod(k);
    hth_kernels_q2_k_dotprod(k);
    hth_kernels_q3_k_dotprod(k);
    hth_kernels_q4_k_dotprod(k);
    hth_kernels_q5_k_dotprod(k);
    hth_kernels_q6_k_dotprod(k);
    hth_kernels_iq4_xs_dotprod(k);
    if (level < HTH_CPU_I8MM) return;
    hth_kernels_q8_0_i8mm(k);
    hth_kernels_q4_0_i8mm(k);
    hth_kernels_q4_1_i8mm(k);
    hth_kernels_q5_0_i8mm(k);
    hth_kernels_q5_1_i8mm(k);
    hth_kernels_iq4_nl_i8mm(k);
    hth_kernels_mxfp4_i8mm(k);
    hth_kernels_q2_k_i8mm(k);
    hth_kernels_q3_k_i8mm(k);
    hth_kernels_q4_k_i8mm(k);
    hth_kernels_q5_k_i8mm(k);
    hth_kernels_q6_k_i8mm(k);
    hth_kernels_iq4_xs_i8mm(k);
}
#else
static void init_levels(hth_kernels *k, hth_cpu level) { (void)k, (void)level; }
#endif

/* Before Zen 4 and after Zen 5 not measured. The definition in C fetches nothing, and a null device takes its
 * table for each run of a program: it does not ask, which takes a virtual machine tens of microseconds. */
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
    /* Panels of these are too wide for it: Zen 4, AVX-512, one token from memory, rows and panels, of
     * load only: Q5_K 64 and 40 %, Q6_K 79 and 40; all other types are faster in panels. */
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
