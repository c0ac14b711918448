/* The feed-forward network on tapes: gate, up, activation and down of the neurons that lie on the device; the
 * letter to the host, which computes the others, and its answer; or the others' weights, as they pass
 * through. */
#include "run/gpu/recorder.h"

#include <string.h>

/* ---- hidden values ------------------------------------------------------------------------------------ */

/* f of values, gated or not, in the forms that a group wants; store: floats too, into input.x. */
typedef struct activation {
    hth_activation kind;
    bool gated, store;
    uint32_t n, select, score_stride;
    hth_slice from;
    hth_gpu_vector floors;
    float least;
} activation;

static void activate(hth_recorder *r, const activation *a, const hth_gpu_group *group)
{
    const hth_gpu_room *room = &r->g->room;
    const hth_gpu_input *in = &room->input;
    uint32_t block = group ? hth_rec_first_block(group) : 0;
    bool wide = block == HTH_ACT_BLOCK_256, both = group && group->wants_32 && group->wants_256;
    bool store = a->store || both || (group && group->wants_floats);
    hth_push_activate push = {a->n, a->score_stride, a->least};
    const uint32_t consts[] = {(uint32_t)a->kind, a->gated, block, store, HTH_REC_LOCAL, a->select};
    hth_slice q = wide ? in->q_256 : in->q, d = wide ? in->d_256 : in->d, sum = wide ? in->sum_256 : in->sum;
    const hth_slice bind[] = {room->step, a->from, room->scores, hth_rec_vector(r, a->floors), in->x,
                              q,          d,       sum};
    if (a->n > 0)
        hth_rec_run(r, HTH_PROGRAM_activate_round, consts, bind, &push, hth_rec_over(a->n, HTH_ROUND_STRETCH),
                    r->n_row);
    if (store) hth_rec_wrote(r, in->x);
    if (block > 0) hth_rec_wrote(r, q), hth_rec_wrote(r, d), hth_rec_wrote(r, sum);
    if (group) hth_rec_round_again(r, group, in);
    else hth_rec_order(r);
}

/* Scores of all neurons, the host's among them. */
static void predict(hth_recorder *r, uint32_t i_layer)
{
    const hth_gpu_room *room = &r->g->room;
    const hth_gpu_layer *to = &r->g->layers[i_layer];
    hth_gpu_input in = room->input;
    activation relu = {.kind = HTH_ACTIVATION_RELU, .n = to->predict_in.n_row, .from = room->marks};
    if (to->predict_in.n_part == 0) return;
    if (r->g->model->predicts_from_residual) in = hth_rec_plain_input(r, room->x, &to->predict_in);
    else hth_rec_normed_input(r, to->ffn_norm, room->x, &to->predict_in, false);
    hth_rec_rows(r, &to->predict_in, &in, room->marks, false);
    activate(r, &relu, &to->predict_out);
    hth_rec_rows(r, &to->predict_out, &room->input, room->scores, false);
}

/* Which neurons may fire: by scores, and by_half by what their first half is. */
static void mark_live(hth_recorder *r, const activation *a, bool by_half, uint32_t stride)
{
    const hth_gpu_room *room = &r->g->room;
    hth_push_mark push = {a->n, stride, a->score_stride, a->least};
    const uint32_t consts[] = {(uint32_t)a->kind, a->select, by_half, HTH_REC_LOCAL};
    const hth_slice bind[] = {room->step, a->from, room->scores, hth_rec_vector(r, a->floors), room->live};
    hth_rec_order(r);
    hth_rec_run(r, HTH_PROGRAM_mark_live, consts, bind, &push, hth_rec_over(a->n, HTH_REC_LOCAL), 1);
    hth_rec_wrote(r, room->live);
    hth_rec_order(r);
    r->marked = true;
}

/* Gate and up: in steps of few rows of those neurons alone that nothing has ruled out by then, as on the CPU
 * (run/ffn.c). What is left out keeps what was there; the activation makes zeros of it. */
static void neurons(hth_recorder *r, const hth_gpu_group *group, const activation *a)
{
    const hth_gpu_input *in = &r->g->room.input;
    bool few = r->n_row <= HTH_GPU_FEW_ROWS && a->n > 0, by_score = a->select == HTH_SELECT_PREDICTOR;
    bool looks = r->g->place.selector != HEARTH_SELECTOR_DENSE && hth_activation_is_sparse(a->kind);
    bool by_half = a->gated && (looks || a->select == HTH_SELECT_THRESHOLD);
    if (!few || !(by_score || by_half)) {
        hth_rec_rows(r, group, in, a->from, false);
        return;
    }
    if (by_score) mark_live(r, a, false, group->n_row);
    hth_rec_some_rows(r, group, 0, a->n, by_score, in, a->from, false);
    if (by_half) mark_live(r, a, true, group->n_row);
    if (a->gated) hth_rec_some_rows(r, group, a->n, 2 * a->n, true, in, a->from, false);
    hth_rec_order(r);
}

