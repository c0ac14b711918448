/* Attention over one split, blockwise: a group of 16 positions is read from the cache once and used by all
 * queries of the job, four at a time. If there is more than one block of four queries, the group is first
 * widened to floats that stay in the L1 cache. attn_avx2.c, attn_avx512.c and attn_neon.c include this file and
 * define their vector type and its operations. The results equal those of attn_ref.c bit for bit, because every
 * output keeps the order of its own sum (docs/arithmetic.md 5). */
#include "kernels/attn/attn.h"

enum {
    N_VEC = HTH_KV_GROUP / LANES, /* vectors of a group: one lane per position */
    N_BLOCK = 4,                     /* queries that share a load */
    AHEAD = 8192,                    /* prefetch distance in bytes */
};

/* ---- iteration over queries --------------------------------------------------------------- */

typedef struct cursor {
    size_t row, head;
} cursor;

HTH_INLINE void advance(cursor *c, const hth_attn *job)
{
    if (++c->head < job->n_head) return;
    c->head = 0, c->row++;
}

HTH_INLINE size_t at_query(const hth_attn *job, const cursor *c)
{
    return c->row * job->q_stride + c->head * job->d_head;
}

HTH_INLINE size_t at_result(const hth_attn *job, const cursor *c)
{
    return c->row * job->out_stride + c->head;
}

/* Block widths that are compiled. */
HTH_INLINE size_t block_width(size_t n_left) { return n_left >= N_BLOCK ? N_BLOCK : n_left >= 2 ? 2 : 1; }

/* Whether a single block holds all queries. Then widening saves nothing. */
HTH_INLINE bool is_one_block(size_t n_query) { return block_width(n_query) == n_query; }

/* ---- prefetch of the cache ------------------------------------------------------------------- */

/* The next address to prefetch, and the step. */
typedef struct stream {
    const uint8_t *p;
    size_t step;
} stream;

HTH_INLINE void fetch(stream *next)
{
    __builtin_prefetch(next->p);
    next->p += next->step;
}

/* ---- a group as floats ---------------------------------------------------------------------- */

/* Element i and the following ones, floats or F16, of `size` bytes each. */
HTH_INLINE vec load_any(const uint8_t *p, size_t i, size_t size)
{
    return size == sizeof(uint16_t) ? vec_of_f16(p + 2 * i) : vec_load((const float *)(const void *)p + i);
}

/* c + a b. exact: the product is, so that the fused operation gives the same bits. */
HTH_INLINE vec add_product(vec c, vec a, vec b, bool exact)
{
    if (exact) return vec_fma(a, b, c);
    return c + a * b;
}

/* Converts n F16 keys or values of a group to floats; n is a multiple of 16. */
static void widen_f16(const uint8_t *from, size_t n, float *to)
{
    for (size_t i = 0; i < n; i += LANES) vec_store(to + i, vec_of_f16(from + 2 * i));
}

/* Values of a Q8_0 group times their scales. The products are exact. */
static void widen_values_q8_0(const uint8_t *from, size_t d_head, float *to)
{
    const uint8_t *scales = from + HTH_KV_GROUP * d_head;
    for (size_t i = 0; i < HTH_KV_GROUP * d_head; i += HTH_ACT_BLOCK, scales += 2) {
        vec d = vec_set(hth_bf16_to_f32(hth_load_u16(scales)));
        for (size_t k = 0; k < HTH_ACT_BLOCK; k += LANES) vec_store(to + i + k, d * vec_of_i8(from + i + k));
    }
}

/* ---- scores --------------------------------------------------------------------------------- */

HTH_INLINE vec tree(const vec p[8])
{
    return ((p[0] + p[1]) + (p[2] + p[3])) + ((p[4] + p[5]) + (p[6] + p[7]));
}

/* Scores of n queries, from c on, against the 16 positions of a group, to[query * 256 + lane]. A pass computes
 * N_PASS of the eight partial sums of each score, so that all stay in registers. The cache is prefetched
 * meanwhile in small steps, because a burst of prefetches would stall the core. */
