/* Quantised rows times rounded activations, rules R2 to R5 of docs/arithmetic.md. Eight invocations share ROWS
 * rows and COLS tokens: number j takes blocks j, j + 8, ... of all of them, so each holds partial sum j of
 * every output. One row of one token has a way of its own, by which more than eight LANES can share it, so that a matrix
 * of few rows keeps a large device busy (one_row.glsl).
 * MATRIX: the integers come from matrix units (tiles.glsl), else from dot products (dots.glsl). */

#include "quantised.glsl"

const uint STRIDE = LOCAL + 1; /* so that eight outputs lie in eight banks */

/* Outputs that are ended together, a line each; those of minima follow. */
const uint LINES = OUTPUTS < 8 ? OUTPUTS : 8;
const uint N_PARTIAL = (1 + MINIMA) * LINES * STRIDE;

/* Of this invocation. */
float sums[OUTPUTS], least_sums[OUTPUTS];
int isums[OUTPUTS], msums[OUTPUTS];

#ifdef MATRIX
#include "tiles.glsl"
#else
#include "dots.glsl"
#endif

/* ---- floats -------------------------------------------------------------------------------------- */

/* Block b to the partial sums, once its integers are complete. */
void add_block(uint b)
{
    float dx[COLS];
    int x_sum[COLS];
    [[unroll]] for (uint c = 0; c < COLS; c++) {
        uint at = input_at(token_of[c], b);
        dx[c] = d[at];
        if (BLOCK == 32 && (OFFSET > 0 || MINIMA > 0)) x_sum[c] = sum[at];
    }
    [[unroll]] for (uint r = 0; r < ROWS; r++) {
        float dw = scale_at(row_of[r], b);
        float m = MINIMA > 0 ? half_at(at_minimum, row_of[r], b) : 0;
        [[unroll]] for (uint c = 0; c < COLS; c++) {
            uint o = r * COLS + c;
            if (BLOCK == 32 && OFFSET > 0) isums[o] -= int(OFFSET) * x_sum[c];
            precise float t = dw * dx[c];
            precise float u = t * to_float(isums[o]);
            precise float s = sums[o] + u;
            sums[o] = s;
            if (MINIMA > 0) {
                precise float tm = m * dx[c];
                precise float um = tm * float(BLOCK == 32 ? x_sum[c] : msums[o]);
                precise float sm = least_sums[o] + um;
                least_sums[o] = sm;
            }
        }
    }
}

/* Neighbours first. */
float tree8(uint at)
{
    precise float y = ((held(at) + held(at + 1)) + (held(at + 2) + held(at + 3))) +
                      ((held(at + 4) + held(at + 5)) + (held(at + 6) + held(at + 7)));
    return y;
}

/* The output whose partial sums are line `line`. */
float end_row(uint line)
{
    uint at = line * STRIDE + gl_LocalInvocationID.x / 8 * 8;
    precise float y = tree8(at);
    if (MINIMA > 0) {
        float least = tree8(at + LINES * STRIDE);
        y = BLOCK == 32 ? y + least : y - least;
    }
    return y;
}

#ifndef MATRIX
#include "one_row.glsl"
#endif

/* ---- all of it -------------------------------------------------------------------------------------- */

void main()
{
    const uint lane = gl_LocalInvocationID.x, j = lane % 8;
    if (!has_work() || !group_is_live()) return;
    if (TABLE > 0) fill_values(lane, LOCAL);
    choose();
#ifdef MATRIX
    find_inputs();
#endif
    [[unroll]] for (uint o = 0; o < OUTPUTS; o++) sums[o] = 0, least_sums[o] = 0;

    const uint end = is_busy() ? n_block : 0;
#ifndef MATRIX
    if (LANES > 8) add_row(end);
    else if (ONE_ROW) add_row_of_eight(end);
    else
#endif
    for (uint first = 0; LANES == 8 && first < end; first += 8) {
        const uint n_group = min(8, n_block - first);
        [[unroll]] for (uint o = 0; o < OUTPUTS; o++) isums[o] = 0, msums[o] = 0;
        add_products(first, n_group, j);
        if (j < n_group) add_block(first + j);
    }

    /* Each of the first eight invocations ends one output of eight. */
    [[unroll]] for (uint o = 0; o < OUTPUTS; o += 8) {
        [[unroll]] for (uint i = 0; i < 8; i++) {
            if (o + i >= OUTPUTS) continue;
            hold(i * STRIDE + lane, sums[o + i]);
            if (MINIMA > 0) hold((LINES + i) * STRIDE + lane, least_sums[o + i]);
        }
        barrier();
        if (lane % LANES < 8 && o + j < OUTPUTS) put(o + j, end_row(j));
        barrier();
    }
}
