/* Experts without a slot in steps of many tokens: all of a layer pass through two buffers of the device. A chunk is gate and
 * up, or down, of as many experts as a buffer holds. The second queue reads it from the host's memory where it lies, and
 * converts it, while the device computes with the chunk before it, be that of the layer before. Which experts have no slot
 * is known before the step, so that no message about choices is needed; with so many tokens most experts are chosen. */
#include "forward/gpu/experts/expert_moves.h"

#include "base/alloc.h"
#include "base/checked_math.h"

#include <string.h>

/* Bytes of a buffer, at most, if that is not less than a part of one expert: its copy takes a millisecond or more, so that
 * the host is in time with the next one. Layers of small experts are cut into several chunks too, so that one comes while
 * another is in use. */
enum { BUFFER_BYTES = 32 << 20, MIN_CHUNKS = 4 };

/* ---- sizes --------------------------------------------------------------------------------------------- */

/* A chunk has down, or all other parts. */
static bool is_in_chunk(const hth_layer *l, int part, bool is_down)
{
    return hth_gpu_expert_part(l, part)->n_row > 0 && (part == HTH_GPU_EXPERT_DOWN) == is_down;
}

/* Bytes of n experts on the device; UINT64_MAX: no shader has their type. */
static uint64_t bytes_of(const hth_layer *l, bool is_down, uint32_t n)
{
    uint64_t bytes = 0;
    for (int i = 0; i < HTH_GPU_EXPERT_PARTS; i++) {
        const hth_matrix *m = hth_gpu_expert_part(l, i);
        hth_soa_layout layout;
        if (!is_in_chunk(l, i, is_down)) continue;
        if (!hth_soa_layout_init(m->type, (uint64_t)n * hth_gpu_expert_rows(l, i), m->n_col, &layout)) return UINT64_MAX;
        bytes += layout.size;
    }
    return bytes;
}

/* Experts of a chunk. */
static uint32_t n_at_once(const hth_layer *l, bool is_down)
{
    uint32_t n = (l->experts.router.n_expert + MIN_CHUNKS - 1) / MIN_CHUNKS;
    while (n > 1 && bytes_of(l, is_down, n) > BUFFER_BYTES) n = n > 2 ? n - (n + 7) / 8 : 1;
    return n;
}

/* Chunks of so many experts. */
static uint32_t n_chunk_of(const hth_layer *l, bool is_down, uint32_t n_expert)
{
    uint32_t n = n_at_once(l, is_down);
    return (n_expert + n - 1) / n;
}

uint64_t hth_gpu_passing_bytes(const hth_model *m)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < m->hparams.n_layer; i++) {
        const hth_layer *l = &m->layers[i];
        for (int is_down = 0; hth_layer_divides_experts(l) && is_down < 2; is_down++) {
            uint64_t bytes = bytes_of(l, is_down, n_at_once(l, is_down));
            if (bytes < UINT64_MAX) most = hth_max_u64(most, bytes);
        }
    }
    return most;
}

uint64_t hth_gpu_passing_job_bytes(const hth_model *m)
{
    uint64_t n_word = 0;
    for (uint32_t i = 0; i < m->hparams.n_layer; i++)
        for (int is_down = 0; hth_layer_divides_experts(&m->layers[i]) && is_down < 2; is_down++) {
            const hth_layer *l = &m->layers[i];
            n_word += n_chunk_of(l, is_down, l->experts.router.n_expert) * hth_reads_words(n_at_once(l, is_down));
        }
    return sizeof(uint32_t) * n_word;
}

/* Experts without a slot, at most: those on their way to one, and those for which slots are spare, are among them. */
static uint32_t max_missing(const hth_gpu_expert_slots *s)
{
    const hth_expert_policy *p = &s->policy;
    uint32_t n_free = s->reads ? p->n_used : hth_min_u32(p->n_slot, HTH_EXPERT_MAX_MOVES);
    return hth_min_u32(p->n_expert, p->n_expert - p->n_slot + n_free);
}

/* ---- chunks -------------------------------------------------------------------------------------------- */

