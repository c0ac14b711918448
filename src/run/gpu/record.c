/* The tapes of a step: each layer's programs in the order of a token, recorded once for a class of steps
 * (one row, a few, many), and the head's. What a program reads is ordered behind what wrote it. */
#include "run/gpu/gpu_int.h"

#include "base/alloc.h"
#include "kernels/math.h"
#include "run/gpu/cache.h"

#include <assert.h>
#include <string.h>

enum { LOCAL = 64, MOST_WRITTEN = 16 };

typedef struct recorder {
    hth_gpu *g;
    hth_gpu_tapes *tapes; /* room for all of them; the last is being recorded */
    hth_tape *tape;
    uint32_t n_letter, n_answer;     /* so far */
    uint32_t n_row;                  /* of the class */
    uint32_t by_want;                /* 1: tokens are those that want logits */
    bool marked;                     /* the layer's live neurons are, so far */
    bool careful;                    /* the host says which power of two a token's sums are made with */
    hth_slice written[MOST_WRITTEN]; /* since the last order */
    size_t n_written;
    hearth_status st;
    hearth_error *err;
} recorder;

uint32_t hth_gpu_class_rows(const hth_gpu *g, int class)
{
    uint32_t most = g->place.n_row, rows = class == HTH_GPU_ONE   ? 1
                                           : class == HTH_GPU_FEW ? HTH_GPU_FEW_ROWS
                                                                  : most;
    return rows < most ? rows : most;
}

static uint32_t over(uint64_t n, uint64_t by) { return (uint32_t)((n + by - 1) / by); }

/* ---- tapes ------------------------------------------------------------------------------------------- */

static void begin(recorder *r)
{
    if (r->st != HEARTH_OK) return;
    r->st = hth_tape_begin(r->g->device, &r->tape, r->err);
    if (r->st == HEARTH_OK)
        r->tapes->cut[r->tapes->n++] = (hth_gpu_cut){.tape = r->tape, .n_answer = r->n_answer};
}

static void end(recorder *r)
{
    if (r->st != HEARTH_OK) return;
    r->st = hth_tape_end(r->tape, r->err);
    r->tapes->cut[r->tapes->n - 1].n_letter = r->n_letter;
    r->n_written = 0; /* what a tape has written is seen by all that run later */
}

/* What follows runs when the host, or who else is waited for, is ready. */
static void cut(recorder *r)
{
    end(r);
    begin(r);
}

/* ---- runs ------------------------------------------------------------------------------------------- */

static void wrote(recorder *r, hth_slice s) { r->written[r->n_written++] = s; }

/* What was written is read by what follows. */
static void order(recorder *r)
{
    if (r->st == HEARTH_OK && r->n_written > 0) hth_tape_order(r->tape, r->written, r->n_written);
    r->n_written = 0;
}

static const hth_program *program(recorder *r, hth_program_id id, const uint32_t *consts)
{
    const hth_program *p = NULL;
    if (r->st == HEARTH_OK) r->st = hth_program_get(r->g->device, id, consts, &p, r->err);
    return p;
}

static void run3(recorder *r, hth_program_id id, const uint32_t *consts, const hth_slice *bind,
                 const void *push, uint32_t gx, uint32_t gy, uint32_t gz)
{
    const hth_program *p = program(r, id, consts);
    if (p) hth_tape_run(r->tape, p, bind, push, gx, gy, gz);
}

static void run(recorder *r, hth_program_id id, const uint32_t *consts, const hth_slice *bind,
                const void *push, uint32_t gx, uint32_t gy)
{
    run3(r, id, consts, bind, push, gx, gy, 1);
}

static hth_slice vector(const recorder *r, hth_gpu_vector v)
{
    return (hth_slice){r->g->vectors, v.at, v.n > 0 ? (uint64_t)v.n * sizeof(float) : sizeof(float)};
}

/* The first n_row rows, of `width` floats. */
static hth_slice first_rows(hth_slice s, uint64_t n_row, uint64_t width)
{
    return (hth_slice){s.of, s.at, n_row * width * sizeof(float)};
}

