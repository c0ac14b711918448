/* Rows of NVFP4 (blocks of 64: four scales of one byte, for 16 weights each; 32 bytes of nibbles that are indices into
 * the table of MXFP4): docs/arithmetic.md 2, R4. */
#define HAS_MINIMUM 0
/* Bytes of a block of 64, and of 32 weights of it, which rows_tmpl.h takes for a block. */
enum { SIZE = 36, BLOCK_SIZE = 18, N_WEIGHT = 64, SUB_WEIGHT = 16, N_SUB = 4 };

#include "kernels/quant/blocks.h"

#ifdef HTH_LEVEL_REF
#define HAS_ROWS
#define HAS_UNPACK
#include "kernels/isa.h"
#include "kernels/reduce.h"

/* Weight j of 16 is the low half of byte j, weight 8 + j the high half. */
static int8_t weight(const uint8_t *p, int sub, int j)
{
    uint8_t both = p[N_SUB + SUB_WEIGHT / 2 * sub + j % 8];
    return hth_mxfp4_values[j < 8 ? both & 15 : both >> 4];
}

static float dot(const uint8_t *row, size_t n_col, const int8_t *q, const float *d)
{
    float p[8] = {0};
    for (size_t b = 0; b < n_col / SUB_WEIGHT; b++, q += SUB_WEIGHT) {
        const uint8_t *block = row + b / N_SUB * SIZE;
        int sub = (int)(b % N_SUB), isum = 0;
        for (int j = 0; j < SUB_WEIGHT; j++) isum += weight(block, sub, j) * q[j];
        float t = hth_nvfp4_scale(block[sub]) * d[b * SUB_WEIGHT / HTH_ACT_BLOCK];
        p[b % 8] += t * (float)isum;
    }
    return hth_reduce8(p);
}

static void rows(const hth_rows *job)
{
    for (size_t i = job->first; i < job->end; i++) {
        const uint8_t *row = hth_row_at(job, i);
        for (size_t t = 0; t < job->n_tok; t++)
            job->y[t * job->y_stride + i] = dot(row, job->n_col, job->act.q + t * job->n_col,
                                                job->act.d + t * (job->n_col / HTH_ACT_BLOCK));
    }
}

static void unpack(const uint8_t *row, size_t n_col, float *x)
{
    for (size_t i = 0; i < n_col; i++) {
        const uint8_t *block = row + i / N_WEIGHT * SIZE;
        int sub = (int)(i % N_WEIGHT / SUB_WEIGHT);
        x[i] = hth_nvfp4_scale(block[sub]) * (float)weight(block, sub, (int)(i % SUB_WEIGHT));
    }
}
#endif

#if defined(HTH_LEVEL_AVX2) || defined(HTH_LEVEL_AVX512)
#ifdef HTH_LEVEL_AVX2
#include "kernels/quant/x86/x86_256.h"
#else
#include "kernels/quant/x86/x86_512.h"
#endif

/* The eight scales at p and in the next block (hth_nvfp4_scale). Numbers without an implicit bit are computed with
 * it, and it is subtracted. */
HTH_INLINE __m256 block_scales(const uint8_t *p)
{
    const __m256i top = _mm256_set1_epi32(127), eight = _mm256_set1_epi32(8);
    uint64_t bytes = hth_load_u32(p) | (uint64_t)hth_load_u32(p + SIZE) << 32;
    __m256i e = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((int64_t)bytes)), x = _mm256_and_si256(e, top);
    __m256i small = _mm256_cmpgt_epi32(eight, x), bits = _mm256_or_si256(x, _mm256_and_si256(small, eight));
    bits = _mm256_add_epi32(_mm256_slli_epi32(bits, 20), _mm256_set1_epi32(119 << 23));
    __m256 implicit = _mm256_and_ps(_mm256_castsi256_ps(small), _mm256_set1_ps(0x1p-7f));
    __m256 d = _mm256_sub_ps(_mm256_castsi256_ps(bits), implicit);
    return _mm256_andnot_ps(_mm256_castsi256_ps(_mm256_cmpeq_epi32(e, top)), d);
}

