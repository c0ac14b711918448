/* The tapes of a step: each layer's programs in the order of a token, recorded once for a class of steps
 * (one row, a few, many), and the head's. What a program reads is ordered behind what wrote it. */
#include "run/gpu/recorder.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "kernels/math.h"
#include "run/gpu/cache.h"

#include <string.h>

/* ---- attention ---------------------------------------------------------------------------------------- */

static void rope_store(hth_recorder *r, const hth_layer *l, const hth_gpu_layer *to)
{
    const hth_hparams *h = &r->g->model->hparams;
    const hth_gpu_room *room = &r->g->room;
    uint32_t n_pair = h->rope.n_rot / 2;
    bool own_table = h->rope.window_base > 0.0 && l->window > 0;
    hth_push_rope push = {.n_head = l->n_head,
                          .n_head_kv = l->n_head_kv,
                          .n_pair = n_pair,
                          .table_at = own_table ? r->g->place.n_row * n_pair : 0,
                          .sine_at = room->sine_at,
                          .d_at = room->rounded_d_at,
                          .head_words = to->head_words,
                          .eps = h->norm_eps,
                          .inv_n = 1.0f / (float)h->d_head};
    const uint32_t consts[] = {h->d_head, (uint32_t)h->rope.kind, to->head_norms.n > 0,
                               (uint32_t)r->g->place.kv, HTH_REC_LOCAL};
    const hth_slice bind[] = {room->step, room->qkv,  room->table,  hth_rec_vector(r, to->head_norms),
                              to->keys,   to->values, room->rounded};
    hth_rec_run(r, HTH_PROGRAM_rope_store, consts, bind, &push, l->n_head + 2 * l->n_head_kv, r->n_row);
    hth_rec_wrote(r, room->qkv), hth_rec_wrote(r, to->keys), hth_rec_wrote(r, to->values),
        hth_rec_wrote(r, room->rounded);
    hth_rec_order(r);
}

/* Of a token, where a sequence has all positions. */
static uint64_t attend_work(const hth_recorder *r, const hth_layer *l)
{
    uint64_t n = r->g->place.n_position;
    if (l->window > 0 && l->window < n) n = l->window;
    return 2 * n * l->n_head * r->g->model->hparams.d_head * HTH_REC_BY_WORDS;
}

/* All splits of a token at once. */
static void attend_whole(hth_recorder *r, const hth_layer *l, const uint32_t *consts, const hth_slice *bind,
                         hth_push_attend *push)
{
    uint64_t work = attend_work(r, l);
    uint32_t step = hth_rec_at_once(r, r->n_row, work, 1);
    for (uint32_t first = 0, n; first < r->n_row; first += n) {
        n = r->n_row - first < step ? r->n_row - first : step;
        push->first_tok = first;
        hth_rec_take(r, n * work);
        hth_rec_run_3(r, HTH_PROGRAM_attend, consts, bind, push, 1, l->n_head_kv, n);
    }
}

/* The splits of one token side by side, then together. */
static void attend_by_split(hth_recorder *r, uint32_t i_layer, const hth_layer *l, const uint32_t *consts,
                            const hth_slice *bind, const hth_push_attend *push)
{
    const hth_gpu_room *room = &r->g->room;
    uint32_t d = r->g->model->hparams.d_head;
    hth_slice grid = {room->grids.of, room->grids.at + 16 * i_layer, 12};
    hth_push_join join = {.n_head = l->n_head, .window = l->window, .n_split = room->n_split};
    hth_rec_take(r, attend_work(r, l));
    const hth_program *p = hth_rec_program(r, HTH_PROGRAM_attend, consts);
    if (!p) return;
    hth_tape_run_at(r->tape, p, bind, push, grid);
    /* Keys and values of a split, at most. */
    hth_tape_reads(r->tape, 2 * HTH_ATTEND_SPLIT * sizeof(uint32_t) * hth_gpu_cache_words(r->g->place.kv, d));
    hth_rec_wrote(r, room->splits), hth_rec_wrote(r, room->split_parts);
    hth_rec_order(r);
    hth_rec_run(r, HTH_PROGRAM_attend_join, (const uint32_t[]){d, HTH_REC_LOCAL},
                (const hth_slice[]){room->step, room->splits, room->split_parts, room->heads}, &join,
                l->n_head, 1);
}

