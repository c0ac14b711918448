/* The values of test cases (selftest_cases.c): small ones that expose rounding. Many are ties, which a device
 * that does not round to nearest even rounds differently: activations, neuron coefficients, and sums that end
 * in a half. Each test case always gets the same values. */
#include "forward/gpu/selftest.h"

#include "base/bits.h"
#include "base/hash.h"
#include "kernels/attn/attn.h"
#include "kernels/quant/blocks.h"
#include "kernels/axpy/axpy.h"
#include "model/arch.h"
#include "forward/gpu/cache.h"
#include "forward/gpu/experts/pack_table.h"
#include "forward/kv_pool.h"

#include <string.h>

enum { WIDTH = HTH_TEST_WIDTH, MASK_AT = HTH_TEST_MASK_AT };

typedef struct generator {
    uint64_t state;
} generator;

/* xorshift64*, upper half (Vigna, An experimental exploration of Marsaglia's xorshift generators). */
static uint32_t next(generator *r)
{
    r->state ^= r->state >> 12, r->state ^= r->state << 25, r->state ^= r->state >> 27;
    return (uint32_t)(r->state * 0x2545f4914f6cdd1du >> 32);
}

static uint32_t below(generator *r, uint32_t n) { return next(r) % n; }

/* Magnitude in [2^low, 2^high). */
static float between(generator *r, int32_t low, int32_t high)
{
    uint32_t exponent = (uint32_t)(127 + low) + below(r, (uint32_t)(high - low));
    return hth_float_of((next(r) & 0x807fffffu) | exponent << 23);
}

static float signed_zero(generator *r) { return next(r) % 2 ? 0.0f : -0.0f; }

static void fill_runs(const hth_gpu_testcase *t, uint32_t *step)
{
    if (t->n_run == 0) return;
    step[HTH_STEP_N_RUN] = t->n_run - 1;
    memcpy(step + HTH_STEP_ROWS + t->n_row * HTH_STEP_ROW_WORDS, t->runs, t->n_run * sizeof *t->runs);
}

static void fill_slots(const hth_gpu_testcase *t, uint32_t *slots)
{
    for (uint32_t i = 0; i < t->n_expert; i++) slots[i] = i % 3 == 2 ? HTH_STEP_NO_SLOT : i ^ 1;
}

/* The page tables of the second hth_kv_class hold the same pages in reverse order. */
static void fill_step(const hth_gpu_testcase *t, uint32_t *step)
{
    const uint32_t table_at = HTH_STEP_ROWS + t->n_row * HTH_STEP_ROW_WORDS, n_table = t->n_table;
    memset(step, 0, table_at * sizeof *step);
    for (uint32_t i = 0; i < n_table; i++) {
        step[table_at + i] = t->tables[i];
        step[table_at + n_table + i] = t->tables[n_table - 1 - i];
    }
    step[HTH_STEP_COPY] = 0, step[HTH_STEP_COPY + 1] = 2;
    step[HTH_STEP_N_TOK] = t->by_want ? t->n_row : t->n_done;
    step[HTH_STEP_N_WANT] = t->by_want ? t->n_done : t->n_row;
    for (uint32_t i = 0; i < t->n_row; i++) {
        uint32_t *row = step + HTH_STEP_ROWS + i * HTH_STEP_ROW_WORDS;
        if (t->positions) row[HTH_STEP_POSITION] = t->positions[i][0];
        for (uint32_t c = 0; t->positions && c < HTH_N_KV_POSITION_CLASS; c++)
            row[HTH_STEP_TABLE + c] = table_at + c * n_table + t->positions[i][1];
        row[HTH_STEP_WANT] = t->n_row - 1 - i;
    }
    fill_runs(t, step);
    fill_slots(t, step + table_at);
}

