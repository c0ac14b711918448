/* Objects of hearth.h may be closed in any order: what one of them uses stays until it is closed too, and nothing stays
 * after the last. What is given to a function may be overwritten and freed as soon as it returns. */
#include "support/models/tiny_model.h"
#include "support/test.h"

#include <pthread.h>

enum { MAX_OBJECT = 6, N_PROMPT = 6 };
static const int32_t prompt[N_PROMPT] = {1, 60, 70, 80, 90, 100};

typedef struct objects {
    gguf_bytes file, draft_file;
    hearth_model *model, *draft_model;
    hearth_session *session, *waiting;
    hearth_batch *batch;
    hearth_sampler *sampler;
    hearth_detokenizer *detokenizer;
    hearth_chat *chat;
    hearth_answer *answer;
    hearth_constraint *constraint, *copy;
    hearth_scheduler *scheduler;
    size_t n_text, n_event;
} objects;

static void count_text(void *user, hearth_answer_kind kind, const char *text, size_t n)
{
    ((objects *)user)->n_text += n;
}

static bool count_event(void *user, const hearth_request_event *event)
{
    CHECK(event->state != HEARTH_REQUEST_FAILED);
    ((objects *)user)->n_event++;
    return true;
}

/* In memory of its own, which ends with the last object. */
static hearth_model *open_tiny(gguf_bytes *file)
{
    CLEANUP(tiny_free) tiny_model m = tiny_new();
    tiny_set_text(&m, "tokenizer.chat_template",
                  "{% for m in messages %}{{ m.content }}{% endfor %}<think></think>");
    *file = tiny_write(&m);
    return OPENED_BY(hearth_model_open_memory, hearth_model, file->data, file->n, "tiny.gguf", NULL);
}

/* ---- what each object does with those that it uses --------------------------------------------------------- */

static void use_model(objects *o)
{
    hearth_model_info info = {0};
    CHECK_INT(hearth_model_get_info(o->model, &info), HEARTH_OK);
    CHECK_TEXT(info.path, "tiny.gguf");
}

static void use_session(objects *o)
{
    const int32_t next = 1 + (int32_t)hearth_session_position(o->session);
    CHECK_OK(hearth_session_eval(o->session, &next, 1, err));
    CHECK(hearth_session_logits(o->session) != NULL);
}

static void use_batch(objects *o) { CHECK_OK(hearth_batch_run(o->batch, err)); }

static void use_waiting(objects *o) { CHECK_INT(hearth_session_n_ctx(o->waiting), 64); }

static void use_sampler(objects *o)
{
    float logits[TINY_VOCAB] = {0};
    int32_t id;
    CHECK_OK(hearth_sampler_sample(o->sampler, logits, &id, err));
    hearth_sampler_accept(o->sampler, id);
}

static void use_detokenizer(objects *o)
{
    const char *text;
    size_t n;
    CHECK_OK(hearth_detokenizer_push(o->detokenizer, 3 + 'a', &text, &n, err));
    CHECK(n == 1 && *text == 'a');
}

static void use_chat(objects *o)
{
    const hearth_message message = {.role = "user", .content = "x", .n = 1};
    int32_t *ids;
    size_t n;
    CHECK_OK(hearth_chat_tokenize(o->chat, &message, 1, NULL, &ids, &n, err));
    CHECK(n > 1);
    hearth_free(ids);
}

static void use_answer(objects *o)
{
    size_t before = o->n_text;
    CHECK_OK(hearth_answer_push(o->answer, 3 + 'a', err));
    CHECK_INT(o->n_text, before + 1);
}

static void use_constraint_of(hearth_constraint *c)
{
    float logits[TINY_VOCAB] = {0};
    CHECK_OK(hearth_constraint_mask(c, logits, err));
    CHECK(logits[3 + 'a'] == 0.0f && logits[3 + 'b'] < 0.0f);
    CHECK_OK(hearth_constraint_accept(c, 3 + 'a', err));
}

static void use_constraint(objects *o) { use_constraint_of(o->constraint); }
static void use_copy(objects *o) { use_constraint_of(o->copy); }

static void use_scheduler(objects *o)
{
    size_t before = o->n_event;
    CHECK(test_step(o->scheduler));
    CHECK(o->n_event > before);
}

