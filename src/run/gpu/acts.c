/* What the host does in the midst of a step: it computes its neurons of a divided layer, or a share of them,
 * or brings weights into a staging; and whether the sums that both sides made fit together.
 *
 * Both make integers with a power of two that is chosen for a layer's usual values (docs/arithmetic.md 6). A
 * token with a larger one shows only when all parts are done; it is done again, with care: the layer's two
 * parts then agree on the power before they make sums. */
#include "run/gpu/gpu_int.h"

#include "base/bits.h"

#include <string.h>

/* ---- the host's neurons ------------------------------------------------------------------------------- */

/* The inputs of a hand's layer for n rows, from the letter that has come. */
static void read_letter(const hth_gpu *g, hth_step *s, uint32_t i_hand, uint32_t n)
{
    memcpy(s->normed, hth_gpu_mapped(g->room.mail), (size_t)n * g->model->hparams.d_model * sizeof(float));
    memset(g->cold_tops + (size_t)i_hand * g->place.n_row, 0, n * sizeof *g->cold_tops);
}

/* What `cold`, neurons of a hand from number `first` of its own on, give to n rows, whose inputs were read.
 */
static void compute_cold(hth_gpu *g, hth_step *s, uint32_t i_hand, uint32_t n, const hth_layer *cold,
                         uint32_t first, hth_cold_sums *out)
{
    const hth_gpu_layer *l = &g->layers[g->hands[i_hand]];
    const float *scores = (const float *)hth_gpu_mapped(g->room.mail_scores) + l->n_hot + first;
    for (size_t t = 0; t < n && l->predict_out.n_part > 0; t++)
        memcpy(s->scores + t * cold->d_ff, scores + t * l->predict_out.n_row, cold->d_ff * sizeof *scores);
    out->tops = g->cold_tops + (size_t)i_hand * g->place.n_row;
    hth_run_ffn_cold(s, g->hands[i_hand], cold, n, out);
    g->spoilt |= out->lost;
    hth_gpu_charge_cold(g, s, cold, out->n_fired);
}

/* All of a hand. neurons: the layer's, or with another H. */
static void answer_as(hth_gpu *g, hth_step *s, uint32_t i_hand, uint32_t n, const hth_layer *cold)
{
    uint32_t *flag = hth_gpu_mapped(g->room.host_sums);
    hth_cold_sums out = {.sums = (int64_t *)(void *)(flag + HTH_HOST_SUMS)};
    read_letter(g, s, i_hand, n);
    compute_cold(g, s, i_hand, n, cold, 0, &out);
    *flag = out.lost ? HTH_HOST_LOST : out.n_fired > 0 ? HTH_HOST_SOME : HTH_HOST_NONE;
    g->counts.n_handed++;
    g->counts.n_idle += out.n_fired == 0;
}

static void answer(hth_gpu *g, hth_step *s, uint32_t i_hand, uint32_t n)
{
    answer_as(g, s, i_hand, n, &g->layers[g->hands[i_hand]].cold);
}

/* The largest |h| of the device's neurons of a row. */
static uint32_t device_top(const hth_gpu *g, uint32_t i_layer, uint32_t row)
{
    const uint32_t *tops = hth_gpu_mapped(g->room.tops);
    return tops[2 * ((size_t)i_layer * g->place.n_row + row) + 1];
}

/* The host's part with a power of two that suits the device's part too, and that power for the device. */
static void agree(hth_gpu *g, hth_step *s, uint32_t i_hand, uint32_t n)
{
    uint32_t i_layer = g->hands[i_hand], *given = hth_gpu_mapped(g->room.given_top);
    hth_layer *cold = &g->layers[i_layer].agreed;
    float hot = hth_float_of(device_top(g, i_layer, 0)), *usual = &cold->neurons.hidden_top;
    *usual = g->layers[i_layer].cold.neurons.hidden_top;
    if (!(hot <= *usual)) *usual = hot;
    answer_as(g, s, i_hand, n, cold);
    float top = hth_float_of(g->cold_tops[(size_t)i_hand * g->place.n_row]);
    given[0] = hth_bits_of(hth_down_scale(top <= *usual ? *usual : top, cold->neurons.scale_top));
    given[1] = hth_bits_of(top);
}

static void stage(hth_gpu *g, hth_step *s, const hth_gpu_passage *p, uint32_t i_piece)
{
    hth_gpu_stage(g, s->pool, p, i_piece);
    hth_gpu_charge_piece(g, &p->pieces[i_piece]);
}

/* The host's share beside a piece. Sums of a layer come together in memory of the host's own, as what is
 * mapped may be slow to read. */
static void share(hth_gpu *g, hth_step *s, const hth_gpu_passage *p, uint32_t i_piece, uint32_t n)
{
    const hth_gpu_piece *piece = &p->pieces[i_piece];
    const hth_gpu_layer *l = &g->layers[g->hands[piece->i_hand]];
    uint32_t *flag = hth_gpu_mapped(g->room.host_sums);
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

void hth_gpu_do(hth_gpu *g, hth_step *s, const hth_gpu_passage *p, const hth_gpu_act *act, uint32_t n)
{
    switch (act->what) {
    case HTH_GPU_ANSWER: answer(g, s, act->of, n); break;
    case HTH_GPU_AGREE: agree(g, s, act->of, n); break;
    case HTH_GPU_STAGE: stage(g, s, p, act->of); break;
    default: share(g, s, p, act->of, n);
    }
}

/* ---- values beyond H ---------------------------------------------------------------------------------- */

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

bool hth_gpu_has_usual(const hth_gpu *g)
{
    for (uint32_t i = 0; i < g->n_hand; i++)
        if (g->model->layers[g->hands[i]].neurons.hidden_top == 0.0f) return false;
    return true;
}

uint32_t hth_gpu_n_usual(const hth_gpu *g, const hth_gpu_passage *p, uint32_t n)
{
    uint32_t n_usual = 0;
    while (!g->spoilt && n_usual < n && is_usual(g, p, n_usual)) n_usual++;
    return n_usual;
}
