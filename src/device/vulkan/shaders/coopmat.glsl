/* Quantised rows times rounded activations, as mul_mat_vec_q.glsl computes them, by matrix units whose sums may be
 * taken element by element where they lie (GL_NV_cooperative_matrix2). A subgroup owns a square of M rows by
 * N tokens of the workgroup's tile, and keeps the eight partial sums of all of its outputs in matrices: what
 * is in common is only what has been brought to be multiplied, so tiles may be large.
 *
 * All invocations bring a step together: eight pieces of each row and token of the tile, which are eight
 * blocks of 32, or what a block of 256 has of pieces that share a scale. A product is that of a piece. */
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_EXT_shader_explicit_arithmetic_types : require
#extension GL_NV_cooperative_matrix2 : require

layout(constant_id = 13) const uint M = 16; /* divide the tile's rows and tokens, and K divides 32 */
layout(constant_id = 14) const uint N = 16;
layout(constant_id = 15) const uint K = 16;

#include "quantised.glsl"

const uint TILE = GROUPS * ROWS; /* rows */
const uint SQUARES = TILE / M * (COLS / N);

/* Of a step: pieces, zeros behind their weights where K is more; sixteens; steps of a block. */
const uint WEIGHTS = PART == 16 ? 16 : 32, PIECE = WEIGHTS < K ? K : WEIGHTS;
const uint N_PIECE = 256 / PIECE, PARTS = N_PIECE * WEIGHTS / 16;
const uint STEPS = BLOCK == 32 ? 1 : BLOCK / WEIGHTS / N_PIECE;
const uint BLOCKS = BLOCK == 32 ? 8 : 1; /* of which scales are held */
const uint SUMS = MINIMA == 0 ? 1 : BLOCK == 32 ? 8 : N_SUB; /* of inputs, a minimum's each */

/* Eight bytes each; two more than a step's let neighbouring lines lie in other banks. */
const uint LINE = 256 / 8 + 2;
shared uvec2 weights[TILE * LINE], inputs[COLS * LINE];

/* What belongs to rows and to tokens: [..][TILE], [..][COLS]. All sizes are multiples of 16 bytes, so that
 * rows of matrices begin at such, in whichever order a driver places what is shared. */
shared float row_d[BLOCKS * TILE], row_m[MINIMA > 0 ? BLOCKS * TILE : 4];
shared int row_part[PART > 0 ? 4 * TILE : 4], row_least[PART > 0 && MINIMA > 0 ? 4 * TILE : 4];
shared float token_d[BLOCKS * COLS];
shared int token_sum[SUMS * COLS];

/* Products, and sums of floats by their bits: functions of elements take matrices of one type alone, and
 * those of floats need not be among a device's shapes. */
#define SQUARE coopmat<int32_t, gl_ScopeSubgroup, M, N, gl_MatrixUseAccumulator>

/* ---- to be multiplied ------------------------------------------------------------------------------ */

/* Where sixteen i of a step lies in its line. */
uint place(uint i)
{
    return i / (WEIGHTS / 16) * (PIECE / 8) + i % (WEIGHTS / 16) * 2;
}

/* Every byte less the offset: bytes below 128 that stay above -128. */
uvec4 signed_of(uvec4 w)
{
    return OFFSET == 0 ? w : ((w | BYTES * 0x80u) - BYTES * OFFSET) ^ BYTES * 0x80u;
}

/* Eight blocks of 32 from `first` on; or of block first + block its sixteens from `part` on. */
void bring_weights(uint first, uint n_group, uint block, uint part)
{
    for (uint i = gl_LocalInvocationID.x; i < TILE * PARTS; i += LOCAL) {
        uint j = BLOCK == 32 ? i % 8 : block, k = BLOCK == 32 ? i / 8 % 2 : i % PARTS;
        uint at = i / PARTS * LINE + place(BLOCK == 32 ? 2 * j + k : k);
        uint row = min(row_group() * TILE + i / PARTS, n_row - 1);
        if (j >= n_group) continue;
        uvec4 w = signed_of(sixteen_of(row, first, j, n_group, part + k));
        weights[at] = w.xy, weights[at + 1] = w.zw;
        for (uint z = WEIGHTS / 8; z < PIECE / 8; z++) weights[at + z] = uvec2(0);
    }
}

void bring_inputs(uint first, uint n_group, uint block, uint part)
{
    uint from = (first + block) * N_PART + part;
    for (uint i = gl_LocalInvocationID.x; i < COLS * PARTS; i += LOCAL) {
        uint at = i / PARTS * LINE + place(i % PARTS), token = min(first_token() + i / PARTS, n_tok() - 1);
        if (BLOCK == 32 && i % PARTS >= 2 * n_group) continue;
        uvec4 x = q[token * n_block * N_PART + from + i % PARTS];
        inputs[at] = x.xy, inputs[at + 1] = x.zw;
    }
}

