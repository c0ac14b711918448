/* The integers of mul_mat_vec_q from matrix units: products of signed bytes, M rows by N tokens by K weights at
 * once, whose sums are exact. A workgroup brings a step of eight blocks of its rows and tokens together, its
 * subgroups multiply a block each, and the invocation that has an output's block takes the product from
 * there.
 *
 * A step: the weights of a block that share a scale, with zeros behind them where K is more. */
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_EXT_shader_explicit_arithmetic_types : require

layout(constant_id = 13) const uint M = 16; /* divide the tile's rows and tokens, and K divides 32 */
layout(constant_id = 14) const uint N = 16;
layout(constant_id = 15) const uint K = 16;

const uint TILE = GROUPS * ROWS;                             /* rows */
const uint PARTS = PART == 16 ? 1 : 2, WEIGHTS = 16 * PARTS; /* of a step */
const uint STEP = WEIGHTS < K ? K : WEIGHTS;
/* Of shared memory; what is more lets neighbours lie in other banks. */
const uint LINE = STEP + 2;          /* of a row or token, eight bytes each */
const uint SQUARE = TILE * COLS + 4; /* of a block */

shared uvec2 weights[TILE * LINE], inputs[COLS * LINE];
shared int products[8 * SQUARE > N_PARTIAL ? 8 * SQUARE : N_PARTIAL]; /* and partial sums, when all is done */

void hold(uint at, float x) { products[at] = floatBitsToInt(x); }
float held(uint at) { return intBitsToFloat(products[at]); }

/* Where block j of row or token i begins. */
uint place(uint i, uint j) { return i * LINE + j * (STEP / 8); }

void bring_weights(uint first, uint n_group, uint part)
{
    for (uint i = gl_LocalInvocationID.x; i < 8 * TILE; i += LOCAL) {
        uint j = i % 8, at = place(i / 8, j), row = weights_of_row(row_group() * TILE + i / 8);
        if (j >= n_group) continue;
        for (uint k = part; k < part + PARTS; k++, at += 2) {
            uvec4 w = sixteen_of(row, first, j, n_group, k);
            weights[at] = w.xy, weights[at + 1] = w.zw;
        }
        for (uint k = WEIGHTS; k < STEP; k += 8, at++) weights[at] = uvec2(0);
    }
}

void bring_inputs(uint first, uint n_group, uint part)
{
    for (uint i = gl_LocalInvocationID.x; i < 8 * COLS; i += LOCAL) {
        uint j = i % 8, at = place(i / 8, j), token = tile_inputs(i / 8);
        if (j >= n_group) continue;
        for (uint k = part; k < part + PARTS; k++, at += 2) {
            uvec4 x = q[(token * n_block + first + j) * N_PART + k];
            inputs[at] = x.xy, inputs[at + 1] = x.zw;
        }
    }
}

/* All products of the step, tile by tile of M times N. */
void multiply(uint n_group)
{
    const uint n_tile = TILE / M, n_square = n_tile * (COLS / N);
    for (uint i = gl_SubgroupID; i < n_group * n_square; i += gl_NumSubgroups) {
        uint j = i / n_square, m = i % n_tile * M, n = i % n_square / n_tile * N;
        coopmat<int32_t, gl_ScopeSubgroup, M, N, gl_MatrixUseAccumulator> sum =
            coopmat<int32_t, gl_ScopeSubgroup, M, N, gl_MatrixUseAccumulator>(0);
        for (uint k = 0; k < STEP; k += K) {
            coopmat<int8_t, gl_ScopeSubgroup, M, K, gl_MatrixUseA> w;
            coopmat<int8_t, gl_ScopeSubgroup, K, N, gl_MatrixUseB> x;
            coopMatLoad(w, weights, place(m, j) + k / 8, LINE, gl_CooperativeMatrixLayoutRowMajor);
            coopMatLoad(x, inputs, place(n, j) + k / 8, LINE, gl_CooperativeMatrixLayoutColumnMajor);
            sum = coopMatMulAdd(w, x, sum);
        }
        coopMatStore(sum, products, j * SQUARE + n * TILE + m, TILE, gl_CooperativeMatrixLayoutColumnMajor);
    }
}

/* The step's products to this invocation's integers of block b, number j of its group. */
void add_step(uint b, uint j, uint part)
{
    int x_sum[COLS];
    [[unroll]] for (uint c = 0; c < COLS; c++) {
        uint at = (token_of[c] * n_block + b) * N_PART + part;
        if (BLOCK != 32 && (OFFSET > 0 || MINIMA > 0)) x_sum[c] = sum[at] + (PARTS > 1 ? sum[at + 1] : 0);
    }
    [[unroll]] for (uint r = 0; r < ROWS; r++) {
        uint at = row_of[r] * n_block + b;
        int scale = PART > 0 ? sub_byte(at_part, at, part) : 1;
        int least = PART > 0 && MINIMA > 0 ? sub_byte(at_least, at, part) : 0;
        [[unroll]] for (uint c = 0; c < COLS; c++) {
            uint o = r * COLS + c;
            int product = products[j * SQUARE + c * TILE + gl_LocalInvocationID.x / 8 + r * GROUPS];
            if (BLOCK != 32 && OFFSET > 0) product -= int(OFFSET) * x_sum[c];
            isums[o] += scale * product;
            if (BLOCK != 32 && MINIMA > 0) msums[o] += least * x_sum[c];
        }
    }
}

/* As in dots.glsl, by all invocations together. */
void add_products(uint first, uint n_group, uint j)
{
    for (uint part = 0; part < N_PART; part += PARTS) {
        bring_weights(first, n_group, part);
        bring_inputs(first, n_group, part);
        barrier();
        multiply(n_group);
        barrier();
        if (j < n_group) add_step(first + j, j, part);
    }
    if (first + 8 >= n_block) barrier(); /* the last: partial sums take their place */
}
