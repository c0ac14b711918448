/* Mistakes of callers, function by function in the order of hearth.h: each is ARGUMENT with a line that names the parameter or
 * the field, and what the function would give is NULL or 0. tests/lint finds functions that are missing here. */
#include "engine/engine.h"
#include "support/models/tiny_model.h"
#include "support/test.h"

#include <fcntl.h>

static gguf_bytes file;
static hearth_model *model;
static volatile int cancel;
static const int32_t ids[] = {1, 60, 70, 80, 90, 100};
enum { N_ID = sizeof ids / sizeof *ids };

static bool open_model(void)
{
    tiny_model m = tiny_new();
    file = tiny_take(&m);
    cancel = 0;
    const hearth_model_options o = {.cancel = &cancel, .n_thread = 1};
    CHECK_OK(hearth_model_open_memory(file.data, file.n, "tiny.gguf", &o, &model, err));
    return model != NULL;
}

static void close_model(void)
{
    hearth_model_close(model);
    gguf_free(&file);
    model = NULL;
}

__attribute__((constructor)) static void set_fixture(void)
{
    test_before_each = open_model, test_after_each = close_model;
}

/* A refusal has its status in both places and one line that goes with the status' name. */
static void check_refusal(hearth_status st, hearth_status expected, const hearth_error *why,
                          const char *words, const char *call, int line)
{
    size_t n_name = strlen(hearth_status_name(st));
    if (st != expected || why->status != expected || !strstr(why->message, words) ||
        !memchr(why->message, 0, 600) || strncmp(why->message, hearth_status_name(st), n_name) == 0)
        test_fail(__FILE__, line, "%s: %s, err %s, \"%s\" (expected \"%s\")", call, hearth_status_name(st),
                  hearth_status_name(why->status), why->message, words);
}