/* Scales and minima of n blocks from b on. */
void bring_row_scales(uint b, uint n)
{
    for (uint i = gl_LocalInvocationID.x; i < BLOCKS * TILE; i += LOCAL) {
        uint j = i % BLOCKS, r = i / BLOCKS, row = min(row_group() * TILE + r, n_row - 1);
        if (j >= n) continue;
        row_d[j * TILE + r] = scale_at(row, b + j);
        if (MINIMA > 0) row_m[j * TILE + r] = half_at(at_minimum, row, b + j);
        for (uint w = 0; PART > 0 && w < N_SUB / 4; w++) {
            uint at = (row * n_block + b) * (N_SUB / 4) + w;
            row_part[w * TILE + r] = int(planes[at_part + at]);
            if (MINIMA > 0) row_least[w * TILE + r] = int(planes[at_least + at]);
        }
    }
}

void bring_token_scales(uint b, uint n)
{
    for (uint i = gl_LocalInvocationID.x; i < BLOCKS * COLS; i += LOCAL) {
        uint j = i % BLOCKS, c = i / BLOCKS, at = min(first_token() + c, n_tok() - 1) * n_block + b + j;
        if (j < n) token_d[j * COLS + c] = d[at];
    }
    if (MINIMA == 0) return;
    for (uint i = gl_LocalInvocationID.x; i < SUMS * COLS; i += LOCAL) {
        uint k = i % SUMS, c = i / SUMS, at = min(first_token() + c, n_tok() - 1) * n_block + b;
        if (BLOCK == 32 && k >= n) continue;
        at = BLOCK == 32 ? at + k : at * N_PART + (k << SUB_SHIFT);
        token_sum[k * COLS + c] = sum[at] + (BLOCK != 32 && SUB_SHIFT > 0 ? sum[at + 1] : 0);
    }
}

/* ---- elements of a square: row and column in it, and where it lies in the tile ------------------------ */

int byte_of(int word, uint i) { return bitfieldExtract(word, int(8 * (i % 4)), 8); }

/* A piece's product to the block's integer, by its scale. */
int add_piece(const in uint row, const in uint col, const in int all, const in int product, const in uint m,
              const in uint i)
{
    return all + byte_of(row_part[i / 4 * TILE + m + row], i) * product;
}

/* A block's integer to a partial sum: number j of those whose scales are held. */
int add_block(const in uint row, const in uint col, const in int s, const in int isum, const in uint m,
              const in uint n, const in uint j)
{
    precise float t = row_d[j * TILE + m + row] * token_d[j * COLS + n + col];
    precise float u = t * to_float(isum);
    precise float to = intBitsToFloat(s) + u;
    return floatBitsToInt(to);
}

/* And its minima. */
int add_least(const in uint row, const in uint col, const in int s, const in uint m, const in uint n,
              const in uint j)
{
    int msum = BLOCK == 32 ? token_sum[j * COLS + n + col] : 0;
    for (uint i = 0; BLOCK != 32 && i < N_SUB; i++)
        msum += byte_of(row_least[i / 4 * TILE + m + row], i) * token_sum[i * COLS + n + col];
    precise float t = row_m[j * TILE + m + row] * token_d[j * COLS + n + col];
    precise float u = t * to_float(msum);
    precise float to = intBitsToFloat(s) + u;
    return floatBitsToInt(to);
}

/* Neighbours first. */
int tree8(const in uint row, const in uint col, const in int s0, const in int s1, const in int s2,
          const in int s3, const in int s4, const in int s5, const in int s6, const in int s7)
{
    precise float a = (intBitsToFloat(s0) + intBitsToFloat(s1)) + (intBitsToFloat(s2) + intBitsToFloat(s3));
    precise float b = (intBitsToFloat(s4) + intBitsToFloat(s5)) + (intBitsToFloat(s6) + intBitsToFloat(s7));
    precise float all = a + b;
    return floatBitsToInt(all);
}

int with_least(const in uint row, const in uint col, const in int s, const in int least)
{
    precise float sum = intBitsToFloat(s) + intBitsToFloat(least);
    precise float difference = intBitsToFloat(s) - intBitsToFloat(least);
    return floatBitsToInt(BLOCK == 32 ? sum : difference);
}

/* Number m + row of the tile's rows, and n + col of its tokens; false: there are no such. */
bool find(uint row, uint col, out uint at_row, out uint at)
{
    at_row = row_group() * TILE + row;
    uint token = first_token() + col;
    at = token * y_stride + y_first + at_row;
    return at_row < n_row && token < n_tok();
}

/* What becomes of y. Reads alone: nobody says how often an element is asked for. */
int end_element(const in uint row, const in uint col, const in int product, const in uint m, const in uint n)
{
    uint at_row, at;
    precise float value = intBitsToFloat(product);
    if (!find(m + row, n + col, at_row, at)) return product;
    if (has_bias != 0) value = value + bias[at_row];
#ifdef ONTO
    value = y[at] + value;
#endif
    return floatBitsToInt(value);
}

/* Rows and tokens beyond the last were computed as the last, and are not written. */
int put_element(const in uint row, const in uint col, const in int value, const in uint m, const in uint n)
{
    uint at_row, at;
    if (find(m + row, n + col, at_row, at)) y[at] = intBitsToFloat(value);
    return value;
}

/* ---- a square ---------------------------------------------------------------------------------------- */

