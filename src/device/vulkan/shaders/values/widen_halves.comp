#version 450
/* Every half as a float, by the driver's conversion (device/vulkan/half_probe.c): y[h] of half h, and 65536 behind it its
 * product with 1 + (h / 2) % 8, which is exact. */
#extension GL_GOOGLE_include_directive : require
#include "floats.glsl"

layout(local_size_x = 64) in;
layout(binding = 0) writeonly buffer Y { float y[]; };

void main()
{
    uint i = gl_GlobalInvocationID.x;
    vec2 pair = unpackHalf2x16(2 * i | (2 * i + 1) << 16);
    y[2 * i] = pair.x;
    y[2 * i + 1] = pair.y;
    float factor = float(1 + (i & 7));
    precise float low = pair.x * factor, high = pair.y * factor;
    y[65536 + 2 * i] = low;
    y[65536 + 2 * i + 1] = high;
}
