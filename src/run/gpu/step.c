/* A step through the layers on a device. The host fills the step block, lets the tapes of its class run,
 * and takes over what comes out. Where a layer's neurons are divided, a letter comes from the device in
 * the midst of it; the host's neurons are computed while the device does its own, and both sums meet
 * there.
 *
 * A token with a value beyond those that a layer's power of two was chosen for (docs/arithmetic.md 6)
 * shows only when all parts are done: it, and those behind it, are done again one by one, with care: each
 * layer's two parts then agree on the power before they make sums. */
#include "run/gpu/gpu_int.h"

#include "base/bits.h"

#include <string.h>

static void *mapped(hth_slice s) { return (uint8_t *)hth_buffer_map(s.of) + s.at; }

/* ---- what a step is told ------------------------------------------------------------------------------ */

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

/* ---- the host's neurons ------------------------------------------------------------------------------- */

/* The inputs of a hand's layer for n rows, from the letter that has come. */
static void read_letter(const hth_gpu *g, hth_step *s, uint32_t i_hand, uint32_t n)
{
    memcpy(s->normed, mapped(g->room.mail), (size_t)n * g->model->hparams.d_model * sizeof(float));
    memset(g->cold_tops + (size_t)i_hand * g->place.n_row, 0, n * sizeof *g->cold_tops);
}

/* What `cold`, neurons of a hand from number `first` of its own on, give to n rows, whose inputs were read. */
static void compute_cold(hth_gpu *g, hth_step *s, uint32_t i_hand, uint32_t n, const hth_layer *cold,
                         uint32_t first, hth_cold_sums *out)
{
    const hth_gpu_layer *l = &g->layers[g->hands[i_hand]];
    const float *scores = (const float *)mapped(g->room.mail_scores) + l->n_hot + first;
    for (size_t t = 0; t < n && l->predict_out.n_part > 0; t++)
        memcpy(s->scores + t * cold->d_ff, scores + t * l->predict_out.n_row, cold->d_ff * sizeof *scores);
    out->tops = g->cold_tops + (size_t)i_hand * g->place.n_row;
    hth_run_ffn_cold(s, g->hands[i_hand], cold, n, out);
    hth_gpu_charge_cold(g, s, cold, out->n_fired);
}

/* All of a hand. neurons: the layer's, or with another H. */
static void answer_as(hth_gpu *g, hth_step *s, uint32_t i_hand, uint32_t n, const hth_layer *cold)
{
    uint32_t *flag = mapped(g->room.host_sums);
    hth_cold_sums out = {.sums = (int64_t *)(void *)(flag + HTH_HOST_SUMS)};
    read_letter(g, s, i_hand, n);
    compute_cold(g, s, i_hand, n, cold, 0, &out);
    *flag = out.lost ? HTH_HOST_LOST : out.n_fired > 0 ? HTH_HOST_SOME : HTH_HOST_NONE;
    g->counts.n_handed++;
    g->counts.n_idle += out.n_fired == 0;
}

static void answer(hth_gpu *g, hth_step *s, const hth_gpu_passage *p, uint32_t i_hand, uint32_t n)
{
    (void)p;
    answer_as(g, s, i_hand, n, &g->layers[g->hands[i_hand]].cold);
}

static void stage(hth_gpu *g, hth_step *s, const hth_gpu_passage *p, uint32_t i_piece, uint32_t n)
{
    (void)n;
    hth_gpu_stage(g, s->pool, p, i_piece);
    hth_gpu_charge_piece(g, &p->pieces[i_piece]);
}

/* The host's share beside a piece. Sums of a layer come together in memory of the host's own, as what is
 * mapped may be slow to read. */
static void share(hth_gpu *g, hth_step *s, const hth_gpu_passage *p, uint32_t i_piece, uint32_t n)
{
    const hth_gpu_piece *piece = &p->pieces[i_piece];
    const hth_gpu_layer *l = &g->layers[g->hands[piece->i_hand]];
    uint32_t *flag = mapped(g->room.host_sums);
    if (piece->first_of_here == hth_gpu_n_passing(l, p)) {
        read_letter(g, s, piece->i_hand, n);
        g->shared = HTH_HOST_NONE;
    }
    hth_cold_sums out = {.sums = g->shared_sums, .more = g->shared != HTH_HOST_NONE};
    compute_cold(g, s, piece->i_hand, n, &piece->here, piece->first_of_here, &out);
    if (out.lost) g->shared = HTH_HOST_LOST;
    else if (out.n_fired > 0 && g->shared == HTH_HOST_NONE) g->shared = HTH_HOST_SOME;
    if (piece->first_of_here + piece->here.d_ff < l->cold.d_ff) return;
    if (g->shared == HTH_HOST_SOME)
        memcpy(flag + HTH_HOST_SUMS, g->shared_sums,
               (size_t)n * g->model->hparams.d_model * sizeof *g->shared_sums);
    *flag = g->shared;
}