typedef struct kind {
    const char *name;
    void (*use)(objects *o);
    void (*close)(objects *o);
} kind;

#define KIND(MEMBER, TYPE, USE)                                                                              \
    static void close_##MEMBER(objects *o) { TYPE##_close(o->MEMBER); }                                      \
    static const kind MEMBER##_kind = {#MEMBER, USE, close_##MEMBER};
KIND(model, hearth_model, use_model)
KIND(draft_model, hearth_model, NULL)
KIND(session, hearth_session, use_session)
KIND(waiting, hearth_session, use_waiting)
KIND(batch, hearth_batch, use_batch)
KIND(sampler, hearth_sampler, use_sampler)
KIND(detokenizer, hearth_detokenizer, use_detokenizer)
KIND(chat, hearth_chat, use_chat)
KIND(answer, hearth_answer, use_answer)
KIND(constraint, hearth_constraint, use_constraint)
KIND(copy, hearth_constraint, use_copy)
KIND(scheduler, hearth_scheduler, use_scheduler)

/* ---- all orders ----------------------------------------------------------------------------------------- */

static void open_texts(objects *o)
{
    const hearth_constraint_options grammar = {
        .kind = HEARTH_CONSTRAINT_GRAMMAR, .text = "root ::= \"a\"+", .n = 13, .chat = NULL};
    o->detokenizer = OPENED(hearth_detokenizer, o->model, false, false);
    o->chat = OPENED(hearth_chat, o->model, NULL);
    o->sampler = OPENED(hearth_sampler, o->model, &(hearth_sampler_options){.temperature = 1.0f});
    o->answer = OPENED(hearth_answer, o->model,
                       &(hearth_answer_options){.chat = o->chat, .tools = "[]", .fn = count_text, .user = o});
    o->constraint = OPENED(hearth_constraint, o->model, &grammar);
    /* past the reasoning that it may begin with */
    CHECK_OK(hearth_answer_push(o->answer, 3 + 'a', err));
}

static void open_sessions(objects *o)
{
    const hearth_session_options alone = {.n_ctx = 64, .n_thread = 1},
                                 in_batch = {.n_ctx = 64, .n_batch = HEARTH_BATCH_NONE};
    o->draft_model = open_tiny(&o->draft_file);
    o->sampler = OPENED(hearth_sampler, o->model,
                        &(hearth_sampler_options){.temperature = 1.0f, .presence_penalty = 1.0f});
    o->session = OPENED(hearth_session, o->model, &alone);
    o->waiting = OPENED(hearth_session, o->model, &in_batch);
    o->batch = OPENED(hearth_batch, o->model, 16, 1);
    const hearth_draft_options drafts = {.n_draft = 3, .model = o->draft_model};
    CHECK_OK(hearth_session_use_drafts(o->session, &drafts, o->sampler, err));
    CHECK_OK(hearth_session_eval(o->session, prompt, N_PROMPT, err));
    CHECK_OK(hearth_batch_add(o->batch, o->waiting, prompt, N_PROMPT, err));
}

static void open_scheduler(objects *o)
{
    static const char *const letters[] = {
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}; /* it does not end here */
    const hearth_constraint_options choices = {
        .kind = HEARTH_CONSTRAINT_CHOICES, .choices = letters, .n_choice = 1};
    o->draft_model = open_tiny(&o->draft_file);
    o->constraint = OPENED(hearth_constraint, o->model, &choices);
    CHECK_OK(hearth_constraint_copy(o->constraint, &o->copy, err));
    o->chat = OPENED(hearth_chat, o->model, NULL);
    const hearth_scheduler_options options = {
        .n_ctx = 64, .n_thread = 1, .draft = {.n_draft = 2, .model = o->draft_model}};
    o->scheduler = OPENED(hearth_scheduler, o->model, &options);
    const hearth_request request = {.tokens = prompt,
                                    .n_token = N_PROMPT,
                                    .ignore_end = true,
                                    .constraint = o->constraint,
                                    .fn = count_event,
                                    .user = o};
    uint64_t id;
    CHECK_OK(hearth_scheduler_add(o->scheduler, &request, &id, err));
}

/* Whether the i-th kind may be used: not a constraint that a request uses. */
static bool is_usable(const kind *const *kinds, uint32_t i)
{
    return kinds[i]->use && !(kinds[i] == &constraint_kind && kinds[0] == &scheduler_kind);
}