/* Includes the values that others are compared with: 0.25 and zeros. */
static void fill_floats(generator *r, const hth_gpu_test_input *g, float *x)
{
    for (size_t i = 0; i < g->size / 4; i++) {
        uint32_t pick = below(r, 16);
        x[i] = pick == 0   ? signed_zero(r)
               : pick == 1 ? 0.25f
                           : between(r, g->max_exponent - 8, g->max_exponent);
    }
}

/* Of each eight: a subnormal and 1, a large float, another subnormal, a normal one; two whose product or whose
 * difference is subnormal; a product and a sum that are ties. width: which of a pair. */
static void fill_rules(generator *r, const hth_gpu_test_input *g, float *x)
{
    static const struct {
        uint32_t base, mask; /* bits that are set, bits that may be */
    } kinds[8][2] = {{{0, 0x007fffff}, {0x3f800000, 0}},          {{0, 0x007fffff}, {0x70000000, 0x007fffff}},
                     {{0, 0x007fffff}, {0, 0x007fffff}},          {{0, 0x00000fff}, {0x00800000, 0x007fffff}},
                     {{0x20000000, 0x007fffff}, {0x1e000000, 0x007fffff}},
                     {{0x00800000, 0x007fffff}, {0x80800000, 0x007fffff}},
                     {{0x3f800001, 0x00000ffe}, {0x3fc00000, 0}}, {{0x4b800000, 0x007ffffe}, {0x3f800000, 0}}};
    for (size_t i = 0; i < g->size / 4; i++) {
        uint32_t base = kinds[i % 8][g->width].base, sign = i % 3 == 0 ? 0x80000000u : 0;
        x[i] = hth_float_of((base | (next(r) & kinds[i % 8][g->width].mask)) ^ sign);
    }
}

static bool is_tie_block(size_t at, uint32_t width) { return at / width % 8 == 1; }

static float value_of_block(generator *r, const hth_gpu_test_input *g, uint32_t kind, size_t i)
{
    switch (kind) {
    case 1:
        return i == 0 ? 127.0f : 0.5f * (float)((int)below(r, 509) - 254); /* steps of 1: halves are ties */
    case 2: return between(r, g->min_exponent - 1, g->min_exponent);
    case 3: return signed_zero(r);
    case 4: return i == 5 ? -between(r, g->max_exponent - 1, g->max_exponent) : between(r, -20, -4);
    default: return between(r, g->max_exponent - 9, g->max_exponent);
    }
}

static void fill_blocks(generator *r, const hth_gpu_test_input *g, float *x)
{
    size_t n = g->size / 4;
    for (size_t b = 0; b < n; b += g->width)
        for (size_t i = 0; i < g->width && b + i < n; i++)
            x[b + i] = value_of_block(r, g, (uint32_t)(b / g->width % 8), i);
}

/* The value that a sigmoid of nearly 1 (its reciprocal is 1 - 2^-24) reduces to x; other activations leave
 * x. */
static float before_activation(const hth_gpu_testcase *t, float x)
{
    uint32_t kind = t->consts[HTH_ACT_QUANTIZE_KIND];
    bool sigmoid = kind == HTH_ACTIVATION_SILU || kind == HTH_ACTIVATION_GELU;
    return hth_float_of(hth_bits_of(x) + sigmoid);
}

/* Halves of neurons, WIDTH of each: blocks as above, but ties are chosen to remain ties after the activation:
 * gates of 32 times ties, or ties of 64. (A square is not a tie.) */
static void fill_halves_of_ffn(generator *r, const hth_gpu_testcase *t, const hth_gpu_test_input *g, float *x)
{
    bool gated = g->fill == HTH_FILL_GATE_UP;
    for (size_t i = 0; i < g->size / 4; i++) {
        size_t at = i % WIDTH, in = at % g->width;
        bool is_gate = gated && i / WIDTH % 2 == 0, ties = is_tie_block(at, g->width);
        if (!ties || (gated && !is_gate)) x[i] = value_of_block(r, g, (uint32_t)(at / g->width % 8), in);
        else if (is_gate) x[i] = before_activation(t, 32.0f);
        else x[i] = before_activation(t, in == 0 ? 64.0f * 127.0f : 64.0f * (0.5f + (float)below(r, 126)));
    }
}

