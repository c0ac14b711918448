/* Converts the bytes of one tensor of a packed file. Tensors whose rows keep their order are streamed in
 * chunks. The others are held whole, one matrix of a layer at a time. */
#include "convert/pack_tensor.h"

#include "base/alloc.h"
#include "base/hash.h"
#include "convert/range_check.h"

#include <stdatomic.h>
#include <string.h>

enum {
    CHUNK_SIZE = 16 << 20, /* bytes of a chunk, at least a row */
    UNIT_ROWS = 8,
    GROUP = 256, /* neurons that are transposed together: whole blocks of every type */
};

typedef struct chunk {
    const hth_packer *p;
    const hth_pack_tensor *t;
    const uint8_t *raw; /* rows from `first` on, or all */
    uint8_t *packed;    /* the same rows */
    uint64_t n_row;
    size_t from_size, to_size;
    float *x; /* a unit's floats, per thread */
    size_t x_size;
    hth_pack_loss *loss;      /* [n_unit], for transposed tensors */
    const int32_t *place;     /* row of neuron j in transposed tensors; NULL: row j */
    uint64_t first;           /* first row of the chunk */
    _Atomic uint64_t bad_row; /* 1 + the first row of the source with a weight that cannot be packed */
} chunk;

static size_t row_size(hth_type type, uint64_t n_col)
{
    const hth_type_info *info = hth_type_find((uint32_t)type);
    return (size_t)(n_col / info->n_weight * info->size);
}

uint64_t hth_pack_tensor_size(const hth_pack_tensor *t) { return t->n_row * row_size(t->type, t->n_col); }

void hth_pack_declare(hth_packer *p, const hth_pack_tensor *t)
{
    hth_gguf_writer_tensor(p->out, t->name, t->type, t->n_dim, t->dim);
}

/* ---- rows ---------------------------------------------------------------------------------- */

static void convert_row(chunk *w, const uint8_t *from, float *x, uint8_t *to, uint64_t i_row)
{
    const hth_pack_tensor *t = w->t;
    if (t->type == t->from->type) {
        memcpy(to, from, w->to_size);
        return;
    }
    w->p->k.unpack[t->from->type](from, t->n_col, x);
    if (hth_type_in_range(x, t->n_col, t->type)) w->p->k.pack[t->type](x, t->n_col, to);
    else hth_note_bad_row(&w->bad_row, i_row);
}

static void convert_rows(void *arg, size_t i_unit, uint32_t i_thread)
{
    chunk *w = arg;
    for (uint64_t r = i_unit * UNIT_ROWS, k = 0; k < UNIT_ROWS && r < w->n_row; r++, k++) {
        uint64_t from = w->t->order ? (uint64_t)w->t->order[r] : r;
        convert_row(w, w->raw + from * w->from_size, w->x + i_thread * w->x_size, w->packed + r * w->to_size,
                    w->t->first_row + w->first + from);
    }
}

/* ---- transposed ------------------------------------------------------------------------------ */

static hth_pack_loss loss_of(const float *x, const float *packed, size_t n)
{
    hth_pack_loss loss = {0};
    for (size_t i = 0; i < n; i++) {
        double d = (double)packed[i] - (double)x[i];
        loss.error += d * d;
        loss.size += (double)x[i] * (double)x[i];
    }
    return loss;
}

/* Neurons from 256 i on: columns of the source become rows, and each row is packed. */
static void transpose_group(void *arg, size_t i_unit, uint32_t i_thread)
{
    chunk *w = arg;
    const hth_pack_tensor *t = w->t;
    const hth_type_info *from = hth_type_find((uint32_t)t->from->type);
    size_t first = i_unit * GROUP, left = (size_t)w->n_row - first, n = left < GROUP ? left : GROUP;
    size_t d = (size_t)t->n_col;
    float *x = w->x + i_thread * w->x_size, *row = x + GROUP * d;
    for (size_t o = 0; o < d; o++) {
        w->p->k.unpack[t->from->type](w->raw + o * w->from_size + first / from->n_weight * from->size, n,
                                      row);
        for (size_t j = 0; j < n; j++) x[j * d + o] = row[j];
    }
    row = x + GROUP * d; /* now the packed rows, unpacked */
    for (size_t j = 0; j < n; j++) {
        size_t place = w->place ? (size_t)w->place[first + j] : first + j;
        uint8_t *to = w->packed + place * w->to_size;
        if (!hth_type_in_range(x + j * d, d, t->type)) {
            hth_note_bad_row(&w->bad_row, first + j);
            continue;
        }
        w->p->k.pack[t->type](x + j * d, d, to);
        w->p->k.unpack[t->type](to, d, row);
        hth_pack_loss loss = loss_of(x + j * d, row, d);
        w->loss[i_unit].error += loss.error, w->loss[i_unit].size += loss.size;
    }
}

static hearth_status run_transposed(hth_packer *p, chunk *w, hearth_error *err)
{
    size_t n_unit = (size_t)((w->n_row + GROUP - 1) / GROUP), n = (size_t)w->n_row;
    int32_t *place = hth_alloc(n, sizeof *place);
    w->loss = hth_alloc(n_unit, sizeof *w->loss);
    hearth_status st = place && w->loss ? HEARTH_OK : hth_fail_memory(err, n * sizeof *place, "neurons");
    if (st == HEARTH_OK) {
        for (size_t r = 0; w->t->order && r < n; r++) place[w->t->order[r]] = (int32_t)r;
        w->place = w->t->order ? place : NULL;
        hth_pool_run(p->pool, transpose_group, w, n_unit);
        for (size_t i = 0; i < n_unit; i++)
            p->loss.error += w->loss[i].error, p->loss.size += w->loss[i].size;
    }
    hth_free(w->loss);
    hth_free(place);
    return st;
}

