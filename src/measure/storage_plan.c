/* Replays tokens through a store. A layer asks for its items when a run would, and computes each when it is there.
 * Reads are made at once, in the caller, and the timer says when the disk would have ended them; so nothing here
 * depends on threads, and equal inputs give equal answers. */
#include "measure/storage_plan.h"

#include "base/alloc.h"
#include "measure/storage_cost.h"
#include "sample/random.h"
#include "store/disk_simulated.h"
#include "store/expert_policy.h"

#include <stdlib.h>
#include <string.h>

enum { SEED = 1 };

/* Bytes of a file that belong to an item. */
typedef struct item_range {
    uint32_t i_file, i_item;
    uint64_t first;
} item_range;

/* The slots of a device (forward/gpu/experts): of a token's moves each has arrived before the next token. */
typedef struct slots {
    hth_expert_policy *policies; /* [n_layer] */
    hth_reuse reuse;
    struct {
        uint32_t i_layer, slot;
    } *moves; /* [max_move] under way */
    uint32_t n_move, max_move;
    uint64_t n_chosen, n_there; /* experts of tokens; of these, those in slots */
} slots;

typedef struct replay {
    const hearth_model *m;
    const hth_memory_division *d;
    const hth_storage_machine *machine;
    const hth_storage_tokens *tokens;
    hth_storage_cost cost;
    hth_route_trace *trace; /* NULL: the model has no experts */
    slots slots;            /* if the tokens have some */
    hth_sample_random random;
    hth_disk_model disk_model;
    hth_disk *timer; /* the reader's disk, which only has times */
    hth_reader *reader;
    hth_store *store;
    item_range *ranges; /* [n_range], by file and place */
    size_t n_range;
    uint64_t *arrival;         /* [n_item] ns; 0: it was never read */
    uint32_t *wanted, *chosen; /* items, and experts, of the current layer */
    uint32_t *active;          /* bundles */
    uint32_t *n_users;         /* [n_item] tokens of the step that use an item */
    uint32_t n_tok;            /* tokens of the step */
    uint32_t *guess, n_guess;
    uint64_t guessed_at;
    double contention; /* share of time that reading adds to products */
    uint64_t now_ns;
    double compute; /* seconds so far */
} replay;

/* ---- arrivals ------------------------------------------------------------------------------------- */

static int compare_ranges(const void *a, const void *b)
{
    const item_range *x = a, *y = b;
    if (x->i_file != y->i_file) return x->i_file < y->i_file ? -1 : 1;
    return x->first < y->first ? -1 : x->first > y->first;
}

/* Files have no descriptors here, but numbers below 0. */
static int fd_of(uint32_t i_file) { return -1 - (int)i_file; }

static void read_ended(void *user, const hth_disk_read *read, uint64_t end_ns)
{
    replay *p = user;
    const item_range at = {.i_file = (uint32_t)(-1 - read->fd), .first = read->at};
    size_t low = 0, high = p->n_range; /* the last range that begins at or before the read */
    while (high - low > 1) {
        size_t mid = low + (high - low) / 2;
        if (compare_ranges(&p->ranges[mid], &at) <= 0) low = mid;
        else high = mid;
    }
    uint64_t *arrival = &p->arrival[p->ranges[low].i_item];
    if (end_ns > *arrival) *arrival = end_ns;
}

static bool list_ranges(replay *p)
{
    const hth_weight_items *items = &p->d->items;
    p->ranges = hth_alloc((size_t)items->n * HTH_MAX_EXTENT, sizeof *p->ranges);
    for (uint32_t i = 0; p->ranges && i < items->n; i++)
        for (uint32_t k = 0; k < items->items[i].n_extent; k++) {
            const hth_extent *e = &items->items[i].extents[k];
            p->ranges[p->n_range++] = (item_range){e->i_file, i, e->offset};
        }
    if (p->ranges) qsort(p->ranges, p->n_range, sizeof *p->ranges, compare_ranges);
    return p->ranges != NULL;
}

/* ---- time ------------------------------------------------------------------------------------------ */

static void compute_for(replay *p, double seconds)
{
    p->compute += seconds;
    p->now_ns += (uint64_t)(seconds * (1.0 + p->contention) * 1e9);
}

