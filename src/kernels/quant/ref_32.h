/* The definition of a type in blocks of 32: rows, neuron-major down and exact unpacking, in C. The including
 * file defines
 *   BLOCK_SIZE          bytes of a block
 *   HAS_MINIMUM         1: a weight is d * w + m, else d * w
 *   read_block(p)       the integers and the scales of the block at p
 * This file defines rows(job), down(job) and unpack(row, n_col, x). docs/arithmetic.md 2, rules R2 to R4, and
 * 6. */
#define HAS_ROWS
#define HAS_AXPY
#define HAS_UNPACK
#include "base/bits.h"
#include "kernels/quant/blocks.h"
#include "kernels/isa.h"
#include "kernels/reduce.h"

typedef struct block {
    float d, m;
    int8_t w[HTH_ACT_BLOCK];
} block;

static block read_block(const uint8_t *p);

/* Integers j and j + 16 of a block from byte j. */
static inline void read_nibbles(const uint8_t *p, int8_t w[HTH_ACT_BLOCK])
{
    for (int i = 0; i < HTH_ACT_BLOCK / 2; i++) {
        w[i] = (int8_t)(p[i] & 15);
        w[i + HTH_ACT_BLOCK / 2] = (int8_t)(p[i] >> 4);
    }
}

static float dot(const uint8_t *row, size_t n_block, const int8_t *q, const float *d, const int32_t *sum)
{
    float p[8] = {0}, m[8] = {0};
    for (size_t b = 0; b < n_block; b++, row += BLOCK_SIZE, q += HTH_ACT_BLOCK) {
        block k = read_block(row);
        int32_t isum = 0;
        for (int i = 0; i < HTH_ACT_BLOCK; i++) isum += k.w[i] * q[i];
        float t = k.d * d[b];
        p[b % 8] += t * (float)isum;
        if (HAS_MINIMUM) {
            float s = k.m * d[b];
            m[b % 8] += s * (float)sum[b];
        }
    }
    return HAS_MINIMUM ? hth_reduce8(p) + hth_reduce8(m) : hth_reduce8(p);
}

static void rows(const hth_rows *job)
{
    size_t n_block = job->n_col / HTH_ACT_BLOCK;
    for (size_t i = job->first; i < job->end; i++) {
        const uint8_t *row = hth_row_at(job, i);
        for (size_t t = 0; t < job->n_tok; t++)
            job->y[t * job->y_stride + i] = dot(row, n_block, job->act.q + t * job->n_col,
                                                job->act.d + t * n_block, job->act.sum + t * n_block);
    }
}

/* Minima are added to weights; offsets are subtracted. */
static void down(const hth_axpy_job *job)
{
    for (size_t i = 0; i < job->n; i++) {
        const uint8_t *row = hth_axpy_row(job, i);
        float h = job->h[i] * job->scale;
        for (size_t b = 0; b < job->n_out / HTH_ACT_BLOCK; b++) {
            block k = read_block(row + b * BLOCK_SIZE);
            int16_t c = (int16_t)hth_round_even(h * k.d);
            int32_t *sums = job->sums + b * HTH_ACT_BLOCK, *offset = job->offsets + b;
            for (int o = 0; o < HTH_ACT_BLOCK; o++) sums[o] = hth_wrapping_sum(sums[o], c * k.w[o]);
            if (HAS_MINIMUM) *offset = hth_wrapping_sum(*offset, hth_round_even(h * -k.m));
        }
    }
}

/* The product is exact, so the only rounding is that of the minimum. */
static void unpack(const uint8_t *row, size_t n_col, float *x)
{
    for (size_t b = 0; b < n_col / HTH_ACT_BLOCK; b++, row += BLOCK_SIZE, x += HTH_ACT_BLOCK) {
        block k = read_block(row);
        for (int i = 0; i < HTH_ACT_BLOCK; i++) {
            float product = k.d * (float)k.w[i];
            x[i] = HAS_MINIMUM ? product + k.m : product;
        }
    }
}
