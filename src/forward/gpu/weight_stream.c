/* Streamed weights: for the many tokens of a prompt it may be faster to copy the CPU neurons' weights to the
 * device than to compute with them on the CPU (docs/gpu.md). Rows are packed from the host's layout directly
 * into a staging buffer; record_ffn.c records the copies and their use. */
#include "forward/gpu/gpu_int.h"

#include "base/alloc.h"
#include "base/checked_math.h"

#include <assert.h>
#include <string.h>

/* Chunks of some megabytes: the copy of a chunk takes long compared to a submission, and briefly compared to
 * a display frame. Small matrices are split into several chunks too, so that the copy of one overlaps with
 * the use of another. */
enum { MAX_SLOT = 8 << 20, MIN_CHUNKS = 4, ROWS_AT_ONCE = 16 };

/* ---- chunks ------------------------------------------------------------------------------------------ */

static uint64_t layout_bytes(const hth_matrix *m, uint64_t n_row)
{
    hth_soa_layout layout;
    return hth_soa_layout_init(m->type, n_row, m->n_col, &layout) ? layout.size : UINT64_MAX;
}

/* Only quantised weights can be streamed: float chains are never split. */
static bool can_stream(const hth_matrix *m)
{
    hth_quant_desc desc;
    if (m->n_row == 0) return true;
    return hth_quant_desc_of(m->type, &desc) && m->row_size <= HTH_GPU_MAX_STAGED &&
           layout_bytes(m, HTH_CLUSTER_NEURONS) <= MAX_SLOT;
}

/* Slot bytes for a chunk of a matrix, up to the maximum. */
static uint64_t wanted_bytes(const hth_matrix *m)
{
    uint64_t n_row = hth_n_cluster(m->n_row / MIN_CHUNKS) * HTH_CLUSTER_NEURONS;
    uint64_t chunk_size = n_row > 0 ? layout_bytes(m, n_row) : 0;
    return chunk_size < MAX_SLOT ? chunk_size : MAX_SLOT;
}

uint64_t hth_gpu_slot_bytes(const hth_model *model)
{
    uint64_t bytes = 0;
    if (!model->down_transposed) return 0;
    for (uint32_t i = 0; i < model->hparams.n_layer; i++) {
        const hth_layer *l = &model->layers[i];
        if (!can_stream(&l->ffn.gate) || !can_stream(&l->ffn.up) || !can_stream(&l->ffn.down_t.rows)) return 0;
        bytes = hth_max_u64(
            bytes, hth_max_u64(wanted_bytes(&l->ffn.gate),
                               hth_max_u64(wanted_bytes(&l->ffn.up), wanted_bytes(&l->ffn.down_t.rows))));
    }
    return bytes;
}

/* Rows of a matrix that fit into a slot, in multiples of HTH_CLUSTER_NEURONS. */
static uint32_t rows_of_chunk(const hth_matrix *m, uint64_t slot)
{
    uint32_t low = 1, high = (uint32_t)hth_n_cluster(m->n_row);
    while (low < high) {
        uint32_t middle = (low + high + 1) / 2;
        if (layout_bytes(m, (uint64_t)middle * HTH_CLUSTER_NEURONS) <= slot) low = middle;
        else high = middle - 1;
    }
    return low * HTH_CLUSTER_NEURONS;
}

static uint32_t n_chunks(const hth_gpu *g, const hth_matrix *m, uint32_t n_streamed)
{
    uint32_t step = m->n_row > 0 ? rows_of_chunk(m, g->workspace.slots[0].size) : 1;
    return m->n_row > 0 ? (n_streamed + step - 1) / step : 0;
}

