/* Moves experts from the host to slots of the device while a model runs, beside the computation. The device's second
 * queue reads the host's weights where they lie, converts them to its layout and writes them into a slot.
 *
 * Once the host has computed what a layer lacks, all choices of the step in that layer are known. The layer's policy then
 * says which of its experts should give way to experts that were missing (store/expert_policy.h). A slot whose expert the
 * step did not choose is not read any more in it, so that it is overwritten at once. The new expert counts from the step
 * that begins after its move is complete.
 *
 * Experts that a store reads from the file move while it has them in memory, which the host's computation has just seen
 * to. The store lends them for the copy to staging memory, and once they are in their slots they are the first that it
 * evicts. It reads those again that have left a slot.
 *
 * The link carries a bounded number of bytes at a time. If experts have to stay for that, only swaps with a larger gain
 * are worth it from then on, in all layers; if none has, those with a smaller one. */
#include "forward/gpu/experts/expert_moves.h"

#include <string.h>

static uint32_t *jobs_of(const hth_gpu *g, const hth_gpu_expert_slots *s)
{
    return (uint32_t *)hth_buffer_map(g->moves.jobs) + s->jobs_at;
}

/* ---- moves under way ----------------------------------------------------------------------------------- */

/* Tells the step's store that an expert comes to the device, or has left it. */
static void tell_store(const hth_step *step, uint32_t i_layer, uint32_t expert, bool on_device)
{
    const hth_streamed *from = step->streamed;
    if (expert != HTH_NO_EXPERT) hth_store_set_on_device(from->store, from->first_expert[i_layer] + expert, on_device);
}

/* Experts that are on the way to a layer have arrived, or have failed. */
static void end_moves(hth_gpu *g, const hth_step *step, uint32_t i_layer, bool arrived)
{
    hth_gpu_expert_slots *s = g->layers[i_layer].slots;
    for (uint32_t i = 0; i < s->n_move; i++) {
        if (arrived && s->is_streamed) tell_store(step, i_layer, s->policy.loading[s->slots[i]], true);
        if (arrived) hth_expert_policy_end(&s->policy, s->slots[i]);
        else hth_expert_policy_cancel(&s->policy, s->slots[i]);
        if (s->is_staged) g->moves.is_entry_used[s->entries[i]] = false;
        g->moves.under_way -= s->expert_bytes;
    }
    if (arrived) g->counts.n_moved += s->n_move, g->counts.moved_bytes += s->n_move * s->expert_bytes;
    s->n_move = 0, s->fence = 0;
}

/* The second queue ends its command lists in their order. */
static void end_if_complete(hth_gpu *g, const hth_step *step, uint32_t i_layer)
{
    const hth_gpu_expert_slots *s = g->layers[i_layer].slots;
    hth_gpu_moves *m = &g->moves;
    if (s->fence == 0 || (s->fence > m->done && !hth_beside_is_complete(g->device, s->fence))) return;
    if (s->fence > m->done) m->done = s->fence;
    end_moves(g, step, i_layer, true);
}

void hth_gpu_end_moves(hth_gpu *g, const hth_step *step)
{
    hth_gpu_moves *m = &g->moves;
    bool is_streamed = step->streamed && step->streamed->store;
    float least = is_streamed ? HTH_EXPERT_MIN_GAIN_STREAMED : HTH_EXPERT_MIN_GAIN;
    for (uint32_t i = g->params.first_layer; m->under_way > 0 && i < g->params.end_layer; i++)
        if (g->layers[i].slots) end_if_complete(g, step, i);
    if (m->least_gain < least) m->least_gain = least;
    else if (!m->was_full) m->least_gain /= HTH_EXPERT_GAIN_STEP;
    m->was_full = false;
}

/* ---- departure ----------------------------------------------------------------------------------------- */

static bool take_entry(hth_gpu_moves *m, uint32_t *entry)
{
    for (*entry = 0; *entry < m->n_entry; ++*entry)
        if (!m->is_entry_used[*entry]) return m->is_entry_used[*entry] = true;
    return false;
}

/* Whether there is room for an expert on the way. entry: of staging memory, if the layer needs that. */
static bool has_room(hth_gpu_moves *m, const hth_gpu_expert_slots *s, uint32_t *entry)
{
    *entry = 0;
    bool fits = m->under_way == 0 || m->under_way + s->expert_bytes <= HTH_EXPERT_UNDER_WAY;
    if (fits && (!s->is_staged || take_entry(m, entry))) return true;
    if (!m->was_full) m->least_gain *= HTH_EXPERT_GAIN_STEP;
    m->was_full = true;
    return false;
}

/* Copies an expert to staging memory, if the layer needs that. False: the step's store does not have it any more. */
static bool stage(hth_gpu *g, const hth_step *step, uint32_t i_layer, uint32_t expert, uint32_t entry)
{
    const hth_gpu_expert_slots *s = g->layers[i_layer].slots;
    const hth_streamed *from = step->streamed;
    hth_store_view view;
    if (s->is_streamed && !hth_store_take_if_ready(from->store, from->first_expert[i_layer] + expert, &view)) return false;
    if (s->is_staged) hth_gpu_stage_expert(g, step->pool, i_layer, expert, s->is_streamed ? &view : NULL, entry);
    if (s->is_streamed) hth_store_release(from->store, view.i_item);
    return true;
}

/* False: the expert stays, for now. */
static bool begin_move(hth_gpu *g, const hth_step *step, uint32_t i_layer, const hth_expert_swap *swap, uint32_t entry)
{
    hth_gpu_expert_slots *s = g->layers[i_layer].slots;
    uint32_t *job = jobs_of(g, s) + HTH_READS_HEAD + 2 * s->n_move;
    if (!stage(g, step, i_layer, swap->expert, entry)) {
        g->moves.is_entry_used[entry] = false;
        return false;
    }
    if (s->is_streamed) tell_store(step, i_layer, s->policy.expert_of[swap->slot], false);
    hth_expert_policy_begin(&s->policy, swap);
    job[0] = swap->slot, job[1] = s->is_staged ? entry : swap->expert;
    s->slots[s->n_move] = swap->slot, s->entries[s->n_move++] = entry;
    g->moves.under_way += s->expert_bytes;
    return true;
}

static hearth_status submit(hth_gpu *g, const hth_step *step, uint32_t i_layer, hearth_error *err)
{
    hth_gpu_expert_slots *s = g->layers[i_layer].slots;
    hth_gpu_set_n_read(jobs_of(g, s), s->n_move);
    hearth_status st = hth_beside_submit(g->device, &s->cmdlist, 1, &s->fence, err);
    if (st != HEARTH_OK) end_moves(g, step, i_layer, false);
    return st;
}

hearth_status hth_gpu_move_experts(hth_gpu *g, const hth_step *step, uint32_t i_layer, hearth_error *err)
{
    hth_gpu_expert_slots *s = g->layers[i_layer].slots;
    hth_expert_swap swap;
    uint32_t entry;
    if (!s->cmdlist) return HEARTH_OK;
    end_if_complete(g, step, i_layer);
    while (s->fence == 0 && s->n_move < HTH_GPU_MAX_MOVES &&
           hth_expert_policy_choose(&s->policy, g->moves.least_gain, &swap) && has_room(&g->moves, s, &entry))
        if (!begin_move(g, step, i_layer, &swap, entry)) break;
    return s->n_move > 0 && s->fence == 0 ? submit(g, step, i_layer, err) : HEARTH_OK;
}
