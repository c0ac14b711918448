/* What each family asks of a file: its smallest model opens, and each thing that it
 * needs is missed by name. The computation itself is proved by golden and truth. */
#include "support/test.h"
#include "support/models/tiny_case.h"

enum { TYPE_BOOL = 7, TYPE_ARRAY = 9 };

static const char *const families[] = {"bamboo",   "qwen2",   "qwen3", "gemma2",   "gemma3",
                                       "phi3",     "falcon",  "opt",   "gpt2",     "bloom",
                                       "stablelm", "granite", "dots1", "qwen2moe", "qwen3moe",
                                       "gpt-oss",  "lfm2",    "qwen35",   "deepseek2",
                                       "gemma4",   "mamba2",  "falcon-h1", "nemotron_h", "jamba",
                                       "plamo2", "maple", "cohere2moe", "laguna", "arctic",
                                       "grok", "talkie", "mpt", "llama4"};
enum { N_FAMILY = sizeof families / sizeof *families };

/* One step of a fresh session of n_ctx positions. */
static hearth_status step(const hearth_model *model, uint32_t n_ctx, hearth_error *why)
{
    static const int32_t ids[] = {1, 60, 70, 80};
    hearth_session_options o = {.n_ctx = n_ctx, .n_batch = 4, .n_thread = 1, .kv = HEARTH_KV_F32};
    CLOSED(hearth_session) *session = NULL;
    hearth_status st = hearth_session_open(model, &o, &session, why);
    if (st == HEARTH_OK) st = hearth_session_eval(session, ids, 4, why);
    return st;
}

static void expect_runs(void)
{
    hearth_error why = {0};
    hearth_model *model = NULL;
    if (tiny_open(&model, &why) != HEARTH_OK || step(model, 16, &why) != HEARTH_OK)
        test_fail(__FILE__, __LINE__, "%s", why.message);
    tiny_close(model);
}

TEST(smallest_model_of_each_architecture_runs)
{
    for (int i = 0; i < N_FAMILY; i++) {
        tiny_become(&tiny, families[i]);
        expect_runs();
    }
}

TEST(a_vocabulary_that_is_not_supported_hinders_text_only)
{
    hearth_model *model = NULL;
    int32_t *ids = NULL;
    size_t n;
    tiny_become(&tiny, "qwen2");
    tiny_set_text(&tiny, "tokenizer.ggml.model", "rwkv");
    CHECK_OK(tiny_open(&model, err));
    if (model) {
        CHECK_FAILS(hearth_tokenize(model, "a", 1, 0, &ids, &n, err), HEARTH_ERROR_UNSUPPORTED,
                    "tiny.gguf|tokenizer.ggml.model|llama");
        CHECK_INT(hearth_token_bos(model), -1);
        CHECK_OK(step(model, 8, err));
    }
    tiny_close(model);
}

TEST(each_missing_tensor_of_each_architecture_is_named)
{
    for (int i = 0; i < N_FAMILY; i++) {
        tiny_become(&tiny, families[i]);
        uint32_t n = tiny.n_tensor;
        tiny_reset();
        for (uint32_t t = 0; t < n; t++) {
            tiny_become(&tiny, families[i]);
            const char *name = tiny.tensors[t].name;
            bool value = strcmp(families[i], "gemma4") == 0 && strstr(name, "attn_v"); /* keys serve */
            bool optional = strcmp(name, "output.weight") == 0 || (strstr(name, "layer_output_scale") && strcmp(families[i], "talkie") != 0) || value ||
                            tiny.tensors[t].gone || strstr(name, "ssm_conv1d.bias");
            char quoted[70];
            snprintf(quoted, sizeof quoted, "'%s'", name);
            tiny.tensors[t].gone = true;
            if (optional) tiny_reset();
            else tiny_expect_format_error(quoted, families[i]);
        }
    }
}

