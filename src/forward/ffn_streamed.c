/* A dense network whose weights come from a store in pieces: rows of gate and up, then rows of down. Each piece is
 * computed as soon as it is in memory, in any order; rows do not depend on one another. What the next layers need is
 * read meanwhile. */
#include "forward/forward_int.h"

typedef struct held_pieces {
    hth_matrix matrices[2 * HTH_MAX_HELD_PIECES]; /* queued products point to them */
    uint32_t items[HTH_MAX_HELD_PIECES], n;
} held_pieces;

/* Queues the rows of a piece. All pieces of a kind have the same input, which the first one quantises. */
typedef void piece_fn(hth_step *s, const hth_op *op, const hth_ffn_pieces *pieces, const hth_store_view *view,
                      hth_matrix *matrices, const hth_fusion *fusion);

/* Rows of a matrix from `first` on, at another address. */
static hth_matrix rows_at(const hth_matrix *m, const uint8_t *data, size_t first, size_t n)
{
    hth_matrix some = *m;
    some.data = data;
    some.n_row = m->n_row - first < n ? m->n_row - first : n;
    return some;
}

static void queue_halves(hth_step *s, const hth_op *op, const hth_ffn_pieces *pieces,
                         const hth_store_view *view, hth_matrix *matrices, const hth_fusion *fusion)
{
    const hth_ffn *f = &s->model->layers[op->layer].ffn;
    const hth_ffn_values v = hth_fwd_ffn_values(s, op);
    const hth_matrix *const halves[] = {&f->gate, &f->up};
    const float *const biases[] = {f->gate_bias, f->up_bias};
    float *const y[] = {v.gate, v.up};
    size_t first = (size_t)(view->i_item - pieces->first_item) * pieces->half_rows, n = 0;
    hth_output outputs[2];
    for (int k = 0; k < 2; k++) {
        if (halves[k]->n_row == 0) continue; /* no gate */
        matrices[n] = rows_at(halves[k], view->data[n], first, pieces->half_rows);
        outputs[n] = (hth_output){.matrix = &matrices[n],
                                  .bias = biases[k] ? biases[k] + first : NULL,
                                  .y = y[k] + first,
                                  .n_y = f->d_ff};
        n++;
    }
    hth_product_add(s->k, s->pool, &s->act_q8, v.input, s->n_tok, outputs, n, fusion);
}

static void queue_down(hth_step *s, const hth_op *op, const hth_ffn_pieces *pieces,
                       const hth_store_view *view, hth_matrix *matrices, const hth_fusion *fusion)
{
    const hth_ffn *f = &s->model->layers[op->layer].ffn;
    const hth_ffn_values v = hth_fwd_ffn_values(s, op);
    size_t first = (size_t)(view->i_item - pieces->first_item - pieces->n_half) * pieces->down_rows;
    matrices[0] = rows_at(&f->down, view->data[0], first, pieces->down_rows);
    hth_output down = {.matrix = &matrices[0],
                       .bias = f->down_bias ? f->down_bias + first : NULL,
                       .y = v.out + first,
                       .add_to = v.add_to ? v.add_to + first : NULL,
                       .n_y = f->down.n_row};
    hth_product_add(s->k, s->pool, &s->act_q8, v.hidden, s->n_tok, &down, 1, fusion);
}

/* Finishes what is queued; then nothing reads the pieces. */
static void give_back(hth_step *s, held_pieces *held)
{
    hth_pool_finish(s->pool);
    hth_pool_quiesce(s->pool);
    while (held->n > 0) hth_store_release(s->streamed->store, held->items[--held->n]);
}

/* Asks for n pieces, and computes them as they come. */
static hearth_status compute_pieces(hth_step *s, const hth_op *op, uint32_t first, size_t n, piece_fn *queue,
                                    hearth_error *err)
{
    hth_store *store = s->streamed->store;
    held_pieces held = {.n = 0};
    hth_fusion fusion = {.reuses_input = false};
    hearth_status st = HEARTH_OK;
    for (uint32_t i = 0; i < n; i++) s->pieces[i] = first + i;
    hth_store_request(store, s->pieces, n);
    hth_store_prefetch_next(store, first + (uint32_t)n, HTH_MAX_AHEAD);
    while (n + held.n > 0 && st == HEARTH_OK) {
        hth_store_view view;
        size_t before = n;
        if (n > 0 && held.n < HTH_MAX_HELD_PIECES)
            st = hth_store_acquire(store, s->pieces, &n, held.n == 0, &view, err);
        if (n < before && st == HEARTH_OK) {
            queue(s, op, &s->streamed->pieces[op->layer], &view, &held.matrices[2 * held.n], &fusion);
            fusion.reuses_input = true;
            held.items[held.n++] = view.i_item;
        } else {
            give_back(s, &held);
        }
    }
    give_back(s, &held);
    hth_store_cancel(store, s->pieces, n);
    return st;
}

/* Down is asked for when gate and up are complete: what waits for a slot must not hold another one. Until then it is
 * guessed, as what follows. */
hearth_status hth_fwd_ffn_streamed(hth_step *s, const hth_op *op, hearth_error *err)
{
    const hth_ffn_pieces *p = &s->streamed->pieces[op->layer];
    const hth_ffn_values v = hth_fwd_ffn_values(s, op);
    hth_fwd_flush(s);
    if (s->selector == HEARTH_SELECTOR_PREDICTOR)
        hth_fwd_predict(s, &s->model->layers[op->layer].ffn, v.residual, v.input, s->n_tok, s->scores);
    hearth_status st = compute_pieces(s, op, p->first_item, p->n_half, queue_halves, err);
    if (st != HEARTH_OK) return st;
    hth_fwd_finish_hidden(s, op);
    return compute_pieces(s, op, p->first_item + p->n_half, p->n_down, queue_down, err);
}
