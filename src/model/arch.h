/* Architectures: the differences between models, as data. A new one is a row in arch.c and a golden file. forward/
 * reads the fields and knows no names. */
#ifndef HTH_MODEL_ARCH_H
#define HTH_MODEL_ARCH_H

#include "file/gguf.h"
#include "kernels/kernels.h"

typedef enum hth_rope_kind {
    HTH_ROPE_INTERLEAVED, /* pairs (2i, 2i + 1) */
    HTH_ROPE_NEOX,     /* pairs (i, i + n_rot / 2) */
    HTH_ROPE_NONE,       /* positions are learned, or there are none */
} hth_rope_kind;

/* Tables of divisors of the rotation angles that a file may contain, by tensor name. */
typedef enum hth_rope_factors {
    HTH_FACTORS_NONE,
    HTH_FACTORS_ONE,        /* rope_freqs.weight */
    HTH_FACTORS_BY_CONTEXT, /* rope_factors_short.weight, and _long beyond the original context */
} hth_rope_factors;

typedef enum hth_norm_kind {
    HTH_NORM_RMS,
    HTH_NORM_LAYER, /* subtracts the mean; its bias is required */
} hth_norm_kind;

/* Which biases of matrices a file must contain. The others are used if present. */
typedef enum hth_bias_rule { HTH_BIAS_OPTIONAL, HTH_BIAS_QKV, HTH_BIAS_ALL } hth_bias_rule;

/* Sliding-window layers, which see only the last positions. Layer i slides if period is 0 or i mod period < period
 * - 1. A file may state size and period, or a flag per layer. */
typedef struct hth_swa_pattern {
    bool possible;
    uint32_t size; /* default if the file states none; 0: then no layer slides */
    uint32_t period;
} hth_swa_pattern;

typedef struct hth_arch {
    const char *name; /* value of general.architecture, prefix of its keys */
    hth_rope_kind rope;
    hth_rope_factors factors;
    hth_norm_kind norm;
    hth_bias_rule biases;
    bool fused_gate_up; /* if ffn_gate is absent, ffn_up has the rows of the gate, then those of up */
    hth_activation activation; /* default if the file names none */
    bool gated;                /* that activation requires a gate */
    bool in_powerinfer;        /* PowerInfer files may have this architecture; */
    hth_activation relu_form;  /* its activation in them, whatever the file says */
    bool parallel;             /* attention and FFN in parallel, from attn_norm (and attn_norm_2) */
    bool qk_norm;              /* queries and keys are normalised per head before rotation */
    bool post_norms;           /* the outputs of attention and FFN are normalised before they are added */
    bool scaled_embedding;     /* embeddings are multiplied by sqrt(d_model) */
    uint32_t position_offset;  /* learned positions: row p + offset of position_embd; 0: none */
    hth_swa_pattern swa;
    double window_rope_base;       /* of sliding-window layers, unscaled; 0: as in the other layers */
    double attn_softcap, logit_softcap;   /* default if the file states none; x becomes cap tanh(x / cap); 0: none */
    bool reads_attn_softcap, reads_logit_softcap; /* the file may state them */
    uint32_t wide_scale_layers;    /* models of this many layers divide scores by sqrt(d_model / n_head) */
    double norm_eps;               /* default if the file states none; 0: the file must state it */
} hth_arch;

/* NULL if the name is unknown. */
const hth_arch *hth_arch_find(hth_str name);

/* "llama, ...", truncated to size: for messages. Returns list. */
const char *hth_arch_list(char *list, size_t size);

#define HTH_ACTIVATION_NAMES "swiglu, silu, geglu, gelu, reglu, relu, relu2, drelu"

/* Parses the value of hearth.ffn.activation. needs_gate: that form requires a gate. False if unknown. */
bool hth_activation_by_name(hth_str name, hth_activation *activation, bool *needs_gate);
const char *hth_activation_name(hth_activation activation);
/* True if a neuron may be exactly zero. */
bool hth_activation_is_sparse(hth_activation activation);

#endif
