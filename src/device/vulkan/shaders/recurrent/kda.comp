#version 450
/* Kimi Delta Attention (forward/gpu/shader_params.h: kda; forward/kda.c says what is computed). A workgroup has some
 * columns of the state of a head, one for each invocation, and keeps them in shared memory for all tokens of a run. */
#extension GL_GOOGLE_include_directive : require
#include "floats.glsl"
#include "chains.glsl"
#include "step.glsl"

layout(constant_id = 0) const uint D = 64;
layout(local_size_x_id = 1) in;
layout(binding = 0) readonly buffer Step { uint step_words[]; };
layout(binding = 1) readonly buffer Query { float queries[]; };
layout(binding = 2) readonly buffer Key { float keys[]; };
layout(binding = 3) readonly buffer Value { float values[]; };
layout(binding = 4) readonly buffer Beta { float beta[]; };
layout(binding = 5) readonly buffer Decay { float decays[]; };
layout(binding = 6) buffer States { vec4 states[]; };
layout(binding = 7) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Push
{
    uint n_head, runs_at, first_tok, n_tok;
    float inverse_root;
    uint query_stride, query_at, key_stride, key_at, value_stride, value_at;
    uint beta_stride, beta_at, decay_stride, decay_at, y_stride, y_at;
};
#include "runs.glsl"

const uint COLUMNS = gl_WorkGroupSize.x, QUADS = COLUMNS / 4; /* of a row of the workgroup's part of the state */
const uint LOADS = 4;
/* Each invocation then has LOADS quads at a time. A branch for each would let a load wait for the one before. */
const bool WHOLE = D % COLUMNS == 0 && D * QUADS % (LOADS * COLUMNS) == 0;

shared float state[D * COLUMNS];
shared float query[D], key[D], decay[D];

uint lane() { return gl_LocalInvocationID.x; }

/* Quad i of the part lies in the state of the head at this one; those beyond its columns are not there. */
uint quad_at(uint first, uint i) { return i / QUADS * (D / 4) + first / 4 + i % QUADS; }
bool is_there(uint first, uint i) { return WHOLE || i < D * QUADS && first + 4 * (i % QUADS) < D; }

void load_state(uint head, uint first)
{
    for (uint i = lane(); i < D * QUADS; i += LOADS * COLUMNS) {
        vec4 loaded[LOADS];
        for (uint k = 0; k < LOADS; k++)
            if (is_there(first, i + k * COLUMNS)) loaded[k] = states[head + quad_at(first, i + k * COLUMNS)];
        for (uint k = 0; k < LOADS; k++)
            for (uint c = 0; c < 4 && is_there(first, i + k * COLUMNS); c++)
                state[4 * (i + k * COLUMNS) + c] = loaded[k][c];
    }
}

void store_state(uint head, uint first)
{
    for (uint i = lane(); i < D * QUADS; i += COLUMNS)
        if (is_there(first, i))
            states[head + quad_at(first, i)] =
                vec4(state[4 * i], state[4 * i + 1], state[4 * i + 2], state[4 * i + 3]);
}

void load_token(uint t, uint head)
{
    for (uint i = lane(); i < D; i += COLUMNS) {
        query[i] = queries[t * query_stride + query_at + head * D + i];
        key[i] = keys[t * key_stride + key_at + head * D + i];
        decay[i] = decays[t * decay_stride + decay_at + head * D + i];
    }
}

/* A token's output in a column; the column becomes the state after it. */
float run_token(float value, float beta_of)
{
    float from_key = 0.0, sum = 0.0;
    for (uint i = 0; i < D; i++) {
        precise float decayed = state[i * COLUMNS + lane()] * decay[i];
        state[i * COLUMNS + lane()] = decayed;
        from_key = plus(from_key, key[i], decayed);
    }
    precise float u = value - from_key;
    u = u * beta_of;
    for (uint i = 0; i < D; i++) {
        float next = plus(state[i * COLUMNS + lane()], key[i], u);
        state[i * COLUMNS + lane()] = next;
        sum = plus(sum, query[i], next);
    }
    precise float out_of = sum * inverse_root;
    return out_of;
}

void main()
{
    const uint n_part = (D + COLUMNS - 1) / COLUMNS, head = gl_WorkGroupID.x / n_part;
    const uint first = gl_WorkGroupID.x % n_part * COLUMNS, column = first + lane();
    if (gl_WorkGroupID.y >= step_words[STEP_N_RUN]) return;
    const uint run = run_word(RUN_FIRST), begin = max(run, first_tok);
    const uint end = min(run + run_word(RUN_N_TOK), first_tok + n_tok);
    if (begin >= end) return;
    const uint page = n_head * D * (D / 4), of_head = head * D * (D / 4);
    const uint from = run_word(begin == run ? RUN_STEP_FROM : RUN_STEP_TO);
    if (begin > run || run_word(RUN_POSITION) > 0) load_state(from * page + of_head, first);
    else
        for (uint i = lane(); i < D * COLUMNS; i += COLUMNS) state[i] = 0.0;
    for (uint t = begin; t < end; t++) {
        barrier();
        load_token(t, head);
        barrier();
        if (column < D) {
            float value = values[t * value_stride + value_at + head * D + column];
            y[t * y_stride + y_at + head * D + column] = run_token(value, beta[t * beta_stride + beta_at + head]);
        }
    }
    barrier();
    store_state(run_word(RUN_STEP_TO) * page + of_head, first);
}
