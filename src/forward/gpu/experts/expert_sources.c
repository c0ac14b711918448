/* Where the weights of experts that move are, and how they come to the device: from the host's memory where they lie, if
 * the device can read it, else from staging memory. Experts that are read from the file have no place of their own, so a
 * store lends them while they are copied. */
#include "forward/gpu/experts/expert_moves.h"

#include "base/alloc.h"
#include "base/checked_math.h"
#include "base/log.h"
#include "forward/gpu/experts/pack_table.h"
#include "forward/gpu/recorder.h"

#include <string.h>

enum { N_PART = HTH_GPU_EXPERT_PARTS, ALIGNMENT = 256, MAX_TABLE = 8 };

static uint64_t aligned(uint64_t n) { return (n + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

const hth_matrix *hth_gpu_expert_part(const hth_layer *l, int i)
{
    const hth_experts *e = &l->experts;
    return i == HTH_GPU_EXPERT_GATE ? &e->gate : i == HTH_GPU_EXPERT_UP ? &e->up : &e->down;
}

uint32_t hth_gpu_expert_rows(const hth_layer *l, int i)
{
    return (uint32_t)(hth_gpu_expert_part(l, i)->n_row / l->experts.router.n_expert);
}

/* Bytes of an expert's rows in staging memory, where they lie as the host has them or as the device wants them. */
static uint64_t staged_bytes(const hth_layer *l, int i)
{
    hth_soa_layout one;
    const hth_matrix *m = hth_gpu_expert_part(l, i);
    uint64_t bytes = hth_gpu_expert_rows(l, i) * (uint64_t)m->row_size;
    if (hth_soa_layout_init(m->type, hth_gpu_expert_rows(l, i), m->n_col, &one)) bytes = hth_max_u64(bytes, one.size);
    return aligned(bytes);
}

/* Where a part begins in an entry of staging memory; i N_PART: bytes of the entry. */
static uint64_t place_in_entry(const hth_layer *l, int i)
{
    uint64_t at = 0;
    for (int k = 0; k < i; k++) at += hth_gpu_expert_part(l, k)->n_row > 0 ? staged_bytes(l, k) : 0;
    return at;
}

static uint64_t entry_bytes(const hth_model *m)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < m->hparams.n_layer; i++)
        if (hth_layer_divides_experts(&m->layers[i])) most = hth_max_u64(most, place_in_entry(&m->layers[i], N_PART));
    return most;
}

/* Experts that staging memory holds: one for types that the host has to convert, if it is not needed for others. */
static uint32_t n_entry(const hth_offload_params *p, uint64_t entry)
{
    enum { MAX_BYTES = 64 << 20 };
    uint64_t n = p->reads_host && !p->streams_experts ? 1 : MAX_BYTES / entry;
    return n < 1 ? 1 : n > HTH_GPU_MAX_STAGED_EXPERT ? HTH_GPU_MAX_STAGED_EXPERT : (uint32_t)n;
}

/* Bytes of a layer's jobs, or of what it reads. */
static uint64_t job_bytes(const hth_model *m)
{
    uint32_t n = HTH_EXPERT_MAX_MOVES;
    for (uint32_t i = 0; i < m->hparams.n_layer; i++) n = hth_max_u32(n, m->layers[i].experts.router.n_used);
    return aligned(sizeof(uint32_t) * hth_reads_words(n));
}

uint64_t hth_gpu_move_bytes(const hth_model *m, const hth_offload_params *p)
{
    uint64_t entry = entry_bytes(m);
    return entry == 0 ? 0
                      : n_entry(p, entry) * entry + m->hparams.n_layer * 3 * job_bytes(m) +
                            MAX_TABLE * sizeof(uint32_t) * HTH_PACK_TABLE_WORDS;
}

