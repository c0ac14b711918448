/* Families of models: what differs between architectures, as data. Adding one is
 * a row in families.c and a golden file; run/ reads the fields and knows no names. */
#ifndef HTH_MODEL_FAMILY_H
#define HTH_MODEL_FAMILY_H

#include "file/gguf.h"
#include "kernels/kernels.h"

typedef enum hth_rope_kind {
    HTH_ROPE_NEIGHBOURS, /* pairs (2i, 2i + 1) */
    HTH_ROPE_HALVES,     /* pairs (i, i + n_rot / 2) */
} hth_rope_kind;

typedef struct hth_family {
    const char *name; /* value of general.architecture, prefix of its keys */
    hth_rope_kind rope;
    hth_activation activation; /* where the file names none */
    bool gated;                /* that one cannot do without a gate */
    bool rope_freqs;           /* may carry rope_freqs.weight */
} hth_family;

/* NULL when the name is not one of ours. */
const hth_family *hth_family_find(hth_text name);

/* "llama, ...": for messages. */
const char *hth_family_list(void);

/* The value of hearth.ffn.activation, and whether that form cannot do without a
 * gate; false when unknown. */
bool hth_activation_by_name(hth_text name, hth_activation *activation, bool *needs_gate);
const char *hth_activation_name(hth_activation activation);
/* Whether a neuron may give an exact zero. */
bool hth_activation_is_sparse(hth_activation activation);

#endif