/* The second n tokens are another prompt. */
static void compute_always(replay *p, const hth_layer_cost *layer, uint64_t i_tok)
{
    uint64_t position = i_tok % p->tokens->n;
    compute_for(p, p->n_tok * layer->always + hth_layer_cost_attention(layer, position, p->n_tok));
}

/* The store acts now: before each call that may start reads, as these move the clock. */
static void set_clock(replay *p) { hth_disk_timer_set(p->timer, p->now_ns); }

static void sort_by_arrival(const replay *p, uint32_t *items, size_t n)
{
    for (size_t i = 1; i < n; i++)
        for (size_t k = i; k > 0 && p->arrival[items[k]] < p->arrival[items[k - 1]]; k--) {
            uint32_t item = items[k];
            items[k] = items[k - 1], items[k - 1] = item;
        }
}

/* ---- a layer --------------------------------------------------------------------------------------- */

/* Reads guesses as long as the disk had nothing else to do until now. */
static void read_guesses(replay *p)
{
    for (uint32_t i = 0; i < p->n_guess && hth_disk_timer_free(p->timer) < p->now_ns; i++) {
        hth_disk_timer_set(p->timer, p->guessed_at);
        hth_store_prefetch(p->store, &p->guess[i], 1);
    }
    p->n_guess = 0;
}

static double cost_of_item(const replay *p, const hth_layer_cost *layer, uint32_t i_item)
{
    const hth_storage_slots *with = p->tokens->slots;
    return with ? with->expert[layer - p->cost.layers] : hth_layer_cost_item(layer, &p->d->items, i_item);
}

/* Takes items, and computes each when it has arrived, max at once. */
static hearth_status compute_items(replay *p, const hth_layer_cost *layer, uint32_t *items, size_t n,
                                   size_t max, hearth_error *err)
{
    uint32_t held[HTH_MAX_PIECE];
    while (n > 0) {
        size_t n_held = 0, before = n;
        hearth_status st = HEARTH_OK;
        for (hth_store_view view; n > 0 && n_held < max && st == HEARTH_OK; before = n) {
            st = hth_store_acquire(p->store, items, &n, false, &view, err);
            if (n == before) break;
            held[n_held++] = view.i_item;
        }
        if (st != HEARTH_OK) return st;
        if (n_held == 0)
            return hth_fail(err, HEARTH_ERROR_MEMORY, "a plan has too little memory for one item");
        sort_by_arrival(p, held, n_held);
        for (size_t i = 0; i < n_held; i++) {
            if (p->arrival[held[i]] > p->now_ns) p->now_ns = p->arrival[held[i]];
            uint32_t n_user = p->trace ? p->n_users[held[i]] : p->n_tok;
            compute_for(p, n_user * cost_of_item(p, layer, held[i]));
        }
        while (n_held > 0) {
            set_clock(p);
            hth_store_release(p->store, held[--n_held]);
        }
    }
    return HEARTH_OK;
}

static void ask(replay *p, uint32_t *items, size_t n)
{
    read_guesses(p);
    set_clock(p);
    hth_store_request(p->store, items, n);
}

static void set_on_device(replay *p, uint32_t i_layer, uint32_t expert, bool on_device)
{
    set_clock(p);
    hth_store_set_on_device(p->store, p->d->items.first_expert[i_layer] + expert, on_device);
}

static void end_moves(replay *p)
{
    slots *s = &p->slots;
    for (; s->n_move > 0; s->n_move--) {
        uint32_t i_layer = s->moves[s->n_move - 1].i_layer, slot = s->moves[s->n_move - 1].slot;
        set_on_device(p, i_layer, s->policies[i_layer].loading[slot], true);
        hth_expert_policy_end(&s->policies[i_layer], slot);
    }
}

/* Moves experts as a device does (forward/gpu/experts/expert_moves.c), but with a constant least gain and no clock of the
 * link. */
static void begin_moves(replay *p, uint32_t i_layer)
{
    slots *s = &p->slots;
    hth_expert_policy *policy = &s->policies[i_layer];
    hth_expert_swap swap;
    hth_store_view view;
    for (int n = 0; n < HTH_EXPERT_MAX_MOVES && s->n_move < s->max_move &&
                    hth_expert_policy_choose(policy, HTH_EXPERT_MIN_GAIN_STREAMED, &swap); n++) {
        if (!hth_store_take_if_ready(p->store, p->d->items.first_expert[i_layer] + swap.expert, &view)) return;
        hth_store_release(p->store, view.i_item);
        if (policy->expert_of[swap.slot] != HTH_NO_EXPERT) set_on_device(p, i_layer, policy->expert_of[swap.slot], false);
        hth_expert_policy_begin(policy, &swap);
        s->moves[s->n_move].i_layer = i_layer, s->moves[s->n_move++].slot = swap.slot;
    }
}

