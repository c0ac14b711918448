/* The builder behind tiny_model.h. Used by tests/model, tests/engine and tests/cli. */
#include "support/models/tiny_model.h"

#include "support/test.h"

enum { TYPE_U32 = 4, TYPE_I32 = 5, TYPE_F32 = 6, TYPE_TEXT = 8, TYPE_ARRAY = 9, ALIGNMENT = 32 };

/* ---- keys -------------------------------------------------------------------------------- */

static tiny_key *key_of(tiny_model *m, const char *name, uint32_t type)
{
    uint32_t i = 0;
    while (i < m->n_key && strcmp(m->keys[i].name, name) != 0) i++;
    if (i == m->n_key) m->n_key++;
    if (m->n_key > sizeof m->keys / sizeof *m->keys) abort();
    tiny_key *k = &m->keys[i];
    snprintf(k->name, sizeof k->name, "%s", name);
    k->type = type;
    k->value.n = 0;
    k->gone = false;
    return k;
}

void tiny_set(tiny_model *m, const char *key, uint32_t type, uint64_t value, size_t size)
{
    gguf_word(&key_of(m, key, type)->value, value, size);
}

void tiny_set_u32(tiny_model *m, const char *key, uint32_t value) { tiny_set(m, key, TYPE_U32, value, 4); }

void tiny_set_f32(tiny_model *m, const char *key, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    tiny_set(m, key, TYPE_F32, bits, 4);
}

void tiny_set_text(tiny_model *m, const char *key, const char *value)
{
    gguf_text(&key_of(m, key, TYPE_TEXT)->value, value);
}

static gguf_bytes *array_of(tiny_model *m, const char *key, uint32_t element_type, uint64_t n)
{
    gguf_bytes *b = &key_of(m, key, TYPE_ARRAY)->value;
    gguf_word(b, element_type, 4);
    gguf_word(b, n, 8);
    return b;
}

void tiny_set_array(tiny_model *m, const char *key, const uint32_t *values, uint64_t n)
{
    gguf_bytes *b = array_of(m, key, TYPE_U32, n);
    for (uint64_t i = 0; i < n; i++) gguf_word(b, values[i], 4);
}

void tiny_set_floats(tiny_model *m, const char *key, const float *values, uint64_t n)
{
    gguf_bytes *b = array_of(m, key, TYPE_F32, n);
    for (uint64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        gguf_word(b, bits, 4);
    }
}

void tiny_drop_key(tiny_model *m, const char *key) { key_of(m, key, 0)->gone = true; }

/* <unk> <s> </s>, 256 byte tokens, eight words. */
static void set_vocabulary(tiny_model *m)
{
    static const char *const words[] = {"<unk>", "<s>", "</s>", "\xe2\x96\x81",     "a",
                                        "b",     "c",   "ab",   "\xe2\x96\x81\x61", "bc",
                                        "abc"}; /* \x61: an a after the mark of a space */
    gguf_bytes *b = array_of(m, "tokenizer.ggml.tokens", TYPE_TEXT, TINY_VOCAB);
    for (int i = 0; i < TINY_VOCAB; i++) {
        char byte[8];
        snprintf(byte, sizeof byte, "<0x%02X>", (unsigned)(i - 3) & 255);
        gguf_text(b, i < 3 ? words[i] : i < 259 ? byte : words[i - 256]);
    }
    b = array_of(m, "tokenizer.ggml.scores", TYPE_F32, TINY_VOCAB);
    for (int i = 0; i < TINY_VOCAB; i++) {
        float score = i < 259 ? 0.0f : (float)(258 - i);
        uint32_t bits;
        memcpy(&bits, &score, sizeof bits);
        gguf_word(b, bits, 4);
    }
    b = array_of(m, "tokenizer.ggml.token_type", TYPE_I32, TINY_VOCAB);
    for (uint64_t i = 0; i < TINY_VOCAB; i++) gguf_word(b, i == 0 ? 2 : i < 3 ? 3 : i < 259 ? 6 : 1, 4);
}

static void set_keys(tiny_model *m)
{
    tiny_set_text(m, "general.architecture", "llama");
    tiny_set_u32(m, "llama.block_count", TINY_LAYERS);
    tiny_set_u32(m, "llama.context_length", TINY_CONTEXT);
    tiny_set_u32(m, "llama.embedding_length", TINY_D_MODEL);
    tiny_set_u32(m, "llama.feed_forward_length", TINY_D_FF);
    tiny_set_u32(m, "llama.attention.head_count", TINY_HEADS);
    tiny_set_u32(m, "llama.attention.head_count_kv", TINY_HEADS_KV);
    tiny_set_f32(m, "llama.attention.layer_norm_rms_epsilon", 0.01f);
    tiny_set_text(m, "tokenizer.ggml.model", "llama");
    set_vocabulary(m);
    tiny_set_u32(m, "tokenizer.ggml.bos_token_id", 1);
    tiny_set_u32(m, "tokenizer.ggml.eos_token_id", 2);
    tiny_set(m, "tokenizer.ggml.add_bos_token", 7, 1, 1);
}

/* ---- tensors ------------------------------------------------------------------------------- */

void tiny_add_tensor(tiny_model *m, const char *name, uint32_t type, uint32_t n_dim, uint64_t d0, uint64_t d1)
{
    tiny_tensor *t = &m->tensors[m->n_tensor++];
    if (m->n_tensor > sizeof m->tensors / sizeof *m->tensors) abort();
    *t = (tiny_tensor){.type = type, .n_dim = n_dim, .dim = {d0, d1, 1, 1}};
    snprintf(t->name, sizeof t->name, "%s", name);
}

static void add_layer_tensor(tiny_model *m, int i_layer, const char *name, uint64_t d0, uint64_t d1)
{
    char full[64];
    snprintf(full, sizeof full, "blk.%d.%s.weight", i_layer, name);
    tiny_add_tensor(m, full, 0, d1 ? 2 : 1, d0, d1 ? d1 : 1);
}

