/* ref_attend.c of a device that fuses the products of attention with their sums: CMakeLists.txt lets the compiler do so
 * here. Only machines with fused operations can run it. */
#define hth_ref_rope_store fusing_rope_store
#define hth_ref_attn fusing_attn
#define hth_ref_copy_page fusing_copy_page
#include "forward/gpu/ref/ref_attend.c"

#include "support/device/shaders.h"

hth_shader_ref_fn *const shaders_fusing[HTH_N_SHADER] = {[HTH_SHADER_attn] = fusing_attn};
