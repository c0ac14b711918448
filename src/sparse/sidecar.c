/* Reads and checks sidecars. Called by the engine, by convert/pack.c, and, for the header that all kinds share, by
 * profile_file.c and expert_trace_file.c. No part of such a file is trusted. */
#include "sparse/sidecar.h"

#include "base/bits.h"
#include "kernels/axpy/axpy.h"

#include <stdio.h>
#include <string.h>

/* ---- the header ------------------------------------------------------------------------------- */

#define KEY_ARCHITECTURE "general.architecture"
#define KEY_VERSION "hearth.sidecar.version"
#define KEY_MODEL "hearth.model.hash"
#define KEY_THRESHOLD "hearth.predictor.threshold"
#define KEY_INPUT "hearth.predictor.input"

enum { NAME_SIZE = 64, PIECE_SIZE = 1 << 20 };

static unsigned long long at_key(const hth_gguf *file, const char *key)
{
    return (unsigned long long)hth_gguf_find(file, key)->offset;
}

/* "hearth.KIND": the value of general.architecture. */
static const char *name_of_kind(char name[NAME_SIZE], const char *kind)
{
    snprintf(name, NAME_SIZE, "hearth.%s", kind);
    return name;
}

static hearth_status missing(const hth_gguf *file, const char *key, const char *kind, hearth_error *err)
{
    char who[NAME_SIZE + 8], name[NAME_SIZE];
    snprintf(who, sizeof who, "every %s", name_of_kind(name, kind));
    return hth_gguf_missing(file, key, who, err);
}

hearth_status hth_sidecar_need_uint(const hth_gguf *file, const char *kind, const char *key, uint64_t min, uint64_t max,
                                    uint64_t *value, hearth_error *err)
{
    bool found;
    hearth_status st = hth_gguf_get_uint(file, key, min, max, value, &found, err);
    return st == HEARTH_OK && !found ? missing(file, key, kind, err) : st;
}

hearth_status hth_sidecar_need_array(const hth_gguf *file, const char *kind, const char *key, hth_gguf_type type,
                                     uint64_t n, const hth_gguf_value **array, hearth_error *err)
{
    hearth_status st = hth_gguf_get_array(file, key, type, n, array, err);
    return st == HEARTH_OK && !*array ? missing(file, key, kind, err) : st;
}

static hearth_status need_text(const hth_gguf *file, const char *key, const char *kind, hth_str *value,
                               hearth_error *err)
{
    bool found;
    hearth_status st = hth_gguf_get_text(file, key, value, &found, err);
    return st == HEARTH_OK && !found ? missing(file, key, kind, err) : st;
}

hearth_status hth_sidecar_need_text(const hth_gguf *file, const char *kind, const char *key, char *text, size_t size,
                                    hearth_error *err)
{
    hth_str value;
    hearth_status st = need_text(file, key, kind, &value, err);
    if (st != HEARTH_OK) return st;
    if (value.n >= size || memchr(value.bytes, 0, value.n) != NULL)
        return hth_fail(err, HEARTH_ERROR_FORMAT,
                        "%s: %s at %llu: %zu bytes; up to %zu, none of them 0, are allowed", hth_gguf_path(file), key,
                        at_key(file, key), value.n, size - 1);
    memcpy(text, value.bytes, value.n);
    text[value.n] = '\0';
    return HEARTH_OK;
}

/* The command that makes a kind of file: most have its name. */
static const char *command_of(const char *kind)
{
    if (strcmp(kind, "placement") == 0) return "plan";
    return strcmp(kind, "trace") == 0 ? "profile" : kind;
}

static hearth_status check_kind(const hth_gguf *file, const char *kind, hearth_error *err)
{
    hth_str found;
    char name[NAME_SIZE], shown[80];
    hearth_status st = need_text(file, KEY_ARCHITECTURE, kind, &found, err);
    if (st != HEARTH_OK || hth_str_eq(found, name_of_kind(name, kind))) return st;
    return hth_fail(err, HEARTH_ERROR_UNSUPPORTED, "%s: %s at %llu is '%s', not '%s', which hearth %s makes",
                    hth_gguf_path(file), KEY_ARCHITECTURE, at_key(file, KEY_ARCHITECTURE),
                    hth_escape(shown, sizeof shown, found.bytes, found.n), name, command_of(kind));
}