TEST(each_tensor_of_each_architecture_must_have_its_shape)
{
    for (int i = 0; i < N_FAMILY; i++) {
        tiny_become(&tiny, families[i]);
        uint32_t n = tiny.n_tensor;
        tiny_reset();
        for (uint32_t t = 0; t < n; t++) {
            tiny_become(&tiny, families[i]);
            tiny_tensor *wrong = &tiny.tensors[t];
            bool free_rows = strcmp(wrong->name, "position_embd.weight") == 0;
            char quoted[70];
            snprintf(quoted, sizeof quoted, "'%s'", wrong->name);
            if (wrong->gone || strcmp(wrong->name, "token_embd.weight") == 0) {
                tiny_reset();
                continue;
            }
            wrong->dim[free_rows ? 0 : wrong->n_dim - 1] += 1;
            tiny_expect_format_error(quoted, "the metadata ask for");
        }
    }
}

/* Each head of stablelm has weights of its own for the norms of queries and keys, which a file may omit. */
TEST(norms_of_each_head_have_a_row_per_head)
{
    for (int wrong = 0; wrong < 2; wrong++) {
        tiny_become(&tiny, "stablelm");
        for (int i = 0; i < TINY_LAYERS; i++) {
            char name[64];
            snprintf(name, sizeof name, "blk.%d.attn_q_norm.weight", i);
            tiny_add_tensor(&tiny, name, 0, 2, TINY_D_MODEL / TINY_HEADS, TINY_HEADS);
            snprintf(name, sizeof name, "blk.%d.attn_k_norm.weight", i);
            tiny_add_tensor(&tiny, name, 0, 2, TINY_D_MODEL / TINY_HEADS, wrong ? TINY_HEADS : TINY_HEADS_KV);
        }
        if (wrong) tiny_expect_format_error("'blk.0.attn_k_norm.weight'", "ask for [8, 2]");
        else expect_runs();
    }
}

/* Logits after some tokens; false after a failure. Frees tiny. */
static bool logits_of(float out[TINY_VOCAB])
{
    static const int32_t ids[] = {1, 60, 70, 80};
    hearth_error why = {0};
    hearth_model *model = NULL;
    hearth_session *session = NULL;
    hearth_session_options o = {.n_ctx = 8, .n_batch = 4, .n_thread = 1, .kv = HEARTH_KV_F32};
    bool ok = tiny_open(&model, &why) == HEARTH_OK &&
              hearth_session_open(model, &o, &session, &why) == HEARTH_OK &&
              hearth_session_eval(session, ids, 4, &why) == HEARTH_OK;
    if (ok) memcpy(out, hearth_session_logits(session), TINY_VOCAB * sizeof *out);
    else test_fail(__FILE__, __LINE__, "%s", why.message);
    hearth_session_close(session);
    tiny_close(model);
    return ok;
}

/* ---- windows ------------------------------------------------------------------------------- */

static void set_flags(tiny_model *m, const char *key, const uint8_t *flags, uint64_t n)
{
    tiny_set(m, key, TYPE_ARRAY, 0, 0);
    gguf_bytes *b = NULL;
    for (uint32_t i = 0; i < m->n_key; i++)
        if (strcmp(m->keys[i].name, key) == 0) b = &m->keys[i].value;
    gguf_word(b, TYPE_BOOL, 4);
    gguf_word(b, n, 8);
    gguf_put(b, flags, n);
}

TEST(window_patterns_are_held_to_the_layers)
{
    const char *key = "gemma2.attention.sliding_window_pattern";
    const uint8_t flags[] = {1, 0, 1};
    tiny_become(&tiny, "gemma2");
    set_flags(&tiny, key, flags, 2);
    expect_runs();
    for (uint64_t n = 1; n <= 3; n += 2) {
        tiny_become(&tiny, "gemma2");
        set_flags(&tiny, key, flags, n);
        tiny_expect_format_error(key, "an array of 2 booleans");
    }
    tiny_become(&tiny, "gemma2");
    tiny_set_floats(&tiny, key, (const float[]){1.0f, 0.0f}, 2);
    tiny_expect_format_error(key, "an array of 2 booleans");
    tiny_become(&tiny, "gemma2");
    tiny_set_u32(&tiny, key, 4000000000u);
    tiny_expect_format_error(key, "allowed are");
    tiny_become(&tiny, "gemma2");
    tiny_set_u32(&tiny, "gemma2.attention.sliding_window", 4000000000u);
    tiny_expect_format_error("sliding_window", "allowed are");
}