/* What the host needs for its own neurons, which stands in input.x and scores. */
static void write_letter(hth_recorder *r, const hth_gpu_layer *to)
{
    const hth_gpu_room *room = &r->g->room;
    const hth_hparams *h = &r->g->model->hparams;
    if (r->st != HEARTH_OK) return;
    hth_tape_copy(r->tape, hth_rec_first_rows(room->input.x, r->n_row, h->d_model),
                  hth_rec_first_rows(room->mail, r->n_row, h->d_model));
    if (to->predict_out.n_part > 0)
        hth_tape_copy(r->tape, hth_rec_first_rows(room->scores, r->n_row, to->predict_out.n_row),
                      hth_rec_first_rows(room->mail_scores, r->n_row, to->predict_out.n_row));
}

/* Hidden values from a neuron on, and the splits of neurons that have room among the sums of a token. */
typedef struct values {
    hth_slice h;
    uint32_t stride, n_split;
} values;

/* What some neurons give to tokens [first_tok, first_tok + n): integers, or chains of floats. */
static void run_down(hth_recorder *r, const values *from, const hth_gpu_part *p, hth_slice top,
                     uint32_t first_tok, uint32_t n)
{
    const hth_gpu_room *room = &r->g->room;
    hth_slice weights = {p->weights, p->at, p->planes.size};
    uint32_t n_out = r->g->model->hparams.d_model, cols = n < 4 ? 1 : 4;
    hth_form form;
    if (hth_form_of(p->type, &form)) {
        hth_push_down push = {.n_neuron = p->n_row,
                              .n_block = n_out / form.block,
                              .stride = from->stride,
                              .n_split = from->n_split,
                              .first = p->first,
                              .first_tok = first_tok,
                              .at = p->planes.at};
        uint32_t consts[HTH_DOWN_N_CONST] = {HTH_REC_LOCAL, cols};
        memcpy(consts + HTH_DOWN_FORM, &form, sizeof form);
        const hth_slice bind[] = {room->step, weights, from->h, top, room->sums};
        hth_rec_run_3(r, HTH_PROGRAM_down_q, consts, bind, &push,
                      hth_rec_over((uint64_t)n_out * form.low_bits / 128, HTH_REC_LOCAL),
                      hth_rec_over(p->n_row, HTH_DOWN_SPLIT), hth_rec_over(n, cols));
        return;
    }
    hth_push_down_f push = {p->n_row, n_out, from->stride, from->n_split, p->first, first_tok};
    const hth_slice bind[] = {room->step, weights, from->h, room->sums};
    hth_rec_run_3(r, HTH_PROGRAM_down_f, (const uint32_t[]){HTH_REC_LOCAL, (uint32_t)p->type}, bind, &push,
                  hth_rec_over(hth_rec_over(hth_type_row_size(p->type, n_out), 4), HTH_REC_LOCAL),
                  hth_rec_over(p->n_row, HTH_DOWN_GROUP), n);
}

/* The same of a part's neurons, in runs of whole splits and groups. */
static void down_of_part(hth_recorder *r, const values *from, const hth_gpu_part *p, hth_slice top,
                         uint32_t first_tok, uint32_t n)
{
    uint32_t n_out = r->g->model->hparams.d_model;
    uint64_t work = hth_rec_row_work(n_out, n, HTH_REC_BY_WORDS);
    uint32_t step = hth_rec_at_once(r, p->n_row, work, HTH_DOWN_GROUP);
    for (uint32_t i = 0, k; i < p->n_row; i += k) {
        k = p->n_row - i < step ? p->n_row - i : step;
        const hth_gpu_part some = hth_rec_rows_of(p, n_out, i, k);
        hth_rec_take(r, k * work);
        run_down(r, from, &some, top, first_tok, n);
        hth_rec_reads(r, p, &(hth_rec_stretch){i, k, p->first + i, r->marked});
    }
}

/* What makes the output of a layer: splits in room.sums, and 64-bit sums besides. */
typedef struct parts {
    hth_slice top, wide;
    uint32_t n_split;
    bool floats, has_wide;
} parts;