/* Scores of neurons: floats, but no neuron of a tie block is left out. */
static void fill_scores(generator *r, const hth_gpu_test_input *g, float *x)
{
    fill_floats(r, g, x);
    for (size_t i = 0; i < g->size / 4; i++)
        if (is_tie_block(i % (size_t)g->min_exponent, g->width)) x[i] = 1.0f;
}

/* Angles: those of the first token are 0, so that rotation leaves its values unchanged. */
static void fill_table(generator *r, const hth_gpu_test_input *g, float *x)
{
    fill_floats(r, g, x);
    float *cosine = x + g->min_exponent, *sine = cosine + (g->size / 4 - (uint64_t)g->min_exponent + 1) / 2;
    for (uint32_t i = 0; i < g->width; i++) cosine[i] = 1.0f, sine[i] = 0.0f;
}

/* The largest sub-block scale of a quantisation descriptor. */
static uint32_t largest_part(const hth_quant_desc *f) { return f->minima ? 63 : f->offset == 32 ? 127 : 31; }

enum { LARGEST_HALF = 4, COMMON_EXPONENT = 11 }; /* maximum magnitude of `half`; one scale in nine is 2^-4 */

/* The power of two that covers all neurons; h below 2^max_exponent. */
static float power_of(const hth_gpu_test_input *g, const hth_quant_desc *f)
{
    float h_max = (float)(1 << g->max_exponent);
    return hth_axpy_scale(&h_max, 1, (float)(LARGEST_HALF * (f->part ? largest_part(f) : 1)), 0);
}

/* Every fifth row has no active neuron; every second has none of the largest magnitude. Values with few bits
 * make ties: odd multiples of either power of two (fill_cluster_scales) and 2^-4 end in a half. */
static void fill_neurons(generator *r, const hth_gpu_testcase *t, const hth_gpu_test_input *g, float *h)
{
    const float unit = 8.0f / power_of(g, &t->desc), units[] = {0.25f, unit, 4.0f * unit, unit};
    for (size_t i = 0; i < g->size / 4; i++) {
        size_t row = i / g->width;
        bool is_active = row % 5 != 4 && below(r, 3) == 0;
        uint32_t of = below(r, 4);
        float value = between(r, -6, row % 2 ? g->max_exponent : 0);
        int32_t times = (int32_t)(value / units[of]) | (of % 2 ? 1 : 0);
        h[i] = !is_active ? signed_zero(r) : next(r) % 2 ? value : units[of] * (float)times;
    }
}

/* One token in three has only large values, so that its sums exceed 2^24 where weights are large too; one
 * makes ties with rows of a single weight (is_tie_row): sums of 2^24 and more that are 1 above a multiple of
 * 4, or of 2^25 and more that are 2 above a multiple of 8. */
static void fill_q(generator *r, const hth_gpu_test_input *g, int8_t *q)
{
    for (size_t i = 0; i < g->size; i++) {
        int large = 127 - (int)below(r, 16), any = (int)below(r, 255) - 127, tie = i % 256 == 0 ? 124 : 127;
        q[i] = (int8_t)(i / g->width % 3 == 1 ? large : i / g->width % 3 == 2 ? tie : any);
    }
}

/* By table, the index of a weight and a scale whose product, times 255 127 + 124, lies halfway between two floats, the
 * smaller of which is even. Sums of the other tables are exact. */
static const struct {
    uint8_t weight, scale;
} ties[1 + HTH_SOA_N_TABLE] = {{15, 63}, {10, 29}, {0, 0}, {7, 19}, {7, 35}, {1, 21}, {0, 0}};

