#version 450
/* Attention of the query heads of one KV head, for one token: one split, or all of them
 * (forward/gpu/shader_params.h: attn; docs/arithmetic.md 5). Heads are processed together, at most MAX_HEADS at a
 * time, so that each key or value is read once for them and their sums stay in registers. */
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require

layout(constant_id = 0) const uint D_HEAD = 64;
layout(constant_id = 1) const uint SHARED = 1;
layout(constant_id = 2) const uint KV = 0;
layout(constant_id = 3) const uint BY_SPLIT = 0;
layout(local_size_x_id = 4) in;
layout(binding = 0) readonly buffer Step { uint step_words[]; };
layout(binding = 1) readonly buffer Qkv { uint qkv[]; };
layout(binding = 2) readonly buffer Rounded { uint rounded[]; };
layout(binding = 3) readonly buffer Keys { uint keys[]; };
layout(binding = 4) readonly buffer Values { uint values[]; };
layout(binding = 5) writeonly buffer Out { float y[]; };
layout(binding = 6) writeonly buffer Parts { float parts[]; };
layout(push_constant) uniform Push
{
    uint n_head, n_head_kv, window, n_split, qkv_stride, d_at, head_words;
    float scale, cap, inverse_cap;
    uint first_tok, kv_class;
};

#include "floats.glsl"
#include "functions.glsl"
#include "step.glsl"
#include "attention.glsl"
#include "f16.glsl"

const uint MAX_HEADS = 8;
const uint N_CHUNK = (SHARED + MAX_HEADS - 1) / MAX_HEADS;
const uint HEADS = (SHARED + N_CHUNK - 1) / N_CHUNK; /* at a time */
const uint N_PAIR = D_HEAD / 2;                      /* columns of values: two dims each */
const uint COLUMNS = (N_PAIR + gl_WorkGroupSize.x - 1) / gl_WorkGroupSize.x; /* of an invocation */
const uint QUERY_WORDS = KV == KV_Q8_0 ? N_WORD : D_HEAD;                    /* of a head */
/* Values, and pairs of a key, loaded before the first is used: the fewer heads, the less computation hides the
 * latency. Known only with the constants, so that glslc leaves loops over them to the driver: when glslc unrolls a
 * loop itself, the copies may be contracted. */
const uint AHEAD = HEADS > 4 ? 8 : 16, KEYS_AHEAD = AHEAD / 2;

/* [..][HEADS]: all heads read their entry at the same time. */
shared uint queries[QUERY_WORDS * HEADS];
shared float weights[SPLIT * HEADS]; /* visible positions of a split; scores before */
shared float largest[8 * HEADS], sums[8 * HEADS];
shared part totals[HEADS]; /* of the splits so far, */
shared shares to_merge[HEADS]; /* and the factors that merge the split into them */
shared uint pages[PAGES];      /* of the split: those with positions that are seen */

/* The positions of this workgroup. */
uint t, i_kv, first_head; /* of the token's */
uint keys_at, values_at;  /* of the KV head */

/* Sums of an invocation: two chains of a score; a column over one split, all its columns over those so
 * far. */
vec2 chains[HEADS], result[HEADS], columns[COLUMNS * HEADS];

/* ---- scores ------------------------------------------------------------------------------------------ */

/* Heads beyond the last are zeros, which cost nothing but their time. */
void load_queries()
{
    for (uint i = gl_LocalInvocationID.x; i < QUERY_WORDS * HEADS; i += gl_WorkGroupSize.x) {
        uint word = i / HEADS, i_head = first_head + i % HEADS, of_all = t * n_head + i_head;
        queries[i] = 0;
        if (i_head >= (i_kv + 1) * SHARED) continue;
        if (KV != KV_Q8_0) queries[i] = qkv[t * qkv_stride + i_head * D_HEAD + word];
        else if (word < N_QUANT) queries[i] = rounded[of_all * N_QUANT + word];
        else queries[i] = rounded[d_at + of_all * N_BLOCK + word - N_QUANT];
    }
}

float query(uint i, uint h) { return uintBitsToFloat(queries[i * HEADS + h]); }

