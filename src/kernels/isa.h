/* The functions with which each file of an ISA level adds its kernels to the table. Only dispatch.c calls them, from
 * the reference upward. A level overrides the kernels it makes faster and keeps the others. */
#ifndef HTH_KERNELS_ISA_H
#define HTH_KERNELS_ISA_H

#include "kernels/kernels.h"

/* Declares a helper that must be inlined into the loop of a kernel. */
#define HTH_INLINE static inline __attribute__((always_inline))

/* Placed before a loop of up to sixteen iterations whose body needs its counter as a constant. Off with
 * sanitizers, whose checks would be multiplied. */
#if defined(HTH_NO_UNROLL)
#define HTH_UNROLL
#elif defined(__clang__)
#define HTH_UNROLL _Pragma("unroll")
#else
#define HTH_UNROLL _Pragma("GCC unroll 16")
#endif

/* Quantised types: one folder of quant/ each. */
#define HTH_FOR_EACH_QUANT(DO, LEVEL)                                                                        \
    DO(q8_0, LEVEL) DO(q4_0, LEVEL) DO(q4_1, LEVEL) DO(q5_0, LEVEL) DO(q5_1, LEVEL) DO(iq4_nl, LEVEL)         \
    DO(mxfp4, LEVEL) DO(q2_k, LEVEL) DO(q3_k, LEVEL) DO(q4_k, LEVEL) DO(q5_k, LEVEL) DO(q6_k, LEVEL)          \
    DO(iq4_xs, LEVEL) DO(iq2_xxs, LEVEL) DO(iq2_xs, LEVEL) DO(iq2_s, LEVEL) DO(iq3_xxs, LEVEL)                \
    DO(iq3_s, LEVEL) DO(iq1_s, LEVEL) DO(iq1_m, LEVEL) DO(tq1_0, LEVEL) DO(tq2_0, LEVEL) DO(nvfp4, LEVEL)
/* hth_kernels_NAME_LEVEL: adds the kernels that a file of that level has for a type, or for another kind of
 * work. */
#define HTH_KERNELS_OF_(NAME, LEVEL) hth_kernels_##NAME##_##LEVEL
#define HTH_KERNELS_OF(NAME, LEVEL) HTH_KERNELS_OF_(NAME, LEVEL)
#define HTH_DECLARE_KERNELS(NAME, LEVEL) void HTH_KERNELS_OF(NAME, LEVEL)(hth_kernels * k);

HTH_FOR_EACH_QUANT(HTH_DECLARE_KERNELS, ref)
HTH_FOR_EACH_QUANT(HTH_DECLARE_KERNELS, avx2)
HTH_FOR_EACH_QUANT(HTH_DECLARE_KERNELS, avx512)
HTH_FOR_EACH_QUANT(HTH_DECLARE_KERNELS, neon)
HTH_FOR_EACH_QUANT(HTH_DECLARE_KERNELS, dotprod)
HTH_FOR_EACH_QUANT(HTH_DECLARE_KERNELS, i8mm)

/* float: rows of floats; compact: values above a threshold. */
#define HTH_FOR_EACH_KIND(DO, LEVEL) DO(float, LEVEL) DO(vector, LEVEL) DO(training, LEVEL) DO(attn, LEVEL)
HTH_FOR_EACH_KIND(HTH_DECLARE_KERNELS, ref)
HTH_FOR_EACH_KIND(HTH_DECLARE_KERNELS, avx2)
HTH_FOR_EACH_KIND(HTH_DECLARE_KERNELS, avx512)
HTH_FOR_EACH_KIND(HTH_DECLARE_KERNELS, neon)
void hth_kernels_codec_ref(hth_kernels *k);
void hth_kernels_pack_32_ref(hth_kernels *k);
void hth_kernels_pack_256_ref(hth_kernels *k);
void hth_kernels_pack_iq4_ref(hth_kernels *k);
void hth_kernels_pack_grid_ref(hth_kernels *k);
void hth_kernels_pack_fixed_ref(hth_kernels *k);
void hth_kernels_compact_ref(hth_kernels *k);
void hth_kernels_compact_avx2(hth_kernels *k);
void hth_kernels_compact_avx512(hth_kernels *k);
void hth_kernels_act_q8_avx512(hth_kernels *k);

/* Panels of BF16 rows, exact; and prompt products with the bf16 dot product. */
void hth_panels_bf16_avx512(const hth_rows *job);
void hth_panels_bf16_dot(const hth_rows *job);

#endif
