/* Metadata and tensors that do not make a model: each case changes one thing in a
 * model that opens, and the refusal names the file, the thing, and what was wanted. */
#include "support/test.h"
#include "support/models/tiny_case.h"

#define A "llama."

enum { U8 = 0, I8 = 1, U16 = 2, I16 = 3, U32 = 4, I32 = 5, F32 = 6, BOOL = 7, U64 = 10, I64 = 11, F64 = 12 };

/* An integer key with one value that must be refused. */
static void refuse_u32(const char *key, uint32_t value, const char *word)
{
    tiny_set_u32(&tiny, key, value);
    tiny_expect_format_error(key, word);
}

static void refuse_f32(const char *key, float value)
{
    tiny_set_f32(&tiny, key, value);
    tiny_expect_format_error(key, "allowed are");
}

static void accept_u32(const char *key, uint32_t value)
{
    tiny_set_u32(&tiny, key, value);
    tiny_expect_accepted();
}

static const char *const required[] = {
    A "block_count", A "context_length", A "embedding_length", A "feed_forward_length", A "attention.head_count",
};
enum { N_REQUIRED = sizeof required / sizeof *required };

/* ---- C8 to C11: keys ------------------------------------------------------------------------ */

TEST(the_tiny_model_opens) { tiny_expect_accepted(); }

TEST(required_keys_that_are_missing_are_named)
{
    for (int i = 0; i < N_REQUIRED; i++) {
        tiny_drop_key(&tiny, required[i]);
        tiny_expect_format_error(required[i], "missing (needed by architecture llama)");
    }
    tiny_drop_key(&tiny, A "attention.layer_norm_rms_epsilon");
    tiny_expect_format_error(A "attention.layer_norm_rms_epsilon", "missing");
    tiny_drop_key(&tiny, "general.architecture");
    tiny_expect_format_error("general.architecture", "missing");
}

TEST(keys_of_another_kind_are_refused_with_both_kinds)
{
    for (int i = 0; i < N_REQUIRED; i++) {
        tiny_set_text(&tiny, required[i], "2");
        tiny_expect_format_error(required[i], "expected an integer");
        tiny_set_f32(&tiny, required[i], 2.0f);
        tiny_expect_format_error(required[i], "expected an integer");
        tiny_set(&tiny, required[i], BOOL, 1, 1);
        tiny_expect_format_error(required[i], "expected an integer");
        tiny_set_array(&tiny, required[i], (uint32_t[]){2}, 0);
        tiny_expect_format_error(required[i], "at ");
        tiny_set(&tiny, required[i], I32, (uint32_t)-1, 4);
        tiny_expect_format_error(required[i], "is -1");
        if (strcmp(required[i], A "context_length") == 0) continue; /* any is taken */
        tiny_set(&tiny, required[i], U64, (uint64_t)1 << 63, 8);
        tiny_expect_format_error(required[i], "allowed are");
    }
}

TEST(integers_of_any_width_serve)
{
    static const struct {
        uint32_t type;
        size_t size;
    } kinds[] = {{U8, 1}, {I8, 1}, {U16, 2}, {I16, 2}, {I32, 4}, {U64, 8}, {I64, 8}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        tiny_set(&tiny, A "block_count", kinds[i].type, TINY_LAYERS, kinds[i].size);
        tiny_set(&tiny, A "attention.head_count", kinds[i].type, TINY_HEADS, kinds[i].size);
        tiny_set(&tiny, A "embedding_length", kinds[i].type, TINY_D_MODEL, kinds[i].size);
        tiny_expect_accepted();
    }
}

TEST(architectures_are_matched_exactly)
{
    static const char *const names[] = {"", "LLAMA", "llama2", "lama", "\x1b[31mllama"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        tiny_set_text(&tiny, "general.architecture", names[i]);
        tiny_expect_refused(HEARTH_ERROR_UNSUPPORTED, "architecture '", "supported: llama");
    }
    tiny_set_u32(&tiny, "general.architecture", 1);
    tiny_expect_format_error("general.architecture", "expected text");
    static char endless[1 << 20];
    memset(endless, 'a', sizeof endless - 1);
    tiny_set_text(&tiny, "general.architecture", endless);
    tiny_expect_refused(HEARTH_ERROR_UNSUPPORTED, "aaa...", "supported: llama");
}

