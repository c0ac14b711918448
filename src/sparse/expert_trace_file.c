/* Traces of experts as files: a GGUF without weights, whose keys and tensors docs/profile.md lists. No part of the file
 * is trusted: all values are checked. */
#include "base/alloc.h"
#include "base/hash.h"
#include "sparse/expert_trace.h"
#include "sparse/sidecar.h"

#include <stdio.h>
#include <string.h>

#define KIND "trace"
#define KEY_TEXT "hearth.trace.text_hash"
#define KEY_TOKENS "hearth.trace.tokens"
#define KEY_CONTEXT "hearth.trace.context"
#define KEY_SETTINGS "hearth.trace.settings"
#define KEY_CHECKSUM "hearth.trace.checksum"
#define KEY_EXPERTS "hearth.trace.experts"
#define KEY_USED "hearth.trace.experts_used"

enum { NAME_SIZE = 40 };

static const char *name_of(char name[NAME_SIZE], uint32_t i_layer)
{
    snprintf(name, NAME_SIZE, "blk.%u.experts", i_layer);
    return name;
}

static size_t size_of(const hth_expert_trace *t, uint32_t i_layer)
{
    return (size_t)t->n_tok * t->layers[i_layer].n_used * sizeof *t->layers[i_layer].chosen;
}

/* Over all values of a file: a flipped bit could name another expert. */
static uint64_t checksum(const hth_expert_trace *t)
{
    const uint64_t numbers[] = {t->model_hash, t->text_hash, t->n_tok, t->n_ctx, t->n_layer};
    uint64_t h = hth_hash_more(0, numbers, sizeof numbers);
    h = hth_hash_more(h, t->settings, strlen(t->settings) + 1);
    for (uint32_t i = 0; i < t->n_layer; i++) {
        const uint32_t shape[] = {t->layers[i].n_expert, t->layers[i].n_used};
        h = hth_hash_more(h, shape, sizeof shape);
        if (t->layers[i].n_used > 0) h = hth_hash_more(h, t->layers[i].chosen, size_of(t, i));
    }
    return h;
}

/* ---- writing -------------------------------------------------------------------------------- */

static void set_keys(hth_gguf_writer *w, const hth_expert_trace *t)
{
    uint32_t n_expert[HTH_MAX_LAYER], n_used[HTH_MAX_LAYER];
    for (uint32_t i = 0; i < t->n_layer; i++) n_expert[i] = t->layers[i].n_expert, n_used[i] = t->layers[i].n_used;
    hth_sidecar_write_head(w, KIND, t->model_hash);
    hth_gguf_writer_uint(w, KEY_TEXT, HTH_GGUF_U64, t->text_hash);
    hth_gguf_writer_uint(w, KEY_TOKENS, HTH_GGUF_U32, t->n_tok);
    hth_gguf_writer_uint(w, KEY_CONTEXT, HTH_GGUF_U32, t->n_ctx);
    hth_gguf_writer_text(w, KEY_SETTINGS, t->settings, strlen(t->settings));
    hth_gguf_writer_uint(w, KEY_CHECKSUM, HTH_GGUF_U64, checksum(t));
    hth_gguf_writer_array(w, KEY_EXPERTS, HTH_GGUF_U32, n_expert, t->n_layer);
    hth_gguf_writer_array(w, KEY_USED, HTH_GGUF_U32, n_used, t->n_layer);
}

hearth_status hth_expert_trace_write(const hth_expert_trace *t, const char *path, hearth_error *err)
{
    hth_gguf_writer *w = NULL;
    char name[NAME_SIZE];
    hearth_status st = hth_gguf_writer_open(path, &w, err);
    if (st != HEARTH_OK) return st;
    set_keys(w, t);
    for (uint32_t i = 0; i < t->n_layer; i++) {
        const uint64_t shape[] = {t->layers[i].n_used, t->n_tok};
        if (shape[0] > 0) hth_gguf_writer_tensor(w, name_of(name, i), HTH_TYPE_I16, 2, shape);
    }
    st = hth_gguf_writer_begin(w, err);
    for (uint32_t i = 0; st == HEARTH_OK && i < t->n_layer; i++)
        if (t->layers[i].n_used > 0) st = hth_gguf_writer_data(w, t->layers[i].chosen, size_of(t, i), err);
    if (st == HEARTH_OK) st = hth_gguf_writer_finish(w, err);
    hth_gguf_writer_close(w);
    return st;
}

