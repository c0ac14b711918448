#version 450
/* Attention of the query heads of one KV head, for TOKENS neighbouring tokens: one split, or all of them
 * (forward/gpu/shader_params.h: attn; docs/arithmetic.md 5). Up to four heads of a token are a group, whose sums are
 * the components of a vec4, so that a key or value is read once for them; groups read the same keys at the same
 * time, so that the others find them in a cache.
 *
 * Lanes share a split three times: for scores by (key, quarter of the dims), for weights by key, for values by
 * (column of two dims, some heads of a group). Loops over loads have literal bounds, which glslc unrolls, so that
 * the words loaded ahead stay in registers; sums are written one by one, because copies of sums that it makes may be
 * contracted. */
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require

layout(constant_id = 0) const uint D_HEAD = 64;
layout(constant_id = 1) const uint SHARED = 1;
layout(constant_id = 2) const uint KV = 0;
layout(constant_id = 3) const uint BY_SPLIT = 0;
layout(local_size_x_id = 4) in;
layout(constant_id = 5) const uint TOKENS = 1;
layout(constant_id = 6) const uint SINKS = 0;
layout(constant_id = 7) const uint SLOPES = 0;
layout(binding = 0) readonly buffer Step { uint step_words[]; };
layout(binding = 1) readonly buffer Qkv { uint qkv[]; };
layout(binding = 2) readonly buffer Rounded { uint rounded[]; };
layout(binding = 3) readonly buffer Keys { uint keys[]; };
layout(binding = 4) readonly buffer Values { uint values[]; };
layout(binding = 5) writeonly buffer Out { float y[]; };
layout(binding = 6) writeonly buffer Parts { float parts[]; };
layout(binding = 7) readonly buffer Terms { float terms[]; };
layout(push_constant) uniform Push
{
    uint n_head, n_head_kv, window, n_split, qkv_stride, d_at, head_words;
    float scale, cap, inverse_cap;
    uint first_tok, kv_class, chunk_size;
};

#include "floats.glsl"
#include "functions.glsl"
#include "step.glsl"
#include "attention.glsl"
#include "f16.glsl"

const uint LOCAL = gl_WorkGroupSize.x;

/* Groups of a token: HTH_ATTN_GROUP_HEADS heads at most each, HTH_ATTN_MAX_GROUPS of them at a time. */
const uint ALL_GROUPS = (SHARED + 3) / 4;
const uint HEADS = (SHARED + ALL_GROUPS - 1) / ALL_GROUPS; /* of a group */
const uint N_CHUNK = (ALL_GROUPS + 1) / 2;
const uint OF_TOKEN = (ALL_GROUPS + N_CHUNK - 1) / N_CHUNK; /* groups at a time */
const uint GROUPS = TOKENS * OF_TOKEN;

const uint KEYS = LOCAL / (4 * GROUPS); /* scored at the same time */
/* Q8_0: a quarter of the lanes has every fourth block, four blocks a round. */
const uint ROUNDS = KV == KV_Q8_0 ? (N_BLOCK + 3) / 4 : 1;
const uint QUERY_WORDS = KV == KV_Q8_0 ? N_WORD : D_HEAD; /* of a head */
const uint MAXIMA = 16;                                   /* of a group: each is the largest of every 16th score */

/* Values: columns of two dims. WIDE heads share a lane: as few as keep all lanes busy. */
const uint N_PAIR = D_HEAD / 2, ROOM = LOCAL / (N_PAIR * GROUPS);
const uint WIDE = ROOM >= HEADS ? 1 : ROOM >= (HEADS + 1) / 2 ? 2 : 4;
const uint SETS = (HEADS + WIDE - 1) / WIDE; /* of heads of a group */
const uint COLUMNS = (N_PAIR * GROUPS * SETS + LOCAL - 1) / LOCAL; /* of a lane */
const uint AHEAD = 16; /* values loaded together: half a page */

