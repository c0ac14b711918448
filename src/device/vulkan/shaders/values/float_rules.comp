#version 450
/* What the device makes of floats (forward/gpu/shader_params.h: float_rules): a product and a sum of each pair, and
 * both comparisons. */
#extension GL_GOOGLE_include_directive : require
#include "floats.glsl"

layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer A { float a[]; };
layout(binding = 1) readonly buffer B { float b[]; };
layout(binding = 2) writeonly buffer Y { uint y[]; };
layout(push_constant) uniform Push { uint n; };

void main()
{
    uint i = gl_GlobalInvocationID.x;
    if (i >= n) return;
    precise float product = a[i] * b[i];
    precise float sum = a[i] + b[i];
    y[3 * i] = floatBitsToUint(product);
    y[3 * i + 1] = floatBitsToUint(sum);
    y[3 * i + 2] = (is_below(a[i], b[i]) ? 1u : 0u) + (is_zero(a[i]) ? 2u : 0u);
}
