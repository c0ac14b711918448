/* A conversation: reads lines, and answers each of them as the chat template of the model has it.
 *
 *     cc chat.c $(pkg-config --cflags --libs hearth) -o chat
 *     ./chat model.gguf              # the template in the file
 *     ./chat model.gguf chatml 200   # a format by name, and at most 200 tokens an answer
 *
 * The session keeps the cache from turn to turn: only what is new in the conversation is evaluated. */
#include <hearth/hearth.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_MESSAGE = 1000, MAX_TEXT = 8192 };

typedef struct chat {
    hearth_model *model;
    hearth_chat *format;
    hearth_session *session;
    hearth_sampler *sampler;
    hearth_message messages[MAX_MESSAGE]; /* their contents are allocated */
    size_t n_message;
    char answer[MAX_TEXT];
    size_t n_answer;
} chat;

/* The answer of a turn, and the status of dividing it. */
typedef struct turn {
    hearth_answer *answer;
    hearth_status status;
    hearth_error *err;
} turn;

static hearth_status fail(hearth_status status, const char *message, hearth_error *err)
{
    err->status = status;
    snprintf(err->message, sizeof err->message, "%s", message);
    return status;
}

static hearth_status chat_open(chat *c, const char *path, const char *format, hearth_error *err)
{
    hearth_status status = hearth_model_open(path, NULL, &c->model, err);
    if (!status) status = hearth_chat_open(c->model, format, &c->format, err);
    if (!status) status = hearth_session_open(c->model, NULL, &c->session, err);
    if (!status) status = hearth_sampler_open(c->model, NULL, &c->sampler, err);
    return status;
}

static void chat_close(chat *c)
{
    for (size_t i = 0; i < c->n_message; i++) free((void *)c->messages[i].content);
    hearth_sampler_close(c->sampler);
    hearth_session_close(c->session);
    hearth_chat_close(c->format);
    hearth_model_close(c->model);
}

static hearth_status add_message(chat *c, const char *role, const char *text, size_t n, hearth_error *err)
{
    if (c->n_message == MAX_MESSAGE) return fail(HEARTH_ERROR_CONTEXT, "too many messages", err);
    char *content = (char *)malloc(n + 1);
    if (!content) return fail(HEARTH_ERROR_MEMORY, "no memory for a message", err);
    memcpy(content, text, n);
    hearth_message *m = &c->messages[c->n_message++];
    memset(m, 0, sizeof *m);
    m->role = role;
    m->content = content;
    m->n = n;
    return HEARTH_OK;
}

/* A part of the answer. Reasoning is not shown, and is no part of the conversation. */
static void take(void *user, hearth_answer_kind kind, const char *text, size_t n)
{
    chat *c = (chat *)user;
    if (kind != HEARTH_ANSWER_TEXT || n > sizeof c->answer - c->n_answer) return;
    memcpy(c->answer + c->n_answer, text, n);
    c->n_answer += n;
    fwrite(text, 1, n, stdout);
    fflush(stdout);
}

/* Called by hearth_generate, for each token. */
static bool push(void *user, const hearth_generated *part)
{
    turn *t = (turn *)user;
    if (part->token >= 0 && !part->is_end) t->status = hearth_answer_push(t->answer, part->token, t->err);
    return !t->status;
}

/* Evaluates what is new in the conversation, and generates an answer. */
static hearth_status answer_ids(chat *c, const int32_t *ids, size_t n, unsigned long n_token, hearth_error *err)
{
    turn t = {NULL, HEARTH_OK, err};
    hearth_answer_options options = hearth_answer_defaults();
    options.chat = c->format;
    options.at_start = true;
    options.in_reasoning = hearth_chat_is_reasoning(c->format, ids, n);
    options.fn = take;
    options.user = c;
    hearth_generate_options text = hearth_generate_defaults();
    text.tokens = ids; /* all of them: what the session has at its beginning stays */
    text.n_token = n;
    text.max_token = n_token;
    text.sampler = c->sampler;
    text.fn = push;
    text.user = &t;
    hearth_status status = hearth_answer_open(c->model, &options, &t.answer, err);
    if (!status) status = hearth_generate(c->session, &text, NULL, err);
    if (!status) status = t.status;
    if (!status) status = hearth_answer_finish(t.answer, err);
    hearth_answer_close(t.answer);
    return status;
}

static hearth_status reply(chat *c, unsigned long n_token, hearth_error *err)
{
    hearth_chat_options options = hearth_chat_defaults();
    options.add_generation_prompt = true;
    int32_t *ids = NULL;
    size_t n;
    c->n_answer = 0;
    hearth_status status = hearth_chat_tokenize(c->format, c->messages, c->n_message, &options, &ids, &n, err);
    if (!status) status = answer_ids(c, ids, n, n_token, err);
    hearth_free(ids);
    putchar('\n');
    return status ? status : add_message(c, "assistant", c->answer, c->n_answer, err);
}

int main(int argc, char **argv)
{
    if (argc < 2 || argc > 4) {
        fputs("usage: chat MODEL [FORMAT [N_TOKEN]]\n", stderr);
        return 2;
    }
    static chat c; /* zeros */
    char line[MAX_TEXT];
    hearth_error err;
    unsigned long n_token = argc > 3 ? strtoul(argv[3], NULL, 10) : 1000;
    hearth_status status = chat_open(&c, argv[1], argc > 2 ? argv[2] : NULL, &err);
    while (!status && fgets(line, sizeof line, stdin)) {
        status = add_message(&c, "user", line, strcspn(line, "\n"), &err);
        if (!status) status = reply(&c, n_token, &err);
    }
    if (status) fprintf(stderr, "chat: %s\n", err.message);
    chat_close(&c);
    return status ? 1 : 0;
}
