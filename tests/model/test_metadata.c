/* What a model file says about itself: values that are odd but possible are taken with one warning, keys and
 * versions that this version cannot honour are refused. The ids are the rows of docs/reliability.md. */
#include "support/test.h"
#include "support/models/tiny_case.h"

#define A "llama."

enum { U32 = 4, I32 = 5, TEXT = 8, ARRAY = 9, U64 = 10, TYPE_Q4_0 = 2, TYPE_Q8_0 = 8 };

/* ---- C9, C10 ----------------------------------------------------------------------------------- */

TEST(an_array_of_one_is_no_number)
{
    static const char *const keys[] = {A "block_count", A "context_length", A "embedding_length"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        tiny_set_array(&tiny, keys[i], (uint32_t[]){TINY_LAYERS}, 1);
        tiny_expect_format_error(keys[i], "expected an integer");
    }
}

TEST(an_architecture_ends_where_its_length_says)
{
    tiny_set_text(&tiny, "general.architecture", "llama.x");
    for (uint32_t i = 0; i < tiny.n_key; i++)
        if (strcmp(tiny.keys[i].name, "general.architecture") == 0) tiny.keys[i].value.data[8 + 5] = '\0';
    tiny_expect_refused(HEARTH_ERROR_UNSUPPORTED, "'llama\\x00x'", "supported: llama");
}

/* ---- C22, C23 ------------------------------------------------------------------------------------ */

TEST(odd_epsilons_are_warned_of)
{
    static const char key[] = A "attention.layer_norm_rms_epsilon";
    tiny_expect_warning(NULL);
    tiny_set_f32(&tiny, key, 0.0f);
    tiny_expect_warning("layer_norm_rms_epsilon is 0");
    tiny_set_f32(&tiny, key, 1.0f);
    tiny_expect_warning("layer_norm_rms_epsilon is 1");
    tiny_set_f32(&tiny, key, 1.001f);
    tiny_expect_format_error(key, "allowed are 0 to 1");
}

/* Taken as the largest that this version has; memory is what bounds a session. */
TEST(absurd_context_lengths_are_warned_of)
{
    static const uint64_t absurd[] = {16777217, (uint64_t)1 << 31, UINT32_MAX, (uint64_t)1 << 63, UINT64_MAX};
    for (size_t i = 0; i < sizeof absurd / sizeof *absurd; i++) {
        hearth_model *model = NULL;
        hearth_model_info info = {0};
        tiny_set(&tiny, A "context_length", U64, absurd[i], 8);
        CHECK_OK(tiny_open(&model, err));
        CHECK_INT(test_n_warning(""), 1);
        CHECK(test_n_warning(A "context_length is ") && test_n_warning("16777216 is taken"));
        if (model) {
            CLOSED(hearth_session) *session = NULL;
            hearth_model_get_info(model, &info);
            CHECK_INT(info.n_ctx_train, 16777216);
            CHECK_OK(hearth_session_open(model, NULL, &session, err)); /* its context is the default */
        }
        tiny_close(model);
    }
    tiny_set(&tiny, A "context_length", I32, (uint32_t)-5, 4);
    tiny_expect_format_error(A "context_length", "is -5");
}

/* ---- C25: windows ---------------------------------------------------------------------------------- */

TEST(windows_are_no_negative_numbers)
{
    tiny_become(&tiny, "gemma2");
    tiny_set(&tiny, "gemma2.attention.sliding_window", I32, (uint32_t)-1, 4);
    tiny_expect_format_error("gemma2.attention.sliding_window", "is -1");
    tiny_become(&tiny, "gemma2");
    tiny_set_u32(&tiny, "gemma2.attention.sliding_window", 0); /* none: every layer sees everything */
    tiny_expect_warning(NULL);
}

/* ---- C26: our own keys ------------------------------------------------------------------------------- */

TEST(keys_of_hearth_are_never_ignored)
{
    static const char *const keys[] = {"hearth.layout", "hearth.ffn.activation2", "hearth.x", "hearth."};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        char quoted[60];
        tiny_set_u32(&tiny, keys[i], 1);
        snprintf(quoted, sizeof quoted, "key '%s' (at byte ", keys[i]);
        tiny_expect_refused(HEARTH_ERROR_UNSUPPORTED, quoted, "not known to this version");
    }
    tiny_set_u32(&tiny, "hearths.fire", 1); /* a stranger's */
    tiny_expect_warning(NULL);
}

