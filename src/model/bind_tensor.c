/* Binds single tensors: finds them by name, checks type and shape, and lists the destination of their weights. */
#include "model/bind_int.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

const hth_gguf_tensor *hth_bind_find(hth_binder *b, const char *name)
{
    snprintf(b->name, sizeof b->name, "%s", name);
    return hth_gguf_find_tensor(b->model->file, b->name);
}

const hth_gguf_tensor *hth_bind_find_in_layer(hth_binder *b, uint32_t i_layer, const char *name)
{
    snprintf(b->name, sizeof b->name, "blk.%u.%s", b->first_block + i_layer, name);
    return hth_gguf_find_tensor(b->model->file, b->name);
}

hearth_status hth_bind_missing(hth_binder *b)
{
    return hth_fail(b->err, HEARTH_ERROR_FORMAT, "%s: tensor '%s' is missing (needed by architecture %s)",
                    hth_gguf_path(b->model->file), b->name, b->model->hparams.arch->name);
}

void hth_bind_note_used(hth_model *m, const hth_gguf_tensor *t)
{
    bool *used = &m->used[t - hth_gguf_tensor_at(m->file, 0)];
    m->n_tensor += !*used;
    *used = true;
}

/* Until it is loaded, a vector is not NULL: what is bound is known from then on. */
static void remember(hth_binder *b, hth_binding binding)
{
    hth_model *m = b->model;
    if (binding.vector) *binding.vector = m->ones;
    assert(m->n_binding < (size_t)m->hparams.n_layer * HTH_BINDINGS_PER_LAYER + HTH_BINDINGS_BESIDES);
    binding.layer = b->layer;
    m->bindings[m->n_binding++] = binding;
    m->weight_size += binding.size;
    hth_bind_note_used(m, binding.tensor);
}

static hearth_status check_type(hth_binder *b, const hth_gguf_tensor *t)
{
    const hth_type_info *info = hth_type_find(t->type);
    if (info && info->supported) return HEARTH_OK;
    return hth_fail(b->err, HEARTH_ERROR_UNSUPPORTED,
                    "%s: tensor '%s' (info at byte %llu) has type %s; supported: %s",
                    hth_gguf_part_path(b->model->file, t->i_part), b->name, (unsigned long long)t->info_at,
                    info ? info->name : "unknown", hth_type_supported_list());
}

static hearth_status wrong_slices(hth_binder *b, const hth_gguf_tensor *t, uint64_t n_col, uint64_t n_row,
                                  uint64_t n_slice)
{
    char slices[32] = "";
    if (n_slice > 1) snprintf(slices, sizeof slices, ", %llu", (unsigned long long)n_slice);
    return hth_fail(b->err, HEARTH_ERROR_FORMAT,
                    "%s: tensor '%s' (info at byte %llu) is [%llu, %llu, %llu, %llu], but the metadata ask "
                    "for [%llu, %llu%s]",
                    hth_gguf_part_path(b->model->file, t->i_part), b->name, (unsigned long long)t->info_at,
                    (unsigned long long)t->dim[0], (unsigned long long)t->dim[1],
                    (unsigned long long)t->dim[2], (unsigned long long)t->dim[3], (unsigned long long)n_col,
                    (unsigned long long)n_row, slices);
}

hearth_status hth_bind_wrong_shape(hth_binder *b, const hth_gguf_tensor *t, uint64_t n_col, uint64_t n_row)
{
    return wrong_slices(b, t, n_col, n_row, 1);
}

hearth_status hth_bind_parts(hth_binder *b, const hth_gguf_tensor *t, size_t n_col,
                             const hth_bind_part *parts, size_t n_part)
{
    if (!t) return hth_bind_missing(b);
    hearth_status st = check_type(b, t);
    if (st != HEARTH_OK) return st;
    uint64_t n_row = 0, at = 0;
    for (size_t i = 0; i < n_part; i++) n_row += parts[i].n_row;
    if (t->dim[0] != n_col || t->dim[1] != n_row || t->dim[2] != 1 || t->dim[3] != 1)
        return hth_bind_wrong_shape(b, t, n_col, n_row);
    size_t row_size = hth_type_row_size(t->type, n_col);
    for (size_t i = 0; i < n_part; i++) {
        uint64_t size = row_size * parts[i].n_row; /* inside the tensor: cannot overflow */
        *parts[i].matrix =
            (hth_matrix){.type = t->type, .n_row = parts[i].n_row, .n_col = n_col, .row_size = row_size};
        remember(b, (hth_binding){.tensor = t, .matrix = parts[i].matrix, .offset = at, .size = size});
        at += size;
    }
    return HEARTH_OK;
}

hearth_status hth_bind_matrix(hth_binder *b, const hth_gguf_tensor *t, size_t n_row, size_t n_col,
                              hth_matrix *m)
{
    return hth_bind_parts(b, t, n_col, &(hth_bind_part){n_row, m}, 1);
}

