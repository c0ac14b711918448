/* POST /v1/embeddings, llama.cpp's /embedding and Ollama's /api/embed: texts as vectors of length 1. */
#define _GNU_SOURCE
#include "base/clock.h"
#include "serve/api/embedding.h"

#include <stdlib.h>
#include <string.h>

/* ---- answers --------------------------------------------------------------------------------------------- */

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

/* llama.cpp's form: of each text a list of vectors, which is one. */
static void write_llama(json *j, const embedding *m)
{
    for (size_t i = 0; i < m->inputs.n; i++) {
        json_open_compact(j, NULL, '{');
        json_uint(j, "index", i);
        json_open_compact(j, "embedding", '[');
        write_vector(j, NULL, m->vectors + i * m->n_dim, m->n_dim);
        json_close(j, ']');
        json_close(j, '}');
    }
}

/* The vector of the only text. */
static void write_ollama_older(json *j, const embedding *m) { write_vector(j, "embedding", m->vectors, m->n_dim); }

/* ---- requests -------------------------------------------------------------------------------------------- */

/* Cuts a text at the context, but for the token that ends texts, of which some models make the vector. */
static void cut(const served_model *served, prompt *text)
{
    const uint32_t n_ctx = served_model_n_ctx(served);
    if (text->n <= n_ctx) return;
    const int32_t last = text->ids[text->n - 1];
    bool ends = last == hearth_token_eos(served->model) || last == hearth_token_special(served->model, HEARTH_SPECIAL_SEPARATOR);
    text->n = n_ctx;
    if (ends) text->ids[n_ctx - 1] = last;
}

/* cuts: texts that are too long, unless the request says otherwise, as Ollama does. */
static bool read_all(fields *f, embedding *m, const char *field, bool cuts)
{
    const char *encoding = "float";
    int64_t n_dim = m->served->info.d_model;
    if (served_model_is_reranker(m->served)) {
        problem_set(f->problem, 400, "",
                    "this model is a reranker: POST /v1/rerank scores documents; hearth serve --pooling last makes vectors");
        return false;
    }
    if ((cuts && !fields_bool(f, "truncate", &cuts)) || !fields_word(f, "encoding_format", &encoding) ||
        !fields_int(f, "dimensions", 1, n_dim, &n_dim) ||
        !prompts_read(f, m->served, field, MAX_INPUTS, &m->inputs))
        return false;
    m->as_base64 = strcmp(encoding, "base64") == 0;
    if (!m->as_base64 && strcmp(encoding, "float") != 0)
        return fields_fail(f, "encoding_format", "float or base64 is expected");
    m->n_dim = (uint32_t)n_dim;
    for (size_t i = 0; cuts && i < m->inputs.n; i++) cut(m->served, &m->inputs.at[i]);
    for (size_t i = 0; i < m->inputs.n; i++)
        if (!embedding_check_input(f, m, field, i)) return false;
    return true;
}

static void run_embeddings(served_model *served, call *c, const char *field, bool cuts,
                           void (*write)(json *j, const embedding *m))
{
    fields f;
    problem p;
    embedding *m = embedding_make(served, c, sizeof *m, &f, &p);
    if (!m) return;
    m->write = write, m->is_array = write == write_llama;
    bool ok = read_all(&f, m, field, cuts);
    if (ok) call_drop_document(c); /* all of it is in m */
    embedding_start(m, ok, &p);
}

void embeddings_run(void *user, call *c) { run_embeddings(user, c, "input", false, write_openai); }
void llama_embedding_run(void *user, call *c) { run_embeddings(user, c, "content", false, write_llama); }
void ollama_embed_run(void *user, call *c) { run_embeddings(user, c, "input", true, write_ollama); }
void ollama_embeddings_run(void *user, call *c) { run_embeddings(user, c, "prompt", true, write_ollama_older); }