/* ---- C27, C28: quantised tensors ------------------------------------------------------------------------ */

static void quantise(uint32_t version)
{
    tiny_find(&tiny, "blk.0.ffn_up.weight")->type = TYPE_Q8_0;
    tiny_drop_key(&tiny, "general.file_type");
    tiny_drop_key(&tiny, "general.quantization_version");
    if (version) tiny_set_u32(&tiny, "general.quantization_version", version);
}

TEST(versions_of_quantised_blocks_are_held_to_ours)
{
    quantise(2);
    tiny_expect_warning(NULL);
    quantise(0);
    tiny_expect_warning("general.quantization_version missing: 2 is taken");
    static const uint32_t others[] = {1, 3, UINT32_MAX};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        quantise(others[i]);
        tiny_expect_refused(HEARTH_ERROR_UNSUPPORTED, "general.quantization_version at ", "version 2 are read");
    }
    quantise(0);
    tiny_set_text(&tiny, "general.quantization_version", "2");
    tiny_expect_format_error("general.quantization_version", "expected an integer");
    /* floats have no version */
    tiny_set_u32(&tiny, "general.quantization_version", 1);
    tiny_expect_warning(NULL);
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
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        quantise(2);
        tiny_set_u32(&tiny, "general.file_type", rows[i].file_type);
        tiny_expect_warning(rows[i].word);
    }
    quantise(2);
    tiny_set_text(&tiny, "general.file_type", "Q8_0");
    tiny_expect_warning("the tensors say what they are");
}

/* ---- C7: texts that are not UTF-8 ---------------------------------------------------------------------- */

TEST(a_chat_template_that_is_not_utf_8_hinders_chat_only)
{
    static const int32_t ids[] = {1, 60, 70};
    hearth_model *model = NULL;
    hearth_chat *chat = NULL;
    hearth_session *session = NULL;
    tiny_set_text(&tiny, "general.name", "\xff\xfe\x1b[31m");
    tiny_set_text(&tiny, "tokenizer.chat_template", "{{ messages[0].content }}\xff");
    CHECK_OK(tiny_open(&model, err));
    if (model) {
        CHECK_FAILS(hearth_chat_open(model, NULL, &chat, err), HEARTH_ERROR_FORMAT,
                    "tiny.gguf: tokenizer.chat_template: |not UTF-8");
        CHECK(chat == NULL);
        CHECK_OK(hearth_session_open(model, NULL, &session, err));
        if (session) CHECK_OK(hearth_session_eval(session, ids, 3, err));
        hearth_session_close(session);
    }
    tiny_close(model);
}

/* ---- F14: what is no template ----------------------------------------------------------------------------- */

TEST(a_list_of_chat_templates_is_refused_with_the_formats)
{
    hearth_model *model = NULL;
    hearth_chat *chat = NULL;
    tiny_set_array(&tiny, "tokenizer.chat_template", (uint32_t[]){1, 2}, 2);
    CHECK_OK(tiny_open(&model, err));
    if (model) {
        CHECK_FAILS(hearth_chat_open(model, NULL, &chat, err), HEARTH_ERROR_UNSUPPORTED,
                    "tiny.gguf: tokenizer.chat_template at |a text is expected|chatml");
        CHECK_OK(hearth_chat_open(model, "chatml", &chat, err));
    }
    hearth_chat_close(chat);
    tiny_close(model);
}

/* ---- E4, E5, F15: weights ---------------------------------------------------------------------------------- */

