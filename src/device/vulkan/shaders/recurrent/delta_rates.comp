#version 450
/* Steps and decays of gated DeltaNet (forward/gpu/shader_params.h: delta_rates). */
#extension GL_GOOGLE_include_directive : require
#include "floats.glsl"
#include "functions.glsl"
#include "step.glsl"

layout(local_size_x_id = 0) in;
layout(binding = 0) readonly buffer Step { uint step_words[]; };
layout(binding = 1) readonly buffer Beta { float beta[]; };
layout(binding = 2) readonly buffer Decay { float decay[]; };
layout(binding = 3) readonly buffer A { float a[]; };
layout(binding = 4) readonly buffer Dt { float dt[]; };
layout(binding = 5) writeonly buffer ToBeta { float to_beta[]; };
layout(binding = 6) writeonly buffer ToDecay { float to_decay[]; };
layout(push_constant) uniform Push
{
    uint n_head, n_shared, joined;
    uint beta_stride, beta_at, decay_stride, decay_at, to_beta_stride, to_beta_at, to_decay_stride, to_decay_at;
};

void main()
{
    uint t = gl_WorkGroupID.y, i = gl_GlobalInvocationID.x;
    if (t >= step_words[STEP_N_TOK] || i >= n_head) return;
    uint at = joined != 0 ? i / n_shared * 2 * n_shared + i % n_shared : i, beta_row = t * beta_stride + beta_at + at;
    float raw = joined != 0 ? beta[beta_row + n_shared] : decay[t * decay_stride + decay_at + at];
    precise float shifted = raw + dt[i];
    precise float g = a[i] * softplus(shifted);
    to_beta[t * to_beta_stride + to_beta_at + i] = sigmoid(beta[beta_row]);
    to_decay[t * to_decay_stride + to_decay_at + i] = g;
}
