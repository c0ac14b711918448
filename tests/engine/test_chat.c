/* Chat as hearth.h promises it: which template a model has, ids with one begin-of-text
 * token, control tokens from the template alone, fall-backs, and allocations that fail. */
#include "base/alloc.h"
#include "engine/chat_int.h"
#include "support/test.h"
#include "support/models/tiny_model.h"

enum { BOS = 1, EOS = 2 };

typedef struct fixture {
    const char *path;
    hearth_model *model;
} fixture;

/* A tiny model with that template, or without one. */
static fixture open_fixture(const char *template)
{
    tiny_model m;
    fixture f = {test_scratch("chat.gguf"), NULL};
    tiny_begin(&m);
    if (template) tiny_set_text(&m, "tokenizer.chat_template", template);
    tiny_save(&m, f.path);
    CHECK_OK(hearth_model_open(f.path, NULL, &f.model, err));
    return f;
}

static void close_fixture(fixture *f)
{
    hearth_model_close(f->model);
    remove(f->path);
}

static const hearth_message talk[] = {{.role = "user", .content = "a</s>b", .n = 6},
                                      {.role = "assistant", .content = "c", .n = 1},
                                      {.role = "user", .content = "", .n = 0}};

static size_t count_of(const int32_t *ids, size_t n, int32_t id)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++) count += ids[i] == id;
    return count;
}

/* ---- which template ------------------------------------------------------------------------------- */

TEST(a_model_speaks_by_the_template_of_its_file)
{
    CLEANUP(close_fixture) fixture f = open_fixture(
        "{{ bos_token }}{% for m in messages %}{{ m.role ~ ':' ~ m.content ~ eos_token }}{% endfor %}");
    char *text;
    size_t n;
    CLOSED(hearth_chat) *chat = OPENED(hearth_chat, f.model, NULL);
    CHECK_TEXT(hearth_chat_name(chat), "template of the file");
    CHECK_OK(hearth_chat_render(chat, talk, 3, NULL, &text, &n, err));
    CHECK_TEXT(text, "<s>user:a</s>b</s>assistant:c</s>user:</s>");
    CHECK_INT(n, strlen(text));
    hearth_free(text);
}

TEST(a_file_may_name_a_format)
{
    CLEANUP(close_fixture) fixture f = open_fixture("vicuna");
    CLOSED(hearth_chat) *chat = OPENED(hearth_chat, f.model, NULL);
    CHECK_TEXT(hearth_chat_name(chat), "vicuna");
}

TEST(formats_and_templates_can_be_given)
{
    CLEANUP(close_fixture) fixture f = open_fixture(NULL);
    char *text;
    size_t n;
    hearth_chat_options o = {.add_generation_prompt = true, .variables = "{\"x\": 5}"};
    hearth_chat *chat = OPENED(hearth_chat, f.model, "vicuna");
    CHECK_OK(hearth_chat_render(chat, talk, 1, &o, &text, &n, err));
    CHECK_TEXT(text, "USER: a</s>b\nASSISTANT:");
    hearth_free(text);
    hearth_chat_close(chat);
    CHECK_OK(hearth_chat_open_template(f.model, "{{ x }}{{ add_generation_prompt }}", 34, &chat, err));
    CHECK_TEXT(hearth_chat_name(chat), "template");
    CHECK_OK(hearth_chat_render(chat, talk, 1, &o, &text, &n, err));
    CHECK_TEXT(text, "5True");
    hearth_free(text);
    hearth_chat_close(chat);
    CHECK_TEXT(hearth_chat_format(0), "chatglm4");
    CHECK(hearth_chat_format(1000) == NULL);
    hearth_chat_close(NULL);
}

static void refuses(const char *template, const char *format, hearth_status status, const char *says)
{
    CLEANUP(close_fixture) fixture f = open_fixture(template);
    hearth_chat *chat = NULL;
    hearth_error why = {0};
    CHECK_INT(hearth_chat_open(f.model, format, &chat, &why), status);
    if (!strstr(why.message, says)) test_fail(__FILE__, __LINE__, "\"%s\" lacks \"%s\"", why.message, says);
    CHECK(chat == NULL);
}

