#version 450
/* Copies a page of a layer's keys and values (forward/gpu/shader_params.h: copy_page). */
#extension GL_GOOGLE_include_directive : require
#include "floats.glsl"

layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer Step { uint step_words[]; };
layout(binding = 1) buffer Keys { uint keys[]; };
layout(binding = 2) buffer Values { uint values[]; };
layout(push_constant) uniform Push { uint copy_at, head_words, n_word, n_value_word; };

void main()
{
    uint from = step_words[copy_at], to = step_words[copy_at + 1], head = gl_GlobalInvocationID.y * head_words;
    if (from == to) return;
    uint first = gl_GlobalInvocationID.x, stride = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    for (uint i = first; i < n_word; i += stride) keys[head + to * n_word + i] = keys[head + from * n_word + i];
    for (uint i = first; i < n_value_word; i += stride)
        values[head + to * n_value_word + i] = values[head + from * n_value_word + i];
}