static void set_tensors(tiny_model *m)
{
    const uint64_t e = TINY_D_MODEL, f = TINY_D_FF, kv = e / TINY_HEADS * TINY_HEADS_KV;
    tiny_add_tensor(m, "token_embd.weight", 0, 2, e, TINY_VOCAB);
    for (int i = 0; i < TINY_LAYERS; i++) {
        add_layer_tensor(m, i, "attn_norm", e, 0);
        add_layer_tensor(m, i, "attn_q", e, e);
        add_layer_tensor(m, i, "attn_k", e, kv);
        add_layer_tensor(m, i, "attn_v", e, kv);
        add_layer_tensor(m, i, "attn_output", e, e);
        add_layer_tensor(m, i, "ffn_norm", e, 0);
        add_layer_tensor(m, i, "ffn_gate", e, f);
        add_layer_tensor(m, i, "ffn_up", e, f);
        add_layer_tensor(m, i, "ffn_down", f, e);
    }
    tiny_add_tensor(m, "output_norm.weight", 0, 1, e, 1);
    tiny_add_tensor(m, "output.weight", 0, 2, e, TINY_VOCAB);
}

tiny_tensor *tiny_find(tiny_model *m, const char *name)
{
    for (uint32_t i = 0; i < m->n_tensor; i++)
        if (!m->tensors[i].gone && strcmp(m->tensors[i].name, name) == 0) return &m->tensors[i];
    fprintf(stderr, "tiny_find: no tensor %s\n", name);
    abort();
}

void tiny_begin(tiny_model *m)
{
    *m = (tiny_model){0};
    set_keys(m);
    set_tensors(m);
}

tiny_model tiny_new(void)
{
    tiny_model m;
    tiny_begin(&m);
    return m;
}

void tiny_free(tiny_model *m)
{
    for (uint32_t i = 0; i < m->n_key; i++) gguf_free(&m->keys[i].value);
}

/* ---- other architectures ---------------------------------------------------------------------- */

enum {
    HAS_QKV_BIAS = 1, HAS_ALL_BIASES = 2, HAS_NORM_BIAS = 4, HAS_QK_NORM = 8, HAS_POST_NORMS = 16, HAS_ONE_QKV = 32,
    HAS_ONE_GATE_UP = 64, HAS_NO_GATE = 128, HAS_POSITIONS = 256, HAS_ONE_NORM = 512, HAS_OUTPUT_BIAS = 1024,
    HAS_SINKS = 2048, HAS_OTHER_FFN_NORM = 4096, HAS_EMBEDDING_NORM = 8192, HAS_EXPERTS = 1 << 14,
    HAS_EXPERT_BIASES = 1 << 15, HAS_SHARED_EXPERT = 1 << 16, HAS_LEADING_LAYER = 1 << 17, /* a dense one */
    HAS_SHARED_GATE = 1 << 18, HAS_SHORT_CONV = 1 << 19, HAS_DELTA_NET = 1 << 20, /* in place of attention in layer 0 */
    HAS_LATENT = 1 << 21, HAS_SHARED_KV = 1 << 22, /* layer 1 reads the cache of layer 0; layers have embeddings */
    /* State spaces of heads, of channels, of heads with low steps; in layer 0, in place of attention, unless: */
    HAS_SSM = 1 << 23, HAS_SSM_CHANNELS = 1 << 24, HAS_SSM_LOW = 1 << 25,
    HAS_SSM_ALONE = 1 << 26,  /* in all layers, which have no networks */
    HAS_SSM_BESIDE = 1 << 27, /* in all layers, beside attention */
    HAS_PARTS = 1 << 28,      /* layer 0 has no network, and layer 1 no mixer */
    HAS_BLOCKS = 1 << 29,     /* of 4 positions in layer 0, of 128 in layer 1; and streams */
    HAS_WINDOW = 1 << 30,     /* in layer 0 */
};
enum {
    N_EXPERT = 4,
    D_EXPERT = 24,
    N_TAP = 3,
    N_DELTA_HEAD = 4,
    N_DELTA_KEY = 2,
    D_DELTA = 16,
    RANK = 24,
    D_NOPE = 6,
    D_ROPE = 8,
    D_EMBEDDING = 6
};
enum { N_SSM_HEAD = 4, N_SSM_GROUP = 2, SSM_INNER = 76, SSM_STATE = 10, SSM_RANK = 5, SSM_LOW_RANK = 64 };

