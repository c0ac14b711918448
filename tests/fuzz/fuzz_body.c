/* A fuzz target for the bodies of requests, of every endpoint that takes one: the first line is its path, the rest the
 * body. It is read as the server reads it, up to the request that the scheduler gets, which is then cancelled. What is
 * promised of all bodies: the call ends once, as 200 with JSON, or refused with an error that says why, and never with 500;
 * a request that is taken has prompts of tokens of the vocabulary. Built with libFuzzer by the preset `fuzz`; test_body.c
 * replays that and mutations of it. */
#include "common/options/model_args.h"
#include "engine/engine.h"
#include "fuzz/mutate_json.h"
#include "serve/api/generation.h"
#include "serve/endpoints.h"
#include "serve/worker.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* What a template shows of a conversation: all of it. */
static const char template_source[] =
    "{{ tools }}{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{{ m.tool_calls }}{% endfor %}<think></think><tool_call>";

#define expect(HOLDS) expect_at(HOLDS, #HOLDS, __LINE__)
static void expect_at(bool holds, const char *what, int line)
{
    if (holds) return;
    fprintf(stderr, "line %d: %s\n", line, what);
    abort();
}

/* ---- a server without a network ----------------------------------------------------------------------------- */

static engine an_engine;
static served_model served = {.engine = &an_engine, .id = (char[]){"story"}};
static exchange *queue;

static void wake(void *user) { (void)user; }

static hearth_status load(void *user, served_model *m, hearth_error *err)
{
    (void)user;
    static const char *const rerank[] = {"tokenizer.chat_template.rerank=str:{query}<s>{document}"};
    const hearth_model_options o = {.overrides = rerank, .n_override = 1};
    hearth_status st = hearth_model_open_memory(embedded_model, embedded_model_size, "story.gguf", &o, &m->model, err);
    if (st == HEARTH_OK) st = hearth_chat_open_template(m->model, template_source, strlen(template_source), &m->chat, err);
    return st;
}

/* A response and its item, resp_1 and msg_1, which bodies can name. */
static bool store_response(void)
{
    static const char item[] = "{\"role\": \"user\", \"content\": \"a\"}";
    item_list items = {.n = 0};
    an_engine.responses = response_store_open(1 << 16);
    if (!an_engine.responses || !item_list_add(&items, "msg_1", 0, item, sizeof item - 1)) return false;
    response_store_add(an_engine.responses, "resp_1", 0, &items, "{}", 2);
    bool ok = response_store_item(an_engine.responses, "msg_1", 0, &items) == HEARTH_OK;
    item_list_free(an_engine.responses, &items);
    return ok;
}

static void open_server(void)
{
    engine_init(&an_engine);
    an_engine.models = &served, an_engine.n_model = 1, an_engine.max_loaded = 1, an_engine.max_waiting = 4;
    an_engine.load = load;
    an_engine.scheduling = hearth_scheduler_defaults();
    an_engine.scheduling.n_ctx = 256, an_engine.scheduling.n_batch = 32, an_engine.scheduling.n_running = 4;
    queue = exchange_open(1, wake, NULL);
    an_engine.worker = worker_open("fuzz-opener", wake, NULL);
    expect(queue && an_engine.worker && store_response() && served_model_open(&served, NULL) == HEARTH_OK);
}

/* ---- what comes of a body ------------------------------------------------------------------------------------- */

static void check_taken(const generation *g)
{
    const int32_t n_vocab = (int32_t)served.info.n_vocab;
    expect(g->prompts.n > 0 && g->n_choice > 0);
    for (size_t i = 0; i < g->prompts.n; i++)
        for (size_t k = 0; k < g->prompts.at[i].n; k++) expect(g->prompts.at[i].ids[k] >= 0 && g->prompts.at[i].ids[k] < n_vocab);
    expect(g->sampler.temperature >= 0.0f && g->sampler.top_p <= 1.0f);
}

static void check_reply(const event *e)
{
    hth_json *answer = hth_json_open(e->bytes ? e->bytes : "", e->n, NULL, NULL);
    expect(e->status >= 200 && e->status != 500 && e->status < 504);
    expect(e->n == 0 || answer != NULL);
    if (e->status >= 400) expect(hth_json_member(answer, "error") != NULL);
    hth_json_close(answer);
}

/* Returns how often the call was ended; it is gone then. */
static int take_events(void)
{
    int n_end = 0;
    for (event *e = exchange_events(queue), *next; e; e = next) {
        next = e->next;
        if (e->kind == EVENT_REPLY) check_reply(e);
        free(e->bytes);
        bool is_last = e == &e->call->last;
        n_end += is_last;
        if (is_last) call_free(e->call);
        else free(e);
    }
    return n_end;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    route_match m;
    const uint8_t *end = memchr(data, '\n', n);
    size_t n_path = end ? (size_t)(end - data) : 0, n_body = n_path ? n - n_path - 1 : 0;
    if (!queue) open_server();
    if (n_path == 0 || n > 1 << 16) return 0;
    route_find(serve_routes, NULL, HTTP_POST, (text_part){(const char *)data, n_path}, &m);
    if (!m.route || !m.route->run) return 0;
    char *body = malloc(n_body + 1);
    expect(body != NULL);
    memcpy(body, end + 1, n_body);
    body[n_body] = '\0';
    call *c = call_make(queue, m.route->run, &served, m.route->path, body, n_body);
    expect(c != NULL);
    c->form = m.form;
    call_read_body(c);
    expect(exchange_submit(queue, c) && exchange_take(queue) == c);
    c->run(&served, c);
    int n_end = take_events();
    for (const generation *g = served.generations; g; g = g->next) check_taken(g);
    expect(n_end == 1 || served_model_is_busy(&served));
    if (n_end == 0) call_cancel(c);
    generations_cancel_all(&served);
    tasks_end(&served.tasks);
    expect(n_end + take_events() == 1 && !served_model_is_busy(&served));
    return 0;
}
