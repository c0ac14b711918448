/* A layer's network from a source, part by part. */
#include "forward/ffn_source.h"

#include "base/checked_math.h"
#include "forward/forward_int.h"

#include <assert.h>
#include <string.h>

/* Beside the step's own buffers. */
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
    some.data = m->data + n_skip * m->row_size;
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

hearth_status hth_step_use_source(hth_step *s, const hth_ffn_source *source, hearth_error *err)
{
    const hth_hparams *h = &s->model->hparams;
    size_t n_tok = s->n_tok_max, n_cluster = hth_n_cluster(h->d_ff);
    if (!s->model->down_transposed)
        return hth_fail(err, HEARTH_ERROR_UNSUPPORTED, "%s: its neurons are not rows of down, so they cannot be fetched apart",
                        hth_gguf_path(s->model->file));
    size_t head = (sizeof(hth_source_buffers) + 63) / 64 * 64, sums = n_tok * h->d_model * sizeof(int64_t),
           scores = n_tok * h->d_ff * sizeof(float);
    hth_source_buffers *b = hth_alloc(1, head + sums + scores + n_cluster);
    if (!b) return hth_fail_memory(err, head + sums + scores + n_cluster, "sums of parts");
    b->sums = (int64_t *)(void *)((uint8_t *)b + head);
    b->scores = (float *)(void *)((uint8_t *)b->sums + sums);
    b->wanted = (uint8_t *)b->scores + scores;
    s->source = source, s->source_buffers = b;
    return HEARTH_OK;
}

/* ---- a layer ----------------------------------------------------------------------------------------------- */

/* Marks the clusters in which the predictor finds a neuron for any token. */
static void mark_wanted(const hth_step *s, const hth_ffn *f)
{
    const hth_source_buffers *b = s->source_buffers;
    memset(b->wanted, 0, hth_n_cluster(f->d_ff));
    for (size_t t = 0; t < s->n_tok; t++)
        for (size_t j = 0; j < f->d_ff; j++)
            if (!(b->scores[t * f->d_ff + j] < f->predictor.threshold)) b->wanted[j / HTH_CLUSTER_NEURONS] = 1;
}

/* Adds a part to the sums. */
static void compute_part(hth_step *s, uint32_t i_layer, const hth_ffn_part *part, hth_cold_sums *out)
{
    const hth_ffn *f = &s->model->layers[i_layer].ffn;
    uint32_t n = part->ffn->d_ff;
    assert(part->first % HTH_CLUSTER_NEURONS == 0 && part->first + n <= f->d_ff);
    for (size_t t = 0; t < s->n_tok && s->selector == HEARTH_SELECTOR_PREDICTOR; t++)
        memcpy(s->scores + t * n, s->source_buffers->scores + t * f->d_ff + part->first, n * sizeof *s->scores);
    bool overflow = out->overflow;
    hth_fwd_ffn_cold(s, i_layer, part->ffn, s->n_tok, out);
    out->more |= out->n_active > 0, out->overflow |= overflow;
    hth_pool_quiesce(s->pool);
}

/* Converts the sums to block_out, or onto add_to. */
static void finish(hth_step *s, const float *bias, const hth_cold_sums *sums, float *add_to)
{
    size_t d = s->model->hparams.d_model;
    for (size_t t = 0; t < s->n_tok; t++) {
        float *y = s->block_out + t * d;
        if (sums->more) hth_axpy_finish(sums->sums + t * d, d, y);
        else memset(y, 0, d * sizeof *y);
        for (size_t o = 0; sums->overflow && o < d; o++) y[o] = __builtin_nanf("");
        if (bias) s->k->add(y, bias, d, y);
        if (add_to) s->k->add(add_to + t * d, y, d, add_to + t * d);
    }
}

hearth_status hth_fwd_ffn_parts(hth_step *s, uint32_t i_layer, float *add_to, hearth_error *err)
{
    const hth_layer *l = &s->model->layers[i_layer];
    const hth_ffn_source *from = s->source;
    const uint8_t *wanted = NULL;
    hth_cold_sums sums = {.sums = s->source_buffers->sums};
    hth_fwd_norm(s, &l->ffn_norm, s->x, s->x_norm, s->n_tok);
    if (s->selector == HEARTH_SELECTOR_PREDICTOR) {
        hth_fwd_predict(s, &l->ffn, s->x, s->x_norm, s->n_tok, s->source_buffers->scores);
        hth_pool_finish(s->pool);
        mark_wanted(s, &l->ffn);
        wanted = s->source_buffers->wanted;
    }
    hth_pool_finish(s->pool);
    from->request(from->user, i_layer, wanted);
    for (;;) {
        hth_ffn_part part = {0};
        hearth_status st = from->take(from->user, i_layer, &part, err);
        if (st != HEARTH_OK) return st;
        if (!part.ffn) break;
        compute_part(s, i_layer, &part, &sums);
        from->release(from->user, i_layer, &part);
    }
    finish(s, l->ffn.down_bias, &sums, add_to);
    return HEARTH_OK;
}
