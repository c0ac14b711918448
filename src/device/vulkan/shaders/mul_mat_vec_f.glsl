/* Float rows times activations (forward/gpu/shader_params.h: mul_mat_vec_f): rule R9 of docs/arithmetic.md 2 with
 * product and sum each rounded. Eight invocations share ROWS rows and COLS tokens: number j holds partial sums 2 j
 * and 2 j + 1 of every output, whose weights are 16 bytes of every 128 of a row (forward/gpu/weight_layout.h).
 * ONTO: added to y. SPARSE, SLICED: rows.glsl. */
layout(constant_id = 5) const uint TYPE = 0; /* hth_type: 0 F32, 1 F16, 30 BF16 */

layout(binding = 1) readonly buffer Rows { uint rows[]; };
layout(binding = 1) readonly buffer Pieces { uvec4 pieces[]; }; /* the same */
layout(binding = 2) readonly buffer X { float x[]; };
layout(binding = 3) readonly buffer Bias { float bias[]; };
#ifdef ONTO
layout(binding = 4) buffer Y { float y[]; };
#else
layout(binding = 4) writeonly buffer Y { float y[]; };
#endif
layout(push_constant) uniform Push
{
    uint n_row, n_col, y_stride, y_first, has_bias, row_words;
#ifdef SPARSE
    uint row_first, mask_first;
#endif
#ifdef SLICED
    uint row_first, slice_rows, slice_step, slice_first, n_used, x_by_pair, y_pair, weighs, n_slot, slot_first, slots_at;
#endif
};

#include "rows.glsl"
#include "f16.glsl"

const uint STRIDE = 2 * LOCAL + 1; /* so that eight outputs use eight banks */
const uint FAR = ROWS == 1 ? 4 : 2; /* pieces loaded together */
const uint PER = TYPE == 0 ? 32 : 64; /* weights of 128 bytes */

shared float partials[8 * STRIDE];

vec2 sums[OUTPUTS]; /* of this invocation */

/* Of this invocation: the weights of FAR, at most four, pieces of every row. */
uvec4 piece[4 * ROWS];

/* The pieces of the 128 bytes from weight g on, as number i. */
void load_piece(uint g, uint i, uint j)
{
    [[unroll]] for (uint r = 0; r < ROWS; r++)
        piece[i * ROWS + r] = pieces[row_of[r] * (row_words / 4) + g / PER * 8 + j];
}

vec2 pair_of(uint two)
{
    if (TYPE == 1) return widened_pair(two);
    return uintBitsToFloat(uvec2(two << 16, two & 0xffff0000u));
}

/* Weights k and k + 1 of the row's end, which is in file order; k is even. */
vec2 pair_at(uint row, uint k)
{
    uint at = row * row_words;
    if (TYPE == 0) return uintBitsToFloat(uvec2(rows[at + k], rows[at + k + 1]));
    return pair_of(rows[at + k / 2]);
}

/* Weights k and k + 1 of every row. */
void add_pair(uint k, vec2 w[ROWS])
{
    vec2 inputs[COLS];
    [[unroll]] for (uint c = 0; c < COLS; c++) {
        uint at = token_of[c] * n_col + k;
        inputs[c] = vec2(x[at], x[at + 1]);
    }
    [[unroll]] for (uint r = 0; r < ROWS; r++) {
        [[unroll]] for (uint c = 0; c < COLS; c++) {
            precise vec2 product = w[r] * inputs[c];
            precise vec2 s = sums[r * COLS + c] + product;
            sums[r * COLS + c] = s;
        }
    }
}

/* Pair i of piece `from`, which is that of weight k. */
void add_of_piece(uint from, uint i, uint k)
{
    vec2 w[ROWS];
    [[unroll]] for (uint r = 0; r < ROWS; r++) {
        uvec4 p = piece[from * ROWS + r];
        if (TYPE == 0) w[r] = uintBitsToFloat(i == 0 ? p.xy : p.zw);
        else w[r] = pair_of(p[i]);
    }
    add_pair(k, w);
}

void add_piece(uint from, uint k)
{
    add_of_piece(from, 0, k);
    add_of_piece(from, 1, k + 16);
    if (TYPE == 0) return;
    add_of_piece(from, 2, k + 32);
    add_of_piece(from, 3, k + 48);
}

void add_pair_at(uint k)
{
    vec2 w[ROWS];
    [[unroll]] for (uint r = 0; r < ROWS; r++) w[r] = pair_at(row_of[r], k);
    add_pair(k, w);
}

/* Weight k, the last of an odd number. */
void add_last(uint k)
{
    [[unroll]] for (uint r = 0; r < ROWS; r++) {
        uint at = row_of[r] * row_words;
        float w = TYPE == 0   ? uintBitsToFloat(rows[at + k])
                  : TYPE == 1 ? widened(rows[at + k / 2] & 0xffffu)
                              : uintBitsToFloat(rows[at + k / 2] << 16);
        [[unroll]] for (uint c = 0; c < COLS; c++) {
            precise float product = w * x[token_of[c] * n_col + k];
            precise float s = sums[r * COLS + c].x + product;
            sums[r * COLS + c].x = s;
        }
    }
}

/* Halves first. Written out, because glslc unrolls loops of a fixed length and drops `precise` in the copies. */
float tree4(uint at)
{
    precise float y = (partials[at] + partials[at + 8]) + (partials[at + 4] + partials[at + 12]);
    return y;
}

/* The output whose partial sums are line `line`. */
float tree16(uint line)
{
    uint at = line * STRIDE + gl_LocalInvocationID.x / 8 * 16;
    precise float y = (tree4(at) + tree4(at + 2)) + (tree4(at + 1) + tree4(at + 3));
    return y;
}

void main()
{
    const uint lane = gl_LocalInvocationID.x, j = lane % 8;
    if (!has_work() || !group_is_live()) return;
    choose();
    [[unroll]] for (uint o = 0; o < OUTPUTS; o++) sums[o] = vec2(0);

    const uint end = is_busy() ? n_col : 0, whole = end / PER * PER;
    uint g = 0;
    for (; FAR == 4 && g + 3 * PER < whole; g += 4 * PER) {
        [[unroll]] for (uint i = 0; i < 4; i++) load_piece(g + i * PER, i, j);
        add_piece(0, g + 2 * j), add_piece(1, g + PER + 2 * j);
        add_piece(2, g + 2 * PER + 2 * j), add_piece(3, g + 3 * PER + 2 * j);
    }
    for (; g + PER < whole; g += 2 * PER) {
        load_piece(g, 0, j);
        load_piece(g + PER, 1, j);
        add_piece(0, g + 2 * j);
        add_piece(1, g + PER + 2 * j);
    }
    if (g < whole) {
        load_piece(g, 0, j);
        add_piece(0, g + 2 * j);
    }
    uint k = whole + 2 * j;
    for (; k + 1 < end; k += 16) add_pair_at(k);
    if (k < end) add_last(k);

    /* Each of the eight invocations finishes one output of eight. */
    [[unroll]] for (uint o = 0; o < OUTPUTS; o += 8) {
        [[unroll]] for (uint i = 0; i < 8; i++) {
            if (o + i >= OUTPUTS) continue;
            partials[i * STRIDE + 2 * lane] = sums[o + i].x;
            partials[i * STRIDE + 2 * lane + 1] = sums[o + i].y;
        }
        barrier();
        if (o + j < OUTPUTS) put(o + j, tree16(j));
        barrier();
    }
}
