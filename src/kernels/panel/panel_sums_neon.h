/* Products for panel_32_neon.h and panel_256_neon.h: the integer sums of a quarter of a panel (four rows). One token, or
 * several without smmla: sdot adds the products of four inputs to the sum of each row. Several with smmla: weights of two
 * rows, eight inputs each, are multiplied with those of two tokens. */
#include "kernels/panel/panel_sums.h"

/* d times one lane of x; lane is a constant. */
HTH_INLINE float32x4_t times_lane(float32x4_t d, float32x4_t x, size_t lane)
{
    switch (lane) {
    case 0: return vmulq_laneq_f32(d, x, 0);
    case 1: return vmulq_laneq_f32(d, x, 1);
    case 2: return vmulq_laneq_f32(d, x, 2);
    default: return vmulq_laneq_f32(d, x, 3);
    }
}

/* Adds the products of a four of weights of each row with one four of the sixteen inputs x; the lane is a
 * constant. */
HTH_INLINE int32x4_t dot_lane(int32x4_t sum, vints weights, int8x16_t x, int lane)
{
    int8x16_t w = vreinterpretq_s8_u8(weights);
    switch (lane) {
    case 0: return vdotq_laneq_s32(sum, w, x, 0);
    case 1: return vdotq_laneq_s32(sum, w, x, 1);
    case 2: return vdotq_laneq_s32(sum, w, x, 2);
    default: return vdotq_laneq_s32(sum, w, x, 3);
    }
}

/* ---- several tokens: weights in a chunk, inputs of a tile, sums of a quarter ------------------ */

/* 32 inputs of each token of a tile. */
typedef struct inputs {
    int8x16_t x[2 * HTH_TILE_TOK];
} inputs;

#if defined(__ARM_FEATURE_MATMUL_INT8)
/* Tokens t and t + 1 have two sums: rows 0 and 1 with both tokens, and rows 2 and 3. */
enum { N_SIDE = 2 };

/* Converts two fours of four rows to eights of rows 0 and 1, and of rows 2 and 3. */
HTH_INLINE void put_weights(int8x16_t *to, const vints *w, int n)
{
    HTH_UNROLL
    for (int g = 0; g < n; g += 2) {
        int32x4_t a = vreinterpretq_s32_u8(w[g]), b = vreinterpretq_s32_u8(w[g + 1]);
        to[g] = vreinterpretq_s8_s32(vzip1q_s32(a, b));
        to[g + 1] = vreinterpretq_s8_s32(vzip2q_s32(a, b));
    }
}

/* Inputs 8i to 8i + 7 of tokens t and t + 1 at x[2t + i]. */
HTH_INLINE inputs take_inputs(const int8_t *q, size_t stride, size_t n_tok)
{
    inputs in;
    for (size_t t = 0; t < n_tok; t += 2)
        for (size_t i = 0; i < 2; i++) {
            int64x2_t a = vreinterpretq_s64_s8(vld1q_s8(q + t * stride + 16 * i));
            int64x2_t b = vreinterpretq_s64_s8(vld1q_s8(q + (t + 1) * stride + 16 * i));
            in.x[2 * t + 2 * i] = vreinterpretq_s8_s64(vzip1q_s64(a, b));
            in.x[2 * t + 2 * i + 1] = vreinterpretq_s8_s64(vzip2q_s64(a, b));
        }
    return in;
}

/* Adds the products of fours g to g + n - 1 of the 32 inputs. */
HTH_INLINE void add_products(int32x4_t *sum, const int8x16_t *w, const inputs *in, int g, int n, size_t n_tok)
{
    HTH_UNROLL
    for (int i = 0; i < n; i += 2)
        for (size_t t = 0; t < n_tok; t += 2) {
            int8x16_t x = in->x[2 * t + (size_t)(g + i) / 2];
            sum[t] = vmmlaq_s32(sum[t], w[g + i], x);
            sum[t + 1] = vmmlaq_s32(sum[t + 1], w[g + i + 1], x);
        }
}

/* Converts the sums to one vector of four rows per token. */
HTH_INLINE void by_token(int32x4_t *sum, size_t n_tok)
{
    for (size_t t = 0; t < n_tok; t += 2) {
        int32x4_t a = sum[t], b = sum[t + 1];
        sum[t] = vuzp1q_s32(a, b), sum[t + 1] = vuzp2q_s32(a, b);
    }
}

/* Places a number of each row beside the sums that it multiplies. */
HTH_INLINE void put_scale(int32x4_t to[N_SIDE], int32x4_t s)
{
    to[0] = vzip1q_s32(s, s), to[1] = vzip2q_s32(s, s);
}
#else
enum { N_SIDE = 1 };

HTH_INLINE void put_weights(int8x16_t *to, const vints *w, int n)
{
    HTH_UNROLL
    for (int g = 0; g < n; g++) to[g] = vreinterpretq_s8_u8(w[g]);
}

HTH_INLINE inputs take_inputs(const int8_t *q, size_t stride, size_t n_tok)
{
    inputs in;
    for (size_t t = 0; t < n_tok; t++)
        for (size_t i = 0; i < 2; i++) in.x[2 * t + i] = vld1q_s8(q + t * stride + 16 * i);
    return in;
}

/* Adds the products of fours g to g + n - 1 of the 32 inputs. */
HTH_INLINE void add_products(int32x4_t *sum, const int8x16_t *w, const inputs *in, int g, int n, size_t n_tok)
{
    HTH_UNROLL
    for (int i = g; i < g + n; i++)
        for (size_t t = 0; t < n_tok; t++)
            sum[t] = dot_lane(sum[t], vreinterpretq_u8_s8(w[i]), in->x[2 * t + (size_t)i / 4], i % 4);
}

HTH_INLINE void by_token(int32x4_t *sum, size_t n_tok) { (void)sum, (void)n_tok; }
HTH_INLINE void put_scale(int32x4_t to[N_SIDE], int32x4_t s) { to[0] = s; }
#endif
