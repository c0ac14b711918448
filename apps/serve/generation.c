/* Reads the fields of a request for text, asks the scheduler, and makes its answer of the tokens that come. */
#define _GNU_SOURCE
#include "serve/generation.h"

#include "base/clock.h"
#include "serve/response_format.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

enum { RETRY_SECONDS = 2 };

/* ---- fields ------------------------------------------------------------------------------------------------------ */

static void read_float(fields *f, const char *name, double least, double most, float *value)
{
    double x = (double)*value;
    if (fields_float(f, name, least, most, &x)) *value = (float)x;
}

static uint64_t random_number(void)
{
    uint64_t x = 0;
    while (getrandom(&x, sizeof x, 0) != sizeof x) {
    }
    return x;
}

static void read_sampler(fields *f, hearth_sampler_options *o)
{
    int64_t top_k = o->top_k, last_n = o->repeat_last_n, seed = -1;
    read_float(f, "temperature", 0.0, 5.0, &o->temperature);
    read_float(f, "top_p", 1e-6, 1.0, &o->top_p);
    read_float(f, "min_p", 0.0, 1.0, &o->min_p);
    read_float(f, "typical_p", 1e-6, 1.0, &o->typical_p);
    read_float(f, "repeat_penalty", 1e-3, 1e3, &o->repeat_penalty);
    read_float(f, "presence_penalty", -2.0, 2.0, &o->presence_penalty);
    read_float(f, "frequency_penalty", -2.0, 2.0, &o->frequency_penalty);
    if (fields_int(f, "top_k", 0, INT32_MAX, &top_k)) o->top_k = (int32_t)top_k;
    if (fields_int(f, "repeat_last_n", -1, INT32_MAX, &last_n)) o->repeat_last_n = (int32_t)last_n;
    fields_int(f, "seed", INT64_MIN, INT64_MAX, &seed);
    o->seed = seed < 0 ? random_number() >> 1 : (uint64_t)seed; /* half: JSON's readers have signed numbers */
}

enum { MAX_BIASES = 1024 };

typedef struct bias_list {
    fields *f;
    hearth_logit_bias *at;
    size_t n;
    uint32_t n_vocab;
} bias_list;

/* -100 bans the token. */
static bool add_bias(void *user, const char *key, const json_in *value)
{
    bias_list *l = user;
    char *end;
    unsigned long long id = strtoull(key, &end, 10);
    json_in_kind kind = json_in_kind_of(value);
    if (*key < '0' || *key > '9' || *end || id >= l->n_vocab)
        return fields_fail(l->f, "logit_bias", "%.40s is no id from 0 to %u", key, l->n_vocab - 1);
    double x = kind == JSON_IN_INTEGER || kind == JSON_IN_REAL ? json_in_number(value) : 1000.0;
    if (!(x >= -100.0 && x <= 100.0))
        return fields_fail(l->f, "logit_bias", "numbers from -100 to 100 are expected");
    l->at[l->n++] = (hearth_logit_bias){(int32_t)id, x <= -100.0 ? -__builtin_inff() : (float)x};
    return true;
}

static void read_biases(fields *f, generation *g)
{
    const json_in *object;
    bias_list l = {.f = f, .n_vocab = g->engine->info.n_vocab};
    if (!fields_object(f, "logit_bias", &object) || !object) return;
    size_t n = json_in_size(object);
    if (n > MAX_BIASES) {
        fields_fail(f, "logit_bias", "%zu tokens; at most %d are taken", n, MAX_BIASES);
        return;
    }
    g->biases = l.at = calloc(n + 1, sizeof *l.at);
    if (!l.at) problem_set(f->problem, 503, "", "out of memory");
    else if (json_in_each(object, add_bias, &l)) g->sampler.bias = l.at, g->sampler.n_bias = l.n;
}

static void add_stop(fields *f, const json_in *v, stop_list *to)
{
    size_t n;
    if (json_in_kind_of(v) != JSON_IN_TEXT) {
        fields_fail(f, "stop", "a text or an array of texts is expected");
        return;
    }
    const char *text = json_in_bytes(v, &n);
    if (n == 0 || n > MAX_STOP_SIZE)
        fields_fail(f, "stop", "texts of 1 to %d bytes are expected", MAX_STOP_SIZE);
    else to->at[to->n].text = text, to->at[to->n++].n = n;
}

static void read_stops(fields *f, stop_list *to)
{
    const json_in *v = fields_value(f, "stop");
    size_t n = json_in_count(v);
    if (!v) return;
    if (json_in_kind_of(v) != JSON_IN_ARRAY) {
        add_stop(f, v, to);
    } else if (n > MAX_STOPS) {
        fields_fail(f, "stop", "%zu texts; at most %d are taken", n, MAX_STOPS);
    } else {
        for (size_t i = 0; i < n; i++) add_stop(f, json_in_at(v, i), to);
    }
}

