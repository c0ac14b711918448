#version 450
/* Activation of neurons, and its 8-bit quantisation (forward/gpu/shader_params.h: act_quantize). */
#extension GL_GOOGLE_include_directive : require
#include "floats.glsl"
#include "functions.glsl"

layout(constant_id = 0) const uint KIND = 0;
layout(constant_id = 1) const uint GATED = 0;
layout(constant_id = 2) const uint BLOCK = 0;
layout(constant_id = 3) const uint STORE = 0;
layout(local_size_x_id = 4) in;
layout(constant_id = 5) const uint SELECT = 0;
layout(binding = 0) readonly buffer Step { uint step_words[]; };
layout(binding = 1) readonly buffer GateUp { float gate_up[]; };
layout(binding = 2) readonly buffer Scores { float scores[]; };
layout(binding = 3) readonly buffer Thresholds { float thresholds[]; };
layout(binding = 4) writeonly buffer H { float h[]; };
layout(binding = 5) writeonly buffer Q { uint q[]; };
layout(binding = 6) writeonly buffer D { uint d[]; };
layout(binding = 7) writeonly buffer Sum { int sum[]; };
layout(push_constant) uniform Push
{
    uint d_ff, score_stride;
    float min_score;
};

#include "step.glsl"
#include "quantize.glsl"
#include "select.glsl"

/* Inactive by either half: +0, whatever the other one is. */
bool is_dead(float gate, float up)
{
    return (KIND == RELU || KIND == RELU2 || KIND == DRELU) && is_off(gate) || KIND == DRELU && is_off(up);
}

float sent_on(uint token, uint i)
{
    if (GATED == 0) return activation(gate_up[token * d_ff + i]);
    float gate = gate_up[token * 2 * d_ff + i], up = gate_up[token * 2 * d_ff + d_ff + i];
    precise float product = activation(gate) * (KIND == DRELU ? relu(up) : up);
    return is_dead(gate, up) ? 0.0 : product;
}

bool is_left_out(uint token, uint i)
{
    if (SELECT == PREDICTOR) return is_below(scores[token * score_stride + i], min_score);
    if (SELECT != THRESHOLD) return false;
    float first = GATED == 0 ? gate_up[token * d_ff + i] : gate_up[token * 2 * d_ff + i];
    return is_below(uintBitsToFloat(floatBitsToUint(activation(first)) & 0x7fffffffu), thresholds[i]);
}

void main()
{
    uint t = gl_WorkGroupID.y, first = gl_WorkGroupID.x * STRETCH;
    if (t >= step_words[STEP_N_TOK]) return;
    uint count = min(d_ff - first, STRETCH), at = t * d_ff + first;
    for (uint i = gl_LocalInvocationID.x; i < count; i += gl_WorkGroupSize.x) {
        float v = is_left_out(t, first + i) ? 0.0 : sent_on(t, first + i);
        if (STORE != 0) h[at + i] = v;
        value[i] = v;
    }
    if (BLOCK != 0) round_stretch(at, count);
}
