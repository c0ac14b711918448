/* Metadata and tensors that do not make a model: each case changes one thing in a
 * model that opens, and the refusal names the file, the thing, and what was wanted. */
#include "support/test.h"
#include "support/models/tiny_model.h"

#include <hearth/hearth.h>

#define A "llama."

enum { U8 = 0, I8 = 1, U16 = 2, I16 = 3, U32 = 4, I32 = 5, F32 = 6, BOOL = 7, U64 = 10, I64 = 11, F64 = 12 };

static hearth_status open_tiny(const tiny_model *m, hearth_error *why)
{
    gguf_bytes file = tiny_write(m);
    hearth_model *model = NULL;
    hearth_status st = hearth_model_open_memory(file.data, file.n, "tiny.gguf", NULL, &model, why);
    hearth_model_close(model);
    gguf_free(&file);
    return st;
}

/* Refused with a line that holds the file's name and both words. Frees m. */
static void expect_refused(tiny_model *m, hearth_status status, const char *word, const char *other)
{
    hearth_error why = {0};
    hearth_status st = open_tiny(m, &why);
    bool named = strstr(why.message, "tiny.gguf: ") == why.message && strstr(why.message, word) != NULL &&
                 strstr(why.message, other) != NULL;
    if (st != status || !named)
        test_fail(__FILE__, __LINE__, "%s, %s: status '%s': %s", word, other, hearth_status_name(st),
                  why.message);
    tiny_free(m);
}

static void expect_accepted(tiny_model *m)
{
    hearth_error why = {0};
    if (open_tiny(m, &why) != HEARTH_OK) test_fail(__FILE__, __LINE__, "%s", why.message);
    tiny_free(m);
}

/* An integer key with one value that must be refused. */
static void refuse_u32(const char *key, uint32_t value, const char *word)
{
    tiny_model m;
    tiny_begin(&m);
    tiny_set_u32(&m, key, value);
    expect_refused(&m, HEARTH_ERROR_FORMAT, key, word);
}

static void refuse_f32(const char *key, float value)
{
    tiny_model m;
    tiny_begin(&m);
    tiny_set_f32(&m, key, value);
    expect_refused(&m, HEARTH_ERROR_FORMAT, key, "allowed are");
}

static void accept_u32(const char *key, uint32_t value)
{
    tiny_model m;
    tiny_begin(&m);
    tiny_set_u32(&m, key, value);
    expect_accepted(&m);
}

static const char *const required[] = {
    A "block_count", A "context_length", A "embedding_length", A "feed_forward_length", A "attention.head_count",
};
enum { N_REQUIRED = sizeof required / sizeof *required };

/* ---- C8 to C11: keys ------------------------------------------------------------------------ */

TEST(the_tiny_model_opens)
{
    tiny_model m;
    tiny_begin(&m);
    expect_accepted(&m);
}

TEST(required_keys_that_are_missing_are_named)
{
    for (int i = 0; i < N_REQUIRED; i++) {
        tiny_model m;
        tiny_begin(&m);
        tiny_drop_key(&m, required[i]);
        expect_refused(&m, HEARTH_ERROR_FORMAT, required[i], "missing (needed by architecture llama)");
    }
    tiny_model m;
    tiny_begin(&m);
    tiny_drop_key(&m, A "attention.layer_norm_rms_epsilon");
    expect_refused(&m, HEARTH_ERROR_FORMAT, A "attention.layer_norm_rms_epsilon", "missing");
    tiny_begin(&m);
    tiny_drop_key(&m, "general.architecture");
    expect_refused(&m, HEARTH_ERROR_FORMAT, "general.architecture", "missing");
}