float scaled(float score)
{
    float x = times(score, scale);
    return cap == 0.0 ? x : times(tanh_by_rule(times(x, inverse_cap)), cap);
}

/* Dims 2 i and 2 i + 1 of the key whose first word is at `at`. */
vec2 key_pair(uint at, uint i)
{
    if (KV == KV_F16) return widened_pair(keys[at + i * GROUP]);
    return uintBitsToFloat(uvec2(keys[at + 2 * i * GROUP], keys[at + (2 * i + 1) * GROUP]));
}

/* Adds pair i of a key to its two chains. */
void add_pair(uint i, vec2 key)
{
    [[unroll]] for (uint h = 0; h < HEADS; h++)
        chains[h] = add_products(chains[h], vec2(query(2 * i, h), query(2 * i + 1, h)), key);
}

/* Scores of one key, to weights[to ..]: a quarter of the dims at a time, so that only two of the eight chains of a
 * head are live, and finished ones enter the reduction tree. */
void score_floats(uint to, uint at)
{
    float side[HEADS], left[HEADS];
    for (uint quarter = 0; quarter < 4; quarter++) {
        [[unroll]] for (uint h = 0; h < HEADS; h++) chains[h] = vec2(0.0);
        uint i = quarter;
        for (; i + 4 * (KEYS_AHEAD - 1) < N_PAIR; i += 4 * KEYS_AHEAD) {
            vec2 next[KEYS_AHEAD];
            [[unroll]] for (uint k = 0; k < KEYS_AHEAD; k++) next[k] = key_pair(at, i + 4 * k);
            [[unroll]] for (uint k = 0; k < KEYS_AHEAD; k++) add_pair(i + 4 * k, next[k]);
        }
        for (; i < N_PAIR; i += 4) add_pair(i, key_pair(at, i));
        [[unroll]] for (uint h = 0; h < HEADS; h++) {
            float ended = add(chains[h].x, chains[h].y);
            side[h] = quarter % 2 == 0 ? ended : add(side[h], ended);
            if (quarter == 1) left[h] = side[h];
        }
    }
    [[unroll]] for (uint h = 0; h < HEADS; h++) weights[to + h] = scaled(add(left[h], side[h]));
}

int dot_of_bytes(uint a, uint b)
{
    int sum = 0;
    [[unroll]] for (int k = 0; k < 32; k += 8)
        sum += bitfieldExtract(int(a), k, 8) * bitfieldExtract(int(b), k, 8);
    return sum;
}

void score_rounded(uint to, uint at)
{
    float scores[HEADS];
    [[unroll]] for (uint h = 0; h < HEADS; h++) scores[h] = 0.0;
    for (uint block = 0; block < N_BLOCK; block++) {
        int dots[HEADS];
        [[unroll]] for (uint h = 0; h < HEADS; h++) dots[h] = 0;
        for (uint i = block * BLOCK / 4; i < (block + 1) * BLOCK / 4; i++) {
            uint key = keys[at + i * GROUP];
            [[unroll]] for (uint h = 0; h < HEADS; h++) dots[h] += dot_of_bytes(key, queries[i * HEADS + h]);
        }
        float d = uintBitsToFloat(keys[at + (N_QUANT + block) * GROUP]);
        [[unroll]] for (uint h = 0; h < HEADS; h++)
            scores[h] = add_product(scores[h], times(d, query(N_QUANT + block, h)), float(dots[h]));
    }
    [[unroll]] for (uint h = 0; h < HEADS; h++) weights[to + h] = scaled(scores[h]);
}

/* ---- weights ----------------------------------------------------------------------------------------- */

/* The largest of every eighth score, from the first of all on, so that a later NaN is skipped as it is when scores
 * are compared one by one. */
void find_largest(uint n)
{
    for (uint i = gl_LocalInvocationID.x; i < 8 * HEADS; i += gl_WorkGroupSize.x) {
        uint h = i / 8;
        float best = weights[h];
        for (uint j = i % 8; j < n; j += 8) {
            float score = weights[j * HEADS + h];
            best = score > best ? score : best;
        }
        largest[i] = best;
    }
}