/* ---- tapes -------------------------------------------------------------------------------------------- */

/* What all back ends hold at once is twice that. */
enum { MOST_QUEUED = 2048 };

/* The first n tapes of the step under way are done. A device answers within its patience for some tapes; a
 * step may have many. */
static hearth_status await(hth_gpu *g, uint32_t n, hearth_error *err)
{
    enum { AT_ONCE = 16 };
    hearth_status st = HEARTH_OK;
    while (st == HEARTH_OK && g->n_done < n) {
        uint32_t next = n - g->n_done < AT_ONCE ? n : g->n_done + AT_ONCE;
        st = hth_queue_await(g->device, g->ticks[next - 1], g->patience_ns, err);
        if (st == HEARTH_OK) g->n_done = next;
    }
    return st;
}

/* The next tapes of the step, up to number `end`. Where they are more than can be held, the first must end
 * before the last may be given: none of them waits for the host. */
static hearth_status submit(hth_gpu *g, uint32_t end, hearth_error *err)
{
    hearth_status st = HEARTH_OK;
    while (st == HEARTH_OK && g->n_sent < end) {
        uint32_t first = g->n_sent, n = end - first < MOST_QUEUED ? end - first : MOST_QUEUED;
        if (first + n > 2 * MOST_QUEUED) st = await(g, first + n - 2 * MOST_QUEUED, err);
        if (st == HEARTH_OK) st = hth_queue_submit(g->device, g->turns + first, n, g->ticks + first, err);
        if (st == HEARTH_OK) g->n_sent += n;
    }
    return st;
}

/* A step whose end was not seen may still read what the next one is told, and wait for signals. */
hearth_status hth_gpu_settle(hth_gpu *g, hearth_error *err)
{
    if (g->n_done == g->n_sent) return HEARTH_OK;
    hearth_status st = hth_queue_signal(g->device, g->gate, err);
    return st == HEARTH_OK ? await(g, g->n_sent, err) : st;
}

/* An act of the host's for n rows (gpu_int.h). */
typedef void act_fn(hth_gpu *g, hth_step *s, const hth_gpu_passage *p, uint32_t of, uint32_t n);
static act_fn agree;
static act_fn *const act_fns[HTH_GPU_N_ACT] = {
    [HTH_GPU_ANSWER] = answer, [HTH_GPU_AGREE] = agree, [HTH_GPU_STAGE] = stage, [HTH_GPU_SHARE] = share};

/* A step's tapes as they are played. */
typedef struct play {
    const hth_gpu_tapes *tapes;
    const hth_gpu_passage *passage; /* that they are of, or NULL */
    uint32_t n_row;
    hth_gpu_handoff handoff;
    const hth_gpu_tapes *behind; /* more, or NULL */
} play;

/* All acts; tapes are submitted as far as they can run, where they do not wait in the queue. */
static hearth_status do_acts(hth_gpu *g, hth_step *s, const play *p, uint64_t before, hearth_error *err)
{
    const hth_gpu_tapes *tapes = p->tapes;
    bool queued = g->n_sent >= tapes->n;
    hearth_status st = HEARTH_OK;
    for (uint32_t i = 0, seen = 0, end = 0; st == HEARTH_OK && i < tapes->n_act; i++) {
        const hth_gpu_act *act = &tapes->acts[i];
        while (end < tapes->n && tapes->cut[end].n_act <= i) end++;
        st = submit(g, end, err);
        while (act->n_letter > 0 && tapes->cut[seen].n_letter < act->n_letter) seen++;
        if (st == HEARTH_OK && act->n_letter > 0) st = await(g, seen + 1, err);
        if (st != HEARTH_OK) return st;
        act_fns[act->what](g, s, p->passage, act->of, p->n_row);
        if (queued) st = hth_queue_signal(g->device, before + i + 1, err);
    }
    return st;
}

/* The tapes of the step under way from now on, each with what it waits for in the queue. Returns how many. */
static uint32_t set_turns(hth_gpu *g, const play *p, bool queued)
{
    const hth_gpu_tapes *tapes = p->tapes, *behind = p->behind;
    uint32_t n = tapes->n, n_before = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t n_act = tapes->cut[i].n_act;
        g->turns[i] = (hth_turn){tapes->cut[i].tape, queued && n_act > n_before ? g->gate + n_act : 0};
        n_before = n_act;
    }
    for (uint32_t i = 0; behind && i < behind->n; i++) g->turns[n++] = (hth_turn){behind->cut[i].tape, 0};
    g->n_sent = g->n_done = 0;
    return n;
}

