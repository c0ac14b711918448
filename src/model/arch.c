/* The table of architectures, and the names of activations. The conventions are those of the models' publishers as
 * their GGUF converters write them. */
#include "model/arch.h"

#include <stdio.h>
#include <string.h>

/* A gated network with SiLU, and the rotation. */
#define ADJACENT .rope = HTH_ROPE_INTERLEAVED, .activation = HTH_ACTIVATION_SILU, .gated = true
#define HALVES .rope = HTH_ROPE_NEOX, .activation = HTH_ACTIVATION_SILU, .gated = true
#define UNROTATED .rope = HTH_ROPE_NONE, .activation = HTH_ACTIVATION_SILU, .gated = true
/* A network without a gate, layer norms, and the rotation. */
#define PLAIN(ROPE, ACTIVATION) .rope = (ROPE), .activation = (ACTIVATION), .norm = HTH_NORM_LAYER
#define GRANITE                                                                                                       \
    ADJACENT, .factors = HTH_FACTORS_ONE, .reads_scales = true, .divides_logits = true,                                \
    .experts = {.score = HTH_SCORE_SOFTMAX, .normalise = true, .width = HTH_WIDTH_DENSE, .shared = HTH_SHARED_OR_NONE}
/* The experts of Qwen, and of models that followed them. */
#define SHARE_EXPERTS .score = HTH_SCORE_SOFTMAX, .width = HTH_WIDTH_KEY_OR_SHARE, .required = true

/* Latent attention, and experts (DeepSeek-V2). SCORE: where the file has no expert_gating_func. */
#define DEEPSEEK(SCORE)                                                                                               \
    ADJACENT, .latent = true, .reads_yarn_log = true, .yarn_log_of_scores = true,                                      \
              .temperature = HTH_TEMPERATURE_BY_KEY,                                                                   \
              .experts = {.score = (SCORE), .reads_score = true, .reads_normalise = true, .reads_scale = true,         \
                          .width = HTH_WIDTH_KEY, .select_bias = true, .shared = HTH_SHARED_COUNT,                     \
                          .reads_leading = true}
#define INDEXER                                                                                                       \
    .indexer = true, .ignored = "indexer.attn_q_b.weight indexer.attn_k.weight indexer.proj.weight "                   \
                                "indexer.k_norm.weight indexer.k_norm.bias "
/* Layers of gated DeltaNet, and of gated attention (Qwen3-Next). */
#define QWEN_HYBRID                                                                                                   \
    HALVES, .ffn_norm = "post_attention_norm", .qk_norm = HTH_QK_NORM_HEAD, .attn_gate = HTH_ATTN_GATE_IN_Q,           \
            .recurrent.mixer = HTH_MIXER_DELTA_NET
/* Layers of short convolutions, and of attention. */
#define LIQUID                                                                                                        \
    HALVES, .qk_norm = HTH_QK_NORM_HEAD, .output_norm = "token_embd_norm",                                             \
            .recurrent = {.mixer = HTH_MIXER_SHORT_CONV, .without_kv_heads = true}

/* State spaces alone, without networks (Mamba). */
#define MAMBA(FORM)                                                                                                   \
    UNROTATED, .layers = HTH_LAYERS_MIXER, .recurrent = {.mixer = HTH_MIXER_SSM, .all = true, .ssm = (FORM),           \
                                                         .reads_low_norm = (FORM) == HTH_SSM_CHANNELS}
/* Layers of state spaces, those without heads of keys and values, and of attention. */
#define SSM_HYBRID(FORM) .mixer = HTH_MIXER_SSM, .without_kv_heads = true, .ssm = (FORM)
/* Each layer is one of a state space, attention and a network (Nemotron-H). */
#define NEMOTRON_H                                                                                                    \
    .rope = HTH_ROPE_NONE, .activation = HTH_ACTIVATION_RELU2, .reads_either_eps = true, .layers = HTH_LAYERS_EITHER,  \
    .recurrent = {SSM_HYBRID(HTH_SSM_HEADS)}, .refused = {{"moe_latent_size", 0.0}},                                   \
    .experts = {.score = HTH_SCORE_SIGMOID, .reads_normalise = true, .reads_scale = true,                              \
                .width = HTH_WIDTH_KEY_OR_SHARE, .select_bias = true, .shared = HTH_SHARED_OR_NONE}