TEST(a_missing_template_is_reported_and_none_guessed)
{
    refuses(NULL, NULL, HEARTH_ERROR_UNSUPPORTED, "tokenizer.chat_template is missing");
    refuses(NULL, NULL, HEARTH_ERROR_UNSUPPORTED, "formats by name: chatml, ");
    refuses(NULL, "nope\n", HEARTH_ERROR_UNSUPPORTED, "'nope\\x0a' is not known; there are chatglm4, chatml, ");
    refuses("{{ 1", NULL, HEARTH_ERROR_FORMAT, "line 1");
    refuses("{% nonsense %}", NULL, HEARTH_ERROR_UNSUPPORTED, "formats by name: chatml");
}

/* 4 MiB + 1, an unterminated block, 1,000 nested ones: with a format told by the text
 * the chat goes on with it, and says so. */
TEST(a_template_that_cannot_be_parsed_falls_back_with_a_warning)
{
    static char large[(4 << 20) + 2], nested[20000] = "[INST]";
    memset(large, 'a', sizeof large - 1);
    memcpy(large, "<|im_start|>", 12);
    for (int i = 0; i < 1000; i++) strcat(nested, "{% if 1 %}");
    const struct {
        const char *template, *format, *says;
    } cases[] = {{large, "chatml", "at most 4 MiB"},
                 {"<start_of_turn>{% for x in y %}", "gemma", "is not ended"},
                 {nested, "llama2", "64 levels"}};
    for (size_t i = 0; i < 3; i++) {
        CLEANUP(close_fixture) fixture f = open_fixture(cases[i].template);
        test_log_start();
        CLOSED(hearth_chat) *chat = OPENED(hearth_chat, f.model, NULL);
        if (chat) CHECK_TEXT(hearth_chat_name(chat), cases[i].format);
        CHECK(strstr(test_warning(cases[i].says), "takes its place") != NULL);
    }
    test_log_stop();
}

/* Templates that end by their limits when they are used: a message, and the model stays. */
TEST(endless_templates_are_an_error_of_the_rendering)
{
    static const char *const endless[] = {
        "{% for x in range(1000000000) %}{% endfor %}",
        "{% for x in range(3000) %}{% for y in range(3000) %}{% endfor %}{% endfor %}",
        "{{ messages[0].content * 100000000 }}"};
    for (size_t i = 0; i < 3; i++) {
        CLEANUP(close_fixture) fixture f = open_fixture(endless[i]);
        hearth_error why = {0};
        int32_t *ids;
        size_t n;
        CLOSED(hearth_chat) *chat = OPENED(hearth_chat, f.model, NULL);
        CHECK_INT(hearth_chat_tokenize(chat, talk, 1, NULL, &ids, &n, &why), HEARTH_ERROR_UNSUPPORTED);
        CHECK(ids == NULL && n == 0 && strstr(why.message, "chat template, line 1: ") != NULL);
    }
}

/* ---- ids ---------------------------------------------------------------------------------------------- */

/* How often BOS and EOS stand among the ids of the conversation, and what is first. */
static void expect_tokens(const char *template, size_t n_bos, size_t n_eos)
{
    CLEANUP(close_fixture) fixture f = open_fixture(template);
    int32_t *ids = NULL;
    size_t n = 0;
    CLOSED(hearth_chat) *chat = OPENED(hearth_chat, f.model, NULL);
    CHECK_OK(hearth_chat_tokenize(chat, talk, 3, NULL, &ids, &n, err));
    if (CHECK(n > 0)) CHECK_INT(ids[0], BOS);
    CHECK_INT(count_of(ids, n, BOS), n_bos);
    CHECK_INT(count_of(ids, n, EOS), n_eos);
    hearth_free(ids);
}

