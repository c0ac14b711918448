/* POST /v1/completions: how texts go on. */
#include "serve/api/generation.h"

enum { USUAL_TOKENS = 16 }; /* OpenAI's default */

/* ---- answers ----------------------------------------------------------------------------------------------- */

static bool begin_line(const generation *g, json_line *l)
{
    if (!json_line_begin(l)) return false;
    json_word(&l->j, "id", g->name);
    json_word(&l->j, "object", "text_completion");
    json_int(&l->j, "created", g->created);
    json_word(&l->j, "model", g->served->id);
    json_word(&l->j, "system_fingerprint", g->served->digest);
    return true;
}

static void write_choice(json *j, choice *c, const char *text, size_t n, bool is_last)
{
    json_open_compact(j, NULL, '{');
    json_uint(j, "index", c->index);
    json_text(j, "text", text, n);
    logprobs_write_completion(j, &c->probs, c->generation->served->model);
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
        for (size_t i = 0; i < g->prompts.n * g->n_choice; i++) {
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

/* ---- requests ---------------------------------------------------------------------------------------------- */

void completions_run(void *user, call *c)
{
    served_model *served = user;
    fields f;
    problem p;
    json_in *document = fields_read(c, &f, &p);
    if (!document) {
        call_problem(c, &p);
        return;
    }
    generation *g = generation_make(served, c, &format, document);
    if (!g) return;
    if (generation_read(g, &f)) logprobs_read_completion(&f, &g->probs);
    if (fields_bool(&f, "echo", &g->echo) && prompts_read(&f, served, "prompt", MAX_PROMPTS, &g->prompts))
        generation_start(g);
    else generation_refuse(g, &p);
}
