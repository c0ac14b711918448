/* Importance matrices in memory: entries, merging, weights; and writing them. imatrix_read.c reads them. */
#include "file/imatrix.h"

#include "base/checked_math.h"
#include "file/gguf_write.h"

#include <float.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- entries ---------------------------------------------------------------------------------- */

hearth_status hth_imatrix_new(uint32_t chunk_size, hth_imatrix **out, hearth_error *err)
{
    hth_imatrix *m = *out = hth_alloc(1, sizeof *m);
    if (!m) return hth_fail_memory(err, sizeof *m, "an importance matrix");
    m->chunk_size = chunk_size;
    return HEARTH_OK;
}

void hth_imatrix_close(hth_imatrix *m)
{
    if (!m) return;
    hth_free(m->entries);
    hth_free(m->datasets);
    hth_arena_free(&m->arena);
    hth_free(m);
}

static hearth_status copy_name(hth_imatrix *m, hth_str name, hth_str *out, hearth_error *err)
{
    *out = (hth_str){hth_arena_strndup(&m->arena, name.bytes, name.n), name.n};
    return out->bytes ? HEARTH_OK : hth_fail_memory(err, name.n, "an importance matrix");
}

static hearth_status grow(hth_imatrix *m, hearth_error *err)
{
    if (m->n_entry < m->capacity) return HEARTH_OK;
    size_t capacity = 2 * m->capacity + 64;
    hth_imatrix_entry *larger = hth_realloc(m->entries, capacity, sizeof *larger);
    if (!larger) return hth_fail_memory(err, capacity * sizeof *larger, "an importance matrix");
    m->entries = larger;
    m->capacity = capacity;
    return HEARTH_OK;
}

hearth_status hth_imatrix_add(hth_imatrix *m, hth_str name, size_t n_value, uint32_t n_count, hth_imatrix_entry **out,
                              hearth_error *err)
{
    hth_imatrix_entry e = {.n_value = n_value, .n_count = n_count};
    hearth_status st = grow(m, err);
    if (st == HEARTH_OK) st = copy_name(m, name, &e.name, err);
    if (st != HEARTH_OK) return st;
    e.sums = hth_arena_alloc(&m->arena, n_value, sizeof *e.sums, 64);
    e.counts = hth_arena_alloc(&m->arena, n_count, sizeof *e.counts, 64);
    if (!e.sums || !e.counts) return hth_fail_memory(err, n_value * sizeof *e.sums, "an importance matrix");
    m->entries[m->n_entry] = e;
    *out = &m->entries[m->n_entry++];
    return HEARTH_OK;
}

hearth_status hth_imatrix_add_dataset(hth_imatrix *m, hth_str name, hearth_error *err)
{
    hth_str *larger = hth_realloc(m->datasets, m->n_dataset + 1, sizeof *larger);
    if (!larger) return hth_fail_memory(err, (m->n_dataset + 1) * sizeof *larger, "names of texts");
    m->datasets = larger;
    hearth_status st = copy_name(m, name, &larger[m->n_dataset], err);
    m->n_dataset += st == HEARTH_OK;
    return st;
}

static int by_name(const void *a, const void *b)
{
    const hth_imatrix_entry *x = a, *y = b;
    return hth_str_compare(x->name, y->name);
}

void hth_imatrix_sort(hth_imatrix *m)
{
    if (m->n_entry > 1) qsort(m->entries, m->n_entry, sizeof *m->entries, by_name);
}

/* The entry of that name among the first n, which are sorted. */
static hth_imatrix_entry *find_among(const hth_imatrix *m, size_t n, hth_str name)
{
    size_t low = 0, high = n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = hth_str_compare(name, m->entries[middle].name);
        if (order == 0) return &m->entries[middle];
        if (order < 0) high = middle;
        else low = middle + 1;
    }
    return NULL;
}

const hth_imatrix_entry *hth_imatrix_find(const hth_imatrix *m, hth_str name)
{
    return find_among(m, m->n_entry, name);
}

/* ---- merging ----------------------------------------------------------------------------------- */

/* Gives each matrix of an entry a count, where it had one for all. */
static hearth_status spread_count(hth_imatrix *m, hth_imatrix_entry *e, uint32_t n_count, hearth_error *err)
{
    double *counts = hth_arena_alloc(&m->arena, n_count, sizeof *counts, 64);
    if (!counts) return hth_fail_memory(err, n_count * sizeof *counts, "an importance matrix");
    for (uint32_t i = 0; i < n_count; i++) counts[i] = e->counts[0];
    e->counts = counts, e->n_count = n_count;
    return HEARTH_OK;
}