static bool can_pass(const hth_gpu *g, uint32_t i_layer)
{
    const hth_gpu_expert_slots *s = g->layers[i_layer].slots;
    return s && s->sources[HTH_GPU_EXPERT_DOWN].buffer && !s->is_staged;
}

/* Lays out a chunk in one of the buffers. */
static void place(const hth_gpu *g, hth_expert_chunk *c, hth_buffer_range buffer)
{
    const hth_layer *l = &g->model->layers[c->layer];
    const hth_gpu_op *op = hth_gpu_experts_of(g, c->layer);
    for (int i = 0; i < HTH_GPU_EXPERT_PARTS; i++) {
        const hth_matrix *m = hth_gpu_expert_part(l, i);
        hth_gpu_matrix *to = &c->matrices[i];
        uint32_t block = hth_type_act_block(m->type);
        if (!is_in_chunk(l, i, c->is_down)) continue;
        c->fused[i] = (hth_gpu_fused_matrix){.matrices = to,
                                             .n_matrix = 1,
                                             .n_col = (uint32_t)m->n_col,
                                             .wants_32 = block == HTH_ACT_BLOCK,
                                             .wants_256 = block == HTH_ACT_BLOCK_256};
        *to = (hth_gpu_matrix){.type = m->type,
                               .n_row = c->n * hth_gpu_expert_rows(l, i),
                               .weights = buffer.buffer,
                               .offset = buffer.offset,
                               .bias = op->fused[i].bias};
        hth_soa_layout_init(m->type, to->n_row, m->n_col, &to->layout);
        buffer.offset += to->layout.size, c->bytes += to->layout.size;
    }
}

/* The chunks of a layer: gate and up first. */
static void add_layer(hth_gpu *g, uint32_t i_layer, uint32_t *n_word)
{
    const hth_layer *l = &g->model->layers[i_layer];
    hth_gpu_expert_slots *s = g->layers[i_layer].slots;
    hth_gpu_passing *p = &g->passing;
    s->first_chunk = p->n_chunk;
    for (int is_down = 0; is_down < 2; is_down++)
        for (uint32_t first = 0, n = n_at_once(l, is_down); first < max_missing(s); first += n) {
            hth_expert_chunk *c = &p->chunks[p->n_chunk];
            *c = (hth_expert_chunk){.layer = i_layer, .is_down = is_down, .first = first, .jobs_at = *n_word};
            c->n = hth_min_u32(n, max_missing(s) - first);
            place(g, c, g->workspace.passing[p->n_chunk++ % 2]);
            *n_word += hth_reads_words(c->n);
        }
    s->n_chunk = p->n_chunk - s->first_chunk;
}

hearth_status hth_gpu_passing_open(hth_gpu *g, hearth_error *err)
{
    hth_gpu_passing *p = &g->passing;
    uint32_t n = 0, n_word = 0;
    for (uint32_t i = g->params.first_layer; g->params.streams[0].n_tok > 0 && i < g->params.end_layer; i++)
        for (int is_down = 0; can_pass(g, i) && is_down < 2; is_down++)
            n += n_chunk_of(&g->model->layers[i], is_down, max_missing(g->layers[i].slots));
    if (n == 0) return HEARTH_OK;
    p->chunks = hth_alloc(n, sizeof *p->chunks);
    if (!p->chunks) return hth_fail_memory(err, n * sizeof *p->chunks, "experts that pass through");
    for (uint32_t i = g->params.first_layer; i < g->params.end_layer; i++)
        if (can_pass(g, i)) add_layer(g, i, &n_word);
    return hth_buffer_new(g->device, HTH_MEMORY_UPLOAD, sizeof(uint32_t) * n_word, "experts that pass through", &p->jobs, err);
}

void hth_gpu_passing_close(hth_gpu *g)
{
    hth_buffer_free(g->passing.jobs);
    hth_free(g->passing.chunks);
    g->passing = (hth_gpu_passing){0};
}

/* ---- command lists --------------------------------------------------------------------------------------- */