/* Sums of tokens [first_tok, first_tok + n) to y. */
static void join_sums(hth_recorder *r, uint32_t i_layer, const parts *p, uint32_t first_tok, uint32_t n,
                      hth_slice y, bool onto)
{
    hth_gpu_vector bias = r->g->layers[i_layer].down_bias;
    uint32_t n_out = r->g->model->hparams.d_model;
    hth_push_sums push = {n_out, p->n_split, bias.n > 0, first_tok};
    hth_slice wide = p->has_wide ? p->wide : hth_rec_vector(r, bias);
    const hth_slice bind[] = {r->g->room.step, r->g->room.sums, p->top, wide, hth_rec_vector(r, bias), y};
    hth_rec_run(r, onto ? HTH_PROGRAM_down_join_onto : HTH_PROGRAM_down_join,
                (const uint32_t[]){HTH_REC_LOCAL, p->floats, p->has_wide}, bind, &push,
                hth_rec_over(n_out, HTH_REC_LOCAL), n);
    hth_rec_wrote(r, y);
    hth_rec_order(r);
}

/* What follows needs the sums of the host's neurons. */
static void await_host(hth_recorder *r)
{
    hth_rec_ask(r, r->careful ? HTH_GPU_AGREE : HTH_GPU_ANSWER, r->n_hand++, r->n_letter);
    hth_rec_cut(r);
}

/* 2^k of each token, by the device's neurons, whose values are input.x; told: also to the host. */
static void choose_scales(hth_recorder *r, uint32_t i_layer, uint32_t n_neuron, bool told)
{
    const hth_gpu_room *room = &r->g->room;
    hth_push_top push = {n_neuron, n_neuron, r->g->model->layers[i_layer].neurons.hidden_top,
                         r->g->layers[i_layer].scale_top};
    hth_rec_run(r, HTH_PROGRAM_down_top, (const uint32_t[]){HTH_REC_LOCAL},
                (const hth_slice[]){room->step, room->input.x, room->top}, &push, 1, r->n_row);
    hth_rec_wrote(r, room->top);
    hth_rec_order(r);
    if (!told || r->st != HEARTH_OK) return;
    hth_slice here = {room->top.of, room->top.at, 8 * (uint64_t)r->n_row};
    hth_slice tops = {room->tops.of, room->tops.at + 8 * (uint64_t)i_layer * r->g->place.n_row, here.bytes};
    hth_tape_copy(r->tape, here, tops);
}

/* Down of the hidden values in input.x. As many tokens at once as their sums have room; those of several
 * stages wait for the host before the first. */
static void down_by_neurons(hth_recorder *r, uint32_t i_layer, hth_slice y, bool onto)
{
    const hth_layer *l = &r->g->model->layers[i_layer];
    const hth_gpu_layer *to = &r->g->layers[i_layer];
    const hth_gpu_room *room = &r->g->room;
    bool hand = to->n_hot < l->d_ff;
    bool in_stages = r->n_row > room->n_stage;
    bool floats = hth_type_act_block(l->neurons.rows.type) == 0;
    values from = {room->input.x, to->n_hot,
                   hth_rec_over(to->n_hot, floats ? HTH_DOWN_GROUP : HTH_DOWN_SPLIT)};
    const parts both = {.top = hand && r->careful ? room->given_top : room->top,
                        .wide = room->host_sums,
                        .n_split = from.n_split,
                        .floats = floats,
                        .has_wide = hand};
    choose_scales(r, i_layer, to->n_hot, hand);
    if (hand && r->careful) r->n_letter++;
    if (hand && (r->careful || in_stages)) await_host(r);
    for (uint32_t first = 0, n; first < r->n_row; first += n) {
        n = r->n_row - first < room->n_stage ? r->n_row - first : room->n_stage;
        for (uint32_t i = 0; i < to->down.n_part; i++)
            down_of_part(r, &from, &to->down.parts[i], both.top, first, n);
        hth_rec_wrote(r, room->sums);
        hth_rec_order(r);
        if (hand && !r->careful && !in_stages) await_host(r);
        join_sums(r, i_layer, &both, first, n, y, onto);
    }
}

static activation hidden_of(const hth_recorder *r, uint32_t i_layer)
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

/* ---- weights that pass through ------------------------------------------------------------------------ */

static uint32_t n_passing(const hth_recorder *r, const hth_gpu_layer *to)
{
    return hth_gpu_n_passing(to, r->passage);
}

/* The host computes its shares of the pieces up to i, each as soon as it has the layer's inputs. */
static void ask_shares(hth_recorder *r, uint32_t i)
{
    for (; r->n_share <= i; r->n_share++)
        if (r->passage->pieces[r->n_share].here.d_ff > 0)
            hth_rec_ask(r, HTH_GPU_SHARE, r->n_share, r->layer_letter);
}

