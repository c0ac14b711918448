/* The programs as functions of C, each beside its kin (calls_vectors.c, calls_rows.c, calls_down.c,
 * calls_attend.c), and what they share. */
#ifndef HTH_RUN_GPU_CALLS_INT_H
#define HTH_RUN_GPU_CALLS_INT_H

#include "base/bits.h"
#include "file/types.h"
#include "run/gpu/calls.h"
#include "run/gpu/planes.h"

hth_program_fn hth_gpu_fill, hth_gpu_norm_round, hth_gpu_activate_round, hth_gpu_norm_add, hth_gpu_soft_cap;
hth_program_fn hth_gpu_rows_q, hth_gpu_rows_q_onto, hth_gpu_rows_f, hth_gpu_rows_f_onto;
hth_program_fn hth_gpu_mark_live, hth_gpu_rows_q_live, hth_gpu_rows_f_live;
hth_program_fn hth_gpu_rope_store, hth_gpu_attend, hth_gpu_attend_join;

hth_program_fn hth_gpu_down_top, hth_gpu_down_q, hth_gpu_down_f, hth_gpu_down_gather;
hth_program_fn hth_gpu_down_join, hth_gpu_down_join_onto;

/* For a few operations on copies, which are half of what tests compute: a sanitizer that checked each of their
 * bytes would take ten times as long. It checks what is copied. */
#define HTH_GPU_UNCHECKED __attribute__((no_sanitize("address", "undefined")))

static inline uint32_t hth_gpu_smaller(uint32_t a, uint64_t b) { return a < b ? a : (uint32_t)b; }

/* Tokens of the step from `first` on, at most so many: those that a grid computes. */
static inline uint32_t hth_gpu_tokens(const hth_program_call *c, uint32_t first, uint64_t most)
{
    uint32_t n_tok = ((const uint32_t *)c->bind[0])[HTH_STEP_N_TOK];
    return first < n_tok ? hth_gpu_smaller(n_tok - first, most) : 0;
}

/* Rounded once, to nearest even: sums of blocks of 256 pass 2^24. */
static inline float hth_gpu_to_float(int32_t i) { return (float)i; }

/* Weight i of a row of n floats in planes. */
static inline float hth_gpu_float_at(hth_type type, const uint8_t *row, size_t n, size_t i)
{
    bool wide = type == HTH_TYPE_F32;
    const uint8_t *word = row + 4 * hth_planes_place_of_word(type, n, wide ? i : i / 2);
    if (wide) return hth_load_f32(word);
    uint16_t half = hth_load_u16(word + i % 2 * 2);
    return type == HTH_TYPE_F16 ? hth_f16_to_f32(half) : hth_bf16_to_f32(half);
}

#endif
