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

/* Which vectors of queries and keys are normalised before rotation. */
typedef enum hth_qk_norm {
    HTH_QK_NORM_NONE,
    HTH_QK_NORM_HEAD, /* each head, with weights [d_head] */
    HTH_QK_NORM_ALL,  /* all heads together, with weights [n_head * d_head] */
} hth_qk_norm;

/* How a router makes scores of its logits. 1 to 4: the values of expert_gating_func. */
typedef enum hth_router_score {
    HTH_SCORE_SOFTMAX = 1,
    HTH_SCORE_SIGMOID,
    HTH_SCORE_SOFTMAX_CHOSEN, /* the logits choose; weights are the softmax over the chosen ones */
    HTH_N_SCORE,
} hth_router_score;

/* Mixtures of experts. Defaults for files without the keys expert_weights_norm, expert_weights_scale and
 * expert_gating_func. */
typedef struct hth_expert_rule {
    hth_router_score score;     /* 0: the architecture has no experts */
    bool normalise;             /* the weights of the chosen experts are divided by their sum */
    bool reads_keys;            /* those keys are read */
    bool routes_layer_input;    /* the router reads the residual stream before the mixer; else the normed input of the
                                   network */
    bool d_ff_from_dense;       /* without expert_feed_forward_length: feed_forward_length; else it is required */
    bool d_ff_per_used;         /* in that case divided by expert_used_count */
    bool required;              /* no dense models */
    bool biased;                /* the router and all matrices of experts have biases */
    bool shared;                /* shared experts may exist */
} hth_expert_rule;

/* Which biases of matrices a file must contain. The others are used if present. */
typedef enum hth_bias_rule { HTH_BIAS_OPTIONAL, HTH_BIAS_QKV, HTH_BIAS_ALL } hth_bias_rule;

/* Sliding-window layers, which see only the last positions. Layer i slides if period is 0 or i mod period < period
 * - 1. A file may state size and period, or a flag per layer. */
typedef struct hth_swa_pattern {
    bool possible;
    uint32_t size; /* default if the file states none; 0: then no layer slides */
    uint32_t period;
    bool dense_first; /* the layer without a window is the first of a period, not the last */
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
    hth_qk_norm qk_norm;
    bool attn_sinks;           /* each head has a score without a value */
    bool ffn_norm_after;       /* the norm of the network is called post_attention_norm */
    uint32_t unrotated_step;   /* layers i with i mod step = phase do not rotate, if any layer has a window; 0: all do */
    uint32_t unrotated_phase;
    hth_expert_rule experts;
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