/* ---- rows --------------------------------------------------------------------------------------------- */

/* Rows [first, first + n) of a part. live: of them those of live neurons; the first row's is `neuron`. */
typedef struct stretch {
    uint32_t first, n, neuron;
    bool live;
} stretch;

static void run_quantised(recorder *r, const hth_gpu_group *group, const hth_gpu_part *p, const stretch *s,
                          const hth_form *form, const hth_gpu_input *in, hth_slice y, bool onto)
{
    uint32_t cols = r->n_row < HTH_GPU_FEW_ROWS ? r->n_row : HTH_GPU_FEW_ROWS;
    uint32_t rows = r->n_row > HTH_GPU_FEW_ROWS ? 4 : 1;
    bool wide = form->block == HTH_ACT_BLOCK_256;
    hth_push_rows_live push = {.rows = {.n_row = s->n,
                                        .n_block = group->n_col / form->block,
                                        .y_stride = group->n_row,
                                        .y_first = p->first + s->first,
                                        .has_bias = p->bias.n > 0,
                                        .at = p->planes.at},
                               .live = {s->first, s->neuron}};
    uint32_t consts[HTH_ROWS_N_CONST] = {LOCAL, cols, rows, r->by_want};
    memcpy(consts + HTH_ROWS_FORM, form, sizeof *form);
    const hth_slice bind[] = {r->g->room.step,
                              {p->weights, 0, 0},
                              wide ? in->q_256 : in->q,
                              wide ? in->d_256 : in->d,
                              wide ? in->sum_256 : in->sum,
                              vector(r, p->bias),
                              y,
                              r->g->room.live};
    run(r,
        s->live ? HTH_PROGRAM_rows_q_live
        : onto  ? HTH_PROGRAM_rows_q_onto
                : HTH_PROGRAM_rows_q,
        consts, bind, &push, over(s->n, LOCAL / 8 * rows), over(r->n_row, cols));
}

static void run_floats(recorder *r, const hth_gpu_group *group, const hth_gpu_part *p, const stretch *s,
                       const hth_gpu_input *in, hth_slice y, bool onto)
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
    const uint32_t consts[] = {LOCAL, cols, rows, r->by_want, (uint32_t)p->type};
    const hth_slice bind[] = {r->g->room.step, {p->weights, 0, 0}, in->x, vector(r, p->bias), y,
                              r->g->room.live};
    run(r,
        s->live ? HTH_PROGRAM_rows_f_live
        : onto  ? HTH_PROGRAM_rows_f_onto
                : HTH_PROGRAM_rows_f,
        consts, bind, &push, over(s->n, LOCAL / 8 * rows), over(r->n_row, cols));
}

/* What a run of some rows of a part reads: its time goes by that. */
static void read_rows(recorder *r, const hth_gpu_part *p, const stretch *s)
{
    if (r->st != HEARTH_OK) return;
    if (s->live) hth_tape_reads_marked(r->tape, p->planes.size / p->n_row, r->g->room.live, s->neuron, s->n);
    else hth_tape_reads(r->tape, p->planes.size * s->n / p->n_row);
}

/* y, or onto y: rows [from, end) of the group times the input; live: those of neurons 0 and on that are. Only
 * live rows may begin in the midst of a part. */
static void some_rows(recorder *r, const hth_gpu_group *group, uint32_t from, uint32_t end, bool live,
                      const hth_gpu_input *in, hth_slice y, bool onto)
{
    for (uint32_t i = 0; i < group->n_part; i++) {
        const hth_gpu_part *p = &group->parts[i];
        uint32_t first = from > p->first ? from : p->first,
                 last = end < p->first + p->n_row ? end : p->first + p->n_row;
        if (first >= last) continue;
        stretch s = {first - p->first, last - first, first - from, live};
        hth_form form;
        assert(live || s.first == 0);
        if (hth_form_of(p->type, &form)) run_quantised(r, group, p, &s, &form, in, y, onto);
        else run_floats(r, group, p, &s, in, y, onto);
        read_rows(r, p, &s);
    }
    wrote(r, y);
}

