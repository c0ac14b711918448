#version 450
/* Gated DeltaNet in chunks (forward/gpu/shader_params.h: delta_net; forward/delta_net.c says what is computed). A
 * workgroup has a head of keys, with the heads that share it, of the tokens of a run; an invocation has columns of their
 * states. */
#extension GL_GOOGLE_include_directive : require
#include "floats.glsl"
#include "functions.glsl"
#include "chains.glsl"
#include "step.glsl"

layout(constant_id = 0) const uint D = 64;
layout(local_size_x_id = 1) in;
layout(binding = 0) readonly buffer Step { uint step_words[]; };
layout(binding = 1) readonly buffer X { float x[]; };
layout(binding = 2) readonly buffer Beta { float beta[]; };
layout(binding = 3) readonly buffer Decay { float decay[]; };
layout(binding = 4) coherent buffer States { float states[]; };
layout(binding = 5) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Push
{
    uint n_head_key, n_shared, interleaved, runs_at, first_tok, n_tok;
    float inverse_root;
    uint x_stride, x_at, beta_stride, beta_at, decay_stride, decay_at, y_stride, y_at;
};
#include "runs.glsl"

const uint CHUNK = 32, LOCAL = gl_WorkGroupSize.x; /* HTH_CHUNK */
const uint PART = D * D + D * CHUNK + CHUNK;       /* of a head: state, u, decays */

shared float key[D], query[D];
shared float by_key[CHUNK], by_query[CHUNK]; /* products with the keys of the chunk */
shared float of_key[CHUNK], of_query[CHUNK]; /* these, times decays */

uint lane() { return gl_LocalInvocationID.x; }

/* Waits until all invocations have written what they did, to shared memory and to the state. */
void wait()
{
    memoryBarrierBuffer();
    barrier();
}

float exp_between(float from, float to)
{
    precise float difference = to - from;
    return exp_by_rule(difference);
}

/* Column j of the sums of token `at` of a chunk: its corrected value u, and the output. */
void column(uint t, uint head, uint at, uint part, bool has_state, float g, uint j)
{
    float from_key = 0.0, from_query = 0.0;
    for (uint i = 0; has_state && i < D; i++) {
        float s = states[part + i * D + j];
        from_key = plus(from_key, key[i], s);
        from_query = plus(from_query, query[i], s);
    }
    const uint u_at = part + D * D, value_at = x_at + (2 * n_head_key + head) * D;
    float e = exp_by_rule(g);
    precise float u = x[t * x_stride + value_at + j] - e * from_key, out_of = e * from_query;
    for (uint c = 0; c < at; c++) {
        float u_c = states[u_at + c * D + j];
        u = plus(u, -of_key[c], u_c);
        out_of = plus(out_of, of_query[c], u_c);
    }
    u = u * beta[t * beta_stride + beta_at + head];
    states[u_at + at * D + j] = u;
    out_of = plus(out_of, of_query[at], u);
    out_of = out_of * inverse_root;
    y[t * y_stride + y_at + head * D + j] = out_of;
}

/* The state behind the chunk, to the part `to`, which may be the same. */
void end_chunk(uint keys, uint part, uint to, bool has_state)
{
    const uint u_at = part + D * D, decays = u_at + D * CHUNK;
    float last = states[decays + CHUNK - 1], e = exp_by_rule(last);
    for (uint c = lane(); c < CHUNK; c += LOCAL) of_key[c] = exp_between(states[decays + c], last);
    wait();
    for (uint j = lane(); j < D; j += LOCAL)
        for (uint i = 0; i < D; i++) {
            precise float sum = has_state ? states[part + i * D + j] * e : 0.0;
            for (uint c = 0; c < CHUNK; c++)
                sum = plus(sum, states[keys + i * CHUNK + c] * of_key[c], states[u_at + c * D + j]);
            states[to + i * D + j] = sum;
        }
    wait();
}

/* Puts the query and the key of a token into shared memory, the key into the chunk, and finds its products. */
void begin_token(uint t, uint i_key, uint at, uint keys)
{
    const uint row = t * x_stride + x_at + i_key * D;
    for (uint i = lane(); i < D; i += LOCAL) {
        query[i] = x[row + i];
        key[i] = x[row + n_head_key * D + i];
        states[keys + i * CHUNK + at] = key[i];
    }
    wait();
    for (uint c = lane(); c <= at; c += LOCAL) {
        float of_k = 0.0, of_q = 0.0;
        for (uint i = 0; i < D; i++) {
            float old = states[keys + i * CHUNK + c];
            of_k = plus(of_k, key[i], old);
            of_q = plus(of_q, query[i], old);
        }
        by_key[c] = of_k, by_query[c] = of_q;
    }
}

void main()
{
    const uint i_key = gl_WorkGroupID.x, size = D * CHUNK + n_shared * PART, page_words = n_head_key * size;
    if (gl_WorkGroupID.y >= step_words[STEP_N_RUN]) return;
    const uint first = run_word(RUN_FIRST), n = run_word(RUN_N_TOK), position = run_word(RUN_POSITION);
    for (uint k = 0; k < n; k++) {
        const uint t = first + k, p = position + k, at = p % CHUNK;
        if (t < first_tok || t >= first_tok + n_tok) continue;
        const uint page = run_word(p / CHUNK == position / CHUNK ? RUN_CHUNK_FROM : RUN_CHUNK_TO);
        const uint keys = page * page_words + i_key * size, next = run_word(RUN_CHUNK_TO) * page_words + i_key * size;
        const bool has_state = p >= CHUNK;
        begin_token(t, i_key, at, keys);
        for (uint shared_at = 0; shared_at < n_shared; shared_at++) {
            const uint head = interleaved != 0 ? shared_at * n_head_key + i_key : i_key * n_shared + shared_at;
            const uint in_head = D * CHUNK + shared_at * PART, part = keys + in_head;
            const uint decays = part + D * D + D * CHUNK;
            precise float g = decay[t * decay_stride + decay_at + head];
            if (at > 0) g = states[decays + at - 1] + g;
            wait(); /* the last head has used its factors */
            for (uint c = lane(); c <= at; c += LOCAL) {
                float e = exp_between(c == at ? g : states[decays + c], g);
                precise float of_k = e * by_key[c], of_q = e * by_query[c];
                of_key[c] = of_k, of_query[c] = of_q;
            }
            if (lane() == 0) states[decays + at] = g;
            wait();
            for (uint j = lane(); j < D; j += LOCAL) column(t, head, at, part, has_state, g, j);
            wait();
            if (at + 1 == CHUNK) end_chunk(keys, part, next + in_head, has_state);
        }
        wait();
    }
}
