/* Loads weights from the file: into aligned memory on huge pages, in parallel and in the layout of the kernels, or
 * mapped in place. Called by model.c, and by gpu_fallback.c when weights are evicted from a device. No other file
 * moves weights. */
#include "base/bits.h"
#include "base/format_bytes.h"
#include "base/checked_math.h"
#include "base/fp_state.h"
#include "base/hash.h"
#include "engine/engine.h"
#include "sparse/neuron_order.h"
#include "sparse/selector.h"

#include <stdatomic.h>
#include <string.h>

/* Bytes of one read: large enough for the disk, small enough to distribute. A chunk that is repacked fits in a
 * core's L2 cache. */
enum { CHUNK_SIZE = 8 << 20, PANELS_SIZE = 1 << 20 };

typedef struct chunk {
    const hth_gguf_tensor *tensor;
    uint64_t from;
    size_t size;
    uint8_t *dst;
    const hth_matrix *panels; /* matrix whose rows are packed in panels; NULL: copied unchanged */
} chunk;

typedef struct read_job {
    const hearth_model *model;
    const chunk *chunks;
    const hearth_model_options *options;
    uint8_t *scratch; /* scratch_size bytes per thread */
    size_t scratch_size;
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

/* ---- layout ------------------------------------------------------------------------------ */

/* The preferred layout of the CPU level. Tables of which single rows are read stay unpacked, unless the head reads
 * them completely. */
static hth_layout choose_layout(const hearth_model *m, const hth_matrix *w)
{
    const hth_model *model = m->model;
    if (hth_engine_is_streamed(m, w)) return HTH_LAYOUT_ROWS; /* packing would take longer than reading */
    bool is_table = w == &model->position_embd || (w == &model->token_embd && !model->tied);
    bool divides_panels = w->n_slice > 0 && w->n_row / w->n_slice % HTH_PANEL_ROW > 0;
    return is_table || divides_panels || w->n_row < HTH_PANEL_ROW ? HTH_LAYOUT_ROWS
                                                                  : m->kernels.layout[w->type];
}

/* The halves of a layer's FFN in the order of their computation. */
static hth_matrix *first_half(hth_layer *l) { return l->ffn.gate.n_row > 0 ? &l->ffn.gate : &l->ffn.up; }
static hth_matrix *second_half(hth_layer *l) { return l->ffn.gate.n_row > 0 ? &l->ffn.up : NULL; }

/* Rows that are read one by one must not be in panels. */
static void choose_layouts(hearth_model *m, bool keep)
{
    for (size_t i = 0; i < m->model->n_binding; i++) {
        hth_matrix *w = m->model->bindings[i].matrix;
        if (w && !w->data && !keep) w->layout = choose_layout(m, w);
    }
    for (uint32_t i = 0; i < m->model->hparams.n_layer; i++) {
        hth_layer *l = &m->model->layers[i];
        l->ffn.down_t.rows.layout = l->experts.down_t.rows.layout = HTH_LAYOUT_ROWS;
        if (hth_selector_needs_row_major_first(m->selector)) first_half(l)->layout = HTH_LAYOUT_ROWS;
        if (hth_selector_needs_row_major_second(m->selector) && second_half(l))
            second_half(l)->layout = HTH_LAYOUT_ROWS;
    }
}

hearth_status hth_engine_check_layout(const hearth_model *m, hearth_selector selector, hearth_error *err)
{
    for (uint32_t i = 0; i < m->model->hparams.n_layer; i++) {
        hth_layer *l = &m->model->layers[i];
        const hth_matrix *first = hth_selector_needs_row_major_first(selector) ? first_half(l) : NULL;
        const hth_matrix *second = hth_selector_needs_row_major_second(selector) ? second_half(l) : NULL;
        if ((!first || first->layout == HTH_LAYOUT_ROWS) && (!second || second->layout == HTH_LAYOUT_ROWS))
            continue;
        return hth_fail(err, HEARTH_ERROR_ARGUMENT,
                        "%s: the weights were laid out for selector %s, not for %s: open the model with that",
                        hth_gguf_path(m->file), hearth_selector_name(m->selector),
                        hearth_selector_name(selector));
    }
    return HEARTH_OK;
}

/* The part of a binding to read: the CPU's rows of its matrix. */
typedef struct part {
    const hth_binding *binding;
    hth_matrix rows;
    uint64_t from, size; /* bytes of the tensor */
} part;

/* False: nothing to read. */
static bool part_of(const hearth_model *m, size_t i_binding, part *p)
{
    const hth_binding *b = &m->model->bindings[i_binding];
    if (!b->matrix || b->matrix->data) return false; /* matrices of sidecars have been read */
    if (hth_engine_is_streamed(m, b->matrix)) return false;
    uint64_t first = hth_engine_first_row(m, b->matrix);
    *p =
        (part){b, *b->matrix, b->offset + first * b->matrix->row_size, b->size - first * b->matrix->row_size};
    p->rows.n_row -= first;
    return p->rows.n_row > 0;
}

/* Bytes of the complete panels, from the start of a matrix. */
static uint64_t panels_size(const hth_matrix *w)
{
    return w->layout == HTH_LAYOUT_PANELS ? (uint64_t)(w->n_row / HTH_PANEL_ROW * HTH_PANEL_ROW) * w->row_size
                                          : 0;
}

static size_t chunk_size(const hth_matrix *w, uint64_t size, uint64_t from)
{
    uint64_t whole = panels_size(w), panel = (uint64_t)HTH_PANEL_ROW * w->row_size;
    uint64_t max = CHUNK_SIZE, left = size - from;
    if (from < whole) {
        max = panel < PANELS_SIZE ? PANELS_SIZE / panel * panel : panel;
        left = whole - from;
    }
    return (size_t)(left < max ? left : max);
}

static void make_panels(const chunk *c, const uint8_t *rows)
{
    const hth_matrix *w = c->panels;
    size_t panel = HTH_PANEL_ROW * w->row_size,
           n_block = w->n_col / hth_type_find((uint32_t)w->type)->n_weight;
    for (size_t at = 0; at < c->size; at += panel)
        hth_panel_pack(w->type, n_block, rows + at, w->row_size, c->dst + at);
}

/* ---- reading ----------------------------------------------------------------------------- */

hearth_status hth_engine_report_progress(const hearth_model *m, const hearth_model_options *options,
                                         uint64_t done, uint64_t total, hearth_error *err)
{
    bool goes_on = true;
    if (options && options->progress) {
        HTH_FP_CALLBACK;
        goes_on = options->progress(options->progress_user, done, total);
    }
    if (goes_on) return HEARTH_OK;
    return hth_fail(err, HEARTH_ERROR_CANCELLED, "%s: loading was cancelled", hth_gguf_path(m->file));
}

static void show_progress(read_job *job, uint64_t done)
{
    hearth_error error;
    if (hth_engine_report_progress(job->model, job->options, done, job->total, &error) != HEARTH_OK)
        fail_job(job, &error);
}

static void read_chunk(void *arg, size_t i, uint32_t i_thread)
{
    read_job *job = arg;
    const chunk *c = &job->chunks[i];
    hearth_error error;
    uint8_t *to = c->panels ? job->scratch + i_thread * job->scratch_size : c->dst;
    if (atomic_load_explicit(&job->failed, memory_order_relaxed)) return;
    if (hth_gguf_read(job->model->file, c->tensor, c->from, c->size, to, &error) != HEARTH_OK) {
        fail_job(job, &error);
        return;
    }
    if (c->panels) make_panels(c, to);
    uint64_t done = atomic_fetch_add(&job->done, c->size) + c->size;
    if (i_thread != 0) return;
    hth_alloc_assert_none(-1); /* the caller's callback may allocate, though a unit may not */
    show_progress(job, done);
    hth_alloc_assert_none(1);
}

/* Returns the number of chunks of all matrices. Sets their total bytes, the size of the memory that holds them,
 * and the scratch memory that a thread needs to repack a chunk. */
static size_t count_chunks(const hearth_model *m, uint64_t *total, size_t *memory_size, size_t *scratch_size)
{
    size_t n = 0, size = 0;
    *scratch_size = 0;
    for (size_t i = 0; i < m->model->n_binding; i++) {
        part p;
        if (!part_of(m, i, &p)) continue;
        *total += p.size;
        for (uint64_t from = 0; from < p.size; from += chunk_size(&p.rows, p.size, from), n++) {
            size_t capacity = from < panels_size(&p.rows) ? chunk_size(&p.rows, p.size, from) : 0;
            *scratch_size = capacity > *scratch_size ? capacity : *scratch_size;
        }
        size += (p.size + 63) & ~(uint64_t)63; /* inside a file: cannot overflow */
    }
    *memory_size = size;
    return n;
}

static void fill_chunks(hearth_model *m, chunk *chunks, uint8_t *at)
{
    size_t n = 0;
    for (size_t i = 0; i < m->model->n_binding; i++) {
        part p;
        if (!part_of(m, i, &p)) continue;
        hth_matrix *w = p.binding->matrix;
        for (uint64_t from = 0; from < p.size; n++) {
            const hth_matrix *panels = from < panels_size(&p.rows) ? w : NULL;
            chunks[n] = (chunk){p.binding->tensor, p.from + from, chunk_size(&p.rows, p.size, from),
                                at + from, panels};
            from += chunks[n].size;
        }
        w->data = at;
        at += (p.size + 63) & ~(uint64_t)63;
    }
}

/* Reads the parts without data into newly allocated memory. */
static hearth_status read_matrices(hearth_model *m, hth_pool *pool, const hearth_model_options *options,
                                   uint8_t **weights, size_t *size, hearth_error *err)
{
    read_job job = {.model = m, .options = options};
    size_t n_chunk = count_chunks(m, &job.total, size, &job.scratch_size);
    chunk *chunks = hth_alloc(n_chunk, sizeof *chunks);
    job.chunks = chunks;
    job.scratch = hth_alloc(hth_pool_n_thread(pool), job.scratch_size + 1);
    *weights = chunks && job.scratch ? hth_pages_alloc(*size) : NULL;
    if (!*weights) {
        hth_fail(&job.error, HEARTH_ERROR_MEMORY, "%s: no memory: %s for the weights; %s needs less",
                 hth_gguf_path(m->file), hth_format_bytes(*size).text,
                 m->budget.base > 0 ? "a smaller hearth_model_options.ram"
                                    : "hearth_model_options.ram HEARTH_RAM_AUTO or hearth_model_options.io mmap");
        goto done;
    }
    fill_chunks(m, chunks, *weights);
    show_progress(&job, 0);
    hth_pool_run(pool, read_chunk, &job, n_chunk);
done:
    hth_free(chunks);
    hth_free(job.scratch);
    if (job.error.status != HEARTH_OK && err) *err = job.error;
    return job.error.status;
}

static hearth_status map_matrices(hearth_model *m, hearth_error *err)
{
    hearth_status st = hth_gguf_map(m->file, err);
    if (st != HEARTH_OK) return st;
    for (size_t i = 0; i < m->model->n_binding; i++) {
        part p;
        if (!part_of(m, i, &p)) continue;
        p.binding->matrix->data = (const uint8_t *)hth_gguf_mapped(m->file, p.binding->tensor) + p.from;
    }
    return HEARTH_OK;
}

static hearth_status transpose(hearth_model *m, const hth_binding *b, hearth_error *err)
{
    size_t n_col = b->n / b->n_row;
    const float *x = *b->vector;
    float *y = hth_arena_alloc(&m->vectors, b->n, sizeof *y, 64);
    if (!y) return hth_fail_memory(err, b->n * sizeof *y, "a vector of weights");
    for (size_t i = 0; i < b->n; i++) y[i % n_col * b->n_row + i / n_col] = x[i];
    *b->vector = y;
    return HEARTH_OK;
}

/* The indices of a row differ. */
static hearth_status convert_indices(const hearth_model *m, const hth_binding *b, const uint8_t *raw,
                                     float *x, hearth_error *err)
{
    size_t n_col = b->n / b->n_row;
    for (size_t i = 0; i < b->n; i++) {
        uint32_t index;
        char name[80];
        memcpy(&index, raw + 4 * i, sizeof index);
        bool again = false;
        x[i] = (float)index;
        for (size_t j = i / n_col * n_col; j < i; j++) again = again || x[j] == x[i];
        if (!again && index < b->n_index) continue;
        return hth_fail(err, HEARTH_ERROR_FORMAT, "%s: tensor '%s' at %llu: entry %zu is %d, expected %s %u",
                        hth_gguf_part_path(m->file, b->tensor->i_part),
                        hth_escape(name, sizeof name, b->tensor->name.bytes, b->tensor->name.n),
                        (unsigned long long)b->tensor->offset, i, (int)index,
                        again ? "another than those before it, less than" : "less than", b->n_index);
    }
    return HEARTH_OK;
}

/* Norms, biases and factors are few: each is read, converted to float and checked. */
static hearth_status read_vector(hearth_model *m, const hth_binding *b, hearth_error *err)
{
    size_t size = (size_t)b->size;
    float *x = hth_arena_alloc(&m->vectors, b->n, sizeof *x, 64);
    uint8_t *raw = hth_alloc(1, size);
    hearth_status st = HEARTH_OK;
    if (!x || !raw) {
        st = hth_fail_memory(err, size, "a vector of weights");
        goto done;
    }
    if ((st = hth_gguf_read(m->file, b->tensor, b->offset, size, raw, err)) != HEARTH_OK) goto done;
    if (b->n_index > 0) {
        st = convert_indices(m, b, raw, x, err);
        *b->vector = x;
        goto done;
    }
    m->kernels.unpack[b->tensor->type](raw, b->n, x);
    for (size_t i = 0; i < b->n; i++) {
        bool allowed = !(b->must_be_nonzero && x[i] == 0.0f) && !(b->must_be_nonneg && x[i] < 0.0f);
        if (x[i] - x[i] == 0.0f && allowed) continue; /* finite */
        char name[80];
        st = hth_fail(err, HEARTH_ERROR_FORMAT, "%s: tensor '%s' at %llu: weight %zu is %g; %s",
                      hth_gguf_part_path(m->file, b->tensor->i_part),
                      hth_escape(name, sizeof name, b->tensor->name.bytes, b->tensor->name.n),
                      (unsigned long long)b->tensor->offset, i, (double)x[i],
                      b->must_be_nonzero  ? "angles are divided by it, expected a number other than 0"
                      : b->must_be_nonneg ? "expected a finite number from 0 on"
                                          : "expected a finite number");
        goto done;
    }
    for (size_t i = 0; b->factor != 0.0 && i < b->n; i++) x[i] = (float)((double)x[i] * b->factor);
    *b->vector = x;
    if (b->n_row > 0) st = transpose(m, b, err);
done:
    hth_free(raw);
    return st;
}

/* ---- bounds of neuron-major rows ------------------------------------------------------------- */

typedef struct bound_job {
    hearth_model *model;
    uint32_t n_cluster;  /* clusters of the widest layer */
    size_t cluster_size; /* bytes of the largest cluster */
    uint8_t *scratch;    /* [n_thread][cluster_size], if rows are not in memory */
    _Atomic int failed;  /* as read_job */
    hearth_error error;
} bound_job;

/* n rows of a matrix from `first` on, which are perhaps in the file only. NULL: they cannot be read. */
static const uint8_t *rows_to_bound(bound_job *job, const hth_matrix *w, size_t first, size_t n,
                                    uint32_t i_thread)
{
    const hearth_model *m = job->model;
    uint8_t *to = job->scratch + i_thread * job->cluster_size;
    hearth_error error;
    if (w->data) return w->data + (first - (size_t)hth_engine_first_row(m, w)) * w->row_size;
    if (!hth_engine_is_streamed(m, w) || atomic_load_explicit(&job->failed, memory_order_relaxed))
        return NULL;
    const hth_binding *b = hth_engine_binding_of(m, w);
    uint64_t at = b->offset + first * w->row_size;
    if (hth_gguf_read(m->file, b->tensor, at, n * w->row_size, to, &error) == HEARTH_OK) return to;
    int expected = 0;
    if (atomic_compare_exchange_strong(&job->failed, &expected, 1)) job->error = error;
    return NULL;
}

/* The largest scale of a cluster. Those on a device are known already. */
static void bound_cluster(void *arg, size_t i_unit, uint32_t i_thread)
{
    bound_job *job = arg;
    hth_transposed_down *down =
        hth_layer_transposed_down(&job->model->model->layers[i_unit / job->n_cluster]);
    const hth_matrix *m = &down->rows;
    size_t first_row = (size_t)hth_engine_first_row(job->model, m),
           first = i_unit % job->n_cluster * HTH_CLUSTER_NEURONS;
    if (first >= m->n_row || first < first_row) return;
    size_t n = m->n_row - first < HTH_CLUSTER_NEURONS ? m->n_row - first : HTH_CLUSTER_NEURONS;
    const float *scales = job->model->model->layers[i_unit / job->n_cluster].ffn.scales;
    if (scales && !m->data) {
        down->scale_max[first / HTH_CLUSTER_NEURONS] = scales[first / HTH_CLUSTER_NEURONS];
        return;
    }
    const uint8_t *rows = rows_to_bound(job, m, first, n, i_thread);
    for (size_t i = 0; rows && i < n; i++)
        hth_axpy_raise(&down->scale_max[first / HTH_CLUSTER_NEURONS],
                       hth_axpy_absmax_scale(m->type, rows + i * m->row_size, m->n_col));
}

/* The scales of the file are those of the rows in the CPU's memory. For rows that are not loaded, the layer's last
 * checksum shows that the scales are those that were written. */
static hearth_status check_given_scales(const hearth_model *m, uint32_t i_layer, hearth_error *err)
{
    const hth_gguf_tensor *sums = m->model->layers[i_layer].checksums;
    const hth_ffn *f = &m->model->layers[i_layer].ffn;
    uint64_t sum;
    if (!f->scales) return HEARTH_OK;
    size_t first = (size_t)hth_engine_first_row(m, &f->down_t.rows) / HTH_CLUSTER_NEURONS;
    for (size_t i = first; i < hth_n_cluster(f->d_ff); i++)
        if (f->scales[i] != f->down_t.scale_max[i])
            return hth_fail(
                err, HEARTH_ERROR_FORMAT,
                "%s: tensor 'blk.%u.ffn_down_t.scales': entry %zu is %g, but the largest scale of these "
                "neurons is %g: the file is damaged, pack the model again",
                hth_gguf_path(m->file), i_layer, i, (double)f->scales[i], (double)f->down_t.scale_max[i]);
    hearth_status st = hth_gguf_read(m->file, sums, sums->size - sizeof sum, sizeof sum, &sum, err);
    if (st != HEARTH_OK || sum == hth_hash(f->scales, hth_n_cluster(f->d_ff) * sizeof *f->scales)) return st;
    return hth_fail(
        err, HEARTH_ERROR_FORMAT,
        "%s: tensor 'blk.%u.ffn_down_t.scales' has another checksum than it should: the file is damaged, "
        "pack the model again",
        hth_gguf_path(m->file), i_layer);
}

/* The largest scale of each cluster, which bounds its integers (docs/arithmetic.md 6). */
static hearth_status bound_neurons(hearth_model *m, hth_pool *pool, hearth_error *err)
{
    const hth_hparams *h = &m->model->hparams;
    bound_job job = {.model = m};
    for (uint32_t i = 0; i < h->n_layer; i++) {
        const hth_matrix *rows = &hth_layer_transposed_down(&m->model->layers[i])->rows;
        size_t n = hth_n_cluster(rows->n_row), size = HTH_CLUSTER_NEURONS * rows->row_size;
        if (n > job.n_cluster) job.n_cluster = (uint32_t)n;
        if (hth_engine_is_streamed(m, rows) && size > job.cluster_size) job.cluster_size = size;
    }
    job.scratch = hth_alloc(hth_pool_n_thread(pool), job.cluster_size);
    if (!job.scratch) return hth_fail_memory(err, job.cluster_size, "rows of neurons");
    hth_pool_run(pool, bound_cluster, &job, (size_t)h->n_layer * job.n_cluster);
    hth_free(job.scratch);
    if (job.failed && err) *err = job.error;
    hearth_status st = job.failed ? job.error.status : HEARTH_OK;
    for (uint32_t i = 0; i < h->n_layer && st == HEARTH_OK; i++) {
        st = hth_model_check_scales(m->model, i, err);
        if (st == HEARTH_OK) st = check_given_scales(m, i, err);
    }
    return st;
}

/* ---- orders ------------------------------------------------------------------------------------ */

/* No computation uses the order, but it must be a permutation. */
static hearth_status check_order(const hearth_model *m, uint32_t i_layer, hearth_error *err)
{
    const hth_layer *l = &m->model->layers[i_layer];
    int32_t *order = hth_alloc(l->ffn.d_ff, sizeof *order);
    hearth_status st = order ? hth_order_read(m->file, l->ffn.order, l->ffn.d_ff, order, err)
                             : hth_fail_memory(err, l->ffn.d_ff * sizeof *order, "the order of neurons");
    hth_free(order);
    return st;
}

hearth_status hth_engine_load_vectors(hearth_model *m, hearth_error *err)
{
    for (size_t i = 0; i < m->model->n_binding; i++) {
        if (m->model->bindings[i].matrix) continue;
        hearth_status st = read_vector(m, &m->model->bindings[i], err);
        if (st != HEARTH_OK) return st;
    }
    for (uint32_t i = 0; i < m->model->hparams.n_layer; i++) {
        hearth_status st = m->model->layers[i].ffn.order ? check_order(m, i, err) : HEARTH_OK;
        if (st != HEARTH_OK) return st;
    }
    return HEARTH_OK;
}

hearth_status hth_engine_load(hearth_model *m, const hearth_model_options *options, hearth_error *err)
{
    bool bounded = m->model->down_transposed || m->model->expert_down_transposed;
    m->mapped = options->mmap;
    if (options->mmap && !bounded) return map_matrices(m, err);
    if (!options->mmap) choose_layouts(m, options->no_repack);
    hth_pool *pool;
    hearth_status st = hth_pool_open(hth_pool_default_threads(options->n_thread), &pool, err);
    if (st != HEARTH_OK) return st;
    st = options->mmap ? map_matrices(m, err)
                       : read_matrices(m, pool, options, &m->weights, &m->weights_size, err);
    if (st == HEARTH_OK && bounded) st = bound_neurons(m, pool, err);
    hth_pool_close(pool);
    return st;
}

void hth_engine_unload(hearth_model *m)
{
    for (size_t i = 0; i < m->model->n_binding; i++) {
        hth_matrix *w = m->model->bindings[i].matrix;
        if (w && !hth_engine_is_from_sidecar(m, w)) w->data = NULL;
    }
    hth_pages_free(m->weights, m->weights_size);
    m->weights = NULL, m->weights_size = 0;
}

/* ---- after an eviction from the device -------------------------------------------------------------- */

void hth_engine_unbind_rows(hearth_model *m, const hth_gpu *gpu)
{
    for (size_t i = 0; i < m->model->n_binding; i++) {
        const hth_binding *b = &m->model->bindings[i];
        if (!b->matrix || b->layer >= hth_gpu_end_layer(gpu) || !hth_engine_gave_up_rows(m->model, gpu, b->matrix)) continue;
        if (!hth_engine_is_streamed(m, b->matrix) && !hth_engine_is_from_sidecar(m, b->matrix)) b->matrix->data = NULL;
    }
    if (hth_gpu_has_head(gpu) && !m->model->tied) m->model->output.data = NULL;
}

hearth_status hth_engine_reload_cpu_rows(hearth_model *m, hearth_error *err)
{
    hearth_model_options options = {.n_thread = m->n_thread};
    hth_pool *pool;
    uint8_t *weights = NULL;
    size_t size = 0;
    if (m->mapped) return map_matrices(m, err);
    hearth_status st = hth_pool_open(hth_pool_default_threads(m->n_thread), &pool, err);
    if (st != HEARTH_OK) return st;
    st = read_matrices(m, pool, &options, &weights, &size, err);
    hth_pool_close(pool);
    if (st == HEARTH_OK) {
        m->reloaded[m->n_reloaded].weights = weights, m->reloaded[m->n_reloaded++].size = size;
        return st;
    }
    for (size_t i = 0; weights && i < m->model->n_binding; i++) {
        hth_matrix *w = m->model->bindings[i].matrix;
        if (w && w->data >= weights && w->data < weights + size) w->data = NULL;
    }
    hth_pages_free(weights, size);
    return st;
}