static const struct {
    const char *name;
    unsigned has;
} kinds[] = {
    {"bamboo", 0},
    {"qwen2", HAS_QKV_BIAS},
    {"qwen3", HAS_QK_NORM},
    {"qwen3vl", HAS_QK_NORM},
    {"mistral3", 0},
    {"nanbeige", 0},
    {"gemma2", HAS_POST_NORMS},
    {"gemma3", HAS_POST_NORMS | HAS_QK_NORM},
    {"phi3", HAS_ONE_QKV | HAS_ONE_GATE_UP},
    {"falcon", HAS_ONE_QKV | HAS_NO_GATE | HAS_NORM_BIAS | HAS_ONE_NORM},
    {"opt", HAS_QKV_BIAS | HAS_ALL_BIASES | HAS_NORM_BIAS | HAS_NO_GATE | HAS_POSITIONS},
    {"gpt2", HAS_ONE_QKV | HAS_NORM_BIAS | HAS_NO_GATE | HAS_POSITIONS},
    {"gptneox", HAS_ONE_QKV | HAS_NORM_BIAS | HAS_NO_GATE},
    {"bloom", HAS_ONE_QKV | HAS_NORM_BIAS | HAS_NO_GATE | HAS_EMBEDDING_NORM},
    {"stablelm", HAS_NORM_BIAS | HAS_ONE_NORM},
    {"granite", 0},
    {"qwen2moe", HAS_QKV_BIAS | HAS_EXPERTS | HAS_SHARED_EXPERT | HAS_SHARED_GATE},
    {"qwen3moe", HAS_QK_NORM | HAS_EXPERTS},
    {"smallthinker", HAS_EXPERTS},
    {"cohere2moe", HAS_ONE_NORM | HAS_EXPERTS | HAS_SHARED_EXPERT | HAS_LEADING_LAYER | HAS_WINDOW},
    {"laguna", HAS_QK_NORM | HAS_EXPERTS | HAS_SHARED_EXPERT | HAS_LEADING_LAYER | HAS_WINDOW},
    {"llama4", HAS_EXPERTS | HAS_SHARED_EXPERT},
    {"arctic", HAS_EXPERTS},
    {"grok", HAS_EXPERTS},
    {"talkie", 0},
    {"mpt", HAS_ONE_QKV | HAS_NO_GATE},
    {"mimo2", HAS_SINKS | HAS_EXPERTS | HAS_WINDOW},
    {"maple", HAS_QK_NORM | HAS_EXPERTS | HAS_WINDOW},
    {"ernie4_5-moe", HAS_EXPERTS | HAS_SHARED_EXPERT | HAS_LEADING_LAYER},
    {"dots1", HAS_QK_NORM | HAS_EXPERTS | HAS_SHARED_EXPERT | HAS_LEADING_LAYER},
    {"glm4moe",
     HAS_QKV_BIAS | HAS_QK_NORM | HAS_OTHER_FFN_NORM | HAS_EXPERTS | HAS_SHARED_EXPERT | HAS_LEADING_LAYER},
    {"deepseek2", HAS_LATENT},
    {"gemma4", HAS_POST_NORMS | HAS_QK_NORM | HAS_SHARED_KV},
    {"deepseek4", HAS_BLOCKS | HAS_SINKS | HAS_EXPERTS | HAS_SHARED_EXPERT},
    {"lfm2", HAS_QK_NORM | HAS_SHORT_CONV},
    {"qwen35", HAS_QK_NORM | HAS_OTHER_FFN_NORM | HAS_DELTA_NET},
    {"mamba2", HAS_SSM | HAS_SSM_ALONE},
    {"falcon-h1", HAS_SSM | HAS_SSM_BESIDE},
    {"nemotron_h", HAS_SSM | HAS_PARTS | HAS_NO_GATE},
    {"jamba", HAS_SSM_CHANNELS},
    {"plamo2", HAS_SSM_LOW | HAS_POST_NORMS | HAS_ONE_GATE_UP},
    {"gpt-oss",
     HAS_QKV_BIAS | HAS_OUTPUT_BIAS | HAS_SINKS | HAS_OTHER_FFN_NORM | HAS_EXPERTS | HAS_EXPERT_BIASES},
};

static void rename_keys(tiny_model *m, const char *architecture, bool layer_norm)
{
    for (uint32_t i = 0; i < m->n_key; i++) {
        tiny_key *k = &m->keys[i];
        if (strncmp(k->name, "llama.", 6) != 0) continue;
        char rest[64];
        snprintf(rest, sizeof rest, "%s", k->name + 6);
        if (layer_norm && strcmp(rest, "attention.layer_norm_rms_epsilon") == 0)
            snprintf(rest, sizeof rest, "attention.layer_norm_epsilon");
        snprintf(k->name, sizeof k->name, "%s.%.50s", architecture, rest);
    }
}

static void drop_outer(tiny_model *m, const char *name) { tiny_find(m, name)->gone = true; }

static void drop_layer_tensor(tiny_model *m, int i_layer, const char *name)
{
    char full[64];
    snprintf(full, sizeof full, "blk.%d.%s.weight", i_layer, name);
    tiny_find(m, full)->gone = true;
}

static void add_bias(tiny_model *m, int i_layer, const char *name, uint64_t n)
{
    char full[64];
    snprintf(full, sizeof full, "blk.%d.%s.bias", i_layer, name);
    tiny_add_tensor(m, full, 0, 1, n, 1);
}

static void add_expert_matrix(tiny_model *m, int i, const char *name, uint64_t n_in, uint64_t n_out, bool biased)
{
    char full[64];
    add_layer_tensor(m, i, name, n_in, n_out);
    m->tensors[m->n_tensor - 1].n_dim = 3, m->tensors[m->n_tensor - 1].dim[2] = N_EXPERT;
    snprintf(full, sizeof full, "blk.%d.%s.bias", i, name);
    if (biased) tiny_add_tensor(m, full, 0, 2, n_out, N_EXPERT);
}

/* In place of the dense network. */
static void add_experts(tiny_model *m, int i, unsigned has)
{
    const uint64_t e = TINY_D_MODEL, f = D_EXPERT;
    bool biased = has & HAS_EXPERT_BIASES;
    drop_layer_tensor(m, i, "ffn_gate"), drop_layer_tensor(m, i, "ffn_up"), drop_layer_tensor(m, i, "ffn_down");
    add_layer_tensor(m, i, "ffn_gate_inp", e, N_EXPERT);
    if (biased) add_bias(m, i, "ffn_gate_inp", N_EXPERT);
    add_expert_matrix(m, i, "ffn_gate_exps", e, f, biased), add_expert_matrix(m, i, "ffn_up_exps", e, f, biased);
    add_expert_matrix(m, i, "ffn_down_exps", f, e, biased);
    if (has & HAS_SHARED_EXPERT) {
        add_layer_tensor(m, i, "ffn_gate_shexp", e, f), add_layer_tensor(m, i, "ffn_up_shexp", e, f);
        add_layer_tensor(m, i, "ffn_down_shexp", f, e);
        if (has & HAS_SHARED_GATE) add_layer_tensor(m, i, "ffn_gate_inp_shexp", e, 0);
    }
}

static void set_expert_keys(tiny_model *m, const char *architecture, unsigned has)
{
    const struct {
        const char *name;
        uint32_t value;
    } keys[] = {{"expert_count", N_EXPERT},
                {"expert_used_count", 2},
                {"expert_feed_forward_length", D_EXPERT},
                {"expert_shared_feed_forward_length", D_EXPERT},
                {"expert_shared_count", 1},
                {"leading_dense_block_count", (has & HAS_LEADING_LAYER) != 0}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        char full[64];
        snprintf(full, sizeof full, "%s.%s", architecture, keys[i].name);
        tiny_set_u32(m, full, keys[i].value);
    }
}

