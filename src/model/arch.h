/* Families of models: what differs between architectures, as data. Adding one is
 * a row in arch.c and a golden file; run/ reads the fields and knows no names. */
#ifndef HTH_MODEL_FAMILY_H
#define HTH_MODEL_FAMILY_H

#include "file/gguf.h"
#include "kernels/kernels.h"

typedef enum hth_rope_kind {
    HTH_ROPE_INTERLEAVED, /* pairs (2i, 2i + 1) */
    HTH_ROPE_NEOX,     /* pairs (i, i + n_rot / 2) */
    HTH_ROPE_NONE,       /* positions are learned, or there are none */
} hth_rope_kind;

/* Tables of angles' divisors that a file may carry, by the name of their tensor. */
typedef enum hth_rope_factors {
    HTH_FACTORS_NONE,
    HTH_FACTORS_ONE,        /* rope_freqs.weight */
    HTH_FACTORS_BY_CONTEXT, /* rope_factors_short.weight, and _long beyond the original context */
} hth_rope_factors;

typedef enum hth_norm_kind {
    HTH_NORM_RMS,
    HTH_NORM_LAYER, /* mean taken off; its bias is required */
} hth_norm_kind;

/* Which biases of matrices a file must hold; the others are taken where they are. */
typedef enum hth_bias_rule { HTH_BIAS_OPTIONAL, HTH_BIAS_QKV, HTH_BIAS_ALL } hth_bias_rule;

/* Layers that see the last positions only. Layer i slides where period is 0 or
 * i mod period < period - 1; a file may state size and period, or a flag per layer. */
typedef struct hth_swa_pattern {
    bool possible;
    uint32_t size; /* where the file states none; 0: then no layer slides */
    uint32_t period;
} hth_swa_pattern;

typedef struct hth_arch {
    const char *name; /* value of general.architecture, prefix of its keys */
    hth_rope_kind rope;
    hth_rope_factors factors;
    hth_norm_kind norm;
    hth_bias_rule biases;
    bool fused_gate_up; /* ffn_up has the rows of the gate, then those of up, where there is no ffn_gate */
    hth_activation activation; /* where the file names none */
    bool gated;                /* that one cannot do without a gate */
    bool in_powerinfer;        /* files of PowerInfer may hold it, */
    hth_activation relu_form;  /* and then mean this, whatever the file says */
    bool parallel;             /* attention and FFN side by side, from attn_norm (and attn_norm_2) */
    bool qk_norm;              /* queries and keys normalised head by head before rotation */
    bool post_norms;           /* the outputs of attention and FFN normalised before they are added */
    bool scaled_embedding;     /* times sqrt(d_model) */
    uint32_t position_offset;  /* learned positions: row p + offset of position_embd; 0: none */
    hth_swa_pattern swa;
    double window_rope_base;       /* of layers that slide, unscaled; 0: as the others */
    double attn_softcap, logit_softcap;   /* x becomes cap tanh(x / cap); 0: none, if the file states none */
    bool reads_attn_softcap, reads_logit_softcap; /* the file may state them */
    uint32_t wide_scale_layers;    /* with so many layers scores are scaled by sqrt(d_model / n_head) */
    double norm_eps;               /* where the file states none; 0: it must */
} hth_arch;

/* NULL when the name is not one of ours. */
const hth_arch *hth_arch_find(hth_str name);

/* "llama, ...", cut to size: for messages. Returns list. */
const char *hth_arch_list(char *list, size_t size);

#define HTH_ACTIVATION_NAMES "swiglu, silu, geglu, gelu, reglu, relu, relu2, drelu"

/* The value of hearth.ffn.activation, and whether that form cannot do without a
 * gate; false when unknown. */
bool hth_activation_by_name(hth_str name, hth_activation *activation, bool *needs_gate);
const char *hth_activation_name(hth_activation activation);
/* Whether a neuron may give an exact zero. */
bool hth_activation_is_sparse(hth_activation activation);

#endif