uint64_t hth_gpu_moves_to_come(const hth_gpu *g)
{
    const hth_offload_params *p = &g->params;
    uint64_t entry = entry_bytes(g->model);
    bool divides = false;
    for (uint32_t i = p->first_layer; i < p->end_layer; i++) divides |= g->layers[i].slots != NULL;
    if (!divides || g->moves.jobs || hth_device_get_info(g->device)->kind == HTH_DEVICE_SIMULATED) return 0;
    return n_entry(p, entry) * entry + (p->end_layer - p->first_layer) * job_bytes(g->model);
}

/* ---- tables -------------------------------------------------------------------------------------------- */

/* The tables of all types and layouts that occur. */
typedef struct tables {
    uint32_t n, words[MAX_TABLE][HTH_PACK_TABLE_WORDS];
    hth_type type[MAX_TABLE];
    hth_layout layout[MAX_TABLE];
    bool exists[MAX_TABLE];
} tables;

/* The number of a matrix's table; MAX_TABLE: it has none. */
static uint32_t table_of(const tables *t, const hth_matrix *m)
{
    for (uint32_t i = 0; i < t->n; i++)
        if (t->type[i] == m->type && t->layout[i] == m->layout) return t->exists[i] ? i : MAX_TABLE;
    return MAX_TABLE;
}

static void add_table(tables *t, const hth_matrix *m)
{
    uint32_t n_word;
    for (uint32_t i = 0; i < t->n; i++)
        if (t->type[i] == m->type && t->layout[i] == m->layout) return;
    if (t->n == MAX_TABLE) return;
    t->type[t->n] = m->type, t->layout[t->n] = m->layout;
    t->exists[t->n] = hth_pack_table(m->type, m->layout, t->words[t->n], &n_word);
    t->n++;
}

/* ---- opening ------------------------------------------------------------------------------------------- */

/* Weights of layers that are read when they are needed have no place of their own. */
static bool is_in_memory(const hth_layer *l)
{
    for (int i = 0; i < N_PART; i++)
        if (hth_gpu_expert_part(l, i)->n_row > 0 && !hth_gpu_expert_part(l, i)->data) return false;
    return true;
}

/* Lets the device read a matrix of the host where it lies, if it can. Of a map of the file it must not: pages that a file
 * loses end a device, but one without values, which reads nothing. */
static bool import(hth_gpu *g, const hth_layer *l, int i, hth_gpu_expert_source *to)
{
    const hth_matrix *m = hth_gpu_expert_part(l, i);
    hth_gpu_moves *moves = &g->moves;
    hth_buffer *buffer;
    if (hth_gguf_is_in_map(g->model->file, m->data) && !hth_device_get_info(g->device)->no_values) return false;
    hearth_status st = hth_buffer_import(g->device, m->data, (uint64_t)m->n_row * m->row_size, "experts of the host",
                                         &buffer, &to->base, NULL);
    if (st != HEARTH_OK) return false;
    moves->imports[moves->n_import++] = to->buffer = buffer;
    to->pitch = hth_gpu_expert_rows(l, i) * (uint64_t)m->row_size;
    return true;
}

/* Finds where the parts of a layer's experts are. */
static void find_sources(hth_gpu *g, const tables *t, uint32_t i_layer)
{
    const hth_layer *l = &g->model->layers[i_layer];
    hth_gpu_expert_slots *s = g->layers[i_layer].slots;
    s->is_streamed = s->is_staged = !is_in_memory(l);
    for (int i = 0; i < N_PART; i++)
        s->is_staged |= hth_gpu_expert_part(l, i)->n_row > 0 && table_of(t, hth_gpu_expert_part(l, i)) == MAX_TABLE;
    for (int i = 0; i < N_PART && !s->is_staged; i++)
        s->is_staged = hth_gpu_expert_part(l, i)->n_row > 0 && !import(g, l, i, &s->sources[i]);
    for (int i = 0; i < N_PART; i++) {
        const hth_matrix *m = hth_gpu_expert_part(l, i);
        hth_gpu_expert_source *to = &s->sources[i];
        if (m->n_row == 0) continue;
        to->form = table_of(t, m) == MAX_TABLE ? HTH_PACK_ROWS_PLANES : (uint32_t)m->layout;
        to->i_table = table_of(t, m) % MAX_TABLE;
        s->expert_bytes += staged_bytes(l, i);
        if (s->is_staged) to->buffer = g->moves.staging, to->base = place_in_entry(l, i), to->pitch = g->moves.entry_bytes;
    }
}