/* A component for each head of a group. */
shared uvec4 queries[QUERY_WORDS * GROUPS]; /* [word][group] */
shared vec4 weights[SPLIT * GROUPS];        /* [position from the first seen][group]; scores before */
shared vec4 partials[LOCAL > MAXIMA * GROUPS ? LOCAL : MAXIMA * GROUPS]; /* of scores; then maxima [16][group] */
shared float sums[8 * 4 * GROUPS];                                       /* of weights: [group][head][chain] */
shared part totals[4 * GROUPS];     /* of the splits so far, */
shared shares to_merge[4 * GROUPS]; /* and the factors that merge the split into them */

/* Of the split, for each token: its first position that is seen, how many are (0: the split is not), whether it is
 * the token's first, and the pages of those. */
shared uint seen_at[TOKENS], seen[TOKENS], begins[TOKENS], pages[TOKENS * PAGES];

uint lane;
uint first_token, i_kv, chunk;
uint cache_at; /* of the KV head */
uint split_at; /* the first position of the split */

/* Of a lane: two chains of a score, or a column of values, for each head. */
vec4 even, odd;
vec4 kept[2 * COLUMNS]; /* columns over the splits so far */

/* ---- groups ------------------------------------------------------------------------------------------ */

uint token_of(uint g) { return first_token + g / OF_TOKEN; }
uint seen_by(uint g) { return seen[g / OF_TOKEN]; }

/* t, or the last token; of a workgroup of one, without waiting for their number. */
uint token_there(uint t) { return TOKENS == 1 ? t : min(t, step_words[STEP_N_TOK] - 1); }

/* The first head of a group, of those of the KV head; heads that are there. */
uint head_of(uint g) { return (chunk * OF_TOKEN + g % OF_TOKEN) * HEADS; }
uint heads_there(uint g) { return head_of(g) < SHARED ? min(HEADS, SHARED - head_of(g)) : 0; }

/* Components that no head has are 0, so that the driver drops what computes them. */
vec4 of_heads(vec4 x) { return vec4(x.x, HEADS > 1 ? x.y : 0.0, HEADS > 2 ? x.z : 0.0, HEADS > 3 ? x.w : 0.0); }

vec4 add_all(vec4 a, vec4 b)
{
    precise vec4 y = a + b;
    return y;
}

vec4 times_all(vec4 a, vec4 b)
{
    precise vec4 y = a * b;
    return y;
}

vec4 add_products_of(vec4 sum, vec4 a, vec4 b)
{
    precise vec4 product = a * b;
    precise vec4 y = sum + product;
    return y;
}

vec4 larger(vec4 a, vec4 b)
{
    return of_heads(vec4(larger_of(a.x, b.x), larger_of(a.y, b.y), larger_of(a.z, b.z), larger_of(a.w, b.w)));
}

/* sum + a b. Products of an F16 cache are exact, so that a fused operation gives the same bits. */
vec4 add_cached(vec4 sum, vec4 a, vec4 b)
{
    if (KV != KV_F16) return add_products_of(sum, a, b);
    precise vec4 y = fma(a, b, sum);
    return y;
}

/* ---- scores ------------------------------------------------------------------------------------------ */

/* Heads that are not there are zeros. */
void load_queries()
{
    for (uint i = lane; i < QUERY_WORDS * GROUPS; i += LOCAL) {
        uint word = i % QUERY_WORDS, g = i / QUERY_WORDS, n = heads_there(g);
        uint t = token_there(token_of(g)), i_head = i_kv * SHARED + head_of(g);
        uvec4 words = uvec4(0);
        [[unroll]] for (uint h = 0; h < 4; h++) {
            if (h >= n) continue;
            uint of_all = t * n_head + i_head + h;
            if (KV != KV_Q8_0) words[h] = qkv[t * qkv_stride + (i_head + h) * D_HEAD + word];
            else if (word < N_QUANT) words[h] = rounded[of_all * N_QUANT + word];
            else words[h] = rounded[d_at + of_all * N_BLOCK + word - N_QUANT];
        }
        queries[word * GROUPS + g] = words;
    }
}

vec4 query(uint word, uint g) { return uintBitsToFloat(queries[word * GROUPS + g]); }

