/* POST /v1/completions: how texts go on. */
#include "serve/api/openai/openai.h"
#include "serve/api/progress.h"

enum { USUAL_TOKENS = 16 }; /* OpenAI's default */

/* ---- answers ----------------------------------------------------------------------------------------------- */

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

/* progress: of its prompt, before it has a text; else NULL. */
static void send_choice(choice *c, const char *text, size_t n, bool is_last, const hearth_request_progress *progress)
{
    generation *g = c->generation;
    json_line l;
    if (openai_begin(g, &l, "text_completion")) {
        json_open_compact(&l.j, "choices", '[');
        write_choice(&l.j, c, text, n, is_last);
        json_close(&l.j, ']');
        if (progress) progress_write(&l.j, g, progress);
        else if (g->include_usage) json_put_null(&l.j, "usage"); /* the last event has it */
        if (is_last || (!progress && generation_tells_timings(g))) generation_write_timings(&l.j, g);
    }
    generation_send(g, NULL, &l);
}

static void send_part(choice *c, hearth_answer_kind kind, const char *text, size_t n)
{
    (void)kind;
    send_choice(c, text, n, false, NULL);
}
static void send_progress(choice *c, const hearth_request_progress *progress) { send_choice(c, "", 0, false, progress); }
static void end_choice(choice *c) { send_choice(c, "", 0, true, NULL); }

static void end_stream(generation *g) { openai_end_stream(g, "text_completion"); }

static void write_whole(json *j, choice *c)
{
    write_choice(j, c, c->text.bytes ? c->text.bytes : "", c->text.n, true);
}

static void answer_whole(generation *g) { openai_answer(g, "text_completion", write_whole); }

const answer_format openai_completion_format = {.prefix = "cmpl-",
                                                .part = send_part,
                                                .progress = send_progress,
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
    generation *g = generation_make(served, c, &openai_completion_format, &f, &p);
    if (!g) return;
    if (generation_read(g, &f)) logprobs_read_completion(&f, &g->probs);
    if (fields_bool(&f, "echo", &g->echo) && prompts_read(&f, served, "prompt", MAX_PROMPTS, &g->prompts))
        generation_start(g);
    else generation_refuse(g, &p);
}
