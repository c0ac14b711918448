/* The pipelines of a device: one for each shader and set of constants, compiled when it is asked for or, because
 * drivers take their time, many at once in threads. */
#include "base/alloc.h"
#include "base/pool.h"
#include "device/device_int.h"

#include <string.h>

static hearth_status compile(hth_device *d, hth_pipeline *p, hearth_error *err)
{
    hearth_status st = hth_device_end_call(d, d->backend->pipeline_new(d, p, err));
    p->pending = st != HEARTH_OK;
    return st;
}

static hth_pipeline *find(const hth_device *d, hth_shader_id id, const uint32_t *consts)
{
    size_t size = hth_shader_infos[id].n_const * sizeof *consts;
    for (hth_pipeline *p = d->pipelines; p; p = p->next)
        if (p->id == id && (size == 0 || memcmp(p->consts, consts, size) == 0)) return p;
    return NULL;
}

hearth_status hth_pipeline_get(hth_device *d, hth_shader_id id, const uint32_t *consts,
                               const hth_pipeline **out, hearth_error *err)
{
    *out = NULL;
    hth_pipeline *p = find(d, id, consts);
    if (p && (!p->pending || d->defers_pipelines)) return *out = p, HEARTH_OK;
    hearth_status st = hth_device_begin_call(d, err);
    if (st != HEARTH_OK) return st;
    hth_pipeline *made = p ? NULL : hth_alloc(1, sizeof *p);
    if (!p && !made) return hth_fail_memory(err, sizeof *p, "a pipeline");
    if (made) {
        p = made, p->id = id, p->pending = true;
        if (hth_shader_infos[id].n_const > 0) memcpy(p->consts, consts, hth_shader_infos[id].n_const * sizeof *consts);
    }
    st = d->defers_pipelines ? HEARTH_OK : compile(d, p, err);
    if (st != HEARTH_OK) {
        hth_free(made);
        return st;
    }
    if (made) made->next = d->pipelines, d->pipelines = made;
    *out = p;
    return HEARTH_OK;
}

bool hth_pipeline_defer(hth_device *d, bool on)
{
    bool compiles = d->backend->pipelines_save != NULL;
    d->defers_pipelines = on && compiles;
    return compiles;
}

bool hth_pipeline_is_deferred(const hth_device *d) { return d->defers_pipelines; }

/* ---- in threads ---------------------------------------------------------------------------------------- */

typedef struct compiling {
    hth_device *device;
    hth_pipeline **all; /* [n] */
    hearth_status *st;
    hearth_error *why;
} compiling;

static void compile_one(void *user, size_t i, uint32_t i_thread)
{
    compiling *c = user;
    (void)i_thread;
    hth_alloc_assert_none(-1); /* a compiler allocates, though other units may not */
    c->st[i] = c->device->backend->pipeline_new(c->device, c->all[i], &c->why[i]);
    hth_alloc_assert_none(1);
}

/* The n noted ones, the first one first. */
static void list_pending(const hth_device *d, hth_pipeline **all, size_t n)
{
    for (hth_pipeline *p = d->pipelines; p; p = p->next)
        if (p->pending) all[--n] = p;
}

static void forget(hth_device *d, hth_pipeline *p)
{
    hth_pipeline **link = &d->pipelines;
    while (*link != p) link = &(*link)->next;
    *link = p->next;
    hth_free(p);
}

/* The first loss of the device, else the first error, of which *err is filled. */
static hearth_status finish(compiling *c, size_t n, hearth_error *err)
{
    hearth_status st = HEARTH_OK;
    for (size_t i = 0; i < n; i++) {
        if (c->st[i] == HEARTH_OK) {
            c->all[i]->pending = false;
            continue;
        }
        bool counts = st == HEARTH_OK || (c->st[i] == HEARTH_ERROR_DEVICE && st != HEARTH_ERROR_DEVICE);
        if (counts && err) *err = c->why[i];
        if (counts) st = c->st[i];
        forget(c->device, c->all[i]);
    }
    return st;
}

hearth_status hth_pipeline_compile(hth_device *d, uint32_t n_thread, hearth_error *err)
{
    size_t n = 0;
    hth_pool *pool = NULL;
    for (const hth_pipeline *p = d->pipelines; p; p = p->next) n += p->pending;
    if (n == 0) return HEARTH_OK;
    hearth_status st = hth_device_begin_call(d, err);
    if (st != HEARTH_OK) return st;
    compiling c = {d, hth_alloc(n, sizeof *c.all), hth_alloc(n, sizeof *c.st), hth_alloc(n, sizeof *c.why)};
    if (!c.all || !c.st || !c.why) st = hth_fail_memory(err, n * sizeof *c.why, "pipelines");
    if (st == HEARTH_OK) st = hth_pool_open(hth_pool_default_threads(n_thread), &pool, err);
    if (st == HEARTH_OK) {
        list_pending(d, c.all, n);
        hth_pool_run(pool, compile_one, &c, n);
        hth_pool_close(pool);
        st = finish(&c, n, err);
    }
    hth_free(c.why);
    hth_free(c.st);
    hth_free(c.all);
    return hth_device_end_call(d, st);
}

void hth_pipeline_save(hth_device *d)
{
    if (d->backend->pipelines_save && !d->lost) d->backend->pipelines_save(d);
}

/* ---- all of them ---------------------------------------------------------------------------------------- */

const hth_pipeline *hth_pipeline_next(const hth_device *d, const hth_pipeline *last)
{
    const hth_pipeline *p = last ? last->next : d->pipelines;
    while (p && p->pending) p = p->next;
    return p;
}

hth_shader_id hth_pipeline_get_info(const hth_pipeline *pipeline, const uint32_t **consts)
{
    *consts = pipeline->consts;
    return pipeline->id;
}
