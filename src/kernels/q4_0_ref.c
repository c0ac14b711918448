/* Rows of Q4_0 (blocks of 32: scale as half, 16 bytes of nibbles; weight j in the low
 * half of byte j, weight j + 16 in the high half, both less 8): the definition.
 * The order of sums is rules R2 to R4 of docs/arithmetic.md 2. */
#include "base/bits.h"
#include "kernels/levels.h"
#include "kernels/tree.h"

enum { BLOCK = 32, BLOCK_SIZE = 18 };

static float dot(const uint8_t *row, size_t n_block, const int8_t *q, const float *d)
{
    float p[8] = {0};
    for (size_t b = 0; b < n_block; b++, row += BLOCK_SIZE, q += BLOCK) {
        const uint8_t *w = row + 2;
        int32_t isum = 0;
        for (int i = 0; i < BLOCK / 2; i++)
            isum += ((w[i] & 15) - 8) * q[i] + ((w[i] >> 4) - 8) * q[i + BLOCK / 2];
        float t = hth_f16_to_f32(hth_load_u16(row)) * d[b];
        p[b % 8] += t * (float)isum;
    }
    return hth_tree8(p);
}

static void rows(const hth_rows *job)
{
    size_t n_block = job->n_col / BLOCK;
    for (size_t i = job->first; i < job->end; i++) {
        const uint8_t *row = job->w + (job->list ? (size_t)job->list[i] : i) * job->row_size;
        for (size_t t = 0; t < job->n_tok; t++)
            job->y[t * job->y_stride + i] =
                dot(row, n_block, job->act.q + t * job->n_col, job->act.d + t * n_block);
    }
}

void hth_kernels_q4_0_ref(hth_kernels *k) { k->rows[HTH_TYPE_Q4_0] = rows; }
