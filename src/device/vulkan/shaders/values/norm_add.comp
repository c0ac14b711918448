#version 450
/* Each token's row plus a block's output, after a post-norm where the architecture has one
 * (forward/gpu/shader_params.h: norm_add). */
#extension GL_GOOGLE_include_directive : require
#include "floats.glsl"
#include "functions.glsl"

layout(constant_id = 0) const uint KIND = 0;
layout(local_size_x_id = 1) in;
layout(constant_id = 2) const uint CHUNK = 0;
layout(constant_id = 3) const uint WIDE = 0;
layout(binding = 0) readonly buffer Step { uint step_words[]; };
layout(binding = 1) buffer X { float x[]; };
layout(binding = 2) readonly buffer Y { float y[]; };
layout(binding = 2) readonly buffer Y4 { vec4 y_4[]; };
layout(binding = 3) readonly buffer Weight { float weight[]; };
layout(binding = 3) readonly buffer Weight4 { vec4 weights_4[]; };
layout(binding = 4) readonly buffer Bias { float bias[]; };
layout(binding = 4) readonly buffer Bias4 { vec4 biases_4[]; };
layout(push_constant) uniform Push { uint n, has_bias; float eps, inv_n; };

#include "step.glsl"
#include "vectors.glsl"

float taken(uint i) { return i < n ? y[gl_WorkGroupID.y * n + i] : 0.0; }
vec4 taken_4(uint i) { return y_4[(gl_WorkGroupID.y * n + i) / 4]; }

#include "norm.glsl"

void put(uint at, float before, float more)
{
    precise float sum = before + more;
    x[at] = sum;
}

void main()
{
    uint i = first_element();
    if (gl_WorkGroupID.y >= step_words[STEP_N_TOK]) return;
    uvec4 of = gl_WorkGroupID.y * n + min(uvec4(i, i + 1, i + 2, i + 3), uvec4(n - 1));
    vec4 before = vec4(x[of.x], x[of.y], x[of.z], x[of.w]), v = vec4(0.0);
    if (KIND != KIND_NONE) v = normed_4();
    else if (i < n) v = any_4(i);
    if (i < n) put(of.x, before.x, v.x);
    if (i + 1 < n) put(of.y, before.y, v.y);
    if (i + 2 < n) put(of.z, before.z, v.z);
    if (i + 3 < n) put(of.w, before.w, v.w);
}
