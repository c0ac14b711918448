#version 450
/* Sums of the transposed down, accumulated in 64 bits (forward/gpu/shader_params.h: down_accumulate). */
#extension GL_GOOGLE_include_directive : require
#include "floats.glsl"
#include "step.glsl"
#include "down.glsl"
#include "int64.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint HOST = 0;

layout(binding = 0) readonly buffer Step { uint step_block[]; };
layout(binding = 1) readonly buffer Sums { uint sums[]; };
layout(binding = 2) buffer Acc64 { uint acc64[]; };
layout(binding = 3) readonly buffer Host { uint host[]; };
layout(binding = 4) readonly buffer Scales { float scales[]; };
layout(push_constant) uniform Push { uint n_out, n_split, first_tok, start, first, n_cluster; };

void main()
{
    const uint i_tok = gl_WorkGroupID.y, t = first_tok + i_tok, o = gl_GlobalInvocationID.x;
    if (t >= step_block[STEP_N_TOK] || o >= n_out) return;
    uint at = HOST_SUMS + 2 * (t * n_out + o);
    uvec2 total = start != 0 ? uvec2(0) : uvec2(acc64[at], acc64[at + 1]);
    for (uint s = 0; s < n_split; s++) {
        float scale = scales[t * n_cluster + (first + s * SPLIT) / CLUSTER];
        total = add_int64(total, fixed_of_sum(sums[(i_tok * n_split + s) * n_out + o], scale));
    }
    if (HOST > 0 && host[0] == HOST_SUMS_VALID) total = add_int64(total, uvec2(host[at], host[at + 1]));
    acc64[at] = total.x;
    acc64[at + 1] = total.y;
    if (start != 0 && o == 0 && i_tok == 0) acc64[0] = HOST_SUMS_VALID;
    if (HOST > 0 && host[0] == HOST_SUMS_OVERFLOW && o == 0 && i_tok == 0) acc64[0] = HOST_SUMS_OVERFLOW;
}