TEST(escapes_in_an_architecture_are_shown)
{
    hearth_error why = {0};
    hearth_model *model = NULL;
    tiny_set_text(&tiny, "general.architecture", "\x1b[31m\n");
    CHECK_INT(tiny_open(&model, &why), HEARTH_ERROR_UNSUPPORTED);
    CHECK(strstr(why.message, "\\x1b[31m\\x0a") && !strchr(why.message, '\x1b') && !strchr(why.message, '\n'));
    tiny_close(model);
}

TEST(a_key_that_one_architecture_needs_is_missed_by_its_name)
{
    enum { TYPE_BOOL = 7 };
    tiny_become(&tiny, "gptneox");
    tiny_expect_format_error("gptneox.use_parallel_residual", "architecture gptneox");
    for (uint64_t value = 0; value < 2; value++) {
        tiny_become(&tiny, "gptneox");
        tiny_set(&tiny, "gptneox.use_parallel_residual", TYPE_BOOL, value, 1);
        tiny_expect_accepted();
    }
}

TEST(keys_of_another_architecture_do_not_serve)
{
    tiny_drop_key(&tiny, A "embedding_length");
    tiny_set_u32(&tiny, "qwen2.embedding_length", TINY_D_MODEL);
    tiny_expect_format_error(A "embedding_length", "missing");
}

/* ---- C15 to C23: values --------------------------------------------------------------------- */

TEST(block_count_is_that_of_the_layers)
{
    refuse_u32(A "block_count", 0, "allowed are 1 to 1024");
    refuse_u32(A "block_count", 1025, "allowed are 1 to 1024");
    refuse_u32(A "block_count", UINT32_MAX, "allowed are 1 to 1024");
    refuse_u32(A "block_count", 1, "blk.1.");
    tiny_set_u32(&tiny, A "block_count", 3);
    tiny_expect_format_error("'blk.2.attn_norm.weight'", "missing");
}

TEST(widths_are_those_of_the_tensors)
{
    static const uint32_t bad[] = {0, 262145, UINT32_MAX};
    for (size_t i = 0; i < 3; i++) refuse_u32(A "embedding_length", bad[i], "allowed are 1 to 262144");
    refuse_u32(A "embedding_length", 1, "no multiple of 4 heads");
    static const uint32_t bad_ff[] = {0, 1048577, UINT32_MAX};
    for (size_t i = 0; i < 3; i++) refuse_u32(A "feed_forward_length", bad_ff[i], "allowed are 1 to 1048576");
    tiny_set_u32(&tiny, A "embedding_length", 64);
    tiny_expect_format_error("'token_embd.weight'", "[64, 267]");
    tiny_set_u32(&tiny, A "feed_forward_length", 63);
    tiny_expect_format_error("'blk.0.ffn_gate.weight'", "[32, 63]");
}

