/* A step through the layers on a device. The host fills the step block, lets the tapes of its class run, and takes over
 * what comes out. Where a layer's neurons are divided, a letter comes from the device in the midst of it; the host's
 * neurons are computed while the device does its own, and both sums meet there.
 *
 * A token with a value beyond those that a layer's power of two was chosen for (docs/arithmetic.md 6) shows only when
 * all parts are done: it, and those behind it, are done again one by one, with care: each layer's two parts then
 * agree on the power before they make sums. */
#include "run/gpu/gpu_int.h"

#include "base/bits.h"
#include "base/clock.h"

#include <string.h>

/* No submission takes so long on a card; drivers that compute on the CPU share it with others. */
static uint64_t patience_ns(const hth_gpu *g)
{
    return (hth_device_get_info(g->device)->kind == HTH_DEVICE_DISCRETE ? 10u : 600u) * (uint64_t)1000000000;
}

/* Looks for a while, then sleeps. */
static hearth_status await(const hth_gpu *g, hth_tick tick, hearth_error *err)
{
    enum { SPIN_NS = 50000 };
    uint64_t start = hth_clock_ns();
    while (!hth_queue_reached(g->device, tick))
        if (hth_clock_ns() - start > SPIN_NS) return hth_queue_wait(g->device, tick, patience_ns(g), err);
    return HEARTH_OK;
}

static void *mapped(hth_slice s) { return (uint8_t *)hth_buffer_map(s.of) + s.at; }

/* ---- what a step is told -------------------------------------------------------------------------------- */

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

/* ---- the host's neurons ------------------------------------------------------------------------------------ */

/* Those of a hand for n rows, by the letter that has come. neurons: the layer's, or with another H. */
static uint64_t answer(hth_gpu *g, hth_step *s, uint32_t i_hand, uint32_t n, const hth_layer *cold)
{
    const hth_gpu_layer *l = &g->layers[g->hands[i_hand]];
    uint32_t *flag = mapped(g->room.host_sums);
    const float *scores = mapped(g->room.mail_scores);
    hth_cold_sums out = {.sums = (int64_t *)(void *)(flag + HTH_HOST_SUMS),
                         .tops = g->cold_tops + (size_t)i_hand * g->place.n_row};
    memcpy(s->normed, mapped(g->room.mail), (size_t)n * g->model->hparams.d_model * sizeof(float));
    for (size_t t = 0; t < n && l->predict_out.n_part > 0; t++)
        memcpy(s->scores + t * cold->d_ff, scores + t * l->predict_out.n_row + l->n_hot,
               cold->d_ff * sizeof *scores);
    hth_run_ffn_cold(s, g->hands[i_hand], cold, n, &out);
    *flag = out.lost ? HTH_HOST_LOST : out.n_fired > 0 ? HTH_HOST_SOME : HTH_HOST_NONE;
    g->counts.n_handed++;
    g->counts.n_idle += out.n_fired == 0;
    return out.n_fired;
}

/* ---- tapes ----------------------------------------------------------------------------------------------------- */

static hearth_status submit(hth_gpu *g, uint32_t first, uint32_t n, hearth_error *err)
{
    return hth_queue_submit(g->device, g->turns + first, n, g->ticks + first, err);
}

/* After an error in the midst of a step nothing of it may go on beside the next one. */
static void let_all_go(hth_gpu *g, hth_tick last)
{
    hth_queue_signal(g->device, g->gate, NULL);
    hth_queue_wait(g->device, last, patience_ns(g), NULL);
}

/* All tapes are queued at once, and each layer's second half waits for the host's signal; or each pair of tapes is
 * submitted when the host is ready. */
static hearth_status play_hands(hth_gpu *g, hth_step *s, const hth_gpu_tapes *tapes, uint32_t n_row,
                                hearth_error *err)
{
    bool queued = g->place.handoff == HTH_GPU_QUEUED && g->n_hand > 0;
    uint64_t before = g->gate;
    hearth_status st = HEARTH_OK;
    for (uint32_t i = 0; i < tapes->n; i++) {
        uint64_t wait = queued && i > 0 && i % 2 == 0 ? before + i / 2 : 0;
        g->turns[i] = (hth_turn){tapes->tape[i], wait};
    }
    if (queued) {
        st = submit(g, 0, tapes->n, err);
        if (st == HEARTH_OK) g->gate += g->n_hand;
    }
    for (uint32_t i = 0; st == HEARTH_OK && i < g->n_hand; i++) {
        if (!queued) st = submit(g, 2 * i, 2, err);
        if (st == HEARTH_OK) st = await(g, g->ticks[2 * i], err);
        if (st != HEARTH_OK) break;
        answer(g, s, i, n_row, &g->layers[g->hands[i]].cold);
        if (queued) st = hth_queue_signal(g->device, before + i + 1, err);
    }
    if (st == HEARTH_OK && !queued) st = submit(g, tapes->n - 1, 1, err);
    if (st == HEARTH_OK) return await(g, g->ticks[tapes->n - 1], err);
    if (queued && g->gate > before) let_all_go(g, g->ticks[tapes->n - 1]);
    return st;
}

static hearth_status play(hth_gpu *g, hth_tape *tape, hearth_error *err)
{
    g->turns[0] = (hth_turn){tape, 0};
    hearth_status st = submit(g, 0, 1, err);
    return st == HEARTH_OK ? await(g, g->ticks[0], err) : st;
}

