/* What a model file says about itself: values that are odd but possible are taken with one
 * warning, keys and versions that this version cannot honour are refused. The ids are the
 * rows of docs/reliability.md. */
#include "support/test.h"
#include "support/models/tiny_model.h"

#include <hearth/hearth.h>

#define A "llama."

enum { U32 = 4, I32 = 5, TEXT = 8, ARRAY = 9, U64 = 10, TYPE_Q4_0 = 2, TYPE_Q8_0 = 8 };

static int n_warning;
static char warning[900];
static void keep_warning(void *user, hearth_log_level level, const char *line)
{
    (void)user;
    if (level != HEARTH_LOG_WARN) return;
    n_warning++;
    snprintf(warning, sizeof warning, "%s", line);
}

/* The bytes of the model that is open. */
static gguf_bytes file;

static hearth_status open_tiny(const tiny_model *m, hearth_model **model, hearth_error *why)
{
    n_warning = 0;
    warning[0] = '\0';
    file = tiny_write(m);
    hearth_log_set(keep_warning, NULL);
    hearth_status st = hearth_model_open_memory(file.data, file.n, "tiny.gguf", NULL, model, why);
    hearth_log_set(NULL, NULL);
    return st;
}

static void close_tiny(tiny_model *m, hearth_model *model)
{
    hearth_model_close(model);
    gguf_free(&file);
    tiny_free(m);
}

/* Refused with a line that holds the file's name and both words. Frees m. */
static void expect_refused(tiny_model *m, hearth_status status, const char *word, const char *other)
{
    hearth_error why = {0};
    hearth_model *model = NULL;
    hearth_status st = open_tiny(m, &model, &why);
    if (st != status || strstr(why.message, "tiny.gguf: ") != why.message || !strstr(why.message, word) ||
        !strstr(why.message, other))
        test_fail(__FILE__, __LINE__, "%s, %s: status '%s': %s", word, other, hearth_status_name(st),
                  why.message);
    close_tiny(m, model);
}

/* Taken with one warning that holds the file's name and the word; none where it is NULL. */
static void expect_warning(tiny_model *m, const char *word)
{
    hearth_error why = {0};
    hearth_model *model = NULL;
    if (open_tiny(m, &model, &why) != HEARTH_OK) test_fail(__FILE__, __LINE__, "%s", why.message);
    if (n_warning != (word != NULL) || (word && (!strstr(warning, word) || !strstr(warning, "tiny.gguf: "))))
        test_fail(__FILE__, __LINE__, "%s: %d warnings, the last '%s'", word ? word : "none", n_warning,
                  warning);
    close_tiny(m, model);
}

/* ---- C9, C10 ----------------------------------------------------------------------------------- */

TEST(an_array_of_one_is_no_number)
{
    static const char *const keys[] = {A "block_count", A "context_length", A "embedding_length"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        tiny_model m;
        tiny_begin(&m);
        tiny_set_array(&m, keys[i], (uint32_t[]){TINY_LAYERS}, 1);
        expect_refused(&m, HEARTH_ERROR_FORMAT, keys[i], "expected an integer");
    }
}

TEST(an_architecture_ends_where_its_length_says)
{
    tiny_model m;
    tiny_begin(&m);
    tiny_set_text(&m, "general.architecture", "llama.x");
    for (uint32_t i = 0; i < m.n_key; i++)
        if (strcmp(m.keys[i].name, "general.architecture") == 0) m.keys[i].value.data[8 + 5] = '\0';
    expect_refused(&m, HEARTH_ERROR_UNSUPPORTED, "'llama\\x00x'", "supported: llama");
}

/* ---- C22, C23 ------------------------------------------------------------------------------------ */

TEST(odd_epsilons_are_warned_of)
{
    static const char key[] = A "attention.layer_norm_rms_epsilon";
    tiny_model m;
    tiny_begin(&m);
    expect_warning(&m, NULL);
    tiny_begin(&m);
    tiny_set_f32(&m, key, 0.0f);
    expect_warning(&m, "layer_norm_rms_epsilon is 0");
    tiny_begin(&m);
    tiny_set_f32(&m, key, 1.0f);
    expect_warning(&m, "layer_norm_rms_epsilon is 1");
    tiny_begin(&m);
    tiny_set_f32(&m, key, 1.001f);
    expect_refused(&m, HEARTH_ERROR_FORMAT, key, "allowed are 0 to 1");
}

