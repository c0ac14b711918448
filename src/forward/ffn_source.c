/* A layer's network from a source, part by part. */
#include "forward/ffn_source.h"

#include "base/checked_math.h"
#include "forward/forward_int.h"

#include <assert.h>
#include <string.h>

/* Sums of the parts of a layer, and what is known of its neurons before they are there. */
struct hth_source_buffers {
    int64_t *sums;   /* [n_tok][d_model] */
    float *scores;   /* [n_tok][d_ff] of the layer; the step's are those of a part */
    uint8_t *wanted; /* [clusters] */
};

/* ---- parts ------------------------------------------------------------------------------------------------- */

/* n rows of a matrix after n_skip rows; an absent matrix stays absent. */
static hth_matrix slice_rows(const hth_matrix *m, uint32_t n_skip, uint32_t n)
{
    hth_matrix some = *m;
    if (m->n_row == 0) return some;
    some.data = m->data ? m->data + n_skip * m->row_size : NULL;
    some.n_row = n;
    return some;
}

hth_ffn hth_ffn_slice(const hth_ffn *f, uint32_t first, uint32_t n, uint32_t n_skip)
{
    hth_ffn some = *f;
    some.d_ff = n;
    some.gate = slice_rows(&f->gate, n_skip, n);
    some.up = slice_rows(&f->up, n_skip, n);
    some.down_t.rows = slice_rows(&f->down_t.rows, n_skip, n);
    some.down_t.scale_max = f->down_t.scale_max + first / HTH_CLUSTER_NEURONS;
    some.gate_bias = f->gate_bias ? f->gate_bias + first : NULL;
    some.up_bias = f->up_bias ? f->up_bias + first : NULL;
    some.thresholds = f->thresholds ? f->thresholds + first : NULL;
    return some;
}

/* ---- opening ----------------------------------------------------------------------------------------------- */

/* Offsets of the arrays of hth_source_buffers, in an allocation of size bytes. */
typedef struct source_layout {
    size_t sums, scores, wanted, size;
} source_layout;

static bool lay_out(const hth_model *model, uint32_t n_row, source_layout *l)
{
    const hth_hparams *h = &model->hparams;
    size_t sums, scores;
    l->sums = (sizeof(hth_source_buffers) + 63) / 64 * 64;
    return hth_mul_size(n_row, h->d_model * sizeof(int64_t), &sums) && hth_add_size(l->sums, sums, &l->scores) &&
           hth_mul_size(n_row, h->d_ff * sizeof(float), &scores) && hth_add_size(l->scores, scores, &l->wanted) &&
           hth_add_size(l->wanted, hth_n_cluster(h->d_ff), &l->size);
}

bool hth_fwd_source_size(const hth_model *model, uint32_t n_row, size_t *size)
{
    source_layout l;
    bool ok = lay_out(model, n_row, &l);
    if (ok) *size = l.size;
    return ok;
}

hearth_status hth_step_use_source(hth_step *s, const hth_ffn_source *source, hearth_error *err)
{
    source_layout l;
    if (!s->model->down_transposed)
        return hth_fail(err, HEARTH_ERROR_UNSUPPORTED,
                        "%s: its neurons are not rows of down, so they cannot be fetched apart; hearth pack "
                        "makes them rows",
                        hth_gguf_path(s->model->file));
    assert(!s->source);
    bool ok = lay_out(s->model, s->n_tok_max, &l);
    hth_source_buffers *b = ok ? hth_alloc(1, l.size) : NULL;
    if (!b) return hth_fail_memory(err, ok ? l.size : SIZE_MAX, "sums of parts");
    b->sums = (int64_t *)(void *)((uint8_t *)b + l.sums);
    b->scores = (float *)(void *)((uint8_t *)b + l.scores);
    b->wanted = (uint8_t *)b + l.wanted;
    s->source = source, s->source_buffers = b;
    return HEARTH_OK;
}

/* ---- a layer ----------------------------------------------------------------------------------------------- */

/* Marks the clusters from neuron `first` on in which the predictor finds a neuron for any of n_row tokens. */
static void mark_wanted(const hth_step *s, const hth_ffn *f, uint32_t first, const float *scores, uint32_t n_row)
{
    uint8_t *wanted = s->source_buffers->wanted;
    memset(wanted, 0, hth_n_cluster(f->d_ff));
    for (size_t t = 0; t < n_row; t++)
        for (size_t j = first; j < f->d_ff; j++)
            if (!(scores[t * f->d_ff + j] < f->predictor.threshold)) wanted[j / HTH_CLUSTER_NEURONS] = 1;
}

