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
    float calib_max, scale_max;
};

const uint MAGNITUDES = 0x7fffffffu;
shared uint largest[LOCAL];

int exponent(float x) { return int(floatBitsToUint(x) >> 23) - 127; }

float power_of_two(float h_max)
{
    float d_max = uintBitsToFloat(floatBitsToUint(scale_max) & MAGNITUDES);
    precise float product = h_max * d_max;
    int k = ((floatBitsToUint(product) & 0x7fffffu) > 0x7ffc00u ? 13 : 14) - exponent(product);
    int k_max = min(126 - exponent(h_max), 100);
    if (exponent(product) == 128 || k < -100) return 0.0;
    return uintBitsToFloat(uint(min(k, k_max) + 127) << 23);
}

void main()
{
    const uint t = gl_WorkGroupID.y, lane = gl_LocalInvocationID.x;
    if (t >= step_block[STEP_N_TOK]) return;
    uint absmax = 0;
    for (uint i = lane; i < n; i += LOCAL) absmax = max(absmax, hidden[t * stride + i] & MAGNITUDES);
    largest[lane] = absmax;
    barrier();
    if (lane > 0) return;
    for (uint i = 1; i < LOCAL; i++) absmax = max(absmax, largest[i]);
    /* Magnitudes compare as integers, NaN as the largest. */
    uint bound = floatBitsToUint(calib_max) & MAGNITUDES;
    top[2 * t] = floatBitsToUint(power_of_two(uintBitsToFloat(absmax <= bound ? bound : absmax)));
    top[2 * t + 1] = absmax;
}
