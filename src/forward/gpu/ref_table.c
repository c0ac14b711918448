/* The table of the shaders as C functions. */
#include "forward/gpu/shader_params.h"

#include "forward/gpu/ref_int.h"

hth_shader_ref_fn *const hth_shader_ref_table[HTH_N_SHADER] = {
    [HTH_SHADER_fill] = hth_gpu_fill,
    [HTH_SHADER_float_rules] = hth_ref_float_rules,
    [HTH_SHADER_norm_quantize] = hth_ref_norm_quantize,
    [HTH_SHADER_mul_mat_vec_q] = hth_ref_mul_mat_vec_q,
    [HTH_SHADER_mul_mat_vec_q_acc] = hth_ref_mul_mat_vec_q_acc,
    [HTH_SHADER_mul_mat_q] = hth_ref_mul_mat_vec_q,
    [HTH_SHADER_mul_mat_q_acc] = hth_ref_mul_mat_vec_q_acc,
    [HTH_SHADER_mul_mat_q_cm2] = hth_ref_mul_mat_vec_q,
    [HTH_SHADER_mul_mat_q_cm2_acc] = hth_ref_mul_mat_vec_q_acc,
    [HTH_SHADER_mul_mat_vec_f] = hth_ref_mul_mat_vec_f,
    [HTH_SHADER_mul_mat_vec_f_acc] = hth_ref_mul_mat_vec_f_acc,
    [HTH_SHADER_active_mask] = hth_ref_active_mask,
    [HTH_SHADER_mul_mat_vec_q_sparse] = hth_ref_mul_mat_vec_q_sparse,
    [HTH_SHADER_mul_mat_vec_f_sparse] = hth_ref_mul_mat_vec_f_sparse,
    [HTH_SHADER_mul_mat_vec_q_sliced] = hth_ref_mul_mat_vec_q_sliced,
    [HTH_SHADER_mul_mat_vec_f_sliced] = hth_ref_mul_mat_vec_f_sliced,
    [HTH_SHADER_act_quantize] = hth_ref_act_quantize,
    [HTH_SHADER_norm_add] = hth_ref_norm_add,
    [HTH_SHADER_soft_cap] = hth_ref_soft_cap,
    [HTH_SHADER_down_scale] = hth_ref_down_scale,
    [HTH_SHADER_down_q] = hth_ref_down_q,
    [HTH_SHADER_down_f] = hth_ref_down_f,
    [HTH_SHADER_down_accumulate] = hth_ref_down_accumulate,
    [HTH_SHADER_down_reduce] = hth_ref_down_reduce,
    [HTH_SHADER_down_reduce_acc] = hth_ref_down_reduce_acc,
    [HTH_SHADER_rope_store] = hth_ref_rope_store,
    [HTH_SHADER_attn] = hth_ref_attn,
    [HTH_SHADER_attn_reduce] = hth_ref_attn_reduce,
    [HTH_SHADER_copy_page] = hth_ref_copy_page,
};
