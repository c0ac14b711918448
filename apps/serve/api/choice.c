/* Divides the tokens of a choice into what clients get: reasoning, text up to a stop string, calls of functions. */
#define _GNU_SOURCE
#include "serve/api/choice.h"

#include "base/clock.h"
#include "common/sampling.h"
#include "engine/engine.h"

#include <stdlib.h>
#include <string.h>

/* ---- text ------------------------------------------------------------------------------------------------------ */

/* n bytes more of text or reasoning, or a call. */
static bool add_part(choice *c, hearth_answer_kind kind, size_t from, size_t n)
{
    answer_part *last = c->n_part > 0 ? &c->parts[c->n_part - 1] : NULL;
    if (last && kind == last->kind && kind != HEARTH_ANSWER_CALL) {
        last->n += n;
        return true;
    }
    void *more = grow_array(c->parts, &c->part_capacity, c->n_part + 1, sizeof *c->parts);
    if (!more) return false;
    c->parts = more;
    c->parts[c->n_part++] = (answer_part){kind, from, n};
    return true;
}

/* The text up to n is sure: a stream gets it. */
static void release_text(choice *c, size_t n)
{
    generation *g = c->generation;
    size_t from = c->n_sure;
    if (n == from) return;
    c->n_sure = n;
    if (!add_part(c, HEARTH_ANSWER_TEXT, from, n - from)) g->is_broken = true;
    else if (g->is_streaming) g->format->part(c, HEARTH_ANSWER_TEXT, c->text.bytes + from, n - from);
}

static void take_text(choice *c, const char *text, size_t n)
{
    if (!buffer_add(&c->text, text, n)) {
        c->generation->is_broken = true;
        return;
    }
    const stop_list *stops = &c->generation->stops;
    const char *unsure = c->text.bytes + c->n_sure;
    size_t n_unsure = c->text.n - c->n_sure, which;
    size_t at = hth_stops_find(stops->at, stops->n, unsure, n_unsure, &which);
    if (at == n_unsure) {
        release_text(c, c->text.n - hth_stops_count_unsure(stops->at, stops->n, unsure, n_unsure));
        return;
    }
    c->is_stopped = true;
    c->stop = &stops->at[which];
    c->text.n = c->n_sure + at;
    release_text(c, c->text.n);
}

static void make_call_id(char id[12])
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    uint64_t x = random_number();
    for (int i = 0; i < 9; i++, x /= 62) id[i] = letters[x % 62];
    id[9] = '\0';
}

/* A second call is left out where one alone is wanted. */
static bool begin_call(choice *c, const char *name, size_t n)
{
    if (c->generation->one_call && c->n_call > 0) {
        c->is_stopped = true;
        return true;
    }
    void *more = grow_array(c->calls, &c->call_capacity, c->n_call + 1, sizeof *c->calls);
    if (!more) return false;
    c->calls = more;
    function_call *f = &c->calls[c->n_call];
    *f = (function_call){.name = strndup(name, n)};
    if (!f->name) return false;
    make_call_id(f->id);
    return add_part(c, HEARTH_ANSWER_CALL, c->n_call++, 0);
}

static void take_part(void *user, hearth_answer_kind kind, const char *text, size_t n)
{
    choice *c = user;
    generation *g = c->generation;
    bool ok = true;
    if (c->is_stopped || g->is_broken) return;
    if (kind == HEARTH_ANSWER_TEXT) {
        if (c->drops_text) c->has_dropped = true;
        else take_text(c, text, n);
        return;
    }
    release_text(c, c->text.n);
    if (kind == HEARTH_ANSWER_REASONING)
        ok = add_part(c, kind, c->reasoning.n, n) && buffer_add(&c->reasoning, text, n);
    if (kind == HEARTH_ANSWER_CALL) ok = begin_call(c, text, n);
    if (kind == HEARTH_ANSWER_ARGUMENTS) ok = buffer_add(&c->calls[c->n_call - 1].arguments, text, n);
    if (!ok) g->is_broken = true;
    else if (g->is_streaming && !c->is_stopped) g->format->part(c, kind, text, n);
}

/* ---- a choice --------------------------------------------------------------------------------------------------- */

/* All that a choice needs before the scheduler has it. The choices of a prompt differ by their seeds. */
hearth_status choice_open(generation *g, size_t i, hearth_constraint *constraint, hearth_error *err)
{
    choice *c = &g->choices[i];
    served_model *served = g->served;
    *c = (choice){.generation = g,
                  .index = (uint32_t)i,
                  .i_prompt = i / g->n_choice,
                  .sampler = g->sampler,
                  .probs = {.wanted = g->probs.wanted, .n_top = g->probs.n_top}};
    c->sampler.seed += i % g->n_choice;
    sampling_finish(&c->sampler);
    const hearth_answer_options o = {.chat = g->format->continues ? NULL : served->chat,
                                     .at_start = !g->goes_on && !constraint,
                                     .in_reasoning = g->in_reasoning,
                                     .tools = g->functions,
                                     .fn = take_part,
                                     .user = c};
    hearth_status st = hearth_answer_open(served->model, &o, &c->answer, err);
    if (st == HEARTH_OK && constraint) st = hearth_constraint_copy(constraint, &c->constraint, err);
    return st;
}