TEST(keys_of_another_kind_are_refused_with_both_kinds)
{
    for (int i = 0; i < N_REQUIRED; i++) {
        tiny_model m;
        tiny_begin(&m);
        tiny_set_text(&m, required[i], "2");
        expect_refused(&m, HEARTH_ERROR_FORMAT, required[i], "expected an integer");
        tiny_begin(&m);
        tiny_set_f32(&m, required[i], 2.0f);
        expect_refused(&m, HEARTH_ERROR_FORMAT, required[i], "expected an integer");
        tiny_begin(&m);
        tiny_set(&m, required[i], BOOL, 1, 1);
        expect_refused(&m, HEARTH_ERROR_FORMAT, required[i], "expected an integer");
        tiny_begin(&m);
        tiny_set_array(&m, required[i], (uint32_t[]){2}, 0);
        expect_refused(&m, HEARTH_ERROR_FORMAT, required[i], "at ");
        tiny_begin(&m);
        tiny_set(&m, required[i], I32, (uint32_t)-1, 4);
        expect_refused(&m, HEARTH_ERROR_FORMAT, required[i], "is -1");
        if (strcmp(required[i], A "context_length") == 0) continue; /* any is taken */
        tiny_begin(&m);
        tiny_set(&m, required[i], U64, (uint64_t)1 << 63, 8);
        expect_refused(&m, HEARTH_ERROR_FORMAT, required[i], "allowed are");
    }
}

TEST(integers_of_any_width_serve)
{
    static const struct {
        uint32_t type;
        size_t size;
    } kinds[] = {{U8, 1}, {I8, 1}, {U16, 2}, {I16, 2}, {I32, 4}, {U64, 8}, {I64, 8}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        tiny_model m;
        tiny_begin(&m);
        tiny_set(&m, A "block_count", kinds[i].type, TINY_LAYERS, kinds[i].size);
        tiny_set(&m, A "attention.head_count", kinds[i].type, TINY_HEADS, kinds[i].size);
        tiny_set(&m, A "embedding_length", kinds[i].type, TINY_D_MODEL, kinds[i].size);
        expect_accepted(&m);
    }
}

TEST(architectures_are_matched_exactly)
{
    static const char *const names[] = {"", "LLAMA", "llama2", "lama", "\x1b[31mllama"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        tiny_model m;
        tiny_begin(&m);
        tiny_set_text(&m, "general.architecture", names[i]);
        expect_refused(&m, HEARTH_ERROR_UNSUPPORTED, "architecture '", "supported: llama");
    }
    tiny_model m;
    tiny_begin(&m);
    tiny_set_u32(&m, "general.architecture", 1);
    expect_refused(&m, HEARTH_ERROR_FORMAT, "general.architecture", "expected text");
    static char endless[1 << 20];
    memset(endless, 'a', sizeof endless - 1);
    tiny_begin(&m);
    tiny_set_text(&m, "general.architecture", endless);
    expect_refused(&m, HEARTH_ERROR_UNSUPPORTED, "aaa...", "supported: llama");
}

TEST(escapes_in_an_architecture_are_shown)
{
    tiny_model m;
    hearth_error why = {0};
    tiny_begin(&m);
    tiny_set_text(&m, "general.architecture", "\x1b[31m\n");
    CHECK_INT(open_tiny(&m, &why), HEARTH_ERROR_UNSUPPORTED);
    CHECK(strstr(why.message, "\\x1b[31m\\x0a") && !strchr(why.message, '\x1b') &&
          !strchr(why.message, '\n'));
    tiny_free(&m);
}

TEST(keys_of_another_architecture_do_not_serve)
{
    tiny_model m;
    tiny_begin(&m);
    tiny_drop_key(&m, A "embedding_length");
    tiny_set_u32(&m, "qwen2.embedding_length", TINY_D_MODEL);
    expect_refused(&m, HEARTH_ERROR_FORMAT, A "embedding_length", "missing");
}

/* ---- C15 to C23: values --------------------------------------------------------------------- */

TEST(block_count_is_that_of_the_layers)
{
    refuse_u32(A "block_count", 0, "allowed are 1 to 1024");
    refuse_u32(A "block_count", 1025, "allowed are 1 to 1024");
    refuse_u32(A "block_count", UINT32_MAX, "allowed are 1 to 1024");
    refuse_u32(A "block_count", 1, "blk.1.");
    tiny_model m;
    tiny_begin(&m);
    tiny_set_u32(&m, A "block_count", 3);
    expect_refused(&m, HEARTH_ERROR_FORMAT, "'blk.2.attn_norm.weight'", "missing");
}