/* Piece i to its slot, as soon as the host has staged it. Before that the host computes its share beside the
 * piece whose staging this one gets: so there is always a staged piece that it does not wait for. */
static void fetch(hth_recorder *r, uint32_t i)
{
    hth_slice from = r->g->room.staging[i % 2], to = r->g->room.slots[i % 2];
    from.bytes = to.bytes = r->passage->pieces[i].planes.size;
    if (i >= 2) ask_shares(r, i - 2);
    hth_rec_ask(r, HTH_GPU_STAGE, i, r->copied[i % 2]);
    hth_rec_cut(r);
    if (r->st == HEARTH_OK) hth_tape_copy(r->tape, from, to);
    r->copied[i % 2] = ++r->n_letter; /* its staging is free when this tape is done */
}

/* The next piece, which is there; the one behind it sets out beside what it is used for. */
static hth_gpu_part next_piece(hth_recorder *r, const hth_gpu_piece **piece)
{
    uint32_t i = r->n_piece++;
    hth_slice slot = r->g->room.slots[i % 2];
    const hth_gpu_piece *p = *piece = &r->passage->pieces[i];
    if (i == 0) fetch(r, 0);
    if (i + 1 < r->passage->n_piece) fetch(r, i + 1);
    else hth_rec_cut(r);
    return (hth_gpu_part){.type = p->rows->type,
                          .n_row = p->n_row,
                          .planes = p->planes,
                          .weights = slot.of,
                          .at = slot.at,
                          .bias = p->bias};
}

/* Some rows of a part become results of all, from the part's first on. */
static void run_part(hth_recorder *r, const hth_gpu_group *all, const hth_gpu_part *p, uint32_t first,
                     uint32_t n)
{
    const hth_rec_stretch some = {first, n, 0, false};
    hth_rec_part(r, all, p, &some, &r->g->room.input, r->g->room.gate_up, false);
}

/* Rows [first, first + n) of a group that lie here become results from `to` on of all. */
static void run_resident(hth_recorder *r, const hth_gpu_group *all, const hth_gpu_group *group,
                         uint32_t first, uint32_t n, uint32_t to)
{
    for (uint32_t i = 0; i < group->n_part; i++) {
        hth_gpu_part p = group->parts[i];
        uint32_t from = first > p.first ? first : p.first, end = p.first + p.n_row, skipped = from - p.first;
        if (end > first + n) end = first + n;
        p.first += to - first;
        if (from < end) run_part(r, all, &p, skipped, end - from);
    }
}

/* Gate, or up, of the neurons that are computed here: those that lie here, and all pieces of the matrix. */
static void run_half(hth_recorder *r, const hth_gpu_group *all, const hth_gpu_layer *to, uint32_t half)
{
    uint32_t n_cold = n_passing(r, to), first = half * (to->n_hot + n_cold);
    run_resident(r, all, &to->gate_up, half * to->n_hot, to->n_hot, first);
    for (uint32_t n = 0; n < n_cold;) {
        const hth_gpu_piece *piece;
        hth_gpu_part p = next_piece(r, &piece);
        p.first = first + piece->neuron;
        run_part(r, all, &p, 0, p.n_row);
        n += p.n_row;
    }
    hth_rec_wrote(r, r->g->room.gate_up);
}

/* Sums of tokens from first_tok on (n of them), or the host's, to those in 64 bits. */
static void add_sums(hth_recorder *r, const hth_push_gather *push, bool host, uint32_t n)
{
    const hth_gpu_room *room = &r->g->room;
    hth_rec_run(r, HTH_PROGRAM_down_gather, (const uint32_t[]){HTH_REC_LOCAL, host},
                (const hth_slice[]){room->step, room->sums, room->wide, room->host_sums}, push,
                hth_rec_over(push->n_out, HTH_REC_LOCAL), n);
    hth_rec_wrote(r, room->wide);
    hth_rec_order(r);
}

/* The sums of a part's neurons, of which the first is number `neuron` of n_neuron, to those in 64 bits. */
static void gather(hth_recorder *r, const hth_gpu_part *p, uint32_t neuron, uint32_t n_neuron, bool start)
{
    const hth_gpu_room *room = &r->g->room;
    uint32_t n_out = r->g->model->hparams.d_model;
    values from = {room->input.x, n_neuron, hth_rec_over(p->n_row, HTH_DOWN_SPLIT)};
    uint64_t has_room = room->sums.bytes / ((uint64_t)from.n_split * n_out * sizeof(int32_t));
    from.h.at += (uint64_t)neuron * sizeof(float), from.h.bytes -= (uint64_t)neuron * sizeof(float);
    for (uint32_t first = 0, n; first < r->n_row; first += n) {
        n = r->n_row - first < has_room ? r->n_row - first : (uint32_t)has_room;
        hth_push_gather push = {n_out, from.n_split, first, start};
        down_of_part(r, &from, p, room->top, first, n);
        hth_rec_wrote(r, room->sums);
        hth_rec_order(r);
        add_sums(r, &push, false, n);
    }
}