float largest_of(uint h)
{
    float best = largest[8 * h];
    [[unroll]] for (uint chain = 1; chain < 8; chain++) {
        float other = largest[8 * h + chain];
        best = other > best ? other : best;
    }
    return best;
}

void weigh(uint n)
{
    for (uint h = 0; h < HEADS; h++) {
        float top = largest_of(h);
        for (uint j = gl_LocalInvocationID.x; j < n; j += gl_WorkGroupSize.x) {
            precise float below = weights[j * HEADS + h] - top;
            weights[j * HEADS + h] = exp_by_rule(below);
        }
    }
}

void add_weights(uint n)
{
    for (uint i = gl_LocalInvocationID.x; i < 8 * HEADS; i += gl_WorkGroupSize.x) {
        float sum = 0.0;
        for (uint j = i % 8; j < n; j += 8) sum = add(sum, weights[j * HEADS + i / 8]);
        sums[i] = sum;
    }
}

float sum_of(uint h)
{
    uint i = 8 * h;
    return add(add(add(sums[i], sums[i + 1]), add(sums[i + 2], sums[i + 3])),
               add(add(sums[i + 4], sums[i + 5]), add(sums[i + 6], sums[i + 7])));
}

/* The n positions from `at` on of a split. */
void load_pages(uint i_split, uint at, uint n)
{
    for (uint i = at / PAGE + gl_LocalInvocationID.x; i <= (at + n - 1) / PAGE; i += gl_WorkGroupSize.x)
        pages[i] = page_of(t, kv_class, i_split * PAGES + i);
}

/* Where a position of the split is in the cache. */
uint place_of(uint at) { return pages[at / PAGE] * PAGE + at % PAGE; }

/* Scores of n positions of the split from `at` on, then their weights, and these added up in eight chains. */
void weigh_positions(uint at, uint n)
{
    for (uint j = gl_LocalInvocationID.x; j < n; j += gl_WorkGroupSize.x) {
        uint key = keys_at + key_at(place_of(at + j));
        if (KV == KV_Q8_0) score_rounded(j * HEADS, key);
        else score_floats(j * HEADS, key);
    }
    barrier();
    find_largest(n);
    barrier();
    weigh(n);
    barrier();
    add_weights(n);
    barrier();
}

/* ---- values ------------------------------------------------------------------------------------------ */

/* Dims 2 i and 2 i + 1 of the value whose first word is at `at`. */
vec2 value_pair(uint at, uint i)
{
    if (KV == KV_F16) return widened_pair(values[at + i]);
    if (KV == KV_F32) return uintBitsToFloat(uvec2(values[at + 2 * i], values[at + 2 * i + 1]));
    int word = int(values[at + i / 2]), from = int(i % 2) * 16;
    float d = uintBitsToFloat(values[at + N_QUANT + 2 * i / BLOCK]);
    return vec2(times(d, float(bitfieldExtract(word, from, 8))),
                times(d, float(bitfieldExtract(word, from + 8, 8))));
}

/* Adds a column of adjacent values, from word `from` on and with the weights [j, end), to result. */
void add_adjacent(uint column, uint from, uint j, uint end)
{
    for (; j + AHEAD <= end; j += AHEAD, from += AHEAD * N_WORD) {
        vec2 next[AHEAD];
        [[unroll]] for (uint k = 0; k < AHEAD; k++) next[k] = value_pair(from + k * N_WORD, column);
        [[unroll]] for (uint k = 0; k < AHEAD; k++)
            [[unroll]] for (uint h = 0; h < HEADS; h++)
                result[h] = add_products(result[h], vec2(weights[(j + k) * HEADS + h]), next[k]);
    }
    for (; j < end; j++, from += N_WORD) {
        vec2 value = value_pair(from, column);
        [[unroll]] for (uint h = 0; h < HEADS; h++)
            result[h] = add_products(result[h], vec2(weights[j * HEADS + h]), value);
    }
}

