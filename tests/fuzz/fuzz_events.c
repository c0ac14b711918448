/* A fuzz target for streamed answers: the first byte chooses the API, the next two what of it is wanted, the rest are
 * tokens: bytes by their tokens, and after 0xFF any other. What is promised of all tokens: each event is a frame of
 * server-sent events, or a line of Ollama's, and holds JSON that is the same when it is read and written again, so that it
 * is UTF-8 and no name comes twice; the parts together are the text and the reasoning of the answer; each token has its probability once. The
 * answer as a whole is JSON too. Built with libFuzzer by the preset `fuzz`; test_events.c replays seeded ones. */
#include "base/alloc.h"
#include "base/random.h"
#include "common/options/model_args.h"
#include "engine/engine.h"
#include "serve/api/choice.h"
#include "serve/api/progress.h"
#include "text/json.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { MAX_SIZE = 600, N_HEAD = 3, MAX_LINE = 1 << 16 };

typedef enum api { CHAT, COMPLETIONS, RESPONSES, MESSAGES, OLLAMA, OLLAMA_PLAIN, N_API } api;
enum {
    PROBS = 1,
    USAGE = 2,
    TIMINGS = 4,
    REASONING = 8,
    FUNCTIONS = 16,
    TWO = 32,
    WITH_ECHO = 64,
    LENGTH = 128
};

#define expect(HOLDS) expect_at(HOLDS, __LINE__)
static void expect_at(bool holds, int line)
{
    if (holds) return;
    fprintf(stderr, "line %d\n", line);
    abort();
}

/* ---- a model ------------------------------------------------------------------------------------------------ */

static engine an_engine;
static served_model served = {
    .engine = &an_engine, .id = (char[]){"a \"model\""}, .digest = "0123456789abcdef"};
static int32_t byte_ids[256];

static void open_served(void)
{
    static const char source[] = "<think></think><tool_call>{{ tools }}";
    if (served.model) return;
    expect(hearth_model_open_memory(embedded_model, embedded_model_size, "story.gguf", NULL, &served.model, NULL) ==
           HEARTH_OK);
    expect(hearth_chat_open_template(served.model, source, strlen(source), &served.chat, NULL) == HEARTH_OK);
    hearth_model_get_info(served.model, &served.info);
    const hth_tokenizer *t = served.model->tokenizer;
    for (int32_t id = 0; id < (int32_t)served.info.n_vocab; id++) {
        size_t n;
        const char *piece = hth_token_piece(t, id, false, &n);
        if (n == 1) byte_ids[(unsigned char)*piece] = id;
    }
}

/* ---- what comes out --------------------------------------------------------------------------------------------- */

typedef struct gathered {
    buffer text, reasoning;
    size_t n_prob;
} gathered;

static void add(buffer *to, const hth_json *value)
{
    if (hth_json_kind_of(value) == HTH_JSON_TEXT) expect(buffer_add(to, value->text.bytes, value->text.n));
}

static void gather_choices(const hth_json *sent, bool is_chat, gathered out[2])
{
    for (const hth_json *c = hth_json_first(hth_json_member(sent, "choices")); c; c = c->next) {
        const hth_json *probs = hth_json_member(c, "logprobs"), *at = hth_json_member(c, "index");
        expect(hth_json_kind_of(at) == HTH_JSON_INTEGER && at->integer >= 0 && at->integer < 2);
        int64_t index = at->integer;
        const hth_json *delta = is_chat ? hth_json_member(c, "delta") : c;
        add(&out[index].text, hth_json_member(delta, is_chat ? "content" : "text"));
        add(&out[index].reasoning, hth_json_member(delta, "reasoning_content"));
        out[index].n_prob += hth_json_count(hth_json_member(probs, is_chat ? "content" : "tokens"));
    }
}

static void gather(api a, const hth_json *sent, const char *name, gathered out[2])
{
    const char *type = hth_json_text(hth_json_member(sent, "type"));
    const hth_json *delta = hth_json_member(sent, "delta"), *message = hth_json_member(sent, "message");
    if (a == RESPONSES || a == MESSAGES) expect(type && name && strcmp(type, name) == 0);
    else expect(!name);
    switch (a) {
    case CHAT: gather_choices(sent, true, out); break;
    case COMPLETIONS: gather_choices(sent, false, out); break;
    case RESPONSES:
        if (strcmp(type, "response.output_text.delta") == 0) add(&out->text, delta);
        if (strcmp(type, "response.reasoning_text.delta") == 0) add(&out->reasoning, delta);
        break;
    case MESSAGES:
        add(&out->text, hth_json_member(delta, "text"));
        add(&out->reasoning, hth_json_member(delta, "thinking"));
        break;
    default:
        add(&out->text, hth_json_member(a == OLLAMA ? message : sent, a == OLLAMA ? "content" : "response"));
        add(&out->reasoning, hth_json_member(a == OLLAMA ? message : sent, "thinking"));
    }
}