/* Rows whose blocks of 256 have one weight and one scale, if their sums can exceed 2^24. */
static bool is_tie_row(const hth_quant_desc *f, uint32_t i)
{
    return f->block == 256 && ties[f->table].scale > 0 && (f->table > 0 || f->low_bits == 4) && i % 4 == 3;
}
static uint32_t tie_weight(const hth_quant_desc *f) { return f->offset + ties[f->table].weight; }
static uint8_t tie_scale(const hth_quant_desc *f) { return ties[f->table].scale; }

static void fill_scales(generator *r, size_t n, float *d)
{
    for (size_t i = 0; i < n; i++) d[i] = __builtin_fabsf(between(r, -10, -1));
}

static void fill_q_sums(const hth_gpu_test_input *g, const int8_t *q, int32_t *sums)
{
    for (size_t i = 0; i < g->size / 4; i++) {
        sums[i] = 0;
        for (size_t k = 0; k < g->width; k++) sums[i] += q[i * g->width + k];
    }
}

/* A scale or minimum; includes powers of two and subnormals. */
static uint16_t half(generator *r, size_t i)
{
    uint32_t bits = next(r), sign = bits & 0x8000u, mantissa = bits & 0x3ffu;
    if (i % 7 == 3) return (uint16_t)(sign | mantissa);
    if (i % 9 == 6) return (uint16_t)(sign | COMMON_EXPONENT << 10);
    return (uint16_t)(sign | (4 + below(r, 13)) << 10 | (i % 3 ? mantissa : 0));
}

static void fill_halves(generator *r, uint16_t *to, size_t n)
{
    for (size_t i = 0; i < n; i++) to[i] = half(r, i);
}

/* Bytes of one array: up to the beginning of the next. */
static size_t plane_size(const hth_soa_layout *p, uint32_t at)
{
    const uint32_t ends[] = {p->offsets.high, p->offsets.scale, p->offsets.sub_scale, p->offsets.sub_min,
                             p->offsets.minimum};
    size_t end = (size_t)p->size;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (ends[i] > at && (size_t)ends[i] * 4 < end) end = (size_t)ends[i] * 4;
    return end - (size_t)at * 4;
}

static void fill_bytes(generator *r, uint8_t *to, size_t n, uint32_t or_with)
{
    for (size_t i = 0; i < n; i++) to[i] = (uint8_t)(next(r) | or_with);
}

/* Every fourth row has only large weights. */
static void fill_quants(generator *r, const hth_gpu_testcase *t, uint32_t bits, uint8_t *to)
{
    size_t size = (size_t)t->n_block * t->desc.block * bits / 8;
    uint32_t shift = bits == t->desc.low_bits ? 0 : t->desc.low_bits, mask = (1u << bits) - 1;
    for (uint32_t i = 0; i < t->n_weight_row; i++) {
        fill_bytes(r, to + i * size, size, i % 4 == 1 ? 0xee : 0);
        if (is_tie_row(&t->desc, i))
            memset(to + i * size, (int)((tie_weight(&t->desc) >> shift & mask) * (255 / mask)), size);
    }
}

static void fill_parts(generator *r, const hth_gpu_testcase *t, uint8_t *part)
{
    size_t n = (size_t)t->n_block * (t->desc.block / t->desc.part);
    uint32_t max = largest_part(&t->desc);
    for (uint32_t i = 0; i < t->n_weight_row; i++)
        for (size_t k = 0; k < n; k++) {
            uint32_t any = below(r, max + 1), large = max - any % 8;
            bool is_negative = !t->desc.minima && i % 4 != 1 && next(r) % 2;
            int32_t value = (int32_t)(i % 4 == 1 ? large : any);
            part[i * n + k] =
                is_tie_row(&t->desc, i) ? tie_scale(&t->desc) : (uint8_t)(is_negative ? -value : value);
        }
}

/* The first choice of a token is not the last slice, which may be elsewhere. Weights are powers of two, so that ties
 * stay. */
