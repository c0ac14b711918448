/* A model's description: hyper-parameters from the metadata, and tensors bound by name, with all shapes and types
 * checked. It does not read weights: the engine places them in memory and sets the pointers. */
#ifndef HTH_MODEL_MODEL_H
#define HTH_MODEL_MODEL_H

#include "base/alloc.h"
#include "kernels/sparse_down.h"
#include "kernels/product.h"
#include "model/arch.h"

typedef enum hth_rope_scaling {
    HTH_SCALING_NONE,
    HTH_SCALING_LINEAR,
    HTH_SCALING_YARN,
    HTH_SCALING_LONGROPE, /* by the tables of the file only (Ding et al. 2024) */
} hth_rope_scaling;

/* Rotation of queries and keys. Angle of pair i at position p: p * theta_i with theta_i = base^(-2i / n_rot),
 * scaled as in forward/attention.c (Su et al. 2021, RoFormer; linear: Chen et al. 2023; YaRN: Peng et al. 2023). */
typedef struct hth_rope {
    hth_rope_kind kind;
    uint32_t n_rot; /* rotated dimensions of a head, the others are unchanged; 0: none */
    double base;
    double window_base;    /* unscaled base in layers with a window; 0: as in the other layers */
    uint32_t window_n_rot; /* n_rot in layers with a window */
    hth_rope_scaling scaling;
    double factor;
    uint32_t n_ctx_original; /* YaRN, longrope */
    hth_rope_sections section_rule; /* NONE, BLOCKS or INTERLEAVED */
    uint32_t sections[4];
    double beta_fast, beta_slow; /* YaRN: pairs that turn more often in the original context are not scaled; those that
                                    turn less often are */
    double magnitude;        /* factor of cosine and sine */
    bool window_unscaled;    /* layers with a window rotate without the scaling */
} hth_rope;

/* Limits of values in files. */
enum { HTH_MAX_LAYER = 1024, HTH_MAX_D_FF = 1 << 20, HTH_MAX_EXPERT = 4096 };

typedef struct hth_layer_set {
    uint8_t bits[HTH_MAX_LAYER / 8];
} hth_layer_set;
static inline bool hth_layer_set_has(const hth_layer_set *s, uint32_t i) { return s->bits[i / 8] >> i % 8 & 1; }
static inline void hth_layer_set_add(hth_layer_set *s, uint32_t i) { s->bits[i / 8] |= (uint8_t)(1u << i % 8); }

/* Sizes of latent attention. rank 0: the model has none. */
typedef struct hth_latent_sizes {
    uint32_t q_rank;                  /* 0: queries are computed at once */
    uint32_t rank, d_nope, d_rope;    /* a key has d_nope values from the latent vector, and d_rope rotated ones */
    uint32_t d_value;
} hth_latent_sizes;

/* Sizes of compressed attention (hth_compressed). q_rank 0: the model has none. */
enum { HTH_N_BLOCK_SIZE = 2 };
typedef struct hth_compressed_sizes {
    uint32_t q_rank;
    uint32_t n_group, out_rank;       /* groups of heads, and the rank of each, in the output matrices */
    uint32_t n_tok[HTH_N_BLOCK_SIZE]; /* positions of a block; 0: no layer has such blocks */
} hth_compressed_sizes;

/* Sizes of all recurrent layers. */
typedef struct hth_recurrent_sizes {
    uint32_t d_conv;
    uint32_t n_head, d_state, d_inner; /* all; state spaces: n_head is that of steps, heads or channels */
    uint32_t n_head_key;               /* DeltaNet */
    uint32_t n_group, dt_rank;         /* state spaces; dt_rank: of low steps, 0: there are none */
    bool norms_low;                    /* low steps, B and C */
} hth_recurrent_sizes;

/* Sizes of all layers with experts. */
typedef struct hth_expert_sizes {
    uint32_t n_expert, n_used; /* 0: all layers are dense */
    uint32_t n_group, n_group_used;
    uint32_t d_ff, d_ff_shared; /* neurons of an expert, and of the shared one (0: none) */
    uint32_t n_leading; /* the first layers, which are dense */
    uint32_t step;      /* behind them layer i has experts if (i + 1) mod step = 0 */
    uint32_t n_hashed;  /* the first layers, which choose experts by the token */
    hth_router_score score;
    bool normalise;
    float scale;
    float shared_weight; /* weight of the shared expert */
} hth_expert_sizes;

