/* Moves experts from the host to slots of the device while a model runs, beside the computation. The device's second
 * queue reads the host's weights where they lie, converts them to its layout and writes them into a slot. The slot
 * holds no expert from the end of the step before until the move is complete, so that no step reads it.
 *
 * Behind each step the policies of all layers say which swaps are worth it (store/expert_policy.h). The best ones of all
 * layers leave. How many bytes may be on the way follows from how many have arrived by the next step. */
#include "forward/gpu/expert_moves.h"

#include "base/alloc.h"
#include "base/checked_math.h"
#include "base/log.h"

#include <string.h>

/* Bytes that may be on the way at first; at least one expert may. */
enum { FIRST_LIMIT = 8 << 20 };

/* ---- choice -------------------------------------------------------------------------------------------- */

/* The best swap of a layer, if it has one. */
typedef struct candidate {
    hth_gpu_expert_slots *slots;
    uint32_t i_layer;
    hth_expert_swap swap;
} candidate;

static bool find_candidate(hth_gpu *g, uint32_t i_layer, candidate *to)
{
    hth_gpu_expert_slots *s = g->layers[i_layer].slots;
    *to = (candidate){.slots = s, .i_layer = i_layer};
    if (!s || !s->cmdlist || s->fence > 0 || s->n_move == HTH_GPU_MAX_MOVES) return false;
    return hth_expert_policy_choose(&s->policy, HTH_EXPERT_MIN_GAIN, &to->swap);
}

/* The best of all layers; false: none is worth it. */
static bool find_best(const candidate *all, uint32_t n, uint32_t *best)
{
    bool found = false;
    for (uint32_t i = 0; i < n; i++) {
        if (!all[i].slots || (found && all[i].swap.gain <= all[*best].swap.gain)) continue;
        *best = i, found = true;
    }
    return found;
}

static bool take_entry(hth_gpu_moves *m, uint32_t *entry)
{
    for (*entry = 0; *entry < m->n_entry; ++*entry)
        if (!m->is_entry_used[*entry]) return m->is_entry_used[*entry] = true;
    return false;
}

static uint32_t *jobs_of(const hth_gpu *g, const hth_gpu_expert_slots *s)
{
    return (uint32_t *)hth_buffer_map(g->moves.jobs) + s->jobs_at;
}

/* An expert leaves for a slot. false: there is no staging memory for it now. */
static bool begin_move(hth_gpu *g, hth_pool *pool, const candidate *c)
{
    hth_gpu_expert_slots *s = c->slots;
    uint32_t *job = jobs_of(g, s) + HTH_READS_HEAD + 2 * s->n_move, entry = 0;
    if (s->is_staged && !take_entry(&g->moves, &entry)) return false;
    if (s->is_staged) hth_gpu_stage_expert(g, pool, c->i_layer, c->swap.expert, entry);
    hth_expert_policy_begin(&s->policy, &c->swap);
    job[0] = c->swap.slot, job[1] = s->is_staged ? entry : c->swap.expert;
    s->slots[s->n_move] = c->swap.slot, s->entries[s->n_move++] = entry;
    g->moves.under_way += s->expert_bytes;
    return true;
}

/* ---- moves under way ----------------------------------------------------------------------------------- */

/* Experts that are on the way to a layer have arrived, or have failed. */
static void end_layer(hth_gpu *g, hth_gpu_expert_slots *s, bool arrived)
{
    for (uint32_t i = 0; i < s->n_move; i++) {
        if (arrived) hth_expert_policy_end(&s->policy, s->slots[i]);
        else hth_expert_policy_cancel(&s->policy, s->slots[i]);
        if (s->is_staged) g->moves.is_entry_used[s->entries[i]] = false;
        g->moves.under_way -= s->expert_bytes;
    }
    if (arrived) g->counts.n_moved += s->n_move, g->counts.moved_bytes += s->n_move * s->expert_bytes;
    s->n_move = 0, s->fence = 0;
}

/* The second queue ends its command lists in their order. */
void hth_gpu_end_moves(hth_gpu *g)
{
    hth_gpu_moves *m = &g->moves;
    for (uint32_t i = g->params.first_layer; m->under_way > 0 && i < g->params.end_layer; i++) {
        hth_gpu_expert_slots *s = g->layers[i].slots;
        if (!s || s->fence == 0 || (s->fence > m->done && !hth_beside_is_complete(g->device, s->fence))) continue;
        if (s->fence > m->done) m->done = s->fence;
        end_layer(g, s, true);
    }
}

/* The numbers of experts that a layer's command list moves. */
static void count_jobs(const hth_gpu *g, const hth_gpu_expert_slots *s)
{
    uint32_t *jobs = jobs_of(g, s);
    for (int k = 0; k < HTH_READS_JOBS / HTH_READS_GRID_WORDS; k++) jobs[HTH_READS_GRID_WORDS * k + 2] = s->n_move;
    jobs[HTH_READS_JOBS] = s->n_move;
}

/* Submits what was begun, all at once. */
static hearth_status submit(hth_gpu *g, hearth_error *err)
{
    hth_cmdlist *lists[HTH_MAX_LAYER];
    hth_fence fences[HTH_MAX_LAYER];
    hth_gpu_expert_slots *all[HTH_MAX_LAYER];
    size_t n = 0;
    for (uint32_t i = g->params.first_layer; i < g->params.end_layer; i++) {
        hth_gpu_expert_slots *s = g->layers[i].slots;
        if (!s || s->n_move == 0 || s->fence > 0) continue;
        count_jobs(g, s);
        lists[n] = s->cmdlist, all[n++] = s;
    }
    hearth_status st = n > 0 ? hth_beside_submit(g->device, lists, n, fences, err) : HEARTH_OK;
    for (size_t i = 0; i < n; i++) {
        if (st == HEARTH_OK) all[i]->fence = fences[i];
        else end_layer(g, all[i], false);
    }
    return st;
}

/* More may be on the way if all arrive by the next step, fewer if not. */
static void adapt_limit(hth_gpu_moves *m)
{
    if (m->under_way == 0) m->limit = m->was_limited ? m->limit + m->limit / 4 : m->limit;
    else m->limit -= m->limit / 4;
    m->was_limited = false;
}

hearth_status hth_gpu_begin_moves(hth_gpu *g, hth_pool *pool, hearth_error *err)
{
    hth_gpu_moves *m = &g->moves;
    candidate all[HTH_MAX_LAYER];
    uint32_t n = 0, i = 0;
    if (!m->jobs) return HEARTH_OK;
    hth_gpu_end_moves(g);
    if (m->limit == 0) m->limit = FIRST_LIMIT;
    else adapt_limit(m);
    for (uint32_t k = g->params.first_layer; k < g->params.end_layer; k++) n += find_candidate(g, k, &all[n]);
    while (find_best(all, n, &i)) {
        uint64_t bytes = all[i].slots->expert_bytes;
        m->was_limited = m->under_way > 0 && m->under_way + bytes > m->limit;
        if (m->was_limited || !begin_move(g, pool, &all[i])) break;
        if (!find_candidate(g, all[i].i_layer, &all[i])) all[i].slots = NULL;
    }
    return submit(g, err);
}
