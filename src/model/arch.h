/* Architectures: the differences between models, as data. A new one is a row in arch.c and a golden file. forward/
 * reads the fields and knows no names. */
#ifndef HTH_MODEL_ARCH_H
#define HTH_MODEL_ARCH_H

#include "file/gguf.h"
#include "kernels/kernels.h"

/* The operator that mixes the tokens of a sequence in a layer. A kind has its parameters in hth_layer (model.h), its
 * file in forward/ and its row in a table of forward/step.c. */
typedef enum hth_mixer_kind {
    HTH_MIXER_ATTENTION,
    HTH_MIXER_LATENT, /* attention over latent vectors (MLA) */
    HTH_MIXER_COMPRESSED, /* attention over a window and over blocks of positions */
    HTH_MIXER_SHORT_CONV,
    HTH_MIXER_DELTA_NET,
    HTH_MIXER_KDA,
    HTH_MIXER_SSM,  /* selective state spaces (Mamba) */
    HTH_MIXER_NONE, /* the layer is a network */
    HTH_N_MIXER,
} hth_mixer_kind;
/* "attention", "latent", "compressed", "short_conv", "delta_net", "kda", "ssm", "none" */
const char *hth_mixer_name(hth_mixer_kind kind);

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
    HTH_NORM_LAYER, /* subtracts the mean */
} hth_norm_kind;

/* Parameters of the norms before and after blocks. */
typedef enum hth_norm_params {
    HTH_PARAMS_BY_KIND, /* RMS: a weight; layer norm: a weight and a bias */
    HTH_PARAMS_WEIGHT,
    HTH_PARAMS_BOTH,
    HTH_PARAMS_BIAS_OPTIONAL, /* a weight, and a bias if the file has it */
    HTH_PARAMS_NONE,
} hth_norm_params;

/* Whether mixer and network of a layer read the same residual stream. */
typedef enum hth_parallel_rule {
    HTH_PARALLEL_NEVER,
    HTH_PARALLEL_ALWAYS,     /* from attn_norm, or the mixer from attn_norm_2 */
    HTH_PARALLEL_BY_KEY,     /* use_parallel_residual; each has its norm */
    HTH_PARALLEL_BY_TENSORS, /* if there is no ffn_norm */
} hth_parallel_rule;

/* Text has one position for all sections of a head, except that some pairs have position 0. */
typedef enum hth_rope_sections {
    HTH_SECTIONS_NONE,
    HTH_SECTIONS_BLOCKS,      /* the pairs of the fourth section have position 0 */
    HTH_SECTIONS_INTERLEAVED, /* pair i belongs to section i mod 3, up to three times its size */
    HTH_SECTIONS_DECIDE,      /* BLOCKS and NEOX if the file states sections; else the row's rotation */
} hth_rope_sections;

/* Which vectors of queries and keys are normalised. */
typedef enum hth_qk_norm {
    HTH_QK_NORM_NONE,
    HTH_QK_NORM_HEAD,    /* each head, with weights [d_head] */
    HTH_QK_NORM_EACH,    /* each head, with weights of its own [n_head][d_head]; of the architecture's kind */
    HTH_QK_NORM_FACTOR,  /* each head, without weights; queries are then multiplied by a factor of each head [n_head] */
    HTH_QK_NORM_ALL,     /* all heads together, with weights [n_head * d_head] */
} hth_qk_norm;

/* Queries grow with the position p, by 1 + attention.temperature_scale ln(floor(p / length) + 1). */
typedef enum hth_temperature {
    HTH_TEMPERATURE_NONE,
    HTH_TEMPERATURE_BY_KEY,      /* length is attention.temperature_length */
    HTH_TEMPERATURE_BY_ORIGINAL, /* rope.scaling.original_context_length */
    HTH_TEMPERATURE_UNROTATED,   /* 8192, of p + 1, in layers that do not rotate; without the key the scale is 0.1 */
} hth_temperature;

