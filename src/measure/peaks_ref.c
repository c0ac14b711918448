/* The loop of the level without instructions of its own: multiply and add of four
 * floats, as the C kernels have them. There is no byte product in C, so no int8 peak. */
#include "measure/peaks.h"

typedef float four __attribute__((vector_size(16)));
enum { N_SUM = 12 };

static volatile float hidden = 0.5f;

/* A sum waits for its product and its last value: twelve of them keep both units busy. */
static void multiply_add(uint64_t n_round)
{
    float h = hidden;
    four factor = {h, h, h, h}, sum[N_SUM];
    for (int i = 0; i < N_SUM; i++) sum[i] = factor;
    for (uint64_t round = 0; round < n_round; round++)
        for (int i = 0; i < N_SUM; i++) sum[i] = sum[i] * factor + factor;
    for (int i = 1; i < N_SUM; i++) sum[0] += sum[i];
    hidden = sum[0][0] > 0.0f ? 0.5f : 0.25f;
}

const hth_peak hth_peaks_ref[] = {
    {"multiply, add (C, 128 bits)", HTH_PEAK_F32, 2 * N_SUM, 4 * N_SUM, multiply_add},
    {0},
};