/* distance: of the key from the token, by which the slope of a head lowers its score. */
float scaled(float score, uint head, float distance)
{
    float x = times(score, scale);
    if (SLOPES != 0) x = add_product(x, -terms[n_head + min(head, n_head - 1)], distance);
    return cap == 0.0 ? x : times(tanh_by_rule(times(x, inverse_cap)), cap);
}

/* Dims 2 i and 2 i + 1 of the key whose first word is at `at`, as they lie in the cache. */
uvec2 key_words(uint at, uint i)
{
    if (KV == KV_F16) return uvec2(keys[at + i * GROUP], 0);
    return uvec2(keys[at + 2 * i * GROUP], keys[at + (2 * i + 1) * GROUP]);
}

/* Adds pair i of a key to its two chains. */
void add_pair(uint i, uvec2 words, uint g)
{
    vec2 key = KV == KV_F16 ? widened_pair(words.x) : uintBitsToFloat(words);
    even = add_cached(even, query(2 * i, g), vec4(key.x));
    odd = add_cached(odd, query(2 * i + 1, g), vec4(key.y));
}

/* Two of the eight chains of a score, added. */
vec4 quarter_of_floats(uint at, uint quarter, uint g)
{
    uint i = quarter;
    even = odd = vec4(0.0);
    for (; i + 28 < N_PAIR; i += 32) {
        uvec2 w[8];
        [[unroll]] for (uint k = 0; k < 8; k++) w[k] = key_words(at, i + 4 * k);
        add_pair(i, w[0], g), add_pair(i + 4, w[1], g), add_pair(i + 8, w[2], g), add_pair(i + 12, w[3], g);
        add_pair(i + 16, w[4], g), add_pair(i + 20, w[5], g), add_pair(i + 24, w[6], g), add_pair(i + 28, w[7], g);
    }
    for (; i < N_PAIR; i += 4) add_pair(i, key_words(at, i), g);
    return add_all(even, odd);
}

int dot_of_bytes(uint a, uint b)
{
    int sum = 0;
    [[unroll]] for (int k = 0; k < 32; k += 8)
        sum += bitfieldExtract(int(a), k, 8) * bitfieldExtract(int(b), k, 8);
    return sum;
}

/* What a block adds to a score. */
vec4 term_of_block(uint at, uint block, uint g)
{
    uint w[8];
    [[unroll]] for (uint k = 0; k < 8; k++) w[k] = keys[at + (block * 8 + k) * GROUP];
    float d = uintBitsToFloat(keys[at + (N_QUANT + block) * GROUP]);
    ivec4 dots = ivec4(0);
    [[unroll]] for (uint k = 0; k < 8; k++) {
        uvec4 q = queries[(block * 8 + k) * GROUPS + g];
        dots += ivec4(dot_of_bytes(w[k], q.x), dot_of_bytes(w[k], q.y), dot_of_bytes(w[k], q.z),
                      dot_of_bytes(w[k], q.w));
    }
    return times_all(times_all(vec4(d), query(N_QUANT + block, g)), vec4(dots));
}

/* The score so far and the four lanes' parts, in the order of docs/arithmetic.md 5 and 7. */
vec4 joined(vec4 score, uint from, uint round)
{
    vec4 a = partials[from], b = partials[from + KEYS], c = partials[from + 2 * KEYS], d = partials[from + 3 * KEYS];
    if (KV != KV_Q8_0) return add_all(add_all(a, b), add_all(c, d));
    uint n = N_BLOCK - 4 * round;
    vec4 sum = add_all(score, a);
    if (n > 1) sum = add_all(sum, b);
    if (n > 2) sum = add_all(sum, c);
    if (n > 3) sum = add_all(sum, d);
    return sum;
}

/* The scores of key j of those that the token of a group sees. */
vec4 all_scaled(vec4 x, uint g, uint j)
{
    uint head = i_kv * SHARED + head_of(g);
    float distance =
        SLOPES != 0 ? float(position_of(token_of(g)) - (split_at + seen_at[g / OF_TOKEN] + j)) : 0.0;
    return vec4(scaled(x.x, head, distance), HEADS > 1 ? scaled(x.y, head + 1, distance) : 0.0,
                HEADS > 2 ? scaled(x.z, head + 2, distance) : 0.0, HEADS > 3 ? scaled(x.w, head + 3, distance) : 0.0);
}

