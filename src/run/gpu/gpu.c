/* A part of a model on a device, from opening to a step: the host fills the step block, lets the tape of its class run,
 * and takes over what comes out. */
#include "run/gpu/gpu_int.h"

#include "base/alloc.h"
#include "run/gpu/cache.h"

#include <string.h>

/* ---- what can lie there --------------------------------------------------------------------------- */

static bool group_has_programs(const hth_gpu_source *source)
{
    uint64_t bytes;
    return hth_gpu_group_bytes(source, UINT32_MAX, &bytes);
}

const char *hth_gpu_problem(const hth_model *model, hearth_kv_type kv, uint32_t i_layer)
{
    const hth_hparams *h = &model->hparams;
    if (i_layer == h->n_layer) {
        hth_gpu_source head = hth_gpu_head(model);
        return group_has_programs(&head) ? NULL : "its type has no program";
    }
    const hth_layer *l = &model->layers[i_layer];
    hth_gpu_source groups[] = {hth_gpu_qkv(l), hth_gpu_o(l), hth_gpu_gate_up(l), hth_gpu_down(l)};
    if (h->d_head % (kv == HEARTH_KV_Q8_0 ? HTH_ACT_BLOCK : 4) > 0) return "its heads are of an odd size";
    if (h->d_head > HTH_GPU_MOST_D_HEAD) return "its heads are too large";
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++)
        if (!group_has_programs(&groups[i])) return "a type of its weights has no program";
    return NULL;
}

/* ---- bytes ------------------------------------------------------------------------------------------- */

static uint64_t layer_bytes(const hth_layer *l, uint64_t most)
{
    hth_gpu_source groups[] = {hth_gpu_qkv(l), hth_gpu_o(l), hth_gpu_gate_up(l), hth_gpu_down(l)};
    uint64_t all = 0, bytes;
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++)
        all += hth_gpu_group_bytes(&groups[i], most, &bytes) ? bytes : 0;
    return all;
}

static uint64_t vector_bytes(const hth_model *m)
{
    enum { GRAIN = 256 };
    uint64_t all = GRAIN;
    for (size_t i = 0; i < m->n_binding; i++)
        if (m->bindings[i].vector) all += m->bindings[i].n * sizeof(float) + 2 * GRAIN;
    return all;
}

void hth_gpu_count_free(hth_gpu_bytes *bytes)
{
    hth_free((void *)(uintptr_t)bytes->layers);
    hth_free((void *)(uintptr_t)bytes->cache);
    *bytes = (hth_gpu_bytes){0};
}

hearth_status hth_gpu_count(const hth_model *model, const hth_device_info *info, const hth_gpu_place *place,
                            hth_gpu_bytes *out, hearth_error *err)
{
    const hth_hparams *h = &model->hparams;
    uint64_t *layers = hth_alloc(h->n_layer, sizeof *layers), *cache = hth_alloc(h->n_layer, sizeof *cache);
    *out = (hth_gpu_bytes){.layers = layers, .cache = cache};
    hth_gpu_source head = hth_gpu_head(model);
    hearth_status st = HEARTH_OK;
    if (!layers || !cache) st = hth_fail_memory(err, 2 * h->n_layer * sizeof *layers, "the bytes of layers");
    for (uint32_t i = 0; st == HEARTH_OK && i < h->n_layer; i++) {
        const hth_layer *l = &model->layers[i];
        if (hth_gpu_problem(model, place->kv, i)) continue;
        layers[i] = layer_bytes(l, info->most);
        if (!hth_gpu_cache_bytes(l, h->d_head, place, &cache[i]) || cache[i] / 2 > info->most)
            st = hth_fail(
                err, HEARTH_ERROR_ARGUMENT,
                "%s: keys of %u positions are too large for a binding of %llu bytes; ask for less with -c",
                info->name, place->n_position, (unsigned long long)info->most);
    }
    /* After the caches: of what depends on positions they are the largest. */
    if (st == HEARTH_OK && !hth_gpu_room_bytes(model, info, place, &out->room))
        st = hth_fail(err, HEARTH_ERROR_ARGUMENT,
                      "%s: the values of %u tokens are too large for a binding of %llu bytes; ask for less "
                      "with --batch",
                      info->name, place->n_row, (unsigned long long)info->most);
    if (st == HEARTH_OK) {
        out->room += vector_bytes(model);
        if (!hth_gpu_group_bytes(&head, info->most, &out->head)) out->head = 0;
    } else {
        hth_gpu_count_free(out);
    }
    return st;
}

/* ---- opening -------------------------------------------------------------------------------------------- */