typedef struct hth_hparams {
    const hth_arch *arch;      /* rules for reading a file; steps read none */
    const char *architecture;  /* general.architecture */
    uint32_t n_layer, d_model, n_vocab;
    uint32_t n_block; /* in the file: the layers, then those that predict further tokens (hth_mtp_input) */
    uint32_t n_ctx_train;
    uint32_t n_position; /* limit of the context: learned positions, or as many keys as an indexer keeps; 0: none */
    /* The largest values over the layers, which may differ. */
    uint32_t d_head; /* width of keys and of values */
    uint32_t d_value;          /* width of values where these are narrower; 0: d_head */
    float value_scale;         /* factor of values; 0: 1 */
    uint32_t n_head, n_head_kv, d_ff; /* d_ff: of dense networks */
    uint32_t d_head_window;    /* d_head of layers with a window */
    uint32_t n_layer_kv;       /* the layers from this one on read keys and values of earlier ones */
    uint32_t d_layer_embd;     /* hth_layer_embedding; 0: none */
    uint32_t rank; /* rank of predictors; 0: none */
    hth_expert_sizes experts;
    hth_recurrent_sizes recurrent;
    hth_latent_sizes latent;
    hth_compressed_sizes compressed;
    uint32_t n_stream;          /* parallel residual streams (hth_hyper_connection); 0: there is one */
    uint32_t n_sinkhorn;
    float stream_eps;
    hth_norm_kind norm;
    float norm_eps;
    uint32_t score_width;
    double score_factor;        /* factor of queries and of keys, for scores only; 0: 1 */
    float score_scale;          /* factor of queries times keys; default: score_factor^2 / sqrt(score_width) */
    float alibi;                /* largest exponent of the slopes by which scores fall with distance; 0: none */
    float temperature_scale;    /* hth_temperature; 0: none */
    uint32_t temperature_length, temperature_offset; /* offset: added to the position */
    float qkv_limit;            /* limit of queries, keys and values; 0: none */
    float embedding_scale, residual_scale, logit_scale; /* factors of embeddings, of blocks' outputs, of logits */
    bool parallel;              /* mixer and network of a layer read the same residual stream */
    bool parallel_mixer;        /* layers have attention beside a recurrent mixer */
    bool dense_residual;        /* layers with experts have a dense network, too; */
    double dense_residual_scale; /* factor of their sum; 0: 1 */
    bool experts_read_before;   /* their input is the residual stream before the mixer */
    bool adds_embedding;        /* the normalised embedding, times layer_output_scale, is added after a layer */
    bool no_pre_norms;          /* mixer and network read the residual stream itself */
    bool norm_bias;             /* norms have weights and biases */
    double post_norm_eps;       /* epsilon of post-norms; 0: that of the others */
    hth_qk_norm qk_norm;
    bool qk_norm_after;         /* after rotation, else before it */
    bool norms_values;          /* values of each head, without weights */
    hth_attn_gate attn_gate;
    bool gate_softplus;         /* attention's gate has a softplus; else a sigmoid */
    uint32_t position_offset;   /* row of learned position 0 */
    float attn_softcap, logit_softcap; /* 0: none */
    hth_rope rope;
    hth_activation activation;
    bool needs_gate;       /* the activation was given by the name of its gated form */
    bool other_activation; /* the caller overrode the file's activation; predictors and thresholds do not match it */
} hth_hparams;

/* n_ctx of a session. asked: that many; 0: as trained, at most 4096; HEARTH_CTX_TRAINED: as trained. */
static inline uint32_t hth_context_for(const hth_hparams *h, uint32_t asked)
{
    enum { MAX_CTX = 4096 };
    if (asked == HEARTH_CTX_TRAINED) return h->n_ctx_train;
    if (asked) return asked;
    return h->n_ctx_train < MAX_CTX ? h->n_ctx_train : MAX_CTX;
}

/* weight NULL: no norm. */
typedef struct hth_norm {
    const float *weight, *bias; /* [n]; bias: NULL if there is none */
    float eps;                  /* 0: the model's */
} hth_norm;

/* Predicts which neurons of a layer may be active before they are computed: those whose score out relu(in f) +
 * bias is not below the threshold (Liu et al. 2023, Deja Vu; PowerInfer). */
enum { HTH_MAX_RANK = 65536 };
typedef struct hth_predictor {
    hth_matrix in;     /* rank rows of d_model; n_row 0: no predictor */
    hth_matrix out;    /* d_ff rows of rank */
    const float *bias; /* [d_ff] or NULL */
    float threshold;
} hth_predictor;

