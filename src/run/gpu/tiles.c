/* Which matrix units compute the rows of many tokens (programs tile_q and tile_q_onto), and in which tiles. A
 * device lists shapes, none can be assumed; where none fits, rows_q does the same from dot products. Called
 * by record.c. */
#include "run/gpu/gpu_int.h"

/* 32 rows by 16 tokens, an invocation for each row and partial sum: the largest tile whose products of eight
 * blocks lie in 32 KiB, which common cards let a workgroup share. */
enum { LOCAL = 256, TOKENS = 16, ROWS = 1, TILE = LOCAL / 8 * ROWS };

/* Weights that a step multiplies at once (programs/tiles.glsl). */
static uint32_t step_of(const hth_form *form) { return form->part == 16 ? 16 : 32; }

/* Bytes that a workgroup shares: weights and inputs of eight blocks, and their products, or what is summed up
 * at the end; the table of weights. */
static uint32_t shared_bytes(const hth_form *form, uint32_t k)
{
    uint32_t step = step_of(form) < k ? k : step_of(form), line = 8 * (step + 2);
    uint32_t products = 8 * (TILE * TOKENS + 4), partials = (1 + form->minima) * 8 * (LOCAL + 1);
    return (TILE + TOKENS) * line + 4 * (products > partials ? products : partials) + 64;
}

static bool fits(const hth_matrix_shape *s)
{
    return s->m > 0 && s->n > 0 && s->k >= 8 && TILE % s->m == 0 && TOKENS % s->n == 0 && 32 % s->k == 0;
}

/* Products of one instruction that are wanted: what K has more than a step is zeros. */
static uint32_t work(const hth_matrix_shape *s, const hth_form *form)
{
    return s->m * s->n * (s->k < step_of(form) ? s->k : step_of(form));
}

bool hth_gpu_tile_of(const hth_device_info *info, const hth_form *form, uint32_t consts[HTH_TILE_N_CONST])
{
    const hth_matrix_shape *best = NULL;
    for (uint32_t i = 0; i < info->n_shape; i++) {
        const hth_matrix_shape *s = &info->shapes[i];
        if (!fits(s) || shared_bytes(form, s->k) > info->shared) continue;
        if (!best || work(s, form) > work(best, form)) best = s;
    }
    if (!best || info->local < LOCAL) return false;
    consts[HTH_ROWS_LOCAL] = LOCAL, consts[HTH_ROWS_COLS] = TOKENS, consts[HTH_ROWS_ROWS] = ROWS;
    consts[HTH_TILE_M] = best->m, consts[HTH_TILE_N] = best->n, consts[HTH_TILE_K] = best->k;
    return true;
}
