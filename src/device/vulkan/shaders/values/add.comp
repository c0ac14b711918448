#version 450
/* y = a + b, n floats. */
#extension GL_GOOGLE_include_directive : require
#include "floats.glsl"

layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer A { float a[]; };
layout(binding = 1) readonly buffer B { float b[]; };
layout(binding = 2) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Push { uint n; };

void main()
{
    for (uint i = gl_GlobalInvocationID.x; i < n; i += gl_NumWorkGroups.x * gl_WorkGroupSize.x) {
        precise float sum = a[i] + b[i];
        y[i] = sum;
    }
}