/* Experts of a layer come to the device: to slots, or, as the host has all, to pass through. */
static bool can_come(const hth_gpu *g, uint32_t i_layer)
{
    const hth_gpu_expert_slots *s = g->layers[i_layer].slots;
    return s && (s->policy.n_slot > 0 || (g->params.streams[0].n_tok > 0 && is_in_memory(&g->model->layers[i_layer])));
}

static hearth_status upload_tables(hth_gpu *g, const tables *t, hearth_error *err)
{
    hearth_status st = hth_buffer_new(g->device, HTH_MEMORY_DEVICE, sizeof t->words, "tables of experts", &g->moves.tables, err);
    return st == HEARTH_OK ? hth_device_upload((hth_buffer_range){g->moves.tables, 0, 0}, t->words, err) : st;
}

/* Staging memory that a binding holds. */
static hearth_status open_staging(hth_gpu *g, hearth_error *err)
{
    hth_gpu_moves *m = &g->moves;
    m->entry_bytes = entry_bytes(g->model);
    m->n_entry = n_entry(&g->params, m->entry_bytes);
    return hth_buffer_new(g->device, HTH_MEMORY_UPLOAD, m->n_entry * m->entry_bytes, "experts on their way", &m->staging, err);
}

static hearth_status open_memory(hth_gpu *g, const tables *t, hearth_error *err)
{
    hth_gpu_moves *m = &g->moves;
    uint32_t n_layer = g->params.end_layer - g->params.first_layer;
    m->imports = hth_alloc((size_t)n_layer * N_PART, sizeof *m->imports);
    if (!m->imports) return hth_fail_memory(err, n_layer * N_PART * sizeof *m->imports, "experts that move");
    hearth_status st = hth_buffer_new(g->device, HTH_MEMORY_UPLOAD, n_layer * job_bytes(g->model), "moves of experts", &m->jobs, err);
    if (st == HEARTH_OK) st = upload_tables(g, t, err);
    return st == HEARTH_OK ? open_staging(g, err) : st;
}

hearth_status hth_gpu_moves_open(hth_gpu *g, hearth_error *err)
{
    tables *t = hth_alloc(1, sizeof *t);
    bool any = false;
    if (!t) return hth_fail_memory(err, sizeof *t, "experts that move");
    for (uint32_t i = g->params.first_layer; i < g->params.end_layer; i++)
        for (int k = 0; can_come(g, i) && k < N_PART; k++)
            if (hth_gpu_expert_part(&g->model->layers[i], k)->n_row > 0)
                add_table(t, hth_gpu_expert_part(&g->model->layers[i], k)), any = true;
    hearth_status st = any ? open_memory(g, t, err) : HEARTH_OK;
    for (uint32_t i = g->params.first_layer; any && st == HEARTH_OK && i < g->params.end_layer; i++) {
        if (!can_come(g, i)) continue;
        g->layers[i].slots->jobs_at = (i - g->params.first_layer) * (uint32_t)(job_bytes(g->model) / sizeof(uint32_t));
        find_sources(g, t, i);
    }
    hth_free(t);
    return st == HEARTH_OK && any ? hth_gpu_reads_open(g, err) : st;
}