/* Opens with one float of a tensor replaced; the line must hold its name. */
static void refuse_weight(const char *tensor, bool is_new, size_t i, float value)
{
    hearth_model *model = NULL;
    hearth_error why = {0};
    if (is_new) tiny_add_tensor(&tiny, tensor, 0, 1, 4, 1);
    tiny_file = tiny_write(&tiny);
    memcpy(tiny_file.data + tiny_data_at(&tiny, tensor) + 4 * i, &value, sizeof value);
    hearth_status st = tiny_open_file(&model, &why);
    char words[40];
    snprintf(words, sizeof words, "weight %zu is", i);
    if (st != HEARTH_ERROR_FORMAT || strstr(why.message, "tiny.gguf: ") != why.message ||
        !strstr(why.message, tensor) || !strstr(why.message, " at ") || !strstr(why.message, words))
        test_fail(__FILE__, __LINE__, "%s: %g: %s", tensor, (double)value, why.message);
    tiny_close(model);
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

TEST(experts_of_tokens_are_always_looked_at)
{
    static const struct {
        uint32_t value;
        const char *why;
    } cases[] = {{4, "entry 7 is 4, expected less than 4"}, {0xffffffffu, "entry 7 is -1"}, {1, "entry 7 is 1, expected another"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hearth_model *model = NULL;
        hearth_error why = {0};
        tiny_become(&tiny, "deepseek4");
        tiny_file = tiny_write(&tiny);
        gguf_patch(&tiny_file, tiny_data_at(&tiny, "blk.0.ffn_gate_tid2eid.weight") + 4 * 7, cases[i].value, 4);
        CHECK_INT(tiny_open_file(&model, &why), HEARTH_ERROR_FORMAT);
        CHECK(strstr(why.message, "'blk.0.ffn_gate_tid2eid.weight'") && strstr(why.message, cases[i].why));
        tiny_close(model);
    }
}

/* Weights of zero make all logits equal: the lowest id is taken. */
TEST(equal_logits_give_the_lowest_id)
{
    static const int32_t ids[] = {1, 60, 70};
    hearth_model *model = NULL;
    hearth_sampler_options greedy = test_sampler_options();
    int32_t id = -1;
    greedy.temperature = 0.0f;
    tiny_file = tiny_write(&tiny);
    memset(tiny_file.data + tiny_data_at(&tiny, "output.weight"), 0, (size_t)4 * TINY_D_MODEL * TINY_VOCAB);
    CHECK_OK(tiny_open_file(&model, err));
    hearth_session *session = OPENED(hearth_session, model, NULL);
    hearth_sampler *sampler = OPENED(hearth_sampler, model, &greedy);
    CHECK_OK(hearth_session_eval(session, ids, 3, err));
    CHECK_OK(hearth_sampler_sample(sampler, hearth_session_logits(session), &id, err));
    CHECK_INT(id, 0);
    hearth_sampler_close(sampler);
    hearth_session_close(session);
    tiny_close(model);
}

TEST(rows_without_tokens_are_padding_with_a_warning)
{
    tiny_find(&tiny, "token_embd.weight")->dim[1] = TINY_VOCAB + 5;
    tiny_find(&tiny, "output.weight")->dim[1] = TINY_VOCAB + 5;
    tiny_expect_warning("272 embedding rows for 267 tokens: the rest is padding");
}

/* ---- what is no model ------------------------------------------------------------------------ */

TEST(files_that_belong_to_a_model_are_called_what_they_are)
{
    static const struct {
        const char *key, *value, *words;
    } kinds[] = {
        {"general.type", "mmproj", "a projector of images or sound (mmproj), not a model (general.type at "},
        {"general.architecture", "clip", "a projector of images or sound (mmproj), not a model (general.architecture at "},
        {"general.type", "adapter", "an adapter (LoRA), not a model (general.type at "},
        {"general.architecture", "controlvector", "a control vector, not a model (general.architecture at "},
        {"general.type", "imatrix", "an importance matrix, not a model (general.type at "},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        tiny_set_text(&tiny, kinds[i].key, kinds[i].value);
        tiny_expect_refused(HEARTH_ERROR_UNSUPPORTED, kinds[i].words, "name ");
    }
    tiny_set_text(&tiny, "general.type", "model");
    tiny_expect_accepted();
    for (uint32_t i = 0; i < tiny.n_tensor; i++) tiny.tensors[i].gone = true;
    tiny_expect_refused(HEARTH_ERROR_UNSUPPORTED, "a vocabulary, not a model: the file has no tensors", "weights");
}