static void fill_pairs(generator *r, const hth_gpu_test_input *g, uint32_t *words)
{
    for (uint32_t i = 0; i < g->size / 4; i++) {
        uint32_t any = next(r), n_slice = g->width > 1 && i % 4 == 0 ? g->width - 1 : g->width;
        words[i] = i % 4 < 2 ? any % n_slice : (127 - any % (uint32_t)(1 - g->min_exponent)) << 23;
    }
}

static void fill_groups(generator *r, const hth_gpu_test_input *g, uint32_t *words)
{
    uint32_t of = (uint32_t)g->max_exponent, n_group = ((uint32_t)g->size / 4 - HTH_GROUPS_HEAD) / hth_group_words(of);
    memset(words, 0, (size_t)g->size);
    words[0] = n_group;
    for (uint32_t i = 0, pair = 0; i < n_group; i++) {
        uint32_t *group = words + HTH_GROUPS_HEAD + i * hth_group_words(of);
        group[0] = i % g->width, group[1] = i == 0 ? of : 2;
        for (uint32_t k = 0; k < group[1]; k++)
            group[2 + k] = pair++, group[2 + of + k] = (127 - next(r) % 4) << 23;
    }
}

/* From word jobs_at on, the first push constant. */
static void fill_jobs(const hth_gpu_testcase *t, const hth_gpu_test_input *g, uint32_t *words)
{
    uint32_t *jobs = words + t->push[0], *job = jobs + HTH_PACK_ROWS_HEAD;
    memset(words, 0xa5, (size_t)g->size);
    jobs[0] = g->width;
    for (uint32_t i = 0; i < g->width; i++, job += 2) job[0] = g->width - i, job[1] = i;
}

static void fill_pack_table(const hth_gpu_testcase *t, const hth_gpu_test_input *g, uint32_t *words)
{
    uint32_t n_word, form = t->consts[HTH_PACK_ROWS_FORM];
    memset(words, 0, (size_t)g->size);
    if (form != HTH_PACK_ROWS_PLANES) (void)hth_pack_table(t->type, (hth_layout)form, words, &n_word);
}

/* Groups of `width` rows: all set, none, one, every second; then random. Bits before the first row are
 * set. */
static void fill_mask(generator *r, const hth_gpu_test_input *g, uint32_t *words)
{
    memset(words, 0, (size_t)g->size);
    for (uint32_t i = 0; i < g->size * 8; i++) {
        uint32_t row = i - MASK_AT, k = row % g->width;
        bool any = next(r) % 2, active = i < MASK_AT;
        if (!active) switch (row / g->width) {
            case 0: active = true; break;
            case 1: break;
            case 2: active = k == g->width - 2; break;
            case 3: active = k % 2 == 1; break;
            default: active = any;
            }
        words[i / 32] |= (uint32_t)active << i % 32;
    }
}

/* Scales of tie rows are 2^-4, which makes neurons ties too (fill_neurons). One block of a row, another one of each, is
 * left out, so that rows have different sums: later roundings may hide how one was rounded. */
static void fill_tie_scales(const hth_gpu_testcase *t, uint8_t *scale)
{
    size_t row = (t->n_block + 1) / 2 * 4;
    for (uint32_t i = 0; i < t->n_weight_row; i++)
        for (uint32_t b = 0; is_tie_row(&t->desc, i) && b < t->n_block; b++)
            hth_store_u16(scale + i * row + 2 * b, t->n_block > 1 && b == i / 4 % t->n_block ? 0 : 0x2c00);
}

