/* Sums of the transposed down to floats (forward/gpu/shader_params.h: down_reduce). ONTO: added to y. */
#include "floats.glsl"
#include "step.glsl"
#include "down.glsl"
#include "int64.glsl"

layout(local_size_x_id = 0) in;
const uint LOCAL = gl_WorkGroupSize.x;
layout(constant_id = 1) const uint FLOATS = 0;
layout(constant_id = 2) const uint HOST = 0;
layout(constant_id = 3) const uint GROUPS = 1;
const uint LANES = LOCAL / GROUPS; /* outputs; GROUPS of invocations divide an output's sums */

layout(binding = 0) readonly buffer Step { uint step_block[]; };
layout(binding = 1) readonly buffer Sums { uint sums[]; }; /* int32, or bits of floats */
layout(binding = 2) readonly buffer Scales { float scales[]; };
layout(binding = 3) readonly buffer Host { uint host[]; };
layout(binding = 4) readonly buffer Bias { float bias[]; };
#ifdef ONTO
layout(binding = 5) buffer Y { float y[]; };
#else
layout(binding = 5) writeonly buffer Y { float y[]; };
#endif
layout(push_constant) uniform Push { uint n_out, n_split, has_bias, first_tok, n_cluster; };

const uint NOT_A_NUMBER = 0x7fc00000u;

shared uvec3 group_totals[LOCAL];

/* trunc(x 2^32) for |x| < 2^23: the mantissa, shifted. */
uvec2 fixed_point(uint bits)
{
    uint magnitude = bits & 0x7fffffffu;
    int left = int(magnitude >> 23) - 127 - 23 + 32; /* of a normal number's 24 bits: below 32 */
    uint mantissa = (magnitude & 0x7fffffu) | 0x800000u;
    uvec2 acc64 = uvec2(0);
    if (left > 0) acc64 = uvec2(mantissa << left, mantissa >> (32 - left));
    else if (left > -24) acc64 = uvec2(mantissa >> -left, 0);
    return (bits & 0x80000000u) != 0 ? negative(acc64) : acc64;
}

/* Rounded to nearest even, once. */
float to_float(uvec2 acc64)
{
    bool is_negative = int(acc64.y) < 0;
    if (is_negative) acc64 = negative(acc64);
    int last = acc64.y != 0 ? 32 + findMSB(acc64.y) : findMSB(acc64.x);
    int shift = last - 23; /* bits beyond the 24 */
    uint sign = is_negative ? 0x80000000u : 0u;
    if (shift <= 0) return uintBitsToFloat(floatBitsToUint(float(acc64.x)) | sign); /* exact */
    uint kept, rest, half_of;
    if (shift < 32) {
        kept = (acc64.x >> shift) | (acc64.y << (32 - shift));
        rest = acc64.x & ((1u << shift) - 1);
        half_of = 1u << (shift - 1);
    } else {
        int more = shift - 32;
        kept = acc64.y >> more;
        uint dropped = more > 0 ? acc64.y & ((1u << more) - 1) : 0;
        /* The low word contributes less than the last bit of the high one. */
        rest = more > 0 ? dropped << 1 | (acc64.x != 0 ? 1u : 0u) : acc64.x >> 1 | (acc64.x & 1);
        half_of = more > 0 ? 1u << more : 0x40000000u;
    }
    if (rest > half_of || (rest == half_of && (kept & 1) != 0)) kept++;
    /* kept may be 2^24 now: the carry goes into the exponent. */
    return uintBitsToFloat(((uint(shift + 23 + 127) << 23) + (kept - 0x800000u)) | sign);
}

bool overflow = false; /* of this invocation's output */

/* Output o of token t: every GROUPS-th cluster's integers, or every GROUPS-th chain. */
uvec2 sum_of(uint group, uint i_tok, uint t, uint o)
{
    uvec2 total = uvec2(0);
    for (uint i = group; i < (FLOATS == 0 ? n_cluster : n_split); i += GROUPS) {
        if (FLOATS > 0) {
            uint chain = sums[(i_tok * n_split + i) * n_out + o];
            if ((chain & 0x7fffffffu) < 0x4b000000u) total = add_int64(total, fixed_point(chain)); /* 2^23 */
            else overflow = true;
            continue;
        }
        float scale = scales[t * n_cluster + i];
        overflow = overflow || scale == 0.0;
        for (uint s = i * CLUSTER / SPLIT; s < min((i + 1) * CLUSTER / SPLIT, n_split); s++)
            total = add_int64(total, fixed_of_sum(sums[(i_tok * n_split + s) * n_out + o], scale));
    }
    return total;
}

void main()
{
    const uint lane = gl_LocalInvocationID.x % LANES, group = gl_LocalInvocationID.x / LANES;
    const uint i_tok = gl_WorkGroupID.y, t = first_tok + i_tok, o = gl_WorkGroupID.x * LANES + lane;
    if (t >= step_block[STEP_N_TOK]) return;
    uvec2 total = o < n_out ? sum_of(group, i_tok, t, o) : uvec2(0);
    if (GROUPS > 1) {
        group_totals[gl_LocalInvocationID.x] = uvec3(total, overflow ? 1 : 0);
        barrier();
        if (group > 0) return;
        for (uint g = 1; g < GROUPS; g++) {
            uvec3 other = group_totals[g * LANES + lane];
            total = add_int64(total, other.xy);
            overflow = overflow || other.z != 0;
        }
    }
    if (o >= n_out) return;
    uint at_host = HOST_SUMS + 2 * (t * n_out + o);
    if (HOST > 0 && host[0] == HOST_SUMS_VALID) total = add_int64(total, uvec2(host[at_host], host[at_host + 1]));
    overflow = overflow || HOST > 0 && host[0] == HOST_SUMS_OVERFLOW;
    precise float value = to_float(total) * uintBitsToFloat(overflow ? NOT_A_NUMBER : 95u << 23); /* 2^-32 */
    if (has_bias != 0) value = value + bias[o];
#ifdef ONTO
    value = y[t * n_out + o] + value;
#endif
    y[t * n_out + o] = value;
}
