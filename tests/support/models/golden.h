/* What the golden tests share: one file of ids and true logits, and the same model
 * under every setting that must not matter. */
#ifndef HEARTH_TESTS_SUPPORT_MODELS_GOLDEN_H
#define HEARTH_TESTS_SUPPORT_MODELS_GOLDEN_H

#include "support/engine.h"

/* One golden file: ids, and logits [n][n_vocab] in double precision, rounded once. */
typedef struct golden {
    const char *model;
    int32_t *ids;
    float *truth;
    size_t n, n_truth;
    hearth_selector selector; /* AUTO unless a test sets another one */
} golden;

/* Paths of test data. False, and the case fails, when they are absent. Closed in either case. */
bool golden_open(golden *g, const char *model, const char *ids, const char *truth);
void golden_close(golden *g);

/* Small models of every convention of architectures, by the names of their files: all that tests/data/arch.py made in
 * golden/arch, as made.json says, so that one that is gone is missed. NULL behind the last one. */
const char *golden_arch(size_t i);
size_t golden_n_arch(void);
/* Whether a device computes all of the model's layers. */
bool golden_is_on_device(const char *name);
bool golden_open_arch(golden *g, const char *name);
/* A small llama of a block type; any model of that folder, "mixtral-MXFP4" for example. */
bool golden_open_quant(golden *g, const char *type);
bool golden_open_quant_file(golden *g, const char *name);

/* The logits at the best level, as one prompt, by one thread; freed with free. NULL after a failed check. */
float *golden_logits(const golden *g, hearth_kv_type kv);

/* Every level, thread count, batch and reader gives the bits of expected. */
void golden_same_everywhere(const golden *g, hearth_kv_type kv, const float *expected);
/* A sample of these: every value of every setting with every level, not every pair of
 * values; all of them with HEARTH_LONG. */
void golden_same_sampled(const golden *g, hearth_kv_type kv, const float *expected);
/* The same over two settings of each level. */
void golden_same_on_levels(const golden *g, hearth_kv_type kv, const float *expected);

#endif