static void attend(hth_recorder *r, uint32_t i_layer, const hth_layer *l, const hth_gpu_layer *to)
{
    const hth_hparams *h = &r->g->model->hparams;
    const hth_gpu_room *room = &r->g->room;
    bool by_split = r->n_row == 1;
    hth_push_attend push = {.n_head = l->n_head,
                            .n_head_kv = l->n_head_kv,
                            .window = l->window,
                            .n_split = room->n_split,
                            .qkv_stride = to->qkv.n_row,
                            .d_at = room->rounded_d_at,
                            .head_words = to->head_words,
                            .scale = (float)(1.0 / hth_sqrt_d((double)h->score_width)),
                            .cap = h->score_cap,
                            .inverse_cap = h->score_cap != 0.0f ? 1.0f / h->score_cap : 0.0f};
    const uint32_t consts[] = {h->d_head, l->n_head / l->n_head_kv, (uint32_t)r->g->place.kv, by_split,
                               HTH_REC_LOCAL};
    const hth_slice bind[] = {room->step,       room->qkv,  room->rounded,
                              to->keys,         to->values, by_split ? room->splits : room->heads,
                              room->split_parts};
    if (by_split) attend_by_split(r, i_layer, l, consts, bind, &push);
    else attend_whole(r, l, consts, bind, &push);
    hth_rec_wrote(r, room->heads);
    hth_rec_order(r);
}

static void attention(hth_recorder *r, uint32_t i_layer, hth_slice y, bool onto)
{
    const hth_layer *l = &r->g->model->layers[i_layer];
    const hth_gpu_layer *to = &r->g->layers[i_layer];
    hth_rec_normed_input(r, to->attn_norm, r->g->room.x, &to->qkv, false);
    hth_rec_rows(r, &to->qkv, &r->g->room.input, r->g->room.qkv, false);
    rope_store(r, l, to);
    attend(r, i_layer, l, to);
    hth_gpu_input in = hth_rec_plain_input(r, r->g->room.heads, &to->o);
    hth_rec_rows(r, &to->o, &in, y, onto);
}

/* ---- a layer, the head -------------------------------------------------------------------------------- */

/* x takes what a block gives, normed where the family does that. */
static void add_to_stream(hth_recorder *r, hth_slice block, const hth_gpu_vector post[2])
{
    uint32_t n = r->g->model->hparams.d_model;
    hth_push_norm push = {n, post[1].n > 0, r->g->model->hparams.norm_eps, 1.0f / (float)n};
    const uint32_t consts[] = {post[0].n > 0 ? hth_rec_norm_kind(r) : HTH_KIND_NONE, HTH_REC_LOCAL};
    const hth_slice bind[] = {r->g->room.step, r->g->room.x, block, hth_rec_vector(r, post[0]),
                              hth_rec_vector(r, post[1])};
    hth_rec_run(r, HTH_PROGRAM_norm_add, consts, bind, &push, 1, r->n_row);
    hth_rec_wrote(r, r->g->room.x);
    hth_rec_order(r);
}

static void layer(hth_recorder *r, uint32_t i_layer)
{
    const hth_gpu_room *room = &r->g->room;
    const hth_gpu_layer *l = &r->g->layers[i_layer];
    if (r->g->model->hparams.family->parallel) {
        attention(r, i_layer, room->held, false);
        hth_rec_ffn(r, i_layer, room->out, false);
        add_to_stream(r, room->held, l->attn_post);
        add_to_stream(r, room->out, l->ffn_post);
        return;
    }
    bool onto = l->attn_post[0].n == 0;
    attention(r, i_layer, onto ? room->x : room->out, onto);
    if (!onto) add_to_stream(r, room->out, l->attn_post);
    onto = l->ffn_post[0].n == 0;
    hth_rec_ffn(r, i_layer, onto ? room->x : room->out, onto);
    if (!onto) add_to_stream(r, room->out, l->ffn_post);
}

static void layers(hth_recorder *r)
{
    const hth_gpu_room *room = &r->g->room;
    uint64_t d = r->g->model->hparams.d_model;
    hth_tape_copy(r->tape, hth_rec_first_rows(room->embedded, r->n_row, d),
                  hth_rec_first_rows(room->x, r->n_row, d));
    hth_rec_wrote(r, room->x);
    hth_rec_order(r);
    for (uint32_t i = 0; i < r->g->place.n_layer; i++) layer(r, i);
    if (!r->g->place.head && r->st == HEARTH_OK)
        hth_tape_copy(r->tape, hth_rec_first_rows(room->x, r->n_row, d),
                      hth_rec_first_rows(room->result, r->n_row, d));
}

static void head(hth_recorder *r)
{
    const hth_gpu_room *room = &r->g->room;
    const hth_hparams *h = &r->g->model->hparams;
    r->by_want = 1;
    hth_rec_normed_input(r, r->g->output_norm, room->x, &r->g->head, false);
    hth_rec_rows(r, &r->g->head, &room->input, room->logits, false);
    if (h->logit_cap != 0.0f) {
        hth_push_cap push = {h->n_vocab, h->logit_cap, 1.0f / h->logit_cap};
        hth_rec_run(r, HTH_PROGRAM_soft_cap, NULL, (const hth_slice[]){room->step, room->logits}, &push,
                    hth_rec_over(h->n_vocab, HTH_ROUND_STRETCH), r->n_row);
        hth_rec_wrote(r, room->logits);
        hth_rec_order(r);
    }
    if (r->st == HEARTH_OK)
        hth_tape_copy(r->tape, hth_rec_first_rows(room->logits, r->n_row, h->n_vocab),
                      hth_rec_first_rows(room->result, r->n_row, h->n_vocab));
}