void hth_gpu_moves_close(hth_gpu *g)
{
    hth_gpu_moves *m = &g->moves;
    for (uint32_t i = 0; i < m->n_import; i++) hth_buffer_free(m->imports[i]);
    hth_buffer_free(m->jobs);
    hth_buffer_free(m->reads);
    hth_buffer_free(m->reads_to_host);
    hth_buffer_free(m->tables);
    hth_buffer_free(m->staging);
    hth_free(m->imports);
    *m = (hth_gpu_moves){0};
}

/* ---- command lists --------------------------------------------------------------------------------------- */

/* A driver that computes on the CPU pays for each invocation that waits for others. */
void hth_gpu_pack_constants(const hth_device_info *info, hth_type type, uint32_t form,
                            uint32_t consts[HTH_PACK_ROWS_N_CONST])
{
    enum { LOCAL = 256 };
    hth_quant_desc desc = {0};
    uint32_t size = (uint32_t)hth_type_find(type)->size;
    hth_quant_desc_of(type, &desc);
    consts[HTH_PACK_ROWS_LOCAL] = info->kind == HTH_DEVICE_CPU ? HTH_REC_LOCAL : hth_min_u32(info->max_workgroup_size, LOCAL);
    consts[HTH_PACK_ROWS_FORM] = form;
    consts[HTH_PACK_ROWS_SIZE] = size;
    consts[HTH_PACK_ROWS_BLOCKS] = hth_pack_rows_blocks(size);
    memcpy(consts + HTH_PACK_ROWS_FORMAT, &desc, sizeof desc);
}

static uint32_t n_block_of(const hth_matrix *m)
{
    hth_quant_desc desc;
    return hth_quant_desc_of(m->type, &desc) ? (uint32_t)(m->n_col / desc.block) : hth_soa_row_words(m->type, m->n_col);
}

const hth_gpu_op *hth_gpu_experts_of(const hth_gpu *g, uint32_t i_layer)
{
    const hth_program *p = g->model->program;
    uint32_t i = p->first_of_layer[i_layer];
    while (p->ops[i].kind != HTH_OP_EXPERTS || p->ops[i].experts.shared) i++;
    return &g->ops[i];
}

/* Records the conversions of a part of a layer's experts, of which word `at` of a buffer and those behind it say which, as
 * in HTH_READS_*. grid: the first two words of the part's grid. */
static hearth_status record_part(hth_gpu *g, hth_cmdlist *cmdlist, uint32_t i_layer, int i, const hth_gpu_matrix *to,
                                 hth_buffer *jobs, uint32_t at, uint32_t grid[2], hearth_error *err)
{
    const hth_layer *l = &g->model->layers[i_layer];
    const hth_matrix *m = hth_gpu_expert_part(l, i);
    const hth_gpu_expert_source *source = &g->layers[i_layer].slots->sources[i];
    uint32_t consts[HTH_PACK_ROWS_N_CONST];
    const hth_pipeline *pipeline;
    hth_gpu_pack_constants(hth_device_get_info(g->device), m->type, source->form, consts);
    const hth_push_pack_rows push = {at + HTH_READS_JOBS,       (uint32_t)source->base, (uint32_t)source->pitch,
                                     hth_gpu_expert_rows(l, i), n_block_of(m),          to->layout.offsets};
    const hth_buffer_range bind[] = {{jobs, 0, 0},
                                     {source->buffer, 0, 0},
                                     {g->moves.tables, source->i_table * sizeof(uint32_t) * HTH_PACK_TABLE_WORDS,
                                      sizeof(uint32_t) * HTH_PACK_TABLE_WORDS},
                                     hth_gpu_matrix_range(to)};
    const hth_buffer_range where = {jobs, sizeof(uint32_t) * (at + HTH_READS_GRID_WORDS * (uint32_t)i), 3 * sizeof(uint32_t)};
    hearth_status st = hth_pipeline_get(g->device, HTH_SHADER_pack_rows, consts, &pipeline, err);
    if (st != HEARTH_OK) return st;
    hth_pack_rows_grid(consts, push.slice_rows, push.n_block, grid);
    hth_cmdlist_dispatch_indirect(cmdlist, pipeline, bind, &push, where);
    hth_cmdlist_hint_link_bytes(cmdlist, hth_pack_rows_bytes(consts, push.slice_rows, push.n_block) / (grid[0] * grid[1]) + 1);
    return HEARTH_OK;
}

