/* POST /v1/embeddings, and Ollama's /api/embed: texts as vectors of length 1, by an embedder of the library for each
 * request. */
#define _GNU_SOURCE
#include "serve/api/generation.h"

#include "base/clock.h"
#include "serve/endpoints.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_INPUTS = 2048, PART = 32 }; /* PART: tokens between two steps of the scheduler */

typedef struct embedding embedding;
struct embedding {
    task task;
    served_model *served;
    prompt_list inputs;
    bool as_base64;
    void (*write)(json *j, const struct embedding *m);
    uint32_t n_dim;
    hearth_embedder *embedder;
    float *vectors; /* [inputs.n][n_dim] */
    uint64_t begin_ns;
};

static void free_embedding(embedding *m)
{
    hearth_embedder_close(m->embedder);
    prompt_list_free(&m->inputs);
    free(m->vectors);
    free(m);
}

/* ---- answers
 * ----------------------------------------------------------------------------------------------------- */

/* Little-endian float32, as clients of OpenAI's read it. */
static void write_base64(json *j, const char *key, const float *v, uint32_t n)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t n_byte = n * sizeof *v, n_text = 0;
    const unsigned char *p = (const unsigned char *)v;
    char *text = malloc(n_byte / 3 * 4 + 5);
    for (size_t i = 0; text && i < n_byte; i += 3) {
        unsigned a = p[i], b = i + 1 < n_byte ? p[i + 1] : 0, c = i + 2 < n_byte ? p[i + 2] : 0;
        text[n_text++] = letters[a >> 2];
        text[n_text++] = letters[(a & 3) << 4 | b >> 4];
        text[n_text++] = i + 1 < n_byte ? letters[(b & 15) << 2 | c >> 6] : '=';
        text[n_text++] = i + 2 < n_byte ? letters[c & 63] : '=';
    }
    if (text) json_text(j, key, text, n_text);
    else json_put_null(j, key);
    free(text);
}

static void write_vector(json *j, const char *key, const float *v, uint32_t n)
{
    json_open_compact(j, key, '[');
    for (uint32_t i = 0; i < n; i++) json_float(j, NULL, (double)v[i], 9);
    json_close(j, ']');
}

static void write_openai(json *j, const embedding *m)
{
    json_word(j, "object", "list");
    json_open_compact(j, "data", '[');
    for (size_t i = 0; i < m->inputs.n; i++) {
        const float *v = m->vectors + i * m->n_dim;
        json_open_compact(j, NULL, '{');
        json_word(j, "object", "embedding");
        json_uint(j, "index", i);
        if (m->as_base64) write_base64(j, "embedding", v, m->n_dim);
        else write_vector(j, "embedding", v, m->n_dim);
        json_close(j, '}');
    }
    json_close(j, ']');
    json_word(j, "model", m->served->id);
    json_open_compact(j, "usage", '{');
    json_uint(j, "prompt_tokens", hearth_embedder_n_evaluated(m->embedder));
    json_uint(j, "total_tokens", hearth_embedder_n_evaluated(m->embedder));
    json_close(j, '}');
}

static void write_ollama(json *j, const embedding *m)
{
    json_word(j, "model", m->served->id);
    json_open_compact(j, "embeddings", '[');
    for (size_t i = 0; i < m->inputs.n; i++) write_vector(j, NULL, m->vectors + i * m->n_dim, m->n_dim);
    json_close(j, ']');
    json_uint(j, "total_duration", hth_clock_ns() - m->begin_ns);
    json_uint(j, "load_duration", 0);
    json_uint(j, "prompt_eval_count", hearth_embedder_n_evaluated(m->embedder));
}

/* The vector of the only text. */
static void write_ollama_older(json *j, const embedding *m) { write_vector(j, "embedding", m->vectors, m->n_dim); }

/* ---- evaluation
 * -------------------------------------------------------------------------------------------------- */

static bool open_embedder(embedding *m, problem *p)
{
    const served_model *served = m->served;
    hearth_embedder_options o = hearth_embedder_defaults();
    hearth_error err;
    o.n_ctx = served_model_n_ctx(served), o.kv = served->scheduling.kv,
    o.n_thread = served->scheduling.n_thread;
    o.n_dim = m->n_dim, o.n_batch = PART, o.pooling = served->engine->pooling;
    hearth_status st = hearth_embedder_open(served->model, &o, &m->embedder, &err);
    if (st == HEARTH_ERROR_FORMAT || st == HEARTH_ERROR_UNSUPPORTED)
        problem_set(p, 400, "", "this model has no embeddings: %s", err.message);
    else if (st != HEARTH_OK) problem_of_error(p, &err);
    return st == HEARTH_OK;
}

