/* The programs of a device that rounds as it should, but ties away from zero: the text of calls_*.c once
 * more, whose names and roundings are replaced before it is included (away_*.c). */
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
#define hth_ref_norm_quantize away_norm_round
#define hth_ref_norm_add away_norm_add
#define hth_ref_act_quantize away_activate_round
#define hth_ref_soft_cap away_soft_cap
#define hth_ref_active_mask away_mark_live
#define hth_ref_mul_mat_vec_q away_rows_q
#define hth_ref_mul_mat_vec_q_acc away_rows_q_onto
#define hth_ref_mul_mat_vec_q_sparse away_rows_q_live
#define hth_ref_mul_mat_vec_f away_rows_f
#define hth_ref_mul_mat_vec_f_acc away_rows_f_onto
#define hth_ref_mul_mat_vec_f_sparse away_rows_f_live
#define hth_ref_rope_store away_rope_store
#define hth_ref_attn away_attend
#define hth_ref_attn_reduce away_attend_join
#define hth_ref_down_scale away_down_top
#define hth_ref_down_q away_down_q
#define hth_ref_down_f away_down_f
#define hth_ref_down_accumulate away_down_gather
#define hth_ref_down_reduce away_down_join
#define hth_ref_down_reduce_acc away_down_join_onto
#include "forward/gpu/ref_int.h"

#endif
