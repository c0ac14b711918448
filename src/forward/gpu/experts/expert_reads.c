/* Missing experts that the device reads by itself: a step of one token reads them from the host's memory into spare slots of
 * their layer, between its choice and its products, without a message. Behind the step they are where they were read to,
 * and the experts of least use leave their slots, which are the spare ones of the next step. */
#include "forward/gpu/experts/expert_moves.h"
#include "forward/gpu/recorder.h"

#include <string.h>

/* Empty slots, one for each expert that a token uses. */
static bool make_spares(hth_expert_policy *p)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n_slot; i++) n += p->expert_of[i] == HTH_NO_EXPERT;
    while (n < p->n_used && hth_expert_policy_evict(p)) n++;
    return n >= p->n_used;
}

void hth_gpu_fill_spares(const hth_gpu_expert_slots *s, uint32_t *spares)
{
    const hth_expert_policy *p = &s->policy;
    for (uint32_t i = 0, n = 0; n < p->n_used; i++)
        if (p->expert_of[i] == HTH_NO_EXPERT) spares[n++] = i;
}

static bool wants_reads(const hth_gpu *g, uint32_t i_layer)
{
    const hth_gpu_expert_slots *s = g->layers[i_layer].slots;
    return s && s->sources[HTH_GPU_EXPERT_DOWN].buffer && !s->is_staged && s->policy.n_slot >= 2 * s->policy.n_used &&
           hth_layer_set_has(&g->params.read_experts, i_layer);
}

hearth_status hth_gpu_reads_open(hth_gpu *g, hearth_error *err)
{
    hth_gpu_moves *m = &g->moves;
    uint64_t n_word = 0;
    for (uint32_t i = g->params.first_layer; i < g->params.end_layer; i++) {
        if (!wants_reads(g, i)) continue;
        hth_gpu_expert_slots *s = g->layers[i].slots;
        s->reads = make_spares(&s->policy);
        s->jobs_at = (uint32_t)n_word;
        n_word += hth_reads_words(s->policy.n_used);
    }
    if (n_word == 0) return HEARTH_OK;
    hearth_status st = hth_buffer_new(g->device, HTH_MEMORY_DEVICE, 4 * n_word, "reads of experts", &m->reads, err);
    if (st != HEARTH_OK) return st;
    return hth_buffer_new(g->device, HTH_MEMORY_READBACK, 4 * n_word, "reads of experts", &m->reads_to_host, err);
}

/* A device that fails may write anything. */
static bool was_read(const hth_expert_policy *p, const uint32_t read[2])
{
    return read[0] < p->n_slot && p->expert_of[read[0]] == HTH_NO_EXPERT && read[1] < p->n_expert &&
           p->slot_of[read[1]] == HTH_NO_EXPERT;
}

static bool end_layer(hth_gpu *g, hth_gpu_expert_slots *s, const uint32_t *reads)
{
    hth_expert_policy *p = &s->policy;
    const uint32_t n = reads[HTH_READS_JOBS], *ids = reads + HTH_READS_HEAD + 2 * p->n_used;
    if (n > p->n_used || !hth_gpu_are_experts(p, ids, p->n_used, 1)) return false;
    hth_gpu_count_experts(g, p, ids, p->n_used, 1);
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t *read = reads + HTH_READS_HEAD + 2 * i;
        if (!was_read(p, read)) return false;
        hth_expert_policy_begin(p, &(hth_expert_swap){read[1], read[0], 0.0f});
        hth_expert_policy_end(p, read[0]);
    }
    g->counts.n_moved += n, g->counts.moved_bytes += n * s->expert_bytes;
    return make_spares(p);
}

hearth_status hth_gpu_end_reads(hth_gpu *g, hearth_error *err)
{
    const uint32_t *reads = g->moves.reads ? hth_buffer_map(g->moves.reads_to_host) : NULL;
    for (uint32_t i = g->params.first_layer; reads && i < g->params.end_layer; i++) {
        hth_gpu_expert_slots *s = g->layers[i].slots;
        if (s && s->reads && !end_layer(g, s, reads + s->jobs_at))
            return hth_fail(err, HEARTH_ERROR_DEVICE, "%s read experts that the model lacks",
                            hth_device_get_info(g->device)->name);
    }
    return HEARTH_OK;
}

/* ---- command lists --------------------------------------------------------------------------------------- */

bool hth_rec_reads_experts(const hth_recorder *r, uint32_t i_layer)
{
    const hth_gpu_expert_slots *s = r->g->layers[i_layer].slots;
    return s && s->reads && r->n_row == 1 && !r->stream;
}

/* The grids of a layer's conversions, whose third words routes write. */
static hearth_status upload_grids(hth_gpu *g, const hth_gpu_expert_slots *s, const uint32_t grids[HTH_READS_JOBS],
                                  hearth_error *err)
{
    if (hth_pipeline_is_deferred(g->device)) return HEARTH_OK;
    return hth_device_upload((hth_buffer_range){g->moves.reads, 4 * s->jobs_at, 4 * HTH_READS_JOBS}, grids, err);
}

void hth_rec_read_experts(hth_recorder *r, uint32_t i_layer)
{
    const hth_gpu_expert_slots *s = r->g->layers[i_layer].slots;
    const hth_gpu_fused_matrix *to = hth_gpu_experts_of(r->g, i_layer)->fused;
    uint32_t grids[HTH_READS_JOBS] = {0};
    if (r->st == HEARTH_OK)
        r->st = hth_gpu_record_packs(r->g, r->cmdlist, i_layer, to, r->g->moves.reads, s->jobs_at, grids, r->err);
    if (r->st == HEARTH_OK) r->st = upload_grids(r->g, s, grids, r->err);
    for (int i = 0; i < HTH_GPU_EXPERT_PARTS; i++)
        if (to[i].n_matrix > 0) hth_rec_mark_dirty(r, hth_gpu_matrix_range(&to[i].matrices[0]));
}

void hth_rec_copy_reads(hth_recorder *r)
{
    const hth_gpu_moves *m = &r->g->moves;
    if (!m->reads || r->n_row > 1 || r->stream || r->st != HEARTH_OK) return;
    hth_cmdlist_copy(r->cmdlist, (hth_buffer_range){m->reads, 0, 0}, (hth_buffer_range){m->reads_to_host, 0, 0});
}