hearth_status hth_gpu_open(const hth_model *model, const hth_kernels *kernels, hth_device *device,
                           const hth_gpu_place *place, hth_gpu_read_fn *read, void *user, hth_gpu **out,
                           hearth_error *err)
{
    *out = NULL;
    hth_gpu *g = hth_alloc(1, sizeof *g);
    if (!g) return hth_fail_memory(err, sizeof *g, "a model on a device");
    *g = (hth_gpu){.model = model, .kernels = kernels, .device = device, .place = *place};
    pthread_mutex_init(&g->turn, NULL);
    g->n_slot = place->n_position / HTH_GPU_SLOT;
    g->layers = hth_alloc(place->n_layer, sizeof *g->layers);
    g->taken = hth_alloc(g->n_slot, 1);
    hearth_status st =
        g->layers && g->taken ? HEARTH_OK : hth_fail_memory(err, g->n_slot, "a model on a device");
    if (st == HEARTH_OK) st = hth_gpu_room_open(g, err);
    if (st == HEARTH_OK) st = hth_gpu_caches_open(g, err);
    if (st == HEARTH_OK) st = hth_gpu_weights_open(g, read, user, err);
    if (st == HEARTH_OK) st = hth_gpu_record(g, err);
    if (st == HEARTH_OK) *out = g;
    else hth_gpu_close(g);
    return st;
}

void hth_gpu_close(hth_gpu *g)
{
    if (!g) return;
    for (int i = 0; i < HTH_GPU_N_CLASS; i++) hth_tape_free(g->tapes[i]);
    for (int i = 0; i < 2; i++) hth_tape_free(g->head_tapes[i]);
    hth_gpu_weights_close(g);
    hth_gpu_caches_close(g);
    hth_gpu_room_close(g);
    pthread_mutex_destroy(&g->turn);
    hth_free(g->taken);
    hth_free(g->layers);
    hth_free(g);
}

const hth_gpu_place *hth_gpu_where(const hth_gpu *g) { return &g->place; }
bool hth_gpu_is_strict(const hth_gpu *g) { return g->strict; }
float hth_gpu_scale_top(const hth_gpu *g, uint32_t i_layer) { return g->layers[i_layer].scale_top; }

/* ---- sequences --------------------------------------------------------------------------------------------- */

enum { FREE, TAKEN, FIRST };

hearth_status hth_gpu_reserve(hth_gpu *g, uint32_t n_ctx, uint32_t *slot, hearth_error *err)
{
    uint32_t n = n_ctx / HTH_GPU_SLOT + (n_ctx % HTH_GPU_SLOT > 0), run = 0;
    pthread_mutex_lock(&g->turn);
    for (uint32_t i = 0; i < g->n_slot && run < n; i++)
        run = g->taken[i] == FREE ? run + 1 : 0, *slot = i + 1;
    if (run == n) {
        *slot -= n;
        memset(g->taken + *slot, TAKEN, n);
        g->taken[*slot] = FIRST;
    }
    pthread_mutex_unlock(&g->turn);
    if (run < n)
        return hth_fail(
            err, HEARTH_ERROR_MEMORY,
            "%s: no room for %u positions beside other sessions: the model was opened for %u in all",
            hth_device_get_info(g->device)->name, n_ctx, g->place.n_position);
    *slot *= HTH_GPU_SLOT;
    return HEARTH_OK;
}

void hth_gpu_release(hth_gpu *g, uint32_t slot)
{
    uint32_t i = slot / HTH_GPU_SLOT;
    pthread_mutex_lock(&g->turn);
    do g->taken[i++] = FREE;
    while (i < g->n_slot && g->taken[i] == TAKEN);
    pthread_mutex_unlock(&g->turn);
}

/* ---- a step --------------------------------------------------------------------------------------------------- */

/* No submission takes so long on a card; drivers that compute on the CPU share it with others. */
static uint64_t patience_ns(const hth_gpu *g)
{
    return (hth_device_get_info(g->device)->kind == HTH_DEVICE_DISCRETE ? 10u : 600u) * (uint64_t)1000000000;
}

static void *mapped(hth_slice s) { return (uint8_t *)hth_buffer_map(s.of) + s.at; }

static int class_of(const hth_gpu *g, uint32_t n_row)
{
    int c = HTH_GPU_ONE;
    while (hth_gpu_class_rows(g, c) < n_row) c++;
    return c;
}

/* Splits that attention of one row goes through, by layer. */
static void fill_grids(const hth_gpu *g, const hth_row *row)
{
    uint32_t *grids = mapped(g->room.grids);
    for (uint32_t i = 0; i < g->place.n_layer; i++) {
        const hth_layer *l = &g->model->layers[i];
        hth_attend seen = {.n_pos = (size_t)row->position + 1, .n_row = 1, .window = l->window};
        uint32_t n = (uint32_t)(hth_attend_last_split(&seen) - hth_attend_first_split(&seen)) + 1;
        memcpy(grids + 4 * i, (uint32_t[]){n, l->n_head_kv, 1}, 12);
    }
}