/* Layers of maple without a window do not rotate: nothing else says which these are. */
TEST(windows_that_have_no_default_are_stated)
{
    static const char size[] = "maple.attention.sliding_window", flags[] = "maple.attention.sliding_window_pattern";
    for (int i = 0; i < 2; i++) {
        tiny_become(&tiny, "maple");
        tiny_drop_key(&tiny, i == 0 ? size : flags);
        tiny_expect_format_error(i == 0 ? size : flags, "missing");
    }
    tiny_become(&tiny, "maple");
    tiny_set_u32(&tiny, size, 0);
    tiny_expect_format_error(size, "allowed are 1");
    tiny_become(&tiny, "maple");
    tiny_set_u32(&tiny, flags, 2);
    tiny_expect_format_error(flags, "one for each layer");
}

TEST(layers_with_a_window_may_rotate_otherwise)
{
    static const char key[] = "laguna.rope.dimension_count_swa";
    tiny_become(&tiny, "laguna");
    tiny_set_u32(&tiny, key, 4);
    expect_runs();
    tiny_become(&tiny, "laguna");
    tiny_set_u32(&tiny, key, 5);
    tiny_expect_format_error(key, "expected an even number");
    tiny_become(&tiny, "laguna");
    tiny_set_u32(&tiny, key, 10);
    tiny_expect_format_error(key, "allowed are");
    tiny_become(&tiny, "cohere2moe");
    tiny_drop_key(&tiny, "cohere2moe.attention.sliding_window");
    tiny_expect_format_error("cohere2moe.attention.sliding_window", "missing");
}

/* Logits after n and after all tokens of a text that begins with first. */
static void chunked_logits(const hearth_model *model, int32_t first, uint32_t n, uint32_t n_all,
                           float (*logits)[TINY_VOCAB])
{
    const hearth_session_options o = {.n_ctx = n_all, .n_batch = 512, .n_thread = 1, .kv = HEARTH_KV_F32};
    CLOSED(hearth_session) *session = OPENED(hearth_session, model, &o);
    FREED int32_t *ids = malloc(n_all * sizeof *ids);
    for (uint32_t i = 0; i < n_all; i++) ids[i] = i == 0 ? first : (int32_t)(3 + i % 200);
    for (uint32_t i = 0; session && i < 2; i++) {
        CHECK_OK(hearth_session_eval(session, i == 0 ? ids : ids + n, i == 0 ? n : n_all - n, err));
        const float *now = hearth_session_logits(session);
        if (CHECK(now)) memcpy(logits[i], now, sizeof logits[i]);
    }
}

/* Llama 4: both layers attend within chunks of 8192 positions. A window of 0 in the file: to all positions. */
TEST(chunks_hide_what_lies_before_them)
{
    enum { CHUNK = 8192, N_ALL = CHUNK + 3 };
    for (int chunked = 0; chunked < 2; chunked++) {
        float a[2][TINY_VOCAB] = {0}, b[2][TINY_VOCAB] = {0};
        hearth_model *model = NULL;
        tiny_become(&tiny, "llama4");
        if (!chunked) tiny_set_u32(&tiny, "llama4.attention.sliding_window", 0);
        tiny_set_u32(&tiny, "llama4.context_length", N_ALL);
        CHECK_OK(tiny_open(&model, err));
        if (!model) return;
        chunked_logits(model, 60, CHUNK, N_ALL, a), chunked_logits(model, 90, CHUNK, N_ALL, b);
        CHECK(memcmp(a[0], b[0], sizeof a[0]) != 0);
        CHECK_INT(memcmp(a[1], b[1], sizeof a[1]) == 0, chunked);
        tiny_close(model);
    }
}

static void expect_refused(const char *key, const char *says)
{
    hearth_error why = {0};
    hearth_model *model = NULL;
    CHECK_INT(tiny_open(&model, &why), HEARTH_ERROR_UNSUPPORTED);
    CHECK(strstr(why.message, key) && strstr(why.message, says));
    tiny_close(model);
}

/* ---- norms, gates, networks ---------------------------------------------------------------------- */

