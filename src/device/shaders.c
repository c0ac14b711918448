/* The shader table, from shaders.def. */
#include "device/shaders.h"

const hth_shader_info hth_shader_infos[HTH_N_SHADER] = {
#define SHADER(name, bindings, push, n_const) {#name, bindings, push, n_const},
#include "device/shaders.def"
#undef SHADER
};
