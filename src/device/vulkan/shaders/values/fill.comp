#version 450
/* n words of a value. */
#extension GL_GOOGLE_include_directive : require
#include "floats.glsl"

layout(local_size_x = 64) in;
layout(binding = 0) writeonly buffer Y { uint y[]; };
layout(push_constant) uniform Push { uint n, value; };

void main()
{
    for (uint i = gl_GlobalInvocationID.x; i < n; i += gl_NumWorkGroups.x * gl_WorkGroupSize.x) y[i] = value;
}
