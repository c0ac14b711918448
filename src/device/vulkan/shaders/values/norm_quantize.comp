#version 450
/* Norm of each token, and its 8-bit quantisation (forward/gpu/shader_params.h: norm_quantize). */
#extension GL_GOOGLE_include_directive : require
#include "floats.glsl"
#include "functions.glsl"

layout(constant_id = 0) const uint KIND = 0;
layout(constant_id = 1) const uint BLOCK = 0;
layout(constant_id = 2) const uint STORE = 0;
layout(constant_id = 3) const uint GATHER = 0;
layout(local_size_x_id = 4) in;
layout(constant_id = 5) const uint CHUNK = 0;
layout(constant_id = 6) const uint WIDE = 0;
layout(binding = 0) readonly buffer Step { uint step_words[]; };
layout(binding = 1) readonly buffer X { float x[]; };
layout(binding = 1) readonly buffer X4 { vec4 x_4[]; };
layout(binding = 2) readonly buffer Weight { float weight[]; };
layout(binding = 2) readonly buffer Weight4 { vec4 weights_4[]; };
layout(binding = 3) readonly buffer Bias { float bias[]; };
layout(binding = 3) readonly buffer Bias4 { vec4 biases_4[]; };
layout(binding = 4) writeonly buffer Y { float y[]; };
layout(binding = 5) writeonly buffer Q { uint q[]; };
layout(binding = 6) writeonly buffer D { uint d[]; };
layout(binding = 7) writeonly buffer Sum { int sum[]; };
layout(push_constant) uniform Push { uint n, has_bias; float eps, inv_n; };

#include "step.glsl"
#include "vectors.glsl"
#include "quantize.glsl"

uint row_at; /* in x, of this workgroup's row */

float taken(uint i) { return i < n ? x[row_at + i] : 0.0; }
vec4 taken_4(uint i) { return x_4[(row_at + i) / 4]; }

#include "norm.glsl"

void store(uint at, uint count, vec4 v)
{
    y[at] = v.x;
    if (count > 1) y[at + 1] = v.y;
    if (count > 2) y[at + 2] = v.z;
    if (count > 3) y[at + 3] = v.w;
}

void main()
{
    uint t = gl_WorkGroupID.y, first = first_of_group(), i = first_element();
    if (t >= step_words[GATHER != 0 ? STEP_N_WANT : STEP_N_TOK]) return;
    row_at = (GATHER != 0 ? step_words[STEP_ROWS + t * STEP_ROW_WORDS + STEP_WANT] : t) * n;
    vec4 v = vec4(0.0);
    if (KIND != KIND_NONE) v = normed_4();
    else if (i < n) v = any_4(i);
    if (STORE != 0 && i < n) store(t * n + i, n - i, v);
    if (BLOCK != 0) quantize_4(t * n + first, min(n - first, WG_ELEMENTS), v);
}
