/* Reads importance matrices in GGUF. A file that does not begin with its magic is of the older format (imatrix_dat.c). */
#include "file/imatrix_int.h"

#include <float.h>
#include <inttypes.h>
#include <stdio.h>

static const char SUMS[] = ".in_sum2", COUNTS[] = ".counts";

/* ---- a tensor ----------------------------------------------------------------------------------- */

static bool has_suffix(hth_str name, const char *suffix)
{
    return name.n > strlen(suffix) && hth_str_ends(name, suffix);
}

static hearth_status fail_tensor(const hth_gguf *file, const hth_gguf_tensor *t, const char *what, hearth_error *err)
{
    return hth_fail(err, HEARTH_ERROR_FORMAT, "%s: tensor '%s' (info at byte %" PRIu64 ") %s",
                    hth_gguf_label(hth_gguf_path(file)), hth_gguf_show(t->name).text, t->info_at, what);
}

static uint64_t n_value_of(const hth_gguf_tensor *t) { return t->dim[0] * t->dim[1] * t->dim[2] * t->dim[3]; }

/* Reads n floats, none of them negative, to doubles. */
static hearth_status read_values(const hth_gguf *file, const hth_gguf_tensor *t, double *values, hearth_error *err)
{
    enum { PIECE = 1024 };
    float piece[PIECE];
    uint64_t n = n_value_of(t);
    for (uint64_t first = 0; first < n; first += PIECE) {
        size_t n_piece = n - first < PIECE ? (size_t)(n - first) : PIECE;
        hearth_status st = hth_gguf_read(file, t, first * sizeof *piece, n_piece * sizeof *piece, piece, err);
        if (st != HEARTH_OK) return st;
        for (size_t i = 0; i < n_piece; i++) {
            values[first + i] = (double)piece[i];
            if (values[first + i] >= 0.0 && values[first + i] <= (double)FLT_MAX) continue;
            return hth_fail(err, HEARTH_ERROR_FORMAT,
                            "%s: tensor '%s' at %" PRIu64 ": value %" PRIu64 " is %g; expected finite values, none negative",
                            hth_gguf_label(hth_gguf_path(file)), hth_gguf_show(t->name).text, t->offset, first + i,
                            (double)piece[i]);
        }
    }
    return HEARTH_OK;
}

/* ---- an entry ------------------------------------------------------------------------------------- */

/* A matrix that was never used has no sums, and one that was used has a whole number of inputs. */
static hearth_status check_counts(const hth_gguf *file, const hth_gguf_tensor *counts, const hth_imatrix_entry *e,
                                  hearth_error *err)
{
    size_t n_col = e->n_value / e->n_count;
    for (uint32_t i = 0; i < e->n_count; i++) {
        bool is_whole = e->counts[i] < 0x1p53 && e->counts[i] == (double)(uint64_t)e->counts[i];
        if (!is_whole)
            return fail_tensor(file, counts, "has a count that is no whole number", err);
        for (size_t c = 0; e->counts[i] == 0.0 && c < n_col; c++)
            if (e->sums[i * n_col + c] > 0.0) return fail_tensor(file, counts, "has a count of 0, but the sums are not 0", err);
    }
    return HEARTH_OK;
}

static hearth_status read_entry(hth_imatrix *m, const hth_gguf *file, const hth_gguf_tensor *sums, hearth_error *err)
{
    char name[128];
    hth_imatrix_entry *e;
    hth_str base = {sums->name.bytes, sums->name.n - strlen(SUMS)};
    snprintf(name, sizeof name, "%.*s%s", (int)base.n, base.bytes, COUNTS);
    const hth_gguf_tensor *counts = hth_gguf_find_tensor(file, name);
    if (!counts) return fail_tensor(file, sums, "has no counts beside it", err);
    if (sums->type != HTH_TYPE_F32) return fail_tensor(file, sums, "is not F32", err);
    if (counts->type != HTH_TYPE_F32) return fail_tensor(file, counts, "is not F32", err);
    uint64_t n_value = n_value_of(sums), n_count = n_value_of(counts);
    if (n_count > UINT32_MAX || n_value % n_count != 0)
        return fail_tensor(file, counts, "has a number of values that does not divide that of the sums", err);
    hearth_status st = hth_imatrix_add(m, base, (size_t)n_value, (uint32_t)n_count, &e, err);
    if (st == HEARTH_OK) st = read_values(file, sums, e->sums, err);
    if (st == HEARTH_OK) st = read_values(file, counts, e->counts, err);
    return st == HEARTH_OK ? check_counts(file, counts, e, err) : st;
}

static hearth_status check_pair(const hth_gguf *file, const hth_gguf_tensor *counts, hearth_error *err)
{
    char name[128];
    size_t n = counts->name.n - strlen(COUNTS);
    snprintf(name, sizeof name, "%.*s%s", (int)n, counts->name.bytes, SUMS);
    return hth_gguf_find_tensor(file, name) ? HEARTH_OK : fail_tensor(file, counts, "has no sums beside it", err);
}