/* y, or onto y: the group's rows times the input. */
static void rows(recorder *r, const hth_gpu_group *group, const hth_gpu_input *in, hth_slice y, bool onto)
{
    some_rows(r, group, 0, group->n_row, false, in, y, onto);
    order(r);
}

/* ---- inputs -------------------------------------------------------------------------------------------- */

static uint32_t kind_of(const recorder *r)
{
    return r->g->model->hparams.family->norm == HTH_NORM_LAYER ? HTH_KIND_LAYER : HTH_KIND_RMS;
}

/* One run of norm_round: of x, in blocks of `block` (0: none), stored or not. */
static void norm_round(recorder *r, uint32_t kind, const hth_gpu_vector *norm, hth_slice x, uint32_t n,
                       uint32_t block, bool store, const hth_gpu_input *in)
{
    static const hth_gpu_vector no_norm[2];
    const hth_gpu_vector *v = norm ? norm : no_norm;
    bool wide = block == HTH_ACT_BLOCK_256;
    hth_push_norm push = {n, v[1].n > 0, r->g->model->hparams.norm_eps, 1.0f / (float)n};
    if (block == 0 && !store) return;
    const uint32_t consts[] = {kind, block, store, kind == HTH_KIND_NONE ? 0 : r->by_want, LOCAL};
    hth_slice q = wide ? in->q_256 : in->q, d = wide ? in->d_256 : in->d, sum = wide ? in->sum_256 : in->sum;
    const hth_slice bind[] = {r->g->room.step, x, vector(r, v[0]), vector(r, v[1]), in->x, q, d, sum};
    run(r, HTH_PROGRAM_norm_round, consts, bind, &push,
        kind == HTH_KIND_NONE ? over(n, HTH_ROUND_STRETCH) : 1, r->n_row);
    if (store) wrote(r, in->x);
    if (block > 0) wrote(r, q), wrote(r, d), wrote(r, sum);
}

static uint32_t first_block(const hth_gpu_group *group)
{
    return group->wants_32 ? HTH_ACT_BLOCK : group->wants_256 ? HTH_ACT_BLOCK_256 : 0;
}

/* The second form of an input that stands in in->x, where a group of both kinds wants it. */
static void round_again(recorder *r, const hth_gpu_group *group, const hth_gpu_input *in)
{
    order(r);
    if (!group->wants_32 || !group->wants_256) return;
    hth_gpu_input from = *in;
    norm_round(r, HTH_KIND_NONE, NULL, in->x, group->n_col, HTH_ACT_BLOCK_256, false, &from);
    order(r);
}

/* What a group wants of norm(x), and the floats themselves for others. */
static void normed_input(recorder *r, const hth_gpu_vector norm[2], hth_slice x, const hth_gpu_group *group,
                         bool store)
{
    const hth_gpu_input *in = &r->g->room.input;
    bool both = group->wants_32 && group->wants_256;
    norm_round(r, kind_of(r), norm, x, r->g->model->hparams.d_model, first_block(group),
               store || group->wants_floats || both, in);
    round_again(r, group, in);
}

/* What a group wants of x. */
static hth_gpu_input plain_input(recorder *r, hth_slice x, const hth_gpu_group *group)
{
    hth_gpu_input in = r->g->room.input;
    in.x = x;
    if (group->wants_32)
        norm_round(r, HTH_KIND_NONE, NULL, x, group->n_col, HTH_ACT_BLOCK, false, &r->g->room.input);
    if (group->wants_256)
        norm_round(r, HTH_KIND_NONE, NULL, x, group->n_col, HTH_ACT_BLOCK_256, false, &r->g->room.input);
    order(r);
    return in;
}

/* ---- attention ---------------------------------------------------------------------------------------- */

