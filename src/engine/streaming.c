/* Weights that stay in the file. With a limit of memory that a model exceeds, its experts are items of a store,
 * which reads them when they are chosen and keeps those of most use. Of a model without experts the dense networks
 * are, in pieces: as many as fit are pinned, and the others, spread evenly over the layers, are read in order for
 * each token. Of tables that tokens read single rows of, rows are read. All else is in memory. What lies on a device
 * has items too, without memory, in case it comes back (gpu_fallback.c). model.c calls it after gpu.c, before load.c. */
#include "engine/engine.h"

#include "base/alloc.h"
#include "base/format_bytes.h"
#include "base/log.h"
#include "base/system_memory.h"

#include <inttypes.h>
#include <string.h>

/* Bytes that are allocated beside what is counted: stacks, samplers, texts. Bytes of a piece at most; small matrices
 * have several pieces too. */
enum { OTHER_SIZE = 12 << 20, PIECE_SIZE = 2 << 20, MIN_PIECES = 4, PIECE_ROWS = 32 };
/* For each thread, and for each item. */
enum { LOAD_SIZE = 1 << 20, TABLE_SIZE = 512 };
/* The memory of a process differs by up to this between two runs. */
enum { NEXT_RUN_SIZE = 1 << 20 };

static _Atomic uint64_t test_memory = UINT64_MAX;
void hth_engine_set_store_memory(uint64_t more) { test_memory = more; }

typedef hth_weight_items item_list;

/* ---- experts ---------------------------------------------------------------------------------- */

const hth_binding *hth_engine_binding_of(const hearth_model *m, const hth_matrix *w)
{
    for (size_t i = 0; i < m->model->n_binding; i++)
        if (m->model->bindings[i].matrix == w) return &m->model->bindings[i];
    return NULL;
}

/* n rows of a matrix from `first` on. */
static hth_extent rows_of(const hth_binding *b, uint64_t first, uint64_t n)
{
    uint64_t row_size = b->matrix->row_size;
    return (hth_extent){b->tensor->i_part, b->tensor->offset + b->offset + first * row_size, n * row_size};
}

/* Adds rows of a matrix to an item, with their checksums, if the file has them. */
static void add_extent(const hearth_model *m, const item_list *list, const hth_matrix *w, uint64_t first,
                       uint64_t n, hth_store_item *item)
{
    const hth_layer *l = &m->model->layers[item->i_group];
    const hth_matrix *all[HTH_CHECKED_MATRICES];
    size_t rows[HTH_CHECKED_MATRICES],
        n_all = l->checksums && list->sums ? hth_layer_checked_matrices(l, all, rows) : 0;
    uint32_t i_sum = list->first_sum[item->i_group], at = item->n_extent++;
    item->extents[at] = rows_of(hth_engine_binding_of(m, w), first, n);
    for (size_t k = 0; k < n_all; i_sum += (uint32_t)((all[k]->n_row + rows[k] - 1) / rows[k]), k++)
        if (all[k] == w)
            item->checks[at] = (hth_store_check){i_sum + (uint32_t)(first / rows[k]), rows[k] * w->row_size};
}

static void add_experts(const hearth_model *m, uint32_t i_layer, item_list *list)
{
    const hth_experts *e = &m->model->layers[i_layer].experts;
    const hth_matrix *all[HTH_EXPERT_MATRICES];
    hth_expert_matrices(e, all);
    list->first_expert[i_layer] = list->n;
    for (uint32_t i = 0; i < e->router.n_expert; i++) {
        hth_store_item *item = &list->items[list->n++];
        *item = (hth_store_item){.i_group = i_layer};
        for (int k = 0; k < HTH_EXPERT_MATRICES; k++) {
            uint64_t n = all[k]->n_row / e->router.n_expert;
            if (n > 0) add_extent(m, list, all[k], i * n, n, item);
        }
    }
}

/* ---- pieces of dense networks --------------------------------------------------------------------- */

/* Rows of a piece of n rows of row_size bytes. */
static uint32_t piece_rows(uint64_t n, uint64_t row_size)
{
    uint64_t size = n * row_size / MIN_PIECES, rows;
    if (size > PIECE_SIZE) size = PIECE_SIZE;
    rows = size / row_size / PIECE_ROWS * PIECE_ROWS;
    if (rows < PIECE_ROWS) rows = PIECE_ROWS;
    while ((n + rows - 1) / rows > HTH_MAX_PIECE) rows += PIECE_ROWS;
    return (uint32_t)rows;
}