TEST(widths_are_those_of_the_tensors)
{
    static const uint32_t bad[] = {0, 262145, UINT32_MAX};
    for (size_t i = 0; i < 3; i++) refuse_u32(A "embedding_length", bad[i], "allowed are 1 to 262144");
    refuse_u32(A "embedding_length", 1, "no multiple of 4 heads");
    static const uint32_t bad_ff[] = {0, 1048577, UINT32_MAX};
    for (size_t i = 0; i < 3; i++) refuse_u32(A "feed_forward_length", bad_ff[i], "allowed are 1 to 1048576");
    tiny_model m;
    tiny_begin(&m);
    tiny_set_u32(&m, A "embedding_length", 64);
    expect_refused(&m, HEARTH_ERROR_FORMAT, "'token_embd.weight'", "[64, 267]");
    tiny_begin(&m);
    tiny_set_u32(&m, A "feed_forward_length", 63);
    expect_refused(&m, HEARTH_ERROR_FORMAT, "'blk.0.ffn_gate.weight'", "[32, 63]");
}

TEST(arrays_by_layer_have_an_entry_for_each)
{
    static const char *const keys[] = {A "feed_forward_length", A "attention.head_count",
                                       A "attention.head_count_kv"};
    static const uint32_t values[] = {TINY_D_FF, TINY_HEADS, TINY_HEADS_KV};
    for (size_t i = 0; i < 3; i++) {
        tiny_model m;
        uint32_t v = values[i];
        tiny_begin(&m);
        tiny_set_array(&m, keys[i], (uint32_t[]){v, v}, 2);
        expect_accepted(&m);
        tiny_begin(&m);
        tiny_set_array(&m, keys[i], (uint32_t[]){v, v, v}, 3);
        expect_refused(&m, HEARTH_ERROR_FORMAT, keys[i], "2");
        tiny_begin(&m);
        tiny_set_array(&m, keys[i], (uint32_t[]){v}, 1);
        expect_refused(&m, HEARTH_ERROR_FORMAT, keys[i], "2");
        tiny_begin(&m);
        tiny_set_array(&m, keys[i], (uint32_t[]){v, 0}, 2);
        expect_refused(&m, HEARTH_ERROR_FORMAT, keys[i], "entry 1 is 0");
    }
}

TEST(head_counts_divide)
{
    refuse_u32(A "attention.head_count", 0, "allowed are 1 to 4096");
    refuse_u32(A "attention.head_count", 4097, "allowed are 1 to 4096");
    refuse_u32(A "attention.head_count", 5, "");
    refuse_u32(A "attention.head_count_kv", 0, "allowed are 1 to 4096");
    refuse_u32(A "attention.head_count_kv", 3, "4");
    refuse_u32(A "attention.head_count_kv", 8, "4");
}

TEST(head_lengths_are_even_and_equal)
{
    static const uint32_t bad[] = {0, 1, 65537, UINT32_MAX};
    tiny_model m;
    for (size_t i = 0; i < 4; i++) refuse_u32(A "attention.key_length", bad[i], "allowed are 2 to 65536");
    tiny_begin(&m);
    tiny_set_u32(&m, A "attention.key_length", 7);
    tiny_set_u32(&m, A "attention.value_length", 7);
    expect_refused(&m, HEARTH_ERROR_FORMAT, "attention.key_length", "is 7: an even number");
    refuse_u32(A "attention.value_length", 0, "allowed are");
    tiny_begin(&m);
    tiny_set_u32(&m, A "attention.value_length", 4);
    expect_refused(&m, HEARTH_ERROR_UNSUPPORTED, A "attention.value_length is 4", "key_length is 8");
    tiny_begin(&m);
    tiny_set_u32(&m, A "attention.key_length", 16);
    tiny_set_u32(&m, A "attention.value_length", 16);
    expect_refused(&m, HEARTH_ERROR_FORMAT, "'blk.0.attn_q.weight'", "[32, 64]");
}