static void fill_tables(const hth_gpu *g, const hth_step *s, uint32_t first, uint32_t n)
{
    size_t n_pair = g->model->hparams.rope.n_rot / 2;
    float *table = mapped(g->room.table);
    for (uint32_t t = 0; t < s->n_table && n_pair > 0; t++) {
        size_t from = (t * (size_t)s->n_row_max + first) * n_pair, to = t * (size_t)g->place.n_row * n_pair;
        memcpy(table + to, s->cosine + from, n * n_pair * sizeof *table);
        memcpy(table + g->room.sine_at + to, s->sine + from, n * n_pair * sizeof *table);
    }
}

/* Rows [first, first + n) of the step. */
static void fill_block(const hth_gpu *g, const hth_step *s, uint32_t first, uint32_t n)
{
    uint32_t *block = mapped(g->room.step);
    size_t d = g->model->hparams.d_model;
    block[HTH_STEP_N_TOK] = n;
    block[HTH_STEP_N_WANT] = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t *row = block + HTH_STEP_ROWS + HTH_STEP_ROW_WORDS * i;
        row[HTH_STEP_POSITION] = s->rows[first + i].position;
        row[HTH_STEP_SLOT] = s->rows[first + i].kv->slot;
    }
    memcpy(mapped(g->room.embedded), s->x + first * d, n * d * sizeof(float));
    fill_tables(g, s, first, n);
    if (n == 1) fill_grids(g, &s->rows[first]);
}

/* The rows from *next on that want logits, up to HTH_GPU_HEAD_ROWS, into the block. */
static uint32_t fill_wanted(const hth_gpu *g, const hth_row *rows, uint32_t n, uint32_t *next)
{
    uint32_t *block = mapped(g->room.step), n_want = 0;
    for (; *next < n && n_want < HTH_GPU_HEAD_ROWS; (*next)++)
        if (rows[*next].want_logits)
            block[HTH_STEP_ROWS + HTH_STEP_ROW_WORDS * n_want++ + HTH_STEP_WANT] = *next;
    return block[HTH_STEP_N_WANT] = n_want;
}

static hearth_status play(hth_gpu *g, hth_tape *first, hth_tape *second, hearth_error *err)
{
    const hth_turn turns[] = {{first, 0}, {second, 0}};
    size_t skip = first ? 0 : 1, n = (second ? 2 : 1) - skip;
    hth_tick ticks[2];
    hearth_status st = hth_queue_submit(g->device, turns + skip, n, ticks, err);
    if (st != HEARTH_OK) return st;
    st = hth_queue_wait(g->device, ticks[n - 1], patience_ns(g), err);
    g->under_way = st == HEARTH_OK ? 0 : ticks[n - 1];
    return st;
}

/* A step whose end was not seen may still read what the next one is told. */
static hearth_status settle(hth_gpu *g, hearth_error *err)
{
    if (g->under_way == 0) return HEARTH_OK;
    hearth_status st = hth_queue_wait(g->device, g->under_way, patience_ns(g), err);
    if (st == HEARTH_OK) g->under_way = 0;
    return st;
}

/* The rows of a piece through the layers, and what is wanted of them through the head: to fn, or to s->x. */
static hearth_status run_piece(hth_gpu *g, hth_step *s, uint32_t first, uint32_t n, hth_logits_sink *to,
                               hearth_error *err)
{
    size_t d = g->model->hparams.d_model;
    hth_tape *tape = g->tapes[class_of(g, n)];
    uint32_t next = 0;
    fill_block(g, s, first, n);
    if (!g->place.head) {
        hearth_status st = play(g, tape, NULL, err);
        if (st == HEARTH_OK) memcpy(s->x + first * d, mapped(g->room.result), n * d * sizeof(float));
        return st;
    }
    hearth_status st = HEARTH_OK;
    for (; st == HEARTH_OK && (tape || next < n); tape = NULL) {
        uint32_t n_want = fill_wanted(g, s->rows + first, n, &next);
        if (!tape && n_want == 0) break;
        st = play(g, tape, n_want == 0 ? NULL : g->head_tapes[n_want > 1], err);
        if (st == HEARTH_OK && n_want > 0) st = hth_run_give(s, mapped(g->room.result), n_want, to, err);
    }
    return st;
}

hearth_status hth_gpu_run(hth_gpu *g, hth_step *s, hth_logits_sink *to, hearth_error *err)
{
    pthread_mutex_lock(&g->turn);
    hearth_status st = settle(g, err);
    for (uint32_t first = 0, n; st == HEARTH_OK && first < s->n_row; first += n) {
        n = s->n_row - first < g->place.n_row ? s->n_row - first : g->place.n_row;
        st = run_piece(g, s, first, n, to, err);
    }
    pthread_mutex_unlock(&g->turn);
    return st;
}