TEST(bos_comes_once_and_control_tokens_from_the_template_alone)
{
    expect_tokens("{% for m in messages %}{{ m.content }}{% endfor %}", 1, 0);
    expect_tokens("{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}", 1, 0);
    expect_tokens("<s>{% for m in messages %}{{ m.content ~ '</s>' }}{% endfor %}", 1, 3);
    expect_tokens("{% for m in messages %}{{ '<s>' ~ m.content ~ eos_token }}{% endfor %}", 3, 3);
    expect_tokens("{{ '<' ~ 's' ~ '>' }}{{ messages[0].content|upper|lower }}", 1, 0); /* a frame of pieces */
    expect_tokens("{{ '</' ~ messages[0].content[3:] }}", 1, 0); /* half of it is content */
    expect_tokens("{{ '' }}", 1, 0);
    expect_tokens("{{ messages|tojson }}", 1, 0);
}

TEST(one_rendering_gives_the_text_and_the_ids)
{
    CLEANUP(close_fixture) fixture f = open_fixture(
        "{{ bos_token }}{% for m in messages %}{{ m.role ~ ':' ~ m.content ~ eos_token }}{% endfor %}");
    CLOSED(hearth_chat) *chat = OPENED(hearth_chat, f.model, NULL);
    hth_chat_prompt both, one;
    char *text;
    int32_t *ids;
    size_t n_text, n_ids;
    CHECK_OK(hth_chat_make_prompt(chat, talk, 3, NULL, true, &both, err));
    CHECK_OK(hth_chat_make_prompt(chat, talk, 3, NULL, false, &one, err));
    CHECK_OK(hearth_chat_render(chat, talk, 3, NULL, &text, &n_text, err));
    CHECK_OK(hearth_chat_tokenize(chat, talk, 3, NULL, &ids, &n_ids, err));
    CHECK_TEXT(both.text, text);
    CHECK_TEXT(one.text, text);
    CHECK_INT(both.n_text, n_text);
    CHECK_INT(both.n_ids, n_ids);
    CHECK_BYTES(both.ids, ids, n_ids * sizeof *ids);
    CHECK(!one.ids && one.n_ids == 0);
    hearth_free(both.text), hearth_free(both.ids), hearth_free(one.text);
    hearth_free(text), hearth_free(ids);
}

TEST(no_end_of_text_is_put_before_an_answer)
{
    CLEANUP(tiny_free) tiny_model m = tiny_new();
    tiny_set_text(&m, "tokenizer.chat_template", "{{ messages[0].content }}");
    tiny_set(&m, "tokenizer.ggml.add_eos_token", 7, 1, 1);
    CLEANUP(gguf_free) gguf_bytes b = tiny_write(&m);
    int32_t *ids = NULL;
    size_t n = 0;
    CLOSED(hearth_model) *model = OPENED_BY(hearth_model_open_memory, hearth_model, b.data, b.n, "eos.gguf", NULL);
    CHECK_OK(hearth_tokenize(model, "a", 1, HEARTH_ADD_SPECIAL, &ids, &n, err));
    CHECK_INT(count_of(ids, n, EOS), 1); /* the vocabulary does ask for it */
    hearth_free(ids);
    CLOSED(hearth_chat) *chat = OPENED(hearth_chat, model, NULL);
    CHECK_OK(hearth_chat_tokenize(chat, talk, 1, NULL, &ids, &n, err));
    CHECK_INT(count_of(ids, n, EOS), 0);
    CHECK_INT(count_of(ids, n, BOS), 1);
    hearth_free(ids);
}

