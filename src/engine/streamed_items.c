/* Lists the weights that may stay in the file as items of a store: the experts of a model with experts, else pieces of
 * the dense networks, or bundles of neurons if the file is packed. Single rows are read of tables such as embeddings.
 * memory_division.c decides how many items stay in memory. */
#include "engine/streaming.h"

#include "base/alloc.h"

#include <string.h>

/* Bytes of a piece at most; small matrices have several pieces too. */
enum { PIECE_SIZE = 2 << 20, MIN_PIECES = 4, PIECE_ROWS = 32 };

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

bool hth_engine_streams_experts(const hearth_model *m) { return m->model->hparams.experts.n_expert > 0; }

bool hth_engine_streams_bundles(const hearth_model *m)
{
    return m->model->down_transposed && !hth_engine_streams_experts(m);
}

/* Whether the network of a layer is streamed. */
static bool streams_layer(const hearth_model *m, uint32_t i)
{
    const hth_layer *l = &m->model->layers[i];
    if (hth_engine_streams_experts(m)) return hth_has_experts(l->network);
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
        if (hth_engine_streams_bundles(m)) add_bundles(m, i, list);
        else if (!hth_engine_streams_experts(m)) add_dense(m, i, list);
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

uint64_t hth_engine_tables_size(const hearth_model *m)
{
    uint64_t size = 0;
    for (int i = 0; i < HTH_N_TABLE; i++)
        if (m->streamed.tables[i].row_size > 0)
            size += (m->streamed.tables[i].extent.size + 63) & ~(uint64_t)63;
    return size;
}

bool hth_engine_has_items(const hearth_model *m, const hth_matrix *w)
{
    for (uint32_t i = 0; i < m->model->hparams.n_layer; i++) {
        const hth_ffn *f = &m->model->layers[i].ffn;
        if (!streams_layer(m, i)) continue;
        if (hth_engine_streams_experts(m)
                ? hth_experts_have(&m->model->layers[i].experts, w)
                : w == &f->gate || w == &f->up || w == &f->down || w == &f->down_t.rows)
            return true;
    }
    return false;
}

bool hth_engine_is_streamed(const hearth_model *m, const hth_matrix *w)
{
    for (int i = 0; i < HTH_N_TABLE; i++)
        if (m->streamed.tables[i].row_size > 0 && w == table_of(m->model, i)) return true;
    return m->streamed.store && hth_engine_has_items(m, w);
}

/* ---- what lies on a device ----------------------------------------------------------------------- */

static void mark(hearth_model *m, uint32_t first_item, uint32_t n)
{
    memset(m->on_device + first_item, 1, n);
    m->n_streamed -= n;
}

void hth_engine_find_on_device(hearth_model *m, const uint32_t *first_expert, const hth_ffn_pieces *pieces,
                               const hth_ffn_bundles *bundles)
{
    const hth_gpu *there = m->lost ? NULL : m->gpu;
    memset(m->on_device, 0, m->n_item);
    m->n_streamed = m->n_item;
    for (uint32_t i = 0; there && i < hth_gpu_end_layer(there); i++) {
        uint32_t n_hot = hth_gpu_n_hot(there, i);
        if (first_expert && first_expert[i] != UINT32_MAX) mark(m, first_expert[i], hth_gpu_n_expert(there, i));
        if (!hth_gpu_has_ffn(there, i)) continue;
        bool all =
            n_hot == m->model->layers[i].ffn.d_ff; /* else clusters, which are not divided into pieces */
        const hth_ffn_bundles *b = bundles && bundles[i].n > 0 ? &bundles[i] : NULL;
        if (pieces && all) mark(m, pieces[i].first_item, pieces[i].n_half + pieces[i].n_down);
        for (uint32_t k = 0; b && k < (b->has_second ? 3 : 2); k++)
            mark(m, b->first_item + k * b->n, all ? b->n : n_hot >> b->shift);
    }
}

static hearth_status mark_on_device(hearth_model *m, item_list *list, hearth_error *err)
{
    m->on_device = hth_arena_alloc(&m->streamed_tables, list->n, 1, 16);
    if (!m->on_device) return hth_fail_memory(err, list->n, "items of a store");
    m->n_item = list->n;
    hth_engine_find_on_device(m, list->first_expert, list->pieces, list->bundles);
    for (uint32_t i = 0; i < list->n; i++) list->items[i].on_device = m->on_device[i];
    return HEARTH_OK;
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
    if (hth_engine_streams_bundles(m)) set_residence(m, list);
    return HEARTH_OK;
}

hearth_status hth_engine_list_items(hearth_model *m, item_list *list, hearth_error *err)
{
    find_tables(m);
    hearth_status st = make_items(m, list, err);
    return st == HEARTH_OK ? mark_on_device(m, list, err) : st;
}