/* The sums of the host's share, when the last of them is there. */
static void gather_share(hth_recorder *r)
{
    hth_push_gather push = {.n_out = r->g->model->hparams.d_model};
    ask_shares(r, r->n_piece - 1);
    hth_rec_cut(r);
    add_sums(r, &push, true, r->n_row);
}

static void down_passing(hth_recorder *r, uint32_t i_layer, hth_slice y, bool onto)
{
    const hth_gpu_room *room = &r->g->room;
    const hth_gpu_layer *to = &r->g->layers[i_layer];
    uint32_t n_cold = n_passing(r, to), n_here = to->n_hot + n_cold;
    choose_scales(r, i_layer, n_here, n_cold < to->cold.d_ff);
    for (uint32_t i = 0; i < to->down.n_part; i++) {
        hth_gpu_part p = to->down.parts[i];
        uint32_t neuron = p.first;
        p.first = 0;
        gather(r, &p, neuron, n_here, i == 0);
    }
    for (uint32_t n = 0; n < n_cold;) {
        const hth_gpu_piece *piece;
        hth_gpu_part p = next_piece(r, &piece);
        gather(r, &p, piece->neuron, n_here, piece->neuron == 0);
        n += p.n_row;
    }
    if (n_cold < to->cold.d_ff) gather_share(r);
    const parts all = {.top = room->top, .wide = room->wide, .has_wide = true};
    join_sums(r, i_layer, &all, 0, r->n_row, y, onto);
}

/* The forms of the input that a type wants. */
static void add_wants(hth_gpu_group *group, hth_type type)
{
    group->wants_32 |= hth_type_act_block(type) == HTH_ACT_BLOCK;
    group->wants_256 |= hth_type_act_block(type) == HTH_ACT_BLOCK_256;
}

/* Neurons of a layer by pieces of their weights, but for the host's share. What comes out has the bits of a
 * layer that lies here as a whole. */
static void ffn_passing(hth_recorder *r, uint32_t i_layer, hth_slice y, bool onto)
{
    const hth_layer *l = &r->g->model->layers[i_layer];
    const hth_gpu_layer *to = &r->g->layers[i_layer];
    uint32_t n_here = to->n_hot + n_passing(r, to);
    bool gated = l->gate.n_row > 0, shared = n_here < l->d_ff;
    hth_gpu_group all = {.n_row = (gated ? 2u : 1u) * n_here, .n_col = r->g->model->hparams.d_model};
    activation hidden = hidden_of(r, i_layer);
    hidden.n = n_here;
    if (gated) add_wants(&all, l->gate.type);
    add_wants(&all, l->up.type);
    predict(r, i_layer);
    hth_rec_normed_input(r, to->ffn_norm, r->g->room.x, &all, shared);
    if (shared) write_letter(r, to);
    if (shared) r->layer_letter = ++r->n_letter, hth_rec_cut(r);
    if (gated) run_half(r, &all, to, 0);
    run_half(r, &all, to, gated);
    hth_rec_order(r);
    activate(r, &hidden, NULL);
    down_passing(r, i_layer, y, onto);
}

void hth_rec_ffn(hth_recorder *r, uint32_t i_layer, hth_slice y, bool onto)
{
    const hth_gpu_layer *to = &r->g->layers[i_layer];
    bool hand = to->n_hot < r->g->model->layers[i_layer].d_ff;
    activation hidden = hidden_of(r, i_layer);
    r->marked = false;
    if (hand && r->passage) {
        ffn_passing(r, i_layer, y, onto);
        return;
    }
    predict(r, i_layer);
    hth_rec_normed_input(r, to->ffn_norm, r->g->room.x, &to->gate_up, hand);
    if (hand) write_letter(r, to);
    if (hand && !r->careful) r->n_letter++, hth_rec_cut(r);
    neurons(r, &to->gate_up, &hidden);
    activate(r, &hidden, to->by_neurons ? NULL : &to->down);
    if (to->by_neurons) down_by_neurons(r, i_layer, y, onto);
    else hth_rec_rows(r, &to->down, &r->g->room.input, y, onto);
}