/* All tapes are queued at once, and wait for the host's signals; or each is submitted when the host is
 * ready. */
static hearth_status play_tapes(hth_gpu *g, hth_step *s, const play *p, hearth_error *err)
{
    bool fits = p->tapes->n + (p->behind ? p->behind->n : 0) <= MOST_QUEUED;
    bool queued = (p->handoff == HTH_GPU_QUEUED && fits) || p->tapes->n_act == 0;
    uint64_t before = g->gate;
    uint32_t n = set_turns(g, p, queued);
    hearth_status st = HEARTH_OK;
    if (queued) {
        if ((st = submit(g, n, err)) != HEARTH_OK) return st;
        g->gate += p->tapes->n_act;
    }
    st = do_acts(g, s, p, before, err);
    if (st == HEARTH_OK) st = submit(g, n, err);
    return st == HEARTH_OK ? await(g, n, err) : st;
}

/* ---- values beyond H ---------------------------------------------------------------------------------- */

/* The largest |h| of the device's neurons of a row. */
static uint32_t device_top(const hth_gpu *g, uint32_t i_layer, uint32_t row)
{
    const uint32_t *tops = mapped(g->room.tops);
    return tops[2 * ((size_t)i_layer * g->place.n_row + row) + 1];
}

/* Whether the host computes neurons of a layer in a passage, or (NULL) where nothing passes. */
static bool has_part(const hth_gpu_layer *l, const hth_gpu_passage *p)
{
    return !p || hth_gpu_n_passing(l, p) < l->cold.d_ff;
}

