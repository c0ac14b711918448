/* Quantised rows times rounded activations, as mul_mat_vec_q.glsl computes them, by matrix units with functions of
 * elements (GL_NV_cooperative_matrix2). Subgroup j of eight keeps the partial sum p_j (docs/arithmetic.md, R4) of all
 * outputs of the workgroup's tile, so it loads the operands of a block once for the whole tile; with SPLIT times eight
 * subgroups each has COLS / SPLIT of the tokens.
 *
 * All invocations load a step together, while the one before is multiplied: up to 32 weights of each of eight
 * neighbouring blocks, for every row and token. A block of 32 takes one step, a block of 256 eight or sixteen. A piece
 * is the weights that share a scale, with zeros behind them where K is larger.
 *
 * Minima are a second pass over the blocks. Their integers, the sums of the inputs times the minima of the
 * sub-blocks, are products of bytes too: a sum is 64 times one byte plus another. */
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_EXT_shader_explicit_arithmetic_types : require
#extension GL_NV_cooperative_matrix2 : require

layout(constant_id = 13) const uint M = 16; /* divide the tile's rows and its tokens / SPLIT; K divides 32 */
layout(constant_id = 14) const uint N = 16;
layout(constant_id = 15) const uint K = 16;
layout(constant_id = 16) const uint SPLIT = 1; /* subgroups / 8 */

#define MATRIX
#include "quantised.glsl"

const uint TILE = GROUPS * ROWS; /* rows */
const uint N_M = TILE / M, N_N = COLS / SPLIT / N, N_MATRIX = N_M * N_N; /* matrices of a subgroup */

const uint WEIGHTS = PART == 16 ? 16 : 32, PIECE = WEIGHTS < K ? K : WEIGHTS;
/* Pieces, and sixteens of weights, of a block in a step; steps of a block. */
const uint N_PIECE = 32 / PIECE, SIXTEENS = N_PIECE * WEIGHTS / 16, N_STEP = BLOCK / (16 * SIXTEENS);

/* Eight bytes each; two more than a step's 256 bytes let neighbouring lines lie in other banks. For the final sums a
 * subgroup stores one matrix at a time, in columns of SIDE words. */
const uint LINE = 256 / 8 + 2, SIDE = M + 4;
const uint OPERANDS = TILE * LINE, PARTIALS = 8 * SPLIT * N * SIDE / 2;
shared uvec2 weights[OPERANDS > PARTIALS ? OPERANDS : PARTIALS], inputs[COLS * LINE];

/* Scales: [8][TILE], [8][COLS]; and those of four sub-blocks, a byte each. All sizes are multiples of 16 bytes, so
 * that rows of matrices begin at such, in whichever order a driver places what is shared. */
shared float row_d[8 * TILE], token_d[8 * COLS];
shared int row_part[PART > 0 ? 8 * TILE : 4];

/* Products, and sums of floats by their bits: functions of elements take matrices of one type alone, and
 * those of floats need not be among a device's shapes. */
#define ACCUMULATOR coopmat<int32_t, gl_ScopeSubgroup, M, N, gl_MatrixUseAccumulator>

/* A product of 32 is below 2^22 in magnitude: added to the bits of 1.5 * 2^23 it is the fraction of a float, and one
 * subtraction leaves the product as a float. */
const float MAGIC_32 = 12582912.0;
const int PRODUCT_START = BLOCK == 32 ? 0x4b400000 : 0;

/* ---- operands ----------------------------------------------------------------------------------------- */

/* Subtracts the offset from every byte; results are in -128..127. */
uvec4 signed_of(uvec4 w)
{
    return OFFSET == 0 ? w : ((w | BYTES * 0x80u) - BYTES * OFFSET) ^ BYTES * 0x80u;
}

uint row_at(uint r) { return weights_of_row(row_group() * TILE + r); }

/* What this invocation loads of the next step, and stores when the present one has been multiplied. Low bits of a block
 * hold all sixteens of a step, except where they are bytes. */
const uint N_OF_ROWS = (8 * TILE + LOCAL - 1) / LOCAL, N_LOW = LOW_BITS == 8 ? SIXTEENS : 1;
const uint N_OF_TOKENS = (8 * COLS + LOCAL - 1) / LOCAL, N_INPUT = (8 * SIXTEENS * COLS + LOCAL - 1) / LOCAL;
uvec4 next_low[N_OF_ROWS * N_LOW], next_high[N_OF_ROWS], next_inputs[N_INPUT];
float next_row_d[N_OF_ROWS], next_token_d[N_OF_TOKENS];
int next_part[N_OF_ROWS];

uint item(uint n) { return gl_LocalInvocationID.x + n * LOCAL; }