/* Of this invocation's subgroup. */
SQUARE sums[8], least_sums[8];
uint m, n; /* where it begins in the tile */

SQUARE product_of(uint piece)
{
    SQUARE product = SQUARE(0);
    for (uint k = 0; k < PIECE; k += K) {
        coopmat<int8_t, gl_ScopeSubgroup, M, K, gl_MatrixUseA> w;
        coopmat<int8_t, gl_ScopeSubgroup, K, N, gl_MatrixUseB> x;
        uint at = (piece * PIECE + k) / 8;
        coopMatLoad(w, weights, m * LINE + at, LINE, gl_CooperativeMatrixLayoutRowMajor);
        coopMatLoad(x, inputs, n * LINE + at, LINE, gl_CooperativeMatrixLayoutColumnMajor);
        product = coopMatMulAdd(w, x, product);
    }
    return product;
}

/* Block j of a group. */
void add_one(uint j, uint n_group)
{
    if (j >= n_group) return;
    SQUARE isum = product_of(j);
    coopMatPerElementNV(sums[j], sums[j], add_block, isum, m, n, j);
    if (MINIMA > 0) coopMatPerElementNV(least_sums[j], least_sums[j], add_least, m, n, j);
}

/* Blocks of 32: a group of eight, a piece and a partial sum each. One after the other, not in a loop, so that
 * places of sums are known when it is compiled. */
void add_group(uint first, bool has_square)
{
    uint n_group = min(8, n_block - first);
    barrier();
    bring_weights(first, n_group, 0, 0);
    bring_inputs(first, n_group, 0, 0);
    bring_row_scales(first, n_group);
    bring_token_scales(first, n_group);
    barrier();
    if (!has_square) return;
    add_one(0, n_group), add_one(1, n_group), add_one(2, n_group), add_one(3, n_group);
    add_one(4, n_group), add_one(5, n_group), add_one(6, n_group), add_one(7, n_group);
}

/* The first partial sum becomes the last: so one text serves all blocks of 256, with sums whose places are
 * known when it is compiled. */
void turn()
{
    SQUARE s = sums[0], l = least_sums[0];
    [[unroll]] for (uint i = 0; i < 7; i++) {
        sums[i] = sums[i + 1];
        if (MINIMA > 0) least_sums[i] = least_sums[i + 1];
    }
    sums[7] = s, least_sums[7] = l;
}

/* A block of 256, to the partial sum that is the first. */
void add_wide(uint b, bool has_square)
{
    uint first = b / 8 * 8, n_group = min(8, n_block - first);
    SQUARE isum = SQUARE(0);
    for (uint step = 0; step < STEPS; step++) {
        barrier();
        bring_weights(first, n_group, b % 8, step * PARTS);
        bring_inputs(first, n_group, b % 8, step * PARTS);
        if (step == 0) bring_row_scales(b, 1);
        if (step == 0) bring_token_scales(b, 1);
        barrier();
        for (uint i = 0; has_square && i < N_PIECE; i++) {
            SQUARE product = product_of(i);
            coopMatPerElementNV(isum, isum, add_piece, product, m, step * N_PIECE + i);
        }
    }
    if (!has_square) return;
    coopMatPerElementNV(sums[0], sums[0], add_block, isum, m, n, 0u);
    if (MINIMA > 0) coopMatPerElementNV(least_sums[0], least_sums[0], add_least, m, n, 0u);
    turn();
}

SQUARE sum_up()
{
    SQUARE y = SQUARE(0), least = SQUARE(0);
    for (uint i = n_block; BLOCK != 32 && i % 8 != 0; i++) turn();
    coopMatPerElementNV(y, sums[0], tree8, sums[1], sums[2], sums[3], sums[4], sums[5], sums[6], sums[7]);
    if (MINIMA > 0) {
        coopMatPerElementNV(least, least_sums[0], tree8, least_sums[1], least_sums[2], least_sums[3],
                            least_sums[4], least_sums[5], least_sums[6], least_sums[7]);
        coopMatPerElementNV(y, y, with_least, least);
    }
    coopMatPerElementNV(y, y, end_element, m, n);
    return y;
}

/* ---- all of it --------------------------------------------------------------------------------------- */

void main()
{
    if (first_token() >= n_tok()) return;
    if (TABLE > 0) fill_values(gl_LocalInvocationID.x, LOCAL);
    /* Once, where there are as many squares as subgroups. */
    for (uint done = 0; done < SQUARES; done += gl_NumSubgroups) {
        uint square = done + gl_SubgroupID;
        bool has_square = square < SQUARES;
        m = square % (TILE / M) * M, n = square / (TILE / M) * N;
        [[unroll]] for (uint i = 0; i < 8; i++) sums[i] = least_sums[i] = SQUARE(0);
        for (uint b = 0; b < n_block; b += BLOCKS) {
            if (BLOCK == 32) add_group(b, has_square);
            else add_wide(b, has_square);
        }
        SQUARE y;
        if (has_square) y = sum_up();
        barrier(); /* all have been read before one is written */
        if (has_square) coopMatPerElementNV(y, y, put_element, m, n);
    }
}