static hearth_status check_version(const hth_gguf *file, const char *kind, hearth_error *err)
{
    uint64_t version = 0;
    hearth_status st = hth_sidecar_need_uint(file, kind, KEY_VERSION, 0, UINT64_MAX, &version, err);
    if (st != HEARTH_OK || version == HTH_SIDECAR_VERSION) return st;
    return hth_fail(err, HEARTH_ERROR_UNSUPPORTED,
                    "%s: %s at %llu is %llu: this version reads %d; make the %s again", hth_gguf_path(file),
                    KEY_VERSION, at_key(file, KEY_VERSION), (unsigned long long)version, HTH_SIDECAR_VERSION,
                    kind);
}

static hearth_status check_model(const hth_gguf *file, const char *kind, const hth_gguf *model, uint64_t hash,
                                 hearth_error *err)
{
    uint64_t expected;
    hearth_status st = hth_model_hash(model, &expected, err);
    if (st != HEARTH_OK || hash == expected) return st;
    return hth_fail(err, HEARTH_ERROR_ARGUMENT,
                    "%s: the %s of another model: %s at %llu is %016llx, but %s has %016llx",
                    hth_gguf_path(file), kind, KEY_MODEL, at_key(file, KEY_MODEL), (unsigned long long)hash,
                    hth_gguf_path(model), (unsigned long long)expected);
}

hearth_status hth_sidecar_check_head(const hth_gguf *file, const char *kind, const hth_gguf *model,
                                     uint64_t *model_hash, hearth_error *err)
{
    hearth_status st = check_kind(file, kind, err);
    if (st == HEARTH_OK) st = check_version(file, kind, err);
    if (st == HEARTH_OK) st = hth_sidecar_need_uint(file, kind, KEY_MODEL, 0, UINT64_MAX, model_hash, err);
    return st == HEARTH_OK && model ? check_model(file, kind, model, *model_hash, err) : st;
}

void hth_sidecar_write_head(hth_gguf_writer *out, const char *kind, uint64_t model_hash)
{
    char name[NAME_SIZE];
    name_of_kind(name, kind);
    hth_gguf_writer_text(out, KEY_ARCHITECTURE, name, strlen(name));
    hth_gguf_writer_uint(out, KEY_VERSION, HTH_GGUF_U32, HTH_SIDECAR_VERSION);
    hth_gguf_writer_uint(out, KEY_MODEL, HTH_GGUF_U64, model_hash);
}

/* ---- tensors ------------------------------------------------------------------------------------- */

/* A tensor of a layer. *found is NULL if it is optional and absent. n_row 0: a vector. */
static hearth_status find(const hth_gguf *file, uint32_t i_layer, const char *rest, uint64_t n_col,
                          uint64_t n_row, bool needed, const hth_gguf_tensor **found, hearth_error *err)
{
    char name[NAME_SIZE];
    snprintf(name, sizeof name, "blk.%u.%s", i_layer, rest);
    const hth_gguf_tensor *t = *found = hth_gguf_find_tensor(file, name);
    if (!t && !needed) return HEARTH_OK;
    if (!t)
        return hth_fail(err, HEARTH_ERROR_FORMAT, "%s: tensor '%s' is missing", hth_gguf_path(file), name);
    const hth_type_info *info = hth_type_find((uint32_t)t->type);
    bool is_vector = n_row == 0;
    if (!info->supported || (is_vector && t->type != HTH_TYPE_F32))
        return hth_fail(err, HEARTH_ERROR_FORMAT,
                        "%s: tensor '%s' (info at byte %llu) has type %s, which cannot be used here%s",
                        hth_gguf_path(file), name, (unsigned long long)t->info_at, info->name,
                        is_vector ? ", expected F32" : "");
    if (is_vector) n_row = 1;
    if (t->dim[0] == n_col && t->dim[1] == n_row && t->dim[2] == 1 && t->dim[3] == 1) return HEARTH_OK;
    return hth_fail(err, HEARTH_ERROR_FORMAT,
                    "%s: tensor '%s' (info at byte %llu) is [%llu, %llu, %llu, %llu], expected [%llu, %llu]",
                    hth_gguf_path(file), name, (unsigned long long)t->info_at, (unsigned long long)t->dim[0],
                    (unsigned long long)t->dim[1], (unsigned long long)t->dim[2],
                    (unsigned long long)t->dim[3], (unsigned long long)n_col, (unsigned long long)n_row);
}