/* Adds the chunks of the first n_passing rows of a split layer's matrix. */
static void add_chunks(const hth_gpu *g, hth_weight_stream *to, uint32_t i_split_layer, const hth_matrix *m,
                       hth_gpu_vector bias)
{
    const hth_gpu_layer *l = &g->layers[g->split_layers[i_split_layer]];
    uint32_t n_streamed = hth_gpu_n_streamed(l, to), n = n_chunks(g, m, n_streamed), first = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t step = rows_of_chunk(m, g->workspace.slots[0].size), left = n_streamed - first;
        hth_stream_chunk p = {
            .rows = m, .first = first, .n_row = left < step ? left : step, .i_split_layer = i_split_layer};
        p.neuron = l->n_hot + first;
        p.bias = bias;
        if (bias.n > 0) p.bias.offset += first * sizeof(float), p.bias.n = p.n_row;
        hth_soa_layout_init(m->type, p.n_row, m->n_col, &p.layout);
        to->chunks[to->n_chunk++] = p;
        first += p.n_row;
    }
}

/* Divides the CPU share of a split layer into as many parts as it has chunks, the first of which is
 * `first`. */
static void divide_share(const hth_gpu *g, hth_weight_stream *to, uint32_t first)
{
    const hth_gpu_layer *l = &g->layers[g->split_layers[to->chunks[first].i_split_layer]];
    uint32_t at = hth_gpu_n_streamed(l, to), n_cluster = (uint32_t)hth_n_cluster(l->cold.d_ff - at),
             n = to->n_chunk - first;
    to->has_share = to->has_share || n_cluster > 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t end = at + HTH_CLUSTER_NEURONS * ((i + 1) * n_cluster / n - i * n_cluster / n);
        if (end > l->cold.d_ff) end = l->cold.d_ff;
        to->chunks[first + i].cpu_neurons = hth_ffn_slice(&l->cold, at, end - at, at);
        to->chunks[first + i].first_cpu_neuron = at;
        at = end;
    }
}

/* The share of the CPU is rounded to the nearest number of whole clusters; at least one cluster is streamed,
 * as the share is computed along with the chunks. */
uint32_t hth_gpu_n_streamed(const hth_gpu_layer *l, const hth_weight_stream *p)
{
    uint32_t n_cluster = (uint32_t)hth_n_cluster(l->cold.d_ff),
             n_shared = (n_cluster * p->config.cpu_share + HTH_PLACEMENT_PARTS / 2) / HTH_PLACEMENT_PARTS;
    uint32_t n = (n_shared < n_cluster ? n_cluster - n_shared : 1) * HTH_CLUSTER_NEURONS;
    return n < l->cold.d_ff ? n : l->cold.d_ff;
}

/* Builds the chunks of all split layers. */
static hearth_status build_chunks(const hth_gpu *g, hth_weight_stream *p, hearth_error *err)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->n_split_layer; i++) {
        const hth_gpu_layer *l = &g->layers[g->split_layers[i]];
        uint32_t n_streamed = hth_gpu_n_streamed(l, p);
        n += n_chunks(g, &l->cold.gate, n_streamed) + n_chunks(g, &l->cold.up, n_streamed) +
             n_chunks(g, &l->cold.down_t.rows, n_streamed);
    }
    p->chunks = hth_alloc(n, sizeof *p->chunks);
    if (!p->chunks) return hth_fail_memory(err, n * sizeof *p->chunks, "weights that pass through");
    for (uint32_t i = 0; i < g->n_split_layer; i++) {
        const hth_gpu_layer *l = &g->layers[g->split_layers[i]];
        uint32_t first = p->n_chunk;
        add_chunks(g, p, i, &l->cold.gate, l->cold_bias[0]);
        add_chunks(g, p, i, &l->cold.up, l->cold_bias[1]);
        add_chunks(g, p, i, &l->cold.down_t.rows, (hth_gpu_vector){0});
        divide_share(g, p, first);
    }
    return HEARTH_OK;
}

/* Number of streams that steps of this size can use. */
static uint32_t n_streams(const hth_offload_params *p)
{
    uint32_t n = 0;
    while (n < HTH_PLACEMENT_STREAMS && p->streams[n].n_tok > 0 && p->streams[n].n_tok <= p->n_row) n++;
    return n;
}

static bool has_shares(const hth_gpu *g)
{
    for (uint32_t i = 0; i < g->n_stream; i++)
        if (g->streams[i].has_share) return true;
    return false;
}

