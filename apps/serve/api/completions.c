/* POST /v1/completions: how texts go on. */
#include "serve/api/generation.h"

#include "base/alloc.h"

#include <stdlib.h>
#include <string.h>

enum { USUAL_TOKENS = 16 }; /* OpenAI's default */

/* ---- answers ----------------------------------------------------------------------------------------------- */

static bool begin_line(const generation *g, json_line *l)
{
    if (!json_line_begin(l)) return false;
    json_word(&l->j, "id", g->name);
    json_word(&l->j, "object", "text_completion");
    json_int(&l->j, "created", g->created);
    json_word(&l->j, "model", g->engine->id);
    json_word(&l->j, "system_fingerprint", g->engine->digest);
    return true;
}

static void write_choice(json *j, choice *c, const char *text, size_t n, bool is_last)
{
    json_open_compact(j, NULL, '{');
    json_uint(j, "index", c->index);
    json_text(j, "text", text, n);
    logprobs_write_completion(j, &c->probs, c->generation->engine->model);
    if (is_last) json_word(j, "finish_reason", finish_word(c->finish));
    else json_put_null(j, "finish_reason");
    json_close(j, '}');
}

static void write_usage(json *j, const generation *g)
{
    size_t n_prompt = generation_n_prompt(g), n_generated = generation_n_generated(g);
    json_open_compact(j, "usage", '{');
    json_uint(j, "prompt_tokens", n_prompt);
    json_uint(j, "completion_tokens", n_generated);
    json_uint(j, "total_tokens", n_prompt + n_generated);
    json_open_compact(j, "prompt_tokens_details", '{');
    json_uint(j, "cached_tokens", generation_n_cached(g));
    json_close(j, '}');
    json_close(j, '}');
}

static void send_choice(choice *c, const char *text, size_t n, bool is_last)
{
    generation *g = c->generation;
    json_line l;
    if (begin_line(g, &l)) {
        json_open_compact(&l.j, "choices", '[');
        write_choice(&l.j, c, text, n, is_last);
        json_close(&l.j, ']');
        if (g->include_usage) json_put_null(&l.j, "usage"); /* the last event has it */
        if (is_last) generation_write_timings(&l.j, g);
    }
    generation_send(g, NULL, &l);
}

static void send_part(choice *c, hearth_answer_kind kind, const char *text, size_t n)
{
    (void)kind;
    send_choice(c, text, n, false);
}
static void end_choice(choice *c) { send_choice(c, "", 0, true); }

static void end_stream(generation *g)
{
    json_line l;
    if (g->include_usage) {
        if (begin_line(g, &l)) {
            json_open_compact(&l.j, "choices", '[');
            json_close(&l.j, ']');
            write_usage(&l.j, g);
        }
        generation_send(g, NULL, &l);
    }
    if (!call_send(g->call, "data: [DONE]\n\n", 14)) g->is_broken = true;
}

static void answer_whole(generation *g)
{
    json_line l;
    if (begin_line(g, &l)) {
        json_open_compact(&l.j, "choices", '[');
        for (size_t i = 0; i < g->n_prompt * g->n_choice; i++) {
            choice *c = &g->choices[i];
            write_choice(&l.j, c, c->text.bytes ? c->text.bytes : "", c->text.n, true);
        }
        json_close(&l.j, ']');
        write_usage(&l.j, g);
        generation_write_timings(&l.j, g);
    }
    call_line(g->call, &l);
}

static const answer_format format = {.prefix = "cmpl-",
                                     .part = send_part,
                                     .end_choice = end_choice,
                                     .end = end_stream,
                                     .whole = answer_whole,
                                     .max_token = USUAL_TOKENS,
                                     .continues = true};

/* ---- prompts ------------------------------------------------------------------------------------------------- */

static bool no_memory(fields *f)
{
    problem_set(f->problem, 503, "", "out of memory");
    return false;
}

static bool add_ids(fields *f, generation *g, const json_in *array)
{
    uint32_t n_vocab = g->engine->info.n_vocab;
    size_t n = json_in_count(array);
    int32_t *ids = hth_alloc(n, sizeof *ids);
    if (!ids) return no_memory(f);
    for (size_t i = 0; i < n; i++) {
        const json_in *v = json_in_at(array, i);
        int64_t id = json_in_kind_of(v) == JSON_IN_INTEGER ? json_in_integer(v) : -1;
        if (id < 0 || id >= (int64_t)n_vocab) {
            hearth_free(ids);
            return fields_fail(f, "prompt", "[%zu] is no id from 0 to %u", i, n_vocab - 1);
        }
        ids[i] = (int32_t)id;
    }
    return generation_add_prompt(g, ids, n, NULL, 0) || no_memory(f);
}

static bool add_text(fields *f, generation *g, const json_in *value)
{
    hearth_error err;
    int32_t *ids;
    size_t n_text, n;
    const char *text = json_in_bytes(value, &n_text);
    if (hearth_tokenize(g->engine->model, text, n_text, HEARTH_ADD_SPECIAL, &ids, &n, &err) == HEARTH_OK)
        return generation_add_prompt(g, ids, n, text, n_text) || no_memory(f);
    problem_of_error(f->problem, &err);
    return false;
}

/* A text, ids, or an array of texts or of arrays of ids. */
static bool read_prompts(fields *f, generation *g)
{
    const json_in *v = fields_value(f, "prompt");
    json_in_kind kind = json_in_kind_of(v), first = json_in_kind_of(json_in_at(v, 0));
    size_t n = json_in_count(v);
    if (kind == JSON_IN_TEXT) return add_text(f, g, v);
    if (kind == JSON_IN_ARRAY && n > 0 && first != JSON_IN_TEXT && first != JSON_IN_ARRAY)
        return add_ids(f, g, v);
    if (kind != JSON_IN_ARRAY || n == 0)
        return fields_fail(f, "prompt", "a text, an array of ids, or an array of one of them is expected");
    if (n > MAX_PROMPTS) return fields_fail(f, "prompt", "%zu prompts; at most %d are taken", n, MAX_PROMPTS);
    for (size_t i = 0; i < n; i++) {
        const json_in *one = json_in_at(v, i);
        bool is_text = json_in_kind_of(one) == JSON_IN_TEXT, is_ids = json_in_count(one) > 0;
        if (!is_text && !is_ids)
            return fields_fail(f, "prompt", "[%zu]: a text or an array of ids is expected", i);
        if (!(is_text ? add_text(f, g, one) : add_ids(f, g, one))) return false;
    }
    return true;
}

void completions_run(void *user, call *c)
{
    engine *e = user;
    fields f;
    problem p;
    json_in *document = fields_read(c, &f, &p);
    if (!document) {
        call_problem(c, &p);
        return;
    }
    generation *g = generation_make(e, c, &format, document);
    if (!g) return;
    if (generation_read(g, &f)) logprobs_read_completion(&f, &g->probs);
    if (fields_bool(&f, "echo", &g->echo) && read_prompts(&f, g)) generation_start(g);
    else generation_refuse(g, &p);
}
