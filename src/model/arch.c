/* The table of architectures, and the names of activations. The conventions are those of the models' publishers as
 * their GGUF converters write them. */
#include "model/arch.h"

#include <stdio.h>

static const hth_arch archs[] = {
    {.name = "llama",
     .rope = HTH_ROPE_INTERLEAVED,
     .factors = HTH_FACTORS_ONE,
     .in_powerinfer = true,
     .relu_form = HTH_ACTIVATION_RELU,
     .experts = {.score = HTH_SCORE_SOFTMAX, .normalise = true, .d_ff_from_dense = true},
     .activation = HTH_ACTIVATION_SILU,
     .gated = true},
    {.name = "bamboo",
     .rope = HTH_ROPE_INTERLEAVED,
     .factors = HTH_FACTORS_ONE,
     .in_powerinfer = true,
     .relu_form = HTH_ACTIVATION_DRELU,
     .activation = HTH_ACTIVATION_DRELU,
     .gated = true},
    {.name = "qwen2",
     .rope = HTH_ROPE_NEOX,
     .biases = HTH_BIAS_QKV,
     .activation = HTH_ACTIVATION_SILU,
     .gated = true},
    {.name = "qwen2moe",
     .rope = HTH_ROPE_NEOX,
     .biases = HTH_BIAS_QKV,
     .experts = {.score = HTH_SCORE_SOFTMAX, .reads_keys = true, .d_ff_from_dense = true, .d_ff_per_used = true,
                 .required = true, .shared = true},
     .activation = HTH_ACTIVATION_SILU,
     .gated = true},
    {.name = "qwen3",
     .rope = HTH_ROPE_NEOX,
     .qk_norm = HTH_QK_NORM_HEAD,
     .activation = HTH_ACTIVATION_SILU,
     .gated = true},
    {.name = "qwen3moe",
     .rope = HTH_ROPE_NEOX,
     .qk_norm = HTH_QK_NORM_HEAD,
     .experts = {.score = HTH_SCORE_SOFTMAX, .normalise = true, .reads_keys = true, .d_ff_from_dense = true,
                 .d_ff_per_used = true, .required = true},
     .activation = HTH_ACTIVATION_SILU,
     .gated = true},
    {.name = "olmoe",
     .rope = HTH_ROPE_NEOX,
     .qk_norm = HTH_QK_NORM_ALL,
     .experts = {.score = HTH_SCORE_SOFTMAX, .d_ff_from_dense = true, .required = true},
     .activation = HTH_ACTIVATION_SILU,
     .gated = true},
    {.name = "smallthinker",
     .rope = HTH_ROPE_NEOX,
     .swa = {.possible = true, .period = 4, .dense_first = true},
     .unrotated_step = 4,
     .experts = {.score = HTH_SCORE_SIGMOID, .normalise = true, .reads_keys = true, .routes_layer_input = true,
                 .required = true, .d_ff_from_dense = true},
     .activation = HTH_ACTIVATION_RELU,
     .gated = true},
    {.name = "gpt-oss",
     .rope = HTH_ROPE_NEOX,
     .biases = HTH_BIAS_ALL,
     .swa = {.possible = true, .period = 2},
     .attn_sinks = true,
     .ffn_norm_after = true,
     .experts = {.score = HTH_SCORE_SOFTMAX_CHOSEN, .required = true, .biased = true},
     .activation = HTH_ACTIVATION_SWIGLU_OAI,
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
     .swa = {.possible = true, .period = 6},
     .window_rope_base = 10000.0,
     .reads_logit_softcap = true,
     .wide_scale_layers = 62,
     .activation = HTH_ACTIVATION_GELU,
     .gated = true},
    /* The file's window applies in all layers, as the publishers' configurations say. llama.cpp of 2026 reads the
     * key and uses no window. */
    {.name = "phi3",
     .rope = HTH_ROPE_NEOX,
     .factors = HTH_FACTORS_BY_CONTEXT,
     .fused_gate_up = true,
     .swa = {.possible = true},
     .activation = HTH_ACTIVATION_SILU,
     .gated = true},
    {.name = "falcon",
     .rope = HTH_ROPE_NEOX,
     .norm = HTH_NORM_LAYER,
     .parallel = true,
     .in_powerinfer = true,
     .relu_form = HTH_ACTIVATION_RELU,
     .activation = HTH_ACTIVATION_GELU},
    {.name = "opt",
     .rope = HTH_ROPE_NONE,
     .norm = HTH_NORM_LAYER,
     .norm_eps = 1e-5,
     .biases = HTH_BIAS_ALL,
     .position_offset = 2,
     .in_powerinfer = true,
     .relu_form = HTH_ACTIVATION_RELU,
     .activation = HTH_ACTIVATION_RELU},
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
    size_t n = 0;
    list[0] = '\0';
    for (size_t i = 0; i < N_ARCH && n < size; i++)
        n += (size_t)snprintf(list + n, size - n, "%s%s", i ? ", " : "", archs[i].name);
    return list;
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