static void fill_planes(generator *r, const hth_gpu_testcase *t, uint8_t *to)
{
    const hth_soa_layout *p = &t->layout;
    uint8_t *scale = to + (size_t)p->offsets.scale * 4, *sub_min = to + (size_t)p->offsets.sub_min * 4;
    size_t n_scale = plane_size(p, p->offsets.scale);
    fill_quants(r, t, t->desc.low_bits, to);
    if (p->offsets.high) fill_quants(r, t, t->desc.high_bits, to + (size_t)p->offsets.high * 4);
    bool is_e8m0 = t->desc.scale == HTH_SCALE_E8M0;
    if (!is_e8m0) fill_halves(r, (uint16_t *)(void *)scale, n_scale / 2);
    if (!is_e8m0) fill_tie_scales(t, scale);
    for (size_t i = 0; is_e8m0 && i < n_scale; i++) scale[i] = (uint8_t)(114 + below(r, 16)); /* up to 2 */
    if (p->offsets.sub_scale) fill_parts(r, t, to + (size_t)p->offsets.sub_scale * 4);
    for (size_t i = 0; p->offsets.sub_min && i < plane_size(p, p->offsets.sub_min); i++)
        sub_min[i] = (uint8_t)below(r, 64);
    if (p->offsets.minimum)
        fill_halves(r, (uint16_t *)(void *)(to + (size_t)p->offsets.minimum * 4),
                    plane_size(p, p->offsets.minimum) / 2);
}

static uint32_t four_integers(generator *r)
{
    uint32_t word = 0;
    for (int i = 0; i < 4; i++) word |= (uint32_t)(uint8_t)((int)below(r, 255) - 127) << 8 * i;
    return word;
}

/* Word i of a cache position. The scale is a bf16 value, as in the cache. */
static uint32_t cache_word(generator *r, hearth_kv_type kv, uint32_t d, uint32_t i)
{
    if (kv == HEARTH_KV_F16) return half(r, i) | (uint32_t)half(r, i + 1) << 16;
    if (kv == HEARTH_KV_F32) return hth_bits_of(between(r, -7, 1));
    if (i < d / 4) return four_integers(r);
    return hth_bits_of(between(r, -9, -5)) & 0x7fff0000u;
}

static void fill_cache(generator *r, const hth_gpu_testcase *t, const hth_gpu_test_input *g, uint32_t *words)
{
    const hearth_kv_type kv = (hearth_kv_type)t->consts[HTH_ATTN_KV];
    bool keys = g->fill == HTH_FILL_KEYS;
    for (uint32_t w = 0; w < g->size / 4; w++) {
        uint32_t i = (keys ? w / HTH_GPU_CACHE_GROUP : w) % g->width;
        words[w] = cache_word(r, kv, t->consts[HTH_ATTN_D_HEAD], i);
    }
}

static void fill_rounded(generator *r, const hth_gpu_test_input *g, uint32_t *words)
{
    size_t n = g->size / 4;
    for (size_t i = 0; i < n && i < g->width; i++) words[i] = four_integers(r);
    for (size_t i = g->width; i < n; i++) words[i] = hth_bits_of(between(r, -9, -5)) & 0x7fffffffu;
}

static void fill_parts_of_splits(generator *r, const hth_gpu_test_input *g, float *x)
{
    for (size_t i = 0; i < g->size / 8; i++)
        x[2 * i] = between(r, -4, 4), x[2 * i + 1] = __builtin_fabsf(between(r, 0, 8));
}

/* Powers that cover all neurons, and smaller ones. */
static void fill_cluster_scales(const hth_gpu_test_input *g, const hth_quant_desc *f, float *x)
{
    float scale = power_of(g, f);
    for (size_t i = 0; i < g->size / 4; i++) x[i] = i % 2 ? scale : scale * 0.25f;
}

/* An odd 25-bit value: a tie when converted to float. */
static int32_t tie(generator *r) { return (int32_t)((1u << 23 | below(r, 1u << 23)) << 1 | 1u); }

/* For every third output all parts but the first split are zero: a tie; for the next third all are zero: only
 * the host's sum contributes. */