/* The epsilon that a file states says which norm its layers have. */
TEST(a_norm_may_be_of_the_kind_that_is_stated)
{
    static const char rms[] = "cohere2moe.attention.layer_norm_rms_epsilon", layer[] = "cohere2moe.attention.layer_norm_epsilon";
    float first[TINY_VOCAB], second[TINY_VOCAB];
    tiny_become(&tiny, "cohere2moe");
    tiny_set_f32(&tiny, layer, 0.01f);
    if (!logits_of(first)) return;
    tiny_become(&tiny, "cohere2moe");
    tiny_drop_key(&tiny, rms), tiny_set_f32(&tiny, layer, 0.01f);
    if (!logits_of(second)) return;
    CHECK(memcmp(first, second, sizeof first) != 0);
    tiny_become(&tiny, "cohere2moe");
    tiny_drop_key(&tiny, rms);
    tiny_expect_format_error(layer, "missing");
}

TEST(a_gate_is_of_heads_or_of_values)
{
    for (int i = 0; i < 2; i++) {
        tiny_become(&tiny, "laguna");
        tiny_find(&tiny, "blk.1.attn_gate.weight")->dim[1] = i == 0 ? TINY_D_MODEL : 2 * TINY_HEADS;
        if (i == 0) expect_runs();
        else tiny_expect_format_error("'blk.1.attn_gate.weight'", "ask for [32, 4]");
    }
    tiny_become(&tiny, "laguna");
    tiny_set_u32(&tiny, "laguna.expert_shared_count", 2);
    expect_refused("laguna.expert_shared_count", "is 2");
}

static void narrow_values(uint64_t d_value)
{
    tiny_become(&tiny, "mimo2");
    tiny_set_u32(&tiny, "mimo2.attention.key_length", TINY_D_MODEL / TINY_HEADS);
    tiny_set_u32(&tiny, "mimo2.attention.value_length", (uint32_t)d_value);
    for (int i = 0; i < TINY_LAYERS; i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%d.attn_v.weight", i);
        tiny_find(&tiny, name)->dim[1] = TINY_HEADS_KV * d_value;
        snprintf(name, sizeof name, "blk.%d.attn_output.weight", i);
        tiny_find(&tiny, name)->dim[0] = TINY_HEADS * d_value;
    }
}

TEST(values_may_be_narrower_than_keys)
{
    narrow_values(6);
    tiny_find(&tiny, "blk.0.attn_sinks.weight")->gone = true;
    expect_runs();
    narrow_values(6);
    tiny_find(&tiny, "blk.1.attn_v.weight")->dim[1] += 1;
    tiny_expect_format_error("'blk.1.attn_v.weight'", "ask for [32, 12]");
    narrow_values(6);
    tiny_find(&tiny, "blk.1.attn_output.weight")->dim[0] += 1;
    tiny_expect_format_error("'blk.1.attn_output.weight'", "ask for [24, 32]");
    narrow_values(10);
    expect_refused("mimo2.attention.value_length is 10", "different lengths");
    narrow_values(6);
    tiny_set_text(&tiny, "mimo2.rope.scaling.type", "yarn");
    expect_refused("mimo2.rope.scaling.type 'yarn'", "supported: none, linear");
    narrow_values(6);
    tiny_set_f32(&tiny, "mimo2.attention.value_scale", -1.0f);
    tiny_expect_format_error("mimo2.attention.value_scale", "allowed are");
}

TEST(a_dense_network_beside_experts_is_whole_or_absent)
{
    static const char *const names[] = {"blk.0.ffn_gate.weight", "blk.0.ffn_up.weight", "blk.0.ffn_down.weight",
                                        "blk.1.ffn_gate.weight", "blk.1.ffn_up.weight", "blk.1.ffn_down.weight"};
    tiny_become(&tiny, "grok");
    for (int i = 0; i < 6; i++) tiny_find(&tiny, names[i])->gone = true;
    expect_runs();
    for (int i = 0; i < 3; i++) {
        tiny_become(&tiny, "grok");
        tiny_find(&tiny, names[i])->gone = true;
        tiny_expect_format_error(names[i], "missing");
    }
    tiny_become(&tiny, "grok");
    snprintf(tiny_find(&tiny, "blk.0.layer_output_norm.weight")->name, 64, "blk.0.post_ffw_norm.weight");
    expect_runs();
}