/* ---- values beyond H ---------------------------------------------------------------------------------------------- */

/* The largest |h| of the device's neurons of a row. */
static uint32_t device_top(const hth_gpu *g, uint32_t i_layer, uint32_t row)
{
    const uint32_t *tops = mapped(g->room.tops);
    return tops[2 * ((size_t)i_layer * g->place.n_row + row) + 1];
}

/* Whether both parts of every divided layer made row's sums with the power of two of H. */
static bool is_usual(const hth_gpu *g, uint32_t row)
{
    for (uint32_t i = 0; i < g->n_hand; i++) {
        const hth_layer *l = &g->model->layers[g->hands[i]];
        uint32_t usual = hth_bits_of(l->neurons.hidden_top) & 0x7fffffffu;
        bool floats = hth_type_act_block(l->neurons.rows.type) == 0;
        uint32_t cold = g->cold_tops[(size_t)i * g->place.n_row + row], hot = device_top(g, g->hands[i], row);
        if (!floats && (cold > usual || hot > usual)) return false;
    }
    return true;
}

/* Whether a layer has no H, so that every token is beyond it. */
static bool has_usual(const hth_gpu *g)
{
    for (uint32_t i = 0; i < g->n_hand; i++)
        if (g->model->layers[g->hands[i]].neurons.hidden_top == 0.0f) return false;
    return true;
}

/* The host's part with a power of two that suits the device's part too, and that power for the device. */
static void agree(hth_gpu *g, hth_step *s, uint32_t i_hand)
{
    uint32_t i_layer = g->hands[i_hand], *given = mapped(g->room.given_top);
    hth_layer cold = g->layers[i_layer].cold;
    float hot = hth_float_of(device_top(g, i_layer, 0)), *usual = &cold.neurons.hidden_top;
    if (!(hot <= *usual)) *usual = hot;
    answer(g, s, i_hand, 1, &cold);
    float top = hth_float_of(g->cold_tops[(size_t)i_hand * g->place.n_row]);
    given[0] = hth_bits_of(hth_down_scale(top <= *usual ? *usual : top, cold.neurons.scale_top));
    given[1] = hth_bits_of(top);
}

static hearth_status play_carefully(hth_gpu *g, hth_step *s, hearth_error *err)
{
    hearth_status st = HEARTH_OK;
    g->counts.n_again++;
    for (uint32_t i = 0; st == HEARTH_OK && i < g->n_hand; i++) {
        for (uint32_t k = 0; st == HEARTH_OK && k < 2; k++) st = play(g, g->careful.tape[3 * i + k], err);
        if (st == HEARTH_OK) agree(g, s, i);
        if (st == HEARTH_OK) st = play(g, g->careful.tape[3 * i + 2], err);
    }
    return st == HEARTH_OK ? play(g, g->careful.tape[3 * g->n_hand], err) : st;
}

/* ---- a piece ------------------------------------------------------------------------------------------------------- */

/* What n rows, the first of which is row `first` of the step, are wanted for: logits, or to go on in s->x. */
static hearth_status give(hth_gpu *g, hth_step *s, uint32_t first, uint32_t n, hth_logits_sink *to,
                          hearth_error *err)
{
    size_t d = g->model->hparams.d_model;
    uint32_t next = 0;
    hearth_status st = HEARTH_OK;
    if (!g->place.head) {
        memcpy(s->x + first * d, mapped(g->room.result), n * d * sizeof(float));
        return st;
    }
    while (st == HEARTH_OK && next < n) {
        uint32_t n_want = fill_wanted(g, s->rows + first, n, &next);
        if (n_want == 0) break;
        st = play(g, g->head_tapes[n_want > 1], err);
        if (st == HEARTH_OK) st = hth_run_give(s, mapped(g->room.result), n_want, to, err);
    }
    return st;
}

static hearth_status run_piece(hth_gpu *g, hth_step *s, uint32_t first, uint32_t n, hth_logits_sink *to,
                               hearth_error *err)
{
    uint32_t n_good = 0;
    hearth_status st = HEARTH_OK;
    g->counts.n_step++;
    if (has_usual(g)) {
        fill_block(g, s, first, n);
        st = play_hands(g, s, &g->tapes[class_of(g, n)], n, err);
        while (st == HEARTH_OK && n_good < n && is_usual(g, n_good)) n_good++;
        if (st == HEARTH_OK && n_good > 0) st = give(g, s, first, n_good, to, err);
    }
    for (uint32_t i = n_good; st == HEARTH_OK && i < n; i++) {
        fill_block(g, s, first + i, 1);
        st = play_carefully(g, s, err);
        if (st == HEARTH_OK) st = give(g, s, first + i, 1, to, err);
    }
    return st;
}

hearth_status hth_gpu_run(hth_gpu *g, hth_step *s, hth_logits_sink *to, hearth_error *err)
{
    hearth_status st = HEARTH_OK;
    pthread_mutex_lock(&g->turn);
    for (uint32_t first = 0, n; st == HEARTH_OK && first < s->n_row; first += n) {
        n = s->n_row - first < g->place.n_row ? s->n_row - first : g->place.n_row;
        st = run_piece(g, s, first, n, to, err);
    }
    pthread_mutex_unlock(&g->turn);
    return st;
}