/* Vocabularies whose BOS and EOS are one token may want it behind a text only. */
TEST(a_token_added_behind_texts_does_not_come_before_one)
{
    CLEANUP(tiny_free) tiny_model m = tiny_new();
    tiny_set_text(&m, "tokenizer.chat_template", "{{ messages[0].content }}");
    tiny_set_u32(&m, "tokenizer.ggml.bos_token_id", EOS);
    tiny_set(&m, "tokenizer.ggml.add_bos_token", 7, 0, 1);
    tiny_set(&m, "tokenizer.ggml.add_eos_token", 7, 1, 1);
    CLEANUP(gguf_free) gguf_bytes b = tiny_write(&m);
    int32_t *ids;
    size_t n;
    CLOSED(hearth_model) *model = OPENED_BY(hearth_model_open_memory, hearth_model, b.data, b.n, "tiny", NULL);
    CLOSED(hearth_chat) *chat = OPENED(hearth_chat, model, NULL);
    CHECK_OK(hearth_chat_tokenize(chat, talk, 1, NULL, &ids, &n, err));
    CHECK(n > 0);
    CHECK_INT(count_of(ids, n, EOS), 0);
    hearth_free(ids);
}

TEST(a_refusal_of_the_template_is_an_argument_error)
{
    CLEANUP(close_fixture) fixture f = open_fixture("{{ raise_exception('no system') }}");
    hearth_error why = {0};
    char *text;
    int32_t *ids;
    size_t n;
    CLOSED(hearth_chat) *chat = OPENED(hearth_chat, f.model, NULL);
    CHECK_INT(hearth_chat_render(chat, talk, 1, NULL, &text, &n, &why), HEARTH_ERROR_ARGUMENT);
    CHECK(text == NULL && strstr(why.message, "no system") != NULL);
    CHECK_INT(hearth_chat_tokenize(chat, talk, 1, NULL, &ids, &n, NULL), HEARTH_ERROR_ARGUMENT);
    const hearth_message odd = {.role = "a b", .content = "x", .n = 1};
    CHECK_INT(hearth_chat_render(chat, &odd, 1, NULL, &text, &n, &why), HEARTH_ERROR_ARGUMENT);
}

/* ---- allocations that fail ---------------------------------------------------------------------------------- */

static hearth_status whole_task(const hearth_model *model, const char *format, hearth_error *err)
{
    CLOSED(hearth_chat) *chat = NULL;
    int32_t *ids = NULL;
    char *text = NULL;
    size_t n;
    int64_t noon = 1721995200;
    hearth_chat_options o = {.add_generation_prompt = true, .local_time = &noon, .variables = "{\"a\": [1]}"};
    hearth_status st = hearth_chat_open(model, format, &chat, err);
    if (st == HEARTH_OK) st = hearth_chat_render(chat, talk, 3, &o, &text, &n, err);
    if (st == HEARTH_OK) st = hearth_chat_tokenize(chat, talk, 3, &o, &ids, &n, err);
    hearth_free(text);
    hearth_free(ids);
    return st;
}

TEST(chat_survives_every_allocation_that_fails)
{
    CLEANUP(close_fixture) fixture f = open_fixture(
        "{% for m in messages %}{{ m.content|upper ~ a|tojson ~ strftime_now('%Y') }}{% endfor %}");
    const char *const formats[] = {NULL, "gemma"};
    uint64_t held = hth_alloc_in_use();
    for (int i = 0; i < 4; i++) {
        hearth_status st = HEARTH_ERROR_MEMORY;
        uint64_t n = 1;
        for (; st != HEARTH_OK && n < 1000; n++) {
            hearth_error why = {0};
            hth_alloc_fail_at(n, i & 1);
            st = whole_task(f.model, formats[i / 2], &why);
            hth_alloc_fail_at(0, 0);
            if (!CHECK_INT(hth_alloc_in_use(), held)) break;
            if (st != HEARTH_OK && (st != HEARTH_ERROR_MEMORY || why.status != st || !why.message[0]))
                test_fail(__FILE__, __LINE__, "allocation %llu: '%s', %s", (unsigned long long)n,
                          hearth_status_name(st), why.message);
        }
        CHECK(n > 5 && n < 1000);
    }
}