static void drop_attention(tiny_model *m, int i, bool normed)
{
    static const char *const names[] = {"attn_q", "attn_k", "attn_v", "attn_output", "attn_q_norm", "attn_k_norm"};
    for (size_t k = 0; k < (normed ? 6 : 4); k++) drop_layer_tensor(m, i, names[k]);
}

static void add_slices(tiny_model *m, int i, const char *name, uint64_t n_in, uint64_t n_out)
{
    add_layer_tensor(m, i, name, n_in, n_out);
    m->tensors[m->n_tensor - 1].n_dim = 3, m->tensors[m->n_tensor - 1].dim[2] = TINY_HEADS;
}

static void add_latent(tiny_model *m, int i)
{
    const uint64_t e = TINY_D_MODEL;
    drop_attention(m, i, false);
    add_layer_tensor(m, i, "attn_q_a", e, RANK), add_layer_tensor(m, i, "attn_q_a_norm", RANK, 0);
    add_layer_tensor(m, i, "attn_q_b", RANK, TINY_HEADS * (D_NOPE + D_ROPE));
    add_layer_tensor(m, i, "attn_kv_a_mqa", e, RANK + D_ROPE), add_layer_tensor(m, i, "attn_kv_a_norm", RANK, 0);
    add_slices(m, i, "attn_k_b", D_NOPE, RANK), add_slices(m, i, "attn_v_b", RANK, D_NOPE);
    add_layer_tensor(m, i, "attn_output", TINY_HEADS * D_NOPE, e);
}

static void set_latent_keys(tiny_model *m)
{
    tiny_set_u32(m, "deepseek2.attention.q_lora_rank", RANK);
    tiny_set_u32(m, "deepseek2.attention.kv_lora_rank", RANK);
    tiny_set_u32(m, "deepseek2.attention.key_length_mla", D_NOPE + D_ROPE);
    tiny_set_u32(m, "deepseek2.attention.value_length_mla", D_NOPE);
    tiny_set_u32(m, "deepseek2.rope.dimension_count", D_ROPE);
}

enum { N_STREAM = 3, N_GROUP = 2, OUT_RANK = 8, D_HEAD = TINY_D_MODEL / TINY_HEADS };

static void add_connection(tiny_model *m, const char *name, uint64_t n, uint64_t n_scale)
{
    const struct {
        const char *suffix;
        uint64_t n_in, n_out;
    } parts[] = {{"fn", N_STREAM * TINY_D_MODEL, n}, {"base", n, 1}, {"scale", n_scale, 1}};
    for (int k = 0; k < 3; k++) {
        char full[64];
        snprintf(full, sizeof full, "%s_%s.weight", name, parts[k].suffix);
        tiny_add_tensor(m, full, 0, k == 0 ? 2 : 1, parts[k].n_in, parts[k].n_out);
    }
}

static void add_blocks(tiny_model *m, int i)
{
    const uint64_t e = TINY_D_MODEL, n = i == 0 ? 2 * D_HEAD : D_HEAD, n_tok = i == 0 ? 4 : 128;
    char name[64];
    drop_attention(m, i, false);
    add_layer_tensor(m, i, "attn_q_a", e, RANK), add_layer_tensor(m, i, "attn_q_a_norm", RANK, 0);
    add_layer_tensor(m, i, "attn_q_b", RANK, e), add_layer_tensor(m, i, "attn_kv", e, D_HEAD);
    add_layer_tensor(m, i, "attn_kv_a_norm", D_HEAD, 0);
    add_layer_tensor(m, i, "attn_compressor_kv", e, n), add_layer_tensor(m, i, "attn_compressor_gate", e, n);
    add_layer_tensor(m, i, "attn_compressor_ape", n, n_tok), add_layer_tensor(m, i, "attn_compressor_norm", D_HEAD, 0);
    add_layer_tensor(m, i, "attn_output_a", e / N_GROUP, N_GROUP * OUT_RANK);
    add_layer_tensor(m, i, "attn_output_b", N_GROUP * OUT_RANK, e);
    for (int k = 0; k < 2; k++) {
        snprintf(name, sizeof name, "blk.%d.%s", i, k == 0 ? "hc_attn" : "hc_ffn");
        add_connection(m, name, (2 + N_STREAM) * N_STREAM, 3);
    }
    snprintf(name, sizeof name, "blk.%d.ffn_gate_tid2eid.weight", i);
    if (i == 0) tiny_add_tensor(m, name, 26, 2, 2, TINY_VOCAB);
}

static void set_block_keys(tiny_model *m)
{
    static const uint32_t sizes[] = {4, 128};
    static const struct {
        const char *name;
        uint32_t value;
    } keys[] = {{"attention.q_lora_rank", RANK},       {"attention.output_group_count", N_GROUP},
                {"attention.output_lora_rank", OUT_RANK}, {"attention.sliding_window", 20},
                {"attention.indexer.top_k", 100},       {"hyper_connection.count", N_STREAM},
                {"hyper_connection.sinkhorn_iterations", 2}, {"hash_layer_count", 1},
                {"rope.dimension_count", 4}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        char full[64];
        snprintf(full, sizeof full, "deepseek4.%s", keys[i].name);
        tiny_set_u32(m, full, keys[i].value);
    }
    tiny_set_f32(m, "deepseek4.attention.compress_rope_freq_base", 500.0f);
    tiny_set_f32(m, "deepseek4.swiglu_clamp_exp", 0.5f);
    tiny_set_array(m, "deepseek4.attention.compress_ratios", sizes, TINY_LAYERS);
    add_connection(m, "output_hc", N_STREAM, 1);
}

static void add_layer_vector(tiny_model *m, int i, const char *name, uint32_t n_dim, uint64_t d0, uint64_t d1)
{
    char full[64];
    snprintf(full, sizeof full, "blk.%d.%s", i, name);
    tiny_add_tensor(m, full, 0, n_dim, d0, d1);
}

/* Low steps, B and C of the convolved inputs. */
static void add_low_steps(tiny_model *m, int i, uint64_t rank, uint64_t n_step)
{
    add_layer_tensor(m, i, "ssm_x", SSM_INNER, rank + 2 * SSM_STATE), add_layer_tensor(m, i, "ssm_dt", rank, n_step);
    add_layer_tensor(m, i, "ssm_dt_norm", rank, 0), add_layer_tensor(m, i, "ssm_b_norm", SSM_STATE, 0);
    add_layer_tensor(m, i, "ssm_c_norm", SSM_STATE, 0);
}

