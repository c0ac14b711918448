/* POST /completion and /infill, as llama.cpp's server has them: how a text goes on, and what belongs between two texts. */
#include "serve/api/generation.h"
#include "serve/api/progress.h"

#include <stdlib.h>
#include <string.h>

/* ---- answers ----------------------------------------------------------------------------------------------- */

static void write_part(json *j, choice *c, const char *text, size_t n, bool is_last)
{
    const generation *g = c->generation;
    json_uint(j, "index", c->index);
    json_text(j, "content", text, n);
    json_bool(j, "stop", is_last);
    json_uint(j, "id_slot", 0);
    json_open_compact(j, "tokens", '[');
    for (; g->keeps_ids && c->n_told < c->n_generated; c->n_told++) json_int(j, NULL, c->ids[c->n_told]);
    json_close(j, ']');
    json_uint(j, "tokens_predicted", c->n_generated);
    json_uint(j, "tokens_evaluated", g->prompts.at[c->i_prompt].n);
    if (g->probs.wanted) logprobs_write_list(j, "completion_probabilities", &c->probs, g->served->model);
}

/* The context ended before the answer did. */
static bool is_truncated(const choice *c)
{
    const generation *g = c->generation;
    return c->finish == FINISH_LENGTH && !c->is_late && !g->prompt_only &&
           (g->max_token == 0 || c->n_generated < g->max_token);
}

/* Writes the members that only the last part and a whole answer have. */
static void write_end(json *j, const choice *c)
{
    const generation *g = c->generation;
    const prompt *p = &g->prompts.at[c->i_prompt];
    json_word(j, "model", g->served->id);
    json_word(j, "stop_type", c->finish == FINISH_LENGTH ? "limit" : c->stop ? "word" : "eos");
    json_text(j, "stopping_word", c->stop ? c->stop->text : "", c->stop ? c->stop->n : 0);
    json_bool(j, "truncated", is_truncated(c));
    json_bool(j, "has_new_line", c->text.n > 0 && memchr(c->text.bytes, '\n', c->text.n));
    json_uint(j, "tokens_cached", c->n_cached);
    if (p->text) json_text(j, "prompt", p->text, p->n_text);
    json_open_compact(j, "generation_settings", '{');
    sampling_write(j, &c->sampler);
    json_uint(j, "seed", c->sampler.seed);
    if (g->max_token > 0 || g->prompt_only) json_uint(j, "n_predict", g->max_token);
    else json_int(j, "n_predict", -1);
    json_close(j, '}');
    generation_write_timings(j, g);
}

