#version 450
/* Merges the splits of attn ascending, and divides by the sum of all weights (forward/gpu/shader_params.h:
 * attn_reduce). */
#extension GL_GOOGLE_include_directive : require

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

void main()
{
    uint t = gl_WorkGroupID.y;
    if (t >= step_words[STEP_N_TOK]) return;
    uint position = position_of(t), last = position / SPLIT - first_seen(position, window) / SPLIT;
    for (uint i = gl_LocalInvocationID.x; i < D_HEAD; i += gl_WorkGroupSize.x) {
        part total = part_at(0);
        float sum = values[split_at(0) * D_HEAD + i];
        for (uint i_split = 1; i_split <= last; i_split++) {
            part now = part_at(i_split);
            shares s = shares_of(total, now);
            sum = merged(sum, values[split_at(i_split) * D_HEAD + i], s);
            total = merge(total, now, s);
        }
        y[(t * n_head + gl_WorkGroupID.x) * D_HEAD + i] = times(sum, rcp(total.sum));
    }
}
