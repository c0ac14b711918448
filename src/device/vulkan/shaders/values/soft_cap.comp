#version 450
/* x = cap tanh(x / cap) of the logits that are wanted (forward/gpu/shader_params.h: soft_cap). */
#extension GL_GOOGLE_include_directive : require
#include "floats.glsl"
#include "functions.glsl"

layout(local_size_x_id = 0) in;
layout(binding = 0) readonly buffer Step { uint step_words[]; };
layout(binding = 1) buffer X { float x[]; };
layout(push_constant) uniform Push { uint n; float cap, inverse; };

#include "step.glsl"
#include "vectors.glsl"

void main()
{
    if (gl_WorkGroupID.y >= step_words[STEP_N_WANT]) return;
    uint first = first_of_group(), end = min(n, first + WG_ELEMENTS);
    for (uint i = first + lane(); i < end; i += LANES) {
        uint at = gl_WorkGroupID.y * n + i;
        precise float share = x[at] * inverse;
        precise float y = cap * tanh_by_rule(share);
        x[at] = y;
    }
}
