/* Functions of the files that build a program: they add values and operations to it one by one. */
#ifndef HTH_MODEL_PROGRAM_INT_H
#define HTH_MODEL_PROGRAM_INT_H

#include "model/program.h"

typedef struct hth_builder {
    hth_model *m;
    const hth_hparams *h;
    hth_program *p;
    uint32_t op_capacity, value_capacity, layer;
    bool no_memory;
    hth_op lost; /* in place of one for which there is no memory */
} hth_builder;

static const hth_view hth_build_none = {HTH_NO_VALUE, 0};
static inline bool hth_build_is_none(hth_view v) { return v.value == HTH_NO_VALUE; }
static inline hth_view hth_build_behind(hth_view v, size_t n)
{
    return (hth_view){v.value, v.at + (uint32_t)n};
}
static inline bool hth_build_is_bound(const hth_norm *norm) { return norm->weight != NULL; }

/* ---- program_ops.c ------------------------------------------------------------------------------------- */

hth_view hth_build_value(hth_builder *b, hth_element element, hth_row_domain domain, size_t width);
hth_view hth_build_floats(hth_builder *b, size_t width);
/* The next operation, without inputs and outputs. It stays in place until the one after it. */
hth_op *hth_build_op(hth_builder *b, hth_op_kind kind);

/* The destination of a block's result: it is added to a value, or written to a value of its own. */
typedef struct hth_build_target {
    hth_view to;
    bool adds;
} hth_build_target;
/* Scratch memory for a result of d_model values that is added. */
hth_view hth_build_scratch(hth_builder *b, hth_build_target to);
void hth_build_set_target(hth_op *op, hth_build_target to, hth_view scratch);

/* y = the model's norm of d_model values. */
void hth_build_norm(hth_builder *b, const hth_norm *norm, hth_view x, hth_view y);
/* The same to a value of its own; x itself where there is no such norm. */
hth_view hth_build_normed(hth_builder *b, const hth_norm *norm, hth_view x);
void hth_build_norm_in_place(hth_builder *b, const hth_norm *norm, hth_view x);
/* RMS norms of groups, and of one group, in place. */
void hth_build_norm_groups(hth_builder *b, const float *const *weight, bool own, size_t n_group, size_t width,
                           float inv_n, hth_view x);
void hth_build_norm_whole(hth_builder *b, const float *const *weight, size_t width, hth_view x);

/* A product with x, to which hth_build_also adds matrices; those that are absent are left out. */
hth_op *hth_build_product(hth_builder *b, hth_view x);
void hth_build_also(hth_op *op, const hth_matrix *m, const float *const *bias, hth_view y);
void hth_build_multiply(hth_builder *b, const hth_matrix *m, hth_view x, hth_view y);
/* A block's last matrix. */
void hth_build_multiply_to(hth_builder *b, const hth_matrix *m, const float *const *bias, hth_view x,
                           hth_build_target to);

/* to = to + x; y = x times a factor, or by: one value of a vector; out = f(x) y (hth_op_mul). */
void hth_build_add(hth_builder *b, hth_view x, hth_view to, size_t n);
void hth_build_scale(hth_builder *b, hth_view x, hth_view y, size_t n, float factor, const float *const *by);
void hth_build_mul(hth_builder *b, hth_mul_form form, hth_view x, hth_view y, hth_view out, size_t n,
                   size_t by_head);
/* A copy from x to y, and the parts that it copies (hth_copy_part). */
hth_op *hth_build_copy(hth_builder *b, hth_view x, hth_view y);
void hth_build_copy_part(hth_op *op, uint32_t i_out, size_t count, size_t n, size_t from, size_t from_step,
                         size_t to, size_t to_step);

/* ---- program_mixers.c, program_memory.c ---------------------------------------------------------------- */

/* n: the normed input. */
void hth_build_mixer(hth_builder *b, hth_mixer_kind kind, const hth_layer *l, hth_view n,
                     hth_build_target to);
/* Finds when each value needs its memory, and gives it a place. MEMORY: false. */
bool hth_build_place_values(hth_program *p);

#endif
