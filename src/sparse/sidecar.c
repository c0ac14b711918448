/* Reading and checking what belongs to a model. Called by the engine, and by convert/pack.c. */
#include "sparse/sidecar.h"

#include <stdio.h>
#include <string.h>

/* ---- the head --------------------------------------------------------------------------------- */

static hearth_status check_kind(const hth_gguf *file, const char *kind, hearth_error *err)
{
    hth_text name = {"", 0};
    char expected[40], shown[80];
    hearth_status st = hth_gguf_get_text(file, "general.architecture", &name, NULL, err);
    snprintf(expected, sizeof expected, "hearth.%s", kind);
    if (st != HEARTH_OK || hth_text_is(name, expected)) return st;
    return hth_fail(err, HEARTH_ERROR_FORMAT, "%s: general.architecture is '%s', not '%s': no file of %s",
                    hth_gguf_path(file), hth_escape(shown, sizeof shown, name.bytes, name.n), expected, kind);
}

hearth_status hth_sidecar_check_head(const hth_gguf *file, const char *kind, const hth_gguf *model,
                                     hearth_error *err)
{
    uint64_t version = 0, hash = 0, expected;
    bool found;
    hearth_status st = check_kind(file, kind, err);
    if (st == HEARTH_OK)
        st = hth_gguf_get_uint(file, "hearth.sidecar.version", 0, UINT32_MAX, &version, NULL, err);
    if (st == HEARTH_OK && version != HTH_SIDECAR_VERSION)
        st = hth_fail(err, HEARTH_ERROR_UNSUPPORTED,
                      "%s: hearth.sidecar.version is %llu, this version reads %d: make the file again",
                      hth_gguf_path(file), (unsigned long long)version, HTH_SIDECAR_VERSION);
    if (st == HEARTH_OK) st = hth_gguf_get_uint(file, "hearth.model.hash", 0, UINT64_MAX, &hash, &found, err);
    if (st == HEARTH_OK && !found) st = hth_gguf_missing(file, "hearth.model.hash", kind, err);
    if (st == HEARTH_OK) st = hth_model_hash(model, &expected, err);
    if (st == HEARTH_OK && hash != expected)
        st = hth_fail(err, HEARTH_ERROR_ARGUMENT,
                      "%s: made for another model (hearth.model.hash is %016llx, that of %s is %016llx)",
                      hth_gguf_path(file), (unsigned long long)hash, hth_gguf_path(model),
                      (unsigned long long)expected);
    return st;
}

hearth_status hth_sidecar_write_head(hth_gguf_writer *out, const char *kind, const hth_gguf *model,
                                     hearth_error *err)
{
    uint64_t hash;
    char name[40];
    int n = snprintf(name, sizeof name, "hearth.%s", kind);
    hearth_status st = hth_model_hash(model, &hash, err);
    if (st != HEARTH_OK) return st;
    hth_gguf_writer_text(out, "general.architecture", name, (size_t)n);
    hth_gguf_writer_uint(out, "hearth.sidecar.version", HTH_GGUF_U32, HTH_SIDECAR_VERSION);
    hth_gguf_writer_uint(out, "hearth.model.hash", HTH_GGUF_U64, hash);
    return HEARTH_OK;
}

/* ---- tensors ------------------------------------------------------------------------------------- */

static hearth_status wrong(const hth_gguf *file, const char *name, const char *what, hearth_error *err)
{
    return hth_fail(err, HEARTH_ERROR_FORMAT, "%s: tensor '%s' %s", hth_gguf_path(file), name, what);
}

/* A tensor of a layer; *t NULL where it may be absent and is. n_row 0: a vector. */
static hearth_status find(const hth_gguf *file, uint32_t i_layer, const char *rest, uint64_t n_col,
                          uint64_t n_row, bool needed, const hth_gguf_tensor **t, hearth_error *err)
{
    char name[64], what[160];
    snprintf(name, sizeof name, "blk.%u.%s", i_layer, rest);
    *t = hth_gguf_find_tensor(file, name);
    if (!*t) return needed ? wrong(file, name, "is missing", err) : HEARTH_OK;
    const hth_type_info *info = hth_type_find((uint32_t)(*t)->type);
    bool is_vector = n_row == 0;
    if (!info || !info->supported || (is_vector && (*t)->type != HTH_TYPE_F32))
        return wrong(file, name, "has a type that cannot be used", err);
    if ((*t)->dim[0] == n_col && (*t)->dim[1] == (is_vector ? 1 : n_row) && (*t)->dim[2] == 1 &&
        (*t)->dim[3] == 1)
        return HEARTH_OK;
    snprintf(what, sizeof what, "is [%llu, %llu], but the model asks for [%llu, %llu]",
             (unsigned long long)(*t)->dim[0], (unsigned long long)(*t)->dim[1], (unsigned long long)n_col,
             (unsigned long long)(is_vector ? 1 : n_row));
    return wrong(file, name, what, err);
}

