/* Rows of NVFP4 (blocks of 64: four scales of one byte, for 16 weights each; 32 bytes of nibbles that are indices into
 * the table of MXFP4): docs/arithmetic.md 2, R4. */
#define HAS_MINIMUM 0
enum { BLOCK_SIZE = 36, N_WEIGHT = 64, SUB_WEIGHT = 16, N_SUB = 4 };

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
        const uint8_t *block = row + b / N_SUB * BLOCK_SIZE;
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
        const uint8_t *row = job->w + (job->list ? (size_t)job->list[i] : i) * job->row_size;
        for (size_t t = 0; t < job->n_tok; t++)
            job->y[t * job->y_stride + i] = dot(row, job->n_col, job->act.q + t * job->n_col,
                                                job->act.d + t * (job->n_col / HTH_ACT_BLOCK));
    }
}

static void unpack(const uint8_t *row, size_t n_col, float *x)
{
    for (size_t i = 0; i < n_col; i++) {
        const uint8_t *block = row + i / N_WEIGHT * BLOCK_SIZE;
        int sub = (int)(i % N_WEIGHT / SUB_WEIGHT);
        x[i] = hth_nvfp4_scale(block[sub]) * (float)weight(block, sub, (int)(i % SUB_WEIGHT));
    }
}
#endif

#include "kernels/quant/entry.h"