static bool begin_texts(embedding *m, problem *p)
{
    hearth_error err;
    hearth_embed_text *texts = calloc(m->inputs.n, sizeof *texts);
    m->vectors = calloc(m->inputs.n * m->n_dim, sizeof *m->vectors);
    for (size_t i = 0; texts && i < m->inputs.n; i++)
        texts[i].tokens = m->inputs.at[i].ids, texts[i].n_token = m->inputs.at[i].n;
    hearth_status st = HEARTH_OK;
    if (texts && m->vectors) st = hearth_embed_begin(m->embedder, texts, m->inputs.n, m->vectors, &err);
    bool has_memory = texts && m->vectors;
    free(texts);
    if (st != HEARTH_OK) problem_of_error(p, &err);
    else if (!has_memory) problem_set(p, 503, "", "out of memory");
    return has_memory && st == HEARTH_OK;
}

static bool go_on(task *t)
{
    embedding *m = (embedding *)t;
    hearth_error err;
    problem p;
    json_line l;
    bool more;
    if (call_is_cancelled(t->call)) {
        call_break(t->call);
        free_embedding(m);
        return false;
    }
    /* Only now, as it takes memory: those that wait have none of it. */
    if (!m->embedder && !(open_embedder(m, &p) && begin_texts(m, &p))) {
        call_problem(t->call, &p);
        free_embedding(m);
        return false;
    }
    hearth_status st = hearth_embed_step(m->embedder, &more, &err);
    /* Cancelled by the end of another request: the part is evaluated again. */
    if (st == HEARTH_ERROR_CANCELLED || (st == HEARTH_OK && more)) return true;
    if (st != HEARTH_OK) {
        problem_of_error(&p, &err);
        call_problem(t->call, &p);
    } else {
        if (json_line_begin(&l)) m->write(&l.j, m);
        call_line(t->call, &l);
    }
    free_embedding(m);
    return false;
}

/* ---- requests
 * ---------------------------------------------------------------------------------------------------- */

static bool is_possible(fields *f, const embedding *m)
{
    hearth_model_info info = {0};
    hearth_model_get_info(m->served->model, &info); /* of now: a device may have been lost */
    if (info.gpu)
        problem_set(f->problem, 400, "",
                    "embeddings are not computed with a GPU: hearth serve --gpu none computes them");
    return !info.gpu;
}

static bool read_all(fields *f, embedding *m, const char *field)
{
    const char *encoding = "float";
    int64_t n_dim = m->served->info.d_model;
    if (!is_possible(f, m) || !fields_word(f, "encoding_format", &encoding) ||
        !fields_int(f, "dimensions", 1, n_dim, &n_dim) ||
        !prompts_read(f, m->served, field, MAX_INPUTS, &m->inputs))
        return false;
    m->as_base64 = strcmp(encoding, "base64") == 0;
    if (!m->as_base64 && strcmp(encoding, "float") != 0)
        return fields_fail(f, "encoding_format", "float or base64 is expected");
    for (size_t i = 0; i < m->inputs.n; i++) {
        if (m->inputs.at[i].n == 0) return fields_fail(f, field, "[%zu] has no tokens", i);
        if (m->inputs.at[i].n > served_model_n_ctx(m->served)) {
            fields_fail(f, field, "[%zu] has %zu tokens; the context has %u", i, m->inputs.at[i].n,
                        served_model_n_ctx(m->served));
            f->problem->code = "context_length_exceeded";
            return false;
        }
    }
    m->n_dim = (uint32_t)n_dim;
    return true;
}

static void run(served_model *served, call *c, const char *field, void (*write)(json *j, const embedding *m))
{
    fields f;
    problem p;
    bool ok = fields_read(c, &f, &p);
    embedding *m = ok ? calloc(1, sizeof *m) : NULL;
    if (ok && !m) problem_set(&p, 503, "", "out of memory");
    if (m)
        *m = (embedding){.task = {.call = c, .go_on = go_on},
                         .served = served,
                         .write = write,
                         .begin_ns = hth_clock_ns()};
    if (!m || !read_all(&f, m, field) || !generation_has_room(served, &p)) {
        call_problem(c, &p);
        if (m) free_embedding(m);
        return;
    }
    call_drop_document(c); /* all of it is in m */
    tasks_add(&served->tasks, &m->task);
}

void embeddings_run(void *user, call *c) { run(user, c, "input", write_openai); }
void ollama_embed_run(void *user, call *c) { run(user, c, "input", write_ollama); }
void ollama_embeddings_run(void *user, call *c) { run(user, c, "prompt", write_ollama_older); }