/* Checks that all values of a vector are finite, and at least `min`. */
static hearth_status check_vector(const hth_gguf *file, const hth_gguf_tensor *t, float min,
                                  hearth_error *err)
{
    size_t n = (size_t)t->dim[0];
    float *x = hth_alloc(n, sizeof *x);
    hearth_status st = x ? hth_gguf_read(file, t, 0, n * sizeof *x, x, err)
                         : hth_fail_memory(err, n * sizeof *x, "a vector");
    for (size_t i = 0; st == HEARTH_OK && i < n; i++)
        if (!(x[i] >= min && x[i] <= 3e38f))
            st = hth_fail(err, HEARTH_ERROR_FORMAT,
                          "%s: tensor '%s' at %llu: value %zu is %g, expected a finite number%s",
                          hth_gguf_path(file), t->name.bytes, (unsigned long long)t->offset, i, (double)x[i],
                          min >= 0.0f ? " from 0 on" : "");
    hth_free(x);
    return st;
}

/* True if the scales of blocks, or the floats, are finite. */
static bool row_is_finite(hth_type type, const uint8_t *row, size_t n)
{
    bool all = true;
    if (hth_type_find((uint32_t)type)->quantised)
        return hth_bits_of(hth_axpy_absmax_scale(type, row, n)) < 0x7f800000u;
    uint32_t size = type == HTH_TYPE_F32 ? 4 : 2;
    uint32_t exponent = type == HTH_TYPE_F32 ? 0x7f800000u : type == HTH_TYPE_BF16 ? 0x7f80u : 0x7c00u;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = size == 4 ? hth_load_u32(row + 4 * i) : hth_load_u16(row + 2 * i);
        all = all && (bits & exponent) != exponent;
    }
    return all;
}

/* A NaN score marks no neuron as active: the outputs would be wrong but finite. */
static hearth_status check_matrix(const hth_gguf *file, const hth_gguf_tensor *t, hearth_error *err)
{
    size_t n_col = (size_t)t->dim[0], row_size = hth_type_row_size(t->type, n_col);
    uint64_t n_row = t->dim[1], n_chunk = row_size < PIECE_SIZE ? PIECE_SIZE / row_size : 1;
    n_chunk = n_chunk < n_row ? n_chunk : n_row;
    uint8_t *rows = hth_alloc((size_t)n_chunk, row_size);
    hearth_status st =
        rows ? HEARTH_OK : hth_fail_memory(err, (size_t)n_chunk * row_size, "rows of a predictor");
    for (uint64_t first = 0; st == HEARTH_OK && first < n_row; first += n_chunk) {
        uint64_t n = n_row - first < n_chunk ? n_row - first : n_chunk;
        st = hth_gguf_read(file, t, first * row_size, (size_t)n * row_size, rows, err);
        for (uint64_t i = 0; st == HEARTH_OK && i < n; i++)
            if (!row_is_finite(t->type, rows + i * row_size, n_col))
                st = hth_fail(err, HEARTH_ERROR_FORMAT,
                              "%s: tensor '%s' at %llu: row %llu holds a weight that is not finite",
                              hth_gguf_path(file), t->name.bytes, (unsigned long long)t->offset,
                              (unsigned long long)(first + i));
    }
    hth_free(rows);
    return st;
}

/* ---- kinds --------------------------------------------------------------------------------------- */

