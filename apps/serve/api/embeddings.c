/* POST /v1/embeddings, and Ollama's /api/embed: texts as vectors of length 1. A vector is what the last layer makes
 * of the tokens, pooled as the file says: their mean, the first or the last; without a word in the file the last. */
#define _GNU_SOURCE
#include "serve/api/prompts.h"

#include "base/clock.h"
#include "kernels/vector/math.h"
#include "engine/engine.h"
#include "serve/endpoints.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_INPUTS = 2048, PART = 32 }; /* PART: tokens between two steps of the scheduler */

typedef enum pooling { POOL_MEAN = 1, POOL_FIRST = 2, POOL_LAST = 3 } pooling; /* the numbers of the format */

typedef struct embedding {
    task task;
    served_model *served;
    json_in *document;
    prompt_list inputs;
    pooling pooling;
    bool as_base64, is_ollama;
    uint32_t n_dim;
    hearth_session *session; /* of the input that is evaluated; NULL: none is */
    size_t i_input, n_done;
    double *sum;    /* [d_model] of the input */
    float *vectors; /* [inputs.n][n_dim] */
    uint64_t begin_ns;
} embedding;

static void free_embedding(embedding *m)
{
    hearth_session_close(m->session);
    prompt_list_free(&m->inputs);
    json_in_free(m->document);
    free(m->sum);
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

static size_t count_tokens(const embedding *m)
{
    size_t n = 0;
    for (size_t i = 0; i < m->inputs.n; i++) n += m->inputs.at[i].n;
    return n;
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
    json_uint(j, "prompt_tokens", count_tokens(m));
    json_uint(j, "total_tokens", count_tokens(m));
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
    json_uint(j, "prompt_eval_count", count_tokens(m));
}

/* ---- evaluation
 * -------------------------------------------------------------------------------------------------- */

static hearth_status add_row(void *user, size_t i, const float *row, hearth_error *err)
{
    embedding *m = user;
    size_t at = m->n_done + i, n = m->inputs.at[m->i_input].n;
    bool counts = m->pooling == POOL_MEAN || at == (m->pooling == POOL_FIRST ? 0 : n - 1);
    (void)err;
    for (uint32_t k = 0; counts && k < m->served->info.d_model; k++) m->sum[k] += (double)row[k];
    return HEARTH_OK;
}

/* Of length 1, after the dimensions that are not wanted were left out. */
static void finish_input(embedding *m)
{
    float *v = m->vectors + m->i_input * m->n_dim;
    double length = 0.0;
    for (uint32_t k = 0; k < m->n_dim; k++) length += m->sum[k] * m->sum[k];
    double factor = length > 0.0 ? 1.0 / hth_sqrt_d(length) : 0.0;
    for (uint32_t k = 0; k < m->n_dim; k++) v[k] = (float)(m->sum[k] * factor);
    memset(m->sum, 0, m->served->info.d_model * sizeof *m->sum);
    hearth_session_close(m->session);
    m->session = NULL;
    m->n_done = 0;
    m->i_input++;
}

static hearth_status open_session(embedding *m, hearth_error *err)
{
    const served_model *served = m->served;
    hearth_session_options o = hearth_session_defaults();
    o.n_ctx = served_model_n_ctx(served), o.kv = served->scheduling.kv,
    o.n_thread = served->scheduling.n_thread;
    return hearth_session_open(served->model, &o, &m->session, err);
}

static hearth_status evaluate_part(embedding *m, hearth_error *err)
{
    const prompt *p = &m->inputs.at[m->i_input];
    size_t n = p->n - m->n_done < PART ? p->n - m->n_done : PART;
    hearth_status st = m->session ? HEARTH_OK : open_session(m, err);
    double *before = malloc(m->served->info.d_model * sizeof *before);
    if (st == HEARTH_OK && !before) st = hth_fail_memory(err, sizeof *before, "an embedding");
    if (st == HEARTH_OK) {
        memcpy(before, m->sum, m->served->info.d_model * sizeof *before);
        st = hearth_session_eval_hidden(m->session, p->ids + m->n_done, n, add_row, m, err);
        /* Cancelled by the end of another request: the part is evaluated again. */
        if (st != HEARTH_OK) memcpy(m->sum, before, m->served->info.d_model * sizeof *before);
        else if ((m->n_done += n) == p->n) finish_input(m);
    }
    free(before);
    return st;
}

static bool go_on(task *t)
{
    embedding *m = (embedding *)t;
    hearth_error err;
    problem p;
    json_line l;
    if (call_is_cancelled(t->call)) {
        call_break(t->call);
        free_embedding(m);
        return false;
    }
    hearth_status st = evaluate_part(m, &err);
    if (st == HEARTH_ERROR_CANCELLED || (st == HEARTH_OK && m->i_input < m->inputs.n)) return true;
    if (st != HEARTH_OK) {
        problem_of_error(&p, &err);
        call_problem(t->call, &p);
    } else {
        if (json_line_begin(&l)) (m->is_ollama ? write_ollama : write_openai)(&l.j, m);
        call_line(t->call, &l);
    }
    free_embedding(m);
    return false;
}

/* ---- requests
 * ---------------------------------------------------------------------------------------------------- */

static bool read_pooling(fields *f, embedding *m)
{
    char key[160];
    uint64_t kind = 0;
    hearth_error err;
    snprintf(key, sizeof key, "%s.pooling_type", m->served->info.architecture);
    if (hth_gguf_get_uint(m->served->model->file, key, 0, POOL_LAST, &kind, NULL, &err) != HEARTH_OK) {
        problem_set(f->problem, 400, "", "this model has no embeddings: %s", err.message);
        return false;
    }
    m->pooling = kind > 0 ? (pooling)kind : POOL_LAST;
    return true;
}

static bool is_possible(fields *f, const embedding *m)
{
    hearth_model_info info = {0};
    hearth_model_get_info(m->served->model, &info); /* of now: a device may have been lost */
    if (info.gpu)
        problem_set(f->problem, 400, "", "embeddings are not computed with a GPU: hearth serve --gpu none computes them");
    return !info.gpu;
}

static bool read_all(fields *f, embedding *m)
{
    const char *encoding = "float";
    size_t n;
    int64_t n_dim = m->served->info.d_model;
    if (!is_possible(f, m) || !fields_text(f, "encoding_format", &encoding, &n) ||
        !fields_int(f, "dimensions", 1, n_dim, &n_dim) || !read_pooling(f, m) ||
        !prompts_read(f, m->served, "input", MAX_INPUTS, &m->inputs))
        return false;
    m->as_base64 = strcmp(encoding, "base64") == 0;
    if (!m->as_base64 && strcmp(encoding, "float") != 0)
        return fields_fail(f, "encoding_format", "float or base64 is expected");
    for (size_t i = 0; i < m->inputs.n; i++) {
        if (m->inputs.at[i].n == 0) return fields_fail(f, "input", "[%zu] has no tokens", i);
        if (m->inputs.at[i].n > served_model_n_ctx(m->served)) {
            fields_fail(f, "input", "[%zu] has %zu tokens; the context has %u", i, m->inputs.at[i].n,
                        served_model_n_ctx(m->served));
            f->problem->code = "context_length_exceeded";
            return false;
        }
    }
    m->n_dim = (uint32_t)n_dim;
    m->sum = calloc(m->served->info.d_model, sizeof *m->sum);
    m->vectors = calloc(m->inputs.n * m->n_dim, sizeof *m->vectors);
    return (m->sum && m->vectors) || fields_no_memory(f);
}

static void run(served_model *served, call *c, bool is_ollama)
{
    fields f;
    problem p;
    json_in *document = fields_read(c, &f, &p);
    embedding *m = document ? calloc(1, sizeof *m) : NULL;
    if (document && !m) problem_set(&p, 503, "", "out of memory"), json_in_free(document);
    if (m)
        *m = (embedding){.task = {.call = c, .go_on = go_on},
                         .served = served,
                         .document = document,
                         .is_ollama = is_ollama,
                         .begin_ns = hth_clock_ns()};
    if (!m || !read_all(&f, m)) {
        call_problem(c, &p);
        if (m) free_embedding(m);
        return;
    }
    m->task.next = served->tasks;
    served->tasks = &m->task;
}

void embeddings_run(void *user, call *c) { run(user, c, false); }
void ollama_embed_run(void *user, call *c) { run(user, c, true); }