/* Width of an expert: expert_feed_forward_length, or without it (or 0) an error or feed_forward_length divided by
 * expert_used_count; or always feed_forward_length. */
typedef enum hth_expert_width {
    HTH_WIDTH_KEY,
    HTH_WIDTH_KEY_OR_SHARE,
    HTH_WIDTH_KEY_OR_DENSE, /* without it feed_forward_length */
    HTH_WIDTH_DENSE,
} hth_expert_width;

/* Whether embeddings are normalised: by token_embd_norm, or without parameters. */
typedef enum hth_embedding_norm {
    HTH_EMBEDDING_NORM_NONE,
    HTH_EMBEDDING_NORM,
    HTH_EMBEDDING_NORM_PLAIN,
} hth_embedding_norm;

/* The outputs of heads are multiplied by the sigmoid, or the softplus, of a product of the normed input. */
typedef enum hth_attn_gate {
    HTH_ATTN_GATE_NONE,
    HTH_ATTN_GATE_HEAD,    /* attn_gate has one value for each head */
    HTH_ATTN_GATE_ELEMENT, /* attn_gate has one for each value */
    HTH_ATTN_GATE_BY_SHAPE, /* HEAD or ELEMENT, as attn_gate of the layer has rows */
    HTH_ATTN_GATE_IN_Q,    /* the same, in attn_q: for each head the queries, then the gate */
} hth_attn_gate;

/* How a router makes scores of its logits. 1 to 4: the values of expert_gating_func. */
typedef enum hth_router_score {
    HTH_SCORE_SOFTMAX = 1,
    HTH_SCORE_SIGMOID,
    HTH_SCORE_SOFTMAX_CHOSEN, /* the logits choose; weights are the softmax over the chosen ones */
    HTH_SCORE_SQRT_SOFTPLUS,
    HTH_N_SCORE,
} hth_router_score;

/* Width of the shared expert: none, expert_shared_feed_forward_length (or, if that is 0, feed_forward_length or
 * nothing), or expert_shared_count times that of an expert. */
typedef enum hth_shared_rule {
    HTH_SHARED_NONE,
    HTH_SHARED_OR_DENSE,
    HTH_SHARED_OR_NONE,
    HTH_SHARED_OR_EXPERT, /* without the key: that of an expert */
    HTH_SHARED_COUNT,
    HTH_SHARED_IF_COUNTED,   /* the length, or without it that of expert_shared_count experts; nothing if that is 0 */
    HTH_SHARED_LENGTH_COUNT, /* expert_shared_count times expert_shared_feed_forward_length, or that of an expert */
} hth_shared_rule;

/* Mixtures of experts. Defaults for files without the keys expert_weights_norm, expert_weights_scale and
 * expert_gating_func. */
typedef struct hth_expert_rule {
    hth_router_score score;     /* 0: the architecture has no experts */
    bool normalise;             /* the weights of the chosen experts are divided by their sum */
    bool reads_score, reads_normalise, reads_scale; /* the key of each is read */
    bool routes_layer_input;    /* the router reads the residual stream before the mixer; else the normed input of the
                                   network */
    hth_expert_width width;
    bool required;              /* no dense models */
    bool biased;                /* the router and all matrices of experts have biases */
    bool select_bias;           /* exp_probs_b may exist */
    hth_shared_rule shared;
    bool shared_mean;           /* the mean of the shared expert and the sum of the others is taken, not the sum */
    bool shared_gated;          /* the weight of the shared expert is the sigmoid of ffn_gate_inp_shexp */
    bool by_tensors;            /* layers without a router are dense */
    bool dense_residual;          /* layers with a router have a dense network too */
    bool dense_residual_optional;       /* but for those without its tensors */
    bool dense_residual_normed;         /* then each network has norms of its own */
    bool dense_residual_square;         /* the dense one has d_model neurons */
    double dense_residual_scale;        /* factor of their sum; 0: 1 */
    bool reads_stream_before;   /* experts and router read the residual stream before the mixer, normalised by
                                   ffn_norm_exps */
    bool router_normed;         /* the router reads the residual stream before the network, normalised, times
                                   ffn_gate_inp.scale / sqrt(d_model) */
    bool reads_leading;         /* the first leading_dense_block_count layers are dense */
    bool reads_step;            /* behind them layer i has experts if (i + 1) mod interleave_moe_layer_step = 0 */
    bool apply_router_weight_on_input;          /* hth_router */
    bool down_by_shape;         /* down may be transposed (hth_experts.down_t); not with biases or shared experts */
    bool reads_hashed;          /* the first hash_layer_count layers choose experts by the token */
    bool reads_limits;          /* swiglu_clamp_exp and swiglu_clamp_shexp */
    bool ignored;               /* expert_count means nothing */
} hth_expert_rule;

