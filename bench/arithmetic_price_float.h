/* Rows of F16 at one level. The including file gives the vector: V, W (its floats),
 * V_ZERO, V_LOAD(p), V_HALF(p), V_FMA, V_ADD, V_SUM(v), and TILE_ROW, the rows that a
 * tile of four tokens keeps in registers. */

enum { AHEAD = 4096 };

HTH_INLINE const uint8_t *row_of(const hth_rows *job, size_t i) { return job->w + i * job->row_size; }

/* Four sums, any order. */
static void decode_four_sums(const hth_rows *job)
{
    for (size_t i = job->first; i < job->end; i++) {
        const uint8_t *row = row_of(job, i);
        V acc[4];
        for (int k = 0; k < 4; k++) acc[k] = V_ZERO;
        for (size_t c = 0; c < job->n_col; c += 4 * W) {
            for (size_t at = 0; at < 8 * W; at += 64) __builtin_prefetch(row + 2 * c + at + AHEAD, 0, 3);
            for (size_t k = 0; k < 4; k++)
                acc[k] = V_FMA(V_HALF(row + 2 * (c + k * W)), V_LOAD(job->act.x + c + k * W), acc[k]);
        }
        job->y[i] = V_SUM(V_ADD(V_ADD(acc[0], acc[1]), V_ADD(acc[2], acc[3])));
    }
}

/* TILE_ROW rows and four tokens in registers, a vector of sums for each output. With
 * sixteen lanes, these are the sums of rule R9. */
static void tile_in_registers(const hth_rows *job)
{
    for (size_t i = job->first; i < job->end; i += TILE_ROW) {
        for (size_t t = 0; t < job->n_tok; t += 4) {
            V acc[TILE_ROW][4];
            for (size_t r = 0; r < TILE_ROW; r++)
                for (size_t k = 0; k < 4; k++) acc[r][k] = V_ZERO;
            for (size_t c = 0; c < job->n_col; c += W) {
                V x[4];
                for (size_t k = 0; k < 4; k++) x[k] = V_LOAD(job->act.x + (t + k) * job->n_col + c);
                for (size_t r = 0; r < TILE_ROW; r++) {
                    V w = V_HALF(row_of(job, i + r) + 2 * c);
                    for (size_t k = 0; k < 4; k++) acc[r][k] = V_FMA(w, x[k], acc[r][k]);
                }
            }
            for (size_t r = 0; r < TILE_ROW; r++)
                for (size_t k = 0; k < 4; k++) job->y[(t + k) * job->y_stride + i + r] = V_SUM(acc[r][k]);
        }
    }
}