TEST(keys_of_yarn_are_held_to_their_range)
{
    static const char *const keys[] = {"grok.rope.scaling.yarn_beta_fast", "grok.rope.scaling.yarn_beta_slow",
                                       "grok.attention.output_scale"};
    for (int i = 0; i < 3; i++) {
        tiny_become(&tiny, "grok");
        tiny_set_f32(&tiny, keys[i], 0.0f);
        tiny_expect_format_error(keys[i], "allowed are");
    }
    tiny_become(&tiny, "grok");
    tiny_set_f32(&tiny, "grok.rope.scaling.yarn_attn_factor", 1.2f);
    expect_refused("grok.rope.scaling.yarn_attn_factor", "is 1.2");
    for (int yarn = 0; yarn < 2; yarn++) {
        tiny_become(&tiny, "grok");
        if (yarn) tiny_set_text(&tiny, "grok.rope.scaling.type", "yarn");
        tiny_set_f32(&tiny, "grok.rope.scaling.yarn_ext_factor", yarn ? 0.5f : 1.0f);
        expect_refused("grok.rope.scaling.yarn_ext_factor", yarn ? "supported is 1" : "supported is 0");
    }
}

/* Without learned positions and biases of norms; keys alone may have a norm, which means nothing. */
TEST(norms_of_queries_are_refused_where_they_are_not_computed)
{
    float without[TINY_VOCAB], with[TINY_VOCAB];
    tiny_become(&tiny, "mpt");
    if (!logits_of(without)) return;
    tiny_become(&tiny, "mpt");
    tiny_add_tensor(&tiny, "blk.0.attn_k_norm.weight", 0, 1, TINY_D_MODEL / TINY_HEADS * TINY_HEADS_KV, 1);
    if (!logits_of(with)) return;
    CHECK_BYTES(with, without, sizeof with);
    tiny_become(&tiny, "mpt");
    tiny_add_tensor(&tiny, "blk.0.attn_q_norm.weight", 0, 1, TINY_D_MODEL, 1);
    expect_refused("'blk.0.attn_q_norm.weight'", "not used");
    tiny_become(&tiny, "mpt");
    tiny_add_tensor(&tiny, "blk.1.ffn.act.scales", 0, 1, TINY_D_FF, 1);
    expect_refused("'blk.1.ffn.act.scales'", "not used");
}

/* ---- caps, factors, positions ------------------------------------------------------------------ */

TEST(soft_caps_are_held_to_their_range)
{
    static const char *const keys[] = {"gemma2.attn_logit_softcapping", "gemma2.final_logit_softcapping"};
    static const float wrong[] = {-1.0f, 1e-30f, 1e-4f, 1e7f, NAN, INFINITY};
    for (int k = 0; k < 2; k++) {
        for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
            tiny_become(&tiny, "gemma2");
            tiny_set_f32(&tiny, keys[k], wrong[i]);
            tiny_expect_format_error(keys[k], "allowed are");
        }
        tiny_become(&tiny, "gemma2");
        tiny_set_f32(&tiny, keys[k], 0.0f);
        expect_runs();
    }
}

/* The deepest of gemma2 and gemma3 scale by d_model / n_head, which must not be 0. */
TEST(scores_are_never_divided_by_zero)
{
    tiny_become(&tiny, "gemma2");
    tiny_set_u32(&tiny, "gemma2.block_count", 46);
    tiny_set_u32(&tiny, "gemma2.attention.head_count", 2 * TINY_D_MODEL);
    tiny_set_u32(&tiny, "gemma2.attention.key_length", 8);
    tiny_set_u32(&tiny, "gemma2.attention.value_length", 8);
    tiny_expect_format_error("gemma2.attention.head_count is 64", "embedding_length is 32");
}

