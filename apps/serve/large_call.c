/* The list of calls that the worker has. Its entries are apart from the calls: the network thread frees a
 * call as soon as it has ended, also on the worker's thread. */
#include "serve/large_call.h"

#include <stdlib.h>

typedef struct large_call {
    worker_job job;
    struct large_call *next; /* in engine.large_calls */
    served_model *served;
    call *call; /* used by the worker's thread */
    call_fn *run;
    void *user;
    void (*then)(void *object); /* on the engine thread; NULL: the call has ended */
    void *object;
} large_call;

static void run_large_call(worker_job *j)
{
    large_call *l = (large_call *)j;
    l->run(l->user, l->call);
}

bool large_call_begin(served_model *m, call *c, call_fn *fn, void *user)
{
    large_call *l = calloc(1, sizeof *l), **end = &m->engine->large_calls;
    if (!l) return false;
    *l = (large_call){.job.run = run_large_call, .served = m, .call = c, .run = fn, .user = user};
    while (*end) end = &(*end)->next;
    *end = c->large = l;
    m->n_large++;
    worker_add(m->engine->reader, &l->job);
    return true;
}

void call_go_on(call *c, void (*fn)(void *object), void *object)
{
    large_call *l = c->large;
    c->large = NULL;
    if (l) l->then = fn, l->object = object;
    else fn(object);
}

void large_calls_go_on(engine *e)
{
    for (large_call **at = &e->large_calls, *l = *at; l; l = *at) {
        if (!worker_has_ended(e->reader, &l->job)) {
            at = &l->next;
            continue;
        }
        *at = l->next;
        l->served->n_large--;
        if (l->then) l->then(l->object);
        free(l);
    }
}
