#version 450
/* Rows of a router times inputs (forward/gpu/shader_params.h: router_rows), by rule R10 of docs/arithmetic.md. Eight
 * invocations compute a row for a token, each a chain of its sum. All of a workgroup load a stretch of the rows and of
 * the inputs before any of them adds. */
#extension GL_GOOGLE_include_directive : require
#include "floats.glsl"
#include "step.glsl"

layout(constant_id = 0) const uint TOKENS = 1;
layout(constant_id = 1) const uint WIDE = 0;
layout(local_size_x_id = 2) in;
layout(binding = 0) readonly buffer Step { uint step_words[]; };
layout(binding = 1) readonly buffer Weight { float weight[]; };
layout(binding = 1) readonly buffer Weights { vec4 weights_4[]; }; /* the same */
layout(binding = 2) readonly buffer X { float x[]; };
layout(binding = 3) readonly buffer Bias { float bias[]; };
layout(binding = 4) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Push
{
    uint n_row, n_col, has_bias;
    uint x_stride, x_at, y_stride, y_at;
};

const uint ROWS = 8, STRETCH = 256; /* of a workgroup; columns */
const uint PITCH = STRETCH + 8;     /* so that the chains of four rows lie in 32 banks */
const uint LANES = ROWS * 8 * TOKENS;
const uint LOADS = ROWS * STRETCH / 4 / LANES, N_INPUT = 4; /* of an invocation, in a stretch */

shared float rows[ROWS * PITCH], inputs[TOKENS * PITCH], chains[LANES];

uint lane() { return gl_LocalInvocationID.x; }
uint row_of(uint r) { return min(gl_WorkGroupID.x * ROWS + r, n_row - 1); }
uint token_of(uint t) { return min(gl_WorkGroupID.y * TOKENS + t, step_words[STEP_N_TOK] - 1); }

uint column_of(uint i) { return min(i, n_col - 1); }

/* Weights i to i + 3 of a row; behind the last one others. */
vec4 weights_of(uint row, uint i)
{
    uint at = row * n_col;
    if (WIDE != 0) return weights_4[(at + min(i, n_col - 4)) / 4];
    return vec4(weight[at + column_of(i)], weight[at + column_of(i + 1)], weight[at + column_of(i + 2)],
                weight[at + column_of(i + 3)]);
}

/* Columns [first, first + STRETCH); those behind the last are 0. All loads come before the first use. */
void load_stretch(uint first)
{
    vec4 w[LOADS];
    float v[N_INPUT];
    for (uint k = 0; k < LOADS; k++) {
        uint i = lane() + k * LANES;
        w[k] = weights_of(row_of(4 * i / STRETCH), first + 4 * i % STRETCH);
    }
    for (uint k = 0; k < N_INPUT; k++) {
        uint i = lane() + k * LANES;
        v[k] = x[token_of(i / STRETCH) * x_stride + x_at + column_of(first + i % STRETCH)];
    }
    for (uint k = 0; k < LOADS; k++) {
        uint i = 4 * (lane() + k * LANES), column = i % STRETCH, at = i / STRETCH * PITCH + column;
        for (uint e = 0; e < 4; e++) rows[at + e] = first + column + e < n_col ? w[k][e] : 0.0;
    }
    for (uint k = 0; k < N_INPUT; k++) {
        uint i = lane() + k * LANES, column = i % STRETCH;
        inputs[i / STRETCH * PITCH + column] = first + column < n_col ? v[k] : 0.0;
    }
}

void main()
{
    const uint chain = lane() % 8, r = lane() / 8 % ROWS, t = lane() / (8 * ROWS);
    if (gl_WorkGroupID.y * TOKENS >= step_words[STEP_N_TOK]) return;
    precise float sum = 0.0;
    for (uint first = 0; first < n_col; first += STRETCH) {
        load_stretch(first);
        barrier();
        uint n = (min(STRETCH, n_col - first) + 7) / 8;
        for (uint i = 0; i < n; i++) {
            precise float product = rows[r * PITCH + 8 * i + chain] * inputs[t * PITCH + 8 * i + chain];
            precise float next = sum + product;
            sum = next;
        }
        barrier();
    }
    chains[lane()] = sum;
    barrier();
    uint row = gl_WorkGroupID.x * ROWS + r, token = gl_WorkGroupID.y * TOKENS + t;
    if (chain > 0 || row >= n_row || token >= step_words[STEP_N_TOK]) return;
    uint at = lane();
    precise float value = ((chains[at] + chains[at + 1]) + (chains[at + 2] + chains[at + 3])) +
                          ((chains[at + 4] + chains[at + 5]) + (chains[at + 6] + chains[at + 7]));
    if (has_bias != 0) value = value + bias[row];
    y[token * y_stride + y_at + row] = value;
}