hearth_status hth_bind_matrices(hth_binder *b, uint32_t i_layer, const hth_bind_named *list, size_t n)
{
    hearth_status st = HEARTH_OK;
    for (size_t k = 0; st == HEARTH_OK && k < n; k++)
        st = hth_bind_matrix(b, hth_bind_find_in_layer(b, i_layer, list[k].name), list[k].n_row, list[k].n_col,
                             list[k].matrix);
    return st;
}

hearth_status hth_bind_slices(hth_binder *b, const hth_gguf_tensor *t, size_t n_slice, size_t n_row,
                              size_t n_col, hth_matrix *m)
{
    if (!t) return hth_bind_missing(b);
    hearth_status st = check_type(b, t);
    if (st != HEARTH_OK) return st;
    if (t->dim[0] != n_col || t->dim[1] != n_row || t->dim[2] != n_slice || t->dim[3] != 1)
        return wrong_slices(b, t, n_col, n_row, n_slice);
    size_t row_size = hth_type_row_size(t->type, n_col);
    *m = (hth_matrix){
        .type = t->type, .n_row = n_slice * n_row, .n_col = n_col, .row_size = row_size, .n_slice = n_slice};
    remember(b, (hth_binding){.tensor = t, .matrix = m, .size = row_size * m->n_row});
    return HEARTH_OK;
}

/* n_row vectors of n floats. llama-quantize leaves norms and biases, one vector each, in float types, but not every table
 * of vectors; those are unpacked to floats. */
static hearth_status check_vectors(hth_binder *b, const hth_gguf_tensor *t, size_t n, size_t n_row)
{
    if (!t) return hth_bind_missing(b);
    hearth_status st = check_type(b, t);
    if (st != HEARTH_OK) return st;
    if (n_row == 1 && hth_type_find(t->type)->quantised)
        return hth_fail(
            b->err, HEARTH_ERROR_UNSUPPORTED,
            "%s: tensor '%s' (info at byte %llu) has type %s; norms and biases are F32, F16 or BF16",
            hth_gguf_part_path(b->model->file, t->i_part), b->name, (unsigned long long)t->info_at,
            hth_type_find(t->type)->name);
    bool apart = t->dim[1] == 1 && t->dim[2] == n_row, together = t->dim[1] == n_row && t->dim[2] == 1;
    bool fits = t->dim[0] == n && (apart || together) && t->dim[3] == 1;
    return fits ? HEARTH_OK : hth_bind_wrong_shape(b, t, n, n_row);
}

static hearth_status check_vector(hth_binder *b, const hth_gguf_tensor *t, size_t n)
{
    return check_vectors(b, t, n, 1);
}

hearth_status hth_bind_vectors(hth_binder *b, const hth_gguf_tensor *t, size_t n, size_t n_row,
                               const float **vectors)
{
    hearth_status st = check_vectors(b, t, n, n_row);
    if (st == HEARTH_OK)
        remember(b, (hth_binding){.tensor = t, .vector = vectors, .n = n * n_row, .size = t->size});
    return st;
}

hearth_status hth_bind_transposed(hth_binder *b, const hth_gguf_tensor *t, size_t n_col, size_t n_row,
                                  const float **vector)
{
    hearth_status st = check_vectors(b, t, n_col, n_row);
    if (st == HEARTH_OK)
        remember(b, (hth_binding){
                        .tensor = t, .vector = vector, .n = n_col * n_row, .n_row = n_row, .size = t->size});
    return st;
}

hearth_status hth_bind_vector(hth_binder *b, const hth_gguf_tensor *t, size_t n, const float **vector)
{
    return hth_bind_vectors(b, t, n, 1, vector);
}

hearth_status hth_bind_scaled(hth_binder *b, const hth_gguf_tensor *t, size_t n, double factor, const float **vector)
{
    hearth_status st = check_vectors(b, t, n, 1);
    if (st == HEARTH_OK)
        remember(b, (hth_binding){.tensor = t, .vector = vector, .n = n, .factor = factor, .size = t->size});
    return st;
}

hearth_status hth_bind_check_indices(hth_binder *b, const hth_gguf_tensor *t, size_t n, size_t n_row)
{
    if (!t) return hth_bind_missing(b);
    if (t->type != HTH_TYPE_I32)
        return hth_fail(b->err, HEARTH_ERROR_FORMAT, "%s: tensor '%s' (info at byte %llu) has type %s, expected I32",
                        hth_gguf_part_path(b->model->file, t->i_part), b->name, (unsigned long long)t->info_at,
                        hth_type_find((uint32_t)t->type)->name);
    if (t->dim[0] != n || t->dim[1] != n_row || t->dim[2] != 1 || t->dim[3] != 1)
        return hth_bind_wrong_shape(b, t, n, n_row);
    return HEARTH_OK;
}

hearth_status hth_bind_indices(hth_binder *b, const hth_gguf_tensor *t, size_t n, size_t n_row, uint32_t n_index,
                               const float **indices)
{
    hearth_status st = hth_bind_check_indices(b, t, n, n_row);
    if (st == HEARTH_OK)
        remember(b, (hth_binding){.tensor = t, .vector = indices, .n = n * n_row, .n_row = n_row, .size = t->size,
                                  .n_index = n_index});
    return st;
}

