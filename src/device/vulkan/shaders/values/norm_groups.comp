#version 450
/* Norms of groups of values (forward/gpu/shader_params.h: norm_groups). A workgroup has one group of a token. */
#extension GL_GOOGLE_include_directive : require
#include "floats.glsl"
#include "functions.glsl"
#include "step.glsl"

layout(constant_id = 0) const uint KIND = 1;
layout(local_size_x_id = 1) in;
layout(binding = 0) readonly buffer Step { uint step_words[]; };
layout(binding = 1) readonly buffer X { float x[]; };
layout(binding = 2) readonly buffer Weight { float weight[]; };
layout(binding = 3) readonly buffer Bias { float bias[]; };
layout(binding = 4) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Push
{
    uint width, own, has_bias;
    float eps, inv_n;
    uint x_stride, x_at, y_stride, y_at;
};

const uint KIND_LAYER = 2; /* HTH_KIND_LAYER */

shared float chains[8];

/* The sum of the values from `first` on, or of their squared distances from mean, in eight chains. */
float sum_of(uint first, bool squares, float mean)
{
    barrier();
    for (uint chain = gl_LocalInvocationID.x; chain < 8; chain += gl_WorkGroupSize.x) {
        precise float sum = 0.0;
        for (uint i = chain; i < width; i += 8) {
            precise float above = x[first + i] - mean;
            precise float square = above * above;
            precise float next = sum + (squares ? square : x[first + i]);
            sum = next;
        }
        chains[chain] = sum;
    }
    barrier();
    precise float all = ((chains[0] + chains[1]) + (chains[2] + chains[3])) +
                        ((chains[4] + chains[5]) + (chains[6] + chains[7]));
    return all;
}

void main()
{
    uint t = gl_WorkGroupID.y, group = gl_WorkGroupID.x;
    if (t >= step_words[STEP_N_TOK]) return;
    uint from = t * x_stride + x_at + group * width, to = t * y_stride + y_at + group * width;
    uint weight_at = own != 0 ? group * width : 0;
    precise float mean = 0.0;
    if (KIND == KIND_LAYER) mean = sum_of(from, false, 0.0) * inv_n;
    precise float variance = sum_of(from, true, mean) * inv_n + eps;
    float factor = rsqrt(variance);
    for (uint i = gl_LocalInvocationID.x; i < width; i += gl_WorkGroupSize.x) {
        precise float v = ((x[from + i] - mean) * factor) * weight[weight_at + i];
        if (has_bias != 0) v = v + bias[i];
        y[to + i] = v;
    }
}
