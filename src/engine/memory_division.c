/* How a limit of memory is divided: what the process has, sessions, matrices that are read in any case, and what is
 * left for the items of a store. What lies on a device has items too, without memory, in case it comes back
 * (gpu_fallback.c). */
#include "engine/streaming.h"

#include "base/alloc.h"
#include "base/format_bytes.h"
#include "base/log.h"
#include "base/system/system_memory.h"

#include <inttypes.h>
#include <string.h>

/* Bytes of allocations that are not counted: stacks, samplers, texts. */
enum { OTHER_SIZE = 12 << 20 };
/* Bytes for each thread, and for each item. */
enum { LOAD_SIZE = 1 << 20, TABLE_SIZE = 512 };
/* The memory of a process differs by up to this between two runs. */
enum { NEXT_RUN_SIZE = 1 << 20 };

/* ---- memory ---------------------------------------------------------------------------------- */

/* Bytes of a session as announced. */
static hearth_status announced_size(const hearth_model *m, const hearth_model_options *o, uint64_t *size,
                                    hearth_error *err)
{
    const hearth_session_options s = {
        .n_ctx = o->gpu.n_ctx, .n_batch = o->gpu.n_batch, .n_thread = o->n_thread, .kv = o->gpu.kv};
    *size = hth_engine_session_size(m, &s, true);
    if (*size > 0) return HEARTH_OK;
    return hth_fail(
        err, HEARTH_ERROR_ARGUMENT,
        "%s: the bytes of a session do not fit into an integer, or its KV cache does not suit the model",
        hth_gguf_path(m->file));
}