/* Pieces of some rows of all matrices that are there; returns their number. */
static uint32_t add_pieces(const hearth_model *m, uint32_t i_layer, const hth_matrix *const *all,
                           int n_matrix, uint32_t rows, item_list *list)
{
    uint64_t n_row = all[n_matrix - 1]->n_row;
    uint32_t n = 0;
    for (uint64_t first = 0; first < n_row; first += rows, n++) {
        if (!list->items) continue;
        hth_store_item *item = &list->items[list->n + n];
        *item = (hth_store_item){.i_group = i_layer, .residence = HTH_STORE_STREAMED};
        for (int k = 0; k < n_matrix; k++)
            if (all[k]->n_row > 0)
                add_extent(m, list, all[k], first, n_row - first < rows ? n_row - first : rows, item);
    }
    list->n += n;
    return n;
}

static void add_dense(const hearth_model *m, uint32_t i_layer, item_list *list)
{
    const hth_ffn *f = &m->model->layers[i_layer].ffn;
    const hth_matrix *const halves[] = {&f->gate, &f->up}, *const down[] = {&f->down};
    uint64_t row_size = f->up.row_size + (f->gate.n_row > 0 ? f->gate.row_size : 0);
    hth_ffn_pieces p = {.first_item = list->n};
    p.half_rows = piece_rows(f->d_ff, row_size);
    p.down_rows = piece_rows(f->down.n_row, f->down.row_size);
    p.n_half = add_pieces(m, i_layer, halves, 2, p.half_rows, list);
    p.n_down = add_pieces(m, i_layer, down, 1, p.down_rows, list);
    list->pieces[i_layer] = p;
}

/* ---- bundles of neurons -------------------------------------------------------------------------- */

/* Whether the selector finds neurons of which up and down need not be read. */
static bool leaves_out(const hearth_model *m)
{
    switch (m->selector) {
    case HEARTH_SELECTOR_PREDICTOR:
    case HEARTH_SELECTOR_THRESHOLD: return true;
    case HEARTH_SELECTOR_GATE: return hth_activation_is_sparse(m->model->hparams.activation);
    default: return false;
    }
}

/* Whether it does so by the half that is computed first. */
static bool leaves_out_by_half(const hearth_model *m)
{
    return leaves_out(m) && (m->selector != HEARTH_SELECTOR_PREDICTOR ||
                             hth_activation_is_sparse(m->model->hparams.activation));
}

/* log2 of the neurons of a bundle: as the file says; those of a cluster if all are read. */
static uint32_t bundle_shift(const hearth_model *m, const hth_layer *l)
{
    bool in_order = !leaves_out(m) || hth_type_act_block(l->ffn.down_t.rows.type) == 0;
    if (l->n_bundle_neuron > 0 && !in_order) return (uint32_t)__builtin_ctz(l->n_bundle_neuron);
    return hth_bundle_shift(l->ffn.up.row_size, in_order);
}

static void add_bundles(const hearth_model *m, uint32_t i_layer, item_list *list)
{
    const hth_ffn *f = &m->model->layers[i_layer].ffn;
    const hth_matrix *const all[] = {&f->gate, &f->up, &f->down_t.rows}, *const *down = all + 2;
    hth_ffn_bundles b = {.first_item = list->n, .shift = bundle_shift(m, &m->model->layers[i_layer])};
    uint32_t n_neuron = 1u << b.shift;
    b.has_second = f->gate.n_row > 0 && leaves_out_by_half(m);
    b.n = add_pieces(m, i_layer, all, b.has_second ? 1 : 2, n_neuron, list);
    if (b.has_second) add_pieces(m, i_layer, all + 1, 1, n_neuron, list);
    add_pieces(m, i_layer, down, 1, n_neuron, list);
    list->bundles[i_layer] = b;
}

/* How long the items of a bundle stay: what each token reads is pinned as far as there is memory; what only some read,
 * while it is of use. It begins with the share of tokens for which its neurons are active, if the file tells. */
static void set_residence(const hearth_model *m, item_list *list)
{
    for (uint32_t i = 0; i < list->n; i++) {
        hth_store_item *item = &list->items[i];
        const hth_ffn *f = &m->model->layers[item->i_group].ffn;
        const hth_ffn_bundles *b = &list->bundles[item->i_group];
        uint32_t at = i - b->first_item, first = at % b->n << b->shift;
        bool always = m->selector == HEARTH_SELECTOR_PREDICTOR ? false : at < b->n || !leaves_out(m);
        if (always) continue;
        item->residence = HTH_STORE_CACHED;
        item->weight = f->act_freq ? f->act_freq[first / HTH_ACT_FREQ_BLOCK] : 0.0f;
    }
}