TEST(rotation_fits_the_head)
{
    refuse_u32(A "rope.dimension_count", 0, "allowed are 2 to 8");
    refuse_u32(A "rope.dimension_count", 9, "allowed are 2 to 8");
    refuse_u32(A "rope.dimension_count", UINT32_MAX, "allowed are 2 to 8");
    refuse_u32(A "rope.dimension_count", 7, "even");
    accept_u32(A "rope.dimension_count", 8);
}

TEST(rotation_values_are_finite_and_positive)
{
    static const float bad[] = {-1.0f, NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < 4; i++) {
        refuse_f32(A "rope.freq_base", bad[i]);
        refuse_f32(A "rope.scaling.factor", bad[i]);
        refuse_f32(A "rope.scaling.attn_factor", bad[i]);
        refuse_f32(A "rope.scale_linear", bad[i]);
    }
    refuse_f32(A "rope.freq_base", 0.0f);
    refuse_f32(A "rope.freq_base", 1e-40f);
    refuse_f32(A "rope.scaling.factor", 1e-40f);
    refuse_u32(A "rope.scaling.original_context_length", 0, "allowed are");
    tiny_model m;
    tiny_begin(&m);
    tiny_set_f32(&m, A "rope.scaling.factor", 0.0f); /* the format's word for none */
    expect_accepted(&m);
}

TEST(kinds_of_scaling_that_are_not_supported_are_named)
{
    static const char *const kinds[] = {"longrope", "", "YARN"};
    for (size_t i = 0; i < 3; i++) {
        tiny_model m;
        tiny_begin(&m);
        tiny_set_text(&m, A "rope.scaling.type", kinds[i]);
        expect_refused(&m, HEARTH_ERROR_UNSUPPORTED, A "rope.scaling.type", "supported: none, linear, yarn");
    }
}

TEST(epsilon_is_finite_and_not_negative)
{
    static const float bad[] = {-1e-5f, NAN, INFINITY, 1e9f};
    for (size_t i = 0; i < 4; i++) refuse_f32(A "attention.layer_norm_rms_epsilon", bad[i]);
    tiny_model m;
    tiny_begin(&m);
    tiny_set_f32(&m, A "attention.layer_norm_rms_epsilon", 0.0f);
    expect_accepted(&m);
    tiny_begin(&m);
    tiny_set_u32(&m, A "attention.layer_norm_rms_epsilon", 1);
    expect_refused(&m, HEARTH_ERROR_FORMAT, A "attention.layer_norm_rms_epsilon", "expected f32 or f64");
}

TEST(context_length_is_positive)
{
    refuse_u32(A "context_length", 0, "allowed are 1 to");
    accept_u32(A "context_length", 16777216);
}

TEST(a_session_has_the_context_that_it_asks_for)
{
    tiny_model m;
    hearth_model *model = NULL;
    tiny_begin(&m);
    tiny_set_u32(&m, A "context_length", 20000);
    gguf_bytes file = tiny_write(&m);
    tiny_free(&m);
    CHECK_OK(hearth_model_open_memory(file.data, file.n, "tiny.gguf", NULL, &model, err));
    const uint32_t asked[] = {0, 7, HEARTH_CTX_TRAINED}, got[] = {4096, 7, 20000};
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        hearth_session *s = NULL;
        hearth_session_options o = {.n_ctx = asked[i], .n_batch = 1, .n_thread = 1, .kv = HEARTH_KV_F32};
        CHECK_OK(hearth_session_open(model, &o, &s, err));
        CHECK_INT(hearth_session_n_ctx(s), got[i]);
        hearth_session_close(s);
    }
    hearth_model_close(model);
    gguf_free(&file);
}

TEST(an_absurd_context_is_refused_with_its_bytes)
{
    tiny_model m;
    hearth_model *model = NULL;
    hearth_session *s = NULL;
    hearth_error why = {0};
    tiny_begin(&m);
    gguf_bytes file = tiny_write(&m);
    tiny_free(&m);
    CHECK_OK(hearth_model_open_memory(file.data, file.n, "tiny.gguf", NULL, &model, err));
    hearth_session_options o = {.n_ctx = UINT32_MAX - 1, .n_batch = 1, .n_thread = 1, .kv = HEARTH_KV_F32};
    hearth_status st = hearth_session_open(model, &o, &s, &why);
    if (st == HEARTH_OK)
        CHECK(hearth_session_bytes(model, &o) > (uint64_t)1 << 40); /* a system that overcommits */
    else CHECK(st == HEARTH_ERROR_MEMORY && strstr(why.message, "iB for a context of "));
    hearth_session_close(s);
    hearth_model_close(model);
    gguf_free(&file);
}

