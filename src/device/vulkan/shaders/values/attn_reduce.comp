#version 450
/* Merges the splits of attn ascending, divides by the sum of all weights, and quantises the row
 * (forward/gpu/shader_params.h: attn_reduce). */
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require

layout(constant_id = 0) const uint D_HEAD = 64;
layout(constant_id = 1) const uint BLOCK = 0;
layout(constant_id = 2) const uint STORE = 0;
layout(local_size_x_id = 3) in;
layout(constant_id = 4) const uint SINKS = 0;
layout(binding = 0) readonly buffer Step { uint step_words[]; };
layout(binding = 1) readonly buffer Values { vec4 values[]; };
layout(binding = 2) readonly buffer Parts { vec2 parts[]; };
layout(binding = 3) writeonly buffer Y { vec4 y[]; };
layout(binding = 4) writeonly buffer Q { uint q[]; };
layout(binding = 5) writeonly buffer D { uint d[]; };
layout(binding = 6) writeonly buffer Sum { int sum[]; };
layout(binding = 7) readonly buffer Terms { float terms[]; };
layout(push_constant) uniform Push { uint n_head, window, n_split, chunk; };

#include "floats.glsl"
#include "functions.glsl"
#include "step.glsl"
#include "splits.glsl"
#include "vectors.glsl"
#include "quantize.glsl"

/* Of this invocation: the splits so far. */
part total;
vec4 merged_values;

/* Split i with its values, if there is one. */
void add_split(uint i, uint last, part now, vec4 value)
{
    if (i > last) return;
    shares s = shares_of(total, now);
    vec4 before = merged_values;
    vec4 both = vec4(merged(before.x, value.x, s), merged(before.y, value.y, s), merged(before.z, value.z, s),
                     merged(before.w, value.w, s));
    merged_values = i == 0 ? value : both;
    if (i == 0) total = now;
    else total = merge(total, now, s);
}

/* A sink is a last split without values. */
void add_sink(uint head)
{
    part sink = part(terms[head], 1.0);
    shares s = shares_of(total, sink);
    total = merge(total, sink, s);
    merged_values = vec4(times(merged_values.x, s.before), times(merged_values.y, s.before),
                         times(merged_values.z, s.before), times(merged_values.w, s.before));
}

/* Four elements of one head from number `element` of a row of n on; last: the token's last split. */
vec4 reduced(uint t, uint n, uint element, uint last)
{
    total = part(0.0, 0.0), merged_values = vec4(0.0);
    for (uint k = 0; k <= last; k += 4) { /* four are loaded before the first is used */
        part p[4];
        vec4 value[4];
        [[unroll]] for (uint c = 0; c < 4; c++) {
            uint split = t * n_split + min(k + c, last);
            vec2 largest_and_sum = parts[split * n_head + element / D_HEAD];
            p[c] = part(largest_and_sum.x, largest_and_sum.y), value[c] = values[(split * n + element) / 4];
        }
        add_split(k, last, p[0], value[0]), add_split(k + 1, last, p[1], value[1]);
        add_split(k + 2, last, p[2], value[2]), add_split(k + 3, last, p[3], value[3]);
    }
    if (SINKS != 0) add_sink(element / D_HEAD);
    float r = rcp(total.sum);
    return vec4(times(merged_values.x, r), times(merged_values.y, r), times(merged_values.z, r),
                times(merged_values.w, r));
}

void main()
{
    uint t = gl_WorkGroupID.y, n = n_head * D_HEAD, first = first_of_group(), i = first_element();
    if (t >= step_words[STEP_N_TOK]) return;
    uint position = position_of(t), last = position / SPLIT - first_seen(position, window, chunk) / SPLIT;
    vec4 v = vec4(0.0);
    if (i < n) v = reduced(t, n, i, last);
    if (STORE != 0 && i < n) y[(t * n + i) / 4] = v;
    if (BLOCK != 0) quantize_4(t * n + first, min(n - first, WG_ELEMENTS), v);
}
