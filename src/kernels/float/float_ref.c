/* Rows of F32, F16 and BF16: the definition (rule R9 of docs/arithmetic.md 2, chains of 6). Rows: sixteen
 * partial sums by index mod 16 with a fused multiply-add, then a reduction. Neuron-major: one chain per output.
 * Fused operations are allowed here and in training_ref.c only. */
#include "base/bits.h"
#include "base/fma.h"
#include "kernels/isa.h"
#include "kernels/reduce.h"

static float weight_f32(const uint8_t *row, size_t i) { return hth_load_f32(row + 4 * i); }
static float weight_f16(const uint8_t *row, size_t i) { return hth_f16_to_f32(hth_load_u16(row + 2 * i)); }
static float weight_bf16(const uint8_t *row, size_t i)
{
    return hth_bf16_to_f32(hth_load_u16(row + 2 * i));
}

#define DEFINE_ROWS(NAME, WEIGHT)                                                            \
    static void NAME(const hth_rows *job)                                                    \
    {                                                                                        \
        for (size_t i = job->first; i < job->end; i++) {                                     \
            const uint8_t *row = hth_row_at(job, i); \
            for (size_t t = 0; t < job->n_tok; t++) {                                        \
                const float *x = job->act.x + t * job->n_col;                                \
                float p[16] = {0};                                                           \
                for (size_t c = 0; c < job->n_col; c++)                                      \
                    p[c % 16] = hth_fma(WEIGHT(row, c), x[c], p[c % 16]);                    \
                job->y[t * job->y_stride + i] = hth_reduce16(p);                               \
            }                                                                                \
        }                                                                                    \
    }
DEFINE_ROWS(rows_f32, weight_f32)
DEFINE_ROWS(rows_f16, weight_f16)
DEFINE_ROWS(rows_bf16, weight_bf16)

#define DEFINE_DOWN(NAME, WEIGHT)                                                       \
    static void NAME(const hth_axpy_job *job)                                               \
    {                                                                                   \
        for (size_t i = 0; i < job->n; i++) {                                           \
            const uint8_t *row = hth_axpy_row(job, i);         \
            for (size_t o = 0; o < job->n_out; o++)                                     \
                job->chain[o] = hth_fma(WEIGHT(row, o), job->h[i], job->chain[o]);      \
        }                                                                               \
    }
DEFINE_DOWN(down_f32, weight_f32)
DEFINE_DOWN(down_f16, weight_f16)
DEFINE_DOWN(down_bf16, weight_bf16)

void hth_kernels_float_ref(hth_kernels *k)
{
    k->rows[HTH_TYPE_F32] = rows_f32;
    k->rows[HTH_TYPE_F16] = rows_f16;
    k->rows[HTH_TYPE_BF16] = rows_bf16;
    k->axpy[HTH_TYPE_F32] = down_f32;
    k->axpy[HTH_TYPE_F16] = down_f16;
    k->axpy[HTH_TYPE_BF16] = down_bf16;
    k->axpy_flush_chain = hth_axpy_flush_chain;
}