/* Of blocks from `first` on, eight or those that are left. */
void load_rows(uint first, uint step)
{
    uint n_group = min(8, n_block - first), part = step * SIXTEENS;
    [[unroll]] for (uint n = 0; n < N_OF_ROWS; n++) {
        uint i = item(n), j = i % 8, row = row_at(i / 8);
        if (i >= 8 * TILE || j >= n_group) continue;
        [[unroll]] for (uint k = 0; k < N_LOW; k++)
            next_low[n * N_LOW + k] =
                pieces[(row * n_block + first) * LOW_PIECES + (part + k) / PARTS_OF_PIECE * n_group + j];
        if (HIGH_BITS > 0) next_high[n] = high_of(row, first, j, n_group, part);
        if (step == 0) next_row_d[n] = scale_at(row, first + j);
        if (PART > 0 && step * N_PIECE % 4 == 0)
            next_part[n] = int(planes[at_part + (row * n_block + first + j) * (N_SUB / 4) + step * N_PIECE / 4]);
    }
}

void store_rows(uint n_group, uint step)
{
    [[unroll]] for (uint n = 0; n < N_OF_ROWS; n++) {
        uint i = item(n), j = i % 8, at = i / 8 * LINE + 4 * j;
        if (i >= 8 * TILE || j >= n_group) continue;
        [[unroll]] for (uint k = 0; k < SIXTEENS; k++) {
            uvec4 low = next_low[n * N_LOW + k % N_LOW];
            uvec4 w = signed_of(weights_of(low, HIGH_BITS > 0 ? next_high[n] : uvec4(0), step * SIXTEENS + k));
            weights[at + 2 * k] = w.xy, weights[at + 2 * k + 1] = w.zw;
        }
        if (SIXTEENS == 1) weights[at + 2] = weights[at + 3] = uvec2(0);
        if (step == 0) row_d[j * TILE + i / 8] = next_row_d[n];
        if (PART > 0 && step * N_PIECE % 4 == 0) row_part[j * TILE + i / 8] = next_part[n];
    }
}

void load_tokens(uint first, uint step)
{
    uint n_group = min(8, n_block - first);
    [[unroll]] for (uint n = 0; n < N_INPUT; n++) {
        uint k = item(n) % SIXTEENS, j = item(n) / SIXTEENS % 8, c = item(n) / (8 * SIXTEENS);
        if (c < COLS && j < n_group)
            next_inputs[n] = q[(tile_inputs(c) * n_block + first + j) * N_PART + step * SIXTEENS + k];
    }
    [[unroll]] for (uint n = 0; n < N_OF_TOKENS; n++) {
        uint j = item(n) % 8, c = item(n) / 8;
        if (step == 0 && c < COLS && j < n_group) next_token_d[n] = d[tile_inputs(c) * n_block + first + j];
    }
}

/* Where a step has one sixteen, the next two uvec2 keep what they had: their weights are zeros. */
void store_tokens(uint n_group, uint step)
{
    [[unroll]] for (uint n = 0; n < N_INPUT; n++) {
        uint k = item(n) % SIXTEENS, j = item(n) / SIXTEENS % 8, c = item(n) / (8 * SIXTEENS);
        uint at = c * LINE + 4 * j + 2 * k;
        if (c < COLS && j < n_group) inputs[at] = next_inputs[n].xy, inputs[at + 1] = next_inputs[n].zw;
    }
    [[unroll]] for (uint n = 0; n < N_OF_TOKENS; n++) {
        uint j = item(n) % 8, c = item(n) / 8;
        if (step == 0 && c < COLS && j < n_group) token_d[j * COLS + c] = next_token_d[n];
    }
}

/* The step after one of the blocks from `first` on. */
void load_next(uint first, uint step)
{
    uint at = step + 1 < N_STEP ? first : first + 8, next = (step + 1) % N_STEP;
    if (at >= n_block) return;
    load_rows(at, next);
    load_tokens(at, next);
}

/* ---- operands of minima ------------------------------------------------------------------------------- */

/* A sum of inputs is two bytes: both in one step (blocks of 32), or one of every sub-block in each of two steps.
 * The lower byte is in -32..31; the higher in -64..64, as |s| <= 32 * 127. */
uint digit_of(int s, uint digit)
{
    int low = (s + 32 & 63) - 32;
    return uint(digit == 0 ? low : s - low >> 6) & 255u;
}