/* Softmax attention over the KV cache. */
typedef struct hth_attention {
    uint32_t n_head, n_head_kv, d_head;
    uint32_t d_value; /* values of v and of columns of o; the cache has zeros behind them; 0: d_head */
    uint32_t
        kv_layer; /* the layer whose keys and values are read: this one, or an earlier one; then k and v are absent */
    uint32_t window;    /* positions that a token attends to, including itself; 0: all */
    uint32_t chunk;     /* a token attends to the positions of its chunk of so many, a multiple of 256; 0: to all */
    hth_matrix q, k, v; /* [n_head * d_head], [n_head_kv * d_head] rows of d_model */
    const float *q_bias, *k_bias, *v_bias;
    bool q_has_gate;         /* q has, for each head, the rows of its queries, then those of its gate (as below) */
    bool values_are_keys;    /* v is absent: values are the products of k */
    hth_norm q_norm, k_norm; /* as the architecture's qk_norm says; weight NULL: none */
    const float *slopes;     /* [n_head] of alibi, or NULL */
    const float *sinks;      /* [n_head] or NULL */
    hth_matrix gate;         /* [n_head * d_head] or [n_head] rows of d_model; its sigmoid, or its softplus, multiplies
                                attention */
    bool rotates;            /* queries and keys */
    bool has_temperature;    /* hth_hparams.temperature_scale */
    hth_matrix o;            /* d_model rows of n_head * d_head */
    const float *o_bias;
} hth_attention;

/* The state that a recurrent mixer keeps per sequence. A step reads one copy and writes another, so that it can be
 * repeated. */
typedef enum hth_state_kind {
    HTH_STATE_STEP,  /* state after all tokens: each step writes a new one */
    HTH_STATE_CHUNK, /* state after the last multiple of HTH_CHUNK tokens, and the tokens since then: a step adds to
                        these, and writes another copy only if it reaches the next multiple */
    HTH_N_STATE,
} hth_state_kind;
enum { HTH_CHUNK = 32 };

/* Latent attention: the cache has one head of keys [rank + d_rope] and of values, the first rank of these and zeros. The
 * output matrix is that of hth_attention; n_head_kv is 1. */
typedef struct hth_latent {
    hth_matrix q_a, q_b;  /* q_rank rows of d_model, n_head * (d_nope + d_rope) rows of q_rank; q_b absent: q_a has the
                             rows of q_b */
    const float *q_norm;  /* [q_rank] */
    hth_matrix kv_a;      /* rank + d_rope rows of d_model */
    const float *kv_norm; /* [rank] */
    hth_matrix k_b, v_b;  /* slices, one for each head: rank rows of d_nope, d_value rows of rank; */
    hth_matrix kv_b;      /* or, in their place, d_nope rows of rank for keys, then d_value for values */
} hth_latent;

/* Attention over the last positions and over blocks of positions (DeepSeek-AI 2026, DeepSeek-V4). Keys are values too,
 * and all heads share one. Values of a block are, in each dimension, a mean of its tokens' values weighted by the
 * softmax of their scores. Where blocks overlap, values and scores have twice the rows, and the first half of a
 * token's is part of the block after its own. The sizes of heads, the window, sinks and the second output matrix are
 * those of hth_attention. */
typedef struct hth_compressed {
    hth_matrix q_a, q_b;       /* q_rank rows of d_model, n_head * d_head rows of q_rank */
    const float *q_norm;       /* [q_rank]; the queries of each head are then normalised without weights */
    hth_matrix kv;             /* d_head rows of d_model */
    const float *kv_norm;      /* [d_head] */
    hth_matrix o_a;            /* slices, one for each group of heads: out_rank rows of its d_head values */
    uint32_t n_tok;            /* positions of a block; 0: the layer has no blocks */
    bool overlaps;
    hth_matrix values, scores; /* d_head rows of d_model, or twice that */
    const float *position;     /* [n_tok][rows] added to scores */
    const float *norm;         /* [d_head] of blocks */
} hth_compressed;

/* Floats of the state of a layer: of the block that is not complete, and of the next one, which overlaps it, the
 * largest score, the sum of weights and the weighted sum of values, for each dimension. */
static inline size_t hth_compressed_state(const hth_compressed *c, size_t d_head)
{
    return c->n_tok == 0 ? 0 : (c->overlaps ? 6 : 3) * d_head;
}

/* How a block reads the streams of the residual stream, and how they are replaced (forward/streams.c). */
enum { HTH_MAX_STREAM = 8 };
typedef struct hth_hyper_connection {
    const float *weight; /* [n][n_stream * d_model]: products with the normed streams; n is (2 + n_stream) * n_stream, or
                            at the head n_stream; NULL: none */
    const float *base;   /* [n] */
    const float *scale;  /* [3] of those for inputs, for the output and for streams; at the head [1] */
    bool is_head;
} hth_hyper_connection;

