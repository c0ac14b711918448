/* The table of the programs' functions of C. */
#include "run/gpu/calls.h"

#include "run/gpu/calls_int.h"

hth_program_fn *const hth_gpu_functions[HTH_N_PROGRAM] = {
    [HTH_PROGRAM_norm_round] = hth_gpu_norm_round,
    [HTH_PROGRAM_activate_round] = hth_gpu_activate_round,
    [HTH_PROGRAM_norm_add] = hth_gpu_norm_add,
    [HTH_PROGRAM_soft_cap] = hth_gpu_soft_cap,
};