/* ---- what is known of the written rows --------------------------------------------------------- */

/* Units of checksums do not cross the ends of chunks. */
static void note_rows(const chunk *w)
{
    const hth_pack_tensor *t = w->t;
    for (uint64_t r = 0; t->unit_row > 0 && r < w->n_row; r += t->unit_row) {
        uint64_t n = w->n_row - r < t->unit_row ? w->n_row - r : t->unit_row;
        t->checksums[(w->first + r) / t->unit_row] = hth_hash(w->packed + r * w->to_size, (size_t)n * w->to_size);
    }
    for (uint64_t r = 0; t->scales && r < w->n_row; r++)
        hth_axpy_raise(&t->scales[(w->first + r) / HTH_CLUSTER_NEURONS],
                       hth_axpy_absmax_scale(t->type, w->packed + r * w->to_size, (size_t)t->n_col));
    if (t->scales && w->first + w->n_row == t->n_row)
        t->checksums[(t->n_row + t->unit_row - 1) / t->unit_row] =
            hth_hash(t->scales, hth_n_cluster((size_t)t->n_row) * sizeof *t->scales);
}

/* ---- a tensor ---------------------------------------------------------------------------------- */

static hearth_status fail_row(const chunk *w, uint64_t i_row, hearth_error *err)
{
    const hth_gguf_tensor *t = w->t->from;
    char name[80];
    return hth_fail(
        err, HEARTH_ERROR_NUMERIC,
        "%s: tensor '%s' at %llu: row %llu holds a weight that is not finite, or too large for %s",
        hth_gguf_part_path(w->t->file, t->i_part), hth_escape(name, sizeof name, t->name.bytes, t->name.n),
        (unsigned long long)t->offset, (unsigned long long)i_row, hth_type_find((uint32_t)w->t->type)->name);
}

static hearth_status convert_piece(hth_packer *p, chunk *w, uint64_t from, size_t size, uint8_t *raw,
                                   hearth_error *err)
{
    hearth_status st = hth_gguf_read(w->t->file, w->t->from, from, size, raw, err);
    if (st != HEARTH_OK) return st;
    atomic_store(&w->bad_row, 0);
    if (w->t->transposed) st = run_transposed(p, w, err);
    else hth_pool_run(p->pool, convert_rows, w, (size_t)((w->n_row + UNIT_ROWS - 1) / UNIT_ROWS));
    if (hth_pool_take_cancelled(p->pool))
        return hth_fail(err, HEARTH_ERROR_CANCELLED, "interrupted; nothing was written");
    uint64_t bad = atomic_load(&w->bad_row);
    if (st == HEARTH_OK && bad) st = fail_row(w, bad - 1, err);
    if (st == HEARTH_OK) note_rows(w);
    return st == HEARTH_OK ? hth_gguf_writer_data(p->out, w->packed, (size_t)w->n_row * w->to_size, err) : st;
}

hearth_status hth_pack_write(hth_packer *p, const hth_pack_tensor *t, hearth_error *err)
{
    if (!t->from) return hth_gguf_writer_data(p->out, t->data, (size_t)hth_pack_tensor_size(t), err);
    chunk w = {.p = p, .t = t, .to_size = row_size(t->type, t->n_col)};
    uint64_t n_from_row = t->transposed ? t->n_col : t->n_row,
             n_from_col = t->transposed ? t->n_row : t->n_col;
    w.from_size = row_size(t->from->type, n_from_col);
    uint64_t n_chunk =
        t->order || t->transposed || w.from_size > CHUNK_SIZE ? t->n_row : CHUNK_SIZE / w.from_size;
    if (w.from_size > CHUNK_SIZE && !t->order && !t->transposed) n_chunk = 1;
    if (t->unit_row > 0) n_chunk = n_chunk < t->unit_row ? t->unit_row : n_chunk / t->unit_row * t->unit_row;
    if (n_chunk > t->n_row) n_chunk = t->n_row;
    w.x_size = t->transposed ? (GROUP + 1) * (size_t)(t->n_col > GROUP ? t->n_col : GROUP) : (size_t)t->n_col;
    size_t raw_size = (size_t)(t->transposed ? n_from_row : n_chunk) * w.from_size;
    uint8_t *raw = hth_alloc(raw_size + 1, 1);
    w.packed = hth_alloc((size_t)n_chunk + 1, w.to_size);
    w.x = hth_alloc(hth_pool_n_thread(p->pool), w.x_size * sizeof *w.x);
    hearth_status st = raw && w.packed && w.x ? HEARTH_OK : hth_fail_memory(err, 2 * raw_size, "a tensor");
    w.raw = raw;
    for (uint64_t row = 0; st == HEARTH_OK && row < t->n_row; row += n_chunk) {
        w.n_row = t->n_row - row < n_chunk ? t->n_row - row : n_chunk;
        w.first = row;
        uint64_t from = t->transposed ? 0 : (t->first_row + row) * w.from_size;
        st = convert_piece(p, &w, from, t->transposed ? raw_size : (size_t)w.n_row * w.from_size, raw, err);
    }
    hth_free(w.x);
    hth_free(w.packed);
    hth_free(raw);
    return st;
}
