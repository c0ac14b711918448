/* Transposed down, quantised (forward/gpu/shader_params.h: down_q, down_q_sliced; docs/arithmetic.md 6): an
 * invocation owns 16 bytes of a row, that is 128 / LOW_BITS outputs, and adds to them the contribution of neurons of a
 * split, in integers. GROUPS of invocations own the same outputs and divide the neurons; the order of the sums is free.
 * SLICED: neurons.glsl; COLS is 1. */
#extension GL_EXT_control_flow_attributes : require
#include "floats.glsl"
#include "step.glsl"
#include "down.glsl"
#include "f16.glsl"

layout(local_size_x_id = 0) in;
const uint LOCAL = gl_WorkGroupSize.x;
layout(constant_id = 1) const uint COLS = 1; /* 1 or 2 */
layout(constant_id = 2) const uint GROUPS = 1;
layout(constant_id = 3) const uint BLOCK = 32; /* hth_quant_desc, member by member */
layout(constant_id = 4) const uint LOW_BITS = 4;
layout(constant_id = 5) const uint HIGH_BITS = 0;
layout(constant_id = 6) const uint OFFSET = 8;
layout(constant_id = 7) const uint TABLE = 0;
layout(constant_id = 8) const uint PART = 0;
layout(constant_id = 9) const uint MINIMA = 0;
layout(constant_id = 10) const uint SCALE = 0;

layout(binding = 0) readonly buffer Step { uint step_block[]; };
layout(binding = 1) readonly buffer Planes { uint planes[]; };
layout(binding = 1) readonly buffer Pieces { uvec4 pieces[]; }; /* the same */
layout(binding = 2) readonly buffer Hidden { float hidden[]; };
layout(binding = 3) readonly buffer Scales { float scales[]; };
layout(binding = 4) writeonly buffer Sums { int sums[]; };
layout(push_constant) uniform Push
{
    uint n_neuron, n_block, stride, n_split, n_cluster, first, first_split, first_tok;
    uint at_high, at_scale, at_part, at_least, at_minimum;
#ifdef SLICED
    uint n_used;
#endif
};

#include "quant_format.glsl"
#include "neurons.glsl"

const uint PIECE = 128 / LOW_BITS; /* outputs */
const uint LANES = LOCAL / GROUPS; /* pieces of a row */
/* Neurons whose weights are loaded before the first of them is used: as many as 128 registers hold. */
const uint AHEAD = COLS > 1 ? 1 : MINIMA + HIGH_BITS > 0 ? 2 : 4;

/* Neurons of the split that fire for any of the tokens, and the scaled hidden values of all. */
shared uint n_listed, listed[SPLIT];
shared float scaled[COLS * SPLIT];
/* Sixteen outputs of each piece by each group. */
shared int group_sums[GROUPS * 16 * (LANES + 1)];

/* The sums of each token. Compilers keep one array for both of them in memory. */
const uint FOURS = PIECE / 4;
ivec4 held0[FOURS], held1[COLS > 1 ? FOURS : 1];
#define EACH_TOKEN(DO) DO(0, held0) DO(1, held1)

/* Place of a piece in its row: by groups of eight blocks, [piece][block of the group]. */
struct piece_place { uint first_block, n_group, j, b, part; };

piece_place place_of(uint i_piece)
{
    uint in_group = i_piece % (8 * LOW_PIECES), first_block = i_piece / (8 * LOW_PIECES) * 8;
    uint n_group = min(8, n_block - first_block), j = in_group % n_group;
    return piece_place(first_block, n_group, j, first_block + j, in_group / n_group * PARTS_OF_PIECE);
}

/* rint of in-range values. Without a scale the result is invalid, and down_reduce gives NaN. */
int rounded(float x)
{
    precise float shifted = abs(x) < 4194304.0 ? x + 12582912.0 : 12582912.0;
    return floatBitsToInt(shifted) - 0x4b400000;
}

/* Four weights, less the offset. */
ivec4 bytes_of(uint word)
{
    if (LOW_BITS == 8 || TABLE > 0)
        return ivec4(bitfieldExtract(int(word), 0, 8), bitfieldExtract(int(word), 8, 8),
                     bitfieldExtract(int(word), 16, 8), bitfieldExtract(int(word), 24, 8)) - int(OFFSET);
    return ivec4(word & 255, word >> 8 & 255, word >> 16 & 255, word >> 24) - int(OFFSET);
}

/* Contribution of neuron n, number i of the split, to the sixteen outputs k of the piece. */
void add_part(uint n, uint i, bool is_active, piece_place p, uint k, uvec4 low, uvec4 high, float scale, float minimum)
{
    uvec4 w = weights_of(low, high, p.part + k);
    uint at = n * n_block + p.b;
    precise float d = scale;
    if (PART > 0) d = d * float(sub_byte(at_part, at, p.part + k));
    precise float m = minimum;
    if (MINIMA > 0) m = BLOCK == 32 ? -m : m * float(sub_byte(at_least, at, p.part + k));
    ivec4 w0 = bytes_of(w.x), w1 = bytes_of(w.y), w2 = bytes_of(w.z), w3 = bytes_of(w.w);
#define ADD(C, HELD) \
    if (C < COLS) { \
        precise float by_scale = scaled[C * SPLIT + i] * d; \
        precise float by_minimum = scaled[C * SPLIT + i] * m; \
        int coefficient = is_active ? rounded(by_scale) : 0; \
        int taken = MINIMA > 0 && is_active ? rounded(by_minimum) : 0; \
        HELD[4 * k] += coefficient * w0 - taken; \
        HELD[4 * k + 1] += coefficient * w1 - taken; \
        HELD[4 * k + 2] += coefficient * w2 - taken; \
        HELD[4 * k + 3] += coefficient * w3 - taken; \
    }
    EACH_TOKEN(ADD)
}