/* Adds the terms of eight sub-blocks of 16: scales d, integer sums isum, and the scales of four blocks of inputs. */
HTH_INLINE partials add_sub_blocks(partials p, __m256 d, const float *dx, __m256i isum)
{
    __m256i twice = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3);
    __m256 each = _mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_loadu_ps(dx)), twice);
    return _mm256_add_ps(p, _mm256_mul_ps(_mm256_mul_ps(d, each), _mm256_cvtepi32_ps(isum)));
}
#endif

#ifdef HTH_LEVEL_AVX2
/* Four blocks; 32 weights in a register. */
typedef struct {
    __m256i w[8];
    __m256 d[2];
} group;

HTH_INLINE group unpack(const uint8_t *p)
{
    const __m256i values = _mm256_broadcastsi128_si256(load_128(hth_mxfp4_values)), low = _mm256_set1_epi8(15);
    group g = {.d = {block_scales(p), block_scales(p + 2 * SIZE)}};
    for (int i = 0; i < 4; i++) {
        __m256i x = load_256(p + i * SIZE + 4), y = _mm256_and_si256(_mm256_srli_epi16(x, 4), low);
        x = _mm256_and_si256(x, low);
        __m256i even = _mm256_unpacklo_epi64(x, y), odd = _mm256_unpackhi_epi64(x, y);
        g.w[2 * i] = _mm256_shuffle_epi8(values, _mm256_permute2x128_si256(even, odd, 0x20));
        g.w[2 * i + 1] = _mm256_shuffle_epi8(values, _mm256_permute2x128_si256(even, odd, 0x31));
    }
    return g;
}

/* Sums of four products of signed bytes; the sign moves to the input, which is never -128. */
HTH_INLINE __m256i products(__m256i w, const int8_t *q)
{
    __m256i sums = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(load_256(q), w));
    return _mm256_madd_epi16(sums, _mm256_set1_epi16(1));
}

/* Sums of neighbours, those of a before those of b in each lane. A sub-block's sum fits in 16 bits. */
HTH_INLINE __m256i fold(__m256i a, __m256i b)
{
    return _mm256_madd_epi16(_mm256_packs_epi32(a, b), _mm256_set1_epi16(1));
}

HTH_INLINE partials add_terms(partials p, const group *g, const int8_t *q, const float *d, const int32_t *sum)
{
    const __m256i lanes_in_turn = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    (void)sum;
    for (int i = 0; i < 2; i++, q += 128) {
        const __m256i *w = g->w + 4 * i;
        __m256i low = fold(products(w[0], q), products(w[1], q + 32));
        __m256i high = fold(products(w[2], q + 64), products(w[3], q + 96));
        __m256i isum = _mm256_permutevar8x32_epi32(fold(low, high), lanes_in_turn);
        p = add_sub_blocks(p, g->d[i], d + 4 * i, isum);
    }
    return p;
}
#endif

#ifdef HTH_LEVEL_AVX512
/* Four blocks; 64 weights in a register. */
typedef struct {
    __m512i w[4];
    __mmask64 minus[4];
    __m256 d[2];
} group;

HTH_INLINE group unpack(const uint8_t *p)
{
    const __m512i values = _mm512_broadcast_i32x4(_mm_abs_epi8(load_128(hth_mxfp4_values)));
    const __m512i in_turn = _mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11), low = _mm512_set1_epi8(15);
    group g = {.d = {block_scales(p), block_scales(p + 2 * SIZE)}};
    for (int i = 0; i < 2; i++) {
        __m512i x = _mm512_castsi256_si512(load_256(p + 2 * i * SIZE + 4));
        x = _mm512_inserti64x4(x, load_256(p + (2 * i + 1) * SIZE + 4), 1);
        __m512i y = _mm512_and_si512(_mm512_srli_epi16(x, 4), low);
        x = _mm512_and_si512(x, low);
        for (int k = 0; k < 2; k++) {
            __m512i places = _mm512_add_epi64(in_turn, _mm512_set1_epi64(4 * k));
            __m512i nibbles = _mm512_permutex2var_epi64(x, places, y);
            g.w[2 * i + k] = _mm512_shuffle_epi8(values, nibbles);
            g.minus[2 * i + k] = _mm512_test_epi8_mask(nibbles, _mm512_set1_epi8(8));
        }
    }
    return g;
}

