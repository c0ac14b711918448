#version 450
/* Each token's row plus a block's output, after a post-norm where the architecture has one
 * (forward/gpu/shader_params.h: norm_add). */
#extension GL_GOOGLE_include_directive : require
#include "floats.glsl"
#include "functions.glsl"

layout(constant_id = 0) const uint KIND = 0;
layout(local_size_x_id = 1) in;
layout(binding = 0) readonly buffer Step { uint step_words[]; };
layout(binding = 1) buffer X { float x[]; };
layout(binding = 2) readonly buffer Y { float y[]; };
layout(binding = 3) readonly buffer Weight { float weight[]; };
layout(binding = 4) readonly buffer Bias { float bias[]; };
layout(push_constant) uniform Push { uint n, has_bias; float eps, inv_n; };

#include "step.glsl"

const uint STRETCH = 2048;
shared float value[STRETCH];

float taken(uint i) { return y[gl_WorkGroupID.y * n + i]; }

#include "norm.glsl"

void main()
{
    if (gl_WorkGroupID.y >= step_words[STEP_N_TOK]) return;
    norm_of_row norm = norm_of_row(0.0, 1.0);
    if (KIND != KIND_NONE) norm = find_norm();
    for (uint i = gl_LocalInvocationID.x; i < n; i += gl_WorkGroupSize.x) {
        uint at = gl_WorkGroupID.y * n + i;
        float more = KIND == KIND_NONE ? taken(i) : normed(norm, i);
        precise float sum = x[at] + more;
        x[at] = sum;
    }
}