/* What would change the answer and is not offered is refused by name. */
static void refuse_others(fields *f)
{
    static const char *const names[] = {"suffix", "prediction", "web_search_options", "audio"};
    int64_t n = 1;
    fields_int(f, "n", 1, 1, &n);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (fields_value(f, names[i])) fields_fail(f, names[i], "is not supported");
}

static void read_stream(fields *f, generation *g)
{
    const json_in *options;
    fields_bool(f, "stream", &g->is_stream);
    if (!fields_object(f, "stream_options", &options) || !options) return;
    fields inner = {.object = options, .problem = f->problem};
    snprintf(inner.path, sizeof inner.path, "stream_options");
    fields_bool(&inner, "include_usage", &g->include_usage);
}

static void read_all(fields *f, generation *g)
{
    int64_t max = g->format->max_token, newer = 0;
    const char *model = NULL;
    size_t n;
    fields_text(f, "model", &model, &n); /* one model is served: any name is taken */
    read_sampler(f, &g->sampler);
    read_biases(f, g);
    fields_int(f, "max_tokens", 1, UINT32_MAX, &max);
    if (fields_int(f, "max_completion_tokens", 1, UINT32_MAX, &newer) && newer > 0) max = newer;
    g->max_token = (uint32_t)max;
    fields_bool(f, "ignore_eos", &g->ignore_end);
    read_stops(f, &g->stops);
    read_stream(f, g);
    g->format->read_logprobs(f, &g->probs);
    refuse_others(f);
    response_format_read(f, g->engine->model, &g->constraint);
}

static void free_generation(generation *g)
{
    hearth_detokenizer_close(g->decoder);
    hearth_constraint_close(g->constraint);
    json_in_free(g->document);
    free(g->text.bytes);
    free(g->probs.at);
    free(g->biases);
    free(g);
}

generation *generation_read(engine *e, call *c, const generation_format *format, json_in *document, fields *f)
{
    generation *g = calloc(1, sizeof *g);
    problem p;
    if (!g) {
        json_in_free(document);
        problem_set(&p, 503, "", "out of memory");
        call_problem(c, &p);
        return NULL;
    }
    *g = (generation){.engine = e,
                      .call = c,
                      .format = format,
                      .document = document,
                      .created = (int64_t)time(NULL),
                      .sampler = hearth_sampler_defaults(),
                      .begin_ns = hth_clock_ns()};
    snprintf(g->name, sizeof g->name, "%s%016llx%016llx", format->prefix, (unsigned long long)random_number(),
             (unsigned long long)random_number());
    read_all(f, g);
    if (fields_ok(f)) return g;
    generation_refuse(g, f->problem);
    return NULL;
}

void generation_refuse(generation *g, const problem *p)
{
    size_t n;
    char *body = problem_json(p, false, &n);
    call_reply_later(g->call, p->status, p->status == 429 ? RETRY_SECONDS : 0, body, n);
    free_generation(g);
}

/* ---- events of a stream ------------------------------------------------------------------------------------------ */

static bool begin_line(const generation *g, json_line *l, const char *object)
{
    if (!json_line_begin(l)) return false;
    json_word(&l->j, "id", g->name);
    json_word(&l->j, "object", object);
    json_int(&l->j, "created", g->created);
    json_word(&l->j, "model", g->engine->id);
    json_word(&l->j, "system_fingerprint", g->engine->digest);
    return true;
}

/* Sends a line of JSON as an event, and frees it. NULL: memory ran out. */
static void send_event(generation *g, char *line, size_t n)
{
    buffer text = {0};
    bool ok = line && buffer_add(&text, "data: ", 6) && buffer_add(&text, line, n) &&
              buffer_add(&text, "\n", 1) && call_send(g->call, text.bytes, text.n);
    if (!ok) g->is_broken = true;
    free(line);
    free(text.bytes);
}

static void send_line(generation *g, json_line *l)
{
    char *bytes;
    size_t n;
    bool ok = json_line_end(l, &bytes, &n);
    send_event(g, ok ? bytes : NULL, n);
}

static void send_begin(generation *g)
{
    json_line l;
    if (!g->format->begin) return;
    if (begin_line(g, &l, g->format->chunk_object)) {
        g->format->begin(&l.j, g);
        if (g->include_usage) json_put_null(&l.j, "usage"); /* the last event has it */
    }
    send_line(g, &l);
}

static void send_part(generation *g, const char *text, size_t n)
{
    json_line l;
    if (n == 0) return;
    if (begin_line(g, &l, g->format->chunk_object)) {
        g->format->part(&l.j, g, text, n);
        if (g->include_usage) json_put_null(&l.j, "usage"); /* the last event has it */
    }
    send_line(g, &l);
}

