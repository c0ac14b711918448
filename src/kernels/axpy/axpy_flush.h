/* The flush of 32-bit sums (hth_axpy_flush_fn). It is compiled for each ISA level, because the compiler makes vectors
 * of the inner loop. */
#include "kernels/axpy/axpy.h"

#include <string.h>

enum { FLUSH_OUTPUTS = 16 }; /* they share an offset */

static void flush_sums(hth_type type, size_t n_out, float scale, int32_t *restrict sums, int32_t *restrict offsets,
                       int64_t *restrict acc64)
{
    size_t n = n_out / FLUSH_OUTPUTS, per_offset = hth_axpy_sub_block(type) / FLUSH_OUTPUTS;
    int shift = hth_axpy_shift(scale);
    for (size_t i = 0; i < n; i++) {
        int64_t offset = offsets[i / per_offset];
        int32_t *from = sums + i * FLUSH_OUTPUTS;
        int64_t *to = acc64 + i * FLUSH_OUTPUTS;
        for (int o = 0; o < FLUSH_OUTPUTS; o++)
            to[o] = (int64_t)((uint64_t)to[o] + ((uint64_t)(from[o] - offset) << shift));
    }
    memset(sums, 0, n_out * sizeof *sums);
    memset(offsets, 0, n / per_offset * sizeof *offsets);
}
