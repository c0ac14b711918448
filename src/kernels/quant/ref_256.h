/* The definition of a type in blocks of 256 with integer scales inside: rows, neuron-major down and exact
 * unpacking, in C. There is a scale for every 16 weights; types with one for 32 give it twice. The including
 * file defines
 *   BLOCK_SIZE          bytes of a block
 *   HAS_MINIMUM         1: a weight is d * scale * w - m * minimum, else d * scale * w
 *   read_block(p, k)    the integers and the scales of the block at p
 *   NO_AXPY             defined: without neuron-major down
 * This file defines rows(job), down(job) and unpack(row, n_col, x). docs/arithmetic.md 2, rules R2 to R5, and
 * 6. */
#define HAS_ROWS
#define HAS_UNPACK
#ifndef NO_AXPY
#define HAS_AXPY
#endif
#include "base/bits.h"
#include "kernels/quant/blocks.h"
#include "kernels/isa.h"
#include "kernels/reduce.h"

enum { N_PART = HTH_ACT_BLOCK_256 / HTH_ACT_SUBBLOCK };

typedef struct block {
    float d, m;
    int8_t w[HTH_ACT_BLOCK_256];
    int16_t scale[N_PART], minimum[N_PART];
} block;

static void read_block(const uint8_t *p, block *k);

static float dot(const uint8_t *row, size_t n_block, const int8_t *q, const float *d, const int16_t *sum)
{
    float p[8] = {0}, m[8] = {0};
    for (size_t b = 0; b < n_block; b++, row += BLOCK_SIZE) {
        block k;
        int32_t isum = 0, msum = 0;
        read_block(row, &k);
        for (int part = 0; part < N_PART; part++, q += HTH_ACT_SUBBLOCK, sum++) {
            int32_t products = 0;
            for (int i = 0; i < HTH_ACT_SUBBLOCK; i++) products += k.w[HTH_ACT_SUBBLOCK * part + i] * q[i];
            isum += k.scale[part] * products;
            if (HAS_MINIMUM) msum += k.minimum[part] * *sum;
        }
        float t = k.d * d[b];
        p[b % 8] += t * (float)isum;
        if (HAS_MINIMUM) {
            float s = k.m * d[b];
            m[b % 8] += s * (float)msum;
        }
    }
    return HAS_MINIMUM ? hth_reduce8(p) - hth_reduce8(m) : hth_reduce8(p);
}

static void rows(const hth_rows *job)
{
    size_t n_block = job->n_col / HTH_ACT_BLOCK_256, n_part = job->n_col / HTH_ACT_SUBBLOCK;
    for (size_t i = job->first; i < job->end; i++) {
        const uint8_t *row = hth_row_at(job, i);
        for (size_t t = 0; t < job->n_tok; t++)
            job->y[t * job->y_stride + i] = dot(row, n_block, job->act.q + t * job->n_col,
                                                job->act.d + t * n_block, job->act.sum_16 + t * n_part);
    }
}

#ifdef HAS_AXPY
/* Scale and minimum of a sub-block are exact products. */
static void add_part(const block *k, int part, float h, int32_t *sums, int32_t *offset)
{
    int16_t c = (int16_t)hth_round_even(h * (k->d * (float)k->scale[part]));
    for (int i = 0; i < HTH_ACT_SUBBLOCK; i++)
        sums[i] = hth_wrapping_sum(sums[i], c * k->w[HTH_ACT_SUBBLOCK * part + i]);
    if (HAS_MINIMUM)
        *offset = hth_wrapping_sum(*offset, hth_round_even(h * (k->m * (float)k->minimum[part])));
}

static void down(const hth_axpy_job *job)
{
    for (size_t i = 0; i < job->n; i++) {
        const uint8_t *row = hth_axpy_row(job, i);
        float h = job->h[i] * job->scale;
        for (size_t b = 0; b < job->n_out / HTH_ACT_BLOCK_256; b++) {
            block k;
            read_block(row + b * BLOCK_SIZE, &k);
            for (int part = 0; part < N_PART; part++) {
                size_t at = b * N_PART + (size_t)part;
                add_part(&k, part, h, job->sums + HTH_ACT_SUBBLOCK * at, job->offsets + at);
            }
        }
    }
}
#endif

/* The products are exact (at most 24 bits), so the only rounding is that of the minimum. */
static void unpack(const uint8_t *row, size_t n_col, float *x)
{
    for (size_t b = 0; b < n_col / HTH_ACT_BLOCK_256; b++, row += BLOCK_SIZE, x += HTH_ACT_BLOCK_256) {
        block k;
        read_block(row, &k);
        for (int i = 0; i < HTH_ACT_BLOCK_256; i++) {
            int part = i / HTH_ACT_SUBBLOCK;
            float product = k.d * (float)k.scale[part] * (float)k.w[i];
            x[i] = HAS_MINIMUM ? product - k.m * (float)k.minimum[part] : product;
        }
    }
}
