/* The shader table, from shaders.def. */
#include "device/shaders.h"

const hth_shader_info hth_shader_infos[HTH_N_SHADER] = {
#define SHADER(name, bindings, push, n_const) {#name, bindings, push, n_const},
#include "device/shaders.def"
#undef SHADER
};

#define SHADER(name, bindings, push, n_const)                                                                \
    _Static_assert(sizeof(bindings) - 1 <= HTH_SHADER_MAX_BIND && (push) <= HTH_SHADER_MAX_PUSH &&           \
                       (n_const) <= HTH_SHADER_MAX_CONST,                                                    \
                   #name " is within the limits of shaders.h");
#include "device/shaders.def"
#undef SHADER
