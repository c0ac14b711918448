/* POST /v1/chat/completions: the answer to a conversation. */
#define _GNU_SOURCE
#include "serve/generation.h"

#include "common/local_time.h"
#include "serve/messages.h"

#include <stdlib.h>
#include <string.h>

/* ---- answers ----------------------------------------------------------------------------------------------------- */

static void open_choice(json *j)
{
    json_open_compact(j, "choices", '[');
    json_open_compact(j, NULL, '{');
    json_uint(j, "index", 0);
}

static void close_choice(json *j, generation *g, const char *finish)
{
    if (finish || g->probs.n_written < g->probs.n) logprobs_write_chat(j, &g->probs, g->engine->model);
    else json_put_null(j, "logprobs");
    if (finish) json_word(j, "finish_reason", finish);
    else json_put_null(j, "finish_reason");
    json_close(j, '}');
    json_close(j, ']');
}

static void write_begin(json *j, generation *g)
{
    open_choice(j);
    json_open_compact(j, "delta", '{');
    json_word(j, "role", "assistant");
    json_word(j, "content", "");
    json_close(j, '}');
    close_choice(j, g, NULL);
}

static void write_part(json *j, generation *g, const char *text, size_t n)
{
    open_choice(j);
    json_open_compact(j, "delta", '{');
    json_text(j, "content", text, n);
    json_close(j, '}');
    close_choice(j, g, NULL);
}

static void write_end(json *j, generation *g, const char *finish)
{
    open_choice(j);
    json_open_compact(j, "delta", '{');
    json_close(j, '}');
    close_choice(j, g, finish);
}

static void write_whole(json *j, generation *g, const char *finish)
{
    open_choice(j);
    json_open_compact(j, "message", '{');
    json_word(j, "role", "assistant");
    json_text(j, "content", g->text.bytes ? g->text.bytes : "", g->text.n);
    json_put_null(j, "refusal");
    json_close(j, '}');
    close_choice(j, g, finish);
}

static const generation_format format = {.prefix = "chatcmpl-",
                                         .object = "chat.completion",
                                         .chunk_object = "chat.completion.chunk",
                                         .begin = write_begin,
                                         .part = write_part,
                                         .end = write_end,
                                         .whole = write_whole,
                                         .read_logprobs = logprobs_read_chat};

/* ---- requests ---------------------------------------------------------------------------------------------------- */

/* Tools are refused by name. */
static void check_offers(fields *f)
{
    const json_in *tools;
    if (fields_array(f, "tools", &tools) && json_in_count(tools) > 0)
        fields_fail(f, "tools", "tools are not supported");
    if (fields_value(f, "functions")) fields_fail(f, "functions", "tools are not supported");
}

void chat_run(void *user, call *c)
{
    engine *e = user;
    fields f;
    problem p;
    hearth_error err;
    messages m = {0};
    const json_in *variables = NULL;
    int32_t *ids = NULL;
    size_t n = 0;
    int64_t now = local_seconds();
    json_in *document = fields_read(c, &f, &p);
    if (!document) {
        call_problem(c, &p);
        return;
    }
    generation *g = generation_read(e, c, &format, document, &f);
    if (!g) return;
    char *written = NULL;
    check_offers(&f);
    bool ok = messages_read(&f, &m) && template_variables(&f, &variables);
    if (ok && !e->chat) problem_of_error(&p, &e->chat_error), ok = false;
    if (ok && variables && !(written = json_in_write(variables)))
        problem_set(&p, 503, "", "out of memory"), ok = false;
    const hearth_chat_options o = {.add_generation_prompt = true, .local_time = &now, .variables = written};
    if (ok && hearth_chat_tokenize(e->chat, m.at, m.n, &o, &ids, &n, &err) != HEARTH_OK)
        problem_of_error(&p, &err), ok = false;
    free(written);
    messages_free(&m);
    if (ok) generation_start(g, ids, n);
    else generation_refuse(g, &p);
}
