/* Passes and positions of panels of floats, for panel_float_LEVEL.h. */
#include "kernels/quant/rows_loop.h"

enum {
    PANEL_TOK = 128, /* tokens that share widened weights; a multiple of a tile */
    N_PASS = 16,
    N_LEVEL = 4, /* levels of the reduction of sixteen partial sums */
};

/* Weights of row group `first`, from position p on in its panel. */
HTH_INLINE const uint8_t *panel_at(const hth_rows *job, size_t first, size_t p, size_t size)
{
    return job->w + first * job->row_size + p * HTH_PANEL_ROW * size;
}

HTH_INLINE size_t pass_length(const hth_rows *job, size_t j)
{
    return (job->n_col + N_PASS - 1 - hth_panel_sum_order(false, j)) / N_PASS;
}