/* ---- items --------------------------------------------------------------------------------------- */

/* Whether experts are streamed; else dense networks. */
static bool streams_experts(const hearth_model *m) { return m->model->hparams.experts.n_expert > 0; }

/* Whether dense networks are, in bundles; else in pieces. */
static bool in_bundles(const hearth_model *m) { return m->model->down_transposed && !streams_experts(m); }

/* Whether the network of a layer is streamed. */
static bool streams_layer(const hearth_model *m, uint32_t i)
{
    const hth_layer *l = &m->model->layers[i];
    if (streams_experts(m)) return hth_has_experts(l->network);
    return l->ffn.d_ff > 0;
}

/* items NULL: counts them. */
static void add_items(const hearth_model *m, item_list *list)
{
    list->n = 0;
    for (uint32_t i = 0; i < m->model->hparams.n_layer; i++) {
        list->first_expert[i] = UINT32_MAX;
        list->pieces[i] = (hth_ffn_pieces){0}, list->bundles[i] = (hth_ffn_bundles){0};
        if (!streams_layer(m, i)) continue;
        if (in_bundles(m)) add_bundles(m, i, list);
        else if (!streams_experts(m)) add_dense(m, i, list);
        else if (list->items) add_experts(m, i, list);
        else list->n += m->model->layers[i].experts.router.n_expert;
    }
}

/* The checksums of all layers, if the file has them. */
static hearth_status read_sums(const hearth_model *m, item_list *list, hearth_error *err)
{
    uint32_t n_layer = m->model->hparams.n_layer, n = 0;
    hearth_status st = HEARTH_OK;
    for (uint32_t i = 0; i < n_layer; i++) {
        const hth_gguf_tensor *t = m->model->layers[i].checksums;
        list->first_sum[i] = n;
        if (t && streams_layer(m, i)) n += (uint32_t)t->dim[1];
    }
    if (n == 0) return HEARTH_OK;
    list->sums = hth_alloc(n, sizeof *list->sums);
    if (!list->sums) return hth_fail_memory(err, n * sizeof *list->sums, "checksums");
    for (uint32_t i = 0; i < n_layer && st == HEARTH_OK; i++) {
        const hth_gguf_tensor *t = m->model->layers[i].checksums;
        if (t && streams_layer(m, i))
            st = hth_gguf_read(m->file, t, 0, t->size, list->sums + list->first_sum[i], err);
    }
    return st;
}

static hearth_status make_items(hearth_model *m, item_list *list, hearth_error *err)
{
    uint32_t n_layer = m->model->hparams.n_layer;
    list->pieces = hth_arena_alloc(&m->streamed_tables, n_layer, sizeof *list->pieces, 16);
    list->first_expert = hth_arena_alloc(&m->streamed_tables, n_layer, sizeof *list->first_expert, 16);
    list->bundles = hth_arena_alloc(&m->streamed_tables, n_layer, sizeof *list->bundles, 16);
    list->first_sum = hth_arena_alloc(&m->streamed_tables, n_layer, sizeof *list->first_sum, 16);
    if (m->streamed_tables.failed) return hth_fail_memory(err, n_layer * sizeof *list->pieces, "items");
    hearth_status st = read_sums(m, list, err);
    if (st != HEARTH_OK) return st;
    add_items(m, list);
    list->items = hth_alloc(list->n, sizeof *list->items);
    if (!list->items) return hth_fail_memory(err, list->n * sizeof *list->items, "items of a store");
    add_items(m, list);
    if (in_bundles(m)) set_residence(m, list);
    return HEARTH_OK;
}

/* A table of rows for tokens, or NULL: there is none, or the head reads all of it. */
static const hth_matrix *table_of(const hth_model *m, int i_table)
{
    const hth_matrix *w = i_table == HTH_TABLE_EMBEDDING ? &m->token_embd : &m->layer_embd;
    return w->n_row == 0 || (m->tied && w == &m->token_embd) ? NULL : w;
}