void store_minima(uint first, uint n_group)
{
    for (uint i = gl_LocalInvocationID.x; i < 8 * TILE; i += LOCAL) {
        uint j = i % 8, to = i / 8 * LINE + 4 * j, at = at_least + (row_at(i / 8) * n_block + first + j) * (N_SUB / 4);
        if (j >= n_group) continue;
        row_d[j * TILE + i / 8] = half_at(at_minimum, row_at(i / 8), first + j);
        weights[to] = BLOCK == 32 ? uvec2(0x4001u, 0) : uvec2(planes[at], planes[at + 1]);
        weights[to + 1] = N_SUB == 16 ? uvec2(planes[at + 2], planes[at + 3]) : uvec2(0);
        weights[to + 2] = weights[to + 3] = uvec2(0);
        if (PART > 0) row_part[j * TILE + i / 8] = 0x4001; /* by which the bytes of two steps are multiplied */
    }
}

void store_sums(uint first, uint n_group, uint step)
{
    for (uint i = gl_LocalInvocationID.x; i < 8 * COLS; i += LOCAL) {
        uint j = i % 8, to = i / 8 * LINE + 4 * j, at = tile_inputs(i / 8) * n_block + first + j;
        uvec4 bytes = uvec4(0);
        if (j >= n_group) continue;
        if (step == 0) token_d[j * COLS + i / 8] = d[at];
        if (BLOCK == 32) bytes.x = digit_of(sum[at], 0) | digit_of(sum[at], 1) << 8;
        for (uint k = 0; BLOCK != 32 && k < N_SUB; k++) {
            uint from = at * N_PART + (k << SUB_SHIFT);
            int s = sum[from] + (SUB_SHIFT > 0 ? sum[from + 1] : 0);
            bytes[k / 4] |= digit_of(s, step) << 8 * (k % 4);
        }
        inputs[to] = bytes.xy, inputs[to + 1] = bytes.zw, inputs[to + 2] = inputs[to + 3] = uvec2(0);
    }
}

/* ---- functions of elements, by row and column in a matrix ---------------------------------------------- */

/* float(i) rounded to nearest even, |i| < 2^28, from two exact halves by the magic numbers of each. */
float float_of(int i)
{
    precise float high = intBitsToFloat((i >> 12) + 0x51400000) - 51547996160.0; /* 1.5 * 2^35 + 2^23 */
    precise float whole = high + intBitsToFloat(i & 4095 | 0x4b000000);
    return whole;
}

/* A piece's product to a block's integer, by its scale. */
int add_piece(const in uint row, const in uint col, const in int all, const in int product, const in uint m,
              const in uint part)
{
    return all + (PART > 0 ? bitfieldExtract(row_part[m + row], int(8 * part), 8) * product : product);
}

/* A block's integer to a partial sum. */
int add_block(const in uint row, const in uint col, const in int s, const in int isum, const in uint m,
              const in uint n)
{
    precise float small = intBitsToFloat(isum) - MAGIC_32;
    precise float t = row_d[m + row] * token_d[n + col];
    precise float u = t * (BLOCK == 32 ? small : float_of(isum));
    precise float to = intBitsToFloat(s) + u;
    return floatBitsToInt(to);
}

/* ---- sums of a subgroup ---------------------------------------------------------------------------------- */

/* Matrix i: rows i / N_N * M and on of the tile, tokens i % N_N * N and on of the subgroup's. */
ACCUMULATOR sums[N_MATRIX], isums[BLOCK == 32 ? 1 : N_MATRIX];

uint partial() { return gl_SubgroupID % 8; }
uint own_tokens() { return gl_SubgroupID / 8 * (COLS / SPLIT); }

/* Number `piece` of a step's pieces of the subgroup's block; its scale is byte `part`. */
void multiply(uint piece, uint part)
{
    const uint n_k = PIECE / K;
    coopmat<int8_t, gl_ScopeSubgroup, K, N, gl_MatrixUseB> x[N_N * n_k];
    uint j = partial(), at = 4 * j + piece * (PIECE / 8);
    [[unroll]] for (uint i = 0; i < N_N * n_k; i++)
        coopMatLoad(x[i], inputs, (own_tokens() + i / n_k * N) * LINE + at + i % n_k * (K / 8), LINE,
                    gl_CooperativeMatrixLayoutColumnMajor);
    [[unroll]] for (uint r = 0; r < N_M; r++) {
        coopmat<int8_t, gl_ScopeSubgroup, M, K, gl_MatrixUseA> w[n_k];
        [[unroll]] for (uint k = 0; k < n_k; k++)
            coopMatLoad(w[k], weights, r * M * LINE + at + k * (K / 8), LINE, gl_CooperativeMatrixLayoutRowMajor);
        [[unroll]] for (uint c = 0; c < N_N; c++) {
            ACCUMULATOR product = ACCUMULATOR(PRODUCT_START);
            [[unroll]] for (uint k = 0; k < n_k; k++) product = coopMatMulAdd(w[k], x[c * n_k + k], product);
            if (BLOCK == 32)
                coopMatPerElementNV(sums[r * N_N + c], sums[r * N_N + c], add_block, product, j * TILE + r * M,
                                    j * COLS + own_tokens() + c * N);
            else
                coopMatPerElementNV(isums[r * N_N + c], isums[r * N_N + c], add_piece, product, j * TILE + r * M,
                                    part);
        }
    }
}