/* Weighted sums of a column over n positions of the split from `at` on, to result: one chain per dim and head. */
void add_values(uint column, uint at, uint n)
{
    [[unroll]] for (uint h = 0; h < HEADS; h++) result[h] = vec2(0.0);
    for (uint j = 0, end; j < n; j = end) {
        end = min(n, j + PAGE - (at + j) % PAGE);
        add_adjacent(column, values_at + value_at(place_of(at + j)), j, end);
    }
}

void put(uint i_result, uint column, vec2 value)
{
    y[i_result * D_HEAD + 2 * column] = value.x;
    y[i_result * D_HEAD + 2 * column + 1] = value.y;
}

/* ---- one split --------------------------------------------------------------------------------------- */

uint heads_there() { return min(HEADS, (i_kv + 1) * SHARED - first_head); }

/* Stores to its own slot. */
void leave_split(uint at, uint n, uint i_split)
{
    uint to = (t * n_split + i_split) * n_head + first_head;
    weigh_positions(at, n);
    for (uint h = gl_LocalInvocationID.x; h < heads_there(); h += gl_WorkGroupSize.x) {
        parts[2 * (to + h)] = largest_of(h);
        parts[2 * (to + h) + 1] = sum_of(h);
    }
    for (uint column = gl_LocalInvocationID.x; column < N_PAIR; column += gl_WorkGroupSize.x) {
        add_values(column, at, n);
        for (uint h = 0; h < heads_there(); h++) put(to + h, column, result[h]);
    }
}

/* ---- all splits, one after the other ----------------------------------------------------------------- */

/* Merges into totals and columns. */
void add_split(uint at, uint n, bool is_first)
{
    weigh_positions(at, n);
    for (uint h = gl_LocalInvocationID.x; h < HEADS; h += gl_WorkGroupSize.x) {
        part now = part(largest_of(h), sum_of(h));
        shares s = shares_of(totals[h], now);
        to_merge[h] = s;
        if (is_first) totals[h] = now;
        else totals[h] = merge(totals[h], now, s);
    }
    barrier();
    [[unroll]] for (uint c = 0; c < COLUMNS; c++) {
        uint column = c * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
        if (column >= N_PAIR) break;
        add_values(column, at, n);
        [[unroll]] for (uint h = 0; h < HEADS; h++) {
            vec2 before = columns[c * HEADS + h], now = result[h];
            shares s = to_merge[h];
            vec2 both = vec2(merged(before.x, now.x, s), merged(before.y, now.y, s));
            columns[c * HEADS + h] = is_first ? now : both;
        }
    }
}

void end_splits()
{
    for (uint h = 0; h < heads_there(); h++) {
        float r = rcp(totals[h].sum);
        [[unroll]] for (uint c = 0; c < COLUMNS; c++) {
            uint column = c * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
            vec2 sum = columns[c * HEADS + h], quotient = vec2(times(sum.x, r), times(sum.y, r));
            if (column < N_PAIR) put(t * n_head + first_head + h, column, quotient);
        }
    }
}

/* ---- all heads --------------------------------------------------------------------------------------- */

void main()
{
    t = first_tok + gl_WorkGroupID.z;
    i_kv = gl_WorkGroupID.y;
    if (t >= step_words[STEP_N_TOK]) return;
    uint position = position_of(t), first = first_seen(position, window);
    uint first_split = first / SPLIT, last_split = position / SPLIT;
    if (BY_SPLIT != 0) {
        if (gl_WorkGroupID.x > last_split - first_split) return;
        first_split += gl_WorkGroupID.x;
        last_split = first_split;
    }
    keys_at = values_at = i_kv * head_words;
    for (uint chunk = 0; chunk < N_CHUNK; chunk++) {
        first_head = i_kv * SHARED + chunk * HEADS;
        load_queries();
        for (uint i_split = first_split; i_split <= last_split; i_split++) {
            uint begin = max(i_split * SPLIT, first), n = min((i_split + 1) * SPLIT, position + 1) - begin;
            load_pages(i_split, begin % SPLIT, n);
            barrier();
            if (BY_SPLIT != 0) leave_split(begin % SPLIT, n, gl_WorkGroupID.x);
            else add_split(begin % SPLIT, n, i_split == first_split);
            barrier();
        }
        if (BY_SPLIT == 0) end_splits();
    }
}