/* Taken as the largest that this version has; memory is what bounds a session. */
TEST(absurd_context_lengths_are_warned_of)
{
    static const uint64_t absurd[] = {16777217, (uint64_t)1 << 31, UINT32_MAX, (uint64_t)1 << 63, UINT64_MAX};
    for (size_t i = 0; i < sizeof absurd / sizeof *absurd; i++) {
        tiny_model m;
        hearth_model *model = NULL;
        hearth_model_info info = {0};
        tiny_begin(&m);
        tiny_set(&m, A "context_length", U64, absurd[i], 8);
        CHECK_OK(open_tiny(&m, &model, err));
        CHECK_INT(n_warning, 1);
        CHECK(strstr(warning, A "context_length is ") && strstr(warning, "16777216 is taken"));
        if (model) {
            hearth_session *session = NULL;
            hearth_model_get_info(model, &info);
            CHECK_INT(info.n_ctx_train, 16777216);
            CHECK_OK(hearth_session_open(model, NULL, &session, err)); /* its context is the default */
            hearth_session_close(session);
        }
        close_tiny(&m, model);
    }
    tiny_model m;
    tiny_begin(&m);
    tiny_set(&m, A "context_length", I32, (uint32_t)-5, 4);
    expect_refused(&m, HEARTH_ERROR_FORMAT, A "context_length", "is -5");
}

/* ---- C25: windows ---------------------------------------------------------------------------------- */

TEST(windows_are_no_negative_numbers)
{
    tiny_model m;
    tiny_begin(&m);
    tiny_become(&m, "gemma2");
    tiny_set(&m, "gemma2.attention.sliding_window", I32, (uint32_t)-1, 4);
    expect_refused(&m, HEARTH_ERROR_FORMAT, "gemma2.attention.sliding_window", "is -1");
    tiny_begin(&m);
    tiny_become(&m, "gemma2");
    tiny_set_u32(&m, "gemma2.attention.sliding_window", 0); /* none: every layer sees everything */
    expect_warning(&m, NULL);
}

/* ---- C26: our own keys ------------------------------------------------------------------------------- */

TEST(keys_of_ours_are_never_ignored)
{
    static const char *const keys[] = {"hearth.layout", "hearth.ffn.activation2", "hearth.x", "hearth."};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        tiny_model m;
        char quoted[60];
        tiny_begin(&m);
        tiny_set_u32(&m, keys[i], 1);
        snprintf(quoted, sizeof quoted, "key '%s' (at byte ", keys[i]);
        expect_refused(&m, HEARTH_ERROR_UNSUPPORTED, quoted, "not known to this version");
    }
    tiny_model m;
    tiny_begin(&m);
    tiny_set_u32(&m, "hearths.fire", 1); /* a stranger's */
    expect_warning(&m, NULL);
}

/* ---- C27, C28: quantised tensors ------------------------------------------------------------------------ */

static void begin_quantised(tiny_model *m, uint32_t version)
{
    tiny_begin(m);
    tiny_find(m, "blk.0.ffn_up.weight")->type = TYPE_Q8_0;
    tiny_drop_key(m, "general.file_type");
    tiny_drop_key(m, "general.quantization_version");
    if (version) tiny_set_u32(m, "general.quantization_version", version);
}

TEST(versions_of_quantised_blocks_are_held_to_ours)
{
    tiny_model m;
    begin_quantised(&m, 2);
    expect_warning(&m, NULL);
    begin_quantised(&m, 0);
    expect_warning(&m, "general.quantization_version missing: 2 is taken");
    static const uint32_t others[] = {1, 3, UINT32_MAX};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        begin_quantised(&m, others[i]);
        expect_refused(&m, HEARTH_ERROR_UNSUPPORTED, "general.quantization_version at ",
                       "version 2 are read");
    }
    begin_quantised(&m, 0);
    tiny_set_text(&m, "general.quantization_version", "2");
    expect_refused(&m, HEARTH_ERROR_FORMAT, "general.quantization_version", "expected an integer");
    tiny_begin(&m); /* floats have no version */
    tiny_set_u32(&m, "general.quantization_version", 1);
    expect_warning(&m, NULL);
}

TEST(the_tensors_win_over_the_type_that_the_file_names)
{
    static const struct {
        uint32_t file_type;
        const char *word; /* of the warning, or NULL */
    } rows[] = {{0, NULL},
                {7, NULL},
                {1024 + 7, NULL},
                {1, "general.file_type is 1 (F16), but no matrix has that type"},
                {15, "general.file_type is 15 (Q4_K)"},
                {1024 + 2, "general.file_type is 1026 (Q4_0)"},
                {4, NULL},
                {9999, NULL}};
    tiny_model m;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        begin_quantised(&m, 2);
        tiny_set_u32(&m, "general.file_type", rows[i].file_type);
        expect_warning(&m, rows[i].word);
    }
    begin_quantised(&m, 2);
    tiny_set_text(&m, "general.file_type", "Q8_0");
    expect_warning(&m, "the tensors say what they are");
}

/* ---- C7: texts that are not UTF-8 ---------------------------------------------------------------------- */

