/* Weights from the file to where kernels read them: into aligned memory on huge
 * pages, in parallel, or mapped in place. Called once by model.c; the only place
 * that moves weights. */
#include "base/checked.h"
#include "engine/engine.h"

#include <stdatomic.h>
#include <string.h>

/* One read: large enough for the disk, small enough to share out. */
enum { CHUNK_SIZE = 8 << 20 };

typedef struct chunk {
    const hth_gguf_tensor *tensor;
    uint64_t from;
    size_t size;
    uint8_t *dst;
} chunk;

typedef struct read_job {
    const hth_gguf *file;
    const chunk *chunks;
    const hearth_model_options *options;
    uint64_t total;
    _Atomic uint64_t done;
    _Atomic int failed; /* the first failure writes error, later ones are dropped */
    hearth_error error;
} read_job;

static void fail_job(read_job *job, const hearth_error *error)
{
    int expected = 0;
    if (atomic_compare_exchange_strong(&job->failed, &expected, 1)) job->error = *error;
}

/* False cancels. The caller's own function may allocate, though a unit may not. */
static bool show_progress(const read_job *job, uint64_t done)
{
    const hearth_model_options *o = job->options;
    if (!o->progress) return true;
    hth_alloc_forbid(-1);
    bool go_on = o->progress(o->progress_user, done, job->total);
    hth_alloc_forbid(1);
    return go_on;
}

static void read_chunk(void *arg, size_t i, uint32_t i_thread)
{
    read_job *job = arg;
    const chunk *c = &job->chunks[i];
    hearth_error error;
    if (atomic_load_explicit(&job->failed, memory_order_relaxed)) return;
    if (hth_gguf_read(job->file, c->tensor, c->from, c->size, c->dst, &error) != HEARTH_OK) {
        fail_job(job, &error);
        return;
    }
    uint64_t done = atomic_fetch_add(&job->done, c->size) + c->size;
    if (i_thread == 0 && !show_progress(job, done)) {
        hth_fail(&error, HEARTH_ERROR_CANCELLED, "%s: loading was cancelled", hth_gguf_path(job->file));
        fail_job(job, &error);
    }
}

/* Chunks of all matrices and the size of the memory that holds them. */
static size_t count_chunks(const hth_model *model, size_t *memory_size)
{
    size_t n = 0, size = 0;
    for (size_t i = 0; i < model->n_binding; i++) {
        const hth_binding *b = &model->bindings[i];
        if (!b->matrix) continue;
        n += (b->size + CHUNK_SIZE - 1) / CHUNK_SIZE;
        size += (b->size + 63) & ~(uint64_t)63; /* inside a file: cannot overflow */
    }
    *memory_size = size;
    return n;
}

static void fill_chunks(hearth_model *m, chunk *chunks)
{
    size_t n = 0;
    uint8_t *at = m->weights;
    for (size_t i = 0; i < m->model->n_binding; i++) {
        const hth_binding *b = &m->model->bindings[i];
        if (!b->matrix) continue;
        b->matrix->data = at;
        for (uint64_t from = 0; from < b->size; from += CHUNK_SIZE) {
            uint64_t left = b->size - from;
            size_t size = left < CHUNK_SIZE ? (size_t)left : CHUNK_SIZE;
            chunks[n++] = (chunk){b->tensor, b->from + from, size, at + from};
        }
        at += (b->size + 63) & ~(uint64_t)63;
    }
}

static hearth_status read_matrices(hearth_model *m, hth_pool *pool, const hearth_model_options *options,
                                   hearth_error *err)
{
    size_t n_chunk = count_chunks(m->model, &m->weights_size);
    chunk *chunks = hth_alloc(n_chunk, sizeof *chunks);
    m->weights = chunks ? hth_pages_alloc(m->weights_size) : NULL;
    if (!m->weights) {
        hth_free(chunks);
        return hth_fail(err, HEARTH_ERROR_MEMORY,
                        "%s: out of memory: %zu bytes for the weights; --mmap needs less",
                        hth_gguf_path(m->file), m->weights_size);
    }
    fill_chunks(m, chunks);
    read_job job = {.file = m->file, .chunks = chunks, .options = options, .total = m->model->weight_size};
    hth_pool_run(pool, read_chunk, &job, n_chunk);
    hth_free(chunks);
    if (!atomic_load(&job.failed)) return HEARTH_OK;
    if (err) *err = job.error;
    return job.error.status;
}

static hearth_status map_matrices(hearth_model *m, hearth_error *err)
{
    hearth_status st = hth_gguf_map(m->file, err);
    if (st != HEARTH_OK) return st;
    for (size_t i = 0; i < m->model->n_binding; i++) {
        const hth_binding *b = &m->model->bindings[i];
        if (b->matrix) b->matrix->data = (const uint8_t *)hth_gguf_mapped(m->file, b->tensor) + b->from;
    }
    return HEARTH_OK;
}

/* Norms, biases and factors are few: each is read, widened and checked. */
static hearth_status read_vector(hearth_model *m, const hth_binding *b, hearth_error *err)
{
    size_t size = (size_t)b->tensor->size;
    float *x = hth_arena_alloc(&m->vectors, b->n, sizeof *x, 64);
    uint8_t *raw = hth_alloc(1, size);
    hearth_status st = HEARTH_OK;
    if (!x || !raw) {
        st = hth_fail_memory(err, size, "a vector of weights");
        goto done;
    }
    if ((st = hth_gguf_read(m->file, b->tensor, 0, size, raw, err)) != HEARTH_OK) goto done;
    m->kernels.unpack[b->tensor->type](raw, b->n, x);
    for (size_t i = 0; i < b->n; i++) {
        if (x[i] - x[i] == 0.0f && !(b->divides && x[i] == 0.0f)) continue; /* finite */
        char name[80];
        st = hth_fail(err, HEARTH_ERROR_FORMAT, "%s: tensor '%s' at %llu: weight %zu is %g; %s",
                      hth_gguf_part_path(m->file, b->tensor->i_part),
                      hth_escape(name, sizeof name, b->tensor->name.bytes, b->tensor->name.n),
                      (unsigned long long)b->tensor->offset, i, (double)x[i],
                      b->divides ? "angles are divided by it: a number but 0 is wanted"
                                 : "a finite number is wanted");
        goto done;
    }
    *b->vector = x;
done:
    hth_free(raw);
    return st;
}

hearth_status hth_engine_load(hearth_model *m, const hearth_model_options *options, hearth_error *err)
{
    for (size_t i = 0; i < m->model->n_binding; i++) {
        if (m->model->bindings[i].matrix) continue;
        hearth_status st = read_vector(m, &m->model->bindings[i], err);
        if (st != HEARTH_OK) return st;
    }
    if (options->mmap) return map_matrices(m, err);
    hth_pool *pool;
    hearth_status st = hth_pool_open(hth_pool_threads(options->n_thread), &pool, err);
    if (st != HEARTH_OK) return st;
    st = read_matrices(m, pool, options, err);
    hth_pool_close(pool);
    return st;
}