static void close_in_order(void (*open)(objects *), const kind *const *kinds, uint32_t n,
                           const uint32_t *order)
{
    objects o = {0};
    o.model = open_tiny(&o.file);
    open(&o);
    for (uint32_t i = 0; i < n; i++) {
        kinds[order[i]]->close(&o);
        for (uint32_t k = i + 1; k < n; k++)
            if (is_usable(kinds, order[k])) kinds[order[k]]->use(&o);
    }
    memset(o.file.data, 0xAA, o.file.n);
    gguf_free(&o.file);
    gguf_free(&o.draft_file);
}

/* Permutes order[at..n). */
static void close_in_all_orders(void (*open)(objects *), const kind *const *kinds, uint32_t n,
                                uint32_t *order, uint32_t at)
{
    if (at == n) {
        close_in_order(open, kinds, n, order);
        return;
    }
    for (uint32_t i = at; i < n && test_n_failed() == 0; i++) {
        uint32_t kept = order[at];
        order[at] = order[i], order[i] = kept;
        close_in_all_orders(open, kinds, n, order, at + 1);
        kept = order[at], order[at] = order[i], order[i] = kept;
    }
}

static void permute(void (*open)(objects *), const kind *const *kinds, uint32_t n)
{
    uint32_t order[MAX_OBJECT];
    for (uint32_t i = 0; i < n; i++) order[i] = i;
    close_in_all_orders(open, kinds, n, order, 0);
}

TEST(texts_may_be_closed_in_any_order)
{
    static const kind *const kinds[] = {&model_kind,  &detokenizer_kind, &chat_kind,
                                        &answer_kind, &sampler_kind,     &constraint_kind};
    permute(open_texts, kinds, 6);
}

TEST(sessions_may_be_closed_in_any_order)
{
    static const kind *const kinds[] = {&model_kind, &draft_model_kind, &sampler_kind,
                                        &batch_kind, &session_kind,     &waiting_kind};
    permute(open_sessions, kinds, 6);
}

TEST(schedulers_may_be_closed_in_any_order)
{
    static const kind *const kinds[] = {&scheduler_kind,  &model_kind, &draft_model_kind,
                                        &constraint_kind, &copy_kind,  &chat_kind};
    permute(open_scheduler, kinds, 6);
}

/* The last reference may be given up on any thread. */
static void *close_on_thread(void *session)
{
    hearth_session_close(session);
    return NULL;
}

TEST(threads_may_close_the_last_object_of_a_model)
{
    enum { N_THREAD = 4 };
    for (int round = 0; round < 50; round++) {
        gguf_bytes file;
        pthread_t threads[N_THREAD];
        hearth_model *model = open_tiny(&file);
        for (int i = 0; i < N_THREAD; i++) {
            const hearth_session_options o = {.n_ctx = 32, .n_batch = HEARTH_BATCH_NONE};
            hearth_session *s = OPENED(hearth_session, model, &o);
            CHECK_INT(pthread_create(&threads[i], NULL, close_on_thread, s), 0);
        }
        hearth_model_close(model);
        for (int i = 0; i < N_THREAD; i++) pthread_join(threads[i], NULL);
        gguf_free(&file);
    }
}

/* ---- what is given ---------------------------------------------------------------------------------------- */

/* A copy in memory of exactly its size, which `spend` overwrites and frees. */
static void *lend(const void *data, size_t n)
{
    void *copy = malloc(n);
    memcpy(copy, data, n);
    return copy;
}

static char *lend_text(const char *text) { return lend(text, strlen(text) + 1); }

static void spend(void *data, size_t n)
{
    memset(data, 0x5A, n);
    free(data);
}

static void spend_text(char *text) { spend(text, strlen(text) + 1); }

