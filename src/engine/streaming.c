/* Weights that stay in the file. With a limit of memory that a model exceeds, its experts are items of a store,
 * which reads them when they are chosen and keeps those of most use. Of a model without experts the dense networks
 * are, in pieces: as many as fit are pinned, and the others, spread evenly over the layers, are read in order for
 * each token. All else is in memory. model.c calls it before load.c. */
#include "engine/engine.h"

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
/* Memory that reading ahead gets: this part of the store's memory, and this size at most. */
enum { AHEAD_PART = 16, MAX_AHEAD_SIZE = 64 << 20 };

static _Atomic uint64_t test_memory = UINT64_MAX;
void hth_engine_set_store_memory(uint64_t more) { test_memory = more; }

typedef struct item_list {
    hth_store_item *items;
    uint32_t n;
    hth_ffn_pieces *pieces; /* [n_layer] */
    uint32_t *first_expert; /* [n_layer] */
} item_list;

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

static void add_experts(const hearth_model *m, uint32_t i_layer, item_list *list)
{
    const hth_experts *e = &m->model->layers[i_layer].experts;
    const hth_matrix *all[HTH_EXPERT_MATRICES];
    const hth_binding *bindings[HTH_EXPERT_MATRICES];
    hth_expert_matrices(e, all);
    for (int k = 0; k < HTH_EXPERT_MATRICES; k++) bindings[k] = hth_engine_binding_of(m, all[k]);
    list->first_expert[i_layer] = list->n;
    for (uint32_t i = 0; i < e->router.n_expert; i++) {
        hth_store_item *item = &list->items[list->n++];
        *item = (hth_store_item){.i_group = i_layer};
        for (int k = 0; k < HTH_EXPERT_MATRICES; k++) {
            uint64_t n = all[k]->n_row / e->router.n_expert;
            if (n > 0) item->extents[item->n_extent++] = rows_of(bindings[k], i * n, n);
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
static uint32_t add_pieces(const hearth_model *m, uint32_t i_layer, const hth_matrix *const *all, int n_matrix,
                           uint32_t rows, item_list *list)
{
    uint64_t n_row = all[n_matrix - 1]->n_row;
    uint32_t n = 0;
    for (uint64_t first = 0; first < n_row; first += rows, n++) {
        if (!list->items) continue;
        hth_store_item *item = &list->items[list->n + n];
        *item = (hth_store_item){.i_group = i_layer, .streamed = true};
        for (int k = 0; k < n_matrix; k++)
            if (all[k]->n_row > 0)
                item->extents[item->n_extent++] =
                    rows_of(hth_engine_binding_of(m, all[k]), first, n_row - first < rows ? n_row - first : rows);
    }
    list->n += n;
    return n;
}

static void add_dense(const hearth_model *m, uint32_t i_layer, item_list *list)
{
    const hth_ffn *f = &m->model->layers[i_layer].ffn;
    const hth_matrix *const halves[] = {&f->gate, &f->up}, *const down[] = {&f->down};
    const hth_matrix *const neurons[] = {&f->gate, &f->up, &f->down_t.rows};
    uint64_t row_size = f->up.row_size + (f->gate.n_row > 0 ? f->gate.row_size : 0);
    hth_ffn_pieces p = {.first_item = list->n};
    if (hth_ffn_is_transposed(f)) {
        p.half_rows = HTH_CLUSTER_NEURONS;
        p.n_half = add_pieces(m, i_layer, neurons, 3, p.half_rows, list);
        list->pieces[i_layer] = p;
        return;
    }
    p.half_rows = piece_rows(f->d_ff, row_size);
    p.down_rows = piece_rows(f->down.n_row, f->down.row_size);
    p.n_half = add_pieces(m, i_layer, halves, 2, p.half_rows, list);
    p.n_down = add_pieces(m, i_layer, down, 1, p.down_rows, list);
    list->pieces[i_layer] = p;
}

/* ---- items --------------------------------------------------------------------------------------- */

/* Whether experts are streamed; else dense networks. */
static bool streams_experts(const hearth_model *m) { return m->model->hparams.experts.n_expert > 0; }

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
        list->pieces[i] = (hth_ffn_pieces){0};
        if (!streams_layer(m, i)) continue;
        if (!streams_experts(m)) add_dense(m, i, list);
        else if (list->items) add_experts(m, i, list);
        else list->n += m->model->layers[i].experts.router.n_expert;
    }
}

static hearth_status make_items(hearth_model *m, item_list *list, hearth_error *err)
{
    uint32_t n_layer = m->model->hparams.n_layer;
    list->pieces = hth_arena_alloc(&m->streamed_tables, n_layer, sizeof *list->pieces, 16);
    list->first_expert = hth_arena_alloc(&m->streamed_tables, n_layer, sizeof *list->first_expert, 16);
    if (!list->pieces || !list->first_expert) return hth_fail_memory(err, n_layer * sizeof *list->pieces, "items");
    add_items(m, list);
    list->items = hth_alloc(list->n, sizeof *list->items);
    if (!list->items) return hth_fail_memory(err, list->n * sizeof *list->items, "items of a store");
    add_items(m, list);
    return HEARTH_OK;
}

bool hth_engine_is_streamed(const hearth_model *m, const hth_matrix *w)
{
    for (uint32_t i = 0; m->streamed.store && i < m->model->hparams.n_layer; i++) {
        const hth_ffn *f = &m->model->layers[i].ffn;
        if (!streams_layer(m, i)) continue;
        if (streams_experts(m) ? hth_experts_have(&m->model->layers[i].experts, w)
                               : w == &f->gate || w == &f->up || w == &f->down || w == &f->down_t.rows)
            return true;
    }
    return false;
}

/* Pins k of n dense pieces, spread evenly. */
static void pin_some(item_list *list, uint64_t k)
{
    for (uint64_t i = 0; i < list->n; i++) {
        list->items[i].pinned = (i + 1) * k / list->n > i * k / list->n;
        list->items[i].streamed = !list->items[i].pinned;
    }
}

/* A predictor names clusters, so the store keeps the clusters of most use. Each begins with the share of tokens for
 * which it is active, if the file tells. */
static void weigh_clusters(const hearth_model *m, item_list *list)
{
    enum { BLOCKS = HTH_CLUSTER_NEURONS / HTH_ACT_FREQ_BLOCK };
    for (uint32_t i = 0; i < list->n; i++) {
        hth_store_item *item = &list->items[i];
        const hth_ffn *f = &m->model->layers[item->i_group].ffn;
        uint32_t first = (i - list->pieces[item->i_group].first_item) * BLOCKS,
                 n_block = (f->d_ff + HTH_ACT_FREQ_BLOCK - 1) / HTH_ACT_FREQ_BLOCK;
        item->streamed = false;
        for (uint32_t k = first; f->act_freq && k < first + BLOCKS && k < n_block; k++) item->weight += f->act_freq[k];
    }
}

/* Pins as many pieces as leave memory to read ahead. */
static void choose_pinned(item_list *list, uint64_t memory)
{
    uint64_t low = 0, high = list->n, least;
    uint64_t ahead = memory / AHEAD_PART < MAX_AHEAD_SIZE ? memory / AHEAD_PART : MAX_AHEAD_SIZE;
    while (low < high) {
        uint64_t k = (low + high + 1) / 2;
        pin_some(list, k);
        if (hth_store_min_memory(list->items, list->n, &least) && least + ahead <= memory) low = k;
        else high = k - 1;
    }
    pin_some(list, low);
}

/* What each token reads, in its order. */
static hearth_status list_ahead(hearth_model *m, const item_list *list, hearth_error *err)
{
    uint32_t n_layer = m->model->hparams.n_layer, n = 0;
    uint32_t *ahead = hth_arena_alloc(&m->streamed_tables, list->n, sizeof *ahead, 16);
    uint32_t *first = hth_arena_alloc(&m->streamed_tables, n_layer, sizeof *first, 16);
    if (!ahead || !first) return hth_fail_memory(err, list->n * sizeof *ahead, "items of a store");
    for (uint32_t i = 0; i < n_layer; i++) {
        const hth_ffn_pieces *p = &list->pieces[i];
        first[i] = n;
        for (uint32_t k = p->first_item; k < p->first_item + p->n_half + p->n_down; k++)
            if (!list->items[k].pinned) ahead[n++] = k;
    }
    m->streamed.ahead = ahead, m->streamed.first_ahead = first, m->streamed.n_ahead = n;
    m->streamed.pieces = list->pieces;
    return HEARTH_OK;
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* Bytes beside matrices: what the process has now, a session as announced, what loading takes for each thread
 * (load.c), the store's tables, and others. */
static uint64_t size_of_rest(const hearth_model *m, const hearth_model_options *o, uint32_t n_item)
{
    hearth_session_options s = hearth_session_defaults();
    s.n_ctx = o->gpu.n_ctx, s.kv = o->gpu.kv, s.n_thread = o->n_thread;
    size_t source = 0;
    if (o->gpu.n_batch) s.n_batch = o->gpu.n_batch;
    hth_step_store_size(m->model, s.n_batch, !streams_experts(m), &source);
    return hth_memory_resident() + hearth_session_bytes(m, &s) + source + OTHER_SIZE +
           (uint64_t)hth_pool_default_threads(o->n_thread) * LOAD_SIZE + (uint64_t)n_item * TABLE_SIZE;
}

/* Bytes of the matrices that are read to memory in any case, and of the others. */
static void sum_matrices(const hearth_model *m, const item_list *list, uint64_t *fixed, uint64_t *streamed)
{
    *fixed = *streamed = 0;
    for (uint32_t i = 0; i < list->n; i++)
        for (uint32_t k = 0; k < list->items[i].n_extent; k++) *streamed += list->items[i].extents[k].size;
    for (size_t i = 0; i < m->model->n_binding; i++) {
        const hth_binding *b = &m->model->bindings[i];
        if (b->matrix && !b->matrix->data) *fixed += (b->size + 63) & ~(uint64_t)63;
    }
    *fixed -= *streamed < *fixed ? *streamed : *fixed;
}

static hearth_status refuse(const hearth_model *m, uint64_t ram, uint64_t least, hearth_error *err)
{
    return hth_fail(err, HEARTH_ERROR_ARGUMENT,
                    "%s: needs at least %s of memory (%" PRIu64 " bytes), the limit is %s; -c and --batch make it less",
                    hth_gguf_path(m->file), hth_format_bytes(least).text, least, hth_format_bytes(ram).text);
}

/* ---- opening ---------------------------------------------------------------------------------- */

static hearth_status open_reader(hearth_model *m, const char *io, hearth_error *err)
{
    uint32_t n = hth_gguf_n_part(m->file);
    hth_disk *disk;
    hth_reader_file *files = hth_alloc(n, sizeof *files);
    if (!files) return hth_fail_memory(err, n * sizeof *files, "files to read");
    for (uint32_t i = 0; i < n; i++)
        files[i] = (hth_reader_file){hth_gguf_part_fd(m->file, i), hth_gguf_part_path(m->file, i)};
    hearth_status st = hth_disk_open(io, &disk, err);
    if (st == HEARTH_OK) st = hth_reader_open(&(hth_reader_options){files, n, disk, false}, &m->reader, err);
    hth_free(files);
    return st;
}

static hearth_status check_options(const hearth_model *m, const hearth_model_options *o, hearth_error *err)
{
    const char *with = o->mmap ? "mapped weights" : m->gpu ? "a device" : NULL;
    if (!with) return HEARTH_OK;
    return hth_fail(err, HEARTH_ERROR_UNSUPPORTED, "%s: a limit of memory cannot be combined with %s",
                    hth_gguf_path(m->file), with);
}

static hearth_status open_store(hearth_model *m, const hearth_model_options *o, item_list *list, uint64_t memory,
                                hearth_error *err)
{
    hearth_status st = HEARTH_OK;
    if (!streams_experts(m)) {
        if (m->model->down_transposed && m->selector == HEARTH_SELECTOR_PREDICTOR) weigh_clusters(m, list);
        else choose_pinned(list, memory);
        st = list_ahead(m, list, err);
    }
    if (st == HEARTH_OK) st = open_reader(m, o->io, err);
    if (st != HEARTH_OK) return st;
    const hth_store_options store = {.items = list->items,
                                     .n_item = list->n,
                                     .n_group = m->model->hparams.n_layer,
                                     .memory = memory,
                                     .reader = m->reader,
                                     .cancel = m->cancel};
    if ((st = hth_store_open(&store, &m->streamed.store, err)) != HEARTH_OK) return st;
    m->n_streamed = list->n;
    m->streamed.first_expert = list->first_expert;
    hth_log(HEARTH_LOG_INFO, "%s are read by %s when they are needed: %u of %u fit into memory",
            streams_experts(m) ? "experts" : "pieces of networks", hth_reader_name(m->reader),
            hth_store_n_slot(m->streamed.store), list->n);
    return HEARTH_OK;
}

hearth_status hth_engine_open_store(hearth_model *m, const hearth_model_options *o, hearth_error *err)
{
    item_list list = {0};
    uint64_t fixed, streamed, rest, least = 0;
    if (o->ram == 0) return HEARTH_OK;
    hearth_status st = check_options(m, o, err);
    if (st == HEARTH_OK) st = make_items(m, &list, err);
    if (st != HEARTH_OK) goto done;
    sum_matrices(m, &list, &fixed, &streamed);
    rest = size_of_rest(m, o, list.n) + fixed;
    uint64_t more = test_memory;
    if (more == UINT64_MAX && rest + streamed <= o->ram) goto done; /* it fits */
    bool ok = hth_store_min_memory(list.items, list.n, &least);
    if (!ok) st = hth_fail_memory(err, list.n * sizeof *list.items, "sizes of items");
    else if (more != UINT64_MAX) st = open_store(m, o, &list, least + more, err);
    else if (list.n == 0 || rest + least > o->ram) st = refuse(m, o->ram, rest + least, err);
    else st = open_store(m, o, &list, o->ram - rest, err);
done:
    hth_free(list.items);
    return st;
}

hearth_status hth_engine_need_weights(const hearth_model *m, const char *what, hearth_error *err)
{
    if (!m->streamed.store) return HEARTH_OK;
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
    if (!m->streamed.store) return false;
    for (uint32_t i = 0; i < m->model->hparams.n_layer; i++) add_layer(m, i, stats);
    hth_reader_stats r = hth_reader_get_stats(m->reader);
    stats->read_bytes = r.size, stats->n_read = r.n_read;
    stats->n_repeated = r.n_short + r.n_again + r.n_failed;
    return true;
}

void hth_engine_close_store(hearth_model *m)
{
    hth_store_close(m->streamed.store);
    hth_reader_close(m->reader);
    hth_arena_free(&m->streamed_tables);
}