static void add_ssm(tiny_model *m, int i, unsigned has)
{
    const uint64_t e = TINY_D_MODEL, inner = SSM_INNER, h = N_SSM_HEAD, n_step = has & HAS_SSM_CHANNELS ? inner : h;
    bool heads = has & HAS_SSM;
    uint64_t n_conv = inner + (heads ? 2 * N_SSM_GROUP * SSM_STATE : 0);
    add_layer_tensor(m, i, "ssm_in", e, inner + n_conv + (heads ? h : 0));
    add_layer_tensor(m, i, "ssm_conv1d", N_TAP, n_conv), add_bias(m, i, "ssm_conv1d", n_conv);
    if (!heads) add_low_steps(m, i, has & HAS_SSM_LOW ? SSM_LOW_RANK : SSM_RANK, n_step);
    add_bias(m, i, "ssm_dt", n_step);
    if (has & HAS_SSM_CHANNELS) add_layer_vector(m, i, "ssm_a", 2, SSM_STATE, inner);
    else add_layer_vector(m, i, "ssm_a", heads ? 2 : 1, heads ? 1 : h, heads ? h : 1);
    add_layer_vector(m, i, "ssm_d", heads ? 2 : 1, heads ? 1 : n_step, heads ? h : 1);
    if (heads && !(has & HAS_SSM_BESIDE))
        add_layer_tensor(m, i, "ssm_norm", inner / N_SSM_GROUP, N_SSM_GROUP);
    add_layer_tensor(m, i, "ssm_out", inner, e);
}

static void drop_network(tiny_model *m, int i, bool gated)
{
    if (gated) drop_layer_tensor(m, i, "ffn_gate");
    drop_layer_tensor(m, i, "ffn_norm"), drop_layer_tensor(m, i, "ffn_up"), drop_layer_tensor(m, i, "ffn_down");
}

static void change_to_ssm(tiny_model *m, int i, unsigned has)
{
    bool everywhere = has & (HAS_SSM_ALONE | HAS_SSM_BESIDE);
    if (has & HAS_SSM_ALONE) drop_network(m, i, true);
    if (has & HAS_PARTS && i == 0) drop_network(m, i, false);
    if (has & HAS_PARTS && i > 0) drop_layer_tensor(m, i, "ffn_norm");
    if (!(has & HAS_SSM_BESIDE) && (everywhere || has & HAS_PARTS || i == 0)) drop_attention(m, i, false);
    if (everywhere || i == 0) add_ssm(m, i, has);
    if (!(has & HAS_SSM_LOW) || i == 0) return;
    add_layer_tensor(m, i, "attn_q_norm", TINY_D_MODEL / TINY_HEADS, TINY_HEADS);
    add_layer_tensor(m, i, "attn_k_norm", TINY_D_MODEL / TINY_HEADS, TINY_HEADS_KV);
}

static void set_ssm_keys(tiny_model *m, const char *architecture, unsigned has)
{
    const uint32_t kv[] = {0, has & HAS_PARTS ? 0 : TINY_HEADS_KV}, ff[] = {0, TINY_D_FF};
    const struct {
        const char *name;
        uint32_t value;
    } keys[] = {{"conv_kernel", N_TAP},
                {"inner_size", SSM_INNER},
                {"state_size", SSM_STATE},
                {"time_step_rank", has & HAS_SSM_CHANNELS ? SSM_RANK : N_SSM_HEAD},
                {"group_count", N_SSM_GROUP}};
    char full[64];
    for (size_t i = 0; i < (has & HAS_SSM ? 5 : 4); i++) {
        snprintf(full, sizeof full, "%s.ssm.%s", architecture, keys[i].name);
        tiny_set_u32(m, full, keys[i].value);
    }
    snprintf(full, sizeof full, "%s.attention.head_count_kv", architecture);
    if (has & HAS_SSM_ALONE) tiny_drop_key(m, full);
    else if (!(has & HAS_SSM_BESIDE)) tiny_set_array(m, full, kv, TINY_LAYERS);
    snprintf(full, sizeof full, "%s.attention.head_count", architecture);
    if (has & HAS_SSM_ALONE) tiny_set_u32(m, full, 0); /* as converters write it */
    snprintf(full, sizeof full, "%s.feed_forward_length", architecture);
    if (has & HAS_SSM_ALONE) tiny_drop_key(m, full);
    if (has & HAS_PARTS) tiny_set_array(m, full, ff, TINY_LAYERS);
}

static void add_short_conv(tiny_model *m, int i)
{
    const uint64_t e = TINY_D_MODEL;
    drop_attention(m, i, true);
    add_layer_tensor(m, i, "shortconv.in_proj", e, 3 * e);
    add_layer_tensor(m, i, "shortconv.conv", N_TAP, e);
    add_layer_tensor(m, i, "shortconv.out_proj", e, e);
}

static void add_delta_net(tiny_model *m, int i)
{
    const uint64_t e = TINY_D_MODEL, inner = N_DELTA_HEAD * D_DELTA, n_qkv = inner + 2 * N_DELTA_KEY * D_DELTA;
    char name[64];
    drop_attention(m, i, true);
    add_layer_tensor(m, i, "attn_qkv", e, n_qkv), add_layer_tensor(m, i, "attn_gate", e, inner);
    add_layer_tensor(m, i, "ssm_beta", e, N_DELTA_HEAD), add_layer_tensor(m, i, "ssm_alpha", e, N_DELTA_HEAD);
    add_layer_tensor(m, i, "ssm_conv1d", N_TAP, n_qkv), add_layer_tensor(m, i, "ssm_norm", D_DELTA, 0);
    add_layer_tensor(m, i, "ssm_out", inner, e);
    add_bias(m, i, "ssm_dt", N_DELTA_HEAD);
    snprintf(name, sizeof name, "blk.%d.ssm_a", i);
    tiny_add_tensor(m, name, 0, 1, N_DELTA_HEAD, 1);
}

