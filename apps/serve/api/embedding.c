/* Evaluates the texts of a request: an embedder for each, and a part between two steps of the scheduler. */
#include "serve/api/embedding.h"

#include "base/clock.h"
#include "serve/api/generation.h"
#include "serve/large_call.h"

#include <stdlib.h>

enum { PART = 32 }; /* tokens between two steps of the scheduler */

static void free_embedding(void *object)
{
    embedding *m = object;
    hearth_embedder_close(m->embedder);
    prompt_list_free(&m->inputs);
    free(m->vectors);
    free(m);
}

/* ---- evaluation ------------------------------------------------------------------------------------------ */

static bool open_embedder(embedding *m, problem *p)
{
    const served_model *served = m->served;
    hearth_embedder_options o = hearth_embedder_defaults();
    hearth_error err;
    o.n_ctx = served_model_n_ctx(served), o.kv = served->scheduling.kv,
    o.n_thread = served->scheduling.n_thread;
    o.n_dim = m->n_dim, o.n_batch = PART, o.pooling = m->pooling;
    hearth_status st = hearth_embedder_open(served->model, &o, &m->embedder, &err);
    if (st == HEARTH_OK) return true;
    problem_of_error(p, &err);
    if (st == HEARTH_ERROR_FORMAT || st == HEARTH_ERROR_UNSUPPORTED) {
        const problem why = *p;
        problem_set(p, 400, "", "this model has no embeddings: %s", why.message);
    }
    return false;
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

/* It is freed on the engine thread, which counts the memory of its cache. */
static void answer(void *user, call *c)
{
    embedding *m = user;
    const bool is_array = m->is_array;
    json_line l;
    if (is_array ? json_array_begin(&l) : json_line_begin(&l)) m->write(&l.j, m);
    call_go_on(c, free_embedding, m);
    if (is_array) call_array(c, &l);
    else call_line(c, &l);
}

/* Millions of numbers take seconds, and so do texts that come back. */
static bool has_large_answer(const embedding *m)
{
    return m->inputs.n * m->n_dim * sizeof *m->vectors > CALL_LARGE || m->task.call->n_body > CALL_LARGE;
}

static bool go_on(task *t)
{
    embedding *m = (embedding *)t;
    hearth_error err;
    problem p;
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
        free_embedding(m);
    } else if (!has_large_answer(m) || !large_call_begin(m->served, t->call, answer, m)) {
        answer(m, t->call);
    }
    return false;
}

/* ---- requests -------------------------------------------------------------------------------------------- */

embedding *embedding_make(served_model *served, call *c, size_t size, fields *f, problem *p)
{
    bool ok = fields_read(c, f, p);
    embedding *m = ok ? calloc(1, size) : NULL;
    if (ok && !m) fields_no_memory(f);
    if (!m) {
        call_problem(c, p);
        return NULL;
    }
    m->task = (task){.call = c, .go_on = go_on};
    m->served = served;
    m->pooling = served_model_is_reranker(served) ? HEARTH_POOLING_RANK : served->engine->pooling;
    m->begin_ns = hth_clock_ns();
    return m;
}

bool embedding_check_input(fields *f, const embedding *m, const char *field, size_t i)
{
    const size_t n = m->inputs.at[i].n;
    const uint32_t n_ctx = served_model_n_ctx(m->served);
    if (n == 0) return fields_fail(f, field, "[%zu] has no tokens", i);
    if (n <= n_ctx) return true;
    fields_fail(f, field, "[%zu] has %zu tokens; the context has %u", i, n, n_ctx);
    f->problem->code = "context_length_exceeded";
    return false;
}

static bool is_possible(const embedding *m, problem *p)
{
    hearth_model_info info = {0};
    hearth_model_get_info(m->served->model, &info); /* the current state: a device may have been lost */
    if (info.gpu)
        problem_set(p, 400, "", "embeddings are not computed with a GPU: hearth serve --gpu none computes them");
    return !info.gpu;
}

static void add_task(void *object)
{
    embedding *m = object;
    problem p;
    if (is_possible(m, &p) && generation_has_room(m->served, &p)) {
        tasks_add(&m->served->tasks, &m->task);
        return;
    }
    call_problem(m->task.call, &p);
    free_embedding(m);
}

void embedding_start(embedding *m, bool ok, const problem *p)
{
    if (ok) {
        call_go_on(m->task.call, add_task, m);
        return;
    }
    call_problem(m->task.call, p);
    free_embedding(m);
}