hearth_status hth_bind_bias_parts(hth_binder *b, const hth_gguf_tensor *t, const size_t *n,
                                  const float **vectors[], size_t n_part)
{
    size_t all = 0;
    for (size_t i = 0; i < n_part; i++) all += n[i];
    hearth_status st = t ? check_vector(b, t, all) : HEARTH_OK;
    if (!t || st != HEARTH_OK) return st;
    uint64_t at = 0, size = t->size / all; /* size: bytes of a value, as no float type has blocks */
    for (size_t i = 0; i < n_part; at += n[i] * size, i++)
        remember(b, (hth_binding){
                        .tensor = t, .vector = vectors[i], .n = n[i], .offset = at, .size = n[i] * size});
    return HEARTH_OK;
}

hearth_status hth_bind_divisors(hth_binder *b, const hth_gguf_tensor *t, const float **vector)
{
    size_t n = b->model->hparams.rope.n_rot / 2;
    hearth_status st = check_vector(b, t, n);
    if (st == HEARTH_OK)
        remember(b, (hth_binding){
                        .tensor = t, .vector = vector, .n = n, .size = t->size, .must_be_nonzero = true});
    return st;
}

bool hth_bind_is_ignored(const hth_arch *arch, const char *name)
{
    size_t n = strlen(name);
    for (const char *at = arch->ignored; at && *at; at = strchr(at, ' ') + 1) {
        size_t n_suffix = (size_t)(strchr(at, ' ') - at);
        bool whole = n == n_suffix || (n > n_suffix && name[n - n_suffix - 1] == '.');
        if (whole && memcmp(name + n - n_suffix, at, n_suffix) == 0) return true;
    }
    return false;
}

hearth_status hth_bind_bias(hth_binder *b, uint32_t i_layer, const char *name, bool needed, size_t n,
                            const float **vector)
{
    char full[48];
    snprintf(full, sizeof full, "%s.bias", name);
    if (hth_bind_is_ignored(b->model->hparams.arch, full)) return HEARTH_OK;
    const hth_gguf_tensor *t = hth_bind_find_in_layer(b, i_layer, full);
    return t || needed ? hth_bind_vector(b, t, n, vector) : HEARTH_OK;
}

/* ---- norms --------------------------------------------------------------------------- */

static bool norms_have_bias(const hth_arch *a)
{
    return a->norm_params == HTH_PARAMS_BY_KIND ? a->norm == HTH_NORM_LAYER
                                                : a->norm_params == HTH_PARAMS_BOTH ||
                                                      a->norm_params == HTH_PARAMS_BIAS_OPTIONAL;
}

/* The norm of a block of a layer by name, of d_model values. Some names have no suffix. */
hearth_status hth_bind_norm(hth_binder *b, uint32_t i_layer, const char *name, hth_norm *norm)
{
    const hth_hparams *h = &b->model->hparams;
    char weight[48];
    snprintf(weight, sizeof weight, "%s.weight", name);
    if (h->arch->norm_params == HTH_PARAMS_NONE) {
        norm->weight = b->model->ones;
        return HEARTH_OK;
    }
    const hth_gguf_tensor *bare = hth_bind_find_in_layer(b, i_layer, name),
                          *t = hth_bind_find_in_layer(b, i_layer, weight);
    hearth_status st = hth_bind_vector(b, t ? t : bare, h->d_model, &norm->weight);
    if (st != HEARTH_OK || !norms_have_bias(h->arch)) return st;
    bool needed = h->arch->norm_params != HTH_PARAMS_BIAS_OPTIONAL;
    return hth_bind_bias(b, i_layer, name, needed, h->d_model, &norm->bias);
}

hearth_status hth_bind_outer_norm(hth_binder *b, const char *name, hth_norm *norm)
{
    const hth_hparams *h = &b->model->hparams;
    char full[48];
    norm->weight = b->model->ones;
    if (h->arch->norm_params == HTH_PARAMS_NONE) return HEARTH_OK;
    snprintf(full, sizeof full, "%s.weight", name);
    hearth_status st = hth_bind_vector(b, hth_bind_find(b, full), h->d_model, &norm->weight);
    if (st != HEARTH_OK || !norms_have_bias(h->arch)) return st;
    snprintf(full, sizeof full, "%s.bias", name);
    const hth_gguf_tensor *t = hth_bind_find(b, full);
    if (!t && h->arch->norm_params == HTH_PARAMS_BIAS_OPTIONAL) return HEARTH_OK;
    return hth_bind_vector(b, t, h->d_model, &norm->bias);
}

hearth_status hth_bind_linear(hth_binder *b, uint32_t i_layer, const char *name, bool needs_bias,
                              size_t n_row, size_t n_col, hth_matrix *m, const float **bias)
{
    char weight[48];
    snprintf(weight, sizeof weight, "%s.weight", name);
    hearth_status st = hth_bind_matrix(b, hth_bind_find_in_layer(b, i_layer, weight), n_row, n_col, m);
    return st != HEARTH_OK ? st : hth_bind_bias(b, i_layer, name, needs_bias, n_row, bias);
}