/* Whether a device has an expert in a slot. */
static bool is_there(const replay *p, uint32_t i_layer, uint32_t expert)
{
    return p->tokens->slots && p->slots.policies[i_layer].slot_of[expert] != HTH_NO_EXPERT;
}

/* Experts that the tokens of a step use in a layer, and no slot has, as items, ascending. */
static uint32_t get_experts(replay *p, uint32_t i_layer, uint64_t i_tok)
{
    const hth_router *r = &p->m->model->layers[i_layer].experts.router;
    uint32_t first = p->d->items.first_expert[i_layer], n = 0;
    memset(p->n_users + first, 0, r->n_expert * sizeof *p->n_users);
    for (uint32_t t = 0; t < p->n_tok; t++) {
        hth_route_trace_get(p->trace, i_layer, i_tok + t, false, p->chosen);
        p->slots.n_chosen += r->n_used;
        for (uint32_t i = 0; i < r->n_used; i++)
            if (is_there(p, i_layer, p->chosen[i])) p->slots.n_there++;
            else p->n_users[first + p->chosen[i]]++;
        if (p->tokens->slots) hth_expert_policy_step(&p->slots.policies[i_layer], p->chosen, 1);
    }
    for (uint32_t e = 0; e < r->n_expert; e++)
        if (p->n_users[first + e] > 0) p->wanted[n++] = first + e;
    return n;
}

static void guess_experts(replay *p, uint32_t i_layer, uint64_t i_tok)
{
    uint32_t next = i_layer + 1;
    p->guessed_at = p->now_ns;
    if (p->n_tok > 1 || next == p->m->model->hparams.n_layer || p->d->items.first_expert[next] == UINT32_MAX)
        return;
    hth_route_trace_get(p->trace, next, i_tok, true, p->guess);
    p->n_guess = p->m->model->layers[next].experts.router.n_used;
    for (uint32_t i = 0; i < p->n_guess; i++) p->guess[i] += p->d->items.first_expert[next];
}

static hearth_status replay_experts(replay *p, uint32_t i_layer, uint64_t i_tok, hearth_error *err)
{
    const hth_layer_cost *layer = &p->cost.layers[i_layer];
    uint32_t n = get_experts(p, i_layer, i_tok);
    bool early = !p->tokens->slots && p->m->model->layers[i_layer].experts.router.reads_layer_input;
    if (early) ask(p, p->wanted, n);
    compute_always(p, layer, i_tok);
    if (!early) ask(p, p->wanted, n);
    if (!p->tokens->slots) guess_experts(p, i_layer, i_tok);
    hearth_status st = compute_items(p, layer, p->wanted, n, HTH_MAX_PIECE, err);
    if (st == HEARTH_OK && p->tokens->slots) begin_moves(p, i_layer);
    return st;
}

/* n pieces from `first` on, then those that follow them are read ahead. */
static hearth_status replay_pieces(replay *p, const hth_layer_cost *layer, uint32_t first, uint32_t n,
                                 hearth_error *err)
{
    for (uint32_t i = 0; i < n; i++) p->wanted[i] = first + i;
    ask(p, p->wanted, n);
    set_clock(p);
    hth_store_prefetch_next(p->store, first + n, HTH_MAX_AHEAD);
    return compute_items(p, layer, p->wanted, n, HTH_MAX_HELD_PIECES, err);
}

/* The halves that decide, of the bundles that a predictor names or of all; then the other rows of those that have an
 * active neuron. A run with a predictor also guesses the next layer's, which is not counted. */
