#version 450
/* Merges the splits of attn ascending, and divides by the sum of all weights (forward/gpu/shader_params.h:
 * attn_reduce). */
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require

layout(constant_id = 0) const uint D_HEAD = 64;
const uint KV = 0; /* caches are not read */
layout(local_size_x_id = 1) in;
layout(binding = 0) readonly buffer Step { uint step_words[]; };
layout(binding = 1) readonly buffer Values { float values[]; };
layout(binding = 2) readonly buffer Parts { float parts[]; };
layout(binding = 3) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Push { uint n_head, window, n_split, spare; };

#include "floats.glsl"
#include "functions.glsl"
#include "step.glsl"
#include "attention.glsl"

/* Offset of split i of this workgroup's head and token. */
uint split_at(uint i) { return (gl_WorkGroupID.y * n_split + i) * n_head + gl_WorkGroupID.x; }
part part_at(uint i) { return part(parts[2 * split_at(i)], parts[2 * split_at(i) + 1]); }

/* Of this invocation: the splits so far. */
part total;
float sum;

/* Split i with its value, if there is one. */
void add_split(uint i, uint last, part now, float value)
{
    if (i > last) return;
    shares s = shares_of(total, now);
    sum = i == 0 ? value : merged(sum, value, s);
    if (i == 0) total = now;
    else total = merge(total, now, s);
}

void main()
{
    uint t = gl_WorkGroupID.y;
    if (t >= step_words[STEP_N_TOK]) return;
    uint position = position_of(t), last = position / SPLIT - first_seen(position, window) / SPLIT;
    for (uint i = gl_LocalInvocationID.x; i < D_HEAD; i += gl_WorkGroupSize.x) {
        total = part(0.0, 0.0), sum = 0.0;
        for (uint k = 0; k <= last; k += 4) { /* four are loaded before the first is used */
            part p[4];
            float value[4];
            [[unroll]] for (uint c = 0; c < 4; c++) {
                uint i_split = min(k + c, last);
                p[c] = part_at(i_split), value[c] = values[split_at(i_split) * D_HEAD + i];
            }
            add_split(k, last, p[0], value[0]), add_split(k + 1, last, p[1], value[1]);
            add_split(k + 2, last, p[2], value[2]), add_split(k + 3, last, p[3], value[3]);
        }
        y[(t * n_head + gl_WorkGroupID.x) * D_HEAD + i] = times(sum, rcp(total.sum));
    }
}
