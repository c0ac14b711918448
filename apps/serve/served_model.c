/* Opens and closes a model that is served. */
#include "serve/api/generation.h"

#include "base/system/folder.h"
#include "common/chat_format.h"
#include "common/output.h"
#include "engine/engine.h"

#include <stdio.h>
#include <string.h>

/* The folder of one of several models is made; that of the only one was made before (command.c). */
static hearth_status restore(served_model *m, hearth_error *err)
{
    if (!m->kept) return HEARTH_OK;
    hearth_status st = m->engine->n_model > 1 ? hth_folder_make(m->kept, 0700, err) : HEARTH_OK;
    return st == HEARTH_OK ? hearth_scheduler_restore(m->scheduler, m->kept, err) : st;
}

void served_model_keep(served_model *m, hearth_progress_fn *goes_on, void *user)
{
    hearth_error err;
    if (!m->kept) return;
    hearth_status st =
        hearth_scheduler_save(m->scheduler, m->kept, m->engine->kept_size, goes_on, user, &err);
    if (st == HEARTH_OK || st == HEARTH_ERROR_CANCELLED) return;
    print_warning("the cache of requests was not saved: %s", err.message);
    m->keep_failed = true;
}

static hearth_status describe(served_model *m, hearth_error *err)
{
    uint64_t hash;
    hearth_error ignored;
    char digest[sizeof m->digest] = "";
    model_facts facts = {0};
    hearth_status st = model_facts_take(&facts, m->model, m->scheduling.n_ctx, err);
    if (st != HEARTH_OK) return st;
    if (m->format &&
        (st = model_facts_set_template(&facts, m->format->text, m->format->n, err)) != HEARTH_OK) {
        model_facts_free(&facts);
        return st;
    }
    facts.has_chat = m->chat != NULL;
    if (hth_model_hash(m->model->file, &hash, &ignored) == HEARTH_OK)
        snprintf(digest, sizeof digest, "%016llx", (unsigned long long)hash);
    engine_lock(m->engine);
    model_facts_free(&m->facts);
    m->facts = facts;
    memcpy(m->digest, digest, sizeof digest);
    engine_unlock(m->engine);
    return HEARTH_OK;
}

static void index_vocabulary(worker_job *j)
{
    hearth_error ignored; /* a request with a constraint tries again, and is told */
    (void)hearth_constraint_prepare(((indexing *)j)->model, &ignored);
}

/* Within a limit of memory the index takes some that weights and sessions have: it is left to a request that needs
 * it. */
static void begin_indexing(served_model *m)
{
    if (!m->engine->worker || m->model->budget.limit > 0) return;
    m->indexing = (indexing){{.run = index_vocabulary}, m->model};
    worker_add(m->engine->worker, &m->indexing.job);
}

hearth_status served_model_open(served_model *m, hearth_error *err)
{
    engine *e = m->engine;
    m->scheduling = e->scheduling;
    hearth_status st = e->load(e->user, m, err);
    if (st == HEARTH_OK) st = hearth_scheduler_open(m->model, &m->scheduling, &m->scheduler, err);
    if (st == HEARTH_OK) st = restore(m, err);
    if (st == HEARTH_OK) {
        hearth_model_get_info(m->model, &m->info);
        /* A model without a chat template serves all that needs none. */
        if (!m->chat && hearth_chat_open(m->model, NULL, &m->chat, &m->chat_error) != HEARTH_OK)
            m->chat = NULL;
        st = describe(m, err);
    }
    if (st == HEARTH_OK && !live_figures_open(m)) st = hth_fail_memory(err, sizeof m->live, "figures");
    if (st != HEARTH_OK) {
        served_model_close(m);
        return st;
    }
    m->keep_failed = false;
    engine_lock(e);
    m->is_loaded = true;
    engine_unlock(e);
    begin_indexing(m);
    return HEARTH_OK;
}

void served_model_close(served_model *m)
{
    engine *e = m->engine;
    generations_cancel_all(m);
    tasks_end(&m->tasks);
    if (e->worker) worker_settle(e->worker, &m->indexing.job);
    engine_lock(e);
    m->is_loaded = false;
    engine_unlock(e);
    hearth_scheduler_close(m->scheduler);
    hearth_chat_close(m->chat);
    hearth_model_close(m->draft);
    hearth_model_close(m->model);
    live_figures_close(&m->live);
    m->scheduler = NULL, m->chat = NULL, m->model = m->draft = NULL;
}

bool served_model_is_busy(const served_model *m) { return m->generations || m->tasks || m->n_large > 0; }

bool served_model_is_reranker(const served_model *m)
{
    const hth_model *model = m->model->model;
    if (m->engine->pooling == HEARTH_POOLING_AUTO) return hth_model_is_reranker(model);
    return m->engine->pooling == HEARTH_POOLING_RANK && model->n_class > 0;
}

uint32_t served_model_n_ctx(const served_model *m)
{
    return hth_context_for(&m->model->model->hparams, m->scheduling.n_ctx);
}

bool served_model_is_called(const served_model *m, const char *name, size_t n, bool with_tag)
{
    static const char tag[] = ":latest";
    size_t n_id = strlen(m->id), n_tag = sizeof tag - 1;
    if (with_tag && n == n_id + n_tag && memcmp(name + n_id, tag, n_tag) == 0) n = n_id;
    return n == n_id && memcmp(name, m->id, n) == 0;
}