static hearth_status check_predictor(hth_sidecar *s, const hth_model *m, uint32_t i, hearth_error *err)
{
    const hth_gguf_tensor *in, *out, *bias;
    char name[NAME_SIZE];
    snprintf(name, sizeof name, "blk.%u.fc1.weight", i);
    in = hth_gguf_find_tensor(s->file, name);
    uint64_t rank = in ? in->dim[1] : 1;
    if (rank > HTH_MAX_RANK)
        return hth_fail(err, HEARTH_ERROR_FORMAT,
                        "%s: tensor '%s' (info at byte %llu) has %llu rows; a predictor has up to %d",
                        hth_gguf_path(s->file), name, (unsigned long long)in->info_at,
                        (unsigned long long)rank, HTH_MAX_RANK);
    hearth_status st = find(s->file, i, "fc1.weight", m->hparams.d_model, rank, true, &in, err);
    if (st == HEARTH_OK) st = find(s->file, i, "fc2.weight", rank, m->layers[i].ffn.d_ff, true, &out, err);
    if (st == HEARTH_OK) st = find(s->file, i, "fc2.bias", m->layers[i].ffn.d_ff, 0, false, &bias, err);
    if (st == HEARTH_OK) st = check_matrix(s->file, in, err);
    if (st == HEARTH_OK) st = check_matrix(s->file, out, err);
    return st == HEARTH_OK && bias ? check_vector(s->file, bias, -3e38f, err) : st;
}

static hearth_status check_layer_thresholds(const hth_gguf *file, uint32_t i, uint64_t d_ff, hearth_error *err)
{
    const hth_gguf_tensor *t;
    hearth_status st = find(file, i, "ffn_floor.weight", d_ff, 0, true, &t, err);
    return st == HEARTH_OK ? check_vector(file, t, 0.0f, err) : st;
}

static hearth_status read_thresholds(hth_sidecar *s, uint32_t n_layer, hearth_error *err)
{
    const hth_gguf_value *array;
    hearth_status st = hth_gguf_get_array(s->file, KEY_THRESHOLD, HTH_GGUF_F32, n_layer, &array, err);
    if (st == HEARTH_OK && !array) st = missing(s->file, KEY_THRESHOLD, "predictors", err);
    if (st != HEARTH_OK) return st;
    s->thresholds = hth_alloc(n_layer, sizeof *s->thresholds);
    if (!s->thresholds) return hth_fail_memory(err, n_layer * sizeof *s->thresholds, "thresholds");
    for (uint32_t i = 0; i < n_layer; i++) {
        s->thresholds[i] = (float)hth_gguf_element_float(array, i);
        if (s->thresholds[i] >= -3e38f && s->thresholds[i] <= 3e38f) continue;
        return hth_fail(err, HEARTH_ERROR_FORMAT, "%s: %s at %llu: value %u is %g, expected a finite number",
                        hth_gguf_path(s->file), KEY_THRESHOLD, at_key(s->file, KEY_THRESHOLD), i,
                        (double)s->thresholds[i]);
    }
    return HEARTH_OK;
}

static hearth_status read_input(hth_sidecar *s, hearth_error *err)
{
    hth_str input;
    char shown[80];
    hearth_status st = need_text(s->file, KEY_INPUT, "predictors", &input, err);
    if (st != HEARTH_OK) return st;
    s->from_residual = hth_str_eq(input, "residual");
    if (s->from_residual || hth_str_eq(input, "normed")) return HEARTH_OK;
    return hth_fail(err, HEARTH_ERROR_UNSUPPORTED, "%s: %s at %llu is '%s'; known: residual, normed",
                    hth_gguf_path(s->file), KEY_INPUT, at_key(s->file, KEY_INPUT),
                    hth_escape(shown, sizeof shown, input.bytes, input.n));
}

static bool has_name(const hth_gguf_tensor *t, uint32_t i_layer, const char *rest)
{
    char name[NAME_SIZE];
    int n = snprintf(name, sizeof name, "blk.%u.%s", i_layer, rest);
    return t->name.n == (size_t)n && memcmp(t->name.bytes, name, t->name.n) == 0;
}

