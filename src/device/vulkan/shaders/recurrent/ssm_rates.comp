#version 450
/* Steps of selective state spaces (forward/gpu/shader_params.h: ssm_rates), in place of their products. */
#extension GL_GOOGLE_include_directive : require
#include "floats.glsl"
#include "functions.glsl"
#include "step.glsl"

layout(local_size_x_id = 0) in;
layout(binding = 0) readonly buffer Step { uint step_words[]; };
layout(binding = 1) buffer Delta { float delta[]; };
layout(push_constant) uniform Push { uint n, delta_stride, delta_at; };

void main()
{
    uint t = gl_WorkGroupID.y, i = gl_GlobalInvocationID.x;
    if (t >= step_words[STEP_N_TOK] || i >= n) return;
    uint at = t * delta_stride + delta_at + i;
    delta[at] = softplus(delta[at]);
}