/* Where a position of the split is in the cache, for token i of the workgroup. */
uint place_of(uint i, uint at) { return pages[i * PAGES + at / PAGE] * PAGE + at % PAGE; }

/* Scores of all positions that are seen, of which a token has `most`. */
void score_positions(uint most)
{
    uint quarter = lane / KEYS % 4, g = lane / (4 * KEYS), i = g / OF_TOKEN;
    bool works = g < GROUPS;
    for (uint first = 0; first < most; first += KEYS) {
        uint j = first + lane % KEYS, key = 0;
        bool is_seen = works && j < seen_by(g);
        if (is_seen) key = cache_at + key_at(place_of(i, seen_at[i] + j));
        vec4 score = vec4(0.0);
        for (uint round = 0; round < ROUNDS; round++) {
            if (KV != KV_Q8_0 && is_seen) partials[lane] = of_heads(quarter_of_floats(key, quarter, g));
            uint block = 4 * round + quarter;
            if (KV == KV_Q8_0 && is_seen && block < N_BLOCK) partials[lane] = of_heads(term_of_block(key, block, g));
            barrier();
            if (is_seen && quarter == 0) score = joined(score, lane, round);
            barrier();
        }
        if (is_seen && quarter == 0) weights[j * GROUPS + g] = all_scaled(score, g, j);
    }
}

/* ---- weights ----------------------------------------------------------------------------------------- */

/* The largest of every 16th score, from the first of all on, so that a later NaN is skipped as it is when scores
 * are compared one by one. */
void find_largest()
{
    for (uint i = lane; i < MAXIMA * GROUPS; i += LOCAL) {
        uint g = i % GROUPS, n = seen_by(g);
        vec4 best = weights[g];
        for (uint j = i / GROUPS; j < n; j += MAXIMA) best = larger(best, weights[j * GROUPS + g]);
        partials[i] = best;
    }
}

vec4 largest_of(uint g)
{
    vec4 best = partials[g];
    [[unroll]] for (uint i = 1; i < MAXIMA; i++) best = larger(best, partials[i * GROUPS + g]);
    return best;
}

/* Returns the weight of a score, of which the largest was subtracted. */
float weight_of(float x)
{
    float w = exp_by_rule(x);
    return KV == KV_F16 ? round_to_13_bits(w) : w;
}

void weigh()
{
    uint g = lane % GROUPS, n = seen_by(g), stride = LOCAL / GROUPS;
    if (lane / GROUPS >= min(stride, n)) return;
    vec4 top = largest_of(g);
    for (uint j = lane / GROUPS; j < n; j += stride) {
        precise vec4 x = weights[j * GROUPS + g] - top;
        weights[j * GROUPS + g] = vec4(weight_of(x.x), HEADS > 1 ? weight_of(x.y) : 0.0,
                                       HEADS > 2 ? weight_of(x.z) : 0.0, HEADS > 3 ? weight_of(x.w) : 0.0);
    }
}

/* Eight chains of each head, by the last lanes, which have no value where others have. */
void add_weights()
{
    for (uint i = LOCAL - 1 - lane; i < 32 * GROUPS; i += LOCAL) {
        uint g = i / 32, h = i / 8 % 4, n = h < HEADS ? seen_by(g) : 0;
        float sum = 0.0;
        for (uint j = i % 8; j < n; j += 8) sum = add(sum, weights[j * GROUPS + g][h]);
        sums[i] = sum;
    }
}

/* Of head h of group g, by 4 g + h. */
float sum_of(uint head)
{
    uint i = 8 * head;
    return add(add(add(sums[i], sums[i + 1]), add(sums[i + 2], sums[i + 3])),
               add(add(sums[i + 4], sums[i + 5]), add(sums[i + 6], sums[i + 7])));
}