enum { HTH_MAX_TAP = 64 };
/* A causal convolution of each channel: the sum of taps[j] times the input of d_conv - 1 - j tokens before. */
typedef struct hth_conv {
    uint32_t n_channel, d_conv;
    const float *taps; /* [d_conv][n_channel]; in files [n_channel][d_conv] */
    const float *bias; /* [n_channel] or NULL */
} hth_conv;

/* A gated short convolution (Liquid AI, LFM2): in gives b, c and x, out reads c conv(b x). */
typedef struct hth_short_conv {
    hth_conv conv;  /* d_model channels */
    hth_matrix in;  /* 3 * d_model rows of d_model */
    hth_matrix out; /* d_model rows of d_model */
} hth_short_conv;

/* Gated DeltaNet (Yang et al. 2024): each head has a state S[d][d] of keys and values, S = e^g S + k (beta (v - e^g S
 * k))^T; its output is S^T q / sqrt(d). Several heads share queries and keys. */
typedef struct hth_delta_net {
    uint32_t n_head, n_head_key, d;
    bool key_head_interleaved;         /* head h has keys h mod n_head_key, else h / (n_head / n_head_key) */
    hth_conv conv;           /* applied to queries, keys and values, then SiLU */
    hth_matrix qkv;          /* 2 * n_head_key * d + n_head * d rows of d_model */
    hth_matrix gate;         /* n_head * d rows; its SiLU multiplies the normed outputs */
    hth_matrix beta, decay;  /* n_head rows; decay absent: beta holds, for each head of keys, the rows of beta of its
                                heads, then those of decay */
    const float *a, *dt;     /* [n_head]: g = a softplus(decay + dt) */
    const float *norm;       /* [d] of the outputs of heads */
    hth_matrix out;          /* d_model rows of n_head * d */
} hth_delta_net;

/* Kimi Delta Attention: as gated DeltaNet, but each dimension of keys has a decay of its own, e^(a softplus(decay +
 * dt)); heads share nothing. The sigmoid of the gate multiplies the normed outputs. */
typedef struct hth_kda {
    uint32_t n_head, d;
    hth_conv conv[3];           /* applied to queries, keys and values, n_head * d channels each, then SiLU */
    hth_matrix q, k, v;         /* n_head * d rows of d_model */
    hth_matrix beta;            /* n_head rows of d_model */
    hth_matrix decay_a, decay_b; /* d rows of d_model, n_head * d rows of d */
    hth_matrix gate_a, gate_b;
    const float *a, *dt, *norm; /* [n_head], [n_head * d], [d] */
    hth_matrix out;             /* d_model rows of n_head * d */
} hth_kda;
/* Floats of the inputs of its convolutions in the state, before the states of heads [n_head][d][d]. */
static inline size_t hth_kda_conv_state(const hth_kda *n)
{
    return 3 * (size_t)(n->conv[0].d_conv - 1) * n->n_head * n->d;
}

/* Floats of the state of a head of keys (forward/delta_net.c): keys of a chunk; for each of its heads the state, and
 * corrected values and decays of a chunk. */
static inline size_t hth_delta_net_state(const hth_delta_net *n)
{
    size_t d = n->d, n_shared = n->n_head / n->n_head_key;
    return d * HTH_CHUNK + n_shared * (d * d + d * HTH_CHUNK + HTH_CHUNK);
}

/* Selective state spaces (Gu and Dao 2023, Mamba; Dao and Gu 2024, Mamba-2): n_inner channels with d_state states each
 * (hth_ssm_scan). The channels of a head, or each one, have a step delta = softplus(dt + dt_bias) and rates a. */
typedef struct hth_ssm {
    uint32_t n_inner, d_state;
    uint32_t n_head;         /* 0: rates and steps are of channels */
    uint32_t n_group, dt_rank;
    hth_conv conv;           /* applied to the rows of x, then SiLU */
    hth_matrix gate;         /* n_inner rows of d_model; its SiLU multiplies the outputs; absent: x has for each head the
                                rows of its gate, then its own */
    hth_matrix x;            /* n_inner rows of d_model, and, without b and c, those of B and of C of all groups */
    hth_matrix dt_low, b, c; /* dt_rank, d_state, d_state rows of n_inner, or absent */
    const float *dt_norm, *b_norm, *c_norm; /* [dt_rank], [d_state] or NULL */
    hth_matrix dt;           /* n_head or n_inner rows of dt_rank; without dt_low: of d_model */
    const float *dt_bias;
    const float *a;          /* [n_head] or [d_state][n_inner]; negative */
    const float *d;          /* [n_head] or [n_inner] */
    const float *norm;       /* [n_group][n_inner / n_group] of the outputs after the gate, or NULL */
    hth_matrix out;          /* d_model rows of n_inner */
} hth_ssm;