/* Lists the neurons of the split that fire. The order of the list varies, the sums do not. */
void list_active(uint split, uint first_of_group)
{
    const uint i_thread = gl_LocalInvocationID.x;
    if (i_thread == 0) n_listed = 0;
    barrier();
    for (uint i = i_thread; i < SPLIT; i += LOCAL) {
        uint n = first_row + i;
        bool any = false;
        if (n >= end_row) continue;
        [[unroll]] for (uint c = 0; c < COLS; c++) {
            uint t = first_tok + min(first_of_group + c, step_block[STEP_N_TOK] - first_tok - 1);
            float h = hidden_of(t, n);
            precise float by_token = h * scales[t * n_cluster + (first + split * SPLIT) / CLUSTER];
            scaled[c * SPLIT + i] = by_token;
            any = any || !is_zero(h);
        }
        if (any) listed[atomicAdd(n_listed, 1)] = i;
    }
    barrier();
}

/* Adds every GROUPS-th of the listed neurons, AHEAD of them at a time. */
void add_listed(uint group, piece_place p, uint i_piece)
{
    for (uint from = group; from < n_listed; from += GROUPS * AHEAD) {
        uvec4 low[AHEAD], high[AHEAD];
        float d[AHEAD], m[AHEAD];
        [[unroll]] for (uint a = 0; a < AHEAD; a++) {
            uint n = first_row + listed[min(from + a * GROUPS, n_listed - 1)];
            low[a] = pieces[n * n_block * LOW_PIECES + i_piece];
            high[a] = HIGH_BITS > 0 ? high_of(n, p.first_block, p.j, p.n_group, p.part) : uvec4(0);
            d[a] = scale_at(n, p.b);
            m[a] = MINIMA > 0 ? half_at(at_minimum, n, p.b) : 0.0;
        }
        [[unroll]] for (uint a = 0; a < AHEAD; a++) {
            uint i = listed[min(from + a * GROUPS, n_listed - 1)];
            [[unroll]] for (uint k = 0; k < PARTS_OF_PIECE; k++)
                add_part(first_row + i, i, from + a * GROUPS < n_listed, p, k, low[a], high[a], d[a], m[a]);
        }
    }
}

/* Adds the groups' sums of the sixteen outputs k of all pieces of the workgroup, and writes those of token c. */
void put(uint c, uint k, uint split, uint first_of_group, ivec4 v0, ivec4 v1, ivec4 v2, ivec4 v3)
{
    const uint i_thread = gl_LocalInvocationID.x, lane = i_thread % LANES, group = i_thread / LANES;
    const uint n_piece = n_block * LOW_PIECES, first_piece = gl_WorkGroupID.x * LANES;
    barrier();
    [[unroll]] for (uint i = 0; i < 4; i++) {
        uint at = (group * 16 + i) * (LANES + 1) + lane;
        group_sums[at] = v0[i], group_sums[at + 4 * (LANES + 1)] = v1[i];
        group_sums[at + 8 * (LANES + 1)] = v2[i], group_sums[at + 12 * (LANES + 1)] = v3[i];
    }
    barrier();
    bool is_token = first_tok + first_of_group + c < step_block[STEP_N_TOK];
    uint row = ((first_of_group + c) * n_split + first_split + split) * (n_block * BLOCK);
    for (uint o = i_thread; is_token && o < 16 * LANES; o += LOCAL) {
        uint i = o % 16, of_lane = o / 16;
        if (first_piece + of_lane >= n_piece) continue;
        piece_place p = place_of(first_piece + of_lane);
        int sum = 0;
        [[unroll]] for (uint g = 0; g < GROUPS; g++) sum += group_sums[(g * 16 + i) * (LANES + 1) + of_lane];
        sums[row + p.b * BLOCK + (p.part + k) * 16 + i] = sum;
    }
}

void main()
{
    const uint split = gl_WorkGroupID.y, first_of_group = gl_WorkGroupID.z * COLS;
    const uint i_piece = gl_WorkGroupID.x * LANES + gl_LocalInvocationID.x % LANES;
    const uint group = gl_LocalInvocationID.x / LANES;
    if (first_tok + first_of_group >= step_block[STEP_N_TOK]) return;
    if (TABLE > 0) fill_values(gl_LocalInvocationID.x, LOCAL);
#define CLEAR(C, HELD) [[unroll]] for (uint i = 0; C < COLS && i < FOURS; i++) HELD[i] = ivec4(0);
    EACH_TOKEN(CLEAR)
    choose(first_tok + first_of_group, split, SPLIT);
    list_active(split, first_of_group);
    if (i_piece < n_block * LOW_PIECES) add_listed(group, place_of(i_piece), i_piece);
#define PUT(C, HELD) \
    [[unroll]] for (uint k = 0; C < COLS && k < PARTS_OF_PIECE; k++) \
        put(C, k, split, first_of_group, HELD[4 * k], HELD[4 * k + 1], HELD[4 * k + 2], HELD[4 * k + 3]);
    EACH_TOKEN(PUT)
}