HTH_INLINE void score_block(const hth_attn *job, const uint8_t *keys, cursor c, float *to, stream next,
                            size_t size, bool exact, size_t n)
{
    const float *q[N_BLOCK];
    vec part[N_BLOCK][N_VEC][8], scale = vec_set(job->scale);
    for (size_t k = 0; k < n; k++, advance(&c, job)) q[k] = job->q + at_query(job, &c);
    HTH_UNROLL
    for (size_t j = 0; j < 8; j += N_PASS) {
        vec p[N_BLOCK][N_VEC][N_PASS];
        for (size_t k = 0; k < n; k++)
            for (size_t v = 0; v < N_VEC; v++)
                for (size_t s = 0; s < N_PASS; s++) p[k][v][s] = vec_set(0.0f);
        size_t i = j;
        for (; i + N_PASS <= job->d_head; i += 8) {
            fetch(&next);
            for (size_t s = 0; s < N_PASS; s++)
                for (size_t v = 0; v < N_VEC; v++) {
                    vec key = load_any(keys, (i + s) * HTH_KV_GROUP + v * LANES, size);
                    for (size_t k = 0; k < n; k++) p[k][v][s] = add_product(p[k][v][s], vec_set(q[k][i + s]), key, exact);
                }
        }
        if (N_PASS > 1 && i < job->d_head)
            for (size_t v = 0; v < N_VEC; v++)
                for (size_t k = 0; k < n; k++)
                    p[k][v][0] = add_product(p[k][v][0], vec_set(q[k][i]),
                                             load_any(keys, i * HTH_KV_GROUP + v * LANES, size), exact);
        for (size_t k = 0; k < n; k++)
            for (size_t v = 0; v < N_VEC; v++)
                for (size_t s = 0; s < N_PASS; s++) part[k][v][j + s] = p[k][v][s];
    }
    for (size_t k = 0; k < n; k++)
        for (size_t v = 0; v < N_VEC; v++)
            vec_store(to + k * HTH_ATTN_SPLIT + v * LANES, tree(part[k][v]) * scale);
}

/* score_N reads keys that are floats, score_N_f16 halves, score_N_wide halves that were widened. */
#define DEFINE_SCORES(N)                                                                                     \
    static void score_##N(const hth_attn *job, const uint8_t *keys, cursor c, float *to, stream next)        \
    {                                                                                                        \
        score_block(job, keys, c, to, next, sizeof(float), false, N);                                        \
    }                                                                                                        \
    static void score_##N##_f16(const hth_attn *job, const uint8_t *keys, cursor c, float *to, stream next)  \
    {                                                                                                        \
        score_block(job, keys, c, to, next, sizeof(uint16_t), true, N);                                      \
    }                                                                                                        \
    static void score_##N##_wide(const hth_attn *job, const uint8_t *keys, cursor c, float *to, stream next) \
    {                                                                                                        \
        score_block(job, keys, c, to, next, sizeof(float), true, N);                                         \
    }
DEFINE_SCORES(1)
DEFINE_SCORES(2)
DEFINE_SCORES(4)

/* The same for a Q8_0 group, whose scores are one chain over the blocks of 32. */
HTH_INLINE void score_block_q8_0(const hth_attn *job, const uint8_t *keys, cursor c, float *to, stream next,
                                 size_t n)
{
    const int8_t *q[N_BLOCK];
    const float *d[N_BLOCK];
    const int32_t *q_sum[N_BLOCK];
    const uint8_t *scales = keys + HTH_KV_GROUP * job->d_head;
    vec score[N_BLOCK][N_VEC], scale = vec_set(job->scale);
    for (size_t k = 0; k < n; k++, advance(&c, job)) {
        size_t at = at_query(job, &c);
        q[k] = job->q_q8.q + at, d[k] = job->q_q8.d + at / HTH_ACT_BLOCK;
        q_sum[k] = job->q_q8.sum + at / HTH_ACT_BLOCK;
        for (size_t v = 0; v < N_VEC; v++) score[k][v] = vec_set(0.0f);
    }
    for (size_t b = 0; b < job->d_head / HTH_ACT_BLOCK; b++, keys += HTH_ACT_BLOCK * HTH_KV_GROUP) {
        ints sum[N_BLOCK][N_VEC];
        for (size_t k = 0; k < n; k++)
            for (size_t v = 0; v < N_VEC; v++) sum[k][v] = ints_start(q_sum[k][b]);
        for (size_t i = 0; i < HTH_ACT_BLOCK; i += 4) {
            fetch(&next);
            for (size_t v = 0; v < N_VEC; v++) {
                ints key = keys_load(keys + (i / 4 * HTH_KV_GROUP + v * LANES) * 4);
                for (size_t k = 0; k < n; k++)
                    sum[k][v] = dot_4(sum[k][v], key, q[k] + b * HTH_ACT_BLOCK + i);
            }
        }
        for (size_t v = 0; v < N_VEC; v++) {
            vec key_d = vec_of_bf16(scales + (b * HTH_KV_GROUP + v * LANES) * 2);
            for (size_t k = 0; k < n; k++) score[k][v] += (key_d * vec_set(d[k][b])) * vec_of_ints(sum[k][v]);
        }
    }
    for (size_t k = 0; k < n; k++)
        for (size_t v = 0; v < N_VEC; v++)
            vec_store(to + k * HTH_ATTN_SPLIT + v * LANES, score[k][v] * scale);
}

