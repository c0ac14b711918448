/* Recording: one tape after another, runs on it, and what has to be ordered behind what. */
#include "run/gpu/recorder.h"

#include "base/alloc.h"

#include <assert.h>
#include <string.h>

/* ---- tapes ------------------------------------------------------------------------------------------- */

static hearth_status make_room(hth_gpu_tapes *t, hearth_error *err)
{
    uint32_t room = t->room ? 2 * t->room : 16;
    if (t->n < t->room) return HEARTH_OK;
    hth_gpu_cut *cut = hth_realloc(t->cut, room, sizeof *cut);
    if (!cut) return hth_fail_memory(err, room * sizeof *cut, "tapes");
    t->cut = cut, t->room = room;
    return HEARTH_OK;
}

void hth_rec_begin(hth_recorder *r)
{
    if (r->st != HEARTH_OK) return;
    r->st = make_room(r->tapes, r->err);
    if (r->st == HEARTH_OK) r->st = hth_tape_begin(r->g->device, &r->tape, r->err);
    if (r->st == HEARTH_OK)
        r->tapes->cut[r->tapes->n++] = (hth_gpu_cut){.tape = r->tape, .n_act = r->tapes->n_act};
}

void hth_rec_end(hth_recorder *r)
{
    if (r->st != HEARTH_OK) return;
    r->st = hth_tape_end(r->tape, r->err);
    r->tapes->cut[r->tapes->n - 1].n_letter = r->n_letter;
    r->n_written = 0; /* what a tape has written is seen by all that run later */
}

void hth_rec_cut(hth_recorder *r)
{
    if (r->st != HEARTH_OK) return;
    if (hth_tape_is_empty(r->tape)) { /* it waits for more then */
        r->tapes->cut[r->tapes->n - 1].n_act = r->tapes->n_act;
        return;
    }
    hth_rec_end(r);
    hth_rec_begin(r);
}

void hth_rec_ask(hth_recorder *r, uint32_t what, uint32_t of, uint32_t n_letter)
{
    if (r->st == HEARTH_OK) r->tapes->acts[r->tapes->n_act++] = (hth_gpu_act){what, of, n_letter};
}

/* ---- runs ------------------------------------------------------------------------------------------- */

void hth_rec_wrote(hth_recorder *r, hth_slice s)
{
    assert(r->n_written < HTH_REC_MOST_WRITTEN);
    r->written[r->n_written++] = s;
}

void hth_rec_order(hth_recorder *r)
{
    if (r->st == HEARTH_OK && r->n_written > 0) hth_tape_order(r->tape, r->written, r->n_written);
    r->n_written = 0;
}

const hth_program *hth_rec_program(hth_recorder *r, hth_program_id id, const uint32_t *consts)
{
    const hth_program *p = NULL;
    if (r->st == HEARTH_OK) r->st = hth_program_get(r->g->device, id, consts, &p, r->err);
    return p;
}

void hth_rec_run_3(hth_recorder *r, hth_program_id id, const uint32_t *consts, const hth_slice *bind,
                   const void *push, uint32_t gx, uint32_t gy, uint32_t gz)
{
    const hth_program *p = hth_rec_program(r, id, consts);
    if (p) hth_tape_run(r->tape, p, bind, push, gx, gy, gz);
}

void hth_rec_run(hth_recorder *r, hth_program_id id, const uint32_t *consts, const hth_slice *bind,
                 const void *push, uint32_t gx, uint32_t gy)
{
    hth_rec_run_3(r, id, consts, bind, push, gx, gy, 1);
}

hth_slice hth_rec_vector(const hth_recorder *r, hth_gpu_vector v)
{
    return (hth_slice){r->g->vectors, v.at, v.n > 0 ? (uint64_t)v.n * sizeof(float) : sizeof(float)};
}

/* ---- rows --------------------------------------------------------------------------------------------- */

hth_gpu_part hth_rec_rows_of(const hth_gpu_part *p, uint64_t n_col, uint32_t first, uint32_t n)
{
    hth_gpu_part some = *p;
    assert(first % HTH_REC_GRAIN == 0);
    some.first += first, some.n_row = n;
    some.at += hth_planes_skip(p->type, n_col, first, &some.planes);
    if (some.bias.n > 0) some.bias.at += first * sizeof(float), some.bias.n = n;
    return some;
}