static void rope_store(recorder *r, const hth_layer *l, const hth_gpu_layer *to)
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
                               (uint32_t)r->g->place.kv, LOCAL};
    const hth_slice bind[] = {room->step, room->qkv,  room->table,  vector(r, to->head_norms),
                              to->keys,   to->values, room->rounded};
    run(r, HTH_PROGRAM_rope_store, consts, bind, &push, l->n_head + 2 * l->n_head_kv, r->n_row);
    wrote(r, room->qkv), wrote(r, to->keys), wrote(r, to->values), wrote(r, room->rounded);
    order(r);
}

static void attend(recorder *r, uint32_t i_layer, const hth_layer *l, const hth_gpu_layer *to)
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
                               LOCAL};
    const hth_slice bind[] = {room->step,       room->qkv,  room->rounded,
                              to->keys,         to->values, by_split ? room->splits : room->heads,
                              room->split_parts};
    const hth_program *p = program(r, HTH_PROGRAM_attend, consts);
    if (!p) return;
    if (by_split) {
        hth_slice grid = {room->grids.of, room->grids.at + 16 * i_layer, 12};
        hth_tape_run_at(r->tape, p, bind, &push, grid);
        /* Keys and values of a split, at most. */
        hth_tape_reads(r->tape, 2 * HTH_ATTEND_SPLIT * sizeof(uint32_t) *
                                    hth_gpu_cache_words(r->g->place.kv, h->d_head));
        wrote(r, room->splits), wrote(r, room->split_parts);
        order(r);
        hth_push_join join = {.n_head = l->n_head, .window = l->window, .n_split = room->n_split};
        run(r, HTH_PROGRAM_attend_join, (const uint32_t[]){h->d_head, LOCAL},
            (const hth_slice[]){room->step, room->splits, room->split_parts, room->heads}, &join, l->n_head,
            1);
    } else {
        hth_tape_run(r->tape, p, bind, &push, 1, l->n_head_kv, r->n_row);
    }
    wrote(r, room->heads);
    order(r);
}

static void attention(recorder *r, uint32_t i_layer, hth_slice y, bool onto)
{
    const hth_layer *l = &r->g->model->layers[i_layer];
    const hth_gpu_layer *to = &r->g->layers[i_layer];
    normed_input(r, to->attn_norm, r->g->room.x, &to->qkv, false);
    rows(r, &to->qkv, &r->g->room.input, r->g->room.qkv, false);
    rope_store(r, l, to);
    attend(r, i_layer, l, to);
    hth_gpu_input in = plain_input(r, r->g->room.heads, &to->o);
    rows(r, &to->o, &in, y, onto);
}

/* ---- feed-forward network ----------------------------------------------------------------------------- */

/* f of values, gated or not, in the forms that a group wants; store: floats too, into input.x. */
typedef struct activation {
    hth_activation kind;
    bool gated, store;
    uint32_t n, select, score_stride;
    hth_slice from;
    hth_gpu_vector floors;
    float least;
} activation;

static void activate(recorder *r, const activation *a, const hth_gpu_group *group)
{
    const hth_gpu_room *room = &r->g->room;
    const hth_gpu_input *in = &room->input;
    uint32_t block = group ? first_block(group) : 0;
    bool wide = block == HTH_ACT_BLOCK_256, both = group && group->wants_32 && group->wants_256;
    bool store = a->store || both || (group && group->wants_floats);
    hth_push_activate push = {a->n, a->score_stride, a->least};
    const uint32_t consts[] = {(uint32_t)a->kind, a->gated, block, store, LOCAL, a->select};
    hth_slice q = wide ? in->q_256 : in->q, d = wide ? in->d_256 : in->d, sum = wide ? in->sum_256 : in->sum;
    const hth_slice bind[] = {room->step, a->from, room->scores, vector(r, a->floors), in->x, q, d, sum};
    if (a->n > 0)
        run(r, HTH_PROGRAM_activate_round, consts, bind, &push, over(a->n, HTH_ROUND_STRETCH), r->n_row);
    if (store) wrote(r, in->x);
    if (block > 0) wrote(r, q), wrote(r, d), wrote(r, sum);
    if (group) round_again(r, group, in);
    else order(r);
}

