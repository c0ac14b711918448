/* Which matrix units compute the rows of many tokens (programs mul_mat_q and mul_mat_q_cm2, and their _onto), and
 * in which tiles. A device lists shapes, none can be assumed; where none fits, mul_mat_vec_q does the same from dot
 * products. Called by recorder.c. */
#include "forward/gpu/gpu_int.h"

/* ---- products in common (programs/tiles.glsl) --------------------------------------------------------- */

/* 32 rows by 16 tokens, an invocation for each row and partial sum: the largest tile whose products of eight
 * blocks lie in 32 KiB, which common cards let a workgroup share. */
enum { LOCAL = 256, TOKENS = 16, ROWS = 1, TILE = LOCAL / 8 * ROWS };

/* Weights that a step multiplies at once (programs/tiles.glsl). */
static uint32_t step_of(const hth_quant_desc *desc) { return desc->part == 16 ? 16 : 32; }

/* Bytes that a workgroup shares: weights and inputs of eight blocks, and their products, or what is summed up
 * at the end; the table of weights. */
static uint32_t shared_bytes(const hth_quant_desc *desc, uint32_t k)
{
    uint32_t step = step_of(desc) < k ? k : step_of(desc), line = 8 * (step + 2);
    uint32_t products = 8 * (TILE * TOKENS + 4), partials = (1 + desc->minima) * 8 * (LOCAL + 1);
    return (TILE + TOKENS) * line + 4 * (products > partials ? products : partials) + 64;
}

static bool fits(const hth_coopmat_shape *s)
{
    return s->m > 0 && s->n > 0 && s->k >= 8 && TILE % s->m == 0 && TOKENS % s->n == 0 && 32 % s->k == 0;
}

/* Products of one instruction that are wanted: what K has more than a step is zeros. */
static uint32_t work(const hth_coopmat_shape *s, const hth_quant_desc *desc)
{
    return s->m * s->n * (s->k < step_of(desc) ? s->k : step_of(desc));
}

static bool find_tile(const hth_device_info *info, const hth_quant_desc *desc,
                      uint32_t consts[HTH_TILE_N_CONST])
{
    const hth_coopmat_shape *best = NULL;
    for (uint32_t i = 0; i < info->n_shape; i++) {
        const hth_coopmat_shape *s = &info->shapes[i];
        if (!fits(s) || shared_bytes(desc, s->k) > info->max_shared_memory) continue;
        if (!best || work(s, desc) > work(best, desc)) best = s;
    }
    if (!best || info->max_workgroup_size < LOCAL) return false;
    consts[HTH_ROWS_LOCAL] = LOCAL, consts[HTH_ROWS_COLS] = TOKENS, consts[HTH_ROWS_ROWS] = ROWS;
    consts[HTH_TILE_M] = best->m, consts[HTH_TILE_N] = best->n, consts[HTH_TILE_K] = best->k;
    return true;
}

/* ---- a square for each subgroup (programs/squares.glsl) ----------------------------------------------- */

/* Tiles of at most so many rows and tokens: 32 KiB do not hold twice of either. An invocation has at most so
 * many partial sums (half of what common cards give it registers for). */
enum { MAX_ROWS = 64, MAX_TOKENS = 32, MAX_SUMS = 128 };

typedef struct tile {
    const hth_coopmat_shape *shape;
    uint32_t local, rows, tokens; /* rows: of the tile */
} tile;

/* Bytes that a workgroup shares: what is multiplied in a step, and what belongs to rows and to tokens; the
 * table of weights, and stand-ins for what a form has not. */
static uint32_t coopmat_bytes(const hth_quant_desc *desc, const tile *t)
{
    bool wide = desc->block != 32;
    uint32_t line = 256 + 16, scales = wide ? 1 : 8, sub_scales = desc->part > 0 ? 4 : 0;
    uint32_t of_row = (1 + desc->minima) * (scales + sub_scales);
    uint32_t sums = !desc->minima ? 1 : wide ? desc->block / desc->part : 8;
    return (t->rows + t->tokens) * line + 4 * (t->rows * of_row + t->tokens * (scales + sums)) + 64 + 48;
}