/* ---- classes ------------------------------------------------------------------------------------------- */

uint32_t hth_gpu_class_rows(const hth_gpu *g, int class)
{
    uint32_t most = g->place.n_row, rows = class == HTH_GPU_ONE   ? 1
                                           : class == HTH_GPU_FEW ? HTH_GPU_FEW_ROWS
                                                                  : most;
    return rows < most ? rows : most;
}

static hearth_status record_with(hth_recorder *r)
{
    uint32_t n_act = r->passage ? 2 * r->passage->n_piece : r->g->n_hand;
    r->tapes->acts = hth_alloc(n_act, sizeof *r->tapes->acts);
    if (!r->tapes->acts) return hth_fail_memory(r->err, n_act * sizeof *r->tapes->acts, "tapes");
    hth_rec_begin(r);
    if (r->st == HEARTH_OK) layers(r);
    hth_rec_end(r);
    return r->st;
}

/* Layers that are divided are computed by both sides at once, or with care. */
static hearth_status record(hth_gpu *g, uint32_t n_row, bool careful, hth_gpu_tapes *tapes, hearth_error *err)
{
    hth_recorder r = {.g = g, .tapes = tapes, .n_row = n_row, .careful = careful, .err = err};
    return record_with(&r);
}

static hearth_status record_passage(hth_gpu *g, hth_gpu_passage *p, hearth_error *err)
{
    hth_recorder r = {.g = g, .tapes = &p->tapes, .n_row = p->n_row, .passage = p, .err = err};
    return record_with(&r);
}

static hearth_status record_head(hth_gpu *g, uint32_t n_row, hth_gpu_tapes *tapes, hearth_error *err)
{
    hth_recorder r = {.g = g, .tapes = tapes, .n_row = n_row, .err = err};
    hth_rec_begin(&r);
    if (r.st == HEARTH_OK) head(&r);
    hth_rec_end(&r);
    return r.st;
}

/* A step's tapes, and the head's behind them. */
static hearth_status open_turns(hth_gpu *g, hearth_error *err)
{
    uint64_t n = g->careful.n;
    for (uint32_t i = 0; i < g->n_passage; i++) n = hth_larger(n, g->passages[i].tapes.n);
    for (int c = 0; c < HTH_GPU_N_CLASS; c++) n = hth_larger(n, g->tapes[c].n);
    n += hth_larger(g->head_tapes[0].n, g->head_tapes[1].n);
    hth_turn *turns = hth_realloc(g->turns, n, sizeof *turns);
    if (turns) g->turns = turns;
    hth_tick *ticks = hth_realloc(g->ticks, n, sizeof *ticks);
    if (ticks) g->ticks = ticks;
    return turns && ticks ? HEARTH_OK : hth_fail_memory(err, n * sizeof *turns, "tapes");
}

hearth_status hth_gpu_record(hth_gpu *g, hearth_error *err)
{
    hearth_status st = HEARTH_OK;
    uint32_t rows = g->place.n_row < HTH_GPU_HEAD_ROWS ? g->place.n_row : HTH_GPU_HEAD_ROWS;
    for (int c = 0; st == HEARTH_OK && c < HTH_GPU_N_CLASS; c++)
        st = record(g, hth_gpu_class_rows(g, c), false, &g->tapes[c], err);
    if (st == HEARTH_OK && g->n_hand > 0) st = record(g, 1, true, &g->careful, err);
    for (uint32_t i = 0; st == HEARTH_OK && i < g->n_passage; i++)
        st = record_passage(g, &g->passages[i], err);
    if (st == HEARTH_OK && g->place.head) st = record_head(g, 1, &g->head_tapes[0], err);
    if (st == HEARTH_OK && g->place.head) st = record_head(g, rows, &g->head_tapes[1], err);
    return st == HEARTH_OK ? open_turns(g, err) : st;
}

static void free_tapes(hth_gpu_tapes *tapes)
{
    for (uint32_t i = 0; i < tapes->n; i++) hth_tape_free(tapes->cut[i].tape);
    hth_free(tapes->cut);
    hth_free(tapes->acts);
    *tapes = (hth_gpu_tapes){0};
}

void hth_gpu_tapes_free(hth_gpu *g)
{
    for (int c = 0; c < HTH_GPU_N_CLASS; c++) free_tapes(&g->tapes[c]);
    free_tapes(&g->careful);
    for (uint32_t i = 0; i < g->n_passage; i++) free_tapes(&g->passages[i].tapes);
    for (int i = 0; i < 2; i++) free_tapes(&g->head_tapes[i]);
}