/* Scores of all neurons, the host's among them. */
static void predict(recorder *r, uint32_t i_layer)
{
    const hth_gpu_room *room = &r->g->room;
    const hth_gpu_layer *to = &r->g->layers[i_layer];
    hth_gpu_input in = room->input;
    activation relu = {.kind = HTH_ACTIVATION_RELU, .n = to->predict_in.n_row, .from = room->marks};
    if (to->predict_in.n_part == 0) return;
    if (r->g->model->predicts_from_residual) in = plain_input(r, room->x, &to->predict_in);
    else normed_input(r, to->ffn_norm, room->x, &to->predict_in, false);
    rows(r, &to->predict_in, &in, room->marks, false);
    activate(r, &relu, &to->predict_out);
    rows(r, &to->predict_out, &room->input, room->scores, false);
}

/* Which neurons may fire: by scores, and by_half by what their first half is. */
static void mark_live(recorder *r, const activation *a, bool by_half, uint32_t stride)
{
    const hth_gpu_room *room = &r->g->room;
    hth_push_mark push = {a->n, stride, a->score_stride, a->least};
    const uint32_t consts[] = {(uint32_t)a->kind, a->select, by_half, LOCAL};
    const hth_slice bind[] = {room->step, a->from, room->scores, vector(r, a->floors), room->live};
    order(r);
    run(r, HTH_PROGRAM_mark_live, consts, bind, &push, over(a->n, LOCAL), 1);
    wrote(r, room->live);
    order(r);
    r->marked = true;
}

/* Gate and up: in steps of few rows of those neurons alone that nothing has ruled out by then, as on the CPU
 * (run/ffn.c). What is left out keeps what was there; the activation makes zeros of it. */
static void neurons(recorder *r, const hth_gpu_group *group, const activation *a)
{
    const hth_gpu_input *in = &r->g->room.input;
    bool few = r->n_row <= HTH_GPU_FEW_ROWS && a->n > 0, by_score = a->select == HTH_SELECT_PREDICTOR;
    bool looks = r->g->place.selector != HEARTH_SELECTOR_DENSE && hth_activation_is_sparse(a->kind);
    bool by_half = a->gated && (looks || a->select == HTH_SELECT_THRESHOLD);
    if (!few || !(by_score || by_half)) {
        rows(r, group, in, a->from, false);
        return;
    }
    if (by_score) mark_live(r, a, false, group->n_row);
    some_rows(r, group, 0, a->n, by_score, in, a->from, false);
    if (by_half) mark_live(r, a, true, group->n_row);
    if (a->gated) some_rows(r, group, a->n, 2 * a->n, true, in, a->from, false);
    order(r);
}

/* What the host needs for its own neurons, which stands in input.x and scores. */
static void write_letter(recorder *r, const hth_gpu_layer *to)
{
    const hth_gpu_room *room = &r->g->room;
    const hth_hparams *h = &r->g->model->hparams;
    if (r->st != HEARTH_OK) return;
    hth_tape_copy(r->tape, first_rows(room->input.x, r->n_row, h->d_model),
                  first_rows(room->mail, r->n_row, h->d_model));
    if (to->predict_out.n_part > 0)
        hth_tape_copy(r->tape, first_rows(room->scores, r->n_row, to->predict_out.n_row),
                      first_rows(room->mail_scores, r->n_row, to->predict_out.n_row));
}