/* A line without its spaces, but for those in texts. Freed with free. */
static char *without_spaces(const char *line, size_t *n)
{
    char *out = malloc(*n + 1);
    size_t n_out = 0;
    bool in_text = false;
    expect(out != NULL);
    for (size_t i = 0; i < *n; i++) {
        if (!in_text && (line[i] == ' ' || line[i] == '\n')) continue;
        out[n_out++] = line[i];
        if (line[i] == '"') in_text = !in_text;
        if (in_text && line[i] == '\\') out[n_out++] = line[++i];
    }
    *n = n_out;
    return out;
}

/* *out: for the caller to free; NULL: it is not wanted. */
static void expect_object(const char *line, size_t n, hth_json **out)
{
    hearth_error err = {0};
    size_t n_again = 0;
    hth_json *document = hth_json_open(line, n, NULL, &err);
    if (!document) fprintf(stderr, "%s: %.*s\n", err.message, (int)n, line);
    expect(hth_json_kind_of(document) == HTH_JSON_OBJECT);
    char *again = hth_json_write(document, false, &n_again), *wanted = without_spaces(line, &n);
    if (n_again != n || memcmp(again, wanted, n) != 0) fprintf(stderr, "%.*s\n%s\n", (int)n, wanted, again);
    expect(n_again == n && memcmp(again, wanted, n) == 0);
    free(wanted);
    hth_free(again);
    if (out) *out = document;
    else hth_json_close(document);
}

static void read_json(api a, const char *line, size_t n, const char *name, gathered out[2])
{
    hth_json *sent;
    expect_object(line, n, &sent);
    gather(a, sent, name, out);
    hth_json_close(sent);
}

/* The bytes up to a line's end, which is passed; NULL: there is none. */
static const char *next_line(const char **at, const char *end, size_t *n)
{
    const char *line = *at, *stop = memchr(line, '\n', (size_t)(end - line));
    if (!stop) return NULL;
    *n = (size_t)(stop - line);
    *at = stop + 1;
    return line;
}

/* [event: NAME], data: JSON, an empty line. */
static void read_frame(api a, const char **at, const char *end, bool *is_done, gathered out[2])
{
    char name[100] = "";
    size_t n, n_end;
    const char *line = next_line(at, end, &n);
    expect(line && !*is_done);
    if (n > 7 && memcmp(line, "event: ", 7) == 0) {
        snprintf(name, sizeof name, "%.*s", (int)(n - 7), line + 7);
        line = next_line(at, end, &n);
    }
    expect(line && n > 6 && memcmp(line, "data: ", 6) == 0);
    expect(next_line(at, end, &n_end) && n_end == 0);
    *is_done = n == 12 && memcmp(line + 6, "[DONE]", 6) == 0;
    if (!*is_done) read_json(a, line + 6, n - 6, *name ? name : NULL, out);
}

static void read_stream(api a, const buffer *all, gathered out[2])
{
    const char *at = all->bytes, *end = at + all->n;
    bool is_done = false;
    size_t n;
    while (at < end) {
        if (a != OLLAMA && a != OLLAMA_PLAIN) {
            read_frame(a, &at, end, &is_done, out);
            continue;
        }
        const char *line = next_line(&at, end, &n);
        expect(line != NULL);
        read_json(a, line, n, NULL, out);
    }
    expect(is_done == (a == CHAT || a == COMPLETIONS));
}

/* As JSON has it: bytes that are not UTF-8 are replaced. */
static void expect_text(const buffer *found, const buffer *wanted)
{
    json_line l;
    char *line;
    size_t n;
    expect(json_line_begin(&l));
    json_text(&l.j, "text", wanted->bytes ? wanted->bytes : "", wanted->n);
    expect(json_line_end(&l, &line, &n));
    hth_json *document;
    expect_object(line, n, &document);
    const hth_json *text = hth_json_member(document, "text");
    expect(hth_json_kind_of(text) == HTH_JSON_TEXT && text->text.n == found->n &&
           (found->n == 0 || memcmp(text->text.bytes, found->bytes, found->n) == 0));
    hth_json_close(document);
    free(line);
}

/* ---- an answer -------------------------------------------------------------------------------------------------- */

static const answer_format *const formats[N_API] = {&openai_chat_format,     &openai_completion_format,
                                                    &openai_response_format, &anthropic_format,
                                                    &ollama_format,          &ollama_format};

static void wake(void *user) { (void)user; }