part part_of(uint head) { return part(largest_of(head / 4)[head % 4], sum_of(head)); }

/* What the tokens see of a split. */
void find_positions(uint i_split)
{
    for (uint k = lane; k < TOKENS * PAGES; k += LOCAL) {
        uint i = k / PAGES, t = first_token + i, page = k % PAGES, begin = 0, end = 0, first = 0;
        if (t < step_words[STEP_N_TOK]) {
            uint position = position_of(t);
            first = first_seen(position, window, chunk_size);
            begin = max(i_split * SPLIT, first), end = min((i_split + 1) * SPLIT, position + 1);
        }
        bool is_seen = begin < end;
        if (is_seen && page >= begin % SPLIT / PAGE && page <= (end - 1) % SPLIT / PAGE)
            pages[k] = page_of(t, kv_class, i_split * PAGES + page);
        if (page == 0) {
            seen_at[i] = begin % SPLIT, seen[i] = is_seen ? end - begin : 0;
            begins[i] = uint(first / SPLIT == i_split);
        }
    }
}

/* Scores of a split, then their weights, and the chains of these; no barrier behind the chains. */
void weigh_positions()
{
    uint most = 0;
    [[unroll]] for (uint i = 0; i < TOKENS; i++) most = max(most, seen[i]);
    score_positions(most);
    barrier();
    find_largest();
    barrier();
    weigh();
    barrier();
    add_weights();
}

/* ---- values ------------------------------------------------------------------------------------------ */

/* Item i of the lanes' items: a column, and heads [head, head + WIDE) of a group. */
struct item { uint column, g, head; };

item item_of(uint i)
{
    uint set = i / N_PAIR;
    return item(i % N_PAIR, set / SETS, set % SETS * WIDE);
}

/* Dims 2 i and 2 i + 1 of the value whose first word is at `at`: as they lie in the cache; as floats. */
uvec2 value_words(uint at, uint i)
{
    if (KV == KV_F16) return uvec2(values[at + i], 0);
    if (KV == KV_F32) return uvec2(values[at + 2 * i], values[at + 2 * i + 1]);
    return uvec2(values[at + i / 2], values[at + N_QUANT + 2 * i / BLOCK]);
}

vec2 value_of(uvec2 words, uint i)
{
    if (KV == KV_F16) return widened_pair(words.x);
    if (KV == KV_F32) return uintBitsToFloat(words);
    int from = int(i % 2) * 16;
    float d = uintBitsToFloat(words.y);
    return vec2(times(d, float(bitfieldExtract(int(words.x), from, 8))),
                times(d, float(bitfieldExtract(int(words.x), from + 8, 8))));
}

/* Half page b of the split. */
uvec2[AHEAD] load_values(item m, uint b)
{
    uvec2 w[AHEAD];
    uint at = cache_at + value_at(place_of(m.g / OF_TOKEN, b * AHEAD));
    [[unroll]] for (uint k = 0; k < 16; k++) w[k] = value_words(at + k * N_WORD, m.column);
    return w;
}

/* Position j of those seen; a later one than the n-th is not. */
void add_value(item m, uint j, uint n, uvec2 words)
{
    if (j >= n) return;
    uint at = j * GROUPS + m.g;
    vec4 w = WIDE == 4 ? weights[at]
                       : vec4(weights[at][m.head], WIDE == 2 ? weights[at][(m.head + 1) % 4] : 0.0, 0.0, 0.0);
    vec2 value = value_of(words, m.column);
    even = add_cached(even, w, vec4(value.x));
    odd = add_cached(odd, w, vec4(value.y));
}

void add_four(item m, uint j, uint n, uvec2 a, uvec2 b, uvec2 c, uvec2 d)
{
    add_value(m, j, n, a), add_value(m, j + 1, n, b), add_value(m, j + 2, n, c), add_value(m, j + 3, n, d);
}

/* n: ~0 if all are seen. Before the first position that is, j wraps around. */
void add_half_page(item m, uint j, uint n, uvec2 w[AHEAD])
{
    add_four(m, j, n, w[0], w[1], w[2], w[3]);
    add_four(m, j + 4, n, w[4], w[5], w[6], w[7]);
    add_four(m, j + 8, n, w[8], w[9], w[10], w[11]);
    add_four(m, j + 12, n, w[12], w[13], w[14], w[15]);
}

