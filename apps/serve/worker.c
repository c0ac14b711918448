/* The queue of the worker and its loop. */
#include "serve/worker.h"

#include "base/thread.h"

#include <stdlib.h>

struct worker {
    pthread_mutex_t lock; /* guards all but wake */
    pthread_cond_t changed;
    worker_job *first, **end;
    const worker_job *current; /* the job that runs; NULL: none */
    bool closing;
    pthread_t thread;
    void (*wake)(void *user);
    void *wake_user;
};

/* With the lock held, and jobs in the queue. */
static worker_job *take_first(worker *w)
{
    worker_job *j = w->first;
    w->first = j->next;
    if (!w->first) w->end = &w->first;
    j->next = NULL;
    return j;
}

static void *run_worker(void *arg)
{
    worker *w = arg;
    pthread_mutex_lock(&w->lock);
    for (;;) {
        while (!w->first && !w->closing) pthread_cond_wait(&w->changed, &w->lock);
        if (!w->first) break;
        worker_job *j = take_first(w);
        w->current = j;
        pthread_mutex_unlock(&w->lock);
        j->run(j);
        pthread_mutex_lock(&w->lock);
        j->has_ended = true;
        w->current = NULL;
        pthread_cond_broadcast(&w->changed);
        pthread_mutex_unlock(&w->lock); /* from here on the job may be gone */
        w->wake(w->wake_user);
        pthread_mutex_lock(&w->lock);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

worker *worker_open(const char *name, void (*wake)(void *user), void *user)
{
    worker *w = calloc(1, sizeof *w);
    if (!w) return NULL;
    pthread_mutex_init(&w->lock, NULL);
    hth_cond_init(&w->changed);
    w->end = &w->first;
    w->wake = wake;
    w->wake_user = user;
    if (hth_thread_start(&w->thread, run_worker, w, name)) return w;
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    free(w);
    return NULL;
}

void worker_close(worker *w)
{
    if (!w) return;
    pthread_mutex_lock(&w->lock);
    w->closing = true;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    free(w);
}

void worker_add(worker *w, worker_job *j)
{
    pthread_mutex_lock(&w->lock);
    j->next = NULL;
    j->has_ended = false;
    *w->end = j;
    w->end = &j->next;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
}

bool worker_has_ended(worker *w, const worker_job *j)
{
    pthread_mutex_lock(&w->lock);
    bool ended = j->has_ended;
    pthread_mutex_unlock(&w->lock);
    return ended;
}

/* With the lock held. */
static bool take_back(worker *w, worker_job *j)
{
    if (w->current == j) return false;
    worker_job **at = &w->first;
    while (*at && *at != j) at = &(*at)->next;
    if (!*at) return true;
    *at = j->next;
    if (w->end == &j->next) w->end = at;
    j->next = NULL;
    return true;
}

bool worker_take_back(worker *w, worker_job *j)
{
    pthread_mutex_lock(&w->lock);
    bool ok = take_back(w, j);
    pthread_mutex_unlock(&w->lock);
    return ok;
}

void worker_settle(worker *w, worker_job *j)
{
    pthread_mutex_lock(&w->lock);
    while (!take_back(w, j)) pthread_cond_wait(&w->changed, &w->lock);
    pthread_mutex_unlock(&w->lock);
}
