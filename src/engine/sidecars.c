/* Sidecars: predictors and thresholds in files of their own, which hearth pack would store in the model's file.
 * Called by model.c, before the selector is chosen and after the weights are loaded. */
#include "engine/engine.h"

#include <stdio.h>

hearth_status hth_engine_open_sidecars(hearth_model *m, const hearth_model_options *o,
                                       hth_sidecar sidecars[2], hearth_error *err)
{
    hearth_status st = HEARTH_OK;
    sidecars[0] = sidecars[1] = (hth_sidecar){0};
    if (o->predictors) st = hth_sidecar_open(&sidecars[0], o->predictors, "predictors", m->model, err);
    if (st == HEARTH_OK && o->thresholds)
        st = hth_sidecar_open(&sidecars[1], o->thresholds, "thresholds", m->model, err);
    m->model->has_predictors |= sidecars[0].file != NULL;
    m->model->has_thresholds |= sidecars[1].file != NULL;
    return st;
}

static const hth_gguf_tensor *find(const hth_gguf *file, uint32_t i_layer, const char *rest)
{
    char name[64];
    snprintf(name, sizeof name, "blk.%u.%s", i_layer, rest);
    return hth_gguf_find_tensor(file, name);
}

/* Reads n floats of a vector, which was checked when the file was opened. */
static hearth_status read_vector(hearth_model *m, const hth_gguf *file, const hth_gguf_tensor *t,
                                 const float **out, hearth_error *err)
{
    float *x = hth_arena_alloc(&m->vectors, (size_t)t->dim[0], sizeof *x, 64);
    *out = x;
    return x ? hth_gguf_read(file, t, 0, (size_t)t->size, x, err)
             : hth_fail_memory(err, t->size, "thresholds");
}

static hearth_status read_floors(hearth_model *m, const hth_sidecar *s, hearth_error *err)
{
    hearth_status st = HEARTH_OK;
    for (uint32_t i = 0; st == HEARTH_OK && s->file && i < m->model->hparams.n_layer; i++)
        st = read_vector(m, s->file, find(s->file, i, "ffn_floor.weight"), &m->model->layers[i].ffn.thresholds, err);
    return st;
}

static hearth_status read_matrix(const hth_gguf *file, const hth_gguf_tensor *t, uint8_t **at,
                                 hth_matrix *matrix, hearth_error *err)
{
    *matrix = (hth_matrix){.type = t->type,
                           .n_row = (size_t)t->dim[1],
                           .n_col = (size_t)t->dim[0],
                           .row_size = hth_type_row_size(t->type, (size_t)t->dim[0]),
                           .data = *at};
    hearth_status st = hth_gguf_read(file, t, 0, (size_t)t->size, *at, err);
    *at += (t->size + 63) & ~(uint64_t)63;
    return st;
}

static hearth_status read_predictor(hearth_model *m, const hth_sidecar *s, uint32_t i, uint8_t **at,
                                    hearth_error *err)
{
    hth_predictor *p = &m->model->layers[i].ffn.predictor;
    const hth_gguf_tensor *bias = find(s->file, i, "fc2.bias");
    hearth_status st = read_matrix(s->file, find(s->file, i, "fc1.weight"), at, &p->in, err);
    if (st == HEARTH_OK) st = read_matrix(s->file, find(s->file, i, "fc2.weight"), at, &p->out, err);
    p->bias = NULL;
    p->threshold = s->thresholds[i];
    if (p->in.n_row > m->model->hparams.rank) m->model->hparams.rank = (uint32_t)p->in.n_row;
    return st == HEARTH_OK && bias ? read_vector(m, s->file, bias, &p->bias, err) : st;
}

static hearth_status read_predictors(hearth_model *m, const hth_sidecar *s, hearth_error *err)
{
    size_t size = 0;
    if (!s->file) return HEARTH_OK;
    for (size_t i = 0; i < hth_gguf_n_tensor(s->file); i++)
        size += (hth_gguf_tensor_at(s->file, i)->size + 63) & ~(uint64_t)63;
    m->predictors = hth_pages_alloc(size);
    m->predictors_size = size;
    m->model->predicts_from_residual = s->from_residual;
    if (!m->predictors) return hth_fail_memory(err, size, "predictors");
    uint8_t *at = m->predictors;
    hearth_status st = HEARTH_OK;
    for (uint32_t i = 0; st == HEARTH_OK && i < m->model->hparams.n_layer; i++)
        st = read_predictor(m, s, i, &at, err);
    return st;
}

static void count(hearth_model *m, const hth_sidecar *s, hth_sidecar_kind part)
{
    for (size_t i = 0; s->file && i < hth_gguf_n_tensor(s->file); i++) {
        const hth_gguf_tensor *t = hth_gguf_tensor_at(s->file, i);
        m->from_sidecar[part].n_weight += t->dim[0] * t->dim[1];
        m->from_sidecar[part].size += t->size;
    }
}

hearth_status hth_engine_read_sidecars(hearth_model *m, const hth_sidecar sidecars[2], hearth_error *err)
{
    count(m, &sidecars[0], HTH_SIDECAR_PREDICTORS);
    count(m, &sidecars[1], HTH_SIDECAR_THRESHOLDS);
    hearth_status st = read_predictors(m, &sidecars[0], err);
    return st == HEARTH_OK ? read_floors(m, &sidecars[1], err) : st;
}

bool hth_engine_is_from_sidecar(const hearth_model *m, const hth_matrix *w)
{
    return m->predictors && w->data >= m->predictors && w->data < m->predictors + m->predictors_size;
}