static uint64_t larger(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* Bytes of device i, which a step of another session may be using. */
static uint64_t size_on_device(const hearth_model *m, uint32_t i)
{
    uint64_t budget;
    for (hth_gpu *g = m->gpu; g; g = hth_gpu_next(g))
        if (hth_engine_device_of(m, g) == i) return hth_gpu_usage(g, &budget).used;
    return hth_device_state(m->devices[i].device).used;
}

uint64_t hth_engine_device_size(const hearth_model *m)
{
    uint64_t size = 0;
    for (uint32_t i = 0; i < m->n_device; i++) {
        hth_device_kind kind = m->devices[i].info->kind;
        if (kind != HTH_DEVICE_DISCRETE && kind != HTH_DEVICE_SIMULATED) size += size_on_device(m, i);
    }
    return size;
}

/* Bytes that the process has now, those included that it allocated and did not touch yet. The memory of a simulated GPU
 * stands for some that is not this machine's; what an integrated GPU has is not in the process. */
static uint64_t size_of_process(const hearth_model *m)
{
    uint64_t resident = hth_memory_resident(), allocated = hth_alloc_in_use(), outside = 0;
    for (uint32_t i = 0; i < m->n_device; i++) {
        uint64_t used = size_on_device(m, i);
        switch (m->devices[i].info->kind) {
        case HTH_DEVICE_SIMULATED:
            resident = hth_less(resident, used), allocated = hth_less(allocated, used);
            break;
        case HTH_DEVICE_INTEGRATED: outside += used; break;
        case HTH_DEVICE_CPU: allocated += used; break;
        default: break;
        }
    }
    return larger(resident, allocated) + outside;
}

/* Bytes beside matrices and sessions: what the process has, what loading takes for each thread (load.c), the store's
 * tables, experts on their way to devices, and others. */
static uint64_t size_of_rest(const hearth_model *m, const hearth_model_options *o, uint32_t n_item)
{
    uint64_t moves = 0;
    for (const hth_gpu *g = m->gpu; g; g = hth_gpu_next(g)) moves += hth_gpu_moves_to_come(g);
    return size_of_process(m) + OTHER_SIZE + (uint64_t)hth_pool_default_threads(o->n_thread) * LOAD_SIZE +
           (uint64_t)n_item * TABLE_SIZE + moves;
}

/* Bytes of rows of matrices that have no data yet. */
typedef struct matrix_sizes {
    uint64_t fixed, streamed; /* read to memory in any case; the others */
    uint64_t back; /* more, of both, once all that lies on a device has come back (gpu_fallback.c) */
} matrix_sizes;

static matrix_sizes sum_matrices(const hearth_model *m)
{
    matrix_sizes sum = {0};
    for (size_t i = 0; i < m->model->n_binding; i++) {
        const hth_binding *b = &m->model->bindings[i];
        if (!b->matrix || b->matrix->data) continue;
        uint64_t n_there = hth_engine_first_row(m, b->matrix), there = n_there * b->matrix->row_size;
        uint64_t size = (b->size - there + 63) & ~(uint64_t)63;
        *(hth_engine_has_items(m, b->matrix) ? &sum.streamed : &sum.fixed) += size;
        /* A matrix is read whole then, and the rows that are in memory stay. */
        if (n_there > 0 || hth_engine_is_divided(m, b->matrix)) sum.back += (b->size + 63) & ~(uint64_t)63;
    }
    return sum;
}

/* The options that an error message advises to change because of a GPU: a smaller gpu.vram, or no GPU. The driver of an
 * unused GPU also takes memory of this process. */
static const char *advice_of_gpu(const hearth_model *m, const hearth_model_options *o)
{
    hth_device_info found[HTH_MAX_DEVICE];
    char note[200];
    size_t n;
    if (hth_engine_device_size(m) > 0) return "gpu.vram, ";
    if (m->n_device > 0 || !o->gpu.device || strcmp(o->gpu.device, "none") == 0) return "";
    hth_device_list(found, HTH_MAX_DEVICE, &n, note);
    return n > 0 ? "gpu.device none, " : "";
}

static hearth_status refuse(const hearth_model *m, const hearth_model_options *o, uint64_t limit, uint64_t least,
                            hearth_error *err)
{
    least += NEXT_RUN_SIZE;
    return hth_fail(err, HEARTH_ERROR_ARGUMENT,
                    "%s: needs at least %s of memory (%" PRIu64
                    " bytes), the limit is %s%s; %sn_ctx and n_batch make it less",
                    hth_gguf_path(m->file), hth_format_bytes(least).text, least, hth_format_bytes(limit).text,
                    o->ram == HEARTH_RAM_AUTO ? ", which the system leaves" : "", advice_of_gpu(m, o));
}

/* Whether all weights fit into the limit, with tables; else whether all items do; else what is left for a store. */
static void divide(hth_memory_division *d)
{
    uint64_t others = d->matrices + d->rest + d->announced, all = d->streamed + d->back;
    d->whole = others <= d->limit && all <= d->limit - others;
    if (!d->whole) others -= d->tables;
    d->fits = others <= d->limit && all <= d->limit - others;
    d->store = d->fits || others > d->limit ? 0 : d->limit - others;
    d->least = others + (all < d->least_store ? all : d->least_store);
}

bool hth_memory_divide_again(hth_memory_division *d, uint64_t limit)
{
    d->limit = limit;
    divide(d);
    return d->fits || (d->items.n > 0 && d->limit >= d->least);
}

void hth_memory_division_free(hth_memory_division *d)
{
    hth_free(d->items.items);
    hth_free(d->items.sums);
    *d = (hth_memory_division){0};
}

/* With such a limit the system would kill the process, perhaps while it loads. */
static void warn_of_limit(const hearth_model *m, const hth_memory_division *d)
{
    uint64_t whole = d->matrices + d->rest + d->announced + d->streamed + d->back,
             left = hth_engine_system_limit(size_of_process(m)), wanted = whole < d->limit ? whole : d->limit;
    if (wanted > left)
        hth_log(HEARTH_LOG_WARN,
                "the limit of memory is %s, and the system leaves %s: auto takes what it leaves",
                hth_format_bytes(d->limit).text, hth_format_bytes(left).text);
}

void hth_engine_warn_of_memory(const hearth_model *m, const hearth_model_options *o)
{
    const char *who;
    const matrix_sizes sum = sum_matrices(m);
    uint64_t weights = sum.fixed + sum.streamed, left = hth_engine_system_left(&who),
             loading = OTHER_SIZE + (uint64_t)hth_pool_default_threads(o->n_thread) * LOAD_SIZE;
    if (o->ram > 0 || o->mmap || left == UINT64_MAX || weights + loading <= left) return;
    hth_log(HEARTH_LOG_WARN,
            "%s: its weights take %s of memory, and %s leaves %s: the system may kill this process; "
            "hearth_model_options.ram HEARTH_RAM_AUTO keeps what fits and reads the rest",
            hth_gguf_path(m->file), hth_format_bytes(weights).text, who, hth_format_bytes(left).text);
}

/* Prompts read each expert, and prepare its rows, once for a step: larger steps pay where the limit allows them. */
enum { MAX_AUTO_BATCH = 1024, BATCH_PART = 16 };
static void choose_batch(hearth_model *m, const hearth_model_options *o, hth_memory_division *d)
{
    const hth_memory_division plain = *d;
    if (d->fits || m->n_device > 0 || o->gpu.n_batch != HEARTH_BATCH_AUTO) return;
    for (m->n_batch = MAX_AUTO_BATCH; m->n_batch > HTH_DEFAULT_BATCH; m->n_batch /= 2) {
        bool is_small = announced_size(m, o, &d->announced, NULL) == HEARTH_OK &&
                        d->announced >= plain.announced &&
                        d->announced - plain.announced <= d->limit / BATCH_PART;
        if (is_small && hth_memory_divide_again(d, d->limit)) {
            d->least = plain.least; /* a smaller limit has smaller steps */
            return;
        }
    }
    *d = plain;
}

hearth_status hth_engine_divide_memory(hearth_model *m, const hearth_model_options *o, hth_memory_division *d,
                                       hearth_error *err)
{
    *d = (hth_memory_division){.limit = o->ram};
    hearth_status st = announced_size(m, o, &d->announced, err);
    if (st == HEARTH_OK) st = hth_engine_list_items(m, &d->items, err);
    if (st == HEARTH_OK && !hth_store_min_memory(d->items.items, d->items.n, &d->least_store))
        st = hth_fail_memory(err, d->items.n * sizeof *d->items.items, "sizes of items");
    if (st != HEARTH_OK) goto failed;
    if (o->ram == HEARTH_RAM_AUTO) d->limit = hth_engine_auto_limit(size_of_process(m), true);
    const matrix_sizes sum = sum_matrices(m);
    d->matrices = sum.fixed, d->streamed = sum.streamed, d->back = sum.back;
    d->tables = hth_engine_tables_size(m);
    d->rest = size_of_rest(m, o, d->items.n);
    if (o->ram != HEARTH_RAM_AUTO) warn_of_limit(m, d);
    if (hth_memory_divide_again(d, d->limit)) {
        choose_batch(m, o, d);
        return HEARTH_OK;
    }
    st = refuse(m, o, d->limit, d->least, err);
failed:
    hth_memory_division_free(d);
    return st;
}
