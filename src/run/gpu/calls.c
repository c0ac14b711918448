/* The table of the programs' functions of C. */
#include "run/gpu/calls.h"

#include "run/gpu/calls_int.h"

hth_program_fn *const hth_gpu_functions[HTH_N_PROGRAM] = {0};