/* Floats of the states of a layer behind those of its convolution: of each head, or of all channels. */
static inline size_t hth_ssm_state(const hth_ssm *n)
{
    size_t n_part = n->n_head > 0 ? n->n_head : 1;
    return n_part * hth_ssm_state_size(n->n_inner / n_part, n->d_state);
}

/* A dense feed-forward network. */
typedef struct hth_ffn {
    uint32_t d_ff;
    hth_matrix gate, up; /* d_ff rows of d_model; gate may be absent */
    const float *gate_bias, *up_bias;
    bool gate_up_swapped; /* gate and up were swapped when the file was packed */
    hth_matrix down;      /* d_model rows of d_ff; n_row 0: see down_t */
    hth_transposed_down down_t;
    const float *down_bias;
    hth_predictor predictor;
    const float *thresholds; /* [d_ff] or NULL: selector threshold computes neurons whose activation reaches it */
    const float *act_freq;   /* [ceil(d_ff / HTH_ACT_FREQ_BLOCK)] or NULL: share of each block of neurons that is
                                active for a token */
    const hth_gguf_tensor *order; /* [d_ff] original index of each neuron before packing; NULL: none */
    const float *scales;          /* [clusters] down_t.scale_max as the file says; NULL: it does not */
} hth_ffn;

/* Chooses experts for each token. */
typedef struct hth_router {
    const float *weight;      /* [n_expert][d_model] */
    const float *bias;        /* [n_expert] of the logits, or NULL */
    const float *select_bias; /* [n_expert] added to scores when experts are chosen, but not to weights; or NULL */
    uint32_t n_expert, n_used;
    uint32_t n_group, n_group_used; /* experts are chosen from the best groups; 1: all are one group */
    hth_router_score score;
    bool normalise;
    float scale; /* factor of the weights */
    bool apply_router_weight_on_input;         /* weights multiply the inputs of experts, not their outputs */
    const float *expert_scale; /* [n_expert] of the weights, or NULL */
    const float *by_token;     /* [n_vocab][n_used] the experts of each token, in place of the best; NULL: none */
    hth_norm norm;             /* norm of its input, the residual stream before the network; absent: it reads the
                                  network's input */
    bool reads_layer_input;
} hth_router;

/* A mixture of experts: networks of which a router chooses some for each token, and a shared one for all. */
typedef struct hth_experts {
    hth_router router;
    uint32_t d_ff;             /* neurons of each expert */
    hth_transposed_down down_t; /* instead of down: rows of the neurons of all experts */
    hth_matrix gate, up, down; /* rows of all experts, one expert after another; up absent: gate holds the rows of gate
                                  and up of the first expert, then those of the second, ...; gate absent: none has one */
    const float *gate_bias, *up_bias, *down_bias; /* biases of all experts, one after another; NULL: none */
    hth_ffn shared;           /* d_ff 0: none */
    hth_norm norm;            /* norm of the input; absent: hth_layer.ffn_norm */
    bool reads_stream_before; /* the input is the residual stream before the mixer */
    hth_norm post_norm, dense_post_norm; /* HTH_NETWORK_BOTH: of the outputs of both networks, before their sum; or
                                            absent */
    float limit;              /* upper limit of gate, and limit of |up|, before the activation; 0: none */
    float shared_limit;       /* the same of the shared expert */
    float shared_weight;      /* weight of the shared expert, unless shared_gate is set */
    const float *shared_gate; /* [d_model] or NULL: its sigmoid is the weight */
} hth_experts;

/* The matrices of all experts, of which a token uses n_used / n_expert; absent ones too. */
enum { HTH_EXPERT_MATRICES = 4 };
static inline void hth_expert_matrices(const hth_experts *e, const hth_matrix *all[HTH_EXPERT_MATRICES])
{
    all[0] = &e->gate, all[1] = &e->up, all[2] = &e->down, all[3] = &e->down_t.rows;
}

static inline bool hth_experts_have(const hth_experts *e, const hth_matrix *m)
{
    return m == &e->gate || m == &e->up || m == &e->down || m == &e->down_t.rows;
}

/* The network of a layer, which computes each token alone; as hth_mixer_kind. */
typedef enum hth_network_kind {
    HTH_NETWORK_DENSE,
    HTH_NETWORK_EXPERTS,
    HTH_NETWORK_BOTH, /* the sum of both */
    HTH_NETWORK_NONE,
    HTH_N_NETWORK,
} hth_network_kind;

