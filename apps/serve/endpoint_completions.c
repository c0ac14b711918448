/* POST /v1/completions: how a text goes on. */
#include "serve/generation.h"

#include "base/alloc.h"

#include <stdlib.h>
#include <string.h>

enum { USUAL_TOKENS = 16 }; /* OpenAI's default */

static void write_choice(json *j, generation *g, const char *text, size_t n, const char *finish)
{
    json_open_compact(j, "choices", '[');
    json_open_compact(j, NULL, '{');
    json_uint(j, "index", 0);
    json_text(j, "text", text, n);
    logprobs_write_completion(j, &g->probs, g->engine->model);
    if (finish) json_word(j, "finish_reason", finish);
    else json_put_null(j, "finish_reason");
    json_close(j, '}');
    json_close(j, ']');
}

static void write_part(json *j, generation *g, const char *text, size_t n)
{
    write_choice(j, g, text, n, NULL);
}
static void write_end(json *j, generation *g, const char *finish) { write_choice(j, g, "", 0, finish); }
static void write_whole(json *j, generation *g, const char *finish)
{
    write_choice(j, g, g->text.bytes ? g->text.bytes : "", g->text.n, finish);
}

static const generation_format format = {.prefix = "cmpl-",
                                         .object = "text_completion",
                                         .chunk_object = "text_completion",
                                         .part = write_part,
                                         .end = write_end,
                                         .whole = write_whole,
                                         .read_logprobs = logprobs_read_completion,
                                         .max_token = USUAL_TOKENS,
                                         .continues = true};

static bool read_ids(fields *f, const engine *e, const json_in *array, int32_t **ids, size_t *n)
{
    *n = json_in_count(array);
    *ids = hth_alloc(*n, sizeof **ids);
    if (!*ids) {
        problem_set(f->problem, 503, "", "out of memory");
        return false;
    }
    for (size_t i = 0; i < *n; i++) {
        const json_in *v = json_in_at(array, i);
        int64_t id = json_in_kind_of(v) == JSON_IN_INTEGER ? json_in_integer(v) : -1;
        if (id < 0 || id >= (int64_t)e->info.n_vocab)
            return fields_fail(f, "prompt", "[%zu] is no id from 0 to %u", i, e->info.n_vocab - 1);
        (*ids)[i] = (int32_t)id;
    }
    return true;
}

/* A text, ids, or an array of one text. */
static bool read_prompt(fields *f, const engine *e, int32_t **ids, size_t *n)
{
    hearth_error err;
    size_t n_text;
    const json_in *v = fields_value(f, "prompt");
    if (!fields_ok(f)) return false;
    if (json_in_kind_of(v) == JSON_IN_ARRAY && json_in_count(v) == 1 &&
        json_in_kind_of(json_in_at(v, 0)) == JSON_IN_TEXT)
        v = json_in_at(v, 0);
    if (json_in_kind_of(v) == JSON_IN_ARRAY && json_in_count(v) > 0) return read_ids(f, e, v, ids, n);
    if (json_in_kind_of(v) != JSON_IN_TEXT)
        return fields_fail(f, "prompt", "one text, or an array of the ids of one, is expected");
    const char *text = json_in_bytes(v, &n_text);
    if (hearth_tokenize(e->model, text, n_text, HEARTH_ADD_SPECIAL, ids, n, &err) == HEARTH_OK) return true;
    problem_of_error(f->problem, &err);
    return false;
}

void completions_run(void *user, call *c)
{
    engine *e = user;
    fields f;
    problem p;
    int32_t *ids = NULL;
    size_t n = 0;
    bool echo = false;
    json_in *document = fields_read(c, &f, &p);
    if (!document) {
        call_problem(c, &p);
        return;
    }
    generation *g = generation_read(e, c, &format, document, &f);
    if (!g) return;
    if (fields_bool(&f, "echo", &echo) && echo) fields_fail(&f, "echo", "is not supported");
    if (read_prompt(&f, e, &ids, &n)) {
        generation_start(g, ids, n);
        return;
    }
    hearth_free(ids);
    generation_refuse(g, &p);
}