/* ---- C24, C26: experts and activations ----------------------------------------------------------- */

TEST(experts_are_refused_by_key)
{
    tiny_model m;
    tiny_begin(&m);
    tiny_set_u32(&m, A "expert_count", 8);
    expect_refused(&m, HEARTH_ERROR_UNSUPPORTED, A "expert_count is 8", "not supported");
    tiny_begin(&m);
    tiny_set_text(&m, A "expert_count", "8");
    expect_refused(&m, HEARTH_ERROR_FORMAT, A "expert_count", "expected an integer");
    accept_u32(A "expert_count", 0);
}

TEST(expert_tensors_without_the_key_are_not_ignored)
{
    tiny_model m;
    tiny_begin(&m);
    tiny_add_tensor(&m, "blk.0.ffn_gate_inp.weight", 0, 2, TINY_D_MODEL, 4);
    expect_refused(&m, HEARTH_ERROR_FORMAT, "'blk.0.ffn_gate_inp.weight'", A "expert_count");
}

TEST(activations_are_known_or_refused)
{
    static const char *const known[] = {"swiglu", "silu", "geglu", "gelu", "reglu", "relu", "relu2", "drelu"};
    static const char *const unknown[] = {"", "SiLU", "tanh"};
    tiny_model m;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        tiny_begin(&m);
        tiny_set_text(&m, "hearth.ffn.activation", known[i]);
        expect_accepted(&m);
    }
    for (size_t i = 0; i < 3; i++) {
        tiny_begin(&m);
        tiny_set_text(&m, "hearth.ffn.activation", unknown[i]);
        expect_refused(&m, HEARTH_ERROR_UNSUPPORTED, "hearth.ffn.activation", "known: swiglu");
    }
    tiny_begin(&m);
    tiny_set_u32(&m, "hearth.ffn.activation", 1);
    expect_refused(&m, HEARTH_ERROR_FORMAT, "hearth.ffn.activation", "expected text");
}

static void drop_gates(tiny_model *m)
{
    tiny_find(m, "blk.0.ffn_gate.weight")->gone = true;
    tiny_find(m, "blk.1.ffn_gate.weight")->gone = true;
}

/* The name of a gated form asks for a gate; so does a llama that names no activation. */
TEST(a_gate_is_missed_where_the_activation_needs_it)
{
    static const char *const gated[] = {"geglu", "reglu", "drelu", NULL};
    static const char *const plain[] = {"swiglu", "relu", "relu2", "silu", "gelu"};
    tiny_model m;
    for (size_t i = 0; i < 4; i++) {
        tiny_begin(&m);
        if (gated[i]) tiny_set_text(&m, "hearth.ffn.activation", gated[i]);
        drop_gates(&m);
        expect_refused(&m, HEARTH_ERROR_FORMAT, "'blk.0.ffn_gate.weight'", "missing");
    }
    for (size_t i = 0; i < 5; i++) {
        tiny_begin(&m);
        tiny_set_text(&m, "hearth.ffn.activation", plain[i]);
        drop_gates(&m);
        expect_accepted(&m);
    }
}

TEST(a_gate_in_some_layers_only_is_refused)
{
    tiny_model m;
    tiny_begin(&m);
    tiny_set_text(&m, "hearth.ffn.activation", "relu");
    tiny_find(&m, "blk.1.ffn_gate.weight")->gone = true;
    expect_refused(&m, HEARTH_ERROR_FORMAT, "'blk.1.ffn_gate.weight'", "missing");
}

/* ---- D14 to D17: tensors ---------------------------------------------------------------------------- */