/* What one part's neurons give to tokens [first_tok, first_tok + n): integers, or chains of floats. */
static void down_of_part(recorder *r, const hth_gpu_layer *to, const hth_gpu_part *p, hth_slice top,
                         uint32_t first_tok, uint32_t n)
{
    const hth_gpu_room *room = &r->g->room;
    hth_slice weights = {p->weights, 0, 0};
    uint32_t n_out = r->g->model->hparams.d_model, cols = n < 4 ? 1 : 4;
    hth_form form;
    if (hth_form_of(p->type, &form)) {
        hth_push_down push = {.n_neuron = p->n_row,
                              .n_block = n_out / form.block,
                              .stride = to->n_hot,
                              .n_split = over(to->n_hot, HTH_DOWN_SPLIT),
                              .first = p->first,
                              .first_tok = first_tok,
                              .at = p->planes.at};
        uint32_t consts[HTH_DOWN_N_CONST] = {LOCAL, cols};
        memcpy(consts + HTH_DOWN_FORM, &form, sizeof form);
        const hth_slice bind[] = {room->step, weights, room->input.x, top, room->sums};
        run3(r, HTH_PROGRAM_down_q, consts, bind, &push, over((uint64_t)n_out * form.low_bits / 128, LOCAL),
             over(p->n_row, HTH_DOWN_SPLIT), over(n, cols));
        return;
    }
    hth_push_down_f push = {p->n_row, n_out, to->n_hot, over(to->n_hot, HTH_DOWN_GROUP), p->first, first_tok};
    const hth_slice bind[] = {room->step, weights, room->input.x, room->sums};
    run3(r, HTH_PROGRAM_down_f, (const uint32_t[]){LOCAL, (uint32_t)p->type}, bind, &push,
         over(over(hth_type_row_size(p->type, n_out), 4), LOCAL), over(p->n_row, HTH_DOWN_GROUP), n);
}

/* Sums of tokens [first_tok, first_tok + n), of both sides where the host has a part, to y. */
static void join_sums(recorder *r, uint32_t i_layer, hth_slice top, uint32_t first_tok, uint32_t n,
                      hth_slice y, bool onto)
{
    const hth_gpu_room *room = &r->g->room;
    const hth_gpu_layer *to = &r->g->layers[i_layer];
    bool floats = hth_type_act_block(r->g->model->layers[i_layer].neurons.rows.type) == 0;
    bool hand = to->n_hot < r->g->model->layers[i_layer].d_ff;
    uint32_t n_out = r->g->model->hparams.d_model;
    uint32_t n_split = over(to->n_hot, floats ? HTH_DOWN_GROUP : HTH_DOWN_SPLIT);
    hth_push_sums push = {n_out, n_split, to->down_bias.n > 0, first_tok};
    const hth_slice bind[] = {room->step,
                              room->sums,
                              top,
                              hand ? room->host_sums : vector(r, to->down_bias),
                              vector(r, to->down_bias),
                              y};
    run(r, onto ? HTH_PROGRAM_down_join_onto : HTH_PROGRAM_down_join, (const uint32_t[]){LOCAL, floats, hand},
        bind, &push, over(n_out, LOCAL), n);
    wrote(r, y);
    order(r);
}

/* Down of the hidden values in input.x. As many tokens at once as their sums have room; those of several
 * stages wait for the host before the first. */
static void down_by_neurons(recorder *r, uint32_t i_layer, hth_slice y, bool onto)
{
    const hth_layer *l = &r->g->model->layers[i_layer];
    const hth_gpu_layer *to = &r->g->layers[i_layer];
    const hth_gpu_room *room = &r->g->room;
    bool hand = to->n_hot < l->d_ff;
    bool in_stages = r->n_row > room->n_stage;
    hth_push_top push = {to->n_hot, to->n_hot, l->neurons.hidden_top, to->scale_top};
    hth_slice top = hand && r->careful ? room->given_top : room->top;
    run(r, HTH_PROGRAM_down_top, (const uint32_t[]){LOCAL},
        (const hth_slice[]){room->step, room->input.x, room->top}, &push, 1, r->n_row);
    wrote(r, room->top);
    order(r);
    if (hand && r->st == HEARTH_OK) {
        hth_slice from = {room->top.of, room->top.at, 8 * (uint64_t)r->n_row};
        hth_slice tops = {room->tops.of, room->tops.at + 8 * (uint64_t)i_layer * r->g->place.n_row,
                          from.bytes};
        hth_tape_copy(r->tape, from, tops);
    }
    if (hand && r->careful) r->n_letter++;
    if (hand && (r->careful || in_stages)) r->n_answer++, cut(r);
    for (uint32_t first = 0, n; first < r->n_row; first += n) {
        n = r->n_row - first < room->n_stage ? r->n_row - first : room->n_stage;
        for (uint32_t i = 0; i < to->down.n_part; i++) {
            const hth_gpu_part *p = &to->down.parts[i];
            down_of_part(r, to, p, top, first, n);
            read_rows(r, p, &(stretch){0, p->n_row, p->first, r->marked});
        }
        wrote(r, room->sums);
        order(r);
        if (hand && !r->careful && !in_stages) r->n_answer++, cut(r);
        join_sums(r, i_layer, top, first, n, y, onto);
    }
}