static hearth_status replay_bundles(replay *p, const hth_layer_cost *layer, hearth_error *err)
{
    const hth_ffn_bundles *b = layer->bundles;
    uint32_t n = 0, n_active = 0, n_other = 0, *active = p->active, *others = p->guess;
    for (uint32_t i = 0; i < b->n; i++) {
        bool is_active = p->n_tok > 1 || hth_sample_random_unit(&p->random) < layer->wanted[i];
        if (is_active) active[n_active++] = i;
        if (is_active || !layer->names) p->wanted[n++] = b->first_item + i;
    }
    for (uint32_t k = 1; k < (b->has_second ? 3 : 2); k++)
        for (uint32_t i = 0; i < n_active; i++) others[n_other++] = b->first_item + k * b->n + active[i];
    ask(p, p->wanted, n);
    set_clock(p);
    if (layer->names) hth_store_prefetch(p->store, others, n_other);
    else hth_store_prefetch_next(p->store, hth_bundles_ahead(b), HTH_MAX_AHEAD);
    hearth_status st = compute_items(p, layer, p->wanted, n, HTH_MAX_HELD_BUNDLES, err);
    if (st != HEARTH_OK) return st;
    ask(p, others, n_other);
    return compute_items(p, layer, others, n_other, HTH_MAX_HELD_BUNDLES, err);
}

static hearth_status replay_layer(replay *p, uint32_t i_layer, uint64_t i_tok, hearth_error *err)
{
    const hth_layer_cost *layer = &p->cost.layers[i_layer];
    const hth_ffn_pieces *pieces = &p->d->items.pieces[i_layer];
    if (p->d->items.first_expert[i_layer] != UINT32_MAX) return replay_experts(p, i_layer, i_tok, err);
    compute_always(p, layer, i_tok);
    if (layer->bundles) return replay_bundles(p, layer, err);
    hearth_status st = HEARTH_OK;
    if (pieces->n_half > 0) st = replay_pieces(p, layer, pieces->first_item, pieces->n_half, err);
    if (st == HEARTH_OK && pieces->n_down > 0)
        st = replay_pieces(p, layer, pieces->first_item + pieces->n_half, pieces->n_down, err);
    return st;
}

static hth_store_counters sum_counters(const replay *p)
{
    hth_store_counters sum = {0};
    for (uint32_t i = 0; i < p->m->model->hparams.n_layer; i++) {
        hth_store_counters c = hth_store_get_counters(p->store, i);
        sum.n_hit += c.n_hit, sum.n_miss += c.n_miss, sum.read_size += c.read_size;
    }
    return sum;
}

/* n_tok tokens. */
static hearth_status replay_step(replay *p, uint64_t i_tok, hearth_error *err)
{
    const hth_storage_machine *machine = p->machine;
    uint64_t read = sum_counters(p).read_size;
    double computed = p->compute;
    hearth_status st = HEARTH_OK;
    end_moves(p);
    if (!p->d->whole && p->d->tables > 0) p->now_ns += (uint64_t)(machine->latency * 1e9);
    for (uint32_t i = 0; st == HEARTH_OK && i < p->m->model->hparams.n_layer; i++)
        st = replay_layer(p, i, i_tok, err);
    if (st != HEARTH_OK) return st;
    compute_for(p, p->cost.head);
    set_clock(p);
    hth_store_advance(p->store, p->n_tok);
    /* All cores compute, and reading takes its share of them while the disk works: at most as long as they compute. */
    double busy = (double)(sum_counters(p).read_size - read) / machine->read_rate.median / (p->compute - computed);
    if (p->tokens->slots) return HEARTH_OK; /* the device computes most of the time */
    double share = machine->n_thread < machine->n_core ? 0.0 : machine->reading_cores / machine->n_core;
    p->contention = share * (busy < 1.0 ? busy : 1.0);
    return HEARTH_OK;
}

/* ---- all tokens ------------------------------------------------------------------------------------ */

static hearth_status open_disk(replay *p, hearth_error *err)
{
    uint32_t n_file = hth_gguf_n_part(p->m->file);
    p->disk_model = (hth_disk_model){.name = "timer",
                                     .latency_ns = (uint64_t)(p->machine->latency * 1e9),
                                     .bytes_per_ns = p->machine->read_rate.median * 1e-9,
                                     .sequential_bytes_per_ns = p->machine->sequential_rate * 1e-9,
                                     .n_parallel = 64};
    hth_reader_file *files = hth_alloc(n_file, sizeof *files);
    if (!files) return hth_fail_memory(err, n_file * sizeof *files, "a plan");
    for (uint32_t i = 0; i < n_file; i++)
        files[i] = (hth_reader_file){fd_of(i), hth_gguf_part_path(p->m->file, i)};
    hearth_status st = hth_disk_open_timer(&p->disk_model, SEED, read_ended, p, &p->timer, err);
    const hth_reader_options o = {
        .files = files, .n_file = n_file, .disk = p->timer, .buffered = true, .in_caller = true};
    if (st == HEARTH_OK) st = hth_reader_open(&o, &p->reader, err);
    hth_free(files);
    return st;
}