static void write_usage(json *j, const generation *g)
{
    json_open_compact(j, "usage", '{');
    json_uint(j, "prompt_tokens", g->n_prompt);
    json_uint(j, "completion_tokens", g->n_generated);
    json_uint(j, "total_tokens", g->n_prompt + g->n_generated);
    json_open_compact(j, "prompt_tokens_details", '{');
    json_uint(j, "cached_tokens", g->n_cached);
    json_close(j, '}');
    json_close(j, '}');
}

static double rate(size_t n, double seconds) { return seconds > 0.0 ? (double)n / seconds : 0.0; }

/* The names are those of llama.cpp's server. */
static void write_timings(json *j, const generation *g)
{
    double prompt = (double)(g->first_ns - g->begin_ns) * 1e-9,
           rest = (double)(g->last_ns - g->first_ns) * 1e-9;
    size_t n_prompt = g->n_prompt - g->n_cached;
    json_open_compact(j, "timings", '{');
    json_uint(j, "cache_n", g->n_cached);
    json_uint(j, "prompt_n", n_prompt);
    json_float(j, "prompt_ms", prompt * 1e3, 6);
    json_float(j, "prompt_per_second", rate(n_prompt, prompt), 6);
    json_uint(j, "predicted_n", g->n_generated);
    json_float(j, "predicted_ms", rest * 1e3, 6);
    json_float(j, "predicted_per_second", rate(g->n_generated > 0 ? g->n_generated - 1 : 0, rest), 6);
    if (g->draft.n_drafted > 0) {
        json_uint(j, "draft_n", g->draft.n_drafted);
        json_uint(j, "draft_n_accepted", g->draft.n_accepted);
    }
    json_close(j, '}');
    json_uint(j, "seed", g->sampler.seed);
}

static void send_end(generation *g, const char *finish)
{
    json_line l;
    if (begin_line(g, &l, g->format->chunk_object)) {
        g->format->end(&l.j, g, finish);
        if (g->include_usage) json_put_null(&l.j, "usage"); /* the last event has it */
        write_timings(&l.j, g);
    }
    send_line(g, &l);
    if (g->include_usage) {
        if (begin_line(g, &l, g->format->chunk_object)) {
            json_open_compact(&l.j, "choices", '[');
            json_close(&l.j, ']');
            write_usage(&l.j, g);
        }
        send_line(g, &l);
    }
    if (!call_send(g->call, "data: [DONE]\n\n", 14)) g->is_broken = true;
}

/* ---- text -------------------------------------------------------------------------------------------------------- */

/* The first stop string in the text from `from` on; NULL: none. */
static const char *find_stop(const generation *g, size_t from)
{
    const char *first = NULL;
    for (size_t i = 0; i < g->stops.n; i++) {
        const char *at =
            memmem(g->text.bytes + from, g->text.n - from, g->stops.at[i].text, g->stops.at[i].n);
        if (at && (!first || at < first)) first = at;
    }
    return first;
}

/* Bytes at the end of the text with which a stop string may begin. */
static size_t count_unsure(const generation *g)
{
    size_t longest = 0, n_text = g->text.n - g->n_sure;
    for (size_t i = 0; i < g->stops.n; i++) {
        size_t n = g->stops.at[i].n - 1 < n_text ? g->stops.at[i].n - 1 : n_text;
        while (n > longest && memcmp(g->text.bytes + g->text.n - n, g->stops.at[i].text, n) != 0) n--;
        if (n > longest) longest = n;
    }
    return longest;
}

/* Of a stream: sends what became sure. */
static void send_sure(generation *g, size_t n_sure)
{
    if (g->is_stream) {
        send_part(g, g->text.bytes, n_sure);
        memmove(g->text.bytes, g->text.bytes + n_sure, g->text.n - n_sure);
        g->text.n -= n_sure, n_sure = 0;
    }
    g->n_sure = n_sure;
}

static void add_text(generation *g, const char *text, size_t n)
{
    if (n == 0) return;
    if (!buffer_add(&g->text, text, n)) {
        g->is_broken = true;
        return;
    }
    const char *stop = find_stop(g, g->n_sure);
    if (stop) {
        g->is_stopped = true;
        g->text.n = (size_t)(stop - g->text.bytes);
        send_sure(g, g->text.n);
    } else {
        send_sure(g, g->text.n - count_unsure(g));
    }
}

/* ---- events of the scheduler ------------------------------------------------------------------------------------- */

static void answer_whole(generation *g, const char *finish)
{
    json_line l;
    if (begin_line(g, &l, g->format->object)) {
        g->format->whole(&l.j, g, finish);
        write_usage(&l.j, g);
        write_timings(&l.j, g);
    }
    call_line(g->call, &l);
}

