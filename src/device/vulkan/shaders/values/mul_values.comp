#version 450
/* Products of values, of which one goes through a function (forward/gpu/shader_params.h: mul_values). */
#extension GL_GOOGLE_include_directive : require
#include "floats.glsl"
#include "functions.glsl"
#include "step.glsl"

layout(constant_id = 0) const uint FORM = 0; /* hth_mul_form: */
layout(local_size_x_id = 1) in;
layout(binding = 0) readonly buffer Step { uint step_words[]; };
layout(binding = 1) readonly buffer A { float a[]; };
layout(binding = 2) readonly buffer B { float b[]; };
layout(binding = 3) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Push
{
    uint n, by_head;
    uint a_stride, a_at, b_stride, b_at, y_stride, y_at;
};
#include "vectors.glsl"

const uint SIGMOID = 1, SOFTPLUS = 2, SILU = 3, GELU = 4;

float f(float x)
{
    if (FORM == SIGMOID) return sigmoid(x);
    if (FORM == SOFTPLUS) return softplus(x);
    if (FORM == SILU) return silu(x);
    return FORM == GELU ? gelu(x) : x;
}

void main()
{
    uint t = gl_WorkGroupID.y, end = min(n, first_of_group() + WG_ELEMENTS);
    if (t >= step_words[STEP_N_TOK]) return;
    for (uint i = first_of_group() + lane(); i < end; i += LANES) {
        uint i_a = by_head > 0 ? i / by_head : i;
        precise float product = f(a[t * a_stride + a_at + i_a]) * b[t * b_stride + b_at + i];
        y[t * y_stride + y_at + i] = product;
    }
}
