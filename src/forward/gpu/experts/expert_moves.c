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
 * A bounded number of bytes is on the way at a time, those of complete moves no more. If experts have to stay for that,
 * only swaps with a larger gain are worth it from then on, in all layers; if none has, those with a smaller one. A move
 * over an idle link is worth it with a smaller one too, if such moves have ended before the host computed its next
 * experts: these took nothing from the host. */
#include "forward/gpu/experts/expert_moves.h"

#include <string.h>

/* Lone moves over which their cost is averaged. */
enum { N_LONE = 16 };

static uint32_t *jobs_of(const hth_gpu *g, const hth_gpu_expert_slots *s)
{
    return (uint32_t *)hth_buffer_map(g->moves.jobs) + s->jobs_at;
}

/* ---- moves under way ----------------------------------------------------------------------------------- */

/* The second queue ends its command lists in their order. */
static bool is_complete(hth_gpu *g, hth_fence fence)
{
    hth_gpu_moves *m = &g->moves;
    if (fence > m->done && hth_beside_is_complete(g->device, fence)) m->done = fence;
    return fence <= m->done;
}

/* Gives back what a layer's moves take of the bytes under way and of staging memory. */
static void give_room(hth_gpu_moves *m, hth_gpu_expert_slots *s)
{
    for (uint32_t i = 0; s->holds_room && i < s->n_move; i++) {
        if (s->is_staged) m->is_entry_used[s->entries[i]] = false;
        m->under_way -= s->expert_bytes;
    }
    s->holds_room = false;
}

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
    give_room(&g->moves, s);
    for (uint32_t i = 0; i < s->n_move; i++) {
        if (arrived && s->is_streamed) tell_store(step, i_layer, s->policy.loading[s->slots[i]], true);
        if (arrived) hth_expert_policy_end(&s->policy, s->slots[i]);
        else hth_expert_policy_cancel(&s->policy, s->slots[i]);
    }
    if (arrived) g->counts.n_moved += s->n_move, g->counts.moved_bytes += s->n_move * s->expert_bytes;
    s->n_move = 0, s->fence = 0;
}

static void end_if_complete(hth_gpu *g, const hth_step *step, uint32_t i_layer)
{
    hth_fence fence = g->layers[i_layer].slots->fence;
    if (fence != 0 && is_complete(g, fence)) end_moves(g, step, i_layer, true);
}

/* Gives back the room of moves to other layers than i_layer that are complete. Steps move experts layer by layer, so those
 * of the layers behind it are the oldest. These moves do not end: if their layer's turn in the step is still to come, the
 * step needs its slots as they were when it began. */
static void give_room_of_others(hth_gpu *g, uint32_t i_layer)
{
    uint32_t first = g->params.first_layer, n = g->params.end_layer - first;
    for (uint32_t i = 1; i < n; i++) {
        hth_gpu_expert_slots *s = g->layers[first + (i_layer - first + i) % n].slots;
        if (!s || !s->holds_room || s->fence == 0) continue;
        if (!is_complete(g, s->fence)) return;
        give_room(&g->moves, s);
    }
}

void hth_gpu_end_moves(hth_gpu *g, const hth_step *step)
{
    hth_gpu_moves *m = &g->moves;
    bool is_streamed = step->streamed && step->streamed->store;
    float least = is_streamed ? HTH_EXPERT_MIN_GAIN_STREAMED : HTH_EXPERT_MIN_GAIN;
    for (uint32_t i = g->params.first_layer; i < g->params.end_layer; i++)
        if (g->layers[i].slots) end_if_complete(g, step, i);
    if (m->least_gain == 0.0f) m->lone_gain = HTH_EXPERT_MIN_GAIN; /* before the first step */
    if (m->least_gain < least) m->least_gain = least;
    else if (!m->was_full) m->least_gain /= HTH_EXPERT_GAIN_STEP;
    m->was_full = false;
}

/* ---- departure ----------------------------------------------------------------------------------------- */

/* The gain that a swap needs. An expert in staging memory was copied by the host, so its move is not free. */
static float least_gain(const hth_gpu_moves *m, const hth_gpu_expert_slots *s)
{
    if (m->under_way > 0 || s->is_staged) return m->least_gain;
    return m->lone_gain > HTH_EXPERT_FREE_GAIN ? m->lone_gain : HTH_EXPERT_FREE_GAIN;
}

void hth_gpu_see_lone_move(hth_gpu *g)
{
    hth_gpu_moves *m = &g->moves;
    if (m->lone == 0) return;
    float cost = is_complete(g, m->lone) ? 0.0f : HTH_EXPERT_MIN_GAIN;
    m->lone_gain += (cost - m->lone_gain) / N_LONE;
    m->lone = 0;
}

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
    s->holds_room = true;
    g->moves.under_way += s->expert_bytes;
    return true;
}

static hearth_status submit(hth_gpu *g, const hth_step *step, uint32_t i_layer, hearth_error *err)
{
    hth_gpu_expert_slots *s = g->layers[i_layer].slots;
    hth_gpu_set_n_read(jobs_of(g, s), s->n_move);
    hearth_status st = hth_beside_submit(g->device, &s->cmdlist, 1, &s->fence, err);
    if (st != HEARTH_OK) end_moves(g, step, i_layer, false);
    else if (g->moves.under_way == s->expert_bytes) g->moves.lone = s->fence;
    return st;
}

hearth_status hth_gpu_move_experts(hth_gpu *g, const hth_step *step, uint32_t i_layer, hearth_error *err)
{
    hth_gpu_expert_slots *s = g->layers[i_layer].slots;
    hth_expert_swap swap;
    uint32_t entry;
    if (!s->cmdlist) return HEARTH_OK;
    end_if_complete(g, step, i_layer);
    give_room_of_others(g, i_layer);
    while (s->fence == 0 && s->n_move < HTH_EXPERT_MAX_MOVES &&
           hth_expert_policy_choose(&s->policy, least_gain(&g->moves, s), &swap) && has_room(&g->moves, s, &entry))
        if (!begin_move(g, step, i_layer, &swap, entry)) break;
    return s->n_move > 0 && s->fence == 0 ? submit(g, step, i_layer, err) : HEARTH_OK;
}
