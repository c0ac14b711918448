/* Reads weights in chunks of rows, unpacks them in parallel and checks them. Every bit pattern of every type is
 * unpacked as the format specifies, so a bad scale is visible in its weights. */
#include "measure/check_weights.h"

#include "base/alloc.h"
#include "base/bits.h"
#include "base/format_bytes.h"
#include "base/pool.h"
#include "base/status.h"
#include "kernels/kernels.h"

#include <stdatomic.h>

enum { CHUNK_SIZE = 4 << 20, UNIT_WEIGHTS = 16384 };

typedef struct work {
    const hth_gguf *file;
    hearth_progress_fn *progress;
    void *progress_user;
    uint64_t done, total; /* bytes */
    hth_kernels k;
    hth_pool *pool;
    const hth_gguf_tensor *tensor;
    uint8_t *raw;
    float *x;                   /* [n_thread][UNIT_WEIGHTS] */
    uint64_t n_weight;          /* weights of the current chunk */
    _Atomic uint64_t first_bad; /* in the chunk; UINT64_MAX: none */
} work;

static void keep_smallest(_Atomic uint64_t *smallest, uint64_t value)
{
    uint64_t seen = atomic_load(smallest);
    while (value < seen && !atomic_compare_exchange_weak(smallest, &seen, value)) {
    }
}

static bool is_finite(float x) { return (hth_bits_of(x) & 0x7f800000u) != 0x7f800000u; }

/* Units hold whole blocks: their length is a multiple of every block size. */
static void check_unit(void *arg, size_t i_unit, uint32_t i_thread)
{
    work *w = arg;
    uint64_t first = (uint64_t)i_unit * UNIT_WEIGHTS, left = w->n_weight - first;
    size_t n = left < UNIT_WEIGHTS ? (size_t)left : UNIT_WEIGHTS;
    float *x = w->x + (size_t)i_thread * UNIT_WEIGHTS;
    w->k.unpack[w->tensor->type](w->raw + hth_type_row_size(w->tensor->type, first), n, x);
    for (size_t i = 0; i < n; i++)
        if (!is_finite(x[i])) {
            keep_smallest(&w->first_bad, first + i);
            return;
        }
}

static hearth_status fail_weight(const work *w, uint64_t i, hearth_error *err)
{
    const hth_gguf_tensor *t = w->tensor;
    char name[80];
    return hth_fail(
        err, HEARTH_ERROR_NUMERIC, "%s: tensor '%s' at %llu: weight %llu (row %llu) is not finite",
        hth_gguf_part_path(w->file, t->i_part), hth_escape(name, sizeof name, t->name.bytes, t->name.n),
        (unsigned long long)t->offset, (unsigned long long)i, (unsigned long long)(i / t->dim[0]));
}

/* Chunks hold whole units. */
static uint64_t chunk_weights(hth_type type)
{
    return CHUNK_SIZE / hth_type_row_size(type, UNIT_WEIGHTS) * UNIT_WEIGHTS;
}

static hearth_status advance(work *w, uint64_t size, hearth_error *err)
{
    w->done += size;
    if (!w->progress || w->progress(w->progress_user, w->done, w->total)) return HEARTH_OK;
    return hth_fail(err, HEARTH_ERROR_CANCELLED, "interrupted; %s of %s were checked",
                    hth_format_bytes(w->done).text, hth_format_bytes(w->total).text);
}

static hearth_status check_tensor(work *w, uint64_t n_weight, hearth_error *err)
{
    uint64_t piece = chunk_weights(w->tensor->type);
    for (uint64_t first = 0; first < n_weight; first += piece) {
        w->n_weight = n_weight - first < piece ? n_weight - first : piece;
        atomic_store(&w->first_bad, UINT64_MAX);
        hearth_status st = hth_gguf_read(w->file, w->tensor, hth_type_row_size(w->tensor->type, first),
                                         hth_type_row_size(w->tensor->type, w->n_weight), w->raw, err);
        if (st != HEARTH_OK) return st;
        hth_pool_run(w->pool, check_unit, w, (size_t)((w->n_weight + UNIT_WEIGHTS - 1) / UNIT_WEIGHTS));
        st = advance(w, hth_type_row_size(w->tensor->type, w->n_weight), err);
        if (st != HEARTH_OK) return st;
        if (atomic_load(&w->first_bad) != UINT64_MAX)
            return fail_weight(w, first + atomic_load(&w->first_bad), err);
    }
    return HEARTH_OK;
}

static hearth_status check_all(work *w, hth_check_result *result, hearth_error *err)
{
    for (size_t i = 0; i < hth_gguf_n_tensor(w->file); i++) w->total += hth_gguf_tensor_at(w->file, i)->size;
    for (size_t i = 0; i < hth_gguf_n_tensor(w->file); i++) {
        const hth_gguf_tensor *t = hth_gguf_tensor_at(w->file, i);
        uint64_t n = t->dim[0] * t->dim[1] * t->dim[2] * t->dim[3];
        bool known = w->k.unpack[t->type] != NULL;
        w->tensor = t;
        hearth_status st = known ? check_tensor(w, n, err) : advance(w, t->size, err);
        if (st != HEARTH_OK) return st;
        result->n_skipped += !known;
        result->n_tensor += known;
        result->n_weight += known ? n : 0;
    }
    return HEARTH_OK;
}

hearth_status hth_check_weights(const hth_gguf *file, uint32_t n_thread, hearth_progress_fn *progress,
                                void *progress_user, hth_check_result *result, hearth_error *err)
{
    work w = {.file = file, .progress = progress, .progress_user = progress_user};
    *result = (hth_check_result){0};
    hth_kernels_init(&w.k, HTH_CPU_GENERIC);
    hearth_status st = hth_pool_open(hth_pool_default_threads(n_thread), &w.pool, err);
    if (st != HEARTH_OK) return st;
    w.raw = hth_alloc(1, CHUNK_SIZE);
    w.x = hth_alloc((size_t)hth_pool_n_thread(w.pool) * UNIT_WEIGHTS, sizeof *w.x);
    if (!w.raw || !w.x) st = hth_fail_memory(err, CHUNK_SIZE, "a chunk of weights");
    else st = check_all(&w, result, err);
    hth_free(w.raw);
    hth_free(w.x);
    hth_pool_close(w.pool);
    return st;
}