/* The tensors that make a state space's steps, B and C, and the unit that has one decay rate. */
typedef enum hth_ssm_form {
    HTH_SSM_HEADS,     /* Mamba-2: ssm_in has rows of gates, of x, B and C, and of the steps of heads; each head decays at
                          one rate, and the heads of a group share B and C */
    HTH_SSM_CHANNELS,  /* Mamba: ssm_in has rows of x and of gates; ssm_x makes low steps, B and C of the convolved x, and
                          ssm_dt steps of channels, whose states decay at rates of their own */
    HTH_SSM_LOW_HEADS, /* PLaMo 2: ssm_in has for each head rows of its gate and of x; ssm_x makes B, C and low steps, and
                          ssm_dt steps of heads */
} hth_ssm_form;

/* Which parts the layers have. */
typedef enum hth_layer_rule {
    HTH_LAYERS_FULL,   /* a mixer and a network */
    HTH_LAYERS_MIXER,  /* no network */
    HTH_LAYERS_EITHER, /* a network if their feed_forward_length is not 0, else a mixer; attn_norm is the norm of either */
} hth_layer_rule;

/* Recurrent layers, which have no attention. */
typedef struct hth_recurrent_rule {
    hth_mixer_kind mixer;  /* ATTENTION: there are none */
    bool without_kv_heads; /* they are the layers that have no heads of keys and values; else attention.recurrent_layers
                              says, or full_attention_interval: all but every 4th */
    bool key_head_interleaved;       /* hth_delta_net */
    bool all;              /* all layers are, and counts of heads mean nothing */
    bool parallel_mixer;           /* all layers are, and have attention too: both read the same residual stream */
    hth_ssm_form ssm;
    bool ssm_norm_optional; /* outputs of HTH_SSM_HEADS may have no norm */
    bool norms_low;         /* ssm_dt_norm, ssm_b_norm and ssm_c_norm */
    bool reads_low_norm;    /* ssm.dt_b_c_rms: the same without weights */
} hth_recurrent_rule;

/* Which biases of matrices a file must contain. The others are used if present. */
typedef enum hth_bias_rule { HTH_BIAS_OPTIONAL, HTH_BIAS_QKV, HTH_BIAS_ALL } hth_bias_rule;

/* Sliding-window layers, which see only the last positions. Layer i slides if period is 0 or i mod period < period
 * - 1. A file may state size and period, or a flag per layer. */
typedef struct hth_swa_pattern {
    bool possible; /* the architecture may have such layers */
    bool required; /* the file must state their size */
    bool flagged;  /* and a flag for each layer */
    uint32_t size; /* default if the file states none; 0: then no layer slides */
    uint32_t period;
    bool dense_first; /* the layer without a window is the first of a period, not the last */
    bool unscaled;    /* layers with a window rotate without scaling */
    bool shares_base; /* the key rope.freq_base_swa means nothing */
    uint32_t chunk;   /* windows are chunks of so many positions, whatever the file states: a token sees its chunk */
    uint32_t n_layer; /* only models of this many layers have windows; 0: all */
} hth_swa_pattern;