/* With an error whose bytes are arbitrary before, and without one. */
#define FAILS_AS(STATUS, CALL, WORDS)                                                                        \
    do {                                                                                                     \
        hearth_error err_, *err = &err_;                                                                     \
        memset(&err_, 0xAB, sizeof err_);                                                                    \
        hearth_status st_ = (CALL);                                                                          \
        check_refusal(st_, STATUS, &err_, WORDS, #CALL, __LINE__);                                           \
        err = NULL;                                                                                          \
        CHECK_INT((CALL), STATUS);                                                                           \
    } while (0)
#define REFUSED(CALL, WORDS) FAILS_AS(HEARTH_ERROR_ARGUMENT, CALL, WORDS)
/* A function that opens something: nothing is opened. */
#define NOT_OPENED(T, OUT, CALL, WORDS)                                                                      \
    do {                                                                                                     \
        T *OUT = (T *)(uintptr_t)1;                                                                          \
        REFUSED(CALL, WORDS);                                                                                \
        CHECK(OUT == NULL);                                                                                  \
    } while (0)

/* ---- names ------------------------------------------------------------------------------------------------- */

TEST(names_are_words_for_anything)
{
    for (int i = -300; i < 300; i++) {
        CHECK(hearth_status_name((hearth_status)i)[0] != '\0');
        CHECK(hearth_selector_name((hearth_selector)i)[0] != '\0');
        CHECK(hearth_end_name((hearth_end)i)[0] != '\0');
        CHECK(hearth_request_state_name((hearth_request_state)i)[0] != '\0');
    }
    CHECK_TEXT(hearth_selector_name((hearth_selector)99), "unknown selector");
    CHECK_TEXT(hearth_status_name((hearth_status)99), "unknown status");
    CHECK(strchr(hearth_version(), '.') != NULL);
    CHECK(hearth_chat_format(0) != NULL && hearth_chat_format(SIZE_MAX) == NULL);
}

TEST(success_leaves_errors_as_they_are)
{
    hearth_error why, before;
    memset(&why, 0xAB, sizeof why);
    before = why;
    hearth_session *s;
    int32_t *tokens;
    size_t n;
    CHECK_INT(hearth_tokenize(model, NULL, 0, 0, &tokens, &n, &why), HEARTH_OK);
    hearth_free(tokens);
    CHECK_INT(hearth_session_open(model, NULL, &s, &why), HEARTH_OK);
    CHECK_INT(hearth_session_eval(s, ids, N_ID, &why), HEARTH_OK);
    CHECK_INT(hearth_session_eval(s, NULL, 0, &why), HEARTH_OK);
    hearth_session_close(s);
    CHECK_BYTES(&why, &before, sizeof why);
}

TEST(the_log_may_be_turned_off) { hearth_log_set(NULL, NULL); }

/* ---- models ------------------------------------------------------------------------------------------------ */

TEST(models_are_not_opened_by_mistake)
{
    const char *scratch = test_scratch("tiny.gguf");
    CHECK(test_write_file(scratch, file.data, file.n));
    const int fd = open(scratch, O_RDONLY | O_CLOEXEC);
    NOT_OPENED(hearth_model, out, hearth_model_open_descriptors(NULL, 1, "a", NULL, &out, err), "fds is NULL");
    NOT_OPENED(hearth_model, out, hearth_model_open_descriptors(&fd, 1, NULL, NULL, &out, err), "name is NULL");
    NOT_OPENED(hearth_model, out, hearth_model_open_descriptors(&fd, 0, "a", NULL, &out, err), "n_fd is 0");
    NOT_OPENED(hearth_model, out, hearth_model_open_descriptors((int[]){-1}, 1, "a", NULL, &out, err), "fds[0]");
    REFUSED(hearth_model_open_descriptors(&fd, 1, "a", NULL, NULL, err), "out is NULL");
    NOT_OPENED(hearth_model, out, hearth_model_open(NULL, NULL, &out, err), "path is NULL");
    REFUSED(hearth_model_open(scratch, NULL, NULL, err), "out is NULL");
    NOT_OPENED(hearth_model, out, hearth_model_open_memory(NULL, 5, "a", NULL, &out, err), "data is NULL");
    NOT_OPENED(hearth_model, out, hearth_model_open_memory(file.data, file.n, NULL, NULL, &out, err),
               "name is NULL");
    REFUSED(hearth_model_open_memory(file.data, file.n, "a", NULL, NULL, err), "out is NULL");
    static const struct {
        hearth_model_options o;
        const char *words;
    } wrong[] = {{{.selector = (hearth_selector)99}, "selector is 99"},
                 {{.selector = (hearth_selector)-1}, "selector is -1"},
                 {{.gpu = {.kv = (hearth_kv_type)3}}, "gpu.kv is 3"},
                 {{.gpu = {.reserved = {[5] = 1}}}, "gpu.reserved is not zero"},
                 {{.n_thread = 257}, "n_thread is 257"},
                 {{.n_thread = UINT32_MAX}, "n_thread is 4294967295"},
                 {{.cpu = "sse9"}, "hearth_model_options.cpu is sse9: no such level"},
                 {{.cpu = ""}, "hearth_model_options.cpu is : no such level"},
                 {{.vocab_only = true, .cpu = "x"}, "hearth_model_options.cpu is x"},
                 {{.cache = "elsewhere"}, "hearth_model_options.cache is elsewhere, but another model"},
                 {{.no_huge_pages = true}, "hearth_model_options.no_huge_pages is true, but another model"},
                 {{.io = "nonsense"}, "'nonsense'"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        NOT_OPENED(hearth_model, out, hearth_model_open(scratch, &wrong[i].o, &out, err), wrong[i].words);
        NOT_OPENED(hearth_model, out,
                   hearth_model_open_memory(file.data, file.n, "a", &wrong[i].o, &out, err), wrong[i].words);
        NOT_OPENED(hearth_model, out, hearth_model_open_descriptors(&fd, 1, "a", &wrong[i].o, &out, err),
                   wrong[i].words);
    }
    close(fd);
    hearth_model_close(NULL);
}

#define CHECK_ZEROS(T, CALL)                                                                                 \
    do {                                                                                                     \
        T defaults_ = CALL;                                                                                  \
        CHECK_INT(defaults_.size, sizeof defaults_);                                                         \
        defaults_.size = 0;                                                                                  \
        CHECK_BYTES(&defaults_, &(T){0}, sizeof defaults_);                                                  \
    } while (0)

TEST(defaults_are_zeros)
{
    CHECK_ZEROS(hearth_model_options, hearth_model_defaults());
    CHECK_ZEROS(hearth_chat_options, hearth_chat_defaults());
    CHECK_ZEROS(hearth_answer_options, hearth_answer_defaults());
    CHECK_ZEROS(hearth_session_options, hearth_session_defaults());
    CHECK_ZEROS(hearth_sampler_options, hearth_sampler_defaults());
    const hearth_draft_options drafts = hearth_draft_defaults();
    CHECK_BYTES(&drafts, &(hearth_draft_options){0}, sizeof drafts);
    CHECK_ZEROS(hearth_constraint_options, hearth_constraint_defaults());
    CHECK_ZEROS(hearth_scheduler_options, hearth_scheduler_defaults());
    CHECK_ZEROS(hearth_request, hearth_request_defaults());
}

TEST(lists_of_devices_take_NULL)
{
    hearth_device_info info = {.size = sizeof info, .memory_bytes = 5};
    REFUSED(hearth_devices_open(NULL, err), "out is NULL");
    CHECK(hearth_devices_count(NULL) == 0 && hearth_devices_note(NULL) == NULL);
    CHECK_INT(hearth_devices_get(NULL, 0, &info), HEARTH_ERROR_ARGUMENT);
    hearth_devices *devices = NULL;
    CHECK_OK(hearth_devices_open(&devices, err));
    CHECK_INT(hearth_devices_get(devices, 0, NULL), HEARTH_ERROR_ARGUMENT);
    CHECK_INT(hearth_devices_get(devices, SIZE_MAX, &info), HEARTH_ERROR_ARGUMENT);
    CHECK(!info.device && info.memory_bytes == 0);
    hearth_devices_close(devices);
    hearth_devices_close(NULL);
    CHECK(hearth_cpu_level(SIZE_MAX) == NULL && hearth_feature(SIZE_MAX, NULL) == NULL && hearth_feature(0, NULL));
}

TEST(functions_on_models_take_NULL)
{
    hearth_model_info info = {0};
    hearth_storage_stats stats = {0};
    CHECK_INT(hearth_model_get_info(NULL, &info), HEARTH_ERROR_ARGUMENT);
    CHECK_INT(hearth_model_get_info(model, NULL), HEARTH_ERROR_ARGUMENT);
    CHECK(!hearth_model_get_storage(NULL, &stats) && !hearth_model_get_storage(model, NULL));
    CHECK(!hearth_model_get_layer_storage(NULL, 0, &stats) &&
          !hearth_model_get_layer_storage(model, 0, NULL));
    CHECK(!hearth_model_get_layer_storage(model, UINT32_MAX, &stats));
    hearth_expert_stats experts = {.size = sizeof experts};
    CHECK(!hearth_model_get_expert_stats(NULL, &experts) && !hearth_model_get_expert_stats(model, NULL));
    CHECK(!hearth_model_get_expert_stats(model, &experts));
    CHECK(!hearth_handle_sigbus(NULL));
    CHECK(hearth_model_n_vocab(NULL) == 0 && hearth_model_d_model(NULL) == 0 && hearth_model_n_metadata(NULL) == 0);
    hearth_metadata key = {.size = sizeof key};
    CHECK_INT(hearth_model_get_metadata(NULL, 0, &key), HEARTH_ERROR_ARGUMENT);
    CHECK_INT(hearth_model_get_metadata(model, 0, NULL), HEARTH_ERROR_ARGUMENT);
    CHECK_INT(hearth_model_get_metadata(model, SIZE_MAX, &key), HEARTH_ERROR_ARGUMENT);
    CHECK_INT(hearth_model_find_metadata(NULL, "a", &key), HEARTH_ERROR_ARGUMENT);
    CHECK_INT(hearth_model_find_metadata(model, NULL, &key), HEARTH_ERROR_ARGUMENT);
    CHECK_INT(hearth_model_find_metadata(model, "a", NULL), HEARTH_ERROR_ARGUMENT);
    CHECK_INT(hearth_model_get_metadata_element(NULL, 0, 0, &key), HEARTH_ERROR_ARGUMENT);
    CHECK_INT(hearth_model_get_metadata_element(model, SIZE_MAX, 0, &key), HEARTH_ERROR_ARGUMENT);
    CHECK_INT(hearth_model_get_metadata_element(model, 0, 0, NULL), HEARTH_ERROR_ARGUMENT);
    hearth_token_info token = {.size = sizeof token};
    CHECK_INT(hearth_model_get_token(NULL, 0, &token), HEARTH_ERROR_ARGUMENT);
    CHECK_INT(hearth_model_get_token(model, 0, NULL), HEARTH_ERROR_ARGUMENT);
    CHECK_INT(hearth_model_get_token(model, TINY_VOCAB, &token), HEARTH_ERROR_ARGUMENT);
    CHECK(hearth_token_find(NULL, "a", 1) == -1 && hearth_token_find(model, NULL, 1) == -1);
    CHECK(hearth_token_special(NULL, HEARTH_SPECIAL_BOS) == -1 &&
          hearth_token_special(model, (hearth_special_token)99) == -1);
    CHECK_INT(hearth_token_bos(NULL), -1);
    CHECK_INT(hearth_token_eos(NULL), -1);
    CHECK(!hearth_token_is_eog(NULL, 2) && !hearth_token_is_eog(model, -1) &&
          !hearth_token_is_eog(model, INT32_MAX));
}

/* ---- text -------------------------------------------------------------------------------------------------- */

TEST(texts_are_not_tokenized_by_mistake)
{
    int32_t *out = (int32_t *)(uintptr_t)1;
    size_t n = 1;
    REFUSED(hearth_tokenize(NULL, "a", 1, 0, &out, &n, err), "model is NULL");
    CHECK(out == NULL && n == 0);
    REFUSED(hearth_tokenize(model, NULL, 1, 0, &out, &n, err), "text is NULL, but n is 1");
    REFUSED(hearth_tokenize(model, "a", 1, 4, &out, &n, err), "flags is 0x4");
    REFUSED(hearth_tokenize(model, "a", 1, 0x80000001u, &out, &n, err), "flags is 0x80000001");
    REFUSED(hearth_tokenize(model, "a", 1, 0, NULL, &n, err), "ids is NULL");
    REFUSED(hearth_tokenize(model, "a", 1, 0, &out, NULL, err), "n_ids is NULL");
    hearth_free(NULL);
}

TEST(pairs_are_not_tokenized_by_mistake)
{
    int32_t *out = (int32_t *)(uintptr_t)1;
    size_t n = 1;
    REFUSED(hearth_tokenize_pair(NULL, "a", 1, "b", 1, &out, &n, err), "model is NULL");
    CHECK(out == NULL && n == 0);
    REFUSED(hearth_tokenize_pair(model, NULL, 1, "b", 1, &out, &n, err), "query is NULL, but n_query is 1");
    REFUSED(hearth_tokenize_pair(model, "a", 1, NULL, 2, &out, &n, err), "document is NULL, but n_document is 2");
    REFUSED(hearth_tokenize_pair(model, "a", 1, "b", 1, NULL, &n, err), "ids is NULL");
    REFUSED(hearth_tokenize_pair(model, "a", 1, "b", 1, &out, NULL, err), "n_ids is NULL");
}

TEST(detokenizers_take_NULL)
{
    const char *text = NULL;
    size_t n = 9;
    NOT_OPENED(hearth_detokenizer, out, hearth_detokenizer_open(NULL, true, true, &out, err),
               "model is NULL");
    REFUSED(hearth_detokenizer_open(model, true, true, NULL, err), "out is NULL");
    CLOSED(hearth_detokenizer) *d = OPENED(hearth_detokenizer, model, true, false);
    REFUSED(hearth_detokenizer_push(NULL, 1, &text, &n, err), "detokenizer is NULL");
    REFUSED(hearth_detokenizer_push(d, 1, NULL, &n, err), "text is NULL");
    REFUSED(hearth_detokenizer_push(d, 1, &text, NULL, err), "n is NULL");
    REFUSED(hearth_detokenizer_push(d, -1, &text, &n, err), "token -1");
    REFUSED(hearth_detokenizer_push(d, TINY_VOCAB, &text, &n, err), "token 267");
    CHECK(text && !*text && n == 0);
    hearth_detokenizer_flush(NULL, &text, &n);
    hearth_detokenizer_flush(d, NULL, NULL);
    CHECK(text && n == 0);
    hearth_detokenizer_close(NULL);
}

/* ---- chat -------------------------------------------------------------------------------------------------- */

TEST(chats_take_NULL)
{
    NOT_OPENED(hearth_chat, out, hearth_chat_open(NULL, "chatml", &out, err), "model is NULL");
    REFUSED(hearth_chat_open(model, "chatml", NULL, err), "out is NULL");
    NOT_OPENED(hearth_chat, out, hearth_chat_open_template(NULL, "a", 1, &out, err), "model is NULL");
    NOT_OPENED(hearth_chat, out, hearth_chat_open_template(model, NULL, 1, &out, err), "source is NULL");
    REFUSED(hearth_chat_open_template(model, "a", 1, NULL, err), "out is NULL");
    CHECK(hearth_chat_name(NULL) == NULL);
    size_t n = 1;
    CHECK(hearth_chat_source(NULL, &n) == NULL && n == 0);
    CHECK(!hearth_chat_is_reasoning(NULL, ids, N_ID));
    hearth_chat_close(NULL);
}

TEST(conversations_are_checked)
{
    CLOSED(hearth_chat) *chat = OPENED(hearth_chat, model, "chatml");
    static const struct {
        hearth_message m;
        const char *words;
    } wrong[] = {{{.content = "a", .n = 1}, "messages[1].role is NULL"},
                 {{.role = "user", .n = 1}, "messages[1].content is NULL"},
                 {{.role = "user", .reserved = {[1] = "x"}}, "messages[1].reserved is not zero"}};
    char *text = (char *)(uintptr_t)1;
    int32_t *out = (int32_t *)(uintptr_t)1;
    size_t n = 1;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const hearth_message two[] = {{.role = "user", .content = "a", .n = 1}, wrong[i].m};
        REFUSED(hearth_chat_render(chat, two, 2, NULL, &text, &n, err), wrong[i].words);
        REFUSED(hearth_chat_tokenize(chat, two, 2, NULL, &out, &n, err), wrong[i].words);
        CHECK(!text && !out && n == 0);
    }
    const hearth_message one = {.role = "user", .content = NULL, .n = 0};
    static const char *const no_array[] = {"nonsense", "{}", "[", "[] []"}, *const no_object[] = {"x", "[]", "{", "1"};
    for (size_t i = 0; i < sizeof no_array / sizeof *no_array; i++)
        FAILS_AS(HEARTH_ERROR_FORMAT,
                 hearth_chat_render(chat, &one, 1, (&(hearth_chat_options){.tools = no_array[i]}), &text, &n, err),
                 "hearth_chat_options.tools");
    for (size_t i = 0; i < sizeof no_object / sizeof *no_object; i++) {
        const hearth_message with = {.role = "user", .members = no_object[i]};
        FAILS_AS(HEARTH_ERROR_FORMAT,
                 hearth_chat_render(chat, &one, 1, (&(hearth_chat_options){.variables = no_object[i]}), &text, &n, err),
                 "hearth_chat_options.variables");
        FAILS_AS(HEARTH_ERROR_FORMAT, hearth_chat_render(chat, &with, 1, NULL, &text, &n, err), "messages[0].members");
    }
    REFUSED(hearth_chat_render(NULL, &one, 1, NULL, &text, &n, err), "chat is NULL");
    REFUSED(hearth_chat_render(chat, NULL, 1, NULL, &text, &n, err), "messages is NULL");
    REFUSED(hearth_chat_render(chat, &one, 1, NULL, NULL, &n, err), "text is NULL");
    REFUSED(hearth_chat_render(chat, &one, 1, NULL, &text, NULL, err), "n is NULL");
    REFUSED(hearth_chat_tokenize(NULL, &one, 1, NULL, &out, &n, err), "chat is NULL");
    REFUSED(hearth_chat_tokenize(chat, NULL, 1, NULL, &out, &n, err), "messages is NULL");
    REFUSED(hearth_chat_tokenize(chat, &one, 1, NULL, NULL, &n, err), "ids is NULL");
    REFUSED(hearth_chat_tokenize(chat, &one, 1, NULL, &out, NULL, err), "n_ids is NULL");
    CHECK_OK(hearth_chat_render(chat, &one, 1, &(hearth_chat_options){0}, &text, &n, err));
    hearth_free(text);
    CHECK_OK(hearth_chat_render(chat, NULL, 0, NULL, &text, &n, err));
    hearth_free(text);
}

static void ignore_text(void *user, hearth_answer_kind kind, const char *text, size_t n) {}

TEST(answers_take_NULL)
{
    static const char template[] = "{{ messages[0].content }}<think></think>";
    static const int32_t outside[] = {-1, TINY_VOCAB, INT32_MAX, INT32_MIN};
    const hearth_answer_options o = {.fn = ignore_text};
    NOT_OPENED(hearth_answer, out, hearth_answer_open(NULL, &o, &out, err), "model is NULL");
    NOT_OPENED(hearth_answer, out, hearth_answer_open(model, NULL, &out, err), "fn is NULL");
    NOT_OPENED(hearth_answer, out, hearth_answer_open(model, &(hearth_answer_options){0}, &out, err),
               "fn is NULL");
    REFUSED(hearth_answer_open(model, &o, NULL, err), "out is NULL");
    CLOSED(hearth_chat) *chat =
        OPENED_BY(hearth_chat_open_template, hearth_chat, model, template, sizeof template - 1);
    hearth_answer *a = OPENED(hearth_answer, model, &o);
    REFUSED(hearth_answer_push(NULL, 1, err), "answer is NULL");
    REFUSED(hearth_answer_finish(NULL, err), "answer is NULL");
    for (size_t i = 0; i < 4; i++) {
        CHECK(!hearth_chat_is_reasoning(chat, &outside[i], 1));
        REFUSED(hearth_answer_push(a, outside[i], err), "token ");
    }
    CHECK(!hearth_chat_is_reasoning(chat, NULL, 3));
    CHECK_OK(hearth_answer_finish(a, err));
    REFUSED(hearth_answer_push(a, 1, err), "the answer is finished");
    hearth_answer_close(a);
    hearth_answer_close(NULL);
}

/* ---- sessions ---------------------------------------------------------------------------------------------- */

TEST(sessions_are_not_opened_by_mistake)
{
    static const struct {
        hearth_session_options o;
        const char *words;
    } wrong[] = {{{.selector = (hearth_selector)99}, "selector is 99"},
                 {{.kv = (hearth_kv_type)3}, "kv is 3"},
                 {{.kv = (hearth_kv_type)-1}, "kv is -1"},
                 {{.n_thread = 257}, "n_thread is 257"},
                 {{.n_ctx = 70000, .n_batch = 65537}, "n_batch is 65537"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        NOT_OPENED(hearth_session, out, hearth_session_open(model, &wrong[i].o, &out, err), wrong[i].words);
    for (size_t i = 0; i < 4; i++) CHECK_INT(hearth_session_bytes(model, &wrong[i].o), 0);
    NOT_OPENED(hearth_session, out, hearth_session_open(NULL, NULL, &out, err), "model is NULL");
    REFUSED(hearth_session_open(model, NULL, NULL, err), "out is NULL");
    CHECK_INT(hearth_session_bytes(NULL, NULL), 0);
    hearth_session_close(NULL);
}

/* The same bytes, the same session. */
TEST(zeros_are_the_defaults_of_sessions)
{
    hearth_session_options defaults = hearth_session_defaults(), zeros = {0};
    uint64_t bytes = hearth_session_bytes(model, NULL);
    CHECK(bytes > 0);
    CHECK_INT(hearth_session_bytes(model, &zeros), bytes);
    CHECK_INT(hearth_session_bytes(model, &defaults), bytes);
    const hearth_session_options *const given[] = {NULL, &zeros, &defaults};
    for (int i = 0; i < 3; i++) {
        CLOSED(hearth_session) *s = OPENED(hearth_session, model, given[i]);
        CHECK_OK(hearth_session_eval(s, ids, N_ID, err));
        CHECK_INT(hearth_session_n_ctx(s), TINY_CONTEXT);
    }
}

static hearth_status end_with(void *user, size_t i, const float *row, hearth_error *err)
{
    return *(hearth_status *)user;
}

static hearth_status end_with_words(void *user, size_t i, const float *row, hearth_error *err)
{
    if (err) memset(err->message, 'x', sizeof err->message); /* without an end */
    return HEARTH_ERROR_IO;
}

static void check_unchanged(const hearth_session *s, const float *logits, uint32_t position)
{
    CHECK_INT(hearth_session_position(s), position);
    if (CHECK(hearth_session_logits(s) != NULL))
        CHECK_BYTES(hearth_session_logits(s), logits, TINY_VOCAB * sizeof(float));
}

TEST(evaluations_that_are_refused_leave_the_session)
{
    CLOSED(hearth_session) *s =
        OPENED(hearth_session, model, &(hearth_session_options){.n_ctx = 16, .n_batch = 4});
    float logits[TINY_VOCAB];
    const int32_t wrong[] = {1, TINY_VOCAB};
    hearth_status status = HEARTH_ERROR_CANCELLED;
    CHECK_OK(hearth_session_eval(s, ids, N_ID, err));
    memcpy(logits, hearth_session_logits(s), sizeof logits);
    REFUSED(hearth_session_eval(NULL, ids, 1, err), "session is NULL");
    REFUSED(hearth_session_eval(s, NULL, 1, err), "tokens is NULL, but there are 1");
    REFUSED(hearth_session_eval(s, wrong, 2, err), "tokens[1] is 267");
    REFUSED(hearth_session_eval_each(NULL, ids, 1, end_with, &status, err), "session is NULL");
    REFUSED(hearth_session_eval_each(s, NULL, 1, end_with, &status, err), "tokens is NULL");
    REFUSED(hearth_session_eval_hidden(NULL, ids, 1, end_with, &status, err), "session is NULL");
    REFUSED(hearth_session_eval_hidden(s, ids, 1, NULL, NULL, err), "fn is NULL");
    REFUSED(hearth_session_eval_hidden(s, NULL, 1, end_with, &status, err), "tokens is NULL");
    FAILS_AS(HEARTH_ERROR_CONTEXT, hearth_session_eval(s, (int32_t[11]){0}, 11, err),
             "a context of 16; raise n_ctx");
    for (hearth_status st = HEARTH_ERROR_MEMORY; st <= HEARTH_ERROR_DEVICE; st++) {
        status = st;
        FAILS_AS(st, hearth_session_eval_each(s, ids, 5, end_with, &status, err),
                 "hearth_session_eval_each returned: ");
        FAILS_AS(st, hearth_session_eval_hidden(s, ids, 5, end_with, &status, err),
                 "hearth_session_eval_hidden returned: ");
        check_unchanged(s, logits, N_ID);
    }
    const hearth_status no_status[] = {(hearth_status)777, (hearth_status)-1, (hearth_status)10};
    for (size_t i = 0; i < 3; i++) {
        status = no_status[i];
        REFUSED(hearth_session_eval_each(s, ids, 5, end_with, &status, err), "which is no status");
        REFUSED(hearth_session_eval_hidden(s, ids, 5, end_with, &status, err), "which is no status");
    }
    FAILS_AS(HEARTH_ERROR_IO, hearth_session_eval_each(s, ids, 5, end_with_words, NULL, err), "xxx");
    FAILS_AS(HEARTH_ERROR_IO, hearth_session_eval_hidden(s, ids, 5, end_with_words, NULL, err), "xxx");
    cancel = 1;
    FAILS_AS(HEARTH_ERROR_CANCELLED, hearth_session_eval(s, ids, 1, err), "interrupted");
    FAILS_AS(HEARTH_ERROR_CANCELLED, hearth_session_eval(s, ids, 5, err), "interrupted");
    cancel = 0;
    check_unchanged(s, logits, N_ID);
    CHECK_OK(hearth_session_eval_each(s, ids, 1, NULL, NULL, err));
}

/* An evaluation that ends in its n-th step, at each of its tokens: the logits before stay. */
static hearth_status end_at(void *user, size_t i, const float *row, hearth_error *err)
{
    return i == *(size_t *)user ? HEARTH_ERROR_CANCELLED : HEARTH_OK;
}

TEST(logits_stay_when_a_later_step_fails)
{
    CLOSED(hearth_session) *s =
        OPENED(hearth_session, model, &(hearth_session_options){.n_ctx = 64, .n_batch = 4});
    float logits[TINY_VOCAB];
    CHECK_OK(hearth_session_eval(s, ids, 3, err));
    memcpy(logits, hearth_session_logits(s), sizeof logits);
    int32_t more[10];
    for (int i = 0; i < 10; i++) more[i] = 50 + i;
    for (size_t i = 0; i < 10; i++) {
        CHECK_INT(hearth_session_eval_each(s, more, 10, end_at, &i, NULL), HEARTH_ERROR_CANCELLED);
        check_unchanged(s, logits, 3);
        CHECK_INT(hearth_session_eval_hidden(s, more, 10, end_at, &i, NULL), HEARTH_ERROR_CANCELLED);
        check_unchanged(s, logits, 3);
    }
    CHECK_OK(hearth_session_truncate(s, 3, err)); /* where it is */
    check_unchanged(s, logits, 3);
    CHECK_OK(hearth_session_truncate(s, 2, err));
    CHECK(hearth_session_logits(s) == NULL);
    CHECK_OK(hearth_session_eval(s, ids + 2, 1, err)); /* as the header says */
    check_unchanged(s, logits, 3);
    size_t none = 99;
    CHECK_OK(hearth_session_eval_hidden(s, more, 10, end_at, &none, err));
    CHECK(hearth_session_logits(s) == NULL);
}

static hearth_status write_nothing(void *user, const void *data, size_t n, hearth_error *err) { return HEARTH_OK; }
static hearth_status read_nothing(void *user, void *data, size_t n, hearth_error *err) { return HEARTH_OK; }

TEST(functions_on_sessions_take_NULL)
{
    double share[TINY_LAYERS];
    const char *scratch = test_scratch("s");
    CLOSED(hearth_session) *s = OPENED(hearth_session, model, NULL);
    CHECK(hearth_session_logits(NULL) == NULL && hearth_session_tokens(NULL) == NULL);
    CHECK_INT(hearth_session_position(NULL), 0);
    CHECK_INT(hearth_session_n_cached(NULL), 0);
    CHECK_INT(hearth_session_n_ctx(NULL), 0);
    CHECK_INT(hearth_session_n_thread(NULL), 0);
    REFUSED(hearth_session_truncate(NULL, 0, err), "session is NULL");
    REFUSED(hearth_session_truncate(s, 1, err), "position 1 of 0");
    NOT_OPENED(hearth_session, out, hearth_session_fork(NULL, &out, err), "session is NULL");
    REFUSED(hearth_session_fork(s, NULL, err), "out is NULL");
    REFUSED(hearth_session_save(NULL, scratch, err), "session is NULL");
    REFUSED(hearth_session_save(s, NULL, err), "path is NULL");
    REFUSED(hearth_session_restore(NULL, scratch, err), "session is NULL");
    REFUSED(hearth_session_restore(s, NULL, err), "path is NULL");
    FAILS_AS(HEARTH_ERROR_IO, hearth_session_restore(s, scratch, err), scratch);
    void *data = s;
    size_t n = 1;
    REFUSED(hearth_session_save_to(NULL, write_nothing, NULL, err), "session is NULL");
    REFUSED(hearth_session_save_to(s, NULL, NULL, err), "fn is NULL");
    REFUSED(hearth_session_restore_from(NULL, read_nothing, NULL, err), "session is NULL");
    REFUSED(hearth_session_restore_from(s, NULL, NULL, err), "fn is NULL");
    REFUSED(hearth_session_save_memory(NULL, &data, &n, err), "session is NULL");
    CHECK(data == NULL && n == 0);
    REFUSED(hearth_session_save_memory(s, NULL, &n, err), "data is NULL");
    REFUSED(hearth_session_save_memory(s, &data, NULL, err), "n is NULL");
    REFUSED(hearth_session_restore_memory(NULL, ids, sizeof ids, err), "session is NULL");
    REFUSED(hearth_session_restore_memory(s, NULL, 5, err), "data is NULL");
    FAILS_AS(HEARTH_ERROR_FORMAT, hearth_session_restore_memory(s, ids, sizeof ids, err), "not a saved session");
    REFUSED(hearth_session_set_threads(NULL, 1, err), "session is NULL");
    REFUSED(hearth_session_set_threads(s, 257, err), "n_thread is 257");
    hearth_session_enable_sparsity_stats(NULL, true);
    CHECK_INT(hearth_session_sparsity_stats(NULL, share), 0);
    CHECK_INT(hearth_session_sparsity_stats(s, NULL), 0);
}

/* ---- embedders --------------------------------------------------------------------------------------------- */

TEST(embedders_are_not_opened_by_mistake)
{
    static const struct {
        hearth_embedder_options o;
        const char *words;
    } wrong[] = {{{.kv = (hearth_kv_type)3}, "kv is 3"},
                 {{.pooling = (hearth_pooling)5}, "pooling is 5"},
                 {{.pooling = (hearth_pooling)-1}, "pooling is -1"},
                 {{.n_thread = 257}, "n_thread is 257"},
                 {{.n_batch = 65537}, "n_batch is 65537"},
                 {{.n_dim = TINY_D_MODEL + 1}, "n_dim is 33"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        NOT_OPENED(hearth_embedder, out, hearth_embedder_open(model, &wrong[i].o, &out, err), wrong[i].words);
    NOT_OPENED(hearth_embedder, out, hearth_embedder_open(NULL, NULL, &out, err), "model is NULL");
    REFUSED(hearth_embedder_open(model, NULL, NULL, err), "out is NULL");
    hearth_embedder_options defaults = hearth_embedder_defaults();
    CHECK_INT(defaults.size, sizeof defaults);
    defaults.size = 0;
    CHECK_BYTES(&defaults, &(hearth_embedder_options){0}, sizeof defaults);
    hearth_embedder_close(NULL);
}

TEST(functions_on_embedders_take_NULL)
{
    float vector[TINY_D_MODEL];
    bool more = true;
    const hearth_embed_text text = {.tokens = ids, .n_token = N_ID};
    CLOSED(hearth_embedder) *e = OPENED(hearth_embedder, model, NULL);
    REFUSED(hearth_embed(NULL, &text, 1, vector, err), "embedder is NULL");
    REFUSED(hearth_embed(e, NULL, 1, vector, err), "texts is NULL");
    REFUSED(hearth_embed(e, &text, 1, NULL, err), "vectors is NULL");
    REFUSED(hearth_embed_begin(NULL, &text, 1, vector, err), "embedder is NULL");
    REFUSED(hearth_embed_begin(e, NULL, 1, vector, err), "texts is NULL");
    REFUSED(hearth_embed_begin(e, &text, 1, NULL, err), "vectors is NULL");
    REFUSED(hearth_embed_step(NULL, &more, err), "embedder is NULL");
    CHECK(!more);
    CHECK_INT(hearth_embedder_pooling(NULL), HEARTH_POOLING_AUTO);
    CHECK_INT(hearth_embedder_n_ctx(NULL), 0);
    CHECK_INT(hearth_embedder_n_dim(NULL), 0);
    CHECK_INT(hearth_embedder_n_evaluated(NULL), 0);
    hearth_embedder_cancel(NULL);
    REFUSED(hearth_embedder_set_threads(NULL, 1, err), "embedder is NULL");
    CHECK_OK(hearth_embed(e, &text, 1, vector, err));
}

/* ---- batches ----------------------------------------------------------------------------------------------- */

TEST(batches_take_NULL)
{
    NOT_OPENED(hearth_batch, out, hearth_batch_open(NULL, 1, 1, &out, err), "model is NULL");
    NOT_OPENED(hearth_batch, out, hearth_batch_open(model, 0, 1, &out, err), "n_tok is 0");
    NOT_OPENED(hearth_batch, out, hearth_batch_open(model, 65537, 1, &out, err), "n_tok is 65537");
    NOT_OPENED(hearth_batch, out, hearth_batch_open(model, 1, 257, &out, err), "n_thread is 257");
    REFUSED(hearth_batch_open(model, 1, 1, NULL, err), "out is NULL");
    CLOSED(hearth_batch) *b = OPENED(hearth_batch, model, 8, 1);
    CLOSED(hearth_session) *s = OPENED(hearth_session, model, NULL);
    REFUSED(hearth_batch_add(NULL, s, ids, 1, err), "batch is NULL");
    REFUSED(hearth_batch_add(b, NULL, ids, 1, err), "session is NULL");
    REFUSED(hearth_batch_add(b, s, NULL, 1, err), "tokens is NULL");
    REFUSED(hearth_batch_add(b, s, ids, 0, err), "n is 0");
    REFUSED(hearth_batch_run(NULL, err), "batch is NULL");
    REFUSED(hearth_batch_set_threads(NULL, 1, err), "batch is NULL");
    REFUSED(hearth_batch_set_threads(b, 257, err), "n_thread is 257");
    CHECK_OK(hearth_batch_run(b, err));
    hearth_batch_clear(NULL), hearth_batch_cancel(NULL), hearth_batch_unpin(NULL), hearth_session_cancel(NULL);
    hearth_batch_close(NULL);
}

TEST(a_batch_that_fails_keeps_its_tokens)
{
    enum { N_SESSION = 3 };
    const hearth_session_options o = {.n_ctx = 32, .n_batch = 8, .n_thread = 1};
    hearth_session *s[N_SESSION], *alone[N_SESSION];
    float before[N_SESSION][TINY_VOCAB];
    CLOSED(hearth_batch) *b = OPENED(hearth_batch, model, 16, 1);
    for (int i = 0; i < N_SESSION; i++) {
        s[i] = OPENED(hearth_session, model, &o), alone[i] = OPENED(hearth_session, model, &o);
        CHECK_OK(hearth_session_eval(s[i], ids, (size_t)i + 1, err));
        CHECK_OK(hearth_session_eval(alone[i], ids, (size_t)i + 1, err));
        memcpy(before[i], hearth_session_logits(s[i]), sizeof before[i]);
        CHECK_OK(hearth_session_eval(alone[i], ids + i, 2, err));
        CHECK_OK(hearth_batch_add(b, s[i], ids + i, 2, err));
    }
    cancel = 1;
    FAILS_AS(HEARTH_ERROR_CANCELLED, hearth_batch_run(b, err), "interrupted");
    for (int i = 0; i < N_SESSION; i++) {
        check_unchanged(s[i], before[i], (uint32_t)i + 1);
        REFUSED(hearth_batch_add(b, s[i], ids, 1, err), "already in a batch");
    }
    cancel = 0;
    CHECK_OK(hearth_batch_run(b, err));
    for (int i = 0; i < N_SESSION; i++)
        check_unchanged(s[i], hearth_session_logits(alone[i]), (uint32_t)i + 3);

    memcpy(before[0], hearth_session_logits(s[0]), sizeof before[0]);
    CHECK_OK(hearth_batch_add(b, s[0], ids, 2, err));
    hearth_batch_clear(b);
    check_unchanged(s[0], before[0], 3);
    CHECK_OK(hearth_batch_run(b, err)); /* empty */
    check_unchanged(s[0], before[0], 3);
    CHECK_OK(hearth_session_eval(s[0], ids, 1, err));
    for (int i = 0; i < N_SESSION; i++) hearth_session_close(s[i]), hearth_session_close(alone[i]);
}

/* ---- sampling ---------------------------------------------------------------------------------------------- */

TEST(samplers_take_NULL)
{
    static const hearth_logit_bias far = {.id = TINY_VOCAB}, reserved = {.id = 1, .reserved = {[1] = 1}};
    static const struct {
        hearth_sampler_options o;
        const char *words;
    } wrong[] = {{{.temperature = -1.0f}, "temperature is -1"},
                 {{.temperature = NAN}, "temperature is "},
                 {{.top_p = NAN}, "top_p is "},
                 {{.min_p = 2.0f}, "min_p is 2"},
                 {{.typical_p = -0.5f}, "typical_p is "},
                 {{.repeat_penalty = NAN}, "repeat_penalty is "},
                 {{.presence_penalty = INFINITY}, "presence_penalty is "},
                 {{.frequency_penalty = NAN}, "frequency_penalty is "},
                 {{.top_k = -1}, "top_k is -1"},
                 {{.repeat_last_n = -2}, "repeat_last_n is -2"},
                 {{.n_bias = 1}, "bias is NULL"},
                 {{.bias = &far, .n_bias = 1}, "bias[0].id is 267"},
                 {{.bias = &reserved, .n_bias = 1}, "bias[0].reserved is not zero"}};
    float logits[TINY_VOCAB] = {0};
    int32_t id;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        NOT_OPENED(hearth_sampler, out, hearth_sampler_open(model, &wrong[i].o, &out, err), wrong[i].words);
    NOT_OPENED(hearth_sampler, out, hearth_sampler_open(NULL, NULL, &out, err), "model is NULL");
    REFUSED(hearth_sampler_open(model, NULL, NULL, err), "out is NULL");
    CHECK_INT(hearth_sampler_defaults().size, sizeof(hearth_sampler_options));
    CLOSED(hearth_sampler) *s = OPENED(hearth_sampler, model, NULL);
    REFUSED(hearth_sampler_sample(NULL, logits, &id, err), "sampler is NULL");
    REFUSED(hearth_sampler_sample(s, NULL, &id, err), "logits is NULL");
    REFUSED(hearth_sampler_sample(s, logits, NULL, err), "id is NULL");
    logits[3] = NAN;
    FAILS_AS(HEARTH_ERROR_NUMERIC, hearth_sampler_sample(s, logits, &id, err), "token 3");
    hearth_sampler_accept(NULL, 1);
    hearth_sampler_accept(s, -1);
    hearth_sampler_accept(s, INT32_MAX);
    hearth_sampler_reseed(NULL, 1);
    hearth_sampler_forget(NULL);
    NOT_OPENED(hearth_sampler, clone, hearth_sampler_clone(NULL, &clone, err), "sampler is NULL");
    REFUSED(hearth_sampler_clone(s, NULL, err), "out is NULL");
    hearth_sampler_close(NULL);
}

/* ---- generation ---------------------------------------------------------------------------------------------- */

TEST(texts_are_not_generated_by_mistake)
{
    static const int32_t wrong_ids[] = {1, TINY_VOCAB};
    CLOSED(hearth_session) *s = OPENED(hearth_session, model, (&(hearth_session_options){.n_ctx = 32, .n_thread = 1}));
    CLOSED(hearth_session) *of_batches = OPENED(
        hearth_session, model, (&(hearth_session_options){.n_ctx = 32, .n_batch = HEARTH_BATCH_NONE}));
    hearth_usage usage = {.size = 1};
    const hearth_generate_options right = {.tokens = ids, .n_token = N_ID, .max_token = 2};
    REFUSED(hearth_generate(NULL, &right, NULL, err), "session is NULL");
    REFUSED(hearth_generate(s, NULL, NULL, err), "tokens is NULL");
    REFUSED(hearth_generate(s, &(hearth_generate_options){.n_token = 2}, NULL, err), "tokens is NULL");
    REFUSED(hearth_generate(s, &(hearth_generate_options){.tokens = ids}, NULL, err), "n_token is 0");
    REFUSED(hearth_generate(s, &(hearth_generate_options){.tokens = wrong_ids, .n_token = 2}, NULL, err), "tokens[1] is 267");
    REFUSED(hearth_generate(s, &right, &usage, err), "hearth_usage.size is 1");
    REFUSED(hearth_generate(of_batches, &right, NULL, err), "HEARTH_BATCH_NONE");
    usage = (hearth_usage){.size = sizeof usage, .n_prompt = 7};
    REFUSED(hearth_generate(NULL, &right, &usage, err), "session is NULL");
    CHECK_INT(usage.n_prompt, 0);
    CHECK_INT(hearth_session_position(s), 0);
    CHECK_OK(hearth_generate(s, &right, NULL, err));
    CHECK_INT(hearth_session_position(s), N_ID + 2);
    hearth_generate_options defaults = hearth_generate_defaults();
    CHECK_INT(defaults.size, sizeof defaults);
    defaults.size = 0;
    CHECK_BYTES(&defaults, &(hearth_generate_options){0}, sizeof defaults);
}

/* ---- constrained text --------------------------------------------------------------------------------------- */

TEST(constraints_take_NULL)
{
    static const char *const no_choice[] = {"a", NULL};
    static const struct {
        hearth_constraint_options o;
        const char *words;
    } wrong[] = {
        {{.kind = (hearth_constraint_kind)5}, "kind is 5"},
        {{.kind = (hearth_constraint_kind)-1}, "kind is -1"},
        {{.kind = HEARTH_CONSTRAINT_JSON_SCHEMA}, "text is NULL"},
        {{.kind = HEARTH_CONSTRAINT_GRAMMAR, .n = 3}, "text is NULL"},
        {{.kind = HEARTH_CONSTRAINT_CALLS}, "text is NULL"},
        {{.kind = HEARTH_CONSTRAINT_CHOICES, .n_choice = 1}, "choices is NULL"},
        {{.kind = HEARTH_CONSTRAINT_CHOICES}, "n_choice is 0"},
        {{.kind = HEARTH_CONSTRAINT_CHOICES, .choices = no_choice, .n_choice = 2}, "choices[1] is NULL"}};
    float logits[TINY_VOCAB] = {0};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        NOT_OPENED(hearth_constraint, out, hearth_constraint_open(model, &wrong[i].o, &out, err),
                   wrong[i].words);
    NOT_OPENED(hearth_constraint, out, hearth_constraint_open(NULL, NULL, &out, err), "model is NULL");
    REFUSED(hearth_constraint_open(model, NULL, NULL, err), "out is NULL");
    REFUSED(hearth_constraint_prepare(NULL, err), "model is NULL");
    hearth_constraint *c = OPENED(hearth_constraint, model, NULL); /* any JSON object */
    NOT_OPENED(hearth_constraint, out, hearth_constraint_copy(NULL, &out, err), "constraint is NULL");
    REFUSED(hearth_constraint_copy(c, NULL, err), "out is NULL");
    REFUSED(hearth_constraint_mask(NULL, logits, err), "constraint is NULL");
    REFUSED(hearth_constraint_mask(c, NULL, err), "logits is NULL");
    REFUSED(hearth_constraint_accept(NULL, 1, err), "constraint is NULL");
    REFUSED(hearth_constraint_accept(c, -1, err), "token -1");
    REFUSED(hearth_constraint_accept(c, TINY_VOCAB, err), "token 267");
    REFUSED(hearth_constraint_accept(c, 3 + 'x', err), "cannot follow");
    CHECK_INT(hearth_constraint_get_end(NULL), HEARTH_CONSTRAINT_INCOMPLETE);
    CHECK_TEXT(hearth_constraint_get_notes(NULL), "");
    CHECK_OK(hearth_constraint_accept(c, 3 + '{', err));
    hearth_constraint_close(c);
    hearth_constraint_close(NULL);
}

/* ---- drafts ------------------------------------------------------------------------------------------------ */

TEST(drafts_take_NULL)
{
    hearth_draft_stats stats = {0};
    CLOSED(hearth_session) *s = OPENED(hearth_session, model, &(hearth_session_options){.n_ctx = 32});
    CLOSED(hearth_session) *in_batch =
        OPENED(hearth_session, model, &(hearth_session_options){.n_ctx = 32, .n_batch = HEARTH_BATCH_NONE});
    REFUSED(hearth_session_use_drafts(NULL, NULL, NULL, err), "session is NULL");
    REFUSED(hearth_session_use_drafts(s, &(hearth_draft_options){.n_draft = 16}, NULL, err), "n_draft is 16");
    REFUSED(hearth_session_use_drafts(s, &(hearth_draft_options){.reserved = {1}}, NULL, err),
            "reserved is not zero");
    REFUSED(hearth_session_use_drafts(in_batch, NULL, NULL, err), "steps of their own");
    CHECK_INT(hearth_session_get_draft_stats(NULL, &stats), HEARTH_ERROR_ARGUMENT);
    CHECK_INT(hearth_session_get_draft_stats(s, NULL), HEARTH_ERROR_ARGUMENT);
    CHECK_INT(hearth_session_get_draft_stats(s, &stats), HEARTH_OK);
    CHECK_OK(hearth_session_use_drafts(s, NULL, NULL, err));
}

/* NULL and zeros mean the same: drafts as far as they are worth it. */
TEST(zero_means_the_same_drafts_everywhere)
{
    static const hearth_draft_options zeros = {0}, none = {.n_draft = HEARTH_DRAFT_NONE};
    const hearth_draft_options *const given[] = {NULL, &zeros, &none};
    for (int i = 0; i < 3; i++) {
        CLOSED(hearth_session) *s =
            OPENED(hearth_session, model, &(hearth_session_options){.n_ctx = 64, .n_thread = 1});
        CHECK_OK(hearth_session_use_drafts(s, given[i], NULL, err));
        uint64_t with = hth_alloc_in_use();
        CHECK_OK(hearth_session_use_drafts(s, &none, NULL, err));
        CHECK((hth_alloc_in_use() < with) == (i < 2));
    }
    hearth_scheduler *s[3];
    uint64_t bytes[4] = {hth_alloc_in_use()};
    const hearth_scheduler_options zero = {0}, without = {.draft = none};
    const hearth_scheduler_options *const options[] = {NULL, &zero, &without};
    for (int i = 0; i < 3; i++)
        s[i] = OPENED(hearth_scheduler, model, options[i]), bytes[i + 1] = hth_alloc_in_use();
    uint64_t by_null = bytes[1] - bytes[0], by_zeros = bytes[2] - bytes[1];
    CHECK(by_zeros < by_null + 1000 && by_null < by_zeros + 1000);
    CHECK(bytes[3] - bytes[2] < bytes[1] - bytes[0]);
    for (int i = 0; i < 3; i++) hearth_scheduler_close(s[i]);
}

/* ---- scheduling -------------------------------------------------------------------------------------------- */

static bool ignore_event(void *user, const hearth_request_event *event) { return true; }

TEST(schedulers_are_not_opened_by_mistake)
{
    static const struct {
        hearth_scheduler_options o;
        const char *words;
    } wrong[] = {{{.kv = (hearth_kv_type)3}, "kv is 3"},
                 {{.n_thread = 257}, "n_thread is 257"},
                 {{.n_running = 1025, .n_batch = 2000}, "n_running is 1025"},
                 {{.n_running = 9, .n_batch = 8}, "n_batch 8"},
                 {{.n_kept = 4097}, "n_kept is 4097"},
                 {{.n_batch = 65537}, "n_tok is 65537"},
                 {{.max_delay = -1.0}, "max_delay is -1"},
                 {{.max_delay = (double)NAN}, "max_delay is "},
                 {{.draft = {.n_draft = 16}}, "n_draft is 16"},
                 {{.draft = {.reserved = {[3] = 1}}}, "reserved is not zero"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        NOT_OPENED(hearth_scheduler, out, hearth_scheduler_open(model, &wrong[i].o, &out, err),
                   wrong[i].words);
    NOT_OPENED(hearth_scheduler, out, hearth_scheduler_open(NULL, NULL, &out, err), "model is NULL");
    REFUSED(hearth_scheduler_open(model, NULL, NULL, err), "out is NULL");
    hearth_scheduler_options defaults = hearth_scheduler_defaults();
    CHECK_INT(defaults.size, sizeof defaults);
    defaults.size = 0;
    CHECK_BYTES(&defaults, &(hearth_scheduler_options){0}, sizeof defaults);
    hearth_scheduler_close(NULL);
}

TEST(requests_are_checked)
{
    static const int32_t wrong_ids[] = {1, TINY_VOCAB};
    static const hearth_sampler_options sampler = {.temperature = NAN};
    static const struct {
        hearth_request r;
        const char *words;
    } wrong[] = {{{.fn = ignore_event}, "n_token is 0"},
                 {{.n_token = 2, .fn = ignore_event}, "tokens is NULL"},
                 {{.tokens = ids, .n_token = 2}, "fn is NULL"},
                 {{.tokens = wrong_ids, .n_token = 2, .fn = ignore_event}, "tokens[1] is 267"},
                 {{.tokens = ids, .n_token = 2, .fn = ignore_event, .sampler = &sampler}, "temperature is "}};
    hearth_scheduler *s =
        OPENED(hearth_scheduler, model, &(hearth_scheduler_options){.n_ctx = 32, .n_thread = 1});
    uint64_t id = 1;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        REFUSED(hearth_scheduler_add(s, &wrong[i].r, &id, err), wrong[i].words);
        CHECK_INT(id, 0);
    }
    const hearth_request right = {.tokens = ids, .n_token = 2, .max_token = 2, .fn = ignore_event};
    REFUSED(hearth_scheduler_add(NULL, &right, &id, err), "scheduler is NULL");
    REFUSED(hearth_scheduler_add(s, NULL, &id, err), "n_token is 0");
    REFUSED(hearth_scheduler_add(s, &right, NULL, err), "id is NULL");
    static const int32_t many[40];
    const hearth_request long_one = {.tokens = many, .n_token = 40, .fn = ignore_event};
    FAILS_AS(HEARTH_ERROR_CONTEXT, hearth_scheduler_add(s, &long_one, &id, err), "40 tokens");
    CHECK(!test_step(s));
    hearth_scheduler_close(s);
}

/* With a larger vocabulary they would read and write behind the logits. */
TEST(samplers_and_constraints_of_other_models_are_refused)
{
    CLOSED(hearth_model) *other = OPENED(hearth_model, HEARTH_SOURCE_DIR "/models/storyteller-q8_0.gguf", NULL);
    CLOSED(hearth_sampler) *sampler = OPENED(hearth_sampler, other, NULL);
    CLOSED(hearth_constraint) *constraint = OPENED(hearth_constraint, other, NULL);
    CLOSED(hearth_session) *s = OPENED(hearth_session, model, (&(hearth_session_options){.n_ctx = 32, .n_thread = 1}));
    CLOSED(hearth_scheduler) *scheduler =
        OPENED(hearth_scheduler, model, (&(hearth_scheduler_options){.n_ctx = 32, .n_thread = 1}));
    const hearth_generate_options by_sampler = {.tokens = ids, .n_token = N_ID, .sampler = sampler},
                                  by_constraint = {.tokens = ids, .n_token = N_ID, .constraint = constraint};
    const hearth_request request = {.tokens = ids, .n_token = 2, .fn = ignore_event, .constraint = constraint};
    uint64_t id;
    REFUSED(hearth_generate(s, &by_sampler, NULL, err), "hearth_generate_options.sampler is for 2048 tokens, and the model has 267");
    REFUSED(hearth_generate(s, &by_constraint, NULL, err), "hearth_generate_options.constraint was opened with another model");
    REFUSED(hearth_scheduler_add(scheduler, &request, &id, err), "hearth_request.constraint was opened with another model");
    REFUSED(hearth_session_use_drafts(s, NULL, sampler, err), "sampler is for 2048 tokens");
    CHECK_INT(hearth_session_position(s), 0);
}

TEST(a_constraint_is_of_one_request)
{
    CLOSED(hearth_constraint) *constraint = OPENED(hearth_constraint, model, NULL);
    CLOSED(hearth_scheduler) *scheduler =
        OPENED(hearth_scheduler, model, (&(hearth_scheduler_options){.n_ctx = 32, .n_thread = 1}));
    const hearth_request request = {.tokens = ids, .n_token = 2, .fn = ignore_event, .constraint = constraint};
    uint64_t first, id;
    CHECK_OK(hearth_scheduler_add(scheduler, &request, &first, err));
    REFUSED(hearth_scheduler_add(scheduler, &request, &id, err), "hearth_request.constraint is that of a request");
    hearth_scheduler_cancel(scheduler, first);
    CHECK_OK(hearth_scheduler_add(scheduler, &request, &id, err));
}

TEST(functions_on_schedulers_take_NULL)
{
    hearth_scheduler_stats stats = {0};
    hearth_request_progress progress = {0};
    hearth_scheduler *s =
        OPENED(hearth_scheduler, model, &(hearth_scheduler_options){.n_ctx = 32, .n_thread = 1});
    hearth_scheduler_cancel(NULL, 1), hearth_scheduler_cancel(s, 1);
    hearth_scheduler_pause(NULL, 1, true), hearth_scheduler_pause(s, 1, true);
    bool more = true;
    REFUSED(hearth_scheduler_set_threads(NULL, 1, err), "scheduler is NULL");
    REFUSED(hearth_scheduler_set_threads(s, 257, err), "n_thread is 257");
    REFUSED(hearth_scheduler_step(NULL, &more, err), "scheduler is NULL");
    CHECK(!more && !hearth_scheduler_has_unsaved(NULL));
    CHECK_OK(hearth_scheduler_step(s, NULL, err));
    CHECK(!hearth_request_cancel(NULL, 1) && !hearth_request_cancel(s, 0));
    CHECK(hearth_request_cancel(s, 99)); /* there is none: nothing happens */
    CHECK_OK(hearth_scheduler_step(s, &more, err));
    REFUSED(hearth_scheduler_save(NULL, "x", 1, NULL, NULL, err), "scheduler is NULL");
    REFUSED(hearth_scheduler_save(s, NULL, 1, NULL, NULL, err), "folder is NULL");
    REFUSED(hearth_scheduler_restore(NULL, "x", err), "scheduler is NULL");
    REFUSED(hearth_scheduler_restore(s, NULL, err), "folder is NULL");
    CHECK_INT(hearth_scheduler_get_stats(NULL, &stats), HEARTH_ERROR_ARGUMENT);
    CHECK_INT(hearth_scheduler_get_stats(s, NULL), HEARTH_ERROR_ARGUMENT);
    CHECK(!hearth_scheduler_get_progress(NULL, 1, &progress) && !hearth_scheduler_get_progress(s, 1, NULL));
    hearth_scheduler_enable_sparsity_stats(NULL, true);
    CHECK_INT(hearth_scheduler_sparsity_stats(NULL, NULL), 0);
    CHECK_INT(hearth_scheduler_sparsity_stats(s, NULL), 0);
    hearth_scheduler_close(s);
}