static void score_4_q8_0(const hth_attn *job, const uint8_t *keys, cursor c, float *to, stream next)
{
    score_block_q8_0(job, keys, c, to, next, 4);
}
static void score_2_q8_0(const hth_attn *job, const uint8_t *keys, cursor c, float *to, stream next)
{
    score_block_q8_0(job, keys, c, to, next, 2);
}
static void score_1_q8_0(const hth_attn *job, const uint8_t *keys, cursor c, float *to, stream next)
{
    score_block_q8_0(job, keys, c, to, next, 1);
}

/* Scores all queries against one group. `to` is the position of the group's first score in the scores of the
 * first query. The first block of queries prefetches the group `ahead`. */
HTH_INLINE void score_group(const hth_attn *job, const uint8_t *group, const uint8_t *ahead, float *wide, float *to,
                            hearth_kv_type type)
{
    size_t n_query = job->n_row * job->n_head, d = job->d_head, n;
    bool widens = type == HEARTH_KV_F16 && !is_one_block(n_query);
    const uint8_t *keys = widens ? (const uint8_t *)wide : group;
    size_t n_step = type == HEARTH_KV_Q8_0 ? d / 4 : (d + N_PASS - 1) / N_PASS;
    stream next = {ahead, hth_kv_layout_group_size(type, d) / n_step};
    cursor c = {0, 0};
    if (widens) widen_f16(group, HTH_KV_GROUP * d, wide);
    for (size_t q = 0; q < n_query; q += n, to += n * HTH_ATTN_SPLIT) {
        n = block_width(n_query - q);
        if (type == HEARTH_KV_Q8_0)
            (n == 4 ? score_4_q8_0 : n == 2 ? score_2_q8_0 : score_1_q8_0)(job, group, c, to, next);
        else if (type == HEARTH_KV_F16 && !widens)
            (n == 4 ? score_4_f16 : n == 2 ? score_2_f16 : score_1_f16)(job, keys, c, to, next);
        else if (widens) (n == 4 ? score_4_wide : n == 2 ? score_2_wide : score_1_wide)(job, keys, c, to, next);
        else (n == 4 ? score_4 : n == 2 ? score_2 : score_1)(job, keys, c, to, next);
        for (size_t i = 0; i < n; i++) advance(&c, job);
        next = (stream){group, 0};
    }
}

/* ---- weights ---------------------------------------------------------------------------------- */

HTH_DEFINE_EXP(vec_exp, vec, vec_i, vec_u)

static void cap_scores(float *x, size_t n, float cap, float inverse)
{
    for (size_t i = 0; i < n; i += 8) {
        size_t left = n - i < 8 ? n - i : 8;
        v8_store_part(x + i, v8_tanh(v8_load_part(x + i, left) * v8_set(inverse)) * v8_set(cap), left);
    }
}