/* All values of a vector are finite, and from `least` on. */
static hearth_status check_vector(const hth_gguf *file, const hth_gguf_tensor *t, float least,
                                  hearth_error *err)
{
    size_t n = (size_t)t->dim[0];
    float *x = hth_alloc(n, sizeof *x);
    hearth_status st = x ? hth_gguf_read(file, t, 0, n * sizeof *x, x, err)
                         : hth_fail_memory(err, n * sizeof *x, "a vector");
    for (size_t i = 0; st == HEARTH_OK && i < n; i++) {
        char what[100];
        if (x[i] >= least && x[i] <= 3e38f) continue;
        snprintf(what, sizeof what, "at %llu: value %zu is %g", (unsigned long long)t->offset, i,
                 (double)x[i]);
        st = wrong(file, t->name.bytes, what, err);
    }
    hth_free(x);
    return st;
}

static hearth_status check_predictor(hth_sidecar *s, const hth_model *m, uint32_t i, size_t *n_seen,
                                     hearth_error *err)
{
    const hth_gguf_tensor *in, *out, *bias;
    char name[40];
    snprintf(name, sizeof name, "blk.%u.fc1.weight", i);
    in = hth_gguf_find_tensor(s->file, name);
    uint64_t rank = in ? in->dim[1] : 0;
    if (rank > HTH_MAX_RANK)
        return wrong(s->file, name, "has more rows than a predictor may have (65536)", err);
    hearth_status st;
    if ((st = find(s->file, i, "fc1.weight", m->hparams.d_model, rank ? rank : 1, true, &in, err)) !=
            HEARTH_OK ||
        (st = find(s->file, i, "fc2.weight", rank, m->layers[i].d_ff, true, &out, err)) != HEARTH_OK ||
        (st = find(s->file, i, "fc2.bias", m->layers[i].d_ff, 0, false, &bias, err)) != HEARTH_OK)
        return st;
    *n_seen += bias ? 3 : 2;
    return bias ? check_vector(s->file, bias, -3e38f, err) : HEARTH_OK;
}

static hearth_status check_floor(hth_sidecar *s, const hth_model *m, uint32_t i, size_t *n_seen,
                                 hearth_error *err)
{
    const hth_gguf_tensor *t;
    hearth_status st = find(s->file, i, "ffn_floor.weight", m->layers[i].d_ff, 0, true, &t, err);
    (*n_seen)++;
    return st == HEARTH_OK ? check_vector(s->file, t, 0.0f, err) : st;
}

static hearth_status read_predictors(hth_sidecar *s, const hth_model *m, hearth_error *err)
{
    uint32_t n = m->hparams.n_layer;
    const hth_gguf_value *thresholds;
    hth_text input = {"", 0};
    hearth_status st =
        hth_gguf_get_array(s->file, "hearth.predictor.threshold", HTH_GGUF_F32, n, &thresholds, err);
    if (st == HEARTH_OK && !thresholds)
        st = hth_gguf_missing(s->file, "hearth.predictor.threshold", "predictors", err);
    if (st == HEARTH_OK) st = hth_gguf_get_text(s->file, "hearth.predictor.input", &input, NULL, err);
    if (st != HEARTH_OK) return st;
    s->from_residual = hth_text_is(input, "residual");
    if (!s->from_residual && !hth_text_is(input, "normed"))
        return hth_fail(err, HEARTH_ERROR_FORMAT, "%s: hearth.predictor.input is neither residual nor normed",
                        hth_gguf_path(s->file));
    s->thresholds = hth_alloc(n, sizeof *s->thresholds);
    if (!s->thresholds) return hth_fail_memory(err, n * sizeof *s->thresholds, "thresholds");
    for (uint32_t i = 0; i < n; i++) {
        s->thresholds[i] = (float)hth_gguf_element_float(thresholds, i);
        if (s->thresholds[i] >= -3e38f && s->thresholds[i] <= 3e38f) continue;
        return hth_fail(err, HEARTH_ERROR_FORMAT, "%s: hearth.predictor.threshold at %llu: value %u is %g",
                        hth_gguf_path(s->file), (unsigned long long)thresholds->offset, i,
                        (double)s->thresholds[i]);
    }
    return HEARTH_OK;
}

hearth_status hth_sidecar_open(hth_sidecar *s, const char *path, const char *kind, const hth_model *model,
                               hearth_error *err)
{
    bool predictors = strcmp(kind, "predictors") == 0;
    size_t n_seen = 0;
    *s = (hth_sidecar){0};
    hearth_status st = hth_gguf_open(path, &s->file, err);
    if (st == HEARTH_OK) st = hth_sidecar_check_head(s->file, kind, model->file, err);
    if (st == HEARTH_OK && predictors) st = read_predictors(s, model, err);
    for (uint32_t i = 0; st == HEARTH_OK && i < model->hparams.n_layer; i++)
        st = (predictors ? check_predictor : check_floor)(s, model, i, &n_seen, err);
    if (st == HEARTH_OK && n_seen != hth_gguf_n_tensor(s->file))
        st = hth_fail(err, HEARTH_ERROR_FORMAT, "%s: holds %zu tensors, of which %zu belong to a file of %s",
                      path, hth_gguf_n_tensor(s->file), n_seen, kind);
    if (st != HEARTH_OK) hth_sidecar_close(s);
    return st;
}

void hth_sidecar_close(hth_sidecar *s)
{
    if (s->file) hth_gguf_close(s->file);
    hth_free(s->thresholds);
    *s = (hth_sidecar){0};
}