/* Whether both parts of every divided layer made row's sums with the power of two of H. */
static bool is_usual(const hth_gpu *g, const hth_gpu_passage *p, uint32_t row)
{
    for (uint32_t i = 0; i < g->n_hand; i++) {
        const hth_layer *l = &g->model->layers[g->hands[i]];
        if (!has_part(&g->layers[g->hands[i]], p)) continue;
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
static void agree(hth_gpu *g, hth_step *s, const hth_gpu_passage *p, uint32_t i_hand, uint32_t n)
{
    (void)p;
    uint32_t i_layer = g->hands[i_hand], *given = mapped(g->room.given_top);
    hth_layer *cold = &g->layers[i_layer].agreed;
    float hot = hth_float_of(device_top(g, i_layer, 0)), *usual = &cold->neurons.hidden_top;
    *usual = g->layers[i_layer].cold.neurons.hidden_top;
    if (!(hot <= *usual)) *usual = hot;
    answer_as(g, s, i_hand, n, cold);
    float top = hth_float_of(g->cold_tops[(size_t)i_hand * g->place.n_row]);
    given[0] = hth_bits_of(hth_down_scale(top <= *usual ? *usual : top, cold->neurons.scale_top));
    given[1] = hth_bits_of(top);
}

/* ---- a piece ------------------------------------------------------------------------------------------ */

/* The rows of a piece from *next on that want logits, through the head, whose tape may have run already. */
static hearth_status give_logits(hth_gpu *g, hth_step *s, uint32_t n_want, bool played, hth_logits_sink *to,
                                 hearth_error *err)
{
    hearth_status st = HEARTH_OK;
    if (n_want == 0) return st;
    const play head = {&g->head_tapes[n_want > 1], NULL, n_want, g->place.handoff, NULL};
    if (!played) st = play_tapes(g, s, &head, err);
    return st == HEARTH_OK ? hth_run_give(s, mapped(g->room.result), n_want, to, err) : st;
}

/* What the first n rows of a piece, which begins at row `first` of the step, are wanted for: logits, or to
 * go on in s->x. next: from it on none was given yet. */
static hearth_status give(hth_gpu *g, hth_step *s, uint32_t first, uint32_t n, uint32_t next,
                          hth_logits_sink *to, hearth_error *err)
{
    size_t d = g->model->hparams.d_model;
    hearth_status st = HEARTH_OK;
    if (!g->place.head) memcpy(s->x + first * d, mapped(g->room.result), n * d * sizeof(float));
    while (g->place.head && st == HEARTH_OK && next < n) {
        uint32_t n_want = fill_wanted(g, s->rows + first, n, &next);
        st = give_logits(g, s, n_want, false, to, err);
    }
    return st;
}

/* Nothing can come out that is not usual: the first logits are made in the same submission. */
static hearth_status run_whole(hth_gpu *g, hth_step *s, uint32_t first, uint32_t n, hth_logits_sink *to,
                               hearth_error *err)
{
    uint32_t next = 0, n_want;
    fill_block(g, s, first, n);
    n_want = g->place.head ? fill_wanted(g, s->rows + first, n, &next) : 0;
    const play whole = {&g->tapes[class_of(g, n)], NULL, n, g->place.handoff,
                        n_want > 0 ? &g->head_tapes[n_want > 1] : NULL};
    hearth_status st = play_tapes(g, s, &whole, err);
    if (st == HEARTH_OK) st = give_logits(g, s, n_want, true, to, err);
    return st == HEARTH_OK ? give(g, s, first, n, next, to, err) : st;
}

/* As many rows as are usual at once, the others one by one. */
static hearth_status run_divided(hth_gpu *g, hth_step *s, uint32_t first, uint32_t n, hth_logits_sink *to,
                                 hearth_error *err)
{
    const play many = {&g->tapes[class_of(g, n)], NULL, n, g->place.handoff, NULL},
               one = {&g->careful, NULL, 1, HTH_GPU_SUBMITTED, NULL};
    uint32_t n_good = 0;
    hearth_status st = HEARTH_OK;
    if (has_usual(g)) {
        fill_block(g, s, first, n);
        st = play_tapes(g, s, &many, err);
        while (st == HEARTH_OK && n_good < n && is_usual(g, NULL, n_good)) n_good++;
        if (st == HEARTH_OK && n_good > 0) st = give(g, s, first, n_good, 0, to, err);
    }
    for (uint32_t i = n_good; st == HEARTH_OK && i < n; i++) {
        g->counts.n_again++;
        fill_block(g, s, first + i, 1);
        st = play_tapes(g, s, &one, err);
        if (st == HEARTH_OK) st = give(g, s, first + i, 1, 0, to, err);
    }
    return st;
}

/* Where all of the host's neurons pass, nothing can come out that is not usual. */
static hearth_status run_whole_passage(hth_gpu *g, hth_step *s, const hth_gpu_passage *p, uint32_t first,
                                       uint32_t n, hth_logits_sink *to, hearth_error *err)
{
    const play all = {&p->tapes, p, n, g->place.handoff, NULL};
    fill_block(g, s, first, n);
    hearth_status st = play_tapes(g, s, &all, err);
    return st == HEARTH_OK ? give(g, s, first, n, 0, to, err) : st;
}

/* With the host's share as many rows as are usual, the others without. */
static hearth_status run_streamed(hth_gpu *g, hth_step *s, const hth_gpu_passage *p, uint32_t first,
                                  uint32_t n, hth_logits_sink *to, hearth_error *err)
{
    const play both = {&p->tapes, p, n, g->place.handoff, NULL};
    uint32_t n_good = 0;
    g->counts.n_streamed++;
    if (p->is.here == 0) return run_whole_passage(g, s, p, first, n, to, err);
    hearth_status st = HEARTH_OK;
    if (has_usual(g)) {
        g->counts.n_shared++;
        fill_block(g, s, first, n);
        st = play_tapes(g, s, &both, err);
        while (st == HEARTH_OK && n_good < n && is_usual(g, p, n_good)) n_good++;
        if (st == HEARTH_OK && n_good > 0) st = give(g, s, first, n_good, 0, to, err);
    }
    if (st != HEARTH_OK || n_good == n) return st;
    g->counts.n_again += n - n_good;
    return run_whole_passage(g, s, &g->passages[g->whole], first + n_good, n - n_good, to, err);
}

/* For n rows; NULL: the host's weights do not pass. */
static const hth_gpu_passage *passage_of(const hth_gpu *g, uint32_t n)
{
    const hth_gpu_passage *found = NULL;
    for (uint32_t i = 0; i < g->n_passage; i++)
        if (n >= g->passages[i].is.n_tok) found = &g->passages[i];
    return found;
}

static hearth_status run_piece(hth_gpu *g, hth_step *s, uint32_t first, uint32_t n, hth_logits_sink *to,
                               hearth_error *err)
{
    const hth_gpu_passage *passage = passage_of(g, n);
    if (g->n_hand == 0) return run_whole(g, s, first, n, to, err);
    if (passage) return run_streamed(g, s, passage, first, n, to, err);
    return run_divided(g, s, first, n, to, err);
}

hearth_status hth_gpu_run(hth_gpu *g, hth_step *s, hth_logits_sink *to, hearth_error *err)
{
    hearth_status st = HEARTH_OK;
    pthread_mutex_lock(&g->turn);
    if (g->left) st = hth_fail(err, HEARTH_ERROR_DEVICE, "%s was left", hth_device_get_info(g->device)->name);
    if (st == HEARTH_OK) st = hth_gpu_settle(g, err);
    for (uint32_t first = 0, n; st == HEARTH_OK && first < s->n_row; first += n) {
        n = s->n_row - first < g->place.n_row ? s->n_row - first : g->place.n_row;
        g->counts.n_step++;
        st = run_piece(g, s, first, n, to, err);
    }
    pthread_mutex_unlock(&g->turn);
    return st;
}