static activation hidden_of(const recorder *r, uint32_t i_layer)
{
    const hth_layer *l = &r->g->model->layers[i_layer];
    const hth_gpu_layer *to = &r->g->layers[i_layer];
    hearth_selector selector = r->g->place.selector;
    return (activation){.kind = r->g->model->hparams.activation,
                        .gated = l->gate.n_row > 0,
                        .store = to->by_neurons,
                        .n = to->by_neurons ? to->n_hot : l->d_ff,
                        .select = selector == HEARTH_SELECTOR_PREDICTOR   ? HTH_SELECT_PREDICTOR
                                  : selector == HEARTH_SELECTOR_THRESHOLD ? HTH_SELECT_THRESHOLD
                                                                          : HTH_SELECT_ALL,
                        .from = r->g->room.gate_up,
                        .score_stride = to->predict_out.n_row,
                        .floors = to->floors,
                        .least = l->predictor.threshold};
}

static void ffn(recorder *r, uint32_t i_layer, hth_slice y, bool onto)
{
    const hth_gpu_layer *to = &r->g->layers[i_layer];
    bool hand = to->n_hot < r->g->model->layers[i_layer].d_ff;
    activation hidden = hidden_of(r, i_layer);
    predict(r, i_layer);
    normed_input(r, to->ffn_norm, r->g->room.x, &to->gate_up, hand);
    if (hand) write_letter(r, to);
    if (hand && !r->careful) r->n_letter++, cut(r);
    r->marked = false;
    neurons(r, &to->gate_up, &hidden);
    activate(r, &hidden, to->by_neurons ? NULL : &to->down);
    if (to->by_neurons) down_by_neurons(r, i_layer, y, onto);
    else rows(r, &to->down, &r->g->room.input, y, onto);
}

/* ---- a layer, the head -------------------------------------------------------------------------------- */

/* x takes what a block gives, normed where the family does that. */
static void add_to_stream(recorder *r, hth_slice block, const hth_gpu_vector post[2])
{
    uint32_t n = r->g->model->hparams.d_model;
    hth_push_norm push = {n, post[1].n > 0, r->g->model->hparams.norm_eps, 1.0f / (float)n};
    const uint32_t consts[] = {post[0].n > 0 ? kind_of(r) : HTH_KIND_NONE, LOCAL};
    const hth_slice bind[] = {r->g->room.step, r->g->room.x, block, vector(r, post[0]), vector(r, post[1])};
    run(r, HTH_PROGRAM_norm_add, consts, bind, &push, 1, r->n_row);
    wrote(r, r->g->room.x);
    order(r);
}

static void layer(recorder *r, uint32_t i_layer)
{
    const hth_gpu_room *room = &r->g->room;
    const hth_gpu_layer *l = &r->g->layers[i_layer];
    if (r->g->model->hparams.family->parallel) {
        attention(r, i_layer, room->held, false);
        ffn(r, i_layer, room->out, false);
        add_to_stream(r, room->held, l->attn_post);
        add_to_stream(r, room->out, l->ffn_post);
        return;
    }
    bool onto = l->attn_post[0].n == 0;
    attention(r, i_layer, onto ? room->x : room->out, onto);
    if (!onto) add_to_stream(r, room->out, l->attn_post);
    onto = l->ffn_post[0].n == 0;
    ffn(r, i_layer, onto ? room->x : room->out, onto);
    if (!onto) add_to_stream(r, room->out, l->ffn_post);
}

