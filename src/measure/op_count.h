/* Operations and bytes of a model: the multiply-adds of its matrices, by kind of instruction. Attention
 * products and elementwise operations are left out, as in the figures of other programs. */
#ifndef HTH_MEASURE_OP_COUNT_H
#define HTH_MEASURE_OP_COUNT_H

#include <hearth/hearth.h>

typedef struct hth_op_count {
    uint64_t int8, f32; /* with quantised weights, with floats */
} hth_op_count;

/* The operations for n_token tokens of a prompt; logits are computed for the last one only. */
hth_op_count hth_op_count_prompt(const hearth_model *model, uint64_t n_token);

/* Bytes of keys and values that a token at a position reads: its own and all before it; fewer in layers with a
 * window. And bytes of states that it reads, and writes if they are of steps. */
uint64_t hth_op_count_kv_bytes(const hearth_model *model, hearth_kv_type kv, uint64_t position);

#endif