TEST(options_of_a_model_may_be_freed)
{
    tiny_model m = tiny_new();
    tiny_save(&m, test_scratch("lent.gguf"));
    tiny_free(&m);
    char *path = lend_text(test_scratch("lent.gguf")), *device = lend_text("null"),
         *placement = lend_text("layers:1"), *io = lend_text("pread"), *activation = lend_text("silu");
    hearth_model_options *o = lend(&(hearth_model_options){.io = io,
                                                           .activation = activation,
                                                           .gpu = {.device = device, .placement = placement}},
                                   sizeof *o);
    CLOSED(hearth_model) *model = OPENED(hearth_model, path, o);
    spend_text(path), spend_text(device), spend_text(placement), spend_text(io), spend_text(activation);
    spend(o, sizeof *o);
    hearth_model_info info = {0};
    CHECK_INT(hearth_model_get_info(model, &info), HEARTH_OK);
    CHECK_TEXT(info.path, test_scratch("lent.gguf"));
    CHECK_TEXT(info.activation, "silu");
    CLOSED(hearth_session) *s = OPENED(hearth_session, model, NULL);
    CHECK_OK(hearth_session_eval(s, prompt, N_PROMPT, err));
}

TEST(names_and_options_of_texts_may_be_freed)
{
    static const char template[] = "{% for m in messages %}{{ m.content }}{% endfor %}";
    objects o = {0};
    char *name = lend_text("in memory"), *source = lend(template, sizeof template - 1),
         *format = lend_text("chatml"),
         *tools = lend_text("[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]"),
         *grammar = lend_text("root ::= \"a\"+");
    CLEANUP(tiny_free) tiny_model m = tiny_new();
    CLEANUP(gguf_free) gguf_bytes file = tiny_write(&m);
    CLOSED(hearth_model) *model =
        OPENED_BY(hearth_model_open_memory, hearth_model, file.data, file.n, name, NULL);
    spend_text(name);
    hearth_model_info info = {0};
    hearth_model_get_info(model, &info);
    CHECK_TEXT(info.path, "in memory");

    CLOSED(hearth_chat) *by_source =
        OPENED_BY(hearth_chat_open_template, hearth_chat, model, source, sizeof template - 1);
    spend(source, sizeof template - 1);
    CLOSED(hearth_chat) *by_name = OPENED(hearth_chat, model, format);
    spend_text(format);
    CHECK_TEXT(hearth_chat_name(by_name), "chatml");
    const hearth_message message = {.role = "user", .content = "x", .n = 1};
    char *text;
    size_t n;
    CHECK_OK(hearth_chat_render(by_source, &message, 1, NULL, &text, &n, err));
    CHECK_TEXT(text, "x");
    hearth_free(text);

    hearth_answer *answer =
        OPENED(hearth_answer, model,
               &(hearth_answer_options){.chat = by_source, .tools = tools, .fn = count_text, .user = &o});
    spend_text(tools);
    CHECK_OK(hearth_answer_push(answer, 3 + 'a', err));
    CHECK_OK(hearth_answer_finish(answer, err));
    CHECK_INT(o.n_text, 1);
    hearth_answer_close(answer);

    o.constraint =
        OPENED(hearth_constraint, model,
               &(hearth_constraint_options){.kind = HEARTH_CONSTRAINT_GRAMMAR, .text = grammar, .n = 13});
    spend_text(grammar);
    use_constraint(&o);
    hearth_constraint_close(o.constraint);
    char *choice = lend_text("aa");
    const char **choices = lend(&(const char *){choice}, sizeof *choices);
    o.constraint = OPENED(
        hearth_constraint, model,
        &(hearth_constraint_options){.kind = HEARTH_CONSTRAINT_CHOICES, .choices = choices, .n_choice = 1});
    spend_text(choice), spend(choices, sizeof *choices);
    use_constraint(&o);
    use_constraint(&o);
    hearth_constraint_close(o.constraint);
}

