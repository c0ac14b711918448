#version 450
/* Norm and rotation of one head of a token, of queries in place; stores keys and values in the caches
 * (forward/gpu/shader_params.h: rope_store). A workgroup processes one query, key or value. */
#extension GL_GOOGLE_include_directive : require

layout(constant_id = 0) const uint D_HEAD = 64;
layout(constant_id = 1) const uint KIND = 0;
layout(constant_id = 2) const uint NORM = 0;
layout(constant_id = 3) const uint KV = 0;
layout(local_size_x_id = 4) in;
layout(constant_id = 5) const uint NORMS_AFTER = 0;
layout(constant_id = 6) const uint NORMS_VALUES = 0;
layout(constant_id = 7) const uint BY_POSITION = 0;
layout(binding = 0) readonly buffer Step { uint step_words[]; };
layout(binding = 1) buffer Qkv { float qkv[]; };
layout(binding = 2) readonly buffer Table { float table[]; };
layout(binding = 3) readonly buffer Norms { float norms[]; };
layout(binding = 4) writeonly buffer Keys { uint keys[]; };
layout(binding = 5) writeonly buffer Values { uint values[]; };
layout(binding = 6) writeonly buffer Rounded { uint rounded[]; };
layout(binding = 7) readonly buffer ValuesIn { float values_in[]; };
layout(push_constant) uniform Push
{
    uint n_head, n_head_kv, n_pair, table_at, sine_at, factor_at, d_at, head_words;
    float eps, inv_n, limit, value_scale;
    uint kv_class, qkv_stride, value_stride, value_from, d_value, rotated_from;
};

#include "floats.glsl"
#include "functions.glsl"
#include "step.glsl"
#include "attention.glsl"
#include "f16.glsl"

const uint NEIGHBOURS = 0, HALVES = 1; /* hth_rope_kind */
const uint NORM_SHARED = 1, NORM_OWN_LAYER = 3; /* HTH_ROPE_NORM_* */

shared float head[D_HEAD];
shared float chains[8];
/* Per block of 32: the factor before quantisation, 0 where all integers are 0; its scale. */
shared float inverses[N_BLOCK + 1];
shared uint scales[N_BLOCK + 1];

/* ---- norm and rotation ------------------------------------------------------------------------------- */

/* The values of the head, less their mean. */
float above(uint i, float mean) { return NORM == NORM_OWN_LAYER ? add(head[i], -mean) : head[i]; }

float tree_of_chains()
{
    barrier();
    return add(add(add(chains[0], chains[1]), add(chains[2], chains[3])),
               add(add(chains[4], chains[5]), add(chains[6], chains[7])));
}

float mean_of_head()
{
    for (uint chain = gl_LocalInvocationID.x; chain < 8; chain += gl_WorkGroupSize.x) {
        float sum = 0.0;
        for (uint i = chain; i < D_HEAD; i += 8) sum = add(sum, head[i]);
        chains[chain] = sum;
    }
    float mean = times(tree_of_chains(), inv_n);
    barrier();
    return mean;
}

/* Multiplies the values, less their mean, by what makes the mean of their squares 1. */
void norm_plain(float mean)
{
    for (uint chain = gl_LocalInvocationID.x; chain < 8; chain += gl_WorkGroupSize.x) {
        float sum = 0.0;
        for (uint i = chain; i < D_HEAD; i += 8) sum = add_product(sum, above(i, mean), above(i, mean));
        chains[chain] = sum;
    }
    float factor = rsqrt(add_product(eps, tree_of_chains(), inv_n));
    for (uint i = gl_LocalInvocationID.x; i < D_HEAD; i += gl_WorkGroupSize.x) head[i] = times(above(i, mean), factor);
}

/* Of a query or key. An invocation has the same values in each loop. */
void norm_head(uint i_head)
{
    uint weight_at = NORM != NORM_SHARED ? i_head * D_HEAD : i_head < n_head ? 0 : D_HEAD;
    norm_plain(NORM == NORM_OWN_LAYER ? mean_of_head() : 0.0);
    for (uint i = gl_LocalInvocationID.x; i < D_HEAD; i += gl_WorkGroupSize.x)
        head[i] = times(head[i], norms[weight_at + i]);
    barrier();
}

void rotate_head(uint t)
{
    for (uint i = gl_LocalInvocationID.x; i < n_pair; i += gl_WorkGroupSize.x) {
        uint first = rotated_from + (KIND == NEIGHBOURS ? 2 * i : i);
        uint second = first + (KIND == NEIGHBOURS ? 1 : n_pair);
        float cosine = table[table_at + t * n_pair + i], sine = table[sine_at + table_at + t * n_pair + i];
        float a = head[first], b = head[second];
        precise float turned = a * cosine - b * sine;
        head[first] = turned;
        head[second] = add_product(times(a, sine), b, cosine);
    }
    barrier();
}

/* By the factor of a token's queries. */
void scale_query(uint t)
{
    for (uint i = gl_LocalInvocationID.x; i < D_HEAD; i += gl_WorkGroupSize.x)
        head[i] = times(head[i], table[factor_at + t]);
    barrier();
}

/* ---- 8-bit quantisation: queries by rule R1, cached values with bf16 scales ------------------ */