static void set_recurrent_keys(tiny_model *m, unsigned has)
{
    if (has & HAS_SHORT_CONV) {
        tiny_set_u32(m, "lfm2.shortconv.l_cache", N_TAP);
        tiny_set_array(m, "lfm2.attention.head_count_kv", (const uint32_t[]){0, TINY_HEADS_KV}, TINY_LAYERS);
        drop_outer(m, "output_norm.weight");
        tiny_add_tensor(m, "token_embd_norm.weight", 0, 1, TINY_D_MODEL, 1);
    }
    if (!(has & HAS_DELTA_NET)) return;
    tiny_set_u32(m, "qwen35.full_attention_interval", 2);
    tiny_set_array(m, "qwen35.rope.dimension_sections", (const uint32_t[]){2, 1, 1, 0}, 4);
    tiny_set_u32(m, "qwen35.ssm.conv_kernel", N_TAP);
    tiny_set_u32(m, "qwen35.ssm.time_step_rank", N_DELTA_HEAD);
    tiny_set_u32(m, "qwen35.ssm.group_count", N_DELTA_KEY);
    tiny_set_u32(m, "qwen35.ssm.state_size", D_DELTA);
    tiny_set_u32(m, "qwen35.ssm.inner_size", N_DELTA_HEAD * D_DELTA);
}

static void share_kv(tiny_model *m, int i)
{
    char name[64];
    add_layer_tensor(m, i, "inp_gate", TINY_D_MODEL, D_EMBEDDING),
        add_layer_tensor(m, i, "proj", D_EMBEDDING, TINY_D_MODEL);
    add_layer_tensor(m, i, "post_norm", TINY_D_MODEL, 0);
    snprintf(name, sizeof name, "blk.%d.layer_output_scale.weight", i);
    tiny_add_tensor(m, name, 0, 1, 1, 1);
    if (i == 0) return;
    drop_layer_tensor(m, i, "attn_k"), drop_layer_tensor(m, i, "attn_v"), drop_layer_tensor(m, i, "attn_k_norm");
}

static void set_shared_keys(tiny_model *m)
{
    const uint32_t d = TINY_D_MODEL / TINY_HEADS, n = D_EMBEDDING * TINY_LAYERS;
    tiny_set_u32(m, "gemma4.attention.shared_kv_layers", 1);
    tiny_set_u32(m, "gemma4.attention.key_length_swa", d);
    tiny_set_u32(m, "gemma4.embedding_length_per_layer_input", D_EMBEDDING);
    tiny_add_tensor(m, "per_layer_token_embd.weight", 0, 2, n, TINY_VOCAB);
    tiny_add_tensor(m, "per_layer_model_proj.weight", 0, 2, TINY_D_MODEL, n);
    tiny_add_tensor(m, "per_layer_proj_norm.weight", 0, 1, D_EMBEDDING, 1);
}

static void change_layer(tiny_model *m, int i, unsigned has)
{
    const uint64_t e = TINY_D_MODEL, f = TINY_D_FF, d = e / TINY_HEADS, kv = d * TINY_HEADS_KV;
    if (has & HAS_QKV_BIAS) add_bias(m, i, "attn_q", e), add_bias(m, i, "attn_k", kv), add_bias(m, i, "attn_v", kv);
    if (has & HAS_ALL_BIASES)
        add_bias(m, i, "attn_output", e), add_bias(m, i, "ffn_up", f), add_bias(m, i, "ffn_down", e);
    if (has & HAS_NORM_BIAS) add_bias(m, i, "attn_norm", e);
    if (has & HAS_NORM_BIAS && !(has & HAS_ONE_NORM)) add_bias(m, i, "ffn_norm", e);
    if (has & HAS_ONE_NORM) drop_layer_tensor(m, i, "ffn_norm");
    if (has & HAS_QK_NORM) add_layer_tensor(m, i, "attn_q_norm", d, 0), add_layer_tensor(m, i, "attn_k_norm", d, 0);
    if (has & HAS_POST_NORMS)
        add_layer_tensor(m, i, "post_attention_norm", e, 0), add_layer_tensor(m, i, "post_ffw_norm", e, 0);
    if (has & HAS_ONE_QKV) {
        drop_layer_tensor(m, i, "attn_q"), drop_layer_tensor(m, i, "attn_k"),
            drop_layer_tensor(m, i, "attn_v");
        add_layer_tensor(m, i, "attn_qkv", e, e + 2 * kv);
    }
    if (has & (HAS_NO_GATE | HAS_ONE_GATE_UP)) drop_layer_tensor(m, i, "ffn_gate");
    if (has & HAS_ONE_GATE_UP) drop_layer_tensor(m, i, "ffn_up"), add_layer_tensor(m, i, "ffn_up", e, 2 * f);
    if (has & HAS_OUTPUT_BIAS) add_bias(m, i, "attn_output", e);
    if (has & HAS_SINKS) add_layer_tensor(m, i, "attn_sinks", TINY_HEADS, 0);
    if (has & HAS_OTHER_FFN_NORM)
        drop_layer_tensor(m, i, "ffn_norm"), add_layer_tensor(m, i, "post_attention_norm", e, 0);
    if (has & HAS_EXPERTS && !(has & HAS_LEADING_LAYER && i == 0)) add_experts(m, i, has);
    if (has & HAS_LATENT) add_latent(m, i);
    if (has & HAS_BLOCKS) add_blocks(m, i);
    if (has & HAS_SHARED_KV) share_kv(m, i);
    if (has & (HAS_SSM | HAS_SSM_CHANNELS | HAS_SSM_LOW)) change_to_ssm(m, i, has);
    if (has & HAS_SHORT_CONV && i == 0) add_short_conv(m, i);
    if (has & HAS_DELTA_NET && i == 0) add_delta_net(m, i);
    if (has & HAS_DELTA_NET && i > 0) drop_layer_tensor(m, i, "attn_q"), add_layer_tensor(m, i, "attn_q", e, 2 * e);
}