/* A token's own embedding e[d] for a layer (Gemma 3n): the layer adds norm(proj (gelu(gate x) e)) after its network.
 * gate absent: there is none. */
typedef struct hth_layer_embedding {
    hth_matrix gate; /* d rows of d_model */
    hth_matrix proj; /* d_model rows of d */
    hth_norm norm;
} hth_layer_embedding;

static inline bool hth_has_experts(hth_network_kind k)
{
    return k == HTH_NETWORK_EXPERTS || k == HTH_NETWORK_BOTH;
}

/* A layer: a mixer, then a feed-forward network. The output of each is added to the residual stream. One of them may be
 * NONE. */
typedef struct hth_layer {
    hth_mixer_kind mixer;
    hth_mixer_kind parallel_mixer; /* NONE, or another mixer with the same input, whose output is added to that of the first */
    hth_network_kind network;
    hth_norm mixer_norm;      /* [d_model]; absent if ffn_norm serves mixer and network */
    hth_norm mixer_post_norm; /* [d_model] of the mixer's output; absent: none */
    hth_norm ffn_norm;
    hth_norm ffn_post_norm;
    hth_attention attn;         /* HTH_MIXER_ATTENTION, in part _LATENT and _COMPRESSED; else n_head is 0 */
    hth_latent latent;          /* HTH_MIXER_LATENT */
    hth_compressed compressed;  /* HTH_MIXER_COMPRESSED */
    hth_hyper_connection mixer_connection, ffn_connection;
    hth_short_conv short_conv;  /* HTH_MIXER_SHORT_CONV */
    hth_delta_net delta_net;    /* HTH_MIXER_DELTA_NET */
    hth_kda kda;                /* HTH_MIXER_KDA */
    hth_ssm ssm;                /* HTH_MIXER_SSM */
    hth_ffn ffn;         /* DENSE, BOTH; else d_ff is 0 */
    hth_experts experts; /* EXPERTS, BOTH */
    hth_layer_embedding embedding;
    const float *output_scale; /* [1] of the residual stream after the layer, or NULL */
    const float *embedding_scale; /* [1] of the embedding, which is then added to it, or NULL */
    /* Only in files that are packed for storage: neurons of a bundle (0: experts), and the checksums of the units of
     * the layer's matrices (hth_layer_checked_matrices), [2][n], the low half first; NULL: there are none. */
    uint32_t n_bundle_neuron;
    const hth_gguf_tensor *checksums;
    size_t state_sizes[HTH_N_STATE]; /* bytes that the mixer keeps per sequence, beside keys and values; 0: none */
} hth_layer;

static inline bool hth_ffn_is_transposed(const hth_ffn *f) { return f->down_t.rows.n_row > 0; }

/* What a layer divides among devices and the host: experts, or neurons of its dense network if down is transposed. */
static inline bool hth_layer_divides_experts(const hth_layer *l)
{
    return hth_has_experts(l->network) && !hth_ffn_is_transposed(&l->ffn) && l->experts.down_t.rows.n_row == 0;
}
static inline uint32_t hth_layer_n_unit(const hth_layer *l)
{
    return hth_layer_divides_experts(l) ? l->experts.router.n_expert : l->ffn.d_ff;
}

/* The down matrix of a layer whose rows are those of neurons. A layer has one at most; n_row 0: none. */
static inline hth_transposed_down *hth_layer_transposed_down(hth_layer *l)
{
    return hth_ffn_is_transposed(&l->ffn) ? &l->ffn.down_t : &l->experts.down_t;
}

/* The input of a block that predicts a token further (multi-token prediction; DeepSeek-AI 2024, DeepSeek-V3):
 * proj [norm(e), norm(h)], where e is the embedding of the next token, and h the normed output of the last layer
 * for this one, or, where the next token is itself a guess, the block's own. */
typedef struct hth_mtp_input {
    hth_norm embedding_norm, hidden_norm; /* [d_model] */
    hth_matrix proj;                      /* d_model rows of 2 * d_model; n_row 0: the model is no such block */
} hth_mtp_input;

/* One tensor, or some rows of it, and the destination of its weights: exactly one of matrix and vector. */
typedef struct hth_binding {
    const hth_gguf *file; /* the model's file, or a sidecar */
    const hth_gguf_tensor *tensor;
    uint32_t layer; /* n_layer: of none */
    hth_matrix *matrix;
    const float **vector; /* n floats, converted */
    size_t n;
    size_t n_row;          /* the tensor is the transpose of the vector and has n_row rows; 0: it is not */
    uint64_t offset, size; /* range of the tensor in bytes */
    double factor;               /* factor of a vector; 0: 1 */
    bool must_be_nonzero;        /* no entry may be 0 */
    bool must_be_nonneg;      /* no entry may be negative */
    uint32_t n_index;            /* a vector of n_row rows of different integers, each below this; 0: of numbers */
} hth_binding;

