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
layout(constant_id = 6) const uint WIDE = 0;
layout(binding = 0) readonly buffer Step { uint step_words[]; };
layout(binding = 1) readonly buffer GateUp { float gate_up[]; };
layout(binding = 1) readonly buffer GateUp4 { vec4 gate_up_4[]; };
layout(binding = 2) readonly buffer Scores { float scores[]; };
layout(binding = 3) readonly buffer Thresholds { float thresholds[]; };
layout(binding = 4) writeonly buffer H { float h[]; };
layout(binding = 5) writeonly buffer Q { uint q[]; };
layout(binding = 6) writeonly buffer D { uint d[]; };
layout(binding = 7) writeonly buffer Sum { int sum[]; };
layout(push_constant) uniform Push
{
    uint d_ff, score_stride;
    float min_score, limit;
};

#include "step.glsl"
#include "vectors.glsl"
#include "quantize.glsl"
#include "select.glsl"

/* Inactive by either half: +0, whatever the other one is. */
bool is_dead(float gate, float up)
{
    return (KIND == RELU || KIND == RELU2 || KIND == DRELU) && is_off(gate) || KIND == DRELU && is_off(up);
}

/* Neuron i of a token; ungated: gate is up. Beyond the last neuron it has any value: a condition would keep the four of
 * an invocation from being computed side by side. */
float sent_on(uint t, uint i, float gate, float up)
{
    if (limit > 0.0) gate = GATED != 0 ? at_most(gate, limit) : limited(gate, limit), up = limited(up, limit);
    float activated = activation(gate);
    precise float product = activated * other_half(up);
    float sent = GATED == 0 ? activated : is_dead(gate, up) ? 0.0 : product;
    bool is_left_out = false;
    if (SELECT == PREDICTOR) is_left_out = is_below(scores[t * score_stride + min(i, d_ff - 1)], min_score);
    if (SELECT == THRESHOLD)
        is_left_out = is_below(uintBitsToFloat(floatBitsToUint(activated) & MAGNITUDE), thresholds[min(i, d_ff - 1)]);
    return is_left_out ? 0.0 : sent;
}

float half_at(uint at, uint i) { return i < d_ff ? gate_up[at + i] : 0.0; }

/* Values i to i + 3 of the half from `at` on. */
vec4 half_4(uint at, uint i)
{
    if (WIDE != 0) return gate_up_4[(at + min(i, d_ff - 4)) / 4];
    return vec4(half_at(at, i), half_at(at, i + 1), half_at(at, i + 2), half_at(at, i + 3));
}

void main()
{
    uint t = gl_WorkGroupID.y, first = first_of_group(), i = first_element();
    if (t >= step_words[STEP_N_TOK]) return;
    uint at = t * d_ff * (GATED != 0 ? 2 : 1);
    vec4 gate = half_4(at, i), up = GATED != 0 ? half_4(at + d_ff, i) : gate;
    vec4 v = vec4(sent_on(t, i, gate.x, up.x), sent_on(t, i + 1, gate.y, up.y), sent_on(t, i + 2, gate.z, up.z),
                  sent_on(t, i + 3, gate.w, up.w));
    for (uint k = 0; STORE != 0 && k < 4; k++)
        if (i + k < d_ff) h[t * d_ff + i + k] = v[k];
    if (BLOCK != 0) quantize_4(t * d_ff + first, min(d_ff - first, WG_ELEMENTS), v);
}