/* progress: of its prompt, before it has a text; else NULL. */
static void send_choice(choice *c, const char *text, size_t n, bool is_last, const hearth_request_progress *progress)
{
    generation *g = c->generation;
    json_line l;
    if (json_line_begin(&l)) {
        write_part(&l.j, c, text, n, is_last);
        if (progress) progress_write(&l.j, g, progress);
        else if (is_last) write_end(&l.j, c);
        else if (generation_tells_timings(g)) generation_write_timings(&l.j, g);
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

static void write_whole(json *j, choice *c)
{
    write_part(j, c, c->text.bytes ? c->text.bytes : "", c->text.n, true);
    write_end(j, c);
}

/* An object; of several prompts an array. */
static void answer_whole(generation *g)
{
    json_line l;
    char *body = NULL;
    size_t n = 0;
    bool ok;
    if (generation_count(g) == 1) {
        if (json_line_begin(&l)) write_whole(&l.j, &g->choices[0]);
        ok = json_line_end(&l, &body, &n);
    } else {
        if (json_array_begin(&l))
            for (size_t i = 0; i < generation_count(g); i++) {
                json_open_compact(&l.j, NULL, '{');
                write_whole(&l.j, &g->choices[i]);
                json_close(&l.j, '}');
            }
        ok = json_array_end(&l, &body, &n);
    }
    call_reply(g->call, ok ? 200 : 503, body, ok ? n : 0);
}

const answer_format llama_completion_format = {.prefix = "cmpl-",
                                               .part = send_part,
                                               .progress = send_progress,
                                               .end_choice = end_choice,
                                               .whole = answer_whole,
                                               .continues = true};

/* ---- requests ---------------------------------------------------------------------------------------------- */

static bool read_options(generation *g, fields *f)
{
    int64_t n_probs = 0;
    if (!generation_read(g, f) || !fields_int(f, "n_probs", 0, MAX_TOP, &n_probs) ||
        !fields_bool(f, "return_tokens", &g->keeps_ids))
        return false;
    g->keeps_ids |= g->is_stream; /* each part has those of its text */
    g->n_choice = 1;
    g->probs = (logprobs){.wanted = n_probs > 0, .n_top = (uint32_t)n_probs};
    return true;
}

void completion_run(void *user, call *c)
{
    served_model *served = user;
    fields f;
    problem p;
    generation *g = generation_make(served, c, &llama_completion_format, &f, &p);
    if (!g) return;
    if (read_options(g, &f) && prompts_read(&f, served, "prompt", MAX_PROMPTS, &g->prompts))
        generation_start(g);
    else generation_refuse(g, &p);
}

/* ---- /infill ----------------------------------------------------------------------------------------------- */

/* A prompt that grows. */
typedef struct gap_prompt {
    const served_model *served;
    fields *f;
    prompt made;
} gap_prompt;

static bool add_ids(gap_prompt *l, const int32_t *ids, size_t n) { return prompt_append(l->f, &l->made, ids, n); }

static bool add_text(gap_prompt *l, const char *text, size_t n)
{
    return n == 0 || prompt_append_text(l->f, l->served, text, n, 0, &l->made);
}

/* A mark, if the vocabulary has it. */
static bool add_mark(gap_prompt *l, hearth_special_token kind)
{
    const int32_t id = hearth_token_special(l->served->model, kind);
    return id < 0 || add_ids(l, &id, 1);
}

/* One of input_extra: {"filename", "text"}, a part of another file. */
static bool add_extra(fields *one, void *user)
{
    static const char divider[] = "\n\n--- snippet ---\n\n";
    gap_prompt *l = user;
    const char *name = "tmp", *text;
    size_t n_name = 3, n;
    if (!fields_text(one, "filename", &name, &n_name) || !fields_need_text(one, "text", &text, &n))
        return false;
    bool has_mark = hearth_token_special(l->served->model, HEARTH_SPECIAL_FIM_FILE) >= 0;
    if (!has_mark) return add_text(l, divider, sizeof divider - 1) && add_text(l, text, n);
    return add_mark(l, HEARTH_SPECIAL_FIM_FILE) && add_text(l, name, n_name) && add_text(l, "\n", 1) &&
           add_text(l, text, n);
}

static bool add_extras(fields *f, const hth_json *extra, gap_prompt *l)
{
    static const char repository[] = "repository\n", name[] = "filename\n";
    const hearth_model *m = l->served->model;
    bool has_repository = hearth_token_special(m, HEARTH_SPECIAL_FIM_REPOSITORY) >= 0,
         has_file = hearth_token_special(m, HEARTH_SPECIAL_FIM_FILE) >= 0;
    if (has_repository &&
        !(add_mark(l, HEARTH_SPECIAL_FIM_REPOSITORY) && add_text(l, repository, sizeof repository - 1)))
        return false;
    if (!fields_each(f, "input_extra", extra, add_extra, l)) return false;
    return !has_file || (add_mark(l, HEARTH_SPECIAL_FIM_FILE) && add_text(l, name, sizeof name - 1));
}

/* The token with which the vocabulary lets a text begin, if it has one. */
static bool add_begin(gap_prompt *l)
{
    hearth_error err;
    int32_t *ids;
    size_t n;
    if (hearth_tokenize(l->served->model, "", 0, HEARTH_ADD_SPECIAL, &ids, &n, &err) != HEARTH_OK) {
        problem_of_error(l->f->problem, &err);
        return false;
    }
    bool ok = n == 0 || ids[0] != hearth_token_bos(l->served->model) || add_ids(l, ids, 1);
    hearth_free(ids);
    return ok;
}

/* The prompt: other files, then what is before the gap and behind it, each behind its mark; `prompt` begins the answer's
 * line. */
static bool make_prompt(fields *f, gap_prompt *l)
{
    const hearth_model *m = l->served->model;
    const char *before = "", *behind = "", *begun = "";
    size_t n_before = 0, n_behind = 0, n_begun = 0;
    const hth_json *extra = NULL;
    static const hearth_special_token needed[] = {HEARTH_SPECIAL_FIM_PREFIX, HEARTH_SPECIAL_FIM_SUFFIX,
                                                  HEARTH_SPECIAL_FIM_MIDDLE};
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        if (hearth_token_special(m, needed[i]) < 0)
            return fields_fail(
                f, "", "the vocabulary of this model has no tokens for a gap in a text: it cannot fill one");
    if (!fields_text(f, "input_prefix", &before, &n_before) ||
        !fields_text(f, "input_suffix", &behind, &n_behind) || !fields_text(f, "prompt", &begun, &n_begun) ||
        !fields_array(f, "input_extra", &extra))
        return false;
    return add_begin(l) && (hth_json_count(extra) == 0 || add_extras(f, extra, l)) &&
           add_mark(l, HEARTH_SPECIAL_FIM_PREFIX) && add_text(l, before, n_before) &&
           add_text(l, begun, n_begun) && add_mark(l, HEARTH_SPECIAL_FIM_SUFFIX) &&
           add_text(l, behind, n_behind) && add_mark(l, HEARTH_SPECIAL_FIM_MIDDLE);
}

void infill_run(void *user, call *c)
{
    served_model *served = user;
    fields f;
    problem p;
    generation *g = generation_make(served, c, &llama_completion_format, &f, &p);
    if (!g) return;
    gap_prompt l = {.served = served, .f = &f};
    g->fills_gap = true;
    bool ok = read_options(g, &f) && make_prompt(&f, &l);
    if (ok && !prompt_list_add(&g->prompts, l.made.ids, l.made.n, NULL, 0)) ok = fields_no_memory(&f);
    else if (!ok) hearth_free(l.made.ids);
    g->goes_on = true;
    if (ok) generation_start(g);
    else generation_refuse(g, &p);
}
