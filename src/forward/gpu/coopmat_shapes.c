/* Selects the cooperative matrix shape and tile for rows of many tokens (shaders mul_mat_q and mul_mat_q_cm2, and
 * their _acc and _sliced). The device lists its shapes; none can be assumed. Where none is usable, mul_mat_vec_q computes the
 * same from dot products. Called by recorder.c. */
#include "forward/gpu/gpu_int.h"

/* ---- workgroup-shared products (shaders/tiles.glsl) --------------------------------------------------- */

/* 32 rows by 16 tokens, one invocation per row and partial sum: the largest tile whose products of eight blocks
 * use at most 32 KiB of shared memory, the limit of common GPUs. */
enum { LOCAL = 256, TOKENS = 16, ROWS = 1, TILE = LOCAL / 8 * ROWS };

/* Weights multiplied in one step (shaders/tiles.glsl). */
static uint32_t step_of(const hth_quant_desc *desc) { return desc->part == 16 ? 16 : 32; }

/* Bytes of shared memory: weights and inputs of eight blocks; their products, or the final partial sums; the
 * weight table; of slices the inputs of each column. */
static uint32_t shared_bytes(const hth_quant_desc *desc, uint32_t k)
{
    uint32_t step = step_of(desc) < k ? k : step_of(desc), line = 8 * (step + 2);
    uint32_t products = 8 * (TILE * TOKENS + 4), partials = (1 + desc->minima) * 8 * (LOCAL + 1);
    return (TILE + TOKENS) * line + 4 * (products > partials ? products : partials) + 64 + 4 * TOKENS;
}

static bool usable(const hth_coopmat_shape *s)
{
    return s->m > 0 && s->n > 0 && s->k >= 8 && TILE % s->m == 0 && TOKENS % s->n == 0 && 32 % s->k == 0;
}

/* Useful products of one instruction: K beyond a step is zeros. */
static uint32_t useful_products(const hth_coopmat_shape *s, const hth_quant_desc *desc)
{
    return s->m * s->n * (s->k < step_of(desc) ? s->k : step_of(desc));
}

static bool find_tile(const hth_device_info *info, const hth_quant_desc *desc,
                      uint32_t consts[HTH_TILE_N_CONST])
{
    const hth_coopmat_shape *best = NULL;
    for (uint32_t i = 0; i < info->n_shape; i++) {
        const hth_coopmat_shape *s = &info->shapes[i];
        if (!usable(s) || shared_bytes(desc, s->k) > info->max_shared_memory) continue;
        if (!best || useful_products(s, desc) > useful_products(best, desc)) best = s;
    }
    if (!best || info->max_workgroup_size < LOCAL) return false;
    consts[HTH_ROWS_LOCAL] = LOCAL, consts[HTH_ROWS_COLS] = TOKENS, consts[HTH_ROWS_ROWS] = ROWS;
    consts[HTH_ROWS_LANES] = 8;
    consts[HTH_TILE_M] = best->m, consts[HTH_TILE_N] = best->n, consts[HTH_TILE_K] = best->k;
    return true;
}

/* ---- a partial sum per subgroup (shaders/coopmat.glsl) ------------------------------------------------ */

/* Maximum rows and tokens of a tile: 48 KiB do not hold twice as many of either. Maximum sums of an invocation: half of
 * the registers that common GPUs give it. On an H200, blocks of 32, 64 rows by 64 tokens took 0.77 of the time of 64 by
 * 32, and 128 by 32 took 0.95. */
enum { MAX_ROWS = 64, MAX_TOKENS = 64, MAX_SUMS = 128 };

typedef struct tile {
    const hth_coopmat_shape *shape;
    uint32_t split, local, rows, tokens; /* rows: of the whole tile */
} tile;

/* Bytes of shared memory: operands of one step, or one matrix of each subgroup; scales of eight blocks; the weight
 * table; a placeholder for what the quantisation descriptor lacks; of slices the inputs of each column. */
static uint32_t coopmat_bytes(const hth_quant_desc *desc, const tile *t)
{
    uint32_t line = 256 + 16, weights = t->rows * line;
    uint32_t partials = 8 * t->split * t->shape->n * (t->shape->m + 4) * 4;
    return (weights > partials ? weights : partials) + t->tokens * line + 4 * 8 * (t->rows + t->tokens) +
           (desc->part > 0 ? 4 * 8 * t->rows : 16) + 64 + 4 * t->tokens;
}