/* hth_round_to_13_bits, in bits. */
HTH_INLINE vec round_to_13_bits(vec x)
{
    const vec_u zero = {0};
    vec_u u = (vec_u)x, magnitude = u & (zero + 0x7fffffffu);
    vec_u is_large = (vec_u)((vec_i)magnitude > (vec_i)(zero + 0x5d800000u)),
          is_small = (vec_u)((vec_i)magnitude < (vec_i)(zero + 0x21800000u));
    vec_u rounded = (u + 0x3ffu + (u >> 11 & (zero + 1u))) & (zero + ~0x7ffu);
    return (vec)((rounded & ~is_small & ~is_large) | (is_large & (zero + 0x7fc00000u)));
}

/* Converts 16 scores to weights, rounded if `exact`, and adds them to the eight partial sums. */
HTH_INLINE hth_v8 weigh_16(float *x, vec max, hth_v8 sum, size_t n_used, bool exact)
{
    for (size_t k = 0; k < 16; k += LANES) {
        vec w = vec_exp(vec_load(x + k) - max);
        vec_store(x + k, exact ? round_to_13_bits(w) : w);
    }
    for (size_t i = n_used; i < 16; i++) x[i] = 0.0f;
    return (sum + v8_load(x)) + v8_load(x + 8);
}

/* Converts n > 0 scores to weights. The partial end is computed in a copy, because the scores of another query
 * follow it. */
HTH_INLINE hth_attn_partial weigh(const hth_attn *job, float *x, size_t n, stream *next, bool exact)
{
    size_t n_whole = n / 16 * 16, n_end = n - n_whole;
    float end[16];
    if (job->cap != 0.0f) cap_scores(x, n, job->cap, job->inverse_cap);
    for (size_t i = 0; i < 16; i++) end[i] = i < n_end ? x[n_whole + i] : x[0];
    vec top = vec_load(end);
    for (size_t i = LANES; i < 16; i += LANES) top = vec_max(vec_load(end + i), top);
    for (size_t i = 0; i < n_whole; i += LANES) top = vec_max(vec_load(x + i), top);
    hth_attn_partial part = {.max = vec_largest(top)};
    vec max = vec_set(part.max);
    hth_v8 sum = v8_set(0.0f);
    for (size_t i = 0; i < n_whole; i += 16) {
        for (int line = 0; line < 2; line++) fetch(next); /* four queries prefetch AHEAD bytes together */
        sum = weigh_16(x + i, max, sum, 16, exact);
    }
    if (n_end > 0) {
        sum = weigh_16(end, max, sum, n_end, exact);
        memcpy(x + n_whole, end, n_end * sizeof *x);
    }
    part.sum = v8_sum(sum);
    return part;
}

/* ---- values ------------------------------------------------------------------------------------ */

/* Positions [first, end) of a group for the queries of a block. */
typedef struct value_job {
    const uint8_t *values; /* [16][d] floats or halves */
    bool halves, exact; /* exact: products are, halves or widened ones */
    size_t d, first, end;
    const float *w[N_BLOCK]; /* [16] */
    float *to[N_BLOCK];      /* [d] */
    stream next;             /* step per position */
    size_t next_element;     /* bytes of one value at next.p */
} value_job;

/* Values i to i + n_vec * LANES of n queries: to += weight * value, positions ascending. */
HTH_INLINE void add_values(const value_job *job, size_t i, size_t size, bool exact, size_t n, size_t n_vec)
{
    vec sum[N_BLOCK][N_OUT];
    stream next = {job->next.p + i * job->next_element, job->next.step};
    const uint8_t *values = job->values + (job->first * job->d + i) * size;
    for (size_t k = 0; k < n; k++)
        for (size_t v = 0; v < n_vec; v++) sum[k][v] = vec_load(job->to[k] + i + v * LANES);
    for (size_t j = job->first; j < job->end; j++, values += job->d * size) {
        vec value[N_OUT];
        __builtin_prefetch(next.p + 64);
        fetch(&next);
        for (size_t v = 0; v < n_vec; v++) value[v] = load_any(values, v * LANES, size);
        for (size_t k = 0; k < n; k++) {
            vec weight = vec_set(job->w[k][j]);
            for (size_t v = 0; v < n_vec; v++) sum[k][v] = add_product(sum[k][v], weight, value[v], exact);
        }
    }
    for (size_t k = 0; k < n; k++)
        for (size_t v = 0; v < n_vec; v++) vec_store(job->to[k] + i + v * LANES, sum[k][v]);
}