/* The first half page that is seen. */
uvec2[AHEAD] load_first_values(item m) { return load_values(m, seen_at[m.g / OF_TOKEN] / AHEAD); }

/* Weighted sums of a column over what is seen of the split, to even and odd: one chain per dim and head. The next
 * half page is on its way while one is added; the first was loaded before. */
void add_values(item m, uvec2 next[AHEAD])
{
    uint i = m.g / OF_TOKEN, at = seen_at[i], n = seen[i], end = (at + n - 1) / AHEAD;
    even = odd = vec4(0.0);
    for (uint b = at / AHEAD; b <= end; b++) {
        uvec2 now[AHEAD] = next;
        uint j = b * AHEAD - at;
        if (b < end) next = load_values(m, b + 1);
        if (j < n && j + AHEAD <= n) add_half_page(m, j, ~0u, now);
        else add_half_page(m, j, n, now);
    }
}

void put_head(uint i_result, uint column, float even_dim, float odd_dim)
{
    y[i_result * D_HEAD + 2 * column] = even_dim;
    y[i_result * D_HEAD + 2 * column + 1] = odd_dim;
}

/* to: index of the group's first head. */
void put(uint to, item m)
{
    uint n = heads_there(m.g), h = m.head;
    if (h < n) put_head(to + h, m.column, even.x, odd.x);
    if (WIDE > 1 && h + 1 < n) put_head(to + h + 1, m.column, even.y, odd.y);
    if (WIDE > 2 && h + 2 < n) put_head(to + h + 2, m.column, even.z, odd.z);
    if (WIDE > 2 && h + 3 < n) put_head(to + h + 3, m.column, even.w, odd.w);
}

/* ---- splits ------------------------------------------------------------------------------------------ */

vec4 merged_all(vec4 before, vec4 now, item m)
{
    uint head = 4 * m.g + m.head;
    vec4 y = vec4(0.0);
    y.x = merged(before.x, now.x, to_merge[head]);
    if (WIDE > 1) y.y = merged(before.y, now.y, to_merge[4 * m.g + (m.head + 1) % 4]);
    if (WIDE > 2) y.z = merged(before.z, now.z, to_merge[4 * m.g + 2]);
    if (WIDE > 2) y.w = merged(before.w, now.w, to_merge[4 * m.g + 3]);
    return y;
}

/* Merges what a split has into totals. */
void merge_parts()
{
    for (uint head = lane; head < 4 * GROUPS; head += LOCAL) {
        if (head % 4 >= HEADS || seen_by(head / 4) == 0) continue;
        part now = part_of(head);
        shares s = shares_of(totals[head], now);
        to_merge[head] = s;
        if (begins[head / 4 / OF_TOKEN] != 0) totals[head] = now;
        else totals[head] = merge(totals[head], now, s);
    }
}

void merge_columns(uint c, item m)
{
    bool is_first = begins[m.g / OF_TOKEN] != 0;
    kept[2 * c] = is_first ? even : merged_all(kept[2 * c], even, m);
    kept[2 * c + 1] = is_first ? odd : merged_all(kept[2 * c + 1], odd, m);
}

/* to: index of the KV head's first head. */
void put_parts(uint to)
{
    for (uint head = lane; head < 4 * GROUPS; head += LOCAL) {
        uint i = to + head_of(head / 4) + head % 4;
        if (head % 4 >= heads_there(head / 4)) continue;
        part now = part_of(head);
        parts[2 * i] = now.largest;
        parts[2 * i + 1] = now.sum;
    }
}

