/* What each file of a level gives to the table; called by dispatch.c only, from the
 * reference upward. A level overrides what it does faster and leaves the rest. */
#ifndef HTH_KERNELS_LEVELS_H
#define HTH_KERNELS_LEVELS_H

#include "kernels/kernels.h"

/* The pieces of a kernel: they must end up inside its loop. */
#define HTH_INLINE static inline __attribute__((always_inline))

/* Before a loop of up to sixteen rounds whose body wants its counter as a constant. Not with
 * sanitizers, whose checks would be multiplied. */
#if defined(HTH_NO_UNROLL)
#define HTH_UNROLL
#elif defined(__clang__)
#define HTH_UNROLL _Pragma("unroll")
#else
#define HTH_UNROLL _Pragma("GCC unroll 16")
#endif

/* The definition in C. */
void hth_kernels_float_ref(hth_kernels *k);
void hth_kernels_q8_0_ref(hth_kernels *k);
void hth_kernels_q4_0_ref(hth_kernels *k);
void hth_kernels_q4_1_ref(hth_kernels *k);
void hth_kernels_q5_0_ref(hth_kernels *k);
void hth_kernels_q5_1_ref(hth_kernels *k);
void hth_kernels_iq4_nl_ref(hth_kernels *k);
void hth_kernels_mxfp4_ref(hth_kernels *k);
void hth_kernels_q2_k_ref(hth_kernels *k);
void hth_kernels_q3_k_ref(hth_kernels *k);
void hth_kernels_q4_k_ref(hth_kernels *k);
void hth_kernels_q5_k_ref(hth_kernels *k);
void hth_kernels_q6_k_ref(hth_kernels *k);
void hth_kernels_iq4_xs_ref(hth_kernels *k);
void hth_kernels_codec_ref(hth_kernels *k);
void hth_kernels_pack_32_ref(hth_kernels *k);
void hth_kernels_pack_256_ref(hth_kernels *k);
void hth_kernels_vector_ref(hth_kernels *k);
void hth_kernels_training_ref(hth_kernels *k);
void hth_kernels_compact_ref(hth_kernels *k);
void hth_kernels_attn_ref(hth_kernels *k);

void hth_kernels_float_avx2(hth_kernels *k);
void hth_kernels_q8_0_avx2(hth_kernels *k);
void hth_kernels_q4_0_avx2(hth_kernels *k);
void hth_kernels_q4_1_avx2(hth_kernels *k);
void hth_kernels_q5_0_avx2(hth_kernels *k);
void hth_kernels_q5_1_avx2(hth_kernels *k);
void hth_kernels_iq4_nl_avx2(hth_kernels *k);
void hth_kernels_mxfp4_avx2(hth_kernels *k);
void hth_kernels_q2_k_avx2(hth_kernels *k);
void hth_kernels_q3_k_avx2(hth_kernels *k);
void hth_kernels_q4_k_avx2(hth_kernels *k);
void hth_kernels_q5_k_avx2(hth_kernels *k);
void hth_kernels_q6_k_avx2(hth_kernels *k);
void hth_kernels_iq4_xs_avx2(hth_kernels *k);
void hth_kernels_vector_avx2(hth_kernels *k);
void hth_kernels_training_avx2(hth_kernels *k);
void hth_kernels_compact_avx2(hth_kernels *k);
void hth_kernels_attn_avx2(hth_kernels *k);