TEST(arrays_by_layer_have_an_entry_for_each)
{
    static const char *const keys[] = {A "feed_forward_length", A "attention.head_count",
                                       A "attention.head_count_kv"};
    static const uint32_t values[] = {TINY_D_FF, TINY_HEADS, TINY_HEADS_KV};
    for (size_t i = 0; i < 3; i++) {
        uint32_t v = values[i];
        tiny_set_array(&tiny, keys[i], (uint32_t[]){v, v}, 2);
        tiny_expect_accepted();
        tiny_set_array(&tiny, keys[i], (uint32_t[]){v, v, v}, 3);
        tiny_expect_format_error(keys[i], "2");
        tiny_set_array(&tiny, keys[i], (uint32_t[]){v}, 1);
        tiny_expect_format_error(keys[i], "2");
        tiny_set_array(&tiny, keys[i], (uint32_t[]){v, 0}, 2);
        tiny_expect_format_error(keys[i], "entry 1 is 0");
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
    for (size_t i = 0; i < 4; i++) refuse_u32(A "attention.key_length", bad[i], "allowed are 2 to 65536");
    tiny_set_u32(&tiny, A "attention.key_length", 7);
    tiny_set_u32(&tiny, A "attention.value_length", 7);
    tiny_expect_format_error("attention.key_length", "is 7, expected an even number");
    refuse_u32(A "attention.value_length", 0, "allowed are");
    tiny_set_u32(&tiny, A "attention.value_length", 4);
    tiny_expect_refused(HEARTH_ERROR_UNSUPPORTED, A "attention.value_length is 4", "key_length is 8");
    tiny_set_u32(&tiny, A "attention.key_length", 16);
    tiny_set_u32(&tiny, A "attention.value_length", 16);
    tiny_expect_format_error("'blk.0.attn_q.weight'", "[32, 64]");
}

TEST(head_lengths_that_are_not_stated_are_held_to_their_range)
{
    tiny_set_u32(&tiny, A "attention.head_count", TINY_D_MODEL);
    tiny_set_u32(&tiny, A "attention.head_count_kv", TINY_D_MODEL);
    tiny_expect_format_error(A "attention.key_length", "its default is 1, allowed are 2 to 65536");
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
    tiny_set_f32(&tiny, A "rope.scaling.factor", 0.0f); /* the format's word for none */
    tiny_expect_accepted();
}

TEST(kinds_of_scaling_that_are_not_supported_are_named)
{
    static const char *const kinds[] = {"longrope", "", "YARN"};
    for (size_t i = 0; i < 3; i++) {
        tiny_set_text(&tiny, A "rope.scaling.type", kinds[i]);
        tiny_expect_refused(HEARTH_ERROR_UNSUPPORTED, A "rope.scaling.type", "supported: none, linear, yarn");
    }
}

TEST(epsilon_is_finite_and_not_negative)
{
    static const float bad[] = {-1e-5f, NAN, INFINITY, 1e9f};
    for (size_t i = 0; i < 4; i++) refuse_f32(A "attention.layer_norm_rms_epsilon", bad[i]);
    tiny_set_f32(&tiny, A "attention.layer_norm_rms_epsilon", 0.0f);
    tiny_expect_accepted();
    tiny_set_u32(&tiny, A "attention.layer_norm_rms_epsilon", 1);
    tiny_expect_format_error(A "attention.layer_norm_rms_epsilon", "expected f32 or f64");
}

TEST(context_length_is_positive)
{
    refuse_u32(A "context_length", 0, "allowed are 1 to");
    accept_u32(A "context_length", 16777216);
}

TEST(a_session_has_the_context_that_it_asks_for)
{
    hearth_model *model = NULL;
    tiny_set_u32(&tiny, A "context_length", 20000);
    CHECK_OK(tiny_open(&model, err));
    const uint32_t asked[] = {0, 7, HEARTH_CTX_TRAINED}, got[] = {4096, 7, 20000};
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        hearth_session_options o = {.n_ctx = asked[i], .n_batch = 1, .n_thread = 1, .kv = HEARTH_KV_F32};
        CLOSED(hearth_session) *s = OPENED(hearth_session, model, &o);
        CHECK_INT(hearth_session_n_ctx(s), got[i]);
    }
    tiny_close(model);
}

TEST(an_absurd_context_is_refused_with_its_bytes)
{
    hearth_model *model = NULL;
    hearth_session *s = NULL;
    hearth_error why = {0};
    CHECK_OK(tiny_open(&model, err));
    hearth_session_options o = {.n_ctx = UINT32_MAX - 1, .n_batch = 1, .n_thread = 1, .kv = HEARTH_KV_F32};
    hearth_status st = hearth_session_open(model, &o, &s, &why);
    if (st == HEARTH_OK) CHECK(hearth_session_bytes(model, &o) > (uint64_t)1 << 40); /* a system that overcommits */
    else CHECK(st == HEARTH_ERROR_MEMORY && strstr(why.message, "iB for a context of "));
    hearth_session_close(s);
    tiny_close(model);
}

/* ---- C24, C26: experts and activations ----------------------------------------------------------- */

static void set_experts(uint32_t n, uint32_t n_used)
{
    tiny_set_u32(&tiny, A "expert_count", n);
    tiny_set_u32(&tiny, A "expert_used_count", n_used);
}

TEST(counts_of_experts_are_held_to_their_range)
{
    tiny_set_u32(&tiny, A "expert_count", 8);
    tiny_expect_format_error(A "expert_used_count", "missing");
    static const uint32_t wrong[] = {0, 9, 1u << 31};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        set_experts(8, wrong[i]);
        tiny_expect_format_error(A "expert_used_count", "allowed are 1 to 8");
    }
    set_experts(1u << 31, 1);
    tiny_expect_format_error(A "expert_count", "allowed are 0 to 4096");
    set_experts(8, 2);
    tiny_set_u32(&tiny, A "expert_group_count", 3);
    tiny_set_u32(&tiny, A "expert_group_used_count", 1);
    tiny_expect_format_error(A "expert_group_count", "8 experts");
    set_experts(8, 2);
    tiny_expect_format_error("'blk.0.ffn_gate_inp.weight'", "missing");
}