/* ---- reading --------------------------------------------------------------------------------- */

typedef struct reader {
    const hth_gguf *file;
    hth_expert_trace *t;
    hearth_error *err;
} reader;

static unsigned long long at_key(const reader *r, const char *key)
{
    return (unsigned long long)hth_gguf_find(r->file, key)->offset;
}

static hearth_status read_numbers(reader *r)
{
    hth_expert_trace *t = r->t;
    uint64_t n_tok = 0, n_ctx = 0;
    hearth_status st = hth_sidecar_need_uint(r->file, KIND, KEY_TEXT, 0, UINT64_MAX, &t->text_hash, r->err);
    if (st == HEARTH_OK)
        st = hth_sidecar_need_uint(r->file, KIND, KEY_TOKENS, 1, HTH_EXPERT_TRACE_MAX_TOK, &n_tok, r->err);
    if (st == HEARTH_OK) st = hth_sidecar_need_uint(r->file, KIND, KEY_CONTEXT, 1, n_tok, &n_ctx, r->err);
    t->n_tok = (uint32_t)n_tok, t->n_ctx = (uint32_t)n_ctx;
    if (st == HEARTH_OK && n_tok % n_ctx != 0)
        return hth_fail(r->err, HEARTH_ERROR_FORMAT, "%s: %s at %llu is %llu, not whole chunks of %llu (%s)",
                        hth_gguf_path(r->file), KEY_TOKENS, at_key(r, KEY_TOKENS), (unsigned long long)n_tok,
                        (unsigned long long)n_ctx, KEY_CONTEXT);
    if (st == HEARTH_OK)
        st = hth_sidecar_need_text(r->file, KIND, KEY_SETTINGS, t->settings, sizeof t->settings, r->err);
    return st;
}

/* The numbers of experts of each layer. */
static hearth_status read_shape(reader *r)
{
    hth_expert_trace *t = r->t;
    const hth_gguf_value *n_expert, *n_used;
    bool some = false;
    hearth_status st = hth_sidecar_need_array(r->file, KIND, KEY_EXPERTS, HTH_GGUF_U32, 0, &n_expert, r->err);
    if (st != HEARTH_OK) return st;
    if (n_expert->n_element < 1 || n_expert->n_element > HTH_MAX_LAYER)
        return hth_fail(r->err, HEARTH_ERROR_FORMAT, "%s: %s at %llu has %llu values; 1 to %d layers are possible",
                        hth_gguf_path(r->file), KEY_EXPERTS, at_key(r, KEY_EXPERTS),
                        (unsigned long long)n_expert->n_element, HTH_MAX_LAYER);
    t->n_layer = (uint32_t)n_expert->n_element;
    st = hth_sidecar_need_array(r->file, KIND, KEY_USED, HTH_GGUF_U32, t->n_layer, &n_used, r->err);
    if (st != HEARTH_OK) return st;
    t->layers = hth_arena_alloc(&t->arena, t->n_layer, sizeof *t->layers, 16);
    if (!t->layers) return hth_fail_memory(r->err, t->n_layer * sizeof *t->layers, "a trace");
    for (uint32_t i = 0; i < t->n_layer; i++) {
        uint64_t n = hth_gguf_element_uint(n_expert, i), used = hth_gguf_element_uint(n_used, i);
        if (n > HTH_MAX_EXPERT || used > n || (used == 0) != (n == 0))
            return hth_fail(r->err, HEARTH_ERROR_FORMAT,
                            "%s: %s at %llu: layer %u uses %llu of %llu experts; a layer has up to %d",
                            hth_gguf_path(r->file), KEY_USED, at_key(r, KEY_USED), i, (unsigned long long)used,
                            (unsigned long long)n, HTH_MAX_EXPERT);
        t->layers[i] = (hth_expert_trace_layer){(uint32_t)n, (uint32_t)used, NULL};
        some = some || used > 0;
    }
    if (some) return HEARTH_OK;
    return hth_fail(r->err, HEARTH_ERROR_FORMAT, "%s: %s at %llu: no layer has experts", hth_gguf_path(r->file),
                    KEY_USED, at_key(r, KEY_USED));
}