/* By family: rows after the first of a family differ from it as they say. */
static const hth_arch archs[] = {
    {.name = "llama",
     ADJACENT,
     .factors = HTH_FACTORS_ONE,
     .in_powerinfer = true,
     .relu_form = HTH_ACTIVATION_RELU,
     .experts = {.score = HTH_SCORE_SOFTMAX, .normalise = true, .width = HTH_WIDTH_DENSE}},
    {.name = "bamboo",
     .rope = HTH_ROPE_INTERLEAVED,
     .factors = HTH_FACTORS_ONE,
     .in_powerinfer = true,
     .relu_form = HTH_ACTIVATION_DRELU,
     .activation = HTH_ACTIVATION_DRELU,
     .gated = true},
    {.name = "mistral3",
     ADJACENT,
     .factors = HTH_FACTORS_ONE,
     .temperature = HTH_TEMPERATURE_BY_ORIGINAL,
     .reads_yarn_log = true,
     .experts = {.score = HTH_SCORE_SOFTMAX, .normalise = true, .width = HTH_WIDTH_DENSE}},
    {.name = "arcee", .rope = HTH_ROPE_INTERLEAVED, .factors = HTH_FACTORS_ONE, .activation = HTH_ACTIVATION_RELU2},
    {.name = "deci", ADJACENT, .factors = HTH_FACTORS_ONE},
    {.name = "nanbeige", ADJACENT, .factors = HTH_FACTORS_ONE, .refused = {{"num_loops", 1.0}}},
    {.name = "xverse", ADJACENT},
    {.name = "internlm2", ADJACENT},
    {.name = "maincoder", ADJACENT, .qk_norm = HTH_QK_NORM_HEAD, .qk_norm_after = true},
    {.name = "smollm3", ADJACENT, .unrotated_step = 4, .unrotated_phase = 3},
    {.name = "chatglm", ADJACENT, .fused_gate_up = true},
    {.name = "glm4", ADJACENT, .sections = HTH_SECTIONS_DECIDE, .post_norms = true, .fused_gate_up = true},
    {.name = "ernie4_5",
     ADJACENT,
     .ignored = "attn_output.bias ",
     .experts = {.ignored = true}},
    {.name = "ernie4_5-moe",
     ADJACENT,
     .ignored = "attn_output.bias ",
     .experts = {.score = HTH_SCORE_SOFTMAX, .normalise = true, .width = HTH_WIDTH_KEY, .select_bias = true,
                 .shared = HTH_SHARED_OR_NONE, .reads_leading = true, .reads_step = true}},
    {.name = "paddleocr", HALVES, .sections = HTH_SECTIONS_BLOCKS, .experts = {.ignored = true}},
    {.name = "refact",
     UNROTATED,
     .alibi = 8.0,
     .ignored = "attn_output.bias ffn_gate.bias ffn_up.bias ffn_down.bias rope_freqs.weight "},
    {.name = "olmo", ADJACENT, .norm = HTH_NORM_LAYER, .norm_params = HTH_PARAMS_NONE, .clamps_qkv = true},
    {.name = "olmo2",
     HALVES,
     .no_pre_norms = true,
     .post_norms = true,
     .qk_norm = HTH_QK_NORM_ALL,
     .swa = {.possible = true, .shares_base = true, .period = 4, .unscaled = true}},
    {.name = "olmoe",
     HALVES,
     .qk_norm = HTH_QK_NORM_ALL,
     .experts = {.score = HTH_SCORE_SOFTMAX, .width = HTH_WIDTH_DENSE, .required = true}},
    {.name = "granite", GRANITE, .reads_score_scale = true, .reads_finetuned = true},
    {.name = "granitemoe", GRANITE, .reads_score_scale = true},
    {.name = "granite_swa",
     GRANITE,
     .reads_score_scale = true,
     .attn_sinks = true,
     .reads_rope_pattern = true,
     .swa = {.possible = true, .shares_base = true}},
    {.name = "minicpm",
     GRANITE,
     .embedding_scale = 12.0,
     .residual_scale_depth = 1.4,
     .logit_scale_width = 256.0},
    {.name = "qwen", HALVES, .biases = HTH_BIAS_QKV, .ff_halved = true},
    {.name = "qwen2", HALVES, .biases = HTH_BIAS_QKV},
    {.name = "qwen2vl", HALVES, .sections = HTH_SECTIONS_BLOCKS, .norm_eps = 1e-6, .ignored = "output.bias "},
    {.name = "qwen2moe",
     HALVES,
     .biases = HTH_BIAS_QKV,
     .experts = {SHARE_EXPERTS, .shared = HTH_SHARED_OR_DENSE, .shared_gated = true}},
    {.name = "qwen3", HALVES, .qk_norm = HTH_QK_NORM_HEAD},
    {.name = "qwen3vl", HALVES, .sections = HTH_SECTIONS_INTERLEAVED, .qk_norm = HTH_QK_NORM_HEAD},
    {.name = "qwen3moe", HALVES, .qk_norm = HTH_QK_NORM_HEAD, .experts = {SHARE_EXPERTS, .normalise = true}},
    {.name = "qwen3vlmoe",
     HALVES,
     .sections = HTH_SECTIONS_INTERLEAVED,
     .qk_norm = HTH_QK_NORM_HEAD,
     .experts = {SHARE_EXPERTS, .normalise = true}},
    {.name = "qwen3next",
     QWEN_HYBRID,
     .experts = {SHARE_EXPERTS, .normalise = true, .shared = HTH_SHARED_OR_NONE, .shared_gated = true}},
    {.name = "qwen35", QWEN_HYBRID, .sections = HTH_SECTIONS_INTERLEAVED, .recurrent.alternates = true},
    {.name = "qwen35moe",
     QWEN_HYBRID,
     .sections = HTH_SECTIONS_INTERLEAVED,
     .recurrent.alternates = true,
     .experts = {SHARE_EXPERTS, .normalise = true, .shared = HTH_SHARED_OR_NONE, .shared_gated = true}},
    {.name = "lfm2",
     LIQUID,
     .swa = {.possible = true, .shares_base = true}},
    {.name = "lfm2moe",
     LIQUID,
     .experts = {.score = HTH_SCORE_SIGMOID, .reads_score = true, .normalise = true, .width = HTH_WIDTH_KEY,
                 .required = true, .select_bias = true, .reads_leading = true}},
    {.name = "mamba", MAMBA(HTH_SSM_CHANNELS)},
    {.name = "mamba2", MAMBA(HTH_SSM_HEADS)},
    {.name = "falcon-h1",
     HALVES,
     .ignored = "attn_output.bias rope_freqs.weight ",
     .recurrent = {.mixer = HTH_MIXER_SSM, .beside = true, .ssm_norm_optional = true}},
    {.name = "granitehybrid",
     GRANITE,
     .reads_score_scale = true,
     .reads_finetuned = true,
     .recurrent = {SSM_HYBRID(HTH_SSM_HEADS)}},
    {.name = "nemotron_h", NEMOTRON_H},
    {.name = "nemotron_h_moe", NEMOTRON_H},
    {.name = "jamba",
     UNROTATED,
     .experts = {.score = HTH_SCORE_SOFTMAX, .width = HTH_WIDTH_DENSE, .by_tensors = true},
     .recurrent = {SSM_HYBRID(HTH_SSM_CHANNELS), .norms_low = true}},
    {.name = "plamo2",
     HALVES,
     .qk_norm = HTH_QK_NORM_EACH,
     .post_norms = true,
     .fused_gate_up = true,
     .refused = {{"ssm.group_count", 0.0}},
     .recurrent = {SSM_HYBRID(HTH_SSM_LOW_HEADS), .norms_low = true}},
    {.name = "mellum",
     HALVES,
     .qk_norm = HTH_QK_NORM_HEAD,
     .swa = {.possible = true, .shares_base = true, .period = 4, .unscaled = true},
     .experts = {SHARE_EXPERTS, .normalise = true}},
    {.name = "seed_oss", HALVES, .ffn_norm = "post_attention_norm"},
    {.name = "pangu-embedded", HALVES, .ignored = "rope_freqs.weight "},
    {.name = "exaone", HALVES, .factors = HTH_FACTORS_ONE},
    {.name = "exaone4",
     HALVES,
     .factors = HTH_FACTORS_ONE,
     .no_pre_norms = true,
     .post_norms = true,
     .qk_norm = HTH_QK_NORM_HEAD,
     .rotates_windows_only = true,
     .swa = {.possible = true, .shares_base = true, .size = 4096, .period = 4, .n_layer = 64}},
    {.name = "exaone-moe",
     HALVES,
     .factors = HTH_FACTORS_ONE,
     .qk_norm = HTH_QK_NORM_HEAD,
     .rotates_windows_only = true,
     .swa = {.possible = true, .shares_base = true, .period = 4},
     .experts = {.score = HTH_SCORE_SIGMOID, .reads_score = true, .reads_normalise = true, .reads_scale = true,
                 .width = HTH_WIDTH_KEY, .required = true, .select_bias = true, .shared = HTH_SHARED_OR_EXPERT,
                 .reads_leading = true}},
    {.name = "afmoe",
     HALVES,
     .scaled_embedding = true,
     .qk_norm = HTH_QK_NORM_HEAD,
     .post_norms = true,
     .attn_gate = HTH_ATTN_GATE_ELEMENT,
     .unrotated_step = 4,
     .unrotated_phase = 3,
     .swa = {.possible = true, .period = 4},
     .experts = {.score = HTH_SCORE_SIGMOID, .reads_score = true, .reads_normalise = true, .reads_scale = true,
                 .width = HTH_WIDTH_KEY, .required = true, .select_bias = true, .shared = HTH_SHARED_COUNT,
                 .reads_leading = true}},
    {.name = "hy_v3",
     HALVES,
     .qk_norm = HTH_QK_NORM_HEAD,
     .ignored = "ffn_gate.weight ffn_up.weight ffn_down.weight ",
     .experts = {.score = HTH_SCORE_SIGMOID, .reads_score = true, .reads_normalise = true, .reads_scale = true,
                 .width = HTH_WIDTH_KEY_OR_SHARE, .required = true, .select_bias = true,
                 .by_tensors = true, .shared = HTH_SHARED_OR_EXPERT}},
    {.name = "spark2_5",
     .rope = HTH_ROPE_NEOX,
     .attn_gate = HTH_ATTN_GATE_HEAD,
     .swa = {.possible = true},
     .activation = HTH_ACTIVATION_GELU,
     .gated = true},
    {.name = "muse-glimmer",
     ADJACENT,
     .embedding_norm = HTH_EMBEDDING_NORM_PLAIN,
     .qk_norm = HTH_QK_NORM_HEAD,
     .post_norms = true,
     .post_norm_eps = 1e-8,
     .attn_gate = HTH_ATTN_GATE_ELEMENT,
     .rotates_windows_only = true,
     .swa = {.possible = true, .period = 4},
     .multiplies_logits = true,
     .reads_logit_softcap = true,
     .logit_softcap = 30.0},
    {.name = "hunyuan-dense",
     HALVES,
     .sections = HTH_SECTIONS_DECIDE,
     .reads_rope_alpha = true,
     .qk_norm = HTH_QK_NORM_HEAD,
     .qk_norm_after = true,
     .experts = {.ignored = true}},
    {.name = "hunyuan_vl",
     HALVES,
     .sections = HTH_SECTIONS_DECIDE,
     .reads_rope_alpha = true,
     .qk_norm = HTH_QK_NORM_HEAD,
     .qk_norm_after = true,
     .experts = {.ignored = true}},
    {.name = "hunyuan-moe",
     HALVES,
     .qk_norm = HTH_QK_NORM_HEAD,
     .qk_norm_after = true,
     .experts = {.score = HTH_SCORE_SOFTMAX, .normalise = true, .width = HTH_WIDTH_DENSE, .required = true,
                 .shared = HTH_SHARED_OR_DENSE}},
    {.name = "dots1",
     HALVES,
     .qk_norm = HTH_QK_NORM_HEAD,
     .experts = {.score = HTH_SCORE_SIGMOID, .reads_score = true, .reads_normalise = true, .reads_scale = true,
                 .width = HTH_WIDTH_KEY, .required = true, .select_bias = true, .shared = HTH_SHARED_COUNT,
                 .reads_leading = true}},
    {.name = "bailingmoe",
     ADJACENT,
     .experts = {.score = HTH_SCORE_SOFTMAX, .reads_normalise = true, .reads_scale = true, .width = HTH_WIDTH_KEY,
                 .required = true, .shared = HTH_SHARED_COUNT}},
    {.name = "bailingmoe2",
     HALVES,
     .qk_norm = HTH_QK_NORM_HEAD,
     .experts = {.score = HTH_SCORE_SIGMOID, .reads_score = true, .reads_normalise = true, .reads_scale = true,
                 .width = HTH_WIDTH_KEY, .required = true, .select_bias = true, .shared = HTH_SHARED_LENGTH_COUNT,
                 .reads_leading = true}},
    {.name = "glm4moe",
     HALVES,
     .sections = HTH_SECTIONS_DECIDE,
     .qk_norm = HTH_QK_NORM_HEAD,
     .qk_norm_optional = true,
     .ffn_norm = "post_attention_norm",
     .experts = {.score = HTH_SCORE_SIGMOID, .reads_score = true, .reads_normalise = true, .reads_scale = true,
                 .width = HTH_WIDTH_KEY_OR_SHARE, .required = true, .select_bias = true, .shared = HTH_SHARED_COUNT,
                 .reads_leading = true}},
    {.name = "minimax-m2",
     HALVES,
     .qk_norm = HTH_QK_NORM_ALL,
     .experts = {.score = HTH_SCORE_SIGMOID, .reads_score = true, .normalise = true, .width = HTH_WIDTH_DENSE,
                 .required = true, .select_bias = true}},
    {.name = "deepseek",
     ADJACENT,
     .experts = {.score = HTH_SCORE_SOFTMAX, .reads_scale = true, .width = HTH_WIDTH_KEY, .required = true,
                 .shared = HTH_SHARED_COUNT, .reads_leading = true}},
    {.name = "gemma4",
     .rope = HTH_ROPE_NEOX,
     .factors = HTH_FACTORS_ONE,
     .activation = HTH_ACTIVATION_GELU,
     .gated = true,
     .qk_norm = HTH_QK_NORM_HEAD,
     .norms_values = true,
     .values_are_keys = true,
     .post_norms = true,
     .scaled_embedding = true,
     .score_scale = 1.0,
     .shares_kv = true,
     .layer_embeddings = true,
     .layer_scale = true,
     .reads_window_head = true,
     .window_rope_base = 10000.0,
     .swa = {.possible = true, .unscaled = true},
     .reads_logit_softcap = true,
     .logit_softcap = 30.0,
     .experts = {.score = HTH_SCORE_SOFTMAX, .normalise = true, .width = HTH_WIDTH_KEY, .by_tensors = true,
                 .beside_dense = true, .router_normed = true}},
    {.name = "deepseek2", DEEPSEEK(HTH_SCORE_SOFTMAX), .yarn_log_apart = true},
    {.name = "mistral4", DEEPSEEK(HTH_SCORE_SOFTMAX)},
    {.name = "deepseek32", DEEPSEEK(HTH_SCORE_SOFTMAX), INDEXER},
    {.name = "glm-dsa", DEEPSEEK(HTH_SCORE_SIGMOID), INDEXER},
    {.name = "deepseek4",
     ADJACENT,
     .compressed = true,
     .indexer = true,
     .swa = {.possible = true, .unscaled = true, .shares_base = true},
     .ignored = "indexer.attn_q_b.weight indexer.proj.weight indexer_compressor_kv.weight "
                "indexer_compressor_gate.weight indexer_compressor_ape.weight indexer_compressor_norm.weight "
                "exp_probs_b_vl.bias ",
     .experts = {.score = HTH_SCORE_SQRT_SOFTPLUS, .reads_score = true, .reads_normalise = true, .reads_scale = true,
                 .width = HTH_WIDTH_KEY, .select_bias = true, .shared = HTH_SHARED_COUNT, .required = true,
                 .reads_hashed = true, .reads_limits = true}},
    {.name = "minimax-m3",
     .rope = HTH_ROPE_NEOX,
     .activation = HTH_ACTIVATION_SWIGLU_OAI,
     .gated = true,
     .qk_norm = HTH_QK_NORM_HEAD,
     .indexer = true,
     .ignored = "indexer.q_proj.weight indexer.k_proj.weight indexer.q_norm.weight indexer.k_norm.weight ",
     .experts = {.score = HTH_SCORE_SIGMOID, .reads_score = true, .reads_normalise = true, .reads_scale = true,
                 .width = HTH_WIDTH_KEY, .select_bias = true, .shared = HTH_SHARED_COUNT, .reads_leading = true}},
    {.name = "kimi-linear",
     UNROTATED,
     .latent = true,
     .recurrent = {.mixer = HTH_MIXER_KDA, .without_kv_heads = true},
     .ignored = "attn_q.bias attn_k.bias attn_v.bias ",
     .experts = {.score = HTH_SCORE_SIGMOID, .reads_score = true, .normalise = true, .reads_scale = true,
                 .width = HTH_WIDTH_KEY, .select_bias = true, .shared = HTH_SHARED_COUNT, .reads_leading = true}},
    {.name = "llama4",
     ADJACENT,
     .factors = HTH_FACTORS_ONE,
     .qk_norm = HTH_QK_NORM_HEAD,
     .qk_norm_after = true,
     .qk_norm_plain = true,
     .unrotated_step = 4,
     .unrotated_phase = 3,
     .temperature = HTH_TEMPERATURE_UNROTATED,
     .swa = {.possible = true, .shares_base = true, .period = 4, .chunk = 8192},
     .experts = {.score = HTH_SCORE_SIGMOID, .width = HTH_WIDTH_KEY, .required = true, .reads_step = true,
                 .weighs_input = true, .shared = HTH_SHARED_OR_EXPERT}},
    {.name = "maple",
     HALVES,
     .qk_norm = HTH_QK_NORM_HEAD,
     .rotates_windows_only = true,
     .swa = {.possible = true, .flagged = true},
     .experts = {.score = HTH_SCORE_SOFTMAX, .normalise = true, .width = HTH_WIDTH_KEY, .required = true,
                 .reads_limits = true}},
    {.name = "smallthinker",
     .rope = HTH_ROPE_NEOX,
     .swa = {.possible = true, .period = 4, .dense_first = true},
     .unrotated_step = 4,
     .unrotated_by_window = true,
     .experts = {.score = HTH_SCORE_SIGMOID, .reads_score = true, .normalise = true, .routes_layer_input = true,
                 .width = HTH_WIDTH_KEY, .required = true},
     .activation = HTH_ACTIVATION_RELU,
     .gated = true},
    {.name = "gpt-oss",
     .rope = HTH_ROPE_NEOX,
     .biases = HTH_BIAS_ALL,
     .swa = {.possible = true, .period = 2},
     .attn_sinks = true,
     .ffn_norm = "post_attention_norm",
     .experts = {.score = HTH_SCORE_SOFTMAX_CHOSEN, .width = HTH_WIDTH_KEY, .required = true, .biased = true},
     .activation = HTH_ACTIVATION_SWIGLU_OAI,
     .gated = true},
    {.name = "gemma",
     .rope = HTH_ROPE_NEOX,
     .scaled_embedding = true,
     .activation = HTH_ACTIVATION_GELU,
     .gated = true},
    /* The 27B models divide scores by another root. No key states it; it follows from their number of layers. */
    {.name = "gemma2",
     .rope = HTH_ROPE_NEOX,
     .post_norms = true,
     .scaled_embedding = true,
     .swa = {.possible = true, .size = 4096, .period = 2},
     .reads_attn_softcap = true,
     .reads_logit_softcap = true,
     .attn_softcap = 50.0,
     .logit_softcap = 30.0,
     .wide_scale_layers = 46,
     .activation = HTH_ACTIVATION_GELU,
     .gated = true},
    {.name = "gemma3",
     .rope = HTH_ROPE_NEOX,
     .qk_norm = HTH_QK_NORM_HEAD,
     .post_norms = true,
     .scaled_embedding = true,
     .swa = {.possible = true, .period = 6, .unscaled = true},
     .window_rope_base = 10000.0,
     .reads_logit_softcap = true,
     .wide_scale_layers = 62,
     .activation = HTH_ACTIVATION_GELU,
     .gated = true},
    /* The file's window applies in all layers, as the publishers' configurations say. llama.cpp of 2026 reads the
     * key and uses no window. */
    {.name = "phi3",
     HALVES,
     .factors = HTH_FACTORS_BY_CONTEXT,
     .fused_gate_up = true,
     .swa = {.possible = true}},
    {.name = "phimoe",
     HALVES,
     .norm_params = HTH_PARAMS_BOTH,
     .factors = HTH_FACTORS_BY_CONTEXT,
     .experts = {.score = HTH_SCORE_SOFTMAX, .normalise = true, .width = HTH_WIDTH_DENSE, .required = true}},
    {.name = "phi2",
     PLAIN(HTH_ROPE_NEOX, HTH_ACTIVATION_GELU),
     .parallel = HTH_PARALLEL_ALWAYS},
    {.name = "plamo3",
     HALVES,
     .qk_norm = HTH_QK_NORM_HEAD,
     .post_norms = true,
     .fused_gate_up = true,
     .swa = {.possible = true, .period = 8, .unscaled = true},
     .window_rope_base = 10000.0},
    {.name = "plamo", HALVES, .whole_head_rotates = true, .parallel = HTH_PARALLEL_ALWAYS},
    {.name = "command-r",
     ADJACENT,
     .norm = HTH_NORM_LAYER,
     .norm_params = HTH_PARAMS_WEIGHT,
     .parallel = HTH_PARALLEL_ALWAYS,
     .qk_norm = HTH_QK_NORM_EACH,
     .qk_norm_optional = true,
     .multiplies_logits = true},
    {.name = "cohere2",
     ADJACENT,
     .norm = HTH_NORM_LAYER,
     .norm_params = HTH_PARAMS_WEIGHT,
     .parallel = HTH_PARALLEL_ALWAYS,
     .rotates_windows_only = true,
     .swa = {.possible = true, .shares_base = true, .period = 4},
     .multiplies_logits = true},
    {.name = "stablelm",
     HALVES,
     .norm = HTH_NORM_LAYER,
     .parallel = HTH_PARALLEL_BY_TENSORS,
     .qk_norm = HTH_QK_NORM_EACH,
     .qk_norm_optional = true},
    {.name = "orion", HALVES, .norm = HTH_NORM_LAYER},
    {.name = "openelm", HALVES, .qk_norm = HTH_QK_NORM_HEAD},
    {.name = "baichuan", ADJACENT, .rope_layers = 32, .alibi = 8.0, .alibi_layers = 40},
    {.name = "cogvlm",
     HALVES,
     .ignored = "rope_freqs.weight vis_attn_qkv.weight vis_attn_output.weight vis_gate.weight vis_up.weight "
                "vis_down.weight ",
     .fixed_rope = true},
    {.name = "dbrx",
     HALVES,
     .norm = HTH_NORM_LAYER,
     .norm_params = HTH_PARAMS_WEIGHT,
     .ffn_norm = "attn_output_norm",
     .clamps_qkv = true,
     .experts = {.score = HTH_SCORE_SOFTMAX, .normalise = true, .width = HTH_WIDTH_DENSE, .required = true}},
    {.name = "jais",
     UNROTATED,
     .norm = HTH_NORM_LAYER,
     .reads_alibi = true,
     .score_by_width = true},
    {.name = "jais2", PLAIN(HTH_ROPE_NEOX, HTH_ACTIVATION_RELU2)},
    {.name = "nemotron", PLAIN(HTH_ROPE_NEOX, HTH_ACTIVATION_RELU2)},
    {.name = "codeshell", PLAIN(HTH_ROPE_NEOX, HTH_ACTIVATION_GELU)},
    {.name = "starcoder2", PLAIN(HTH_ROPE_NEOX, HTH_ACTIVATION_GELU)},
    {.name = "gptneox", PLAIN(HTH_ROPE_NEOX, HTH_ACTIVATION_GELU), .parallel = HTH_PARALLEL_BY_KEY},
    {.name = "pockettts", PLAIN(HTH_ROPE_INTERLEAVED, HTH_ACTIVATION_GELU)},
    {.name = "gpt2", PLAIN(HTH_ROPE_NONE, HTH_ACTIVATION_GELU), .learned_positions = true},
    {.name = "starcoder", PLAIN(HTH_ROPE_NONE, HTH_ACTIVATION_GELU), .learned_positions = true},
    {.name = "bloom", PLAIN(HTH_ROPE_NONE, HTH_ACTIVATION_GELU), .embedding_norm = HTH_EMBEDDING_NORM, .alibi = 8.0},
    {.name = "falcon",
     PLAIN(HTH_ROPE_NEOX, HTH_ACTIVATION_GELU),
     .parallel = HTH_PARALLEL_ALWAYS,
     .in_powerinfer = true,
     .relu_form = HTH_ACTIVATION_RELU},
    {.name = "opt",
     PLAIN(HTH_ROPE_NONE, HTH_ACTIVATION_RELU),
     .norm_eps = 1e-5,
     .biases = HTH_BIAS_ALL,
     .learned_positions = true,
     .position_offset = 2,
     .in_powerinfer = true,
     .relu_form = HTH_ACTIVATION_RELU},
};
enum { N_ARCH = sizeof archs / sizeof *archs };