/* qwen3moe reads no score and always takes softmax; dots1 reads it. */
TEST(scores_of_routers_that_are_not_known_are_refused_wherever_they_are_stated)
{
    static const char *const archs[] = {"llama", "bamboo", "qwen3moe", "dots1"};
    for (size_t i = 0; i < sizeof archs / sizeof *archs; i++) {
        char key[64];
        snprintf(key, sizeof key, "%s.expert_gating_func", archs[i]);
        for (uint32_t value = 5; value > 0; value *= 65536) {
            if (i > 0) tiny_become(&tiny, archs[i]);
            tiny_set_u32(&tiny, key, value);
            tiny_expect_refused(HEARTH_ERROR_UNSUPPORTED, key, "supported: 1 (softmax), 2 (sigmoid)");
        }
        if (i > 0) tiny_become(&tiny, archs[i]);
        tiny_set_text(&tiny, key, "softmax");
        tiny_expect_format_error(key, "expected an integer");
    }
    for (uint32_t value = 0; value <= 4; value++) {
        tiny_become(&tiny, "dots1");
        tiny_set_u32(&tiny, "dots1.expert_gating_func", value);
        tiny_expect_warning(NULL);
    }
}

TEST(a_score_that_an_architecture_does_not_read_is_mentioned)
{
    for (uint32_t value = 0; value <= 4; value++) {
        tiny_become(&tiny, "qwen3moe");
        tiny_set_u32(&tiny, "qwen3moe.expert_gating_func", value);
        tiny_expect_warning(value > 1 ? "qwen3moe.expert_gating_func" : NULL);
    }
    tiny_set_u32(&tiny, A "expert_gating_func", 2); /* of a dense model it means nothing */
    tiny_expect_warning(NULL);
}

TEST(groups_of_experts_are_counted_or_mentioned)
{
    tiny_become(&tiny, "qwen3moe");
    tiny_set_u32(&tiny, "qwen3moe.expert_group_used_count", 2);
    tiny_expect_warning("qwen3moe.expert_group_used_count");
    tiny_become(&tiny, "qwen3moe");
    tiny_set_u32(&tiny, "qwen3moe.expert_group_used_count", 5);
    tiny_expect_format_error("qwen3moe.expert_group_used_count", "allowed are 0 to 4");
    for (uint32_t n = 0; n <= 1; n++) { /* as converters write it for models without groups */
        tiny_become(&tiny, "qwen3moe");
        tiny_set_u32(&tiny, "qwen3moe.expert_group_count", n);
        tiny_set_u32(&tiny, "qwen3moe.expert_group_used_count", n);
        tiny_expect_warning(NULL);
    }
    tiny_become(&tiny, "qwen3moe");
    tiny_set_u32(&tiny, "qwen3moe.expert_group_count", 2);
    tiny_expect_format_error("qwen3moe.expert_group_used_count", "missing");
    tiny_become(&tiny, "qwen3moe");
    tiny_set_u32(&tiny, "qwen3moe.expert_group_count", 2);
    tiny_set_u32(&tiny, "qwen3moe.expert_group_used_count", 1);
    tiny_expect_warning(NULL);
}

TEST(dense_models_use_no_experts)
{
    tiny_set_u32(&tiny, A "expert_used_count", 2);
    tiny_expect_format_error(A "expert_used_count at ", A "expert_count is 0 or missing");
    tiny_set_u32(&tiny, A "expert_count", 0);
    tiny_set_u32(&tiny, A "expert_group_count", 4);
    tiny_expect_format_error(A "expert_group_count at ", " is 4, but " A "expert_count is 0 or missing");
    tiny_set_u32(&tiny, A "expert_count", 0);
    tiny_set_u32(&tiny, A "expert_used_count", 0);
    tiny_set_u32(&tiny, A "expert_group_count", 0);
    tiny_set_u32(&tiny, A "expert_group_used_count", 0);
    tiny_expect_warning(NULL);
}