void hth_kernels_float_avx512(hth_kernels *k);
void hth_kernels_q8_0_avx512(hth_kernels *k);
void hth_kernels_q4_0_avx512(hth_kernels *k);
void hth_kernels_q4_1_avx512(hth_kernels *k);
void hth_kernels_q5_0_avx512(hth_kernels *k);
void hth_kernels_q5_1_avx512(hth_kernels *k);
void hth_kernels_iq4_nl_avx512(hth_kernels *k);
void hth_kernels_mxfp4_avx512(hth_kernels *k);
void hth_kernels_q2_k_avx512(hth_kernels *k);
void hth_kernels_q3_k_avx512(hth_kernels *k);
void hth_kernels_q4_k_avx512(hth_kernels *k);
void hth_kernels_q5_k_avx512(hth_kernels *k);
void hth_kernels_q6_k_avx512(hth_kernels *k);
void hth_kernels_iq4_xs_avx512(hth_kernels *k);
void hth_kernels_vector_avx512(hth_kernels *k);
void hth_kernels_training_avx512(hth_kernels *k);
void hth_kernels_compact_avx512(hth_kernels *k);
void hth_kernels_act_q8_avx512(hth_kernels *k);
void hth_kernels_attn_avx512(hth_kernels *k);

void hth_kernels_float_neon(hth_kernels *k);
void hth_kernels_q8_0_neon(hth_kernels *k);
void hth_kernels_q4_0_neon(hth_kernels *k);
void hth_kernels_q4_1_neon(hth_kernels *k);
void hth_kernels_q5_0_neon(hth_kernels *k);
void hth_kernels_q5_1_neon(hth_kernels *k);
void hth_kernels_iq4_nl_neon(hth_kernels *k);
void hth_kernels_mxfp4_neon(hth_kernels *k);
void hth_kernels_q2_k_neon(hth_kernels *k);
void hth_kernels_q3_k_neon(hth_kernels *k);
void hth_kernels_q4_k_neon(hth_kernels *k);
void hth_kernels_q5_k_neon(hth_kernels *k);
void hth_kernels_q6_k_neon(hth_kernels *k);
void hth_kernels_iq4_xs_neon(hth_kernels *k);
void hth_kernels_vector_neon(hth_kernels *k);
void hth_kernels_training_neon(hth_kernels *k);
void hth_kernels_attn_neon(hth_kernels *k);

void hth_kernels_q8_0_dotprod(hth_kernels *k);
void hth_kernels_q4_0_dotprod(hth_kernels *k);
void hth_kernels_q4_1_dotprod(hth_kernels *k);
void hth_kernels_q5_0_dotprod(hth_kernels *k);
void hth_kernels_q5_1_dotprod(hth_kernels *k);
void hth_kernels_iq4_nl_dotprod(hth_kernels *k);
void hth_kernels_mxfp4_dotprod(hth_kernels *k);
void hth_kernels_q2_k_dotprod(hth_kernels *k);
void hth_kernels_q3_k_dotprod(hth_kernels *k);
void hth_kernels_q4_k_dotprod(hth_kernels *k);
void hth_kernels_q5_k_dotprod(hth_kernels *k);
void hth_kernels_q6_k_dotprod(hth_kernels *k);
void hth_kernels_iq4_xs_dotprod(hth_kernels *k);

void hth_kernels_q8_0_i8mm(hth_kernels *k);
void hth_kernels_q4_0_i8mm(hth_kernels *k);
void hth_kernels_q4_1_i8mm(hth_kernels *k);
void hth_kernels_q5_0_i8mm(hth_kernels *k);
void hth_kernels_q5_1_i8mm(hth_kernels *k);
void hth_kernels_iq4_nl_i8mm(hth_kernels *k);
void hth_kernels_mxfp4_i8mm(hth_kernels *k);
void hth_kernels_q2_k_i8mm(hth_kernels *k);
void hth_kernels_q3_k_i8mm(hth_kernels *k);
void hth_kernels_q4_k_i8mm(hth_kernels *k);
void hth_kernels_q5_k_i8mm(hth_kernels *k);
void hth_kernels_q6_k_i8mm(hth_kernels *k);
void hth_kernels_iq4_xs_i8mm(hth_kernels *k);

/* Panels of BF16 rows, exact, and prompts by the bf16 dot product. */
void hth_panels_bf16_avx512(const hth_rows *job);
void hth_panels_bf16_dot(const hth_rows *job);

#endif