static hearth_status open_store(replay *p, hearth_error *err)
{
    const hth_weight_items *items = &p->d->items;
    uint32_t n_expert = p->m->model->hparams.experts.n_expert,
             width = n_expert > HTH_MAX_PIECE ? n_expert : HTH_MAX_PIECE;
    for (uint32_t i = 0; i < p->m->model->hparams.n_layer; i++)
        if (2 * items->bundles[i].n > width) width = 2 * items->bundles[i].n;
    p->wanted = hth_alloc(width, sizeof *p->wanted);
    p->guess = hth_alloc(width, sizeof *p->guess);
    p->chosen = hth_alloc(width, sizeof *p->chosen);
    p->active = hth_alloc(width, sizeof *p->active);
    p->arrival = hth_alloc(items->n, sizeof *p->arrival);
    p->n_users = hth_alloc(items->n, sizeof *p->n_users);
    if (!p->wanted || !p->guess || !p->chosen || !p->active || !p->arrival || !p->n_users || !list_ranges(p))
        return hth_fail_memory(err, items->n * sizeof *p->arrival, "a plan");
    const hth_store_options o = {.items = items->items,
                                 .n_item = items->n,
                                 .n_group = p->m->model->hparams.n_layer,
                                 .memory = p->d->store,
                                 .no_bytes = true,
                                 .pins = true,
                                 .reader = p->reader};
    hth_sample_random_seed(&p->random, p->tokens->seed);
    return hth_store_open(&o, &p->store, err);
}

static hearth_status open_trace(replay *p, hearth_error *err)
{
    hth_route_trace_spec usual;
    double *frequency = NULL;
    if (p->m->model->hparams.experts.n_expert == 0) return HEARTH_OK;
    hearth_status st = p->tokens->route ? HEARTH_OK : hth_storage_usual_route(p->m, &frequency, &usual, err);
    if (st == HEARTH_OK)
        st = hth_route_trace_open(p->m->model, p->tokens->route ? p->tokens->route : &usual, 2 * p->tokens->n,
                                  &p->trace, err);
    hth_free(frequency);
    return st;
}

/* Pinned items were read while the model was opened. */
static void start_clock(replay *p)
{
    p->now_ns = hth_disk_timer_free(p->timer);
    set_clock(p);
}

static hearth_status replay_tokens(replay *p, hth_storage_speed *out, hearth_error *err)
{
    hth_store_counters before = sum_counters(p); /* pinned items have been read */
    uint64_t start = p->now_ns;
    double n = p->tokens->n, computed = 0.0;
    uint64_t n_all = 2 * (uint64_t)p->tokens->n, end;
    for (uint64_t i = 0; i < n_all; i += p->n_tok) {
        if (i == p->tokens->n) {
            p->slots.n_chosen = p->slots.n_there = 0;
            out->first_seconds = (double)(p->now_ns - start) * 1e-9 / n;
            out->first_read_bytes = (double)(sum_counters(p).read_size - before.read_size) / n;
            before = sum_counters(p), start = p->now_ns, computed = p->compute;
        }
        end = i < p->tokens->n ? p->tokens->n : n_all;
        p->n_tok = p->tokens->n_together > 1 ? p->tokens->n_together : 1;
        if (p->n_tok > end - i) p->n_tok = (uint32_t)(end - i);
        hearth_status st = replay_step(p, i, err);
        if (st != HEARTH_OK) return st;
    }
    hth_store_counters c = sum_counters(p);
    double asked = (double)(c.n_hit - before.n_hit + c.n_miss - before.n_miss);
    out->seconds = (double)(p->now_ns - start) * 1e-9 / n;
    out->compute_seconds = (p->compute - computed) / n;
    out->read_bytes = (double)(c.read_size - before.read_size) / n;
    out->disk_seconds = out->read_bytes / p->machine->read_rate.median;
    out->hits = asked > 0.0 ? (double)(c.n_hit - before.n_hit) / asked : 1.0;
    out->on_device = p->slots.n_there > 0 ? (double)p->slots.n_there / (double)p->slots.n_chosen : 0.0;
    return HEARTH_OK;
}