const hth_arch *hth_arch_find(hth_str name)
{
    for (size_t i = 0; i < N_ARCH; i++)
        if (hth_str_eq(name, archs[i].name)) return &archs[i];
    return NULL;
}

const char *hth_arch_list(char *list, size_t size)
{
    size_t n = 0, i = 0;
    list[0] = '\0';
    for (; i < N_ARCH && n + strlen(archs[i].name) + 40 < size; i++)
        n += (size_t)snprintf(list + n, size - n, "%s%s", i ? ", " : "", archs[i].name);
    if (i < N_ARCH) snprintf(list + n, size - n, " and %d others (docs/models.md)", (int)(N_ARCH - i));
    return list;
}

const char *hth_mixer_name(hth_mixer_kind kind)
{
    static const char *const names[HTH_N_MIXER] = {[HTH_MIXER_ATTENTION] = "attention",
                                                   [HTH_MIXER_LATENT] = "latent",
                                                   [HTH_MIXER_COMPRESSED] = "compressed",
                                                   [HTH_MIXER_SHORT_CONV] = "short_conv",
                                                   [HTH_MIXER_DELTA_NET] = "delta_net",
                                                   [HTH_MIXER_KDA] = "kda",
                                                   [HTH_MIXER_SSM] = "ssm",
                                                   [HTH_MIXER_NONE] = "none"};
    return names[kind];
}