void find_scale(uint block, bool is_query)
{
    uint largest = 0;
    for (uint i = block * BLOCK; i < (block + 1) * BLOCK; i++)
        largest = max(largest, floatBitsToUint(head[i]) & MAGNITUDE);
    inverses[block] = 0.0;
    scales[block] = largest < 0x21800000u ? 0u : 0x7fc00000u; /* 2^-60 */
    if (largest < 0x21800000u || largest > 0x5d800000u) return; /* 2^60 */
    float amax = uintBitsToFloat(largest);
    uint scale = floatBitsToUint(times(amax, uintBitsToFloat(0x3c010204u)));
    scales[block] = is_query ? scale : scale + 0xffffu & 0xffff0000u;
    inverses[block] = is_query ? times(127.0, rcp(amax)) : rcp(uintBitsToFloat(scales[block]));
}

void find_scales(bool is_query)
{
    for (uint block = gl_LocalInvocationID.x; block < N_BLOCK; block += gl_WorkGroupSize.x)
        find_scale(block, is_query);
    barrier();
}

/* Word i of the integers. */
uint quants(uint i)
{
    float inverse = inverses[i * 4 / BLOCK];
    uint word = 0;
    if (inverse == 0.0) return word;
    for (uint k = 0; k < 4; k++) {
        uint shifted = floatBitsToUint(add_product(MAGIC, head[4 * i + k], inverse));
        word |= (shifted - floatBitsToUint(MAGIC) & 0xffu) << 8 * k;
    }
    return word;
}

/* ---- stores ------------------------------------------------------------------------------------------ */

/* Word i of a position. */
uint cache_word(uint i)
{
    if (KV == KV_F32) return floatBitsToUint(head[i]);
    if (KV == KV_F16) return narrowed(head[2 * i]) | narrowed(head[2 * i + 1]) << 16;
    return i < N_QUANT ? quants(i) : scales[i - N_QUANT];
}

void store_key(uint i_kv, uint at)
{
    for (uint i = gl_LocalInvocationID.x; i < N_WORD; i += gl_WorkGroupSize.x)
        keys[i_kv * head_words + key_at(at) + i * GROUP] = cache_word(i);
}

void store_value(uint i_kv, uint at)
{
    for (uint i = gl_LocalInvocationID.x; i < N_WORD; i += gl_WorkGroupSize.x)
        values[i_kv * head_words + value_at(at) + i] = cache_word(i);
}

/* Head i of all heads of all tokens. */
void store_rounded(uint i_head)
{
    for (uint i = gl_LocalInvocationID.x; i < N_QUANT; i += gl_WorkGroupSize.x)
        rounded[i_head * N_QUANT + i] = quants(i);
    for (uint i = gl_LocalInvocationID.x; i < N_BLOCK; i += gl_WorkGroupSize.x)
        rounded[d_at + i_head * N_BLOCK + i] = scales[i];
}

/* ---- heads ------------------------------------------------------------------------------------------- */

float limited_by(float x) { return limit > 0.0 ? limited(x, limit) : x; }

/* Narrow values end in zeros. */
void load_value(uint t, uint i_kv)
{
    uint from = t * value_stride + value_from + i_kv * d_value;
    for (uint i = gl_LocalInvocationID.x; i < D_HEAD; i += gl_WorkGroupSize.x)
        head[i] = i < d_value ? limited_by(times(values_in[from + i], value_scale)) : 0.0;
    barrier();
    if (NORMS_VALUES == 0) return;
    norm_plain(0.0);
    barrier();
}

void load_head(uint t, uint i_head, uint from)
{
    for (uint i = gl_LocalInvocationID.x; i < D_HEAD; i += gl_WorkGroupSize.x) head[i] = limited_by(qkv[from + i]);
    barrier();
    if (NORM != 0 && NORMS_AFTER == 0) norm_head(i_head);
    if (KIND <= HALVES) rotate_head(t);
    if (NORM != 0 && NORMS_AFTER != 0) norm_head(i_head);
}

void store_query(uint t, uint from)
{
    if (BY_POSITION != 0) scale_query(t);
    for (uint i = gl_LocalInvocationID.x; i < D_HEAD; i += gl_WorkGroupSize.x)
        qkv[from + i] = KV == KV_F16 ? round_to_13_bits(head[i]) : head[i];
}

void main()
{
    uint t = gl_WorkGroupID.y, i_head = gl_WorkGroupID.x;
    if (t >= step_words[STEP_N_TOK]) return;
    bool is_query = i_head < n_head, is_value = i_head >= n_head + n_head_kv;
    uint from = t * qkv_stride + i_head * D_HEAD, position = position_of(t);
    uint at = page_of(t, kv_class, position / PAGE) * PAGE + position % PAGE;
    if (is_value) load_value(t, i_head - n_head - n_head_kv);
    else load_head(t, i_head, from);
    if (is_query) store_query(t, from);
    if (KV == KV_Q8_0) find_scales(is_query);
    if (is_value) store_value(i_head - n_head - n_head_kv, at);
    else if (!is_query) store_key(i_head - n_head, at);
    else if (KV == KV_Q8_0) store_rounded(t * n_head + i_head);
}