static void set_window(tiny_model *m, const char *architecture)
{
    char full[64];
    snprintf(full, sizeof full, "%s.attention.sliding_window", architecture);
    tiny_set_u32(m, full, 3);
    snprintf(full, sizeof full, "%s.attention.sliding_window_pattern", architecture);
    tiny_set_array(m, full, (const uint32_t[]){1, 0}, TINY_LAYERS);
}

enum {
    HAS_GATE = 1,           /* one value for each head */
    HAS_NETWORK_BESIDE = 2, /* experts: of TINY_D_FF neurons */
    HAS_SQUARE_BESIDE = 4,  /* of TINY_D_MODEL; experts have a norm of their own */
    HAS_OTHER_POST_NORMS = 8,
    HAS_NO_NORMS = 16,      /* but queries have a factor of each head, and layers one of the embedding */
    HAS_LAYER_NORM = 32,
};

static const struct {
    const char *name;
    unsigned also;
} further[] = {
    {"laguna", HAS_GATE}, {"arctic", HAS_SQUARE_BESIDE}, {"grok", HAS_NETWORK_BESIDE | HAS_OTHER_POST_NORMS},
    {"talkie", HAS_NO_NORMS}, {"mpt", HAS_LAYER_NORM},
};

static unsigned find_further(const char *architecture)
{
    for (size_t i = 0; i < sizeof further / sizeof *further; i++)
        if (strcmp(further[i].name, architecture) == 0) return further[i].also;
    return 0;
}

static void change_layer_further(tiny_model *m, int i, unsigned also)
{
    const uint64_t e = TINY_D_MODEL;
    const uint64_t f = also & HAS_SQUARE_BESIDE ? e : also & HAS_NETWORK_BESIDE ? TINY_D_FF : 0;
    if (also & HAS_GATE) add_layer_tensor(m, i, "attn_gate", e, TINY_HEADS);
    if (f > 0) add_layer_tensor(m, i, "ffn_gate", e, f), add_layer_tensor(m, i, "ffn_up", e, f);
    if (f > 0) add_layer_tensor(m, i, "ffn_down", f, e);
    if (also & HAS_SQUARE_BESIDE) add_layer_tensor(m, i, "ffn_norm_exps", e, 0);
    if (also & HAS_OTHER_POST_NORMS)
        add_layer_tensor(m, i, "attn_output_norm", e, 0), add_layer_tensor(m, i, "layer_output_norm", e, 0);
    if (!(also & HAS_NO_NORMS)) return;
    drop_layer_tensor(m, i, "attn_norm"), drop_layer_tensor(m, i, "ffn_norm");
    add_layer_tensor(m, i, "attn_q_norm", 1, TINY_HEADS), add_layer_tensor(m, i, "layer_output_scale", 1, 0);
}

void tiny_become(tiny_model *m, const char *architecture)
{
    size_t kind = 0;
    while (kind < sizeof kinds / sizeof *kinds && strcmp(kinds[kind].name, architecture) != 0) kind++;
    if (kind == sizeof kinds / sizeof *kinds) abort();
    unsigned has = kinds[kind].has, also = find_further(architecture);
    tiny_set_text(m, "general.architecture", architecture);
    rename_keys(m, architecture, has & HAS_NORM_BIAS || also & HAS_LAYER_NORM);
    for (int i = 0; i < TINY_LAYERS; i++) change_layer(m, i, has), change_layer_further(m, i, also);
    if (also & HAS_NO_NORMS) drop_outer(m, "output_norm.weight");
    if (has & HAS_NORM_BIAS) tiny_add_tensor(m, "output_norm.bias", 0, 1, TINY_D_MODEL, 1);
    if (has & HAS_EMBEDDING_NORM) {
        tiny_add_tensor(m, "token_embd_norm.weight", 0, 1, TINY_D_MODEL, 1);
        tiny_add_tensor(m, "token_embd_norm.bias", 0, 1, TINY_D_MODEL, 1);
    }
    if (has & HAS_EXPERTS) set_expert_keys(m, architecture, has);
    set_recurrent_keys(m, has);
    if (has & HAS_WINDOW) set_window(m, architecture);
    if (also & HAS_SQUARE_BESIDE) tiny_set_u32(m, "arctic.feed_forward_length", D_EXPERT);
    if (has & HAS_LATENT) set_latent_keys(m);
    if (has & HAS_BLOCKS) set_block_keys(m);
    if (has & HAS_SHARED_KV) set_shared_keys(m);
    if (has & (HAS_SSM | HAS_SSM_CHANNELS | HAS_SSM_LOW)) set_ssm_keys(m, architecture, has);
    if (has & HAS_POSITIONS) tiny_add_tensor(m, "position_embd.weight", 0, 2, TINY_D_MODEL, TINY_CONTEXT + 2);
}

void tiny_add_mtp(tiny_model *m)
{
    const uint64_t e = TINY_D_MODEL;
    const char *architecture = NULL;
    char key[64], from[16], name[96];
    snprintf(from, sizeof from, "blk.%d.", TINY_LAYERS - 1);
    for (uint32_t i = 0, n = m->n_tensor; i < n; i++) {
        tiny_tensor t = m->tensors[i];
        if (t.gone || strncmp(t.name, from, strlen(from)) != 0) continue;
        snprintf(name, sizeof name, "blk.%d.%.40s", TINY_LAYERS, t.name + strlen(from));
        tiny_add_tensor(m, name, t.type, t.n_dim, t.dim[0], t.dim[1]);
        m->tensors[m->n_tensor - 1].dim[2] = t.dim[2];
    }
    add_layer_tensor(m, TINY_LAYERS, "nextn.enorm", e, 0);
    add_layer_tensor(m, TINY_LAYERS, "nextn.hnorm", e, 0);
    add_layer_tensor(m, TINY_LAYERS, "nextn.eh_proj", 2 * e, e);
    for (uint32_t i = 0; i < m->n_key; i++) {
        const char *end = strstr(m->keys[i].name, ".block_count");
        if (!end) continue;
        snprintf(key, sizeof key, "%.*s", (int)(end - m->keys[i].name), m->keys[i].name);
        architecture = key;
    }
    if (!architecture) abort();
    snprintf(name, sizeof name, "%s.block_count", architecture);
    tiny_set_u32(m, name, TINY_LAYERS + 1);
    snprintf(name, sizeof name, "%s.nextn_predict_layers", architecture);
    tiny_set_u32(m, name, 1);
}

