/* The table of the programs' functions of C. */
#include "run/gpu/calls.h"

#include "run/gpu/calls_int.h"

hth_program_fn *const hth_gpu_functions[HTH_N_PROGRAM] = {
    [HTH_PROGRAM_fill] = hth_gpu_fill,
    [HTH_PROGRAM_norm_round] = hth_gpu_norm_round,
    [HTH_PROGRAM_rows_q] = hth_gpu_rows_q,
    [HTH_PROGRAM_rows_q_onto] = hth_gpu_rows_q_onto,
    [HTH_PROGRAM_tile_q] = hth_gpu_rows_q,
    [HTH_PROGRAM_tile_q_onto] = hth_gpu_rows_q_onto,
    [HTH_PROGRAM_tile_q_cm2] = hth_gpu_rows_q,
    [HTH_PROGRAM_tile_q_cm2_onto] = hth_gpu_rows_q_onto,
    [HTH_PROGRAM_rows_f] = hth_gpu_rows_f,
    [HTH_PROGRAM_rows_f_onto] = hth_gpu_rows_f_onto,
    [HTH_PROGRAM_mark_live] = hth_gpu_mark_live,
    [HTH_PROGRAM_rows_q_live] = hth_gpu_rows_q_live,
    [HTH_PROGRAM_rows_f_live] = hth_gpu_rows_f_live,
    [HTH_PROGRAM_activate_round] = hth_gpu_activate_round,
    [HTH_PROGRAM_norm_add] = hth_gpu_norm_add,
    [HTH_PROGRAM_soft_cap] = hth_gpu_soft_cap,
    [HTH_PROGRAM_down_top] = hth_gpu_down_top,
    [HTH_PROGRAM_down_q] = hth_gpu_down_q,
    [HTH_PROGRAM_down_f] = hth_gpu_down_f,
    [HTH_PROGRAM_down_gather] = hth_gpu_down_gather,
    [HTH_PROGRAM_down_join] = hth_gpu_down_join,
    [HTH_PROGRAM_down_join_onto] = hth_gpu_down_join_onto,
    [HTH_PROGRAM_rope_store] = hth_gpu_rope_store,
    [HTH_PROGRAM_attend] = hth_gpu_attend,
    [HTH_PROGRAM_attend_join] = hth_gpu_attend_join,
};