/* Some names are those of gated forms and require a gate tensor. With the other names the tensors decide. */
static const struct {
    const char *name;
    hth_activation activation;
    bool needs_gate;
} activation_names[] = {
    {"swiglu", HTH_ACTIVATION_SILU, false}, {"silu", HTH_ACTIVATION_SILU, false},
    {"geglu", HTH_ACTIVATION_GELU, true},   {"gelu", HTH_ACTIVATION_GELU, false},
    {"reglu", HTH_ACTIVATION_RELU, true},   {"relu", HTH_ACTIVATION_RELU, false},
    {"drelu", HTH_ACTIVATION_DRELU, true},  {"relu2", HTH_ACTIVATION_RELU2, false},
    {"swiglu-oai", HTH_ACTIVATION_SWIGLU_OAI, true},
};

bool hth_activation_by_name(hth_str name, hth_activation *activation, bool *needs_gate)
{
    for (size_t i = 0; i < sizeof activation_names / sizeof *activation_names; i++) {
        if (!hth_str_eq(name, activation_names[i].name)) continue;
        *activation = activation_names[i].activation;
        *needs_gate = activation_names[i].needs_gate;
        return true;
    }
    return false;
}

const char *hth_activation_name(hth_activation activation)
{
    static const char *const names[HTH_N_ACTIVATION] = {"silu", "gelu", "relu", "relu2", "drelu", "swiglu-oai"};
    return names[activation];
}

bool hth_activation_is_sparse(hth_activation activation)
{
    return activation == HTH_ACTIVATION_RELU || activation == HTH_ACTIVATION_RELU2 ||
           activation == HTH_ACTIVATION_DRELU;
}