TEST(a_chat_template_that_is_not_utf_8_hinders_chat_only)
{
    static const int32_t ids[] = {1, 60, 70};
    tiny_model m;
    hearth_model *model = NULL;
    hearth_chat *chat = NULL;
    hearth_session *session = NULL;
    hearth_error why = {0};
    tiny_begin(&m);
    tiny_set_text(&m, "general.name", "\xff\xfe\x1b[31m");
    tiny_set_text(&m, "tokenizer.chat_template", "{{ messages[0].content }}\xff");
    CHECK_OK(open_tiny(&m, &model, err));
    if (model) {
        CHECK_INT(hearth_chat_open(model, NULL, &chat, &why), HEARTH_ERROR_FORMAT);
        CHECK(strstr(why.message, "tiny.gguf: tokenizer.chat_template: ") &&
              strstr(why.message, "not UTF-8"));
        CHECK(chat == NULL);
        CHECK_OK(hearth_session_open(model, NULL, &session, err));
        if (session) CHECK_OK(hearth_session_eval(session, ids, 3, err));
        hearth_session_close(session);
    }
    close_tiny(&m, model);
}

/* ---- F14: what is no template ----------------------------------------------------------------------------- */

TEST(a_list_of_chat_templates_is_refused_with_the_formats)
{
    tiny_model m;
    hearth_model *model = NULL;
    hearth_chat *chat = NULL;
    hearth_error why = {0};
    tiny_begin(&m);
    tiny_set_array(&m, "tokenizer.chat_template", (uint32_t[]){1, 2}, 2);
    CHECK_OK(open_tiny(&m, &model, err));
    if (model) {
        CHECK_INT(hearth_chat_open(model, NULL, &chat, &why), HEARTH_ERROR_UNSUPPORTED);
        CHECK(strstr(why.message, "tokenizer.chat_template at ") && strstr(why.message, "chatml"));
        CHECK_OK(hearth_chat_open(model, "chatml", &chat, err));
    }
    hearth_chat_close(chat);
    close_tiny(&m, model);
}

/* ---- E4, E5, F15: weights ---------------------------------------------------------------------------------- */

/* Opens with one float of a tensor replaced; the line must hold its name. */
static void refuse_weight(const char *tensor, bool is_new, size_t i, float value)
{
    tiny_model m;
    hearth_model *model = NULL;
    hearth_error why = {0};
    tiny_begin(&m);
    if (is_new) tiny_add_tensor(&m, tensor, 0, 1, 4, 1);
    file = tiny_write(&m);
    memcpy(file.data + tiny_data_at(&m, tensor) + 4 * i, &value, sizeof value);
    hearth_status st = hearth_model_open_memory(file.data, file.n, "tiny.gguf", NULL, &model, &why);
    if (st != HEARTH_ERROR_FORMAT || !strstr(why.message, tensor) || !strstr(why.message, " at "))
        test_fail(__FILE__, __LINE__, "%s: %g: %s", tensor, (double)value, why.message);
    close_tiny(&m, model);
}

TEST(norms_and_factors_are_always_looked_at)
{
    static const char *const norms[] = {"blk.0.attn_norm.weight", "blk.1.ffn_norm.weight", "output_norm.weight"};
    static const float odd[] = {NAN, INFINITY, -INFINITY};
    for (size_t k = 0; k < 3; k++) {
        for (size_t i = 0; i < 3; i++) {
            refuse_weight(norms[i], false, 0, odd[k]);
            refuse_weight(norms[i], false, TINY_D_MODEL - 1, odd[k]);
        }
        refuse_weight("rope_freqs.weight", true, 3, odd[k]);
    }
    refuse_weight("rope_freqs.weight", true, 0, 0.0f);
}

/* Weights of zero make all logits equal: the lowest id is taken. */
TEST(equal_logits_give_the_lowest_id)
{
    static const int32_t ids[] = {1, 60, 70};
    tiny_model m;
    hearth_model *model = NULL;
    hearth_session *session = NULL;
    hearth_sampler *sampler = NULL;
    hearth_sampler_options greedy = hearth_sampler_defaults();
    int32_t id = -1;
    greedy.temperature = 0.0f;
    tiny_begin(&m);
    file = tiny_write(&m);
    memset(file.data + tiny_data_at(&m, "output.weight"), 0, (size_t)4 * TINY_D_MODEL * TINY_VOCAB);
    CHECK_OK(hearth_model_open_memory(file.data, file.n, "tiny.gguf", NULL, &model, err));
    CHECK_OK(hearth_session_open(model, NULL, &session, err));
    CHECK_OK(hearth_sampler_open(model, &greedy, &sampler, err));
    CHECK_OK(hearth_session_eval(session, ids, 3, err));
    CHECK_OK(hearth_sampler_sample(sampler, hearth_session_logits(session), &id, err));
    CHECK_INT(id, 0);
    hearth_sampler_close(sampler);
    hearth_session_close(session);
    close_tiny(&m, model);
}

TEST(rows_without_tokens_are_padding_with_a_warning)
{
    tiny_model m;
    tiny_begin(&m);
    tiny_find(&m, "token_embd.weight")->dim[1] = TINY_VOCAB + 5;
    tiny_find(&m, "output.weight")->dim[1] = TINY_VOCAB + 5;
    expect_warning(&m, "272 embedding rows for 267 tokens: the rest is padding");
}