HTH_INLINE void value_block(const value_job *job, size_t size, bool exact, size_t n)
{
    size_t d = job->d, i = 0;
    for (; i + N_OUT * LANES <= d; i += N_OUT * LANES) add_values(job, i, size, exact, n, N_OUT);
    for (; i + LANES <= d; i += LANES) add_values(job, i, size, exact, n, 1);
    for (; i < d; i++)
        for (size_t k = 0; k < n; k++)
            for (size_t j = job->first; j < job->end; j++) {
                const uint8_t *p = job->values + (j * d + i) * size;
                job->to[k][i] +=
                    job->w[k][j] * (size == 2 ? hth_f16_to_f32(hth_load_u16(p)) : hth_load_f32(p));
            }
}

#define DEFINE_VALUES(N)                                                                                       \
    static void value_##N(const value_job *job) { value_block(job, sizeof(float), false, N); }                \
    static void value_##N##_f16(const value_job *job) { value_block(job, sizeof(uint16_t), true, N); }        \
    static void value_##N##_wide(const value_job *job) { value_block(job, sizeof(float), true, N); }
DEFINE_VALUES(1)
DEFINE_VALUES(2)
DEFINE_VALUES(4)

/* The positions, as [first, end) of the group, that a token sees of the 16 positions from `base` on. */
HTH_INLINE hth_attn_range in_group(const hth_attn *job, size_t i_split, size_t i_row, size_t base)
{
    hth_attn_range r = hth_attn_visible_range(job, i_split, i_row);
    r.first = r.first > base ? r.first - base : 0;
    r.end = r.end > base ? r.end - base : 0;
    if (r.end > HTH_KV_GROUP) r.end = HTH_KV_GROUP;
    return r;
}

/* One query of a block alone. */
HTH_INLINE void value_alone(const value_job *block, size_t k, hth_attn_range seen)
{
    value_job one = *block;
    one.w[0] = block->w[k], one.to[0] = block->to[k];
    one.first = seen.first, one.end = seen.end;
    if (seen.first < seen.end) (one.halves ? value_1_f16 : one.exact ? value_1_wide : value_1)(&one);
}

HTH_INLINE void add_block(const value_job *block, size_t n)
{
    if (block->halves) (n == 4 ? value_4_f16 : n == 2 ? value_2_f16 : value_1_f16)(block);
    else if (block->exact) (n == 4 ? value_4_wide : n == 2 ? value_2_wide : value_1_wide)(block);
    else (n == 4 ? value_4 : n == 2 ? value_2 : value_1)(block);
}

/* Adds the values of one group for all queries. Tokens that see different parts of the group (the last group,
 * the first of a window) are computed one query at a time: a value that a token does not see must not be
 * multiplied, because it may be infinite. If every token sees the whole group, the check per query is skipped. */
HTH_INLINE void add_group(const hth_attn *job, size_t i_split, size_t base, bool whole,
                          const float *weights, value_job *block)
{
    size_t n_query = job->n_row * job->n_head, d = job->d_head, n;
    cursor c = {0, 0};
    for (size_t q = 0; q < n_query; q += n) {
        hth_attn_range seen[N_BLOCK];
        bool alike = true;
        n = block_width(n_query - q);
        for (size_t k = 0; k < n; k++, advance(&c, job), weights += HTH_ATTN_SPLIT) {
            block->w[k] = weights, block->to[k] = job->values + at_result(job, &c) * d;
            seen[k] = whole ? (hth_attn_range){0, HTH_KV_GROUP} : in_group(job, i_split, c.row, base);
            alike = alike && seen[k].first == seen[0].first && seen[k].end == seen[0].end;
        }
        block->first = seen[0].first, block->end = seen[0].end;
        if (alike && block->first < block->end) add_block(block, n);
        for (size_t k = 0; !alike && k < n; k++) value_alone(block, k, seen[k]);
        block->next.step = 0; /* prefetched once */
    }
}

/* ---- a split -------------------------------------------------------------------------------------- */

