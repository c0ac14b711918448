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
layout(binding = 0) readonly buffer Step { uint step_words[]; };
layout(binding = 1) readonly buffer X { float x[]; };
layout(binding = 2) readonly buffer Weight { float weight[]; };
layout(binding = 3) readonly buffer Bias { float bias[]; };
layout(binding = 4) writeonly buffer Y { float y[]; };
layout(binding = 5) writeonly buffer Q { uint q[]; };
layout(binding = 6) writeonly buffer D { uint d[]; };
layout(binding = 7) writeonly buffer Sum { int sum[]; };
layout(push_constant) uniform Push { uint n, has_bias; float eps, inv_n; };

#include "step.glsl"
#include "quantize.glsl"

uint row; /* of x, this workgroup's */

float taken(uint i) { return x[row * n + i]; }

#include "norm.glsl"

void do_stretch(norm_of_row norm, uint first)
{
    uint count = min(n - first, STRETCH), at = gl_WorkGroupID.y * n + first;
    for (uint i = gl_LocalInvocationID.x; i < count; i += gl_WorkGroupSize.x) {
        float v = KIND == KIND_NONE ? taken(first + i) : normed(norm, first + i);
        if (STORE != 0) y[at + i] = v;
        value[i] = v;
    }
    if (BLOCK != 0) round_stretch(at, count);
}

void main()
{
    uint t = gl_WorkGroupID.y;
    if (t >= step_words[GATHER != 0 ? STEP_N_WANT : STEP_N_TOK]) return;
    row = GATHER != 0 ? step_words[STEP_ROWS + t * STEP_ROW_WORDS + STEP_WANT] : t;
    if (KIND == KIND_NONE) {
        do_stretch(norm_of_row(0.0, 1.0), gl_WorkGroupID.x * STRETCH);
    } else {
        norm_of_row norm = find_norm();
        for (uint first = 0; first < n; first += STRETCH) do_stretch(norm, first);
    }
}