/* Sums of floats of an invocation, and integers of blocks of 256. */
static uint32_t n_sum(const hth_quant_desc *desc, const tile *t)
{
    return (desc->block == 32 ? 8u : 16u) * t->rows * t->tokens / t->local;
}

/* Weights and inputs are loaded once per tile: more outputs per loaded line are better; on a tie the larger
 * product; then the one with fewer zeros. */
static bool is_better(const tile *a, const tile *b, const hth_quant_desc *desc)
{
    if (!b->shape) return true;
    uint32_t at_once = a->rows * a->tokens * (b->rows + b->tokens);
    uint32_t before = b->rows * b->tokens * (a->rows + a->tokens);
    if (at_once != before) return at_once > before;
    uint32_t work_a = useful_products(a->shape, desc), work_b = useful_products(b->shape, desc);
    return work_a != work_b ? work_a > work_b : a->shape->k < b->shape->k;
}

static bool fits(const hth_device_info *info, const hth_quant_desc *desc, const tile *t)
{
    return t->local <= info->max_workgroup_size && t->rows % t->shape->m == 0 && n_sum(desc, t) <= MAX_SUMS &&
           coopmat_bytes(desc, t) <= info->max_shared_memory;
}

/* The best tile for a shape; on a tie the one with more subgroups, which have fewer sums, then the one with fewer
 * tokens, because the last tile may be partial. A workgroup has eight subgroups, or a multiple of that with at most
 * LOCAL invocations. */
static void try_shape(const hth_device_info *info, const hth_quant_desc *desc, const hth_coopmat_shape *s,
                      uint32_t n_tok, tile *best)
{
    uint32_t eight = 8 * info->subgroup_size,
             max = n_tok < MAX_TOKENS ? (n_tok + s->n - 1) / s->n * s->n : MAX_TOKENS;
    for (uint32_t split = eight < LOCAL ? LOCAL / eight : 1; split > 0; split /= 2) {
        const uint32_t local = split * eight, unit = local / 8;
        for (uint32_t rows = MAX_ROWS / unit * unit; rows > 0; rows -= unit)
            for (uint32_t tokens = split * s->n; tokens <= max; tokens += split * s->n) {
                const tile t = {s, split, local, rows, tokens};
                bool divides = n_tok < MAX_TOKENS || MAX_TOKENS % tokens == 0; /* a prompt's usual batches */
                if (divides && fits(info, desc, &t) && is_better(&t, best, desc)) *best = t;
            }
    }
}

static bool find_coopmat_tile(const hth_device_info *info, const hth_quant_desc *desc, uint32_t n_tok,
                              uint32_t consts[HTH_TILE_N_CONST])
{
    tile best = {0};
    for (uint32_t i = 0; info->subgroup_size > 0 && i < info->n_shape; i++) {
        const hth_coopmat_shape *s = &info->shapes[i];
        /* Columns of M + 4 words begin at multiples of 16 bytes. */
        if (s->m > 0 && s->m % 4 == 0 && s->n > 0 && s->k >= 8 && 32 % s->k == 0)
            try_shape(info, desc, s, n_tok, &best);
    }
    if (!best.shape) return false;
    consts[HTH_ROWS_LOCAL] = best.local, consts[HTH_ROWS_COLS] = best.tokens;
    consts[HTH_ROWS_ROWS] = best.rows / (best.local / 8), consts[HTH_ROWS_LANES] = 8;
    consts[HTH_TILE_M] = best.shape->m, consts[HTH_TILE_N] = best.shape->n;
    consts[HTH_TILE_K] = best.shape->k, consts[HTH_TILE_SPLIT] = best.split;
    return true;
}

/* ---- selection ---------------------------------------------------------------------------------------- */

hth_coopmat_level hth_gpu_choose_tile(const hth_device_info *info, const hth_quant_desc *desc,
                                      hth_coopmat_level most, uint32_t n_tok,
                                      uint32_t consts[HTH_TILE_N_CONST])
{
    if (desc->block == 16) return HTH_COOPMAT_NONE; /* no step of a tile is half a piece */
    if (most >= HTH_COOPMAT_CM2 && find_coopmat_tile(info, desc, n_tok, consts)) return HTH_COOPMAT_CM2;
    if (most >= HTH_COOPMAT_KHR && find_tile(info, desc, consts)) return HTH_COOPMAT_KHR;
    return HTH_COOPMAT_NONE;
}