hearth_status hth_gpu_record_packs(hth_gpu *g, hth_cmdlist *cmdlist, uint32_t i_layer,
                                   const hth_gpu_fused_matrix to[HTH_GPU_EXPERT_PARTS], hth_buffer *jobs, uint32_t at,
                                   uint32_t grids[HTH_READS_JOBS], hearth_error *err)
{
    hearth_status st = HEARTH_OK;
    for (int i = 0; st == HEARTH_OK && i < N_PART; i++)
        if (to[i].n_matrix > 0)
            st = record_part(g, cmdlist, i_layer, i, &to[i].matrices[0], jobs, at, grids + HTH_READS_GRID_WORDS * i, err);
    return st;
}

/* The command list of a layer's moves. */
static hearth_status record_layer(hth_gpu *g, uint32_t i_layer, hearth_error *err)
{
    hth_gpu_expert_slots *s = g->layers[i_layer].slots;
    uint32_t *jobs = (uint32_t *)hth_buffer_map(g->moves.jobs) + s->jobs_at, grids[HTH_READS_JOBS] = {0};
    hearth_status st = hth_cmdlist_begin(g->device, &s->cmdlist, err);
    if (st == HEARTH_OK)
        st = hth_gpu_record_packs(g, s->cmdlist, i_layer, hth_gpu_experts_of(g, i_layer)->fused, g->moves.jobs, s->jobs_at,
                                  grids, err);
    if (st == HEARTH_OK && !hth_pipeline_is_deferred(g->device)) st = hth_cmdlist_end(s->cmdlist, err);
    memcpy(jobs, grids, sizeof grids);
    return st;
}

hearth_status hth_gpu_record_moves(hth_gpu *g, hearth_error *err)
{
    hearth_status st = HEARTH_OK;
    for (uint32_t i = g->params.first_layer; g->moves.jobs && st == HEARTH_OK && i < g->params.end_layer; i++)
        if (can_come(g, i) && g->layers[i].slots->policy.n_slot > 0 && !g->layers[i].slots->reads)
            st = record_layer(g, i, err);
    return st;
}

void hth_gpu_free_move_lists(hth_gpu *g)
{
    for (uint32_t i = g->params.first_layer; g->layers && i < g->params.end_layer; i++) {
        if (!g->layers[i].slots) continue;
        hth_cmdlist_free(g->layers[i].slots->cmdlist);
        g->layers[i].slots->cmdlist = NULL;
    }
}

/* ---- staging memory -------------------------------------------------------------------------------------- */

void hth_gpu_stage_expert(hth_gpu *g, hth_pool *pool, uint32_t i_layer, uint32_t expert, const hth_store_view *view,
                          uint32_t entry)
{
    const hth_layer *l = &g->model->layers[i_layer];
    uint32_t n_extent = 0;
    for (int i = 0; i < N_PART; i++) {
        const hth_gpu_expert_source *source = &g->layers[i_layer].slots->sources[i];
        uint8_t *to = (uint8_t *)hth_buffer_map(g->moves.staging) + source->base + entry * source->pitch;
        uint32_t n = hth_gpu_expert_rows(l, i);
        hth_matrix m = *hth_gpu_expert_part(l, i);
        if (m.n_row == 0) continue;
        if (view) m.n_row = n, m.data = view->data[n_extent++];
        size_t first = view ? 0 : (size_t)expert * n;
        if (source->form == HTH_PACK_ROWS_PLANES) hth_gpu_stage_rows(pool, &m, (uint32_t)first, n, to);
        else memcpy(to, m.data + first * m.row_size, n * (size_t)m.row_size);
    }
}
