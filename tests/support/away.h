/* The programs of a device that rounds as it should, but ties away from zero: the text of calls_*.c once
 * more, whose names and roundings are replaced before it is included (away_*.c). */
#ifndef HEARTH_TESTS_SUPPORT_AWAY_H
#define HEARTH_TESTS_SUPPORT_AWAY_H

#include "base/bits.h"
#include "kernels/blocks.h"
#include "kernels/down.h"
#include "kernels/kernels.h"

/* What rounds, and what it is replaced by. */
int32_t away_round(float x);
float away_to_float(int64_t i);
void away_finish(const int64_t *wide, size_t n_out, float factor, float *y);
void away_kernels(hth_kernels *k, hth_cpu level);

#define hth_gpu_fill away_fill
#define hth_gpu_norm_round away_norm_round
#define hth_gpu_norm_add away_norm_add
#define hth_gpu_activate_round away_activate_round
#define hth_gpu_soft_cap away_soft_cap
#define hth_gpu_mark_live away_mark_live
#define hth_gpu_rows_q away_rows_q
#define hth_gpu_rows_q_onto away_rows_q_onto
#define hth_gpu_rows_q_live away_rows_q_live
#define hth_gpu_rows_f away_rows_f
#define hth_gpu_rows_f_onto away_rows_f_onto
#define hth_gpu_rows_f_live away_rows_f_live
#define hth_gpu_rope_store away_rope_store
#define hth_gpu_attend away_attend
#define hth_gpu_attend_join away_attend_join
#define hth_gpu_down_top away_down_top
#define hth_gpu_down_q away_down_q
#define hth_gpu_down_f away_down_f
#define hth_gpu_down_gather away_down_gather
#define hth_gpu_down_join away_down_join
#define hth_gpu_down_join_onto away_down_join_onto
#include "run/gpu/calls_int.h"

#endif