static void fill_sums(generator *r, const hth_gpu_test_input *g, int32_t *sums)
{
    for (size_t i = 0; i < g->size / 4; i++) {
        size_t o = i % g->width, split = i / g->width % 3;
        int32_t any = (int32_t)next(r), small = tie(r);
        sums[i] = o % 3 == 2 ? any : o % 3 == 1 && split == 0 ? small : 0;
    }
}

static void fill_host(generator *r, const hth_gpu_test_input *g, uint32_t *words)
{
    int64_t *sums = (int64_t *)(void *)(words + HTH_HOST_SUMS);
    memset(words, 0, (size_t)g->size);
    words[0] = HTH_HOST_SUMS_VALID;
    for (size_t i = 0; i < (g->size / 4 - HTH_HOST_SUMS) / 2; i++) {
        int64_t value = (int64_t)tie(r) << below(r, 30);
        if (i % 5 != 1) sums[i] = next(r) % 2 ? value : -value;
    }
}

static void fill(generator *r, const hth_gpu_testcase *t, uint32_t i, uint8_t *const bind[])
{
    const hth_gpu_test_input *g = &t->bind[i];
    void *to = bind[i];
    switch (g->fill) {
    case HTH_FILL_POISON: memset(to, 0xa5, (size_t)g->size); break;
    case HTH_FILL_STEP: fill_step(t, to); break;
    case HTH_FILL_FLOATS: fill_floats(r, g, to); break;
    case HTH_FILL_QUERIES:
        fill_floats(r, g, to);
        hth_attn_round_queries(to, (size_t)g->size / 4);
        break;
    case HTH_FILL_RULES: fill_rules(r, g, to); break;
    case HTH_FILL_BLOCKS: fill_blocks(r, g, to); break;
    case HTH_FILL_UP:
    case HTH_FILL_GATE_UP: fill_halves_of_ffn(r, t, g, to); break;
    case HTH_FILL_SCORES: fill_scores(r, g, to); break;
    case HTH_FILL_TABLE: fill_table(r, g, to); break;
    case HTH_FILL_NEURONS: fill_neurons(r, t, g, to); break;
    case HTH_FILL_Q: fill_q(r, g, to); break;
    case HTH_FILL_Q_SCALES: fill_scales(r, (size_t)g->size / 4, to); break;
    case HTH_FILL_Q_SUMS: fill_q_sums(g, (const int8_t *)bind[i - 2], to); break;
    case HTH_FILL_PLANES: fill_planes(r, t, to); break;
    case HTH_FILL_MASK: fill_mask(r, g, to); break;
    case HTH_FILL_PAIRS: fill_pairs(r, g, to); break;
    case HTH_FILL_GROUPS: fill_groups(r, g, to); break;
    case HTH_FILL_JOBS: fill_jobs(t, g, to); break;
    case HTH_FILL_BYTES: fill_bytes(r, to, (size_t)g->size, 0); break;
    case HTH_FILL_PACK_TABLE: fill_pack_table(t, g, to); break;
    case HTH_FILL_KEYS:
    case HTH_FILL_VALUES: fill_cache(r, t, g, to); break;
    case HTH_FILL_ROUNDED: fill_rounded(r, g, to); break;
    case HTH_FILL_PARTS: fill_parts_of_splits(r, g, to); break;
    case HTH_FILL_CLUSTER_SCALES: fill_cluster_scales(g, &t->desc, (float *)to); break;
    case HTH_FILL_SUMS: fill_sums(r, g, to); break;
    case HTH_FILL_HOST:
        if (g->size > 4) fill_host(r, g, to);
        else memset(to, 0, 4);
        break;
    }
}

void hth_gpu_testcase_fill(const hth_gpu_testcase *t, uint8_t *const bind[])
{
    const char *name = hth_shader_infos[t->id].name; /* shader numbers change when shaders are added */
    generator r = {hth_hash(name, strlen(name)) | 1};
    for (uint32_t i = 0; i < t->n_bind; i++) fill(&r, t, i, bind);
}
