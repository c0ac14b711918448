/* The shaders of a device that rounds to nearest, but ties away from zero: ref_*.c once more, whose names and
 * roundings are replaced before they are included (away_*.c). */
#ifndef HEARTH_TESTS_SUPPORT_KERNELS_AWAY_H
#define HEARTH_TESTS_SUPPORT_KERNELS_AWAY_H

#include "base/bits.h"
#include "kernels/quant/blocks.h"
#include "kernels/axpy/axpy.h"
#include "kernels/kernels.h"

/* What rounds, and what it is replaced by. */
int32_t away_round(float x);
float away_to_float(int64_t i);
void away_finish(const int64_t *acc64, size_t n_out, float *y);
void away_kernels(hth_kernels *k, hth_cpu level);

#define hth_gpu_fill away_fill
#define hth_ref_norm_quantize away_norm_quantize
#define hth_ref_norm_add away_norm_add
#define hth_ref_act_quantize away_act_quantize
#define hth_ref_float_rules away_float_rules
#define hth_ref_soft_cap away_soft_cap
#define hth_ref_active_mask away_active_mask
#define hth_ref_mul_mat_vec_q away_mul_mat_vec_q
#define hth_ref_mul_mat_vec_q_acc away_mul_mat_vec_q_acc
#define hth_ref_mul_mat_vec_q_sparse away_mul_mat_vec_q_sparse
#define hth_ref_mul_mat_vec_q_sliced away_mul_mat_vec_q_sliced
#define hth_ref_mul_mat_vec_f_sliced away_mul_mat_vec_f_sliced
#define hth_ref_mul_mat_vec_f away_mul_mat_vec_f
#define hth_ref_mul_mat_vec_f_acc away_mul_mat_vec_f_acc
#define hth_ref_mul_mat_vec_f_sparse away_mul_mat_vec_f_sparse
#define hth_ref_rope_store away_rope_store
#define hth_ref_attn away_attn
#define hth_ref_attn_reduce away_attn_reduce
#define hth_ref_copy_page away_copy_page
#define hth_ref_down_scale away_down_scale
#define hth_ref_down_q away_down_q
#define hth_ref_down_f away_down_f
#define hth_ref_down_scale_sliced away_down_scale_sliced
#define hth_ref_down_q_sliced away_down_q_sliced
#define hth_ref_down_f_sliced away_down_f_sliced
#define hth_ref_down_accumulate away_down_accumulate
#define hth_ref_down_reduce away_down_reduce
#define hth_ref_down_reduce_acc away_down_reduce_acc
#include "forward/gpu/ref/ref_int.h"

#endif
