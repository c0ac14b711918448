#version 450
/* Rates of Kimi Delta Attention (forward/gpu/shader_params.h: kda_rates), in place of their products. */
#extension GL_GOOGLE_include_directive : require
#include "floats.glsl"
#include "functions.glsl"
#include "step.glsl"

layout(local_size_x_id = 0) in;
layout(binding = 0) readonly buffer Step { uint step_words[]; };
layout(binding = 1) readonly buffer A { float a[]; };
layout(binding = 2) readonly buffer Dt { float dt[]; };
layout(binding = 3) buffer Beta { float beta[]; };
layout(binding = 4) buffer Decay { float decay[]; };
layout(push_constant) uniform Push
{
    uint n_head, d;
    uint beta_stride, beta_at, decay_stride, decay_at;
};

void main()
{
    uint t = gl_WorkGroupID.y, i = gl_GlobalInvocationID.x;
    if (t >= step_words[STEP_N_TOK] || i >= n_head * d) return;
    uint at = t * decay_stride + decay_at + i;
    precise float shifted = decay[at] + dt[i];
    precise float g = softplus(shifted) * a[i / d];
    decay[at] = exp_by_rule(g);
    if (i < n_head) beta[t * beta_stride + beta_at + i] = sigmoid(beta[t * beta_stride + beta_at + i]);
}