static void layers(recorder *r)
{
    const hth_gpu_room *room = &r->g->room;
    uint64_t d = r->g->model->hparams.d_model;
    hth_tape_copy(r->tape, first_rows(room->embedded, r->n_row, d), first_rows(room->x, r->n_row, d));
    wrote(r, room->x);
    order(r);
    for (uint32_t i = 0; i < r->g->place.n_layer; i++) {
        layer(r, i);
        if (r->n_row > HTH_GPU_FEW_ROWS && i + 1 < r->g->place.n_layer) cut(r);
    }
    if (!r->g->place.head)
        hth_tape_copy(r->tape, first_rows(room->x, r->n_row, d), first_rows(room->result, r->n_row, d));
}

static void head(recorder *r)
{
    const hth_gpu_room *room = &r->g->room;
    const hth_hparams *h = &r->g->model->hparams;
    r->by_want = 1;
    normed_input(r, r->g->output_norm, room->x, &r->g->head, false);
    rows(r, &r->g->head, &room->input, room->logits, false);
    if (h->logit_cap != 0.0f) {
        hth_push_cap push = {h->n_vocab, h->logit_cap, 1.0f / h->logit_cap};
        run(r, HTH_PROGRAM_soft_cap, NULL, (const hth_slice[]){room->step, room->logits}, &push,
            over(h->n_vocab, HTH_ROUND_STRETCH), r->n_row);
        wrote(r, room->logits);
        order(r);
    }
    hth_tape_copy(r->tape, first_rows(room->logits, r->n_row, h->n_vocab),
                  first_rows(room->result, r->n_row, h->n_vocab));
}

static hearth_status record(hth_gpu *g, uint32_t n_row, bool careful, hth_gpu_tapes *tapes, hearth_error *err)
{
    recorder r = {.g = g, .tapes = tapes, .n_row = n_row, .careful = careful, .err = err};
    tapes->cut = hth_alloc(hth_gpu_most_tapes(g), sizeof *tapes->cut);
    if (!tapes->cut) return hth_fail_memory(err, hth_gpu_most_tapes(g) * sizeof *tapes->cut, "tapes");
    begin(&r);
    if (r.st == HEARTH_OK) layers(&r);
    end(&r);
    return r.st;
}

static hearth_status record_head(hth_gpu *g, uint32_t n_row, hth_tape **tape, hearth_error *err)
{
    hth_gpu_cut only;
    hth_gpu_tapes one = {.cut = &only};
    recorder r = {.g = g, .tapes = &one, .n_row = n_row, .err = err};
    begin(&r);
    *tape = r.tape;
    if (r.st == HEARTH_OK) head(&r);
    end(&r);
    return r.st;
}

hearth_status hth_gpu_record(hth_gpu *g, hearth_error *err)
{
    hearth_status st = HEARTH_OK;
    uint32_t rows = g->place.n_row < HTH_GPU_HEAD_ROWS ? g->place.n_row : HTH_GPU_HEAD_ROWS;
    for (int c = 0; st == HEARTH_OK && c < HTH_GPU_N_CLASS; c++)
        st = record(g, hth_gpu_class_rows(g, c), false, &g->tapes[c], err);
    if (st == HEARTH_OK && g->n_hand > 0) st = record(g, 1, true, &g->careful, err);
    if (st == HEARTH_OK && g->place.head) st = record_head(g, 1, &g->head_tapes[0], err);
    return st == HEARTH_OK && g->place.head ? record_head(g, rows, &g->head_tapes[1], err) : st;
}

uint32_t hth_gpu_most_tapes(const hth_gpu *g) { return 2 * g->n_hand + g->place.n_layer + 1; }

static void free_tapes(hth_gpu_tapes *tapes)
{
    for (uint32_t i = 0; i < tapes->n; i++) hth_tape_free(tapes->cut[i].tape);
    hth_free(tapes->cut);
}

void hth_gpu_tapes_free(hth_gpu *g)
{
    for (int c = 0; c < HTH_GPU_N_CLASS; c++) free_tapes(&g->tapes[c]);
    free_tapes(&g->careful);
    for (int i = 0; i < 2; i++) hth_tape_free(g->head_tapes[i]);
}
