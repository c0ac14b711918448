#version 450
/* x = cap tanh(x / cap) of the logits that are wanted (forward/gpu/shader_params.h: soft_cap). */
#extension GL_GOOGLE_include_directive : require
#include "floats.glsl"
#include "functions.glsl"

layout(local_size_x = 256) in;
layout(binding = 0) readonly buffer Step { uint step_words[]; };
layout(binding = 1) buffer X { float x[]; };
layout(push_constant) uniform Push { uint n; float cap, inverse; };

#include "step.glsl"

const uint STRETCH = 2048;

void main()
{
    if (gl_WorkGroupID.y >= step_words[STEP_N_WANT]) return;
    uint first = gl_WorkGroupID.x * STRETCH, count = min(n - first, STRETCH);
    for (uint i = gl_LocalInvocationID.x; i < count; i += gl_WorkGroupSize.x) {
        uint at = gl_WorkGroupID.y * n + first + i;
        precise float share = x[at] * inverse;
        precise float y = cap * tanh_by_rule(share);
        x[at] = y;
    }
}