static hearth_status fail_other_model(const hth_imatrix_entry *a, const hth_imatrix_entry *b, const char *from,
                                      hearth_error *err)
{
    char name[80];
    return hth_fail(err, HEARTH_ERROR_ARGUMENT,
                    "%s: tensor '%s' has %zu columns and counts %u matrices, elsewhere %zu and %u: of another model",
                    hth_gguf_label(from), hth_escape(name, sizeof name, b->name.bytes, b->name.n), b->n_value, b->n_count,
                    a->n_value, a->n_count);
}

/* Adds an entry to that of its name among the first n_sorted, or appends it. */
static hearth_status merge_entry(hth_imatrix *m, size_t n_sorted, const hth_imatrix_entry *more, double unit,
                                 const char *from, hearth_error *err)
{
    hth_imatrix_entry *e = find_among(m, n_sorted, more->name);
    hearth_status st = HEARTH_OK;
    if (!e) st = hth_imatrix_add(m, more->name, more->n_value, more->n_count, &e, err);
    if (st != HEARTH_OK) return st;
    if (e->n_value != more->n_value || (e->n_count != more->n_count && e->n_count > 1 && more->n_count > 1))
        return fail_other_model(e, more, from, err);
    if (e->n_count < more->n_count) st = spread_count(m, e, more->n_count, err);
    if (st != HEARTH_OK) return st;
    for (size_t i = 0; i < e->n_value; i++) e->sums[i] += unit * more->sums[i];
    for (uint32_t i = 0; i < e->n_count; i++) e->counts[i] += unit * more->counts[more->n_count == 1 ? 0 : i];
    return HEARTH_OK;
}

/* The chunks of a text whose tokens are the largest count. */
static uint64_t count_chunks(const hth_imatrix *m)
{
    double most = 0.0;
    for (size_t i = 0; i < m->n_entry; i++)
        for (uint32_t k = 0; k < m->entries[i].n_count; k++)
            if (m->entries[i].counts[k] > most) most = m->entries[i].counts[k];
    return (uint64_t)(most / m->chunk_size);
}

hearth_status hth_imatrix_merge(hth_imatrix *m, const hth_imatrix *more, const char *from, hearth_error *err)
{
    double unit = more->chunk_size ? 1.0 : m->chunk_size;
    hearth_status st = HEARTH_OK;
    size_t n_sorted = m->n_entry;
    for (size_t i = 0; st == HEARTH_OK && i < more->n_entry; i++)
        st = merge_entry(m, n_sorted, &more->entries[i], unit, from, err);
    hth_imatrix_sort(m);
    for (size_t i = 0; st == HEARTH_OK && i < more->n_dataset; i++)
        st = hth_imatrix_add_dataset(m, more->datasets[i], err);
    m->n_chunk = count_chunks(m);
    return st;
}

/* ---- the model ------------------------------------------------------------------------------------ */

hearth_status hth_imatrix_check_model(const hth_imatrix *m, const char *path, const hth_gguf *model, hearth_error *err)
{
    for (size_t i = 0; i < m->n_entry; i++) {
        const hth_imatrix_entry *e = &m->entries[i];
        const hth_gguf_tensor *t = hth_gguf_find_tensor(model, e->name.bytes);
        char name[80];
        hth_escape(name, sizeof name, e->name.bytes, e->name.n);
        if (!t)
            return hth_fail(err, HEARTH_ERROR_ARGUMENT, "%s: tensor '%s' is not in %s: the matrix is of another model",
                            hth_gguf_label(path), name, hth_gguf_label(hth_gguf_path(model)));
        uint64_t n_matrix = t->dim[2] * t->dim[3];
        if (e->n_value == t->dim[0] * n_matrix && (e->n_count == 1 || e->n_count == n_matrix)) continue;
        return hth_fail(err, HEARTH_ERROR_ARGUMENT,
                        "%s: tensor '%s' has %zu columns in %u matrices, in %s %llu in %llu: the matrix is of another model",
                        hth_gguf_label(path), name, e->n_value, e->n_count, hth_gguf_label(hth_gguf_path(model)),
                        (unsigned long long)(t->dim[0] * n_matrix), (unsigned long long)n_matrix);
    }
    return HEARTH_OK;
}

/* ---- weights ----------------------------------------------------------------------------------- */

/* A column whose input was 0 throughout the text may still have one in another text. */
#define SMALLEST_WEIGHT 0x1p-20