void tiny_pack(tiny_model *m)
{
    static const float thresholds[TINY_LAYERS] = {0.0f, -0.5f};
    const uint64_t e = TINY_D_MODEL, f = TINY_D_FF;
    tiny_set_text(m, "hearth.ffn.activation", "reglu");
    tiny_set_u32(m, "hearth.pack.version", 1);
    tiny_set_text(m, "hearth.pack.source", "0123456789abcdef");
    tiny_set_text(m, "hearth.selector", "predictor");
    tiny_set_text(m, "hearth.predictor.input", "normed");
    tiny_set_floats(m, "hearth.predictor.threshold", thresholds, TINY_LAYERS);
    for (int i = 0; i < TINY_LAYERS; i++) {
        char order[64];
        drop_layer_tensor(m, i, "ffn_down");
        add_layer_tensor(m, i, "ffn_down_t", e, f);
        add_layer_tensor(m, i, "fc1", e, TINY_RANK);
        add_layer_tensor(m, i, "fc2", TINY_RANK, f);
        add_bias(m, i, "fc2", f);
        add_layer_tensor(m, i, "ffn_floor", f, 0);
        snprintf(order, sizeof order, "blk.%d.ffn_order", i);
        tiny_add_tensor(m, order, 26, 1, f, 1);
    }
}

/* ---- the file ------------------------------------------------------------------------------- */

/* Bytes of n weights, from the format's table of blocks. */
static uint64_t data_size(const tiny_tensor *t)
{
    static const struct {
        uint32_t type, n_weight, size;
    } blocks[] = {{0, 1, 4},      {1, 1, 2},      {30, 1, 2},     {2, 32, 18},    {3, 32, 20},
                  {6, 32, 22},    {7, 32, 24},    {8, 32, 34},    {9, 32, 36},    {20, 32, 18},   {39, 32, 17},
                  {10, 256, 84},  {11, 256, 110}, {12, 256, 144}, {13, 256, 176}, {14, 256, 210},
                  {23, 256, 136}, {26, 1, 4}};
    uint64_t n = t->dim[0] * t->dim[1] * t->dim[2] * t->dim[3];
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        if (blocks[i].type == t->type) return n / blocks[i].n_weight * blocks[i].size;
    return n / 256 * 144; /* any other type of the format */
}

static uint64_t aligned(uint64_t n) { return (n + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

/* Header, keys and infos. */
static gguf_bytes write_directory(const tiny_model *m)
{
    gguf_bytes b = {0};
    uint64_t n_key = 0, n_tensor = 0, at = 0;
    for (uint32_t i = 0; i < m->n_key; i++) n_key += !m->keys[i].gone;
    for (uint32_t i = 0; i < m->n_tensor; i++) n_tensor += !m->tensors[i].gone;
    gguf_header(&b, 3, n_tensor, n_key);
    for (uint32_t i = 0; i < m->n_key; i++) {
        if (m->keys[i].gone) continue;
        gguf_key(&b, m->keys[i].name, m->keys[i].type);
        gguf_put(&b, m->keys[i].value.data, m->keys[i].value.n);
    }
    for (uint32_t i = 0; i < m->n_tensor; i++) {
        const tiny_tensor *t = &m->tensors[i];
        if (t->gone) continue;
        gguf_info(&b, t->name, t->n_dim, t->dim, t->type, at);
        at += aligned(data_size(t));
    }
    gguf_pad(&b, ALIGNMENT);
    return b;
}

/* Any bytes will do for other types; floats are small and of either sign, but thresholds and decays; an
 * order is the reverse, experts of tokens differ. */
static void write_data(gguf_bytes *b, const tiny_tensor *t, test_random *r)
{
    size_t end = b->n + data_size(t);
    bool norm = strstr(t->name, "norm") != NULL, floor = strstr(t->name, "ffn_floor") != NULL,
         decay = strstr(t->name, "ssm_a") != NULL && !strstr(t->name, "alpha");
    while (t->type == 0 && b->n < end) {
        float x = norm ? 1.0f + 0.1f * test_random_float(r) : 0.3f * test_random_float(r);
        x = (floor && x < 0.0f) || (decay && x > 0.0f) ? -x : x;
        gguf_put(b, &x, sizeof x);
    }
    if (strstr(t->name, "ffn_order"))
        for (uint64_t i = t->dim[0]; i-- > 0;) gguf_word(b, i, 4);
    if (strstr(t->name, "tid2eid"))
        for (uint64_t i = 0; i < t->dim[0] * t->dim[1]; i++) gguf_word(b, (i / t->dim[0] * 3 + i % t->dim[0]) % N_EXPERT, 4);
    if (b->n < end) gguf_zeros(b, end - b->n);
    gguf_pad(b, ALIGNMENT);
}

gguf_bytes tiny_write(const tiny_model *m)
{
    gguf_bytes b = write_directory(m);
    test_random r = {1};
    for (uint32_t i = 0; i < m->n_tensor; i++)
        if (!m->tensors[i].gone) write_data(&b, &m->tensors[i], &r);
    return b;
}

size_t tiny_data_at(const tiny_model *m, const char *name)
{
    gguf_bytes b = write_directory(m);
    size_t at = b.n;
    gguf_free(&b);
    for (uint32_t i = 0; i < m->n_tensor && (m->tensors[i].gone || strcmp(m->tensors[i].name, name) != 0);
         i++)
        if (!m->tensors[i].gone) at += aligned(data_size(&m->tensors[i]));
    return at;
}

gguf_bytes tiny_take(tiny_model *m)
{
    gguf_bytes b = tiny_write(m);
    tiny_free(m);
    return b;
}

void tiny_save(tiny_model *m, const char *path)
{
    CLEANUP(gguf_free) gguf_bytes b = tiny_take(m);
    CHECK(test_write_file(path, b.data, b.n));
}