/* ---- the file --------------------------------------------------------------------------------------- */

static hearth_status check_kind(const hth_gguf *file, hearth_error *err)
{
    hth_str type = {"", 0};
    hearth_status st = hth_gguf_get_text(file, "general.type", &type, NULL, err);
    if (st != HEARTH_OK || hth_str_eq(type, HTH_IMATRIX_TYPE)) return st;
    return hth_fail(err, HEARTH_ERROR_FORMAT, "%s: is no importance matrix: general.type is '%s', expected '%s'",
                    hth_gguf_label(hth_gguf_path(file)), hth_gguf_show(type).text, HTH_IMATRIX_TYPE);
}

static hearth_status read_keys(hth_imatrix *m, const hth_gguf *file, hearth_error *err)
{
    const hth_gguf_value *names = NULL;
    uint64_t chunk_size = HTH_IMATRIX_CHUNK;
    hearth_status st = check_kind(file, err);
    if (st == HEARTH_OK) st = hth_gguf_get_array(file, "imatrix.datasets", HTH_GGUF_TEXT, 0, &names, err);
    if (st == HEARTH_OK) st = hth_gguf_get_uint(file, "imatrix.chunk_count", 0, UINT32_MAX, &m->n_chunk, NULL, err);
    if (st == HEARTH_OK) st = hth_gguf_get_uint(file, "imatrix.chunk_size", 1, UINT32_MAX, &chunk_size, NULL, err);
    m->chunk_size = (uint32_t)chunk_size;
    for (uint64_t i = 0; st == HEARTH_OK && names && i < names->n_element; i++)
        st = hth_imatrix_add_dataset(m, ((const hth_str *)names->elements)[i], err);
    return st;
}

static hearth_status read_gguf(hth_imatrix *m, const hth_gguf *file, hearth_error *err)
{
    hearth_status st = read_keys(m, file, err);
    for (size_t i = 0; st == HEARTH_OK && i < hth_gguf_n_tensor(file); i++) {
        const hth_gguf_tensor *t = hth_gguf_tensor_at(file, i);
        if (has_suffix(t->name, SUMS)) st = read_entry(m, file, t, err);
        else if (has_suffix(t->name, COUNTS)) st = check_pair(file, t, err);
    }
    if (st == HEARTH_OK && m->n_entry == 0)
        return hth_fail(err, HEARTH_ERROR_FORMAT, "%s: the importance matrix has no tensors",
                        hth_gguf_label(hth_gguf_path(file)));
    return st;
}

static hearth_status begins_as_gguf(const hth_gguf_source *source, bool *is_gguf, hearth_error *err)
{
    char magic[4] = "";
    hearth_status st = source->size < 4 ? HEARTH_OK : hth_gguf_source_read(source, 0, 4, magic, err);
    *is_gguf = memcmp(magic, "GGUF", 4) == 0;
    return st;
}

/* data NULL: the file at name. */
static hearth_status read_all(hth_imatrix *m, const void *data, size_t size, const char *name, hearth_error *err)
{
    hth_gguf_source source;
    hth_gguf *file = NULL;
    bool is_gguf = false;
    hearth_status st = data ? hth_gguf_source_memory(&source, data, size, name, err)
                            : hth_gguf_source_open(&source, name, err);
    if (st != HEARTH_OK) return st;
    st = begins_as_gguf(&source, &is_gguf, err);
    if (st == HEARTH_OK && !is_gguf) st = hth_imatrix_read_dat(m, &source, err);
    hth_gguf_source_close(&source);
    if (st != HEARTH_OK || !is_gguf) return st;
    st = data ? hth_gguf_open_memory(data, size, name, &file, err) : hth_gguf_open(name, &file, err);
    if (st == HEARTH_OK) st = read_gguf(m, file, err);
    hth_gguf_close(file);
    return st;
}

static hearth_status open_any(const void *data, size_t size, const char *name, hth_imatrix **out, hearth_error *err)
{
    hth_imatrix *m;
    *out = NULL;
    hearth_status st = hth_imatrix_new(0, &m, err);
    if (st != HEARTH_OK) return st;
    st = read_all(m, data, size, name, err);
    if (st != HEARTH_OK) {
        hth_imatrix_close(m);
        return st;
    }
    hth_imatrix_sort(m);
    *out = m;
    return HEARTH_OK;
}

hearth_status hth_imatrix_open(const char *path, hth_imatrix **out, hearth_error *err)
{
    return open_any(NULL, 0, path, out, err);
}

hearth_status hth_imatrix_open_memory(const void *data, size_t size, const char *name, hth_imatrix **out,
                                      hearth_error *err)
{
    return open_any(data, size, name, out, err);
}
