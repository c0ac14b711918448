#version 450
/* The largest |h| of a token, and the power of two for its coefficients (forward/gpu/shader_params.h:
 * down_absmax). */
#extension GL_GOOGLE_include_directive : require
#include "floats.glsl"
#include "step.glsl"

layout(local_size_x_id = 0) in;
const uint LOCAL = gl_WorkGroupSize.x;

layout(binding = 0) readonly buffer Step { uint step_block[]; };
layout(binding = 1) readonly buffer Hidden { uint hidden[]; };
layout(binding = 2) writeonly buffer Top { uint top[]; };
layout(push_constant) uniform Push
{
    uint n, stride;
    float usual, scale_top;
};

const uint MAGNITUDES = 0x7fffffffu;
shared uint largest[LOCAL];

int exponent(float x) { return int(floatBitsToUint(x) >> 23) - 127; }

float power_of_two(float h_max)
{
    float d_max = uintBitsToFloat(floatBitsToUint(scale_top) & MAGNITUDES);
    precise float product = h_max * d_max;
    int k = ((floatBitsToUint(product) & 0x7fffffu) > 0x7ffc00u ? 13 : 14) - exponent(product);
    int most = min(126 - exponent(h_max), 100);
    if (exponent(product) == 128 || k < -100) return 0.0;
    return uintBitsToFloat(uint(min(k, most) + 127) << 23);
}

void main()
{
    const uint t = gl_WorkGroupID.y, lane = gl_LocalInvocationID.x;
    if (t >= step_block[STEP_N_TOK]) return;
    uint most = 0;
    for (uint i = lane; i < n; i += LOCAL) most = max(most, hidden[t * stride + i] & MAGNITUDES);
    largest[lane] = most;
    barrier();
    if (lane > 0) return;
    for (uint i = 1; i < LOCAL; i++) most = max(most, largest[i]);
    /* Magnitudes compare as integers, NaN as the largest. */
    uint bound = floatBitsToUint(usual) & MAGNITUDES;
    top[2 * t] = floatBitsToUint(power_of_two(uintBitsToFloat(most <= bound ? bound : most)));
    top[2 * t + 1] = most;
}