/* Which tables are read by rows. */
static void find_tables(hearth_model *m)
{
    for (int i = 0; i < HTH_N_TABLE; i++) {
        const hth_matrix *w = table_of(m->model, i);
        if (w)
            m->streamed.tables[i] =
                (hth_row_table){rows_of(hth_engine_binding_of(m, w), 0, w->n_row), w->row_size};
    }
}

static uint64_t size_of_tables(const hearth_model *m)
{
    uint64_t size = 0;
    for (int i = 0; i < HTH_N_TABLE; i++)
        if (m->streamed.tables[i].row_size > 0)
            size += (m->streamed.tables[i].extent.size + 63) & ~(uint64_t)63;
    return size;
}

/* Whether a store has items of a matrix, if there is one. */
static bool may_stream(const hearth_model *m, const hth_matrix *w)
{
    for (uint32_t i = 0; i < m->model->hparams.n_layer; i++) {
        const hth_ffn *f = &m->model->layers[i].ffn;
        if (!streams_layer(m, i)) continue;
        if (streams_experts(m) ? hth_experts_have(&m->model->layers[i].experts, w)
                               : w == &f->gate || w == &f->up || w == &f->down || w == &f->down_t.rows)
            return true;
    }
    return false;
}

bool hth_engine_is_streamed(const hearth_model *m, const hth_matrix *w)
{
    for (int i = 0; i < HTH_N_TABLE; i++)
        if (m->streamed.tables[i].row_size > 0 && w == table_of(m->model, i)) return true;
    return m->streamed.store && may_stream(m, w);
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* Bytes of a session as announced. */
static hearth_status announced_size(const hearth_model *m, const hearth_model_options *o, uint64_t *size,
                                    hearth_error *err)
{
    hearth_session_options s = hearth_session_defaults();
    s.n_ctx = o->gpu.n_ctx, s.kv = o->gpu.kv, s.n_thread = o->n_thread;
    if (o->gpu.n_batch > 0) s.n_batch = o->gpu.n_batch;
    *size = hth_engine_session_size(m, &s, true);
    if (*size > 0) return HEARTH_OK;
    return hth_fail(
        err, HEARTH_ERROR_ARGUMENT,
        "%s: the bytes of a session do not fit into an integer, or its KV cache does not suit the model",
        hth_gguf_path(m->file));
}

static uint64_t less(uint64_t size, uint64_t by) { return size > by ? size - by : 0; }
static uint64_t larger(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* Bytes of the device, which a step of another session may be using. */
static uint64_t size_on_device(const hearth_model *m)
{
    uint64_t budget;
    return m->gpu ? hth_gpu_usage(m->gpu, &budget) : hth_device_state(m->device).used;
}

uint64_t hth_engine_device_size(const hearth_model *m)
{
    if (!m->device) return 0;
    hth_device_kind kind = hth_device_get_info(m->device)->kind;
    return kind == HTH_DEVICE_DISCRETE || kind == HTH_DEVICE_SIMULATED ? 0 : size_on_device(m);
}

/* Bytes that the process has now, those included that it allocated and did not touch yet. The memory of a simulated GPU
 * stands for some that is not this machine's; what an integrated GPU has is not in the process. */
static uint64_t size_of_process(const hearth_model *m)
{
    uint64_t resident = hth_memory_resident(), allocated = hth_alloc_in_use();
    if (!m->device) return larger(resident, allocated);
    uint64_t used = size_on_device(m);
    switch (hth_device_get_info(m->device)->kind) {
    case HTH_DEVICE_SIMULATED: return larger(less(resident, used), less(allocated, used));
    case HTH_DEVICE_INTEGRATED: return larger(resident, allocated) + used;
    case HTH_DEVICE_CPU: return larger(resident, allocated + used);
    default: return larger(resident, allocated);
    }
}

/* Bytes beside matrices and sessions: what the process has, what loading takes for each thread (load.c), the store's
 * tables, and others. */
static uint64_t size_of_rest(const hearth_model *m, const hearth_model_options *o, uint32_t n_item)
{
    return size_of_process(m) + OTHER_SIZE + (uint64_t)hth_pool_default_threads(o->n_thread) * LOAD_SIZE +
           (uint64_t)n_item * TABLE_SIZE;
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
        *(may_stream(m, b->matrix) ? &sum.streamed : &sum.fixed) += size;
        /* A matrix is read whole then, and the rows that are in memory stay. */
        if (n_there > 0 || hth_engine_is_divided(m, b->matrix)) sum.back += (b->size + 63) & ~(uint64_t)63;
    }
    return sum;
}

static hearth_status refuse(const hearth_model *m, uint64_t ram, uint64_t limit, uint64_t least,
                            hearth_error *err)
{
    least += NEXT_RUN_SIZE;
    return hth_fail(err, HEARTH_ERROR_ARGUMENT,
                    "%s: needs at least %s of memory (%" PRIu64
                    " bytes), the limit is %s%s; %s-c and --batch make it less",
                    hth_gguf_path(m->file), hth_format_bytes(least).text, least, hth_format_bytes(limit).text,
                    ram == HEARTH_RAM_AUTO ? ", which the system leaves" : "",
                    hth_engine_device_size(m) > 0 ? "--vram, " : "");
}

/* ---- opening ---------------------------------------------------------------------------------- */

hearth_status hth_engine_open_reader(const hth_gguf *file, const char *io, hth_reader **out,
                                     hearth_error *err)
{
    uint32_t n = hth_gguf_n_part(file);
    hth_disk *disk;
    hth_reader_file *files = hth_alloc(n, sizeof *files);
    if (!files) return hth_fail_memory(err, n * sizeof *files, "files to read");
    for (uint32_t i = 0; i < n; i++)
        files[i] = (hth_reader_file){hth_gguf_part_fd(file, i), hth_gguf_part_path(file, i)};
    hearth_status st = hth_disk_open(io, &disk, err);
    /* However fast a simulated disk is, its bytes come from this one: from the page cache, if they can. */
    bool buffered = hth_disk_is_simulated(io);
    if (st == HEARTH_OK)
        st = hth_reader_open(
            &(hth_reader_options){.files = files, .n_file = n, .disk = disk, .buffered = buffered}, out, err);
    hth_free(files);
    return st;
}

uint32_t hth_engine_n_in_memory(const hearth_model *m)
{
    uint32_t n = hth_store_n_slot(m->streamed.store); /* some may be for items that are elsewhere */
    return n < m->n_streamed ? n : m->n_streamed;
}

static hearth_status open_store(hearth_model *m, item_list *list, uint64_t memory, hearth_error *err)
{
    hearth_status st = HEARTH_OK;
    if (in_bundles(m)) m->streamed.bundles = list->bundles;
    else if (!streams_experts(m)) m->streamed.pieces = list->pieces;
    const hth_store_options store = {.items = list->items,
                                     .n_item = list->n,
                                     .n_group = m->model->hparams.n_layer,
                                     .memory = memory,
                                     .pins = true,
                                     .checksums = list->sums,
                                     .reader = m->streamed.reader,
                                     .cancel = m->cancel};
    if ((st = hth_store_open(&store, &m->streamed.store, err)) != HEARTH_OK) return st;
    list->sums = NULL;
    m->streamed.first_expert = list->first_expert;
    hth_log(HEARTH_LOG_INFO, "%s are read by %s when they are needed: %u of %u fit into memory",
            streams_experts(m) ? "experts" : "pieces of networks", hth_reader_name(m->streamed.reader),
            hth_engine_n_in_memory(m), m->n_streamed);
    return HEARTH_OK;
}

static void mark(hearth_model *m, uint32_t first_item, uint32_t n)
{
    memset(m->elsewhere + first_item, 1, n);
    m->n_streamed -= n;
}

/* Which items are of rows on the device. pieces, bundles: NULL: none are streamed. */
static void find_elsewhere(hearth_model *m, const hth_ffn_pieces *pieces, const hth_ffn_bundles *bundles)
{
    const hth_offload_params *there = m->gpu && !m->lost ? hth_gpu_get_params(m->gpu) : NULL;
    memset(m->elsewhere, 0, m->n_item);
    m->n_streamed = m->n_item;
    for (uint32_t i = 0; there && i < there->n_layer; i++) {
        uint32_t n_hot = there->n_hot[i];
        bool all =
            n_hot == m->model->layers[i].ffn.d_ff; /* else clusters, which are not divided into pieces */
        const hth_ffn_bundles *b = bundles && bundles[i].n > 0 ? &bundles[i] : NULL;
        if (pieces && all) mark(m, pieces[i].first_item, pieces[i].n_half + pieces[i].n_down);
        for (uint32_t k = 0; b && k < (b->has_second ? 3 : 2); k++)
            mark(m, b->first_item + k * b->n, all ? b->n : n_hot >> b->shift);
    }
}

static hearth_status mark_elsewhere(hearth_model *m, item_list *list, hearth_error *err)
{
    m->elsewhere = hth_arena_alloc(&m->streamed_tables, list->n, 1, 16);
    if (!m->elsewhere) return hth_fail_memory(err, list->n, "items of a store");
    m->n_item = list->n;
    find_elsewhere(m, list->pieces, list->bundles);
    for (uint32_t i = 0; i < list->n; i++) list->items[i].elsewhere = m->elsewhere[i];
    return HEARTH_OK;
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
             left = hth_engine_system_limit(size_of_process(m)),
             wanted = whole < d->limit ? whole : d->limit;
    if (wanted > left)
        hth_log(HEARTH_LOG_WARN,
                "the limit of memory is %s, and the system leaves %s: auto takes what it leaves",
                hth_format_bytes(d->limit).text, hth_format_bytes(left).text);
}

/* Prompts read each expert, and prepare its rows, once for a step: larger steps pay where the limit has room. */
enum { MAX_AUTO_BATCH = 1024, BATCH_PART = 16 };
static void choose_batch(hearth_model *m, const hearth_model_options *o, hth_memory_division *d)
{
    const hth_memory_division plain = *d;
    if (d->fits || m->device || (o->gpu.n_batch > 0 && o->gpu.n_batch != HEARTH_BATCH_AUTO)) return;
    for (m->n_batch = MAX_AUTO_BATCH; m->n_batch > HTH_DEFAULT_BATCH; m->n_batch /= 2) {
        bool is_small = announced_size(m, o, &d->announced, NULL) == HEARTH_OK && d->announced >= plain.announced &&
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
    find_tables(m);
    hearth_status st = announced_size(m, o, &d->announced, err);
    if (st == HEARTH_OK) st = make_items(m, &d->items, err);
    if (st == HEARTH_OK) st = mark_elsewhere(m, &d->items, err);
    if (st == HEARTH_OK && !hth_store_min_memory(d->items.items, d->items.n, &d->least_store))
        st = hth_fail_memory(err, d->items.n * sizeof *d->items.items, "sizes of items");
    if (st != HEARTH_OK) goto failed;
    if (o->ram == HEARTH_RAM_AUTO) d->limit = hth_engine_auto_limit(size_of_process(m), true);
    const matrix_sizes sum = sum_matrices(m);
    d->matrices = sum.fixed, d->streamed = sum.streamed, d->back = sum.back;
    d->tables = size_of_tables(m);
    d->rest = size_of_rest(m, o, d->items.n);
    if (o->ram != HEARTH_RAM_AUTO) warn_of_limit(m, d);
    if (hth_memory_divide_again(d, d->limit)) {
        choose_batch(m, o, d);
        return HEARTH_OK;
    }
    st = refuse(m, o->ram, d->limit, d->least, err);
failed:
    hth_free(d->items.items);
    hth_free(d->items.sums);
    d->items.items = NULL, d->items.sums = NULL;
    return st;
}

/* For tests: the least limit, and what a store has beyond it. */
static hearth_status divide_for_test(hearth_model *m, const hearth_model_options *o, uint64_t more,
                                     hth_memory_division *d, hearth_error *err)
{
    hearth_model_options all = *o;
    all.ram = UINT64_MAX - 1;
    hearth_status st = hth_engine_divide_memory(m, &all, d, err);
    if (st != HEARTH_OK) return st;
    d->whole = d->fits = false;
    d->store = d->least_store + more;
    d->limit = d->matrices - d->tables + d->rest + d->announced + d->store;
    return HEARTH_OK;
}

hearth_status hth_engine_open_store(hearth_model *m, const hearth_model_options *o, hearth_error *err)
{
    hth_memory_division d;
    uint64_t more = test_memory;
    bool tests = more != UINT64_MAX;
    if (o->ram == 0) return HEARTH_OK;
    hearth_status st = tests ? divide_for_test(m, o, more, &d, err) : hth_engine_divide_memory(m, o, &d, err);
    if (st != HEARTH_OK) return st;
    m->budget.base = d.rest, m->budget.device = hth_engine_device_size(m);
    /* Also after a device is lost: a store that is needed then is opened now. */
    if (d.whole) memset(m->streamed.tables, 0, sizeof m->streamed.tables);
    else st = hth_engine_open_reader(m->file, o->io, &m->streamed.reader, err);
    m->streamed.cancel = m->cancel;
    if (st == HEARTH_OK && !d.fits) st = open_store(m, &d.items, d.store, err);
    if (st == HEARTH_OK) {
        m->budget.limit = tests ? 0 : d.limit;
        m->budget.fixed = d.matrices - (d.whole ? 0 : d.tables) + d.rest + (d.fits ? d.streamed : 0);
        m->budget.announced = d.announced;
    }
    if (st == HEARTH_OK && !d.fits) {
        m->budget.cap.min = d.least_store;
        hth_engine_watch_memory(m, d.store, o->ram == HEARTH_RAM_AUTO);
    }
    hth_memory_division_free(&d);
    return st;
}

void hth_engine_read_in_turn(hearth_model *m) { m->streamed.in_turn = true; }

/* ---- another placement ------------------------------------------------------------------------ */

/* Bytes of the CPU's rows that load.c is going to read. */
static uint64_t size_to_load(const hearth_model *m)
{
    uint64_t size = 0;
    for (size_t i = 0; i < m->model->n_binding; i++) {
        const hth_binding *b = &m->model->bindings[i];
        if (!b->matrix || b->matrix->data || hth_engine_is_streamed(m, b->matrix)) continue;
        size += (b->size - hth_engine_first_row(m, b->matrix) * b->matrix->row_size + 63) & ~(uint64_t)63;
    }
    return size;
}

hearth_status hth_engine_follow_placement(hearth_model *m, hearth_error *err)
{
    const hth_budget *b = &m->budget;
    uint64_t fixed =
        less(b->base, less(b->device, hth_engine_device_size(m))) + m->weights_size + size_to_load(m);
    if (b->base == 0) return HEARTH_OK; /* no limit */
    for (uint32_t i = 0; i < m->n_reloaded; i++) fixed += m->reloaded[i].size;
    if (m->streamed.store) find_elsewhere(m, m->streamed.pieces, m->streamed.bundles);
    return hth_engine_change_fixed(m, fixed, err);
}

hearth_status hth_engine_need_weights(const hearth_model *m, const char *what, hearth_error *err)
{
    if (!m->streamed.reader) return HEARTH_OK;
    return hth_fail(err, HEARTH_ERROR_UNSUPPORTED, "%s: %s reads all weights in memory: leave --ram out",
                    hth_gguf_path(m->file), what);
}

static void add_layer(const hearth_model *m, uint32_t i_layer, hearth_storage_stats *stats)
{
    hth_store_counters c = hth_store_get_counters(m->streamed.store, i_layer);
    stats->n_hit += c.n_hit, stats->n_miss += c.n_miss;
    stats->n_guess += c.n_guess, stats->n_guess_used += c.n_guess_used;
    stats->weight_bytes += c.read_size;
    stats->n_stall += c.n_stall, stats->stall_seconds += (double)c.stall_ns * 1e-9;
}

bool hearth_model_get_layer_storage(const hearth_model *m, uint32_t i_layer, hearth_storage_stats *stats)
{
    *stats = (hearth_storage_stats){0};
    if (!m->streamed.store || i_layer >= m->model->hparams.n_layer) return false;
    add_layer(m, i_layer, stats);
    return true;
}

bool hearth_model_get_storage(const hearth_model *m, hearth_storage_stats *stats)
{
    *stats = (hearth_storage_stats){0};
    if (!m->streamed.reader) return false;
    for (uint32_t i = 0; m->streamed.store && i < m->model->hparams.n_layer; i++) add_layer(m, i, stats);
    if (m->streamed.store) {
        stats->cache_bytes = hth_store_memory(m->streamed.store);
        stats->cache_bytes_max = hth_store_max_memory(m->streamed.store);
    }
    hth_reader_stats r = hth_reader_get_stats(m->streamed.reader);
    stats->read_bytes = r.size, stats->n_read = r.n_read;
    stats->n_repeated = r.n_short + r.n_again + r.n_failed;
    stats->read_seconds = (double)r.busy_ns * 1e-9;
    for (uint32_t i = 0; m->streamed.store && i < m->model->hparams.n_layer; i++)
        stats->n_repeated += hth_store_get_counters(m->streamed.store, i).n_wrong;
    return true;
}

void hth_engine_close_store(hearth_model *m)
{
    hth_engine_stop_watching(m);
    hth_store_close(m->streamed.store);
    hth_reader_close(m->streamed.reader);
    hth_arena_free(&m->streamed_tables);
}