/* Adds a part to the sums. */
static void compute_part(hth_step *s, uint32_t i_layer, const hth_ffn_part *part, const float *scores, uint32_t n_row,
                         hth_cold_sums *out)
{
    const hth_ffn *f = &s->model->layers[i_layer].ffn;
    uint32_t n = part->n_neuron;
    assert(part->first % HTH_CLUSTER_NEURONS == 0 && part->first + n <= f->d_ff);
    hth_ffn some = hth_ffn_slice(f, part->first, n, 0);
    some.gate.data = part->gate, some.up.data = part->up, some.down_t.rows.data = part->down;
    for (size_t t = 0; t < n_row && scores && s->selector == HEARTH_SELECTOR_PREDICTOR; t++)
        memcpy(s->scores + t * n, scores + t * f->d_ff + part->first, n * sizeof *s->scores);
    uint64_t n_active = out->n_active;
    hth_fwd_ffn_cold(s, i_layer, &some, n_row, out);
    out->more |= out->n_active > 0;
    out->n_active += n_active;
    hth_pool_quiesce(s->pool);
}

hearth_status hth_fwd_ffn_from_source(hth_step *s, uint32_t i_layer, uint32_t first, const float *scores, uint32_t n_row,
                                      hth_cold_sums *out, hearth_error *err)
{
    const hth_ffn *f = &s->model->layers[i_layer].ffn;
    const hth_ffn_source *from = s->source;
    *out = (hth_cold_sums){.sums = s->source_buffers->sums};
    bool predicts = s->selector == HEARTH_SELECTOR_PREDICTOR && scores;
    if (predicts) mark_wanted(s, f, first, scores, n_row);
    else memset(s->source_buffers->wanted, 1, hth_n_cluster(f->d_ff));
    if (!predicts) memset(s->source_buffers->wanted, 0, first / HTH_CLUSTER_NEURONS);
    from->request(from->user, i_layer, predicts || first > 0 ? s->source_buffers->wanted : NULL);
    for (;;) {
        hth_ffn_part part = {0};
        bool cancelled = hth_pool_is_cancelled(s->pool);
        hearth_status st = cancelled ? hth_fail_cancelled(err) : from->take(from->user, i_layer, &part, err);
        if (st != HEARTH_OK) from->cancel(from->user);
        if (st != HEARTH_OK) return st;
        if (part.n_neuron == 0) return HEARTH_OK;
        compute_part(s, i_layer, &part, scores, n_row, out);
        from->release(from->user, i_layer, &part);
    }
}

/* Converts the sums to block_out, or onto add_to. */
static void finish(hth_step *s, const float *bias, const hth_cold_sums *sums, float *add_to)
{
    size_t d = s->model->hparams.d_model;
    if (!sums->more) memset(sums->sums, 0, s->n_tok * d * sizeof *sums->sums);
    for (size_t t = 0; t < s->n_tok; t++)
        hth_axpy_write(s->k, sums->sums + t * d, d, sums->overflow, bias, s->block_out + t * d,
                       add_to ? add_to + t * d : NULL);
}

hearth_status hth_fwd_ffn_parts(hth_step *s, uint32_t i_layer, float *add_to, hearth_error *err)
{
    const hth_layer *l = &s->model->layers[i_layer];
    hth_cold_sums sums;
    bool predicts = s->selector == HEARTH_SELECTOR_PREDICTOR;
    hth_fwd_norm(s, &l->ffn_norm, s->x, s->x_norm, s->n_tok);
    if (predicts) hth_fwd_predict(s, &l->ffn, s->x, s->x_norm, s->n_tok, s->source_buffers->scores);
    hth_pool_finish(s->pool);
    if (hth_pool_is_cancelled(s->pool)) return hth_fail_cancelled(err);
    hearth_status st = hth_fwd_ffn_from_source(s, i_layer, 0, s->source_buffers->scores, s->n_tok, &sums, err);
    if (st == HEARTH_OK) finish(s, l->ffn.down_bias, &sums, add_to);
    return st;
}