static void run_quantised(hth_recorder *r, const hth_gpu_group *group, const hth_gpu_part *p,
                          const hth_rec_stretch *s, const hth_form *form, const hth_gpu_input *in,
                          hth_slice y, bool onto)
{
    bool many = r->n_row > HTH_GPU_FEW_ROWS, wide = form->block == HTH_ACT_BLOCK_256;
    hth_push_rows_live push = {.rows = {.n_row = s->n,
                                        .n_block = group->n_col / form->block,
                                        .y_stride = group->n_row,
                                        .y_first = p->first + s->first,
                                        .has_bias = p->bias.n > 0,
                                        .at = p->planes.at},
                               .live = {s->first, s->neuron}};
    uint32_t consts[HTH_TILE_N_CONST] = {HTH_REC_LOCAL, many ? HTH_GPU_FEW_ROWS : r->n_row, many ? 4 : 1,
                                         r->by_want};
    memcpy(consts + HTH_ROWS_FORM, form, sizeof *form);
    hth_matrices by = HTH_MATRICES_NONE;
    if (many && !s->live)
        by = hth_gpu_tile_of(hth_device_get_info(r->g->device), form, r->g->matrices, r->n_row, consts);
    const hth_slice bind[] = {r->g->room.step,
                              {p->weights, p->at, p->planes.size},
                              wide ? in->q_256 : in->q,
                              wide ? in->d_256 : in->d,
                              wide ? in->sum_256 : in->sum,
                              hth_rec_vector(r, p->bias),
                              y,
                              r->g->room.live};
    static const hth_program_id ids[HTH_N_MATRICES][2] = {
        {HTH_PROGRAM_rows_q, HTH_PROGRAM_rows_q_onto},
        {HTH_PROGRAM_tile_q, HTH_PROGRAM_tile_q_onto},
        {HTH_PROGRAM_tile_q_cm2, HTH_PROGRAM_tile_q_cm2_onto}};
    hth_rec_run(r, s->live ? HTH_PROGRAM_rows_q_live : ids[by][onto], consts, bind, &push,
                hth_rec_over(s->n, consts[HTH_ROWS_LOCAL] / 8 * consts[HTH_ROWS_ROWS]),
                hth_rec_over(r->n_row, consts[HTH_ROWS_COLS]));
}

static void run_floats(hth_recorder *r, const hth_gpu_group *group, const hth_gpu_part *p,
                       const hth_rec_stretch *s, const hth_gpu_input *in, hth_slice y, bool onto)
{
    uint32_t cols = r->n_row < HTH_GPU_FEW_ROWS ? r->n_row : HTH_GPU_FEW_ROWS;
    uint32_t rows = r->n_row > HTH_GPU_FEW_ROWS ? 4 : 1;
    hth_push_floats_live push = {.rows = {.n_row = s->n,
                                          .n_col = group->n_col,
                                          .y_stride = group->n_row,
                                          .y_first = p->first + s->first,
                                          .has_bias = p->bias.n > 0,
                                          .row_words = hth_planes_row_words(p->type, group->n_col)},
                                 .live = {s->first, s->neuron}};
    const uint32_t consts[] = {HTH_REC_LOCAL, cols, rows, r->by_want, (uint32_t)p->type};
    const hth_slice bind[] = {
        r->g->room.step, {p->weights, p->at, p->planes.size}, in->x, hth_rec_vector(r, p->bias), y,
        r->g->room.live};
    hth_rec_run(r,
                s->live ? HTH_PROGRAM_rows_f_live
                : onto  ? HTH_PROGRAM_rows_f_onto
                        : HTH_PROGRAM_rows_f,
                consts, bind, &push, hth_rec_over(s->n, HTH_REC_LOCAL / 8 * rows),
                hth_rec_over(r->n_row, cols));
}

void hth_rec_reads(hth_recorder *r, const hth_gpu_part *p, const hth_rec_stretch *s)
{
    if (r->st != HEARTH_OK) return;
    if (s->live) hth_tape_reads_marked(r->tape, p->planes.size / p->n_row, r->g->room.live, s->neuron, s->n);
    else hth_tape_reads(r->tape, p->planes.size * s->n / p->n_row);
}

void hth_rec_part(hth_recorder *r, const hth_gpu_group *group, const hth_gpu_part *p,
                  const hth_rec_stretch *s, const hth_gpu_input *in, hth_slice y, bool onto)
{
    hth_form form;
    bool quantised = hth_form_of(p->type, &form);
    uint64_t work = hth_rec_row_work(group->n_col, r->n_row, quantised ? HTH_REC_BY_BYTES : HTH_REC_BY_WORDS);
    uint32_t step = hth_rec_at_once(r, s->n, work, HTH_REC_GRAIN);
    for (uint32_t i = 0, n; i < s->n; i += n) {
        n = s->n - i < step ? s->n - i : step;
        hth_rec_stretch now = {s->first + i, n, s->neuron + i, s->live}, own = now;
        hth_gpu_part some = *p;
        if (!s->live) some = hth_rec_rows_of(p, group->n_col, now.first, n), own.first = 0;
        hth_rec_take(r, n * work);
        if (quantised) run_quantised(r, group, &some, &own, &form, in, y, onto);
        else run_floats(r, group, &some, &own, in, y, onto);
        hth_rec_reads(r, p, &now);
    }
}

