/* The programs as functions of C, each beside its kin: calls_vectors.c, calls_rows.c, calls_attend.c. */
#ifndef HTH_RUN_GPU_CALLS_INT_H
#define HTH_RUN_GPU_CALLS_INT_H

#include "run/gpu/calls.h"

hth_program_fn hth_gpu_fill, hth_gpu_norm_round, hth_gpu_activate_round, hth_gpu_norm_add, hth_gpu_soft_cap;
hth_program_fn hth_gpu_rows_q, hth_gpu_rows_q_onto, hth_gpu_rows_f, hth_gpu_rows_f_onto;
hth_program_fn hth_gpu_rope_store, hth_gpu_attend, hth_gpu_attend_join;

hth_program_fn hth_gpu_down_top, hth_gpu_down_q, hth_gpu_down_f, hth_gpu_down_join, hth_gpu_down_join_onto;

#endif