/* The first experts of each layer have slots at first. */
static hearth_status open_slots(replay *p, hearth_error *err)
{
    const hth_storage_slots *from = p->tokens->slots;
    const hth_model *m = p->m->model;
    slots *s = &p->slots;
    uint64_t size = 1;
    hearth_status st = HEARTH_OK;
    if (!from) return HEARTH_OK;
    s->policies = hth_alloc(m->hparams.n_layer, sizeof *s->policies);
    if (!s->policies) return hth_fail_memory(err, m->hparams.n_layer * sizeof *s->policies, "slots of experts");
    for (uint32_t i = 0; st == HEARTH_OK && i < m->hparams.n_layer; i++) {
        const hth_router *r = &m->layers[i].experts.router;
        const hth_expert_policy_options o = {
            .n_expert = r->n_expert, .n_used = r->n_used, .n_slot = from->n_slot[i], .reuse = &s->reuse};
        p->cost.layers[i].always = from->always[i], p->cost.layers[i].position = 0.0;
        if (r->n_expert > 0) st = hth_expert_policy_open(&s->policies[i], &o, err);
    }
    p->cost.head = from->head;
    for (uint32_t i = 0; i < p->d->items.n; i++) {
        uint64_t item = 0;
        for (uint32_t k = 0; k < p->d->items.items[i].n_extent; k++) item += p->d->items.items[i].extents[k].size;
        if (item > size) size = item;
    }
    s->max_move = (uint32_t)(HTH_EXPERT_UNDER_WAY / size);
    if (s->max_move < 1) s->max_move = 1;
    s->moves = hth_alloc(s->max_move, sizeof *s->moves);
    return st == HEARTH_OK && !s->moves ? hth_fail_memory(err, s->max_move * sizeof *s->moves, "slots of experts") : st;
}

static void close_slots(replay *p)
{
    for (uint32_t i = 0; p->slots.policies && i < p->m->model->hparams.n_layer; i++)
        hth_expert_policy_close(&p->slots.policies[i]);
    hth_free(p->slots.policies);
    hth_free(p->slots.moves);
}

static void close_replay(replay *p)
{
    close_slots(p);
    hth_store_close(p->store);
    hth_reader_close(p->reader);
    hth_route_trace_close(p->trace);
    hth_storage_cost_free(&p->cost);
    hth_free(p->ranges);
    hth_free(p->arrival);
    hth_free(p->wanted);
    hth_free(p->guess);
    hth_free(p->chosen);
    hth_free(p->active);
    hth_free(p->n_users);
}

hearth_status hth_storage_predict(const hearth_model *model, const hth_memory_division *d,
                                  const hth_storage_machine *machine, const hth_storage_tokens *tokens,
                                  hth_storage_speed *out, hearth_error *err)
{
    replay p = {.m = model, .d = d, .machine = machine, .tokens = tokens};
    *out = (hth_storage_speed){.hits = 1.0};
    if (tokens->route && model->model->hparams.experts.n_expert == 0)
        return hth_fail(err, HEARTH_ERROR_UNSUPPORTED, "%s: has no experts", hth_gguf_path(model->file));
    hearth_status st = hth_storage_cost_open(&p.cost, model, d, machine, tokens, err);
    if (st == HEARTH_OK && d->fits) {
        out->compute_seconds = hth_storage_cost_resident(&p.cost, model->model->hparams.n_layer, tokens->n);
        out->seconds = out->first_seconds = out->compute_seconds + (d->whole ? 0.0 : machine->latency);
    } else if (st == HEARTH_OK) {
        st = open_trace(&p, err);
        if (st == HEARTH_OK) st = open_disk(&p, err);
        if (st == HEARTH_OK) st = open_store(&p, err);
        if (st == HEARTH_OK) st = open_slots(&p, err);
        if (st == HEARTH_OK) start_clock(&p);
        if (st == HEARTH_OK) st = replay_tokens(&p, out, err);
    }
    close_replay(&p);
    return st;
}