TEST(both_tables_of_longrope_are_needed)
{
    tiny_become(&tiny, "phi3");
    tiny_set_text(&tiny, "phi3.rope.scaling.type", "longrope");
    tiny_expect_format_error("'rope_factors_short.weight'", "missing");
    tiny_become(&tiny, "phi3");
    tiny_add_tensor(&tiny, "rope_factors_short.weight", 0, 1, 4, 1);
    tiny_expect_format_error("'rope_factors_long.weight'", "missing");
    tiny_become(&tiny, "phi3");
    tiny_add_tensor(&tiny, "rope_factors_short.weight", 0, 1, 4, 1);
    tiny_add_tensor(&tiny, "rope_factors_long.weight", 0, 1, 5, 1);
    tiny_expect_format_error("'rope_factors_long.weight'", "[4, 1]");
    tiny_become(&tiny, "phi3");
    tiny_add_tensor(&tiny, "rope_factors_short.weight", 0, 1, 4, 1);
    tiny_add_tensor(&tiny, "rope_factors_long.weight", 1, 1, 4, 1); /* F16 tensors are written as zeros */
    tiny_expect_format_error("'rope_factors_long.weight'", "weight 0 is 0; angles are divided");
}

TEST(learned_positions_bound_the_context)
{
    hearth_model *model = NULL;
    hearth_model_info info = {0};
    tiny_become(&tiny, "opt");
    tiny_find(&tiny, "position_embd.weight")->dim[1] = 12;
    CHECK_OK(tiny_open(&model, err));
    if (model) {
        hearth_model_get_info(model, &info);
        CHECK_INT(info.n_ctx_train, 10);
        CHECK_OK(step(model, 10, err));
        CHECK_FAILS(step(model, 11, err), HEARTH_ERROR_ARGUMENT, "tiny.gguf is limited to 10");
    }
    tiny_close(model);
    tiny_become(&tiny, "opt");
    tiny_find(&tiny, "position_embd.weight")->dim[1] = 2;
    tiny_expect_format_error("'position_embd.weight'", "the metadata ask for");
}

/* The first of several tensors of a layer gets the rows of all, whose numbers follow one another in the file. */
static void join(tiny_model *m, int i_layer, const char *const names[], const char *joined)
{
    char name[64];
    tiny_tensor *first = NULL;
    for (size_t i = 0; names[i]; i++) {
        snprintf(name, sizeof name, "blk.%d.%s", i_layer, names[i]);
        tiny_tensor *t = tiny_find(m, name);
        if (!first) first = t;
        else first->dim[t->n_dim - 1] += t->dim[t->n_dim - 1], t->gone = true;
    }
    snprintf(first->name, sizeof first->name, "blk.%d.%s", i_layer, joined);
}

static void add_biases(tiny_model *m, const char *const names[], const uint64_t n[])
{
    for (int i_layer = 0; i_layer < TINY_LAYERS; i_layer++)
        for (size_t i = 0; names[i]; i++) {
            char name[64];
            snprintf(name, sizeof name, "blk.%d.%s", i_layer, names[i]);
            tiny_add_tensor(m, name, 0, 1, n[i], 1);
        }
}