typedef struct hth_program hth_program;

typedef struct hth_model {
    const hth_gguf *file;
    const hth_program *program; /* program.h */
    hth_hparams hparams;
    hth_matrix token_embd;    /* n_vocab rows of d_model */
    hth_matrix position_embd; /* learned positions, rows of d_model, or absent */
    hth_norm embedding_norm;  /* norm of the embeddings, or absent */
    hth_mtp_input mtp;
    hth_matrix layer_embd; /* n_vocab rows of n_layer * d_layer_embd, or absent: embeddings for each layer */
    hth_matrix layer_proj;    /* n_layer * d_layer_embd rows of d_model: its product with the embedding is added to them */
    const float *layer_proj_norm; /* [d_layer_embd] of that product */
    float *ones;              /* [largest width] weights of norms without parameters */
    hth_norm output_norm;
    hth_hyper_connection output_connection;
    hth_matrix output;        /* same as token_embd if the head is tied */
    const float *output_bias; /* [n_vocab] or NULL */
    bool tied;
    const float *rank_head; /* [n_class][d_model]: logits of a pair of texts, from the normed output of its last token;
                               the softmax of the first is the pair's score */
    uint32_t n_class;         /* 0: there is none */
    bool down_transposed;             /* dense layers have down_t instead of down */
    bool expert_down_transposed;      /* experts have */
    bool has_predictors;         /* all layers */
    bool predicts_from_residual; /* their input is the input of the FFN's norm, not its output */
    hearth_selector selector;    /* the selector that the file requests; AUTO: none */
    bool has_thresholds;             /* all layers */
    /* [n_rot / 2] or NULL: divisors of the rotation angles in contexts up to the original length, and in longer
     * ones. Equal if the file has one table. */
    const float *rope_factors, *rope_factors_long;
    hth_layer *layers;
    hth_binding *bindings;
    size_t n_binding;
    size_t n_tensor;      /* tensors that are bound, completely or in part */
    bool *used;           /* [hth_gguf_n_tensor(file)] the tensor is bound */
    uint64_t weight_size; /* bytes of all bound tensors */
    hth_arena arena;
} hth_model;

/* The last layer that has a network: the first ones of mixtures may be dense. */
static inline const hth_layer *hth_model_usual_layer(const hth_model *m)
{
    const hth_layer *l = &m->layers[m->hparams.n_layer - 1];
    while (l > m->layers && l->network == HTH_NETWORK_NONE) l--;
    return l;
}
/* The type of most rows that tokens read, of experts if there are some; whether their network is gated. */
static inline hth_type hth_model_row_type(const hth_model *m)
{
    const hth_layer *l = hth_model_usual_layer(m);
    if (!hth_has_experts(l->network)) return l->ffn.up.type;
    return l->experts.up.n_row > 0 ? l->experts.up.type : l->experts.gate.type;
}
static inline bool hth_model_is_gated(const hth_model *m)
{
    const hth_layer *l = hth_model_usual_layer(m);
    return hth_has_experts(l->network) ? l->experts.gate.n_row > 0 : l->ffn.gate.n_row > 0;
}

/* Overrides of the file's metadata by the caller; zeros: none. */
typedef struct hth_model_overrides {
    const char *activation; /* by name, instead of the file's */
    bool allow_unused;      /* a tensor that no part of the network reads is a warning, not an error */
    bool may_lack_tensors;  /* a file of a vocabulary alone is read too */
} hth_model_overrides;

/* Reads and checks metadata and directory. file must outlive the model. */
hearth_status hth_model_open(const hth_gguf *file, const hth_model_overrides *overrides, hth_model **out,
                             hearth_error *err);
void hth_model_close(hth_model *model);

/* Whether the file says that the model is a reranker, and has the head for it. */
bool hth_model_is_reranker(const hth_model *model);

/* Whether the file has a block behind the layers that predicts a token further, of a form that is supported. */
bool hth_model_has_mtp(const hth_model *model);
/* The first such block as a model of one layer. It reads the matrices of `of` where it has none of its own, which
 * must be loaded and outlive it. */
hearth_status hth_model_open_mtp(const hth_model *of, hth_model **out, hearth_error *err);

