#version 450
/* Which neurons may be active, one bit each (forward/gpu/shader_params.h: active_mask). */
#extension GL_GOOGLE_include_directive : require
#include "floats.glsl"
#include "functions.glsl"

layout(constant_id = 0) const uint KIND = 0;
layout(constant_id = 1) const uint SELECT = 0;
layout(constant_id = 2) const uint HALF = 0;
layout(local_size_x_id = 3) in;
const uint LOCAL = gl_WorkGroupSize.x;
layout(binding = 0) readonly buffer Step { uint step_words[]; };
layout(binding = 1) readonly buffer Half { float half_sums[]; };
layout(binding = 2) readonly buffer Scores { float scores[]; };
layout(binding = 3) readonly buffer Thresholds { float thresholds[]; };
layout(binding = 4) writeonly buffer Mask { uint mask[]; };
layout(push_constant) uniform Push
{
    uint n, stride, score_stride;
    float min_score;
};

#include "step.glsl"
#include "select.glsl"

shared uint bits[LOCAL];

bool is_ruled_out(uint token, uint i)
{
    if (SELECT == PREDICTOR && is_below(scores[token * score_stride + i], min_score)) return true;
    if (HALF == 0) return false;
    float x = half_sums[token * stride + i];
    if (SELECT != THRESHOLD) return is_off(x);
    return is_below(uintBitsToFloat(floatBitsToUint(activation(x)) & MAGNITUDE), thresholds[i]);
}

void main()
{
    const uint i = gl_GlobalInvocationID.x, lane = gl_LocalInvocationID.x;
    bool any = false;
    for (uint t = 0; t < step_words[STEP_N_TOK] && i < n; t++) any = any || !is_ruled_out(t, i);
    bits[lane] = any ? 1u << lane % 32 : 0u;
    barrier();
    if (lane % 32 > 0 || i >= n) return;
    uint word = bits[lane];
    for (uint k = 1; k < 32; k++) word |= bits[lane + k];
    mask[i / 32] = word;
}