TEST(layers_that_are_dense_by_a_key_name_it)
{
    tiny_become(&tiny, "dots1");
    tiny_drop_key(&tiny, "dots1.feed_forward_length");
    tiny_expect_format_error("dots1.feed_forward_length", "missing");
    tiny_become(&tiny, "dots1");
    tiny_set_u32(&tiny, "dots1.leading_dense_block_count", TINY_LAYERS + 1);
    tiny_expect_format_error("dots1.leading_dense_block_count", "allowed are 0 to 2");
    tiny_become(&tiny, "dots1");
    tiny_set_u32(&tiny, "dots1.leading_dense_block_count", TINY_LAYERS);
    tiny_expect_format_error("'blk.1.ffn_gate_inp.weight'", "dots1.leading_dense_block_count is 2");
    tiny_become(&tiny, "dots1");
    tiny_set_u32(&tiny, "dots1.leading_dense_block_count", 0);
    tiny_expect_format_error("'blk.0.ffn_gate_inp.weight'", "missing");
    for (uint32_t step = 1; step <= 3; step++) { /* the second layer has experts */
        tiny_become(&tiny, "ernie4_5-moe");
        tiny_set_u32(&tiny, "ernie4_5-moe.interleave_moe_layer_step", step);
        if (step < 3) tiny_expect_warning(NULL);
        else tiny_expect_format_error("'blk.1.ffn_gate_inp.weight'", "ernie4_5-moe.interleave_moe_layer_step is 3");
    }
}

TEST(experts_are_refused_where_an_architecture_has_none)
{
    tiny_become(&tiny, "bamboo");
    tiny_set_u32(&tiny, "bamboo.expert_count", 8);
    tiny_expect_refused(HEARTH_ERROR_UNSUPPORTED, "bamboo.expert_count is 8", "has no experts");
    tiny_set_text(&tiny, A "expert_count", "8");
    tiny_expect_format_error(A "expert_count", "expected an integer");
    accept_u32(A "expert_count", 0);
}

TEST(blocks_that_predict_further_tokens_are_not_layers)
{
    tiny_set_u32(&tiny, A "block_count", TINY_LAYERS + 1);
    tiny_set_u32(&tiny, A "nextn_predict_layers", 1);
    char name[40];
    snprintf(name, sizeof name, "blk.%d.nextn.eh_proj.weight", TINY_LAYERS);
    tiny_add_tensor(&tiny, name, 0, 2, TINY_D_MODEL, TINY_D_MODEL);
    tiny_expect_accepted();
    tiny_set_u32(&tiny, A "nextn_predict_layers", TINY_LAYERS);
    tiny_expect_format_error(A "nextn_predict_layers", "allowed are 0 to");
}

TEST(keys_that_ask_for_another_computation_are_refused)
{
    enum { TYPE_BOOL = 7 };
    tiny_set(&tiny, A "attention.causal", TYPE_BOOL, 0, 1);
    tiny_expect_refused(HEARTH_ERROR_UNSUPPORTED, A "attention.causal is 0", "not supported");
    tiny_set(&tiny, A "attention.causal", TYPE_BOOL, 1, 1);
    tiny_expect_accepted();
    tiny_become(&tiny, "qwen3moe");
    tiny_set_u32(&tiny, "qwen3moe.expert_group_count", 3);
    tiny_set_u32(&tiny, "qwen3moe.expert_group_used_count", 1);
    tiny_expect_format_error("qwen3moe.expert_group_count", "groups");
}