static generation *begin(exchange *x, const uint8_t *wanted, bool is_stream)
{
    static const char functions[] =
        "[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {}}}]";
    static const char prompt_text[] = "a \xC3\xA4\n";
    static const api_form forms[N_API] = {[MESSAGES] = FORM_ANTHROPIC, FORM_OLLAMA, FORM_OLLAMA};
    api a = wanted[0] % N_API;
    unsigned flags = wanted[1];
    fields f;
    problem p;
    call *c = call_make(x, NULL, NULL, "/", strdup("{}"), 2);
    expect(c != NULL);
    c->form = forms[a];
    call_read_body(c);
    expect(exchange_submit(x, c) && exchange_take(x) == c);
    generation *g = generation_make(&served, c, formats[a], &f, &p);
    int32_t *ids = hth_alloc(2, sizeof *ids);
    expect(g && ids);
    ids[0] = 1, ids[1] = byte_ids['a'];
    expect(prompt_list_add(&g->prompts, ids, 2, prompt_text, strlen(prompt_text)));
    bool has_choices = a == CHAT || a == COMPLETIONS;
    g->n_choice = has_choices && flags & TWO ? 2 : 1;
    g->is_stream = is_stream;
    g->first_ns = g->last_ns = g->begin_ns;
    g->is_plain = a == OLLAMA_PLAIN;
    g->include_usage = flags & USAGE, g->each_timings = flags & TIMINGS;
    g->in_reasoning = flags & REASONING && a != COMPLETIONS;
    g->echo = flags & WITH_ECHO && a == COMPLETIONS;
    g->functions = flags & FUNCTIONS && a != COMPLETIONS ? strdup(functions) : NULL;
    g->probs.wanted = flags & PROBS && (has_choices || a == RESPONSES);
    g->probs.n_top = g->probs.wanted ? wanted[2] % 6 : 0;
    if (wanted[2] & 64) g->stops = (stop_list){{{"\n\n", 2}, {"\xC3\xA4x", 3}}, 2};
    g->choices = calloc(g->n_choice, sizeof *g->choices);
    for (size_t i = 0; i < g->n_choice; i++) expect(choice_open(g, i, NULL, NULL) == HEARTH_OK);
    if (!is_stream) return g;
    g->is_streaming = call_begin_stream(c);
    for (size_t i = 0; i < g->n_choice; i++) {
        if (g->echo) expect(choice_repeat_prompt(&g->choices[i]));
        if (g->format->begin) g->format->begin(&g->choices[i]);
    }
    return g;
}

/* Values in any order, with that of the token like the others, or far below or above them. */
static const float *some_logits(uint32_t seed, int32_t token)
{
    static float logits[4096];
    uint64_t state = seed;
    expect(served.info.n_vocab <= 4096);
    for (uint32_t i = 0; i < served.info.n_vocab; i++)
        logits[i] = (float)(hth_random_next(&state) >> 40) * 0x1p-20f;
    if (seed % 4 == 0) logits[token] = -1e5f;
    if (seed % 4 == 1) logits[token] = 1e5f;
    return logits;
}

static void take_all(generation *g, const uint8_t *data, size_t n)
{
    for (size_t i = 0, k = 0; i < n; i++, k++) {
        choice *c = &g->choices[k % g->n_choice];
        int32_t id = byte_ids[data[i]];
        if (data[i] == 0xFF && i + 1 < n && data[i + 1] != 0xFF)
            id = (int32_t)((256u + data[++i]) % served.info.n_vocab);
        if (!c->is_stopped) choice_take(c, id, some_logits(data[i] + (uint32_t)i, id));
    }
}

/* All that was sent; whole: the answer that is none of a stream. */
static void take_events(exchange *x, buffer *stream, buffer *whole)
{
    for (event *e = exchange_events(x), *next; e; e = next) {
        next = e->next;
        buffer *to = e->kind == EVENT_REPLY ? whole : stream;
        expect(e->n == 0 || buffer_add(to, e->bytes, e->n));
        free(e->bytes);
        if (e == &e->call->last) call_free(e->call);
        else free(e);
    }
}

static void run(const uint8_t *data, size_t n, bool is_stream)
{
    exchange *x = exchange_open(1, wake, NULL);
    api a = data[0] % N_API;
    gathered found[2] = {0};
    buffer stream = {0}, whole = {0};
    expect(x != NULL);
    generation *g = begin(x, data, is_stream);
    take_all(g, data + N_HEAD, n - N_HEAD);
    for (size_t i = 0; i < g->n_choice; i++)
        choice_end(&g->choices[i], data[1] & LENGTH ? FINISH_LENGTH : FINISH_STOP);
    expect(!g->is_broken);
    if (is_stream && g->format->end) g->format->end(g);
    if (is_stream) call_end(g->call);
    else g->format->whole(g);
    take_events(x, &stream, &whole);
    if (is_stream) read_stream(a, &stream, found);
    else expect_object(whole.bytes, whole.n, NULL);
    for (size_t i = 0; is_stream && i < g->n_choice; i++) {
        const choice *c = &g->choices[i];
        expect_text(&found[i].text, &c->text);
        expect_text(&found[i].reasoning, &c->reasoning);
        if (a == CHAT || a == COMPLETIONS) expect(found[i].n_prob == c->probs.n);
    }
    for (size_t i = 0; i < 2; i++) free(found[i].text.bytes), free(found[i].reasoning.bytes);
    free(stream.bytes);
    free(whole.bytes);
    generation_free(g);
    exchange_free(x);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n < N_HEAD || n > MAX_SIZE) return 0;
    open_served();
    run(data, n, true);
    run(data, n, false);
    return 0;
}