void hth_rec_some_rows(hth_recorder *r, const hth_gpu_group *group, uint32_t from, uint32_t end, bool live,
                       const hth_gpu_input *in, hth_slice y, bool onto)
{
    for (uint32_t i = 0; i < group->n_part; i++) {
        const hth_gpu_part *p = &group->parts[i];
        uint32_t first = from > p->first ? from : p->first,
                 last = end < p->first + p->n_row ? end : p->first + p->n_row;
        if (first >= last) continue;
        hth_rec_stretch s = {first - p->first, last - first, first - from, live};
        hth_rec_part(r, group, p, &s, in, y, onto);
    }
    hth_rec_wrote(r, y);
}

void hth_rec_rows(hth_recorder *r, const hth_gpu_group *group, const hth_gpu_input *in, hth_slice y,
                  bool onto)
{
    hth_rec_some_rows(r, group, 0, group->n_row, false, in, y, onto);
    hth_rec_order(r);
}

/* ---- inputs -------------------------------------------------------------------------------------------- */

uint32_t hth_rec_norm_kind(const hth_recorder *r)
{
    return r->g->model->hparams.family->norm == HTH_NORM_LAYER ? HTH_KIND_LAYER : HTH_KIND_RMS;
}

/* One run of norm_round: of x, in blocks of `block` (0: none), stored or not. */
static void norm_round(hth_recorder *r, uint32_t kind, const hth_gpu_vector *norm, hth_slice x, uint32_t n,
                       uint32_t block, bool store, const hth_gpu_input *in)
{
    static const hth_gpu_vector no_norm[2];
    const hth_gpu_vector *v = norm ? norm : no_norm;
    bool wide = block == HTH_ACT_BLOCK_256;
    hth_push_norm push = {n, v[1].n > 0, r->g->model->hparams.norm_eps, 1.0f / (float)n};
    if (block == 0 && !store) return;
    const uint32_t consts[] = {kind, block, store, kind == HTH_KIND_NONE ? 0 : r->by_want, HTH_REC_LOCAL};
    hth_slice q = wide ? in->q_256 : in->q, d = wide ? in->d_256 : in->d, sum = wide ? in->sum_256 : in->sum;
    const hth_slice bind[] = {
        r->g->room.step, x, hth_rec_vector(r, v[0]), hth_rec_vector(r, v[1]), in->x, q, d, sum};
    hth_rec_run(r, HTH_PROGRAM_norm_round, consts, bind, &push,
                kind == HTH_KIND_NONE ? hth_rec_over(n, HTH_ROUND_STRETCH) : 1, r->n_row);
    if (store) hth_rec_wrote(r, in->x);
    if (block > 0) hth_rec_wrote(r, q), hth_rec_wrote(r, d), hth_rec_wrote(r, sum);
}

uint32_t hth_rec_first_block(const hth_gpu_group *group)
{
    return group->wants_32 ? HTH_ACT_BLOCK : group->wants_256 ? HTH_ACT_BLOCK_256 : 0;
}

void hth_rec_round_again(hth_recorder *r, const hth_gpu_group *group, const hth_gpu_input *in)
{
    hth_rec_order(r);
    if (!group->wants_32 || !group->wants_256) return;
    hth_gpu_input from = *in;
    norm_round(r, HTH_KIND_NONE, NULL, in->x, group->n_col, HTH_ACT_BLOCK_256, false, &from);
    hth_rec_order(r);
}

void hth_rec_normed_input(hth_recorder *r, const hth_gpu_vector norm[2], hth_slice x,
                          const hth_gpu_group *group, bool store)
{
    const hth_gpu_input *in = &r->g->room.input;
    bool both = group->wants_32 && group->wants_256;
    norm_round(r, hth_rec_norm_kind(r), norm, x, r->g->model->hparams.d_model, hth_rec_first_block(group),
               store || group->wants_floats || both, in);
    hth_rec_round_again(r, group, in);
}

hth_gpu_input hth_rec_plain_input(hth_recorder *r, hth_slice x, const hth_gpu_group *group)
{
    hth_gpu_input in = r->g->room.input;
    in.x = x;
    if (group->wants_32)
        norm_round(r, HTH_KIND_NONE, NULL, x, group->n_col, HTH_ACT_BLOCK, false, &r->g->room.input);
    if (group->wants_256)
        norm_round(r, HTH_KIND_NONE, NULL, x, group->n_col, HTH_ACT_BLOCK_256, false, &r->g->room.input);
    hth_rec_order(r);
    return in;
}