/* The template writes calls as elements: the types of their arguments are looked up in the functions (tools). */
TEST(functions_of_an_answer_may_be_freed)
{
    static const char source[] = "{% for m in messages %}{% if m.tool_calls %}{% for c in m.tool_calls "
                                 "%}<tool_call>\n<function={{ c.function.name }}>"
                                 "\n{% for k, v in c.function.arguments|items %}<parameter={{ k }}>\n{{ v "
                                 "}}\n</parameter>\n{% endfor %}</function>\n"
                                 "</tool_call>{% endfor %}{% endif %}{{ m.content }}{% endfor %}{% if tools "
                                 "%}{{ tools|tojson }}{% endif %}";
    static const char call[] =
        "<tool_call>\n<function=f>\n<parameter=a>\n5\n</parameter>\n</function>\n</tool_call>";
    objects o = {0};
    CLEANUP(gguf_free) gguf_bytes file;
    CLOSED(hearth_model) *model = open_tiny(&file);
    CLOSED(hearth_chat) *chat =
        OPENED_BY(hearth_chat_open_template, hearth_chat, model, source, sizeof source - 1);
    char *tools =
        lend_text("[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\","
                  "\"properties\":{\"a\":{\"type\":\"string\"}},\"required\":[\"a\"]}}}]");
    hearth_answer *answer =
        OPENED(hearth_answer, model,
               &(hearth_answer_options){.chat = chat, .tools = tools, .fn = count_text, .user = &o});
    spend_text(tools);
    for (size_t i = 0; i < sizeof call - 1; i++) CHECK_OK(hearth_answer_push(answer, 3 + call[i], err));
    CHECK_OK(hearth_answer_finish(answer, err));
    CHECK_INT(o.n_text,
              1 + strlen("{\"a\": \"5\"}")); /* a text, as the functions say; without them a number */
    hearth_answer_close(answer);
}

TEST(options_of_samplers_and_requests_may_be_freed)
{
    objects o = {0};
    CLEANUP(gguf_free) gguf_bytes file;
    CLOSED(hearth_model) *model = open_tiny(&file);
    hearth_logit_bias *bias = lend(&(hearth_logit_bias){.id = 3 + 'b', .bias = 1e6f}, sizeof *bias);
    hearth_sampler_options *sampling =
        lend(&(hearth_sampler_options){.bias = bias, .n_bias = 1}, sizeof *sampling);
    int32_t *tokens = lend(prompt, sizeof prompt);
    hearth_request *request = lend(&(hearth_request){.tokens = tokens,
                                                     .n_token = N_PROMPT,
                                                     .max_token = 3,
                                                     .sampler = sampling,
                                                     .fn = count_event,
                                                     .user = &o},
                                   sizeof *request);
    hearth_scheduler_options *options =
        lend(&(hearth_scheduler_options){.n_ctx = 32, .n_thread = 1}, sizeof *options);
    CLOSED(hearth_sampler) *sampler = OPENED(hearth_sampler, model, sampling);
    hearth_scheduler *scheduler = OPENED(hearth_scheduler, model, options);
    uint64_t id;
    CHECK_OK(hearth_scheduler_add(scheduler, request, &id, err));
    spend(options, sizeof *options), spend(request, sizeof *request), spend(tokens, sizeof prompt);
    spend(sampling, sizeof *sampling), spend(bias, sizeof *bias);
    float logits[TINY_VOCAB] = {0};
    int32_t drawn = -1;
    CHECK_OK(hearth_sampler_sample(sampler, logits, &drawn, err));
    CHECK_INT(drawn, 3 + 'b');
    while (test_step(scheduler)) {
    }
    CHECK_INT(o.n_event, 4);
    hearth_scheduler_close(scheduler);
}

TEST(tokens_of_sessions_may_be_freed)
{
    CLEANUP(gguf_free) gguf_bytes file;
    CLOSED(hearth_model) *model = open_tiny(&file);
    hearth_session_options *o = lend(&(hearth_session_options){.n_ctx = 32, .n_thread = 1}, sizeof *o);
    hearth_draft_options *drafts = lend(&(hearth_draft_options){.n_draft = 2}, sizeof *drafts);
    CLOSED(hearth_session) *s = OPENED(hearth_session, model, o);
    CHECK_OK(hearth_session_use_drafts(s, drafts, NULL, err));
    spend(o, sizeof *o), spend(drafts, sizeof *drafts);
    CLOSED(hearth_batch) *b = OPENED(hearth_batch, model, 16, 1);
    int32_t *tokens = lend(prompt, sizeof prompt);
    CHECK_OK(hearth_batch_add(b, s, tokens, N_PROMPT, err));
    spend(tokens, sizeof prompt);
    CHECK_OK(hearth_batch_run(b, err));
    CHECK_BYTES(hearth_session_tokens(s), prompt, sizeof prompt);
    char *path = lend_text(test_scratch("lent.session"));
    CHECK_OK(hearth_session_save(s, path, err));
    CHECK_OK(hearth_session_restore(s, path, err));
    spend_text(path);
    CHECK_OK(hearth_session_eval(s, prompt, 1, err));
}