/* To its own slot, or merged into totals and columns. */
void attend_split(uint slot)
{
    uint to = (first_token * n_split + slot) * n_head + i_kv * SHARED;
    uvec2 first[AHEAD];
    item mine = item_of(lane);
    /* One split is over when its values are: their first loads begin with those of keys. */
    if (BY_SPLIT != 0 && mine.g < GROUPS) first = load_first_values(mine);
    weigh_positions();
    if (BY_SPLIT == 0) {
        barrier();
        merge_parts();
        barrier();
    }
    [[unroll]] for (uint c = 0; c < COLUMNS; c++) {
        item m = item_of(c * LOCAL + lane);
        if (m.g >= GROUPS || seen_by(m.g) == 0) continue;
        if (BY_SPLIT == 0 || c > 0) first = load_first_values(m);
        add_values(m, first);
        if (BY_SPLIT != 0) put(to + head_of(m.g), m);
        else merge_columns(c, m);
    }
    if (BY_SPLIT != 0) {
        barrier();
        put_parts(to);
    }
}

/* A sink is a last split without values. */
void add_sinks()
{
    for (uint head = lane; head < 4 * GROUPS; head += LOCAL) {
        if (head % 4 >= heads_there(head / 4)) continue;
        part sink = part(terms[i_kv * SHARED + head_of(head / 4) + head % 4], 1.0);
        shares s = shares_of(totals[head], sink);
        to_merge[head] = s;
        totals[head] = merge(totals[head], sink, s);
    }
}

/* The factors of columns that sinks leave. */
vec4 left_by_sinks(item m)
{
    uint head = 4 * m.g + m.head;
    return vec4(to_merge[head].before, to_merge[4 * m.g + (m.head + 1) % 4].before, to_merge[4 * m.g + 2].before,
                to_merge[4 * m.g + 3].before);
}

vec4 reciprocals(item m)
{
    vec4 r = vec4(rcp(totals[4 * m.g + m.head].sum), 0.0, 0.0, 0.0);
    if (WIDE > 1) r.y = rcp(totals[4 * m.g + (m.head + 1) % 4].sum);
    if (WIDE > 2) r.z = rcp(totals[4 * m.g + 2].sum);
    if (WIDE > 2) r.w = rcp(totals[4 * m.g + 3].sum);
    return r;
}

void end_splits()
{
    if (SINKS != 0) {
        add_sinks();
        barrier();
    }
    [[unroll]] for (uint c = 0; c < COLUMNS; c++) {
        item m = item_of(c * LOCAL + lane);
        if (m.g >= GROUPS || token_of(m.g) >= step_words[STEP_N_TOK]) continue;
        vec4 r = reciprocals(m);
        if (SINKS != 0) {
            vec4 left = left_by_sinks(m);
            kept[2 * c] = times_all(kept[2 * c], left), kept[2 * c + 1] = times_all(kept[2 * c + 1], left);
        }
        even = times_all(kept[2 * c], r), odd = times_all(kept[2 * c + 1], r);
        put(token_of(m.g) * n_head + i_kv * SHARED + head_of(m.g), m);
    }
}

/* ---- all heads --------------------------------------------------------------------------------------- */

void main()
{
    lane = gl_LocalInvocationID.x;
    first_token = first_tok + gl_WorkGroupID.z * TOKENS;
    i_kv = gl_WorkGroupID.y;
    uint first_split = ~0u, last_split = 0;
    [[unroll]] for (uint i = 0; i < TOKENS; i++) {
        uint position = position_of(token_there(first_token + i));
        first_split = min(first_split, first_seen(position, window, chunk_size) / SPLIT);
        last_split = max(last_split, position / SPLIT);
    }
    if (first_token >= step_words[STEP_N_TOK]) return;
    if (BY_SPLIT != 0) {
        if (gl_WorkGroupID.x > last_split - first_split) return;
        first_split += gl_WorkGroupID.x;
        last_split = first_split;
    }
    cache_at = i_kv * head_words;
    for (chunk = 0; chunk < N_CHUNK; chunk++) {
        load_queries();
        for (uint i_split = first_split; i_split <= last_split; i_split++) {
            split_at = i_split * SPLIT;
            find_positions(i_split);
            barrier();
            attend_split(gl_WorkGroupID.x);
            barrier();
        }
        if (BY_SPLIT == 0) end_splits();
    }
}