/* The tensor of a layer, of the shape that the keys name. */
static hearth_status find_tensor(reader *r, uint32_t i_layer, const hth_gguf_tensor **tensor)
{
    char name[NAME_SIZE];
    uint64_t n_used = r->t->layers[i_layer].n_used, n_tok = r->t->n_tok;
    const hth_gguf_tensor *t = *tensor = hth_gguf_find_tensor(r->file, name_of(name, i_layer));
    if (!t)
        return hth_fail(r->err, HEARTH_ERROR_FORMAT, "%s: tensor '%s' is missing, though the layer has experts",
                        hth_gguf_path(r->file), name);
    if (t->type == HTH_TYPE_I16 && t->n_dim == 2 && t->dim[0] == n_used && t->dim[1] == n_tok) return HEARTH_OK;
    return hth_fail(r->err, HEARTH_ERROR_FORMAT,
                    "%s: tensor '%s' at %llu: %s of %u dimensions, %llu x %llu, but I16 of 2, %llu x %llu, is expected",
                    hth_gguf_path(r->file), name, (unsigned long long)t->offset, hth_type_find(t->type)->name, t->n_dim,
                    (unsigned long long)t->dim[0], (unsigned long long)t->dim[1], (unsigned long long)n_used,
                    (unsigned long long)n_tok);
}

static hearth_status read_layer(reader *r, uint32_t i_layer)
{
    hth_expert_trace_layer *l = &r->t->layers[i_layer];
    const hth_gguf_tensor *tensor;
    if (l->n_used == 0) return HEARTH_OK;
    hearth_status st = find_tensor(r, i_layer, &tensor);
    if (st != HEARTH_OK) return st;
    size_t n = (size_t)r->t->n_tok * l->n_used;
    l->chosen = hth_arena_alloc(&r->t->arena, n, sizeof *l->chosen, 16);
    if (!l->chosen) return hth_fail_memory(r->err, n * sizeof *l->chosen, "a trace");
    st = hth_gguf_read(r->file, tensor, 0, n * sizeof *l->chosen, l->chosen, r->err);
    for (size_t i = 0; st == HEARTH_OK && i < n; i++) {
        bool ascends = i % l->n_used == 0 || l->chosen[i] >= l->chosen[i - 1];
        if (l->chosen[i] < l->n_expert && ascends) continue;
        st = hth_fail(r->err, HEARTH_ERROR_FORMAT,
                      "%s: tensor '%s' at %llu: token %zu: expert %u is not below %u, or not in order; the file is "
                      "damaged",
                      hth_gguf_path(r->file), tensor->name.bytes, (unsigned long long)tensor->offset, i / l->n_used,
                      l->chosen[i], l->n_expert);
    }
    return st;
}

static hearth_status check_checksum(reader *r)
{
    uint64_t said;
    hearth_status st = hth_sidecar_need_uint(r->file, KIND, KEY_CHECKSUM, 0, UINT64_MAX, &said, r->err);
    if (st != HEARTH_OK || said == checksum(r->t)) return st;
    return hth_fail(r->err, HEARTH_ERROR_FORMAT, "%s: %s at %llu is not that of the experts: the file is damaged",
                    hth_gguf_path(r->file), KEY_CHECKSUM, at_key(r, KEY_CHECKSUM));
}

static hearth_status read_all(reader *r, const hth_model *model)
{
    const hth_gguf *of = model ? model->file : NULL;
    hearth_status st = hth_sidecar_check_head(r->file, KIND, of, &r->t->model_hash, r->err);
    if (st == HEARTH_OK) st = read_numbers(r);
    if (st == HEARTH_OK) st = read_shape(r);
    if (st == HEARTH_OK && model) st = hth_expert_trace_check_shape(r->t, model, r->err);
    for (uint32_t i = 0; st == HEARTH_OK && i < r->t->n_layer; i++) st = read_layer(r, i);
    return st == HEARTH_OK ? check_checksum(r) : st;
}

hearth_status hth_expert_trace_open(const char *path, const hth_model *model, hth_expert_trace **out,
                                    hearth_error *err)
{
    hth_gguf *file;
    *out = NULL;
    hearth_status st = hth_gguf_open(path, &file, err);
    if (st != HEARTH_OK) return st;
    reader r = {.file = file, .err = err};
    r.t = hth_alloc(1, sizeof *r.t);
    st = r.t ? read_all(&r, model) : hth_fail_memory(err, sizeof *r.t, "a trace");
    hth_gguf_close(file);
    if (st == HEARTH_OK) *out = r.t;
    else hth_expert_trace_close(r.t);
    return st;
}