TEST(matrices_and_biases_in_one_piece_are_those_in_several)
{
    enum { N_KV = TINY_D_MODEL / TINY_HEADS * TINY_HEADS_KV };
    static const char *const weights[] = {"attn_q.weight", "attn_k.weight", "attn_v.weight", NULL};
    static const char *const biases[] = {"attn_q.bias", "attn_k.bias", "attn_v.bias", NULL};
    static const char *const gate_up[] = {"ffn_gate.weight", "ffn_up.weight", NULL};
    static const char *const gate_up_biases[] = {"ffn_gate.bias", "ffn_up.bias", NULL};
    static const char *const architectures[] = {"llama", "qwen2", "phi3"};
    float apart[TINY_VOCAB], joined[TINY_VOCAB];
    for (int a = 0; a < 3; a++) {
        for (int form = 0; form < 4;
             form++) { /* apart; the weights joined; the biases too; gate and up of phi3 */
            if (a == 1) tiny_become(&tiny, "qwen2");
            if (a != 1) add_biases(&tiny, biases, (uint64_t[]){TINY_D_MODEL, N_KV, N_KV});
            if (a == 2) {
                add_biases(&tiny, gate_up_biases, (uint64_t[]){TINY_D_FF, TINY_D_FF});
                tiny_set_text(&tiny, "general.architecture", "phi3");
                for (uint32_t i = 0; i < tiny.n_key; i++) {
                    char *name = tiny.keys[i].name;
                    if (strncmp(name, "llama.", 6) == 0)
                        memmove(name + 5, name + 6, strlen(name + 5)), memcpy(name, "phi3.", 5);
                }
            }
            for (int i = 0; i < TINY_LAYERS; i++) {
                if (form > 0) join(&tiny, i, weights, "attn_qkv.weight");
                if (form > 1) join(&tiny, i, biases, "attn_qkv.bias");
                if (form > 2 && a == 2)
                    join(&tiny, i, gate_up, "ffn_up.weight"), join(&tiny, i, gate_up_biases, "ffn_up.bias");
            }
            if (!logits_of(form == 0 ? apart : joined)) return;
            if (form > 0 && memcmp(apart, joined, sizeof apart) != 0)
                test_fail(__FILE__, __LINE__, "%s, form %d: other logits", architectures[a], form);
        }
    }
    tiny_become(&tiny, "falcon");
    tiny_add_tensor(&tiny, "blk.0.attn_qkv.bias", 0, 1, TINY_D_MODEL * 2 + 1, 1);
    tiny_expect_format_error("'blk.0.attn_qkv.bias'", "the metadata ask for");
}

TEST(a_bias_of_the_output_is_added_to_the_logits)
{
    float without[TINY_VOCAB], with[TINY_VOCAB], bias[TINY_VOCAB];
    if (!logits_of(without)) return;
    tiny_add_tensor(&tiny, "output.bias", 0, 1, TINY_VOCAB, 1);
    gguf_bytes written = tiny_write(&tiny);
    memcpy(bias, written.data + tiny_data_at(&tiny, "output.bias"), sizeof bias);
    gguf_free(&written);
    if (!logits_of(with)) return;
    CHECK(bias[0] != 0.0f);
    for (int i = 0; i < TINY_VOCAB; i++) without[i] += bias[i];
    CHECK_BYTES(with, without, sizeof with);
}

/* As llama.cpp writes a pattern, and as converters do. */
TEST(a_pattern_of_windows_is_of_booleans_or_integers)
{
    const uint32_t pattern[TINY_LAYERS] = {1, 0}, longer[TINY_LAYERS + 1] = {1, 0, 1};
    tiny_become(&tiny, "gemma2");
    tiny_set_array(&tiny, "gemma2.attention.sliding_window_pattern", pattern, TINY_LAYERS);
    expect_runs();
    tiny_become(&tiny, "gemma2");
    tiny_set_array(&tiny, "gemma2.attention.sliding_window_pattern", longer, TINY_LAYERS + 1);
    tiny_expect_format_error("sliding_window_pattern", "one for each layer");
}

/* Its attention has norms instead of caps; a file that states one all the same means nothing by it. */
TEST(gemma3_caps_no_scores)
{
    float plain[TINY_VOCAB], capped[TINY_VOCAB];
    tiny_become(&tiny, "gemma3");
    if (!logits_of(plain)) return;
    tiny_become(&tiny, "gemma3");
    tiny_set_f32(&tiny, "gemma3.attn_logit_softcapping", 2.0f);
    if (logits_of(capped)) CHECK_BYTES(plain, capped, sizeof plain);
}

TEST(opt_needs_no_epsilon_and_falcon_does)
{
    tiny_become(&tiny, "opt");
    tiny_drop_key(&tiny, "opt.attention.layer_norm_epsilon");
    expect_runs();
    tiny_become(&tiny, "falcon");
    tiny_drop_key(&tiny, "falcon.attention.layer_norm_epsilon");
    tiny_expect_format_error("falcon.attention.layer_norm_epsilon", "missing");
}

TEST(a_second_norm_of_falcon_needs_its_bias)
{
    tiny_become(&tiny, "falcon");
    tiny_add_tensor(&tiny, "blk.0.attn_norm_2.weight", 0, 1, TINY_D_MODEL, 1);
    tiny_expect_format_error("'blk.0.attn_norm_2.bias'", "missing");
}