/* Other tensors would be copied into a packed file. */
static hearth_status check_no_others(const hth_gguf *file, bool predictors, uint32_t n_layer, hearth_error *err)
{
    static const char *const own[2][3] = {{"ffn_floor.weight", "", ""},
                                          {"fc1.weight", "fc2.weight", "fc2.bias"}};
    for (size_t k = 0; k < hth_gguf_n_tensor(file); k++) {
        const hth_gguf_tensor *t = hth_gguf_tensor_at(file, k);
        uint32_t i_layer = 0;
        bool known = sscanf(t->name.bytes, "blk.%u.", &i_layer) == 1 && i_layer < n_layer;
        const char *const *rest = own[predictors];
        if (known &&
            (has_name(t, i_layer, rest[0]) || has_name(t, i_layer, rest[1]) || has_name(t, i_layer, rest[2])))
            continue;
        char shown[80];
        return hth_fail(err, HEARTH_ERROR_FORMAT,
                        "%s: tensor '%s' (info at byte %llu) does not belong to the %s of %u layers",
                        hth_gguf_path(file), hth_escape(shown, sizeof shown, t->name.bytes, t->name.n),
                        (unsigned long long)t->info_at, predictors ? "predictors" : "thresholds", n_layer);
    }
    return HEARTH_OK;
}

hearth_status hth_sidecar_open(hth_sidecar *s, const char *path, const char *kind, const hth_model *model,
                               hearth_error *err)
{
    bool predictors = strcmp(kind, "predictors") == 0;
    uint32_t n_layer = model->hparams.n_layer;
    uint64_t hash;
    *s = (hth_sidecar){0};
    hearth_status st = hth_gguf_open(path, &s->file, err);
    if (st == HEARTH_OK) st = hth_sidecar_check_head(s->file, kind, model->file, &hash, err);
    if (st == HEARTH_OK && predictors) st = read_thresholds(s, n_layer, err);
    if (st == HEARTH_OK && predictors) st = read_input(s, err);
    if (st == HEARTH_OK) st = check_no_others(s->file, predictors, n_layer, err);
    for (uint32_t i = 0; st == HEARTH_OK && i < n_layer; i++)
        st = predictors ? check_predictor(s, model, i, err)
                        : check_layer_thresholds(s->file, i, model->layers[i].ffn.d_ff, err);
    if (st != HEARTH_OK) hth_sidecar_close(s);
    return st;
}

/* A layer has one tensor, so there are as many layers as tensors. Sizes are checked against the limits of a model,
 * because there is no model to check against. */
hearth_status hth_sidecar_check_thresholds(const hth_gguf *file, hearth_error *err)
{
    uint64_t hash;
    size_t n = hth_gguf_n_tensor(file);
    uint32_t n_layer = n > 0 ? (uint32_t)n : 1; /* without tensors, the first one is missing */
    hearth_status st = hth_sidecar_check_head(file, "thresholds", NULL, &hash, err);
    if (st == HEARTH_OK && n > HTH_MAX_LAYER)
        st = hth_fail(err, HEARTH_ERROR_FORMAT, "%s: thresholds of %zu layers; no model has more than %d",
                      hth_gguf_path(file), n, HTH_MAX_LAYER);
    if (st == HEARTH_OK) st = check_no_others(file, false, n_layer, err);
    for (uint32_t i = 0; st == HEARTH_OK && i < n_layer; i++) {
        char name[NAME_SIZE];
        snprintf(name, sizeof name, "blk.%u.ffn_floor.weight", i);
        const hth_gguf_tensor *t = hth_gguf_find_tensor(file, name);
        uint64_t d_ff = t && t->dim[0] <= HTH_MAX_D_FF ? t->dim[0] : HTH_MAX_D_FF;
        st = check_layer_thresholds(file, i, d_ff, err);
    }
    return st;
}

void hth_sidecar_close(hth_sidecar *s)
{
    if (s->file) hth_gguf_close(s->file);
    hth_free(s->thresholds);
    *s = (hth_sidecar){0};
}