/* Sums of four products in each lane; the sign moves to the input, which is never -128. */
HTH_INLINE __m512i products(const group *g, int i, const int8_t *q)
{
    __m512i inputs = load_512(q);
    inputs = _mm512_mask_sub_epi8(inputs, g->minus[i], _mm512_setzero_si512(), inputs);
    return _mm512_dpbusd_epi32(_mm512_setzero_si512(), g->w[i], inputs);
}

HTH_INLINE partials add_terms(partials p, const group *g, const int8_t *q, const float *d, const int32_t *sum)
{
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 2, 6, 10, 14, 0, 0, 0, 0, 0, 0, 0, 0);
    (void)sum;
    for (int i = 0; i < 2; i++) {
        __m512i a = products(g, 2 * i, q + 128 * i), b = products(g, 2 * i + 1, q + 128 * i + 64);
        __m512i two = _mm512_madd_epi16(_mm512_packs_epi32(a, b), _mm512_set1_epi16(1));
        __m512i one = _mm512_add_epi32(two, _mm512_srli_epi64(two, 32));
        p = add_sub_blocks(p, g->d[i], d + 4 * i, _mm512_castsi512_si256(_mm512_permutexvar_epi32(order, one)));
    }
    return p;
}
#endif

#if defined(HTH_LEVEL_NEON) || defined(HTH_LEVEL_DOTPROD)
#include "kernels/quant/arm.h"

/* Four blocks; a sub-block of 16 in a register. */
typedef struct {
    int8x16_t w[16];
    float d[16];
} group;

HTH_INLINE group unpack(const uint8_t *p)
{
    group g;
    for (int i = 0; i < 16; i++) {
        const uint8_t *block = p + i / N_SUB * SIZE;
        uint8x8_t both = vld1_u8(block + N_SUB + SUB_WEIGHT / 2 * (i % N_SUB));
        uint8x16_t nibbles = vcombine_u8(vand_u8(both, vdup_n_u8(15)), vshr_n_u8(both, 4));
        g.w[i] = look_up(hth_mxfp4_values, vreinterpretq_s8_u8(nibbles));
        g.d[i] = hth_nvfp4_scale(block[i % N_SUB]);
    }
    return g;
}

/* Sums of four sub-blocks, whose inputs are two blocks. */
HTH_INLINE float32x4_t add_four(float32x4_t p, const group *g, int i, const int8_t *q, const float *d)
{
    int32x4_t s[4];
    for (int k = 0; k < 4; k++) s[k] = half_products(g->w[i + k], q + SUB_WEIGHT * (i + k));
    const float dx[4] = {d[i / 2], d[i / 2], d[i / 2 + 1], d[i / 2 + 1]};
    return add_scaled(p, vld1q_f32(g->d + i), dx, sums_in_order(s[0], s[1], s[2], s[3]));
}

HTH_INLINE partials add_terms(partials p, const group *g, const int8_t *q, const float *d, const int32_t *sum)
{
    (void)sum;
    for (int i = 0; i < 16; i += 8) {
        p.low = add_four(p.low, g, i, q, d);
        p.high = add_four(p.high, g, i + 4, q, d);
    }
    return p;
}
#endif

#if !defined(HTH_LEVEL_REF) && !defined(HTH_LEVEL_I8MM)
#include "kernels/quant/rows_tmpl.h"
#endif

#include "kernels/quant/entry.h"