typedef struct hth_arch {
    const char *name; /* value of general.architecture, prefix of its keys */
    hth_rope_kind rope;
    hth_rope_factors factors;
    hth_norm_kind norm;
    bool rms_if_stated;        /* HTH_NORM_RMS if the file has attention.layer_norm_rms_epsilon */
    hth_bias_rule biases;
    bool fused_gate_up; /* if ffn_gate is absent, ffn_up has the rows of the gate, then those of up */
    hth_activation activation; /* default if the file names none */
    bool gated;                /* that activation requires a gate */
    bool in_powerinfer;        /* PowerInfer files may have this architecture; */
    hth_activation relu_form;  /* its activation in them, whatever the file says */
    hth_norm_params norm_params;
    bool no_pre_norms;         /* mixer and network read the residual stream itself */
    hth_embedding_norm embedding_norm;
    double post_norm_eps;      /* epsilon of post-norms; 0: that of the others */
    const char *ffn_norm;      /* name of the network's norm; NULL: ffn_norm */
    hth_parallel_rule parallel;
    hth_qk_norm qk_norm;
    bool qk_norm_after;        /* after rotation, else before it */
    bool qk_norm_optional;     /* layers may be without */
    bool qk_norm_plain;        /* HEAD without weights, of layers that rotate; models of 128 experts have none */
    bool clamps_qkv;           /* queries, keys and values are limited to attention.clamp_kqv, if it is stated */
    bool attn_sinks;           /* each head has a score without a value */
    bool attn_sinks_optional;  /* in layers that have attn_sinks */
    hth_attn_gate attn_gate;
    bool gate_softplus;
    bool latent;               /* attention is HTH_MIXER_LATENT */
    bool compressed;           /* attention is HTH_MIXER_COMPRESSED, and the residual stream is several */
    bool indexer;              /* attention.indexer.top_k keys are chosen: all, because the context is limited to them */
    bool no_yarn;              /* rope.scaling.type yarn is refused */
    bool reads_yarn_betas;     /* rope.scaling.yarn_beta_fast and yarn_beta_slow */
    double yarn_beta_fast;     /* default of the first; 0: 32 */
    bool checks_yarn_share;    /* rope.scaling.yarn_ext_factor is refused unless it says what the type of scaling does */
    bool reads_yarn_log;       /* rope.scaling.yarn_log_multiplier changes the size of rotated vectors */
    bool yarn_log_of_scores;   /* and multiplies scores; it is written times 0.1 */
    bool yarn_log_apart;       /* the size is left as it is, unless the multiplier is 1 */
    hth_temperature temperature;
    bool reads_rope_pattern;   /* attention.rope_pattern: which layers rotate */
    double score_scale;        /* multiplies scores; 0: as d_head says */
    bool narrow_values;        /* attention.value_length may be below attention.key_length */
    bool reads_value_scale;    /* attention.value_scale, if it is not 0, multiplies values */
    bool norms_values;         /* values of each head are normalised, without weights */
    bool values_are_keys;      /* in a layer without attn_v values are the keys before they are normalised */
    bool reads_window_head;    /* layers with a window have heads of attention.key_length_swa, which rotate by
                                  rope.dimension_count_swa */
    bool reads_window_rotation; /* rope.dimension_count_swa: of layers with a window, whose heads have the usual size */
    bool shares_kv;            /* the last attention.shared_kv_layers layers read keys and values of earlier ones */
    double alibi;              /* without the key attention.max_alibi_bias; 0: none */
    bool reads_alibi;
    bool score_by_width;       /* scores are divided by d_head, not by its square root */
    bool reads_score_scale;    /* attention.scale, if it is not 0, multiplies scores instead */
    double output_scale;       /* default of attention.output_scale, which multiplies scores instead; 0: it is not read */
    hth_rope_sections sections;
    bool reads_rope_alpha;     /* rope.scaling.alpha raises the base */
    bool reads_finetuned;      /* no layer rotates if rope.scaling.finetuned is false */
    bool rotates_windows_only; /* layers without a window do not rotate, if any has one or the file must state a size */
    bool leading_rotate;       /* but for the first leading_dense_block_count layers, which do */
    uint32_t no_rope_layer_step;   /* layers i with i mod step = phase do not rotate; 0: all do */
    uint32_t no_rope_layer_phase;
    bool no_rope_layer_by_window;  /* the two fields above apply only if any layer has a window */
    uint32_t rope_layers;      /* only models of this many layers rotate; 0: all */
    uint32_t alibi_layers;     /* only models of this many layers have alibi; 0: all */
    bool fixed_rope;           /* all of each head rotates by base 10000, whatever the keys */
    bool whole_head_rotates;   /* whatever rope.dimension_count is */
    bool ff_halved;            /* feed_forward_length counts gate and up */
    struct {
        const char *key;
        double neutral;
    } refused[2]; /* keys that ask for what is not supported, unless they have these values */
    const char *ignored;       /* suffixes of tensor names that no logit depends on, each followed by a space */
    hth_expert_rule experts;
    hth_recurrent_rule recurrent;
    hth_layer_rule layers;
    bool ranks;                /* files may have a head that scores pairs of texts (hth_model.rank_head) */
    bool predicts;             /* files may have a block that predicts a token further (hth_mtp_input) */
    const char *output_norm;   /* name of the last norm; NULL: output_norm */
    bool post_norms;           /* the outputs of attention and FFN are normalised before they are added */
    const char *mixer_post_norm, *ffn_post_norm; /* their names; NULL: post_attention_norm and post_ffw_norm, which the
                                                    second may also have */
    bool layer_embeddings;     /* tokens have embeddings for each layer, if embedding_length_per_layer_input is not 0 */
    bool layer_scale;          /* layer_output_scale multiplies the residual stream after a layer, if it exists */
    bool adds_embedding;       /* the embedding, as it was normalised, times layer_output_scale is added after a layer */
    bool scaled_embedding;     /* embeddings are multiplied by sqrt(d_model) */
    bool reads_scales; /* embedding_scale multiplies embeddings, residual_scale the outputs of blocks; 0: by 1 */
    double embedding_scale;    /* the default; 0: 1 */
    double residual_scale_depth; /* the default of residual_scale times sqrt(n_layer); 0: 1 */
    bool multiplies_logits;    /* by logit_scale, if it is stated and not 0 */
    bool divides_logits;       /* by logit_scale */
    double logit_scale;        /* the default; 0: 1 */
    double logit_scale_width;  /* without the key: logits are divided by this / d_model */
    bool learned_positions;    /* row p + position_offset of position_embd */
    bool positions_optional;   /* if the file has the table */
    uint32_t position_offset;
    hth_swa_pattern swa;
    double window_rope_base;       /* unscaled base in sliding-window layers; 0: as in the other layers */
    double attn_softcap, logit_softcap;   /* default if the file states none; x becomes cap tanh(x / cap); 0: none */
    bool reads_attn_softcap, reads_logit_softcap; /* the file may state them */
    uint32_t wide_scale_layers;    /* models of this many layers divide scores by sqrt(d_model / n_head) */
    double norm_eps;               /* default if the file states none; 0: the file must state it */
    bool reads_either_eps;         /* without attention.layer_norm_rms_epsilon, attention.layer_norm_epsilon is read */
} hth_arch;

/* NULL if the name is unknown. */
const hth_arch *hth_arch_find(hth_str name);

/* "llama, ... and 70 others", as many as fit into size: for messages. Returns list. */
const char *hth_arch_list(char *list, size_t size);

#define HTH_ACTIVATION_NAMES "swiglu, silu, geglu, gelu, reglu, relu, relu2, drelu, swiglu-oai"

/* Parses the value of hearth.ffn.activation. needs_gate: that form requires a gate. False if unknown. */
bool hth_activation_by_name(hth_str name, hth_activation *activation, bool *needs_gate);
const char *hth_activation_name(hth_activation activation);
/* True if a neuron may be exactly zero. */
bool hth_activation_is_sparse(hth_activation activation);

#endif