void choice_close(choice *c)
{
    hearth_answer_close(c->answer);
    hearth_constraint_close(c->constraint);
    for (size_t i = 0; i < c->n_call; i++) {
        free(c->calls[i].name);
        free(c->calls[i].arguments.bytes);
    }
    free(c->calls);
    free(c->parts);
    free(c->text.bytes);
    free(c->reasoning.bytes);
    free(c->probs.at);
    free(c->ids);
}

/* The stop string that is the name of a control token; it is no part of the text. NULL: none. */
static const hth_stop *stop_of_token(const generation *g, int32_t token)
{
    size_t n;
    const hth_tokenizer *t = g->served->model->tokenizer;
    if (g->stops.n == 0 || token < 0 || hth_token_piece(t, token, false, &n) == NULL || n > 0) return NULL;
    const char *name = hth_token_piece(t, token, true, &n);
    for (size_t i = 0; i < g->stops.n; i++)
        if (g->stops.at[i].n == n && memcmp(g->stops.at[i].text, name, n) == 0) return &g->stops.at[i];
    return NULL;
}

static void stop_by(choice *c, const hth_stop *stop)
{
    hearth_error err;
    if (hearth_answer_finish(c->answer, &err) != HEARTH_OK) c->generation->is_broken = true;
    if (c->is_stopped) return; /* the withheld text had a stop string */
    release_text(c, c->text.n);
    c->is_stopped = true;
    c->stop = stop;
}

/* The text has grown from n bytes on. */
static void stop_late(choice *c, size_t n)
{
    const generation *g = c->generation;
    if (g->max_line_ns == 0 || c->is_stopped || c->text.n <= n || !memchr(c->text.bytes + n, '\n', c->text.n - n)) return;
    if (hth_clock_ns() - g->first_ns < g->max_line_ns) return;
    stop_by(c, NULL);
    c->is_late = !c->stop;
}

static bool keep_id(choice *c, int32_t token)
{
    if (!c->generation->keeps_ids) return true;
    void *more = grow_array(c->ids, &c->id_capacity, c->n_generated + 1, sizeof *c->ids);
    if (!more) return false;
    c->ids = more;
    c->ids[c->n_generated] = token;
    return true;
}

void choice_take(choice *c, int32_t token, const float *logits)
{
    generation *g = c->generation;
    hearth_error why;
    const size_t n_text = c->text.n;
    const hth_stop *stop = stop_of_token(g, token);
    if (!keep_id(c, token)) g->keeps_ids = false, g->is_broken = true;
    c->n_generated++;
    if (stop) {
        stop_by(c, stop);
        return;
    }
    if (!logprobs_add(&c->probs, logits, g->served->info.n_vocab, token) ||
        hearth_answer_push(c->answer, token, &why) != HEARTH_OK)
        g->is_broken = true;
    if (c->n_part > 0 ? c->parts[c->n_part - 1].kind == HEARTH_ANSWER_REASONING : g->in_reasoning)
        c->n_reasoning++;
    stop_late(c, n_text);
}

void choice_end(choice *c, finish_reason why)
{
    generation *g = c->generation;
    hearth_error err;
    /* If the constraint allows only calls, the withheld text of a truncated answer is the beginning of a call. */
    const wanted_constraint *w = &g->constraint;
    c->drops_text = why == FINISH_LENGTH && w->field && w->kind == HEARTH_CONSTRAINT_CALLS && !w->schema && !w->or_object;
    if (!c->is_stopped && hearth_answer_finish(c->answer, &err) != HEARTH_OK) g->is_broken = true;
    if (!c->is_stopped) release_text(c, c->text.n);
    if (c->is_stopped) why = c->is_late ? FINISH_LENGTH : FINISH_STOP;
    c->finish = why == FINISH_STOP && c->n_call > 0 ? FINISH_CALLS : why;
    if (g->is_streaming && !g->is_broken && g->format->end_choice) g->format->end_choice(c);
}

/* The text of a prompt, which the answer repeats; of ids that of their tokens, without control tokens. */
static bool add_prompt(choice *c)
{
    const generation *g = c->generation;
    const prompt *p = &g->prompts.at[c->i_prompt];
    hearth_detokenizer *decoder;
    hearth_error err;
    const char *text;
    size_t n;
    if (p->text) return buffer_add(&c->text, p->text, p->n_text);
    bool ok = hearth_detokenizer_open(g->served->model, true, false, &decoder, &err) == HEARTH_OK;
    for (size_t i = 0; ok && i < p->n; i++)
        ok = hearth_detokenizer_push(decoder, p->ids[i], &text, &n, &err) == HEARTH_OK &&
             buffer_add(&c->text, text, n);
    hearth_detokenizer_close(decoder);
    return ok;
}

bool choice_repeat_prompt(choice *c)
{
    if (!add_prompt(c)) return false;
    release_text(c, c->text.n);
    return true;
}