void hth_imatrix_weights(const hth_imatrix_entry *e, size_t i, size_t n, float *w)
{
    size_t n_col = e->n_value / n;
    const double *sums = e->sums + i * n_col;
    double count = e->counts[e->n_count == n ? i : 0], total = 0.0;
    for (size_t c = 0; c < n_col; c++) total += sums[c];
    double mean = total / (double)n_col;
    for (size_t c = 0; c < n_col; c++) {
        double weight = count > 0.0 && mean > 0.0 ? sums[c] / mean : 1.0;
        w[c] = (float)(weight > SMALLEST_WEIGHT ? weight : SMALLEST_WEIGHT);
    }
}

/* ---- writing ------------------------------------------------------------------------------------ */

static bool is_counted(const hth_imatrix_entry *e)
{
    for (uint32_t i = 0; i < e->n_count; i++)
        if (e->counts[i] > 0.0) return true;
    return false;
}

static hearth_status check_sums(const hth_imatrix *m, const char *path, hearth_error *err)
{
    for (size_t i = 0; i < m->n_entry; i++)
        for (size_t c = 0; c < m->entries[i].n_value; c++)
            if (!(m->entries[i].sums[c] <= (double)FLT_MAX)) {
                char name[80];
                hth_str full = m->entries[i].name;
                return hth_fail(err, HEARTH_ERROR_NUMERIC, "%s: tensor '%s': the sum of column %zu is too large for F32",
                                hth_gguf_label(path), hth_escape(name, sizeof name, full.bytes, full.n), c);
            }
    return HEARTH_OK;
}

static void write_directory(const hth_imatrix *m, hth_gguf_writer *out)
{
    for (size_t i = 0; i < m->n_entry; i++) {
        const hth_imatrix_entry *e = &m->entries[i];
        if (!is_counted(e)) continue;
        char name[128]; /* the writer refuses more than 63 */
        uint64_t sums[] = {e->n_value / e->n_count, e->n_count}, counts[] = {1, e->n_count};
        uint32_t n_dim = e->n_count > 1 ? 2 : 1;
        snprintf(name, sizeof name, "%.100s.in_sum2", e->name.bytes);
        hth_gguf_writer_tensor(out, name, HTH_TYPE_F32, n_dim, sums);
        snprintf(name, sizeof name, "%.100s.counts", e->name.bytes);
        hth_gguf_writer_tensor(out, name, HTH_TYPE_F32, n_dim, counts);
    }
}

static hearth_status write_floats(hth_gguf_writer *out, const double *values, size_t n, hearth_error *err)
{
    enum { PIECE = 1024 };
    float piece[PIECE];
    hearth_status st = HEARTH_OK;
    for (size_t first = 0; st == HEARTH_OK && first < n; first += PIECE) {
        size_t n_piece = n - first < PIECE ? n - first : PIECE;
        for (size_t i = 0; i < n_piece; i++) piece[i] = (float)values[first + i];
        st = hth_gguf_writer_data(out, piece, n_piece * sizeof *piece, err);
    }
    return st;
}

hearth_status hth_imatrix_write(const hth_imatrix *m, const char *path, hearth_error *err)
{
    hth_gguf_writer *out;
    hearth_status st = check_sums(m, path, err);
    if (st == HEARTH_OK) st = hth_gguf_writer_open(path, &out, err);
    if (st != HEARTH_OK) return st;
    hth_gguf_writer_text(out, "general.type", HTH_IMATRIX_TYPE, strlen(HTH_IMATRIX_TYPE));
    hth_gguf_writer_texts(out, "imatrix.datasets", m->datasets, m->n_dataset);
    hth_gguf_writer_uint(out, "imatrix.chunk_count", HTH_GGUF_U32, m->n_chunk < UINT32_MAX ? m->n_chunk : UINT32_MAX);
    hth_gguf_writer_uint(out, "imatrix.chunk_size", HTH_GGUF_U32, m->chunk_size);
    hth_gguf_writer_text(out, "hearth.made_by", HTH_IMATRIX_TYPE, strlen(HTH_IMATRIX_TYPE));
    write_directory(m, out);
    st = hth_gguf_writer_begin(out, err);
    for (size_t i = 0; st == HEARTH_OK && i < m->n_entry; i++) {
        const hth_imatrix_entry *e = &m->entries[i];
        if (!is_counted(e)) continue;
        st = write_floats(out, e->sums, e->n_value, err);
        if (st == HEARTH_OK) st = write_floats(out, e->counts, e->n_count, err);
    }
    if (st == HEARTH_OK) st = hth_gguf_writer_finish(out, err);
    hth_gguf_writer_close(out);
    return st;
}
