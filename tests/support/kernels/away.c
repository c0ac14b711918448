/* Devices that round otherwise: to nearest with ties away from zero, or towards zero. */
#include "support/kernels/away.h"

#include "support/device/shaders.h"

#include <fenv.h>
#include <math.h>
#include <string.h>

int32_t away_round(float x) { return (int32_t)roundf(x); }

float away_to_float(int64_t i)
{
    uint64_t magnitude = i < 0 ? 0 - (uint64_t)i : (uint64_t)i;
    int shift = 0;
    while (magnitude >> shift >= (uint64_t)1 << 25) shift++;
    uint64_t kept = magnitude >> shift; /* 25 bits: half a step is the last of them */
    if (kept >= (uint64_t)1 << 24) kept = (kept + 1) & ~(uint64_t)1;
    float x = (float)kept * (float)((uint64_t)1 << shift);
    return i < 0 ? -x : x;
}

void away_finish(const int64_t *acc64, size_t n_out, float *y)
{
    for (size_t o = 0; o < n_out; o++) y[o] = away_to_float(acc64[o]) * 0x1p-32f;
}

/* ---- rounding of activations ------------------------------------------------------------------------ */

static hth_kernels good;

/* Values of a block in steps of a power of two, where a tie is one. */
static bool has_ties(float step)
{
    uint32_t bits = hth_bits_of(step);
    return (bits & 0x807fffffu) == 0 && bits > 0;
}

static void quant_act(const float *x, size_t n_col, int8_t *q, float *d, int32_t *sum)
{
    good.quant_act(x, n_col, q, d, sum);
    for (size_t i = 0; i < n_col; i++) {
        size_t b = i / HTH_ACT_BLOCK;
        int8_t away = has_ties(d[b]) ? (int8_t)away_round(x[i] / d[b]) : q[i];
        sum[b] += away - q[i], q[i] = away;
    }
}

static void quant_act_256(const float *x, size_t n_col, int8_t *q, float *d, int16_t *sum_16)
{
    good.quant_act_256(x, n_col, q, d, sum_16);
    for (size_t i = 0; i < n_col; i++) {
        float step = d[i / HTH_ACT_BLOCK_256];
        int8_t away = has_ties(step) ? (int8_t)away_round(x[i] / step) : q[i];
        sum_16[i / HTH_ACT_SUBBLOCK] = (int16_t)(sum_16[i / HTH_ACT_SUBBLOCK] + away - q[i]), q[i] = away;
    }
}

static void quant_cache(const float *x, size_t n, int8_t *q, uint16_t *d)
{
    good.quant_cache(x, n, q, d);
    for (size_t i = 0; i < n; i++) {
        float step = hth_bf16_to_f32(d[i / HTH_ACT_BLOCK]);
        if (has_ties(step)) q[i] = (int8_t)away_round(x[i] / step);
    }
}

void away_kernels(hth_kernels *k, hth_cpu level)
{
    hth_kernels_init(&good, level);
    *k = good;
    k->quant_act = quant_act, k->quant_act_256 = quant_act_256, k->quant_cache = quant_cache;
}

hth_shader_ref_fn *const shaders_away[HTH_N_SHADER] = {
    [HTH_SHADER_fill] = away_fill, [HTH_SHADER_float_rules] = away_float_rules,
    [HTH_SHADER_norm_quantize] = away_norm_quantize,
    [HTH_SHADER_mul_mat_vec_q] = away_mul_mat_vec_q, [HTH_SHADER_mul_mat_vec_q_acc] = away_mul_mat_vec_q_acc,
    [HTH_SHADER_mul_mat_q] = away_mul_mat_vec_q, [HTH_SHADER_mul_mat_q_acc] = away_mul_mat_vec_q_acc,
    [HTH_SHADER_mul_mat_q_cm2] = away_mul_mat_vec_q, [HTH_SHADER_mul_mat_q_cm2_acc] = away_mul_mat_vec_q_acc,
    [HTH_SHADER_mul_mat_vec_f] = away_mul_mat_vec_f, [HTH_SHADER_mul_mat_vec_f_acc] = away_mul_mat_vec_f_acc,
    [HTH_SHADER_mul_mat_vec_f_sparse] = away_mul_mat_vec_f_sparse,
    [HTH_SHADER_mul_mat_vec_q_sparse] = away_mul_mat_vec_q_sparse,
    [HTH_SHADER_mul_mat_vec_q_sliced] = away_mul_mat_vec_q_sliced,
    [HTH_SHADER_mul_mat_q_sliced] = away_mul_mat_vec_q_sliced,
    [HTH_SHADER_mul_mat_q_cm2_sliced] = away_mul_mat_vec_q_sliced,
    [HTH_SHADER_mul_mat_vec_f_sliced] = away_mul_mat_vec_f_sliced,
    [HTH_SHADER_active_mask] = away_active_mask, [HTH_SHADER_act_quantize] = away_act_quantize,
    [HTH_SHADER_norm_add] = away_norm_add, [HTH_SHADER_soft_cap] = away_soft_cap,
    [HTH_SHADER_down_scale] = away_down_scale, [HTH_SHADER_down_q] = away_down_q,
    [HTH_SHADER_down_f] = away_down_f,
    [HTH_SHADER_down_scale_sliced] = away_down_scale_sliced,
    [HTH_SHADER_down_q_sliced] = away_down_q_sliced, [HTH_SHADER_down_f_sliced] = away_down_f_sliced,
    [HTH_SHADER_down_accumulate] = away_down_accumulate, [HTH_SHADER_down_reduce] = away_down_reduce,
    [HTH_SHADER_down_reduce_acc] = away_down_reduce_acc, [HTH_SHADER_rope_store] = away_rope_store,
    [HTH_SHADER_attn] = away_attn, [HTH_SHADER_attn_reduce] = away_attn_reduce,
    [HTH_SHADER_copy_page] = away_copy_page,
    /* These round no integers. */
    [HTH_SHADER_router_rows] = hth_ref_router_rows, [HTH_SHADER_route] = hth_ref_route,
    [HTH_SHADER_group_pairs] = hth_ref_group_pairs, [HTH_SHADER_pack_rows] = hth_ref_pack_rows,
    [HTH_SHADER_norm_groups] = hth_ref_norm_groups, [HTH_SHADER_mul_values] = hth_ref_mul_values,
    [HTH_SHADER_copy_values] = hth_ref_copy_values, [HTH_SHADER_conv] = hth_ref_conv,
    [HTH_SHADER_delta_rates] = hth_ref_delta_rates, [HTH_SHADER_delta_net] = hth_ref_delta_net,
    [HTH_SHADER_kda_rates] = hth_ref_kda_rates, [HTH_SHADER_kda] = hth_ref_kda,
    [HTH_SHADER_ssm_rates] = hth_ref_ssm_rates, [HTH_SHADER_ssm_scan] = hth_ref_ssm_scan,
};

static void truncate_all(hth_shader_id id, const hth_dispatch_args *c)
{
    fesetround(FE_TOWARDZERO);
    hth_shader_ref_table[id](c);
    fesetround(FE_TONEAREST);
}

#define SHADER(name, bindings, push, n_const)                                                               \
    static void truncate_##name(const hth_dispatch_args *c) { truncate_all(HTH_SHADER_##name, c); }
#include "device/shaders.def"
#undef SHADER

hth_shader_ref_fn *const shaders_truncating[HTH_N_SHADER] = {
#define SHADER(name, bindings, push, n_const) [HTH_SHADER_##name] = truncate_##name,
#include "device/shaders.def"
#undef SHADER
};
