/* The table of the programs' functions of C. */
#include "run/gpu/calls.h"

#include "run/gpu/calls_int.h"

hth_program_fn *const hth_gpu_functions[HTH_N_PROGRAM] = {
    [HTH_PROGRAM_rope_store] = hth_gpu_rope_store,
    [HTH_PROGRAM_attend] = hth_gpu_attend,
    [HTH_PROGRAM_attend_join] = hth_gpu_attend_join,
};