static hearth_status record_chunk(hth_gpu *g, hth_expert_chunk *c, hearth_error *err)
{
    uint32_t grids[HTH_READS_JOBS] = {0};
    hearth_status st = hth_cmdlist_begin(g->device, &c->cmdlist, err);
    if (st == HEARTH_OK) st = hth_gpu_record_packs(g, c->cmdlist, c->layer, c->fused, g->passing.jobs, c->jobs_at, grids, err);
    if (st == HEARTH_OK && !hth_pipeline_is_deferred(g->device)) st = hth_cmdlist_end(c->cmdlist, err);
    memcpy((uint32_t *)hth_buffer_map(g->passing.jobs) + c->jobs_at, grids, sizeof grids);
    return st;
}

hearth_status hth_gpu_record_passing(hth_gpu *g, hearth_error *err)
{
    hearth_status st = HEARTH_OK;
    for (uint32_t i = 0; st == HEARTH_OK && i < g->passing.n_chunk; i++) st = record_chunk(g, &g->passing.chunks[i], err);
    return st;
}

void hth_gpu_free_passing_lists(hth_gpu *g)
{
    for (uint32_t i = 0; i < g->passing.n_chunk; i++) {
        hth_cmdlist_free(g->passing.chunks[i].cmdlist);
        g->passing.chunks[i].cmdlist = NULL;
    }
}

/* ---- steps ----------------------------------------------------------------------------------------------- */

void hth_gpu_number_missing(const hth_gpu_expert_slots *s, uint32_t *slots)
{
    const hth_expert_policy *p = &s->policy;
    for (uint32_t e = 0, n = p->n_slot; e < p->n_expert; e++)
        if (p->slot_of[e] == HTH_NO_EXPERT) slots[e] = n++;
}

hearth_status hth_gpu_pass_chunk(hth_gpu *g, uint32_t i_chunk, hth_fence *fence, hearth_error *err)
{
    const hth_expert_chunk *c = &g->passing.chunks[i_chunk];
    hth_gpu_expert_slots *s = g->layers[c->layer].slots;
    uint32_t *jobs = (uint32_t *)hth_buffer_map(g->passing.jobs) + c->jobs_at, n = 0, number = 0;
    for (uint32_t e = 0; e < s->policy.n_expert; e++) {
        if (s->policy.slot_of[e] != HTH_NO_EXPERT) continue;
        uint32_t slot = number++ - c->first;
        if (slot < c->n) memcpy(jobs + HTH_READS_HEAD + 2 * n++, (uint32_t[]){slot, e}, 2 * sizeof e);
    }
    hth_gpu_set_n_read(jobs, n);
    *fence = 0;
    if (n == 0) return HEARTH_OK;
    g->counts.n_passed += c->is_down ? n : 0, g->counts.passed_bytes += n * (c->bytes / c->n);
    hearth_status st = hth_beside_submit(g->device, &c->cmdlist, 1, fence, err);
    if (st == HEARTH_OK) g->passing.last = *fence;
    return st;
}

hearth_status hth_gpu_count_passing(hth_gpu *g, uint32_t n_tok, hearth_error *err)
{
    const uint32_t n = hth_min_u32(n_tok, HTH_GPU_SAMPLED_ROWS), *sample = hth_gpu_mapped(g->workspace.sampled_pairs);
    for (uint32_t i = g->params.first_layer; g->passing.n_chunk > 0 && i < g->params.end_layer; i++) {
        hth_gpu_expert_slots *s = g->layers[i].slots;
        const uint32_t *ids = sample + (size_t)i * g->workspace.sample_words;
        if (!s || s->n_chunk == 0) continue;
        if (!hth_gpu_are_experts(&s->policy, ids, 2 * s->policy.n_used, n)) return hth_gpu_fail_experts(g, err);
        hth_gpu_count_experts(g, &s->policy, ids, 2 * s->policy.n_used, n);
    }
    return HEARTH_OK;
}

hearth_status hth_gpu_end_passing(hth_gpu *g, hearth_error *err)
{
    hth_fence last = g->passing.last;
    g->passing.last = 0;
    return last > 0 ? hth_beside_wait(g->device, last, g->timeout_ns, err) : HEARTH_OK;
}