/* Keys with their neutral values, by architecture; D_HEAD: all dimensions of windows rotate as in other layers. */
TEST(keys_of_an_architecture_that_ask_for_another_computation_are_refused)
{
    enum { D_HEAD = TINY_D_MODEL / TINY_HEADS, TYPE_I8 = 1, TYPE_I32 = 5 };
    static const struct {
        const char *arch, *key;
        uint32_t neutral;
    } cases[] = {{"gemma3", "rope.dimension_count_swa", D_HEAD},
                 {"nanbeige", "num_loops", 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char key[64], shown[80];
        snprintf(key, sizeof key, "%s.%s", cases[i].arch, cases[i].key);
        snprintf(shown, sizeof shown, "%s is %u", key, cases[i].neutral + 2);
        tiny_become(&tiny, cases[i].arch);
        tiny_expect_accepted(); /* without the key */
        for (int other = 0; other < 2; other++) {
            uint32_t value = cases[i].neutral + (other ? 2 : 0);
            for (int kind = 0; kind < 3; kind++) {
                tiny_become(&tiny, cases[i].arch);
                if (kind == 0) tiny_set_u32(&tiny, key, value);
                else if (kind == 1) tiny_set_f32(&tiny, key, (float)value);
                else tiny_set(&tiny, key, TYPE_I8, value, 1);
                if (other) tiny_expect_refused(HEARTH_ERROR_UNSUPPORTED, shown, "not supported");
                else tiny_expect_accepted();
            }
        }
        tiny_become(&tiny, cases[i].arch);
        tiny_set_text(&tiny, key, "1");
        tiny_expect_format_error(key, "expected");
        tiny_become(&tiny, cases[i].arch);
        tiny_set(&tiny, key, TYPE_I32, UINT32_MAX, 4);
        tiny_expect_format_error(key, "-1");
    }
    tiny_set_u32(&tiny, A "num_loops", 2); /* of another architecture, and without windows */
    tiny_set_u32(&tiny, A "rope.dimension_count_swa", 4);
    tiny_set_f32(&tiny, A "attention.temperature_scale", 2.0f);
    tiny_expect_accepted();
}

static void set_sections(const char *key, const uint32_t *values, uint64_t n)
{
    tiny_become(&tiny, "qwen3vl");
    tiny_set_array(&tiny, key, values, n);
}

TEST(sections_of_rotation_are_up_to_four_sizes)
{
    static const char key[] = "qwen3vl.rope.dimension_sections";
    static const uint32_t sizes[] = {2, 1, 1, 0, 0};
    tiny_become(&tiny, "qwen3vl");
    tiny_expect_accepted();
    for (uint64_t n = 0; n <= 4; n++) {
        set_sections(key, sizes, n);
        tiny_expect_accepted();
    }
    set_sections(key, sizes, 5);
    tiny_expect_format_error("qwen3vl.rope.dimension_sections at ", "expected up to 4 integers");
    set_sections(key, (uint32_t[]){2, 65537}, 2);
    tiny_expect_format_error(key, "at most 65536 each");
    set_sections(key, (uint32_t[]){2, UINT32_MAX}, 2);
    tiny_expect_format_error(key, "at most 65536 each");
    tiny_become(&tiny, "qwen3vl");
    tiny_set_u32(&tiny, key, 2);
    tiny_expect_format_error(key, "expected up to 4 integers");
    tiny_become(&tiny, "qwen3vl");
    tiny_set_floats(&tiny, key, (float[]){2.0f, 1.0f}, 2);
    tiny_expect_format_error(key, "expected up to 4 integers");
    tiny_set_text(&tiny, A "rope.dimension_sections", "none"); /* llama has none */
    tiny_expect_accepted();
}

TEST(expert_tensors_without_the_key_are_not_ignored)
{
    tiny_add_tensor(&tiny, "blk.0.ffn_gate_inp.weight", 0, 2, TINY_D_MODEL, 4);
    tiny_expect_format_error("'blk.0.ffn_gate_inp.weight'", A "expert_count");
}

TEST(activations_are_known_or_refused)
{
    static const char *const known[] = {"swiglu", "silu", "geglu", "gelu", "reglu", "relu", "relu2", "drelu", "swiglu-oai"};
    static const char *const unknown[] = {"", "SiLU", "tanh"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        tiny_set_text(&tiny, "hearth.ffn.activation", known[i]);
        tiny_expect_accepted();
    }
    for (size_t i = 0; i < 3; i++) {
        tiny_set_text(&tiny, "hearth.ffn.activation", unknown[i]);
        tiny_expect_refused(HEARTH_ERROR_UNSUPPORTED, "hearth.ffn.activation", "known: swiglu");
    }
    tiny_set_u32(&tiny, "hearth.ffn.activation", 1);
    tiny_expect_format_error("hearth.ffn.activation", "expected text");
}

static void drop_gates(void)
{
    tiny_find(&tiny, "blk.0.ffn_gate.weight")->gone = true;
    tiny_find(&tiny, "blk.1.ffn_gate.weight")->gone = true;
}

/* The name of a gated form asks for a gate; so does a llama that names no activation. */
TEST(a_gate_is_missed_where_the_activation_needs_it)
{
    static const char *const gated[] = {"geglu", "reglu", "drelu", NULL};
    static const char *const plain[] = {"swiglu", "relu", "relu2", "silu", "gelu"};
    for (size_t i = 0; i < 4; i++) {
        if (gated[i]) tiny_set_text(&tiny, "hearth.ffn.activation", gated[i]);
        drop_gates();
        tiny_expect_format_error("'blk.0.ffn_gate.weight'", "missing");
    }
    for (size_t i = 0; i < 5; i++) {
        tiny_set_text(&tiny, "hearth.ffn.activation", plain[i]);
        drop_gates();
        tiny_expect_accepted();
    }
}

TEST(a_gate_in_some_layers_only_is_refused)
{
    tiny_set_text(&tiny, "hearth.ffn.activation", "relu");
    tiny_find(&tiny, "blk.1.ffn_gate.weight")->gone = true;
    tiny_expect_format_error("'blk.1.ffn_gate.weight'", "missing");
}

/* ---- D14 to D17: tensors ---------------------------------------------------------------------------- */

TEST(required_tensors_that_are_missing_are_named)
{
    for (uint32_t i = 0, n = tiny.n_tensor; i < n; i++) {
        char name[80];
        snprintf(name, sizeof name, "'%s'", tiny.tensors[i].name);
        tiny.tensors[i].gone = true;
        if (strcmp(name, "'output.weight'") == 0) tiny_expect_accepted(); /* the head is tied */
        else tiny_expect_format_error(name, "missing");
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
    for (uint32_t i = 0, n = tiny.n_tensor; i < n; i++)
        for (int how = 0; how < N_SPOILING; how++) {
            char name[80];
            snprintf(name, sizeof name, "%s", tiny.tensors[i].name);
            if (!spoil(&tiny.tensors[i], (spoiling)how)) tiny_reset();
            else if (strcmp(name, "token_embd.weight") == 0) tiny_expect_format_error(name, "");
            else tiny_expect_format_error(name, "metadata ask for [");
        }
}

static void transpose_down(void)
{
    for (int i = 0; i < TINY_LAYERS; i++) {
        char name[48];
        snprintf(name, sizeof name, "blk.%d.ffn_down_exps.weight", i);
        uint64_t *dim = tiny_find(&tiny, name)->dim, first = dim[0];
        dim[0] = dim[1], dim[1] = first;
    }
}

TEST(experts_by_neuron_are_told_by_their_shape)
{
    tiny_become(&tiny, "smallthinker");
    transpose_down();
    tiny_expect_accepted();
    tiny_become(&tiny, "qwen3moe");
    transpose_down();
    tiny_expect_format_error("blk.0.ffn_down_exps.weight", "metadata ask for [");
}

TEST(experts_by_neuron_are_not_guessed)
{
    static const char *const halves[] = {"gate", "up", "down"};
    tiny_become(&tiny, "smallthinker");
    tiny_set_u32(&tiny, "smallthinker.expert_feed_forward_length", TINY_D_MODEL);
    for (int i = 0; i < 3 * TINY_LAYERS; i++) {
        char name[48];
        snprintf(name, sizeof name, "blk.%d.ffn_%s_exps.weight", i / 3, halves[i % 3]);
        tiny_find(&tiny, name)->dim[0] = tiny_find(&tiny, name)->dim[1] = TINY_D_MODEL;
    }
    tiny_expect_refused(HEARTH_ERROR_UNSUPPORTED, "blk.0.ffn_down_exps.weight", "nothing tells");
}

TEST(types_that_do_not_fit_the_role_are_refused)
{
    static const char *const vectors[] = {"blk.0.attn_norm.weight", "blk.1.ffn_norm.weight", "output_norm.weight"};
    for (size_t i = 0; i < 3; i++) {
        tiny_find(&tiny, vectors[i])->type = 8;
        tiny_expect_refused(HEARTH_ERROR_UNSUPPORTED, vectors[i], "F32, F16 or BF16");
        tiny_find(&tiny, vectors[i])->type = 1;
        tiny_expect_accepted();
    }
    tiny_add_tensor(&tiny, "blk.0.attn_q.bias", 8, 1, TINY_D_MODEL, 1);
    tiny_expect_refused(HEARTH_ERROR_UNSUPPORTED, "blk.0.attn_q.bias", "F32, F16 or BF16");
    tiny_set_u32(&tiny, A "embedding_length", 256);
    *tiny_find(&tiny, "token_embd.weight") =
        (tiny_tensor){"token_embd.weight", 41, 2, {256, TINY_VOCAB, 1, 1}, false};
    tiny_expect_refused(HEARTH_ERROR_UNSUPPORTED, "Q1_0", "Q4_0");
}

TEST(types_may_differ_from_tensor_to_tensor)
{
    static const uint32_t types[] = {0, 1, 2, 8, 30};
    for (uint32_t i = 0; i < tiny.n_tensor; i++)
        if (tiny.tensors[i].n_dim == 2) tiny.tensors[i].type = types[i % 5];
    tiny_expect_accepted();
}

TEST(the_vocabulary_has_a_row_for_each_token)
{
    tiny_find(&tiny, "token_embd.weight")->dim[1] = TINY_VOCAB - 1;
    tiny_find(&tiny, "output.weight")->dim[1] = TINY_VOCAB - 1;
    tiny_expect_format_error("tokenizer.ggml.tokens", "266 rows");
    tiny_find(&tiny, "token_embd.weight")->dim[1] = TINY_VOCAB + 5;
    tiny_find(&tiny, "output.weight")->dim[1] = TINY_VOCAB + 5;
    tiny_expect_accepted(); /* padding */
}

TEST(factors_of_rotation_have_the_right_length)
{
    tiny_add_tensor(&tiny, "rope_freqs.weight", 0, 1, 3, 1);
    tiny_expect_format_error("'rope_freqs.weight'", "[4, 1]");
    tiny_add_tensor(&tiny, "rope_freqs.weight", 1, 1, 4, 1); /* F16 tensors are written as zeros */
    tiny_expect_format_error("'rope_freqs.weight'", "weight 0 is 0");
    tiny_add_tensor(&tiny, "rope_freqs.weight", 0, 1, 4, 1);
    tiny_expect_accepted();
}

static void add_unused(void)
{
    tiny_add_tensor(&tiny, "blk.1.extra.one", 0, 1, 4, 1);
    tiny_add_tensor(&tiny, "extra.two", 0, 1, 4, 1);
}

/* A reranker with a head of so many rows, and names of so many classes (0: none). */
static void add_rank_head(uint64_t n_row, uint64_t n_label)
{
    static const uint32_t labels[3];
    tiny_become(&tiny, "qwen3");
    tiny_set_u32(&tiny, "qwen3.pooling_type", HEARTH_POOLING_RANK);
    tiny_add_tensor(&tiny, "cls.output.weight", 0, 2, TINY_D_MODEL, n_row);
    if (n_label > 0) tiny_set_array(&tiny, "qwen3.classifier.output_labels", labels, n_label);
}

/* n_class 0: such a head is left alone. */
static void check_rank_head(uint64_t n_row, uint64_t n_label, uint32_t n_class)
{
    hearth_embedder *e = NULL;
    add_rank_head(n_row, n_label);
    hearth_model *model = OPENED_BY(tiny_open_with, hearth_model, NULL);
    if (n_class > 0) CHECK_OK(hearth_embedder_open(model, NULL, &e, err));
    else CHECK_FAILS(hearth_embedder_open(model, NULL, &e, err), HEARTH_ERROR_UNSUPPORTED, "qwen3.pooling_type is 4 (rank)");
    CHECK_INT(hearth_embedder_n_dim(e), n_class);
    hearth_embedder_close(e);
    tiny_close(model);
}

TEST(a_head_of_two_classes_or_more_makes_a_reranker)
{
    check_rank_head(2, 0, 2);
    check_rank_head(3, 3, 3);
    check_rank_head(1, 0, 0);
    check_rank_head(1, 1, 0);
    add_rank_head(2, 3);
    tiny_expect_format_error("'cls.output.weight'", "ask for [32, 3]");
}

TEST(tensors_that_are_not_used_are_refused_or_mentioned_once)
{
    hearth_model_options o = hearth_model_defaults();
    add_unused();
    tiny_expect_refused(HEARTH_ERROR_UNSUPPORTED, "'blk.1.extra.one'", "(2 such tensors)");
    o.allow_unused = true;
    add_unused();
    hearth_model *model = OPENED_BY(tiny_open_with, hearth_model, &o);
    CHECK_INT(test_n_warning(""), 1);
    CHECK(test_n_warning("2 of 23 tensors are not used") && test_n_warning("extra.one"));
    tiny_close(model);
}

TEST(tensors_on_which_no_logit_depends_are_ignored_without_a_warning)
{
    static const char *const names[] = {"v.blk.0.attn_q.weight", "mm.0.weight",     "cls.output.weight",
                                        "dense_2.weight",        "dense_3.weight", "blk.0.attn_rot_embd.weight"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) tiny_add_tensor(&tiny, names[i], 0, 1, 4, 1);
    tiny_expect_warning(NULL);
    tiny_add_tensor(&tiny, "vision.weight", 0, 1, 4, 1);
    tiny_expect_refused(HEARTH_ERROR_UNSUPPORTED, "'vision.weight'", "(1 such tensors)");
}