TEST(required_tensors_that_are_missing_are_named)
{
    tiny_model m;
    tiny_begin(&m);
    uint32_t n = m.n_tensor;
    tiny_free(&m);
    for (uint32_t i = 0; i < n; i++) {
        char name[80];
        tiny_begin(&m);
        snprintf(name, sizeof name, "'%s'", m.tensors[i].name);
        m.tensors[i].gone = true;
        if (strcmp(name, "'output.weight'") == 0) expect_accepted(&m); /* the head is tied */
        else expect_refused(&m, HEARTH_ERROR_FORMAT, name, "missing");
    }
}

typedef enum spoiling { TRANSPOSED, SHORTER, LONGER, THIRD_DIM, FLAT, N_SPOILING } spoiling;

/* False where the change leaves the shape right. */
static bool spoil(tiny_tensor *t, spoiling how)
{
    bool vector = t->n_dim == 1;
    uint64_t d0 = t->dim[0];
    switch (how) {
    case TRANSPOSED:
        if (vector || d0 == t->dim[1]) return false;
        t->dim[0] = t->dim[1], t->dim[1] = d0;
        return true;
    case SHORTER: t->dim[vector ? 0 : 1]--; return true;
    case LONGER: t->dim[0]++; return true;
    case THIRD_DIM: t->n_dim = 3, t->dim[2] = 2; return true;
    case FLAT:
        if (vector) return false;
        t->n_dim = 1, t->dim[0] *= t->dim[1], t->dim[1] = 1;
        return true;
    case N_SPOILING: break;
    }
    return false;
}

TEST(shapes_that_are_wrong_are_refused_with_both_shapes)
{
    tiny_model m;
    tiny_begin(&m);
    uint32_t n = m.n_tensor;
    tiny_free(&m);
    for (uint32_t i = 0; i < n; i++)
        for (int how = 0; how < N_SPOILING; how++) {
            char name[80];
            tiny_begin(&m);
            snprintf(name, sizeof name, "%s", m.tensors[i].name);
            if (!spoil(&m.tensors[i], (spoiling)how)) tiny_free(&m);
            else if (strcmp(name, "token_embd.weight") == 0)
                expect_refused(&m, HEARTH_ERROR_FORMAT, name, "");
            else expect_refused(&m, HEARTH_ERROR_FORMAT, name, "metadata ask for [");
        }
}

TEST(types_that_do_not_fit_the_role_are_refused)
{
    static const char *const vectors[] = {"blk.0.attn_norm.weight", "blk.1.ffn_norm.weight", "output_norm.weight"};
    tiny_model m;
    for (size_t i = 0; i < 3; i++) {
        tiny_begin(&m);
        tiny_find(&m, vectors[i])->type = 8;
        expect_refused(&m, HEARTH_ERROR_UNSUPPORTED, vectors[i], "F32, F16 or BF16");
        tiny_begin(&m);
        tiny_find(&m, vectors[i])->type = 1;
        expect_accepted(&m);
    }
    tiny_begin(&m);
    tiny_add_tensor(&m, "blk.0.attn_q.bias", 8, 1, TINY_D_MODEL, 1);
    expect_refused(&m, HEARTH_ERROR_UNSUPPORTED, "blk.0.attn_q.bias", "F32, F16 or BF16");
    tiny_begin(&m);
    tiny_set_u32(&m, A "embedding_length", 256);
    *tiny_find(&m, "token_embd.weight") =
        (tiny_tensor){"token_embd.weight", 16, 2, {256, TINY_VOCAB, 1, 1}, false};
    expect_refused(&m, HEARTH_ERROR_UNSUPPORTED, "IQ2_XXS", "Q4_0");
}

TEST(types_may_differ_from_tensor_to_tensor)
{
    static const uint32_t types[] = {0, 1, 2, 8, 30};
    tiny_model m;
    tiny_begin(&m);
    for (uint32_t i = 0; i < m.n_tensor; i++)
        if (m.tensors[i].n_dim == 2) m.tensors[i].type = types[i % 5];
    expect_accepted(&m);
}

