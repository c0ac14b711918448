/* How much a model computes and reads: the multiply-adds of its matrices, by the instructions that
 * they need. Attention's own products and all that is done once per value are left out, as
 * in other programs' figures. */
#ifndef HTH_MEASURE_WORK_H
#define HTH_MEASURE_WORK_H

#include <hearth/hearth.h>

typedef struct hth_op_count {
    uint64_t int8, f32; /* by quantised weights, by floats */
} hth_op_count;

/* Of n_token tokens of a prompt of which the last one wants logits. */
hth_op_count hth_op_count_prompt(const hearth_model *model, uint64_t n_token);

/* Bytes of keys and values that a token reads at a position: its own and all before it,
 * fewer in layers with a window. */
uint64_t hth_op_count_kv_bytes(const hearth_model *model, hearth_kv_type kv, uint64_t position);

#endif
