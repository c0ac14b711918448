/* The table of the programs' functions of C. */
#include "run/gpu/calls.h"

#include "run/gpu/calls_int.h"

hth_program_fn *const hth_gpu_functions[HTH_N_PROGRAM] = {
    [HTH_PROGRAM_rows_q] = hth_gpu_rows_q,
    [HTH_PROGRAM_rows_q_onto] = hth_gpu_rows_q_onto,
    [HTH_PROGRAM_rows_f] = hth_gpu_rows_f,
    [HTH_PROGRAM_rows_f_onto] = hth_gpu_rows_f_onto,
};
