/* The table of programs, from programs.def. */
#include "device/programs.h"

const hth_program_form hth_program_forms[HTH_N_PROGRAM] = {
#define PROGRAM(name, bindings, push, n_const) {#name, bindings, push, n_const},
#include "device/programs.def"
#undef PROGRAM
};