/* hearth.pack.version of files written by hearth pack. */
enum { HTH_PACK_VERSION = 1 };
/* The command that wrote the file. Such a file may be overwritten. */
#define HTH_KEY_MADE_BY "hearth.made_by"
/* [n_layer] 1 if the layer is gate_up_swapped. */
#define HTH_KEY_GATE_UP_SWAPPED "hearth.pack.up_first"
/* Share of each block of HTH_ACT_FREQ_BLOCK neurons that is active for a token: layers concatenated, [ceil(d_ff /
 * that)] each. */
#define HTH_KEY_ACT_FREQ "hearth.ffn.shares"
enum { HTH_ACT_FREQ_BLOCK = 64 };

/* Checks metadata of the whole file (check_metadata.c): unknown keys of Hearth and other versions of quantised
 * blocks are errors, a wrong general.file_type is a warning. */
hearth_status hth_model_check_metadata(const hth_gguf *file, hearth_error *err);

/* The fingerprint of a model (fingerprint.c): a hash over the names, types and shapes of its tensors and the first
 * and last 4 KiB of each. Sidecars store it. IO, MEMORY. */
hearth_status hth_model_hash(const hth_gguf *file, uint64_t *hash, hearth_error *err);

#define HTH_SELECTOR_NAMES "auto, dense, gate, predictor, threshold"
bool hth_selector_by_name(hth_str name, hearth_selector *selector);
const char *hth_selector_name(hearth_selector selector);

/* ---- files that are packed for storage (bind_storage.c) ---- */

enum { HTH_STORAGE_VERSION = 1, HTH_STORAGE_ALIGNMENT = 4096, HTH_MIN_BUNDLE_SHIFT = 4 };
#define HTH_KEY_STORAGE_VERSION "hearth.storage.version"
#define HTH_KEY_STORAGE_NEURONS "hearth.storage.neurons" /* [n_layer] of a bundle; 0: the layer has experts */

/* log2 of the neurons of a bundle, a run of rows that are read together, of which each has row_size bytes: 16 to 64 KiB,
 * whole pages if such a run has them, and a part of a cluster. in_order: sums want the rows of a cluster in order, so it
 * is one. */
uint32_t hth_bundle_shift(uint64_t row_size, bool in_order);

/* The matrices of a layer that checksums cover, in their order: one for each unit of rows[i] rows of all[i]; the last
 * unit may be shorter. Returns their number. */
enum { HTH_CHECKED_MATRICES = 4 };
size_t hth_layer_checked_matrices(const hth_layer *l, const hth_matrix *all[HTH_CHECKED_MATRICES],
                                  size_t rows[HTH_CHECKED_MATRICES]);

/* Bound weights, and those that a token uses with the selector dense (active.c). */
typedef struct hth_active_weights {
    uint64_t n_weight, n_active; /* active: without the experts that a token does not use */
    uint64_t size, read_size;    /* bytes; read: also without the other rows of embedding tables */
    uint32_t n_layer;            /* with experts */
} hth_active_weights;
hth_active_weights hth_model_count_active(const hth_model *model);
/* Whether every layer has a dense network. */
bool hth_model_is_dense(const hth_model *model);
/* UNSUPPORTED: layers are mixtures of experts, of whose neurons `what` knows nothing, or have no network. */
hearth_status hth_model_check_dense(const hth_model *model, const char *what, hearth_error *err);
/* Reads metadata about sparsity (sparsity.c), after the tensors are bound. */
hearth_status hth_model_read_sparsity(hth_model *model, hearth_error *err);
/* FORMAT: a scale of a layer's transposed down is not finite, so its sums have no bound. */
hearth_status hth_model_check_scales(const hth_model *m, uint32_t i_layer, hearth_error *err);

/* Reads metadata only (hparams.c). per_layer arrays hold n_layer entries. */
typedef struct hth_layer_sizes {
    uint32_t n_head, n_head_kv, d_ff, window;
    uint32_t chunk;
    uint32_t block; /* hth_compressed.n_tok */
    float limit, shared_limit; /* hth_experts */
    bool has_experts, rotates, recurrent, no_mixer, no_network;
} hth_layer_sizes;
hearth_status hth_model_read_hparams(const hth_gguf *file, const hth_model_overrides *overrides, hth_arena *arena,
                                     hth_hparams *hparams, hth_layer_sizes **per_layer, hearth_error *err);
/* The same of the first block behind the layers, which is then the only layer: attention that rotates, and a
 * network. lacking: the key of an array that has no entry for it, and whose other entries differ; "": none. */
enum { HTH_HPARAMS_KEY = 160 };
hearth_status hth_model_read_mtp_hparams(const hth_gguf *file, hth_arena *arena, hth_hparams *hparams,
                                         hth_layer_sizes **size, char lacking[HTH_HPARAMS_KEY], hearth_error *err);

#endif
