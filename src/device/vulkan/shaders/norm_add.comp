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

void add(uint at, float more)
{
    precise float sum = x[at] + more;
    x[at] = sum;
}

void main()
{
    uint i = first_element(), at = gl_WorkGroupID.y * n + i;
    if (gl_WorkGroupID.y >= step_words[STEP_N_TOK]) return;
    vec4 v = vec4(0.0);
    if (KIND == KIND_NONE) {
        if (i < n) v = any_4(i);
    } else {
        affine a = load_affine();
        v = normed_4(find_norm(), a);
    }
    if (i < n) add(at, v.x);
    if (i + 1 < n) add(at + 1, v.y);
    if (i + 2 < n) add(at + 2, v.z);
    if (i + 3 < n) add(at + 3, v.w);
}
