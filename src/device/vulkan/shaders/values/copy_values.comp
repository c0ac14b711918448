#version 450
/* Stretches of values, times a factor (forward/gpu/shader_params.h: copy_values). */
#extension GL_GOOGLE_include_directive : require
#include "floats.glsl"
#include "step.glsl"

layout(local_size_x_id = 0) in;
layout(binding = 0) readonly buffer Step { uint step_words[]; };
layout(binding = 1) readonly buffer X { float x[]; };
layout(binding = 2) readonly buffer By { float by[]; };
layout(binding = 3) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Push
{
    uint count, n, has_by;
    float factor;
    uint x_stride, x_at, y_stride, y_at, x_step, y_step;
};
#include "vectors.glsl"

void main()
{
    uint t = gl_WorkGroupID.y, end = min(count * n, first_of_group() + WG_ELEMENTS);
    if (t >= step_words[STEP_N_TOK]) return;
    for (uint i = first_of_group() + lane(); i < end; i += LANES) {
        precise float v = x[t * x_stride + x_at + i / n * x_step + i % n] * (has_by != 0 ? by[0] : factor);
        y[t * y_stride + y_at + i / n * y_step + i % n] = v;
    }
}