/* A group of eight blocks. */
void add_group(uint first, bool minima)
{
    uint n_group = min(8, n_block - first), j = partial();
    [[unroll]] for (uint i = 0; BLOCK != 32 && i < N_MATRIX; i++) isums[i] = ACCUMULATOR(0);
    for (uint step = 0; step < (!minima ? N_STEP : BLOCK == 32 ? 1 : 2); step++) {
        barrier();
        if (!minima) {
            store_rows(n_group, step);
            store_tokens(n_group, step);
        } else {
            if (step == 0) store_minima(first, n_group);
            store_sums(first, n_group, step);
        }
        barrier();
        if (!minima) load_next(first, step);
        if (j >= n_group) continue;
        if (minima) multiply(0, step);
        else
            for (uint i = 0; i < N_PIECE; i++) multiply(i, (step * N_PIECE + i) % 4);
    }
    if (BLOCK == 32 || j >= n_group) return;
    [[unroll]] for (uint i = 0; i < N_MATRIX; i++)
        coopMatPerElementNV(sums[i], sums[i], add_block, isums[i], j * TILE + i / N_N * M,
                            j * COLS + own_tokens() + i % N_N * N);
}

/* ---- outputs -------------------------------------------------------------------------------------------- */

/* This invocation's outputs: N_OUT for each matrix i, whose partial sums all subgroups store at the same time. */
const uint N_OUT = (SPLIT * M * N + LOCAL - 1) / LOCAL;
float outputs[N_MATRIX * N_OUT];

/* Partial sum j of the subgroups' matrices that were stored. */
float stored(uint o, uint j)
{
    uint at = ((o / (M * N) * 8 + j) * N + o / M % N) * SIDE + o % M;
    return uintBitsToFloat(weights[at / 2][at % 2]);
}

float tree8(uint o)
{
    precise float a = (stored(o, 0) + stored(o, 1)) + (stored(o, 2) + stored(o, 3));
    precise float b = (stored(o, 4) + stored(o, 5)) + (stored(o, 6) + stored(o, 7));
    precise float all = a + b;
    return all;
}

float with_minima(float s, float least)
{
    precise float total = s + least, difference = s - least;
    return BLOCK == 32 ? total : difference;
}

void sum_up(bool minima)
{
    [[unroll]] for (uint i = 0; i < N_MATRIX; i++) {
        barrier();
        coopMatStore(sums[i], weights, gl_SubgroupID * (N * SIDE / 2), SIDE / 2,
                     gl_CooperativeMatrixLayoutColumnMajor);
        barrier();
        [[unroll]] for (uint k = 0; k < N_OUT; k++) {
            uint o = gl_LocalInvocationID.x + k * LOCAL;
            float all = o < SPLIT * M * N ? tree8(o) : 0.0;
            outputs[i * N_OUT + k] = minima ? with_minima(outputs[i * N_OUT + k], all) : all;
        }
    }
}

void put_output(uint i, uint o, float product)
{
    if (o >= SPLIT * M * N) return;
    put_at(row_group() * TILE + i / N_N * M + o % M, o / (M * N) * (COLS / SPLIT) + i % N_N * N + o / M % N, product);
}

/* ---- all of it --------------------------------------------------------------------------------------- */

void pass(bool minima)
{
    [[unroll]] for (uint i = 0; i < N_MATRIX; i++) sums[i] = ACCUMULATOR(0);
    if (!minima) {
        load_rows(0, 0);
        load_tokens(0, 0);
    }
    for (uint first = 0; first < n_block; first += 8) add_group(first, minima);
    sum_up(minima);
}

void main()
{
    if (!has_work()) return;
    if (TABLE > 0) fill_values(gl_LocalInvocationID.x, LOCAL);
    find_slice();
    find_inputs();
    if (is_live(0)) pass(false);
    if (is_live(0) && MINIMA > 0) pass(true);
    [[unroll]] for (uint i = 0; i < N_MATRIX * N_OUT; i++)
        put_output(i / N_OUT, gl_LocalInvocationID.x + i % N_OUT * LOCAL, outputs[i]);
}
