#version 450
/* Transposed down, quantised (forward/gpu/shader_params.h: down_q; docs/arithmetic.md 6): an invocation owns
 * 16 bytes of a row, that is 128 / LOW_BITS outputs, and adds to them the contribution of a split of the
 * neurons, in integers. */
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#include "floats.glsl"
#include "step.glsl"
#include "down.glsl"
#include "f16.glsl"

layout(local_size_x_id = 0) in;
const uint LOCAL = gl_WorkGroupSize.x;
layout(constant_id = 1) const uint COLS = 1;
layout(constant_id = 2) const uint BLOCK = 32; /* hth_quant_desc, member by member */
layout(constant_id = 3) const uint LOW_BITS = 4;
layout(constant_id = 4) const uint HIGH_BITS = 0;
layout(constant_id = 5) const uint OFFSET = 8;
layout(constant_id = 6) const uint TABLE = 0;
layout(constant_id = 7) const uint PART = 0;
layout(constant_id = 8) const uint MINIMA = 0;
layout(constant_id = 9) const uint E8M0 = 0;

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
};

#include "quant_format.glsl"

const uint PIECE = 128 / LOW_BITS; /* outputs */

int held[COLS * PIECE];
float scale_of_token[COLS];

/* rint of in-range values. Without a scale the result is invalid, and down_reduce gives NaN. */
int rounded(float x)
{
    precise float shifted = abs(x) < 4194304.0 ? x + 12582912.0 : 12582912.0;
    return floatBitsToInt(shifted) - 0x4b400000;
}

/* Contribution of neuron n to the sixteen outputs `part` of block b, number k of the piece. */
void add_part(uint n, uint b, uint part, uint k, uvec4 low, uvec4 high)
{
    uvec4 w = weights_of(low, high, part);
    uint at = n * n_block + b;
    precise float d = scale_at(n, b);
    if (PART > 0) d = d * float(sub_byte(at_part, at, part));
    precise float m = 0.0;
    if (MINIMA > 0) m = half_at(at_minimum, n, b);
    if (MINIMA > 0) m = BLOCK == 32 ? -m : m * float(sub_byte(at_least, at, part));
    [[unroll]] for (uint c = 0; c < COLS; c++) {
        uint t = first_tok + min(gl_WorkGroupID.z * COLS + c, step_block[STEP_N_TOK] - first_tok - 1);
        precise float h = hidden[t * stride + first + n] * scale_of_token[c];
        precise float by_scale = h * d;
        precise float by_minimum = h * m;
        int coefficient = rounded(by_scale);
        int taken = int(OFFSET) * coefficient + (MINIMA > 0 ? rounded(by_minimum) : 0);
        [[unroll]] for (uint i = 0; i < 16; i++) {
            uint word = w[i / 4];
            int value = LOW_BITS == 8 || TABLE > 0 ? bitfieldExtract(int(word), int(8 * (i % 4)), 8)
                                                   : int(bitfieldExtract(word, int(8 * (i % 4)), 8));
            held[c * PIECE + 16 * k + i] += coefficient * value - taken;
        }
    }
}

bool fires(uint n)
{
    bool any = false;
    [[unroll]] for (uint c = 0; c < COLS; c++) {
        uint t = first_tok + min(gl_WorkGroupID.z * COLS + c, step_block[STEP_N_TOK] - first_tok - 1);
        any = any || !is_zero(hidden[t * stride + first + n]);
    }
    return any;
}

void main()
{
    const uint i_piece = gl_GlobalInvocationID.x, split = gl_WorkGroupID.y;
    const uint first_tok_of_group = gl_WorkGroupID.z * COLS;
    if (first_tok + first_tok_of_group >= step_block[STEP_N_TOK]) return;
    if (TABLE > 0) fill_values(gl_LocalInvocationID.x, LOCAL);
    if (i_piece >= n_block * LOW_PIECES) return;
    /* Pieces of a row: by groups of eight blocks, [piece][block of the group]. */
    const uint in_group = i_piece % (8 * LOW_PIECES), first_block = i_piece / (8 * LOW_PIECES) * 8;
    const uint n_group = min(8, n_block - first_block);
    const uint piece = in_group / n_group, j = in_group % n_group, b = first_block + j;
    [[unroll]] for (uint i = 0; i < COLS * PIECE; i++) held[i] = 0;
    [[unroll]] for (uint c = 0; c < COLS; c++) {
        uint t = first_tok + min(first_tok_of_group + c, step_block[STEP_N_TOK] - first_tok - 1);
        scale_of_token[c] = scales[t * n_cluster + (first + split * SPLIT) / CLUSTER];
    }
    const uint end = min(n_neuron, (split + 1) * SPLIT);
    for (uint n = split * SPLIT; n < end; n++) {
        if (!fires(n)) continue;
        uvec4 low = pieces[n * n_block * LOW_PIECES + i_piece];
        uvec4 high = HIGH_BITS > 0 ? high_of(n, first_block, j, n_group, piece * PARTS_OF_PIECE) : uvec4(0);
        [[unroll]] for (uint k = 0; k < PARTS_OF_PIECE; k++)
            add_part(n, b, piece * PARTS_OF_PIECE + k, k, low, high);
    }
    [[unroll]] for (uint c = 0; c < COLS; c++) {
        uint i_tok = first_tok_of_group + c;
        if (first_tok + i_tok >= step_block[STEP_N_TOK]) continue;
        uint at = (i_tok * n_split + first_split + split) * (n_block * BLOCK) + b * BLOCK + piece * PIECE;
        [[unroll]] for (uint i = 0; i < PIECE; i++) sums[at + i] = held[c * PIECE + i];
    }
}