TEST(the_vocabulary_has_a_row_for_each_token)
{
    tiny_model m;
    tiny_begin(&m);
    tiny_find(&m, "token_embd.weight")->dim[1] = TINY_VOCAB - 1;
    tiny_find(&m, "output.weight")->dim[1] = TINY_VOCAB - 1;
    expect_refused(&m, HEARTH_ERROR_FORMAT, "tokenizer.ggml.tokens", "266 rows");
    tiny_begin(&m);
    tiny_find(&m, "token_embd.weight")->dim[1] = TINY_VOCAB + 5;
    tiny_find(&m, "output.weight")->dim[1] = TINY_VOCAB + 5;
    expect_accepted(&m); /* padding */
}

TEST(factors_of_rotation_have_the_right_length)
{
    tiny_model m;
    tiny_begin(&m);
    tiny_add_tensor(&m, "rope_freqs.weight", 0, 1, 3, 1);
    expect_refused(&m, HEARTH_ERROR_FORMAT, "'rope_freqs.weight'", "[4, 1]");
    tiny_begin(&m);
    tiny_add_tensor(&m, "rope_freqs.weight", 1, 1, 4, 1); /* F16 tensors are written as zeros */
    expect_refused(&m, HEARTH_ERROR_FORMAT, "'rope_freqs.weight'", "weight 0 is 0");
    tiny_begin(&m);
    tiny_add_tensor(&m, "rope_freqs.weight", 0, 1, 4, 1);
    expect_accepted(&m);
}

static int n_warning;
static char warning[600];
static void keep_warning(void *user, hearth_log_level level, const char *line)
{
    (void)user;
    if (level != HEARTH_LOG_WARN) return;
    n_warning++;
    snprintf(warning, sizeof warning, "%s", line);
}

static void add_unused(tiny_model *m)
{
    tiny_begin(m);
    tiny_add_tensor(m, "blk.1.extra.one", 0, 1, 4, 1);
    tiny_add_tensor(m, "extra.two", 0, 1, 4, 1);
}

TEST(tensors_that_are_not_used_are_refused_or_mentioned_once)
{
    tiny_model m;
    hearth_error why = {0};
    hearth_model *model = NULL;
    hearth_model_options o = hearth_model_defaults();
    add_unused(&m);
    expect_refused(&m, HEARTH_ERROR_UNSUPPORTED, "'blk.1.extra.one'", "(2 such tensors)");
    n_warning = 0;
    o.allow_unused = true;
    hearth_log_set(keep_warning, NULL);
    add_unused(&m);
    gguf_bytes file = tiny_write(&m);
    CHECK_INT(hearth_model_open_memory(file.data, file.n, "tiny.gguf", &o, &model, &why), HEARTH_OK);
    hearth_log_set(NULL, NULL);
    hearth_model_close(model);
    gguf_free(&file);
    tiny_free(&m);
    CHECK_INT(n_warning, 1);
    CHECK(strstr(warning, "2 of 23 tensors are not used") && strstr(warning, "extra.one"));
}

TEST(tensors_on_which_no_logit_depends_are_left_silently)
{
    static const char *const names[] = {"v.blk.0.attn_q.weight", "mm.0.weight",
                                        "cls.output.weight",     "dense_2.weight",
                                        "dense_3.weight",        "blk.0.attn_rot_embd.weight"};
    tiny_model m;
    n_warning = 0;
    hearth_log_set(keep_warning, NULL);
    tiny_begin(&m);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) tiny_add_tensor(&m, names[i], 0, 1, 4, 1);
    expect_accepted(&m);
    hearth_log_set(NULL, NULL);
    CHECK_INT(n_warning, 0);
    tiny_begin(&m);
    tiny_add_tensor(&m, "vision.weight", 0, 1, 4, 1);
    expect_refused(&m, HEARTH_ERROR_UNSUPPORTED, "'vision.weight'", "(1 such tensors)");
}

TEST(a_file_without_tensors_is_no_model)
{
    tiny_model m;
    tiny_begin(&m);
    for (uint32_t i = 0; i < m.n_tensor; i++) m.tensors[i].gone = true;
    expect_refused(&m, HEARTH_ERROR_FORMAT, "token_embd.weight", "missing");
}
