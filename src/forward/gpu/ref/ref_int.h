/* Declarations of the shaders as C functions, grouped by kind (ref_vectors.c, ref_rows.c, ref_down.c,
 * ref_attend.c, ref_values.c, ref_experts.c, ref_pack.c, ref_recurrent.c, ref_scan.c), and shared helpers. */
#ifndef HTH_FORWARD_GPU_REF_INT_H
#define HTH_FORWARD_GPU_REF_INT_H

#include "base/bits.h"
#include "base/checked_math.h"
#include "file/types.h"
#include "forward/gpu/shader_params.h"
#include "forward/gpu/weight_layout.h"

hth_shader_ref_fn hth_gpu_fill, hth_ref_float_rules, hth_ref_norm_quantize, hth_ref_act_quantize, hth_ref_norm_add,
    hth_ref_soft_cap;
hth_shader_ref_fn hth_ref_mul_mat_vec_q, hth_ref_mul_mat_vec_q_acc, hth_ref_mul_mat_vec_f,
    hth_ref_mul_mat_vec_f_acc;
hth_shader_ref_fn hth_ref_active_mask, hth_ref_mul_mat_vec_q_sparse, hth_ref_mul_mat_vec_f_sparse,
    hth_ref_mul_mat_vec_q_sliced, hth_ref_mul_mat_vec_f_sliced;
hth_shader_ref_fn hth_ref_router_rows, hth_ref_route, hth_ref_group_pairs, hth_ref_pack_rows;
hth_shader_ref_fn hth_ref_rope_store, hth_ref_attn, hth_ref_attn_reduce, hth_ref_copy_page;
hth_shader_ref_fn hth_ref_norm_groups, hth_ref_mul_values, hth_ref_copy_values;
hth_shader_ref_fn hth_ref_conv, hth_ref_delta_rates, hth_ref_delta_net, hth_ref_kda_rates, hth_ref_kda, hth_ref_ssm_rates,
    hth_ref_ssm_scan;

hth_shader_ref_fn hth_ref_down_scale, hth_ref_down_q, hth_ref_down_f, hth_ref_down_accumulate;
hth_shader_ref_fn hth_ref_down_scale_sliced, hth_ref_down_q_sliced, hth_ref_down_f_sliced;
hth_shader_ref_fn hth_ref_down_reduce, hth_ref_down_reduce_acc;

/* For a few operations on local copies, which take half of the tests' time: a sanitizer that checked each of their
 * bytes would take ten times as long. It still checks the copies themselves. */
#define HTH_GPU_UNCHECKED __attribute__((no_sanitize("address", "undefined")))

/* Row t of a value. */
static inline float *hth_ref_row(void *values, hth_rows_at rows, size_t t)
{
    return (float *)values + t * rows.stride + rows.at;
}

/* Run i of the step, and those that a grid computes. */
static inline const uint32_t *hth_ref_run(const hth_dispatch_args *c, uint32_t runs_at, uint32_t i)
{
    return (const uint32_t *)c->bind[0] + runs_at + (size_t)i * HTH_RUN_WORDS;
}
static inline uint32_t hth_ref_n_run(const hth_dispatch_args *c)
{
    return hth_min_u32(((const uint32_t *)c->bind[0])[HTH_STEP_N_RUN], c->grid[1]);
}

/* Tokens of the step from `first` on, at most `max`: those that a grid computes. */
static inline uint32_t hth_gpu_tokens(const hth_dispatch_args *c, uint32_t first, uint64_t max)
{
    uint32_t n_tok = ((const uint32_t *)c->bind[0])[HTH_STEP_N_TOK];
    return first < n_tok ? (uint32_t)hth_min_u64(n_tok - first, max) : 0;
}

/* Rounded once, to nearest even: sums of blocks of 256 can exceed 2^24. */
static inline float hth_gpu_to_float(int32_t i) { return (float)i; }

/* Weight i of a row of n floats in device layout. */
static inline float hth_gpu_float_at(hth_type type, const uint8_t *row, size_t n, size_t i)
{
    bool wide = type == HTH_TYPE_F32;
    const uint8_t *word = row + 4 * hth_soa_word_offset(type, n, wide ? i : i / 2);
    if (wide) return hth_load_f32(word);
    uint16_t half = hth_load_u16(word + i % 2 * 2);
    return type == HTH_TYPE_F16 ? hth_f16_to_f32(half) : hth_bf16_to_f32(half);
}

#endif