/* Converts scores to weights for all queries and prefetches the first values meanwhile. */
HTH_INLINE void weigh_all(const hth_attn *job, size_t i_split, float *weights, stream next, bool exact)
{
    size_t d = job->d_head, n_query = job->n_row * job->n_head, start = i_split * HTH_ATTN_SPLIT;
    cursor c = {0, 0};
    for (size_t q = 0; q < n_query; q++, advance(&c, job)) {
        hth_attn_range r = hth_attn_visible_range(job, i_split, c.row);
        size_t at = at_result(job, &c);
        float *x = weights + q * HTH_ATTN_SPLIT;
        job->partials[at] = (hth_attn_partial){0};
        memset(job->values + at * d, 0, d * sizeof *job->values);
        if (job->slopes && r.first < r.end)
            hth_attn_add_slope(job, q % job->n_head, q / job->n_head, r.first, x + (r.first - start), r.end - r.first);
        if (r.first < r.end) job->partials[at] = weigh(job, x + (r.first - start), r.end - r.first, &next, exact);
        if (q >= N_BLOCK) next.step = 0;
    }
}

HTH_INLINE void attend(const hth_attn *job, size_t i_split, hearth_kv_type type)
{
    size_t d = job->d_head, n_query = job->n_row * job->n_head, size = hth_kv_layout_group_size(type, d);
    size_t start = i_split * HTH_ATTN_SPLIT, end = hth_attn_visible_range(job, i_split, job->n_row - 1).end;
    size_t first = hth_attn_visible_range(job, i_split, 0).first / HTH_KV_GROUP * HTH_KV_GROUP;
    /* Positions that every token sees. */
    size_t whole_first = hth_attn_visible_range(job, i_split, job->n_row - 1).first;
    size_t whole_end = hth_attn_visible_range(job, i_split, 0).end;
    float *weights = job->scratch, *wide = weights + n_query * HTH_ATTN_SPLIT;
    size_t n_ahead = (AHEAD + size - 1) / size * HTH_KV_GROUP; /* positions */
    size_t last = job->n_pos + job->n_row - 2;                 /* position */
    for (size_t at = first; at < end; at += HTH_KV_GROUP) {
        const uint8_t *ahead = hth_attn_key_group(job, at + n_ahead < last ? at + n_ahead : last, size);
        score_group(job, hth_attn_key_group(job, at, size), ahead, wide, weights + at - start, type);
    }
    weigh_all(job, i_split, weights, (stream){hth_attn_value_group(job, first, size), 64}, type == HEARTH_KV_F16);
    for (size_t at = first; at < end; at += HTH_KV_GROUP) {
        const uint8_t *group = hth_attn_value_group(job, at, size);
        value_job block = {.d = d, .next_element = type == HEARTH_KV_F32 ? 4 : type == HEARTH_KV_F16 ? 2 : 1};
        block.next = (stream){hth_attn_value_group(job, at + n_ahead < last ? at + n_ahead : last, size),
                              size / HTH_KV_GROUP};
        block.exact = type == HEARTH_KV_F16;
        block.halves = block.exact && is_one_block(n_query);
        block.values = type == HEARTH_KV_F32 || block.halves ? group : (const uint8_t *)wide;
        if (type == HEARTH_KV_F16 && !block.halves) widen_f16(group, HTH_KV_GROUP * d, wide);
        if (type == HEARTH_KV_Q8_0) widen_values_q8_0(group, d, wide);
        bool whole = at >= whole_first && at + HTH_KV_GROUP <= whole_end;
        add_group(job, i_split, at, whole, weights + at - start, &block);
    }
}

static void attend_f16(const hth_attn *job, size_t i_split) { attend(job, i_split, HEARTH_KV_F16); }
static void attend_f32(const hth_attn *job, size_t i_split) { attend(job, i_split, HEARTH_KV_F32); }
static void attend_q8_0(const hth_attn *job, size_t i_split) { attend(job, i_split, HEARTH_KV_Q8_0); }

static void fill_table(hth_kernels *k)
{
    k->attn[HEARTH_KV_F16] = attend_f16;
    k->attn[HEARTH_KV_F32] = attend_f32;
    k->attn[HEARTH_KV_Q8_0] = attend_q8_0;
}
