#version 450
/* A causal convolution along the tokens of a run (forward/gpu/shader_params.h: conv). An invocation has a channel of all
 * tokens, so that it reads the inputs before the run before it replaces them. */
#extension GL_GOOGLE_include_directive : require
#include "floats.glsl"
#include "functions.glsl"
#include "step.glsl"

layout(local_size_x_id = 0) in;
layout(binding = 0) readonly buffer Step { uint step_words[]; };
layout(binding = 1) readonly buffer X { float x[]; };
layout(binding = 2) readonly buffer Taps { float taps[]; };
layout(binding = 3) readonly buffer Bias { float bias[]; };
layout(binding = 4) buffer Ring { float ring[]; };
layout(binding = 5) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Push
{
    uint n_channel, d_conv, has_bias, silu_of, runs_at;
    uint x_stride, x_at, y_stride, y_at;
};
#include "runs.glsl"

const uint RING = 32, MAX_TAP = 16; /* HTH_CONV_RING, HTH_CONV_MAX_TAP */

uint slot(uint page, uint position, uint channel) { return (page * RING + position % RING) * n_channel + channel; }

void main()
{
    const uint channel = gl_GlobalInvocationID.x, n_before = d_conv - 1;
    if (gl_WorkGroupID.y >= step_words[STEP_N_RUN] || channel >= n_channel) return;
    const uint first = run_word(RUN_FIRST), n = run_word(RUN_N_TOK), position = run_word(RUN_POSITION);
    const uint from = run_word(RUN_STEP_FROM), to = run_word(RUN_STEP_TO);
    float before[MAX_TAP]; /* inputs of the run's predecessors, the oldest first */
    for (uint j = 0; j < n_before; j++) {
        bool any = position + j >= n_before;
        before[j] = any ? ring[slot(from, position + j - n_before, channel)] : 0.0;
    }
    for (uint t = 0; t < n; t++) {
        precise float sum = 0.0;
        for (uint j = 0; j < d_conv; j++) {
            uint at = t + j; /* among those before and those of the run */
            float input_at = at < n_before ? before[at]
                                           : x[(first + at - n_before) * x_stride + x_at + channel];
            precise float product = taps[j * n_channel + channel] * input_at;
            precise float next = j == 0 ? product : sum + product;
            sum = next;
        }
        if (has_bias != 0) sum = sum + bias[channel];
        y[(first + t) * y_stride + y_at + channel] = silu_of != 0 ? silu(sum) : sum;
    }
    for (uint j = 0; j < n_before; j++)
        if (position + j >= n_before) ring[slot(to, position + j - n_before, channel)] = before[j];
    for (uint t = n > RING ? n - RING : 0; t < n; t++)
        ring[slot(to, position + t, channel)] = x[(first + t) * x_stride + x_at + channel];
}