/* Where the last stream has long steps, short ones get command lists of their own, as without streams. */
static void spare_short_steps(hth_gpu *g)
{
    if (g->n_stream == 0 || g->n_stream == HTH_PLACEMENT_STREAMS) return;
    hth_weight_stream *last = &g->streams[g->n_stream - 1];
    if (last->n_row < 4 * HTH_GPU_SOME_ROWS || last->config.n_tok > HTH_GPU_SOME_ROWS) return;
    hth_weight_stream *more = &g->streams[g->n_stream++];
    *more = *last;
    more->config.n_tok = HTH_GPU_SOME_ROWS + 1, last->n_row = HTH_GPU_SOME_ROWS;
}

hearth_status hth_weight_streams_open(hth_gpu *g, hearth_error *err)
{
    const hth_placement_stream *streams = g->params.streams;
    hearth_status st = HEARTH_OK;
    assert(hth_placement_streams_valid(streams));
    bool has_slots = hth_gpu_slot_bytes(g->model) > 0;
    if (streams[0].n_tok == 0 || (!has_slots && (g->n_split_layer > 0 || g->passing.n_chunk == 0))) return HEARTH_OK;
    for (uint32_t i = 0; i < n_streams(&g->params); i++) {
        uint32_t n_row = i + 1 < n_streams(&g->params) ? streams[i + 1].n_tok - 1 : g->params.n_row;
        g->streams[g->n_stream++] = (hth_weight_stream){.config = streams[i], .n_row = n_row};
    }
    spare_short_steps(g);
    for (uint32_t i = 0; st == HEARTH_OK && i < g->n_stream; i++) st = build_chunks(g, &g->streams[i], err);
    return st == HEARTH_OK && has_shares(g) ? hth_gpu_open_shared_sums(g, err) : st;
}

hearth_status hth_gpu_open_shared_sums(hth_gpu *g, hearth_error *err)
{
    uint64_t n = (uint64_t)g->params.n_row * g->model->hparams.d_model;
    g->shared_sums = hth_alloc(n, sizeof *g->shared_sums);
    return g->shared_sums ? HEARTH_OK : hth_fail_memory(err, n * sizeof *g->shared_sums, "the host's sums");
}

void hth_weight_streams_close(hth_gpu *g)
{
    for (uint32_t i = 0; i < g->n_stream; i++) hth_free(g->streams[i].chunks);
    hth_free(g->shared_sums);
    g->n_stream = 0, g->shared_sums = NULL;
}

/* ---- staging ----------------------------------------------------------------------------------------- */

typedef struct stage_job {
    const hth_matrix *m;
    uint32_t first, n;
    uint8_t *to;
} stage_job;

static void stage_some(void *arg, size_t i, uint32_t i_thread)
{
    const stage_job *job = arg;
    const hth_matrix *m = job->m;
    uint8_t scratch[HTH_GPU_MAX_STAGED];
    uint32_t first = (uint32_t)i * ROWS_AT_ONCE,
             end = first + ROWS_AT_ONCE < job->n ? first + ROWS_AT_ONCE : job->n;
    (void)i_thread;
    for (uint32_t r = first; r < end; r++) {
        const uint8_t *row = hth_matrix_row(m, job->first + r, scratch);
        hth_soa_layout_pack(m->type, job->n, m->n_col, row, m->row_size, r, 1, job->to);
    }
}

void hth_gpu_stage_rows(hth_pool *pool, const hth_matrix *m, uint32_t first, uint32_t n, uint8_t *to)
{
    stage_job job = {m, first, n, to};
    hth_pool_run(pool, stage_some, &job, (n + ROWS_AT_ONCE - 1) / ROWS_AT_ONCE);
}

void hth_gpu_stage(const hth_gpu *g, hth_pool *pool, const hth_weight_stream *stream, uint32_t i)
{
    const hth_stream_chunk *p = &stream->chunks[i];
    const hth_buffer_range *to = &g->workspace.staging[i % 2];
    hth_gpu_stage_rows(pool, p->rows, p->first, p->n_row, (uint8_t *)hth_buffer_map(to->buffer) + to->offset);
}