/* Weights and inputs are brought once for a tile: the more outputs to a line, the better; of equal ones the
 * larger product, of equal products the one with fewer zeros. */
static bool is_better(const tile *a, const tile *b, const hth_quant_desc *desc)
{
    if (!b->shape) return true;
    uint32_t at_once = a->rows * a->tokens * (b->rows + b->tokens);
    uint32_t before = b->rows * b->tokens * (a->rows + a->tokens);
    if (at_once != before) return at_once > before;
    uint32_t work_a = work(a->shape, desc), work_b = work(b->shape, desc);
    return work_a != work_b ? work_a > work_b : a->shape->k < b->shape->k;
}

/* Whether the tile's squares are its subgroups, one each. */
static bool is_divided(const hth_device_info *info, const tile *t)
{
    const hth_coopmat_shape *s = t->shape;
    return t->rows % s->m == 0 && t->tokens % s->n == 0 &&
           t->rows / s->m * (t->tokens / s->n) * info->subgroup_size == t->local;
}

/* The best of the tiles that a shape can be cut into; of equal ones the one with fewer tokens, of which the
 * last tile may have less. */
static void try_shape(const hth_device_info *info, const hth_quant_desc *desc, const hth_coopmat_shape *s,
                      uint32_t n_tok, tile *best)
{
    uint32_t max = n_tok < MAX_TOKENS ? (n_tok + s->n - 1) / s->n * s->n : MAX_TOKENS;
    for (uint32_t local = LOCAL; local >= LOCAL / 4; local /= 2)
        for (uint32_t rows = MAX_ROWS; rows > 0; rows -= local / 8) /* which divides it */
            for (uint32_t tokens = s->n; tokens <= max; tokens += s->n) {
                const tile t = {s, local, rows, tokens};
                if (local <= info->max_workgroup_size && is_divided(info, &t) &&
                    coopmat_bytes(desc, &t) <= info->max_shared_memory && is_better(&t, best, desc))
                    *best = t;
            }
}

static bool find_coopmat_tile(const hth_device_info *info, const hth_quant_desc *desc, uint32_t n_tok,
                              uint32_t consts[HTH_TILE_N_CONST])
{
    tile best = {0};
    for (uint32_t i = 0; i < info->n_shape; i++) {
        const hth_coopmat_shape *s = &info->shapes[i];
        bool fits = s->m > 0 && s->n > 0 && s->k >= 8 && 32 % s->k == 0;
        if (fits && 8 * (1 + desc->minima) * s->m * s->n <= MAX_SUMS * info->subgroup_size)
            try_shape(info, desc, s, n_tok, &best);
    }
    if (!best.shape) return false;
    consts[HTH_ROWS_LOCAL] = best.local, consts[HTH_ROWS_COLS] = best.tokens;
    consts[HTH_ROWS_ROWS] = best.rows / (best.local / 8);
    consts[HTH_TILE_M] = best.shape->m, consts[HTH_TILE_N] = best.shape->n,
    consts[HTH_TILE_K] = best.shape->k;
    return true;
}

/* ---- either ------------------------------------------------------------------------------------------- */

hth_coopmat_level hth_gpu_choose_tile(const hth_device_info *info, const hth_quant_desc *desc,
                                      hth_coopmat_level most, uint32_t n_tok,
                                      uint32_t consts[HTH_TILE_N_CONST])
{
    if (most >= HTH_COOPMAT_CM2 && find_coopmat_tile(info, desc, n_tok, consts)) return HTH_COOPMAT_CM2;
    if (most >= HTH_COOPMAT_KHR && find_tile(info, desc, consts)) return HTH_COOPMAT_KHR;
    return HTH_COOPMAT_NONE;
}
