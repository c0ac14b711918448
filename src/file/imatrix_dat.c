/* Reads the older format of importance matrices (.dat), little-endian: i32 number of entries; for each the i32 length
 * of its name, the name, i32 chunks, i32 number of values, and as many f32: means of squares times chunks. Then,
 * perhaps, i32 chunks, i32 length of the name of the text, the name. Experts have no counts of their own. */
#include "file/imatrix_int.h"

#include <float.h>
#include <inttypes.h>

enum { MAX_ENTRY = 1 << 20, MAX_TEXT = 1 << 16 };

typedef struct reader {
    const hth_gguf_source *source;
    uint64_t at;
    hearth_error *err;
} reader;

static uint64_t remaining(const reader *r) { return r->source->size - r->at; }

static hearth_status fail_at(const reader *r, uint64_t at, const char *what)
{
    return hth_fail(r->err, HEARTH_ERROR_FORMAT, "%s: is neither GGUF nor an importance matrix in the older format: %s at byte %" PRIu64,
                    r->source->label, what, at);
}

/* The next size bytes. */
static hearth_status read_bytes(reader *r, void *to, size_t size, const char *what)
{
    if (size > remaining(r)) return fail_at(r, r->at, what);
    hearth_status st = hth_gguf_source_read(r->source, r->at, size, to, r->err);
    r->at += size;
    return st;
}

/* A number of min to max, of things of `each` bytes that follow. */
static hearth_status read_number(reader *r, uint32_t min, uint32_t max, size_t each, const char *what, uint32_t *n)
{
    uint8_t bytes[4];
    uint64_t at = r->at;
    hearth_status st = read_bytes(r, bytes, sizeof bytes, what);
    if (st != HEARTH_OK) return st;
    *n = (uint32_t)hth_gguf_load(bytes, sizeof bytes);
    return *n < min || *n > max || *n * (uint64_t)each > remaining(r) ? fail_at(r, at, what) : HEARTH_OK;
}

static hearth_status read_values(reader *r, hth_imatrix_entry *e)
{
    enum { PIECE = 1024 };
    float piece[PIECE];
    for (size_t first = 0; first < e->n_value; first += PIECE) {
        size_t n = e->n_value - first < PIECE ? e->n_value - first : PIECE;
        uint64_t at = r->at;
        hearth_status st = read_bytes(r, piece, n * sizeof *piece, "values end");
        if (st != HEARTH_OK) return st;
        for (size_t i = 0; i < n; i++) {
            e->sums[first + i] = (double)piece[i];
            if (e->sums[first + i] >= 0.0 && e->sums[first + i] <= (double)FLT_MAX) continue;
            return hth_fail(r->err, HEARTH_ERROR_FORMAT,
                            "%s: tensor '%s': value %zu at byte %" PRIu64 " is %g; expected finite values, none negative",
                            r->source->label, hth_gguf_show(e->name).text, first + i, at + i * sizeof *piece,
                            (double)piece[i]);
        }
    }
    return HEARTH_OK;
}

static hearth_status read_entry(hth_imatrix *m, reader *r)
{
    char name[HTH_GGUF_MAX_NAME + 1] = "";
    uint32_t n_name, n_chunk, n_value;
    hth_imatrix_entry *e;
    hearth_status st = read_number(r, 1, HTH_GGUF_MAX_NAME, 1, "the length of a name", &n_name);
    if (st == HEARTH_OK) st = read_bytes(r, name, n_name, "a name ends");
    if (st == HEARTH_OK && strlen(name) != n_name) st = fail_at(r, r->at - n_name, "a name with a NUL");
    if (st == HEARTH_OK) st = read_number(r, 0, INT32_MAX, 0, "a number of chunks", &n_chunk);
    if (st == HEARTH_OK) st = read_number(r, 1, INT32_MAX, sizeof(float), "a number of values", &n_value);
    if (st == HEARTH_OK) st = hth_imatrix_add(m, (hth_str){name, n_name}, n_value, 1, &e, r->err);
    if (st != HEARTH_OK) return st;
    e->counts[0] = n_chunk > 0 ? n_chunk : 1.0; /* some writers left it out */
    return read_values(r, e);
}

/* The number of chunks and the name of the text, if they are there. */
static hearth_status read_end(hth_imatrix *m, reader *r)
{
    uint32_t n_chunk, n_name;
    char *name;
    if (remaining(r) == 0) return HEARTH_OK;
    hearth_status st = read_number(r, 0, INT32_MAX, 0, "the number of chunks", &n_chunk);
    if (st == HEARTH_OK) m->n_chunk = n_chunk;
    if (st != HEARTH_OK || remaining(r) == 0) return st;
    if ((st = read_number(r, 0, MAX_TEXT, 1, "the length of a text's name", &n_name)) != HEARTH_OK) return st;
    if (n_name == 0) return HEARTH_OK;
    if (!(name = hth_alloc(n_name, 1))) return hth_fail_memory(r->err, n_name, "the name of a text");
    st = read_bytes(r, name, n_name, "a text's name ends");
    if (st == HEARTH_OK) st = hth_imatrix_add_dataset(m, (hth_str){name, n_name}, r->err);
    hth_free(name);
    return st;
}

static hearth_status check_names(const hth_imatrix *m, const reader *r)
{
    for (size_t i = 1; i < m->n_entry; i++)
        if (hth_str_compare(m->entries[i].name, m->entries[i - 1].name) == 0)
            return hth_fail(r->err, HEARTH_ERROR_FORMAT, "%s: tensor '%s' occurs twice", r->source->label,
                            hth_gguf_show(m->entries[i].name).text);
    return HEARTH_OK;
}

hearth_status hth_imatrix_read_dat(hth_imatrix *m, const hth_gguf_source *source, hearth_error *err)
{
    reader r = {source, 0, err};
    uint32_t n_entry;
    enum { MIN_ENTRY = 3 * 4 + 1 + 4 };
    hearth_status st = read_number(&r, 1, MAX_ENTRY, MIN_ENTRY, "the number of entries", &n_entry);
    for (uint32_t i = 0; st == HEARTH_OK && i < n_entry; i++) st = read_entry(m, &r);
    if (st == HEARTH_OK) st = read_end(m, &r);
    hth_imatrix_sort(m);
    return st == HEARTH_OK ? check_names(m, &r) : st;
}