static void fail(generation *g, const hearth_error *err)
{
    problem p;
    size_t n;
    problem_of_error(&p, err);
    if (!g->is_stream) {
        call_problem(g->call, &p);
        return;
    }
    char *body = problem_json(&p, false, &n);
    send_event(g, body, n);
    call_end(g->call);
}

static void finish(generation *g, const char *why)
{
    const char *tail;
    size_t n;
    figures *seen = &g->engine->figures;
    figures_add_seconds(&seen->whole, hth_clock_ns() - g->call->submit_ns);
    figures_add_tokens(&seen->n_prompt, g->n_prompt);
    figures_add_tokens(&seen->n_generated, g->n_generated);
    if (!g->is_stopped) {
        hearth_detokenizer_flush(g->decoder, &tail, &n);
        add_text(g, tail, n);
        send_sure(g, g->text.n);
    }
    if (g->is_stopped) why = "stop";
    if (g->is_stream) send_end(g, why);
    else if (!g->is_broken) answer_whole(g, why);
    if (g->is_broken) call_break(g->call);
    else if (g->is_stream) call_end(g->call);
}

static void unlink_generation(generation *g)
{
    generation **at = &g->engine->generations;
    while (*at != g) at = &(*at)->next;
    *at = g->next;
}

static void take_token(generation *g, const hearth_request_event *e)
{
    const char *text;
    size_t n;
    hearth_error why;
    uint64_t now = hth_clock_ns();
    figures *seen = &g->engine->figures;
    if (g->n_generated++ == 0)
        g->first_ns = now, figures_add_seconds(&seen->first_token, now - g->call->submit_ns);
    else figures_add_seconds(&seen->next_token, now - g->last_ns);
    g->last_ns = now;
    if (!logprobs_add(&g->probs, e->logits, g->engine->info.n_vocab, e->token)) g->is_broken = true;
    if (hearth_detokenizer_push(g->decoder, e->token, &text, &n, &why) != HEARTH_OK) g->is_broken = true;
    else add_text(g, text, n);
}

static bool take_event(void *user, const hearth_request_event *e)
{
    generation *g = user;
    g->n_cached = e->n_cached, g->draft = e->draft;
    switch (e->state) {
    case HEARTH_REQUEST_TOKEN: take_token(g, e); return !g->is_stopped && !g->is_broken;
    case HEARTH_REQUEST_END:
    case HEARTH_REQUEST_STOPPED: finish(g, "stop"); break;
    case HEARTH_REQUEST_LENGTH: finish(g, "length"); break;
    case HEARTH_REQUEST_CANCELLED: call_break(g->call); break;
    case HEARTH_REQUEST_FAILED: fail(g, e->error); break;
    }
    unlink_generation(g);
    free_generation(g);
    return false;
}

/* ---- on the engine thread ---------------------------------------------------------------------------------------- */

void generation_start(generation *g, int32_t *ids, size_t n)
{
    engine *e = g->engine;
    problem p;
    hearth_error err;
    const hearth_request r = {.tokens = ids,
                              .n_token = n,
                              .max_token = g->max_token,
                              .ignore_end = g->ignore_end,
                              .sampler = &g->sampler,
                              .constraint = g->constraint,
                              .owner = g->call->i_key,
                              .fn = take_event,
                              .user = g};
    g->n_prompt = n, g->first_ns = g->last_ns = g->begin_ns;
    if (hearth_scheduler_get_stats(e->scheduler).n_waiting >= e->max_waiting) {
        hearth_free(ids);
        problem_set(&p, 429, "", "%u requests wait already", e->max_waiting);
        generation_refuse(g, &p);
        return;
    }
    hearth_status st =
        hearth_detokenizer_open(e->model, !g->format->continues && !g->constraint, false, &g->decoder, &err);
    if (st == HEARTH_OK) st = hearth_scheduler_add(e->scheduler, &r, &g->id, &err);
    hearth_free(ids);
    if (st != HEARTH_OK) {
        problem_of_error(&p, &err);
        if (st == HEARTH_ERROR_CONTEXT) p.code = "context_length_exceeded";
        generation_refuse(g, &p);
        return;
    }
    g->next = e->generations;
    e->generations = g;
    if (!g->is_stream) return;
    if (call_begin_stream(g->call)) send_begin(g);
    else g->is_broken = true;
}

void generations_tend(engine *e)
{
    for (generation *g = e->generations, *next; g; g = next) {
        next = g->next;
        if (call_is_cancelled(g->call) || g->is_broken) hearth_scheduler_cancel(e->scheduler, g->id);
        else hearth_scheduler_pause(e->scheduler, g->id, call_is_paused(g->call));
    }
}

void generations_cancel_all(engine *e)
{
    while (e->generations) hearth_scheduler_cancel(e->scheduler, e->generations->id);
}
