/* hearth quantize: streams tensors in chunks of rows, which are read, widened, packed in parallel and written
 * in file order. The command and tests call it. */
#include "convert/quantize.h"

#include "base/alloc.h"
#include "base/system/cpu.h"
#include "base/log.h"
#include "base/pool.h"
#include "convert/range_check.h"
#include "file/imatrix.h"
#include "file/gguf_write.h"
#include "kernels/kernels.h"
#include "model/model.h"

#include <regex.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum {
    CHUNK_WEIGHTS = 1 << 20, /* weights of a chunk, about, at least a row */
    UNIT_ROWS = 8,
};
/* Replaces a type that needs importance, for a matrix that has none. */
static const hth_type unweighted_type = HTH_TYPE_Q4_K;

typedef struct work {
    const hth_quantize_options *options;
    hth_quantize_result *result;
    hth_gguf *in;
    hth_gguf_writer *out;
    hth_pool *pool;
    hth_kernels k;
    hth_ftype_model model;
    hth_type *types; /* [n_tensor] output types */
    hth_imatrix *imatrix; /* NULL: none */
    regex_t *patterns;    /* [n_pattern] of the rules */
    size_t n_pattern;
    uint64_t total, done;
    /* the current chunk */
    const hth_gguf_tensor *tensor;
    hth_type to;
    size_t n_row, n_col;
    uint64_t first_row; /* first row of the chunk in the tensor */
    uint8_t *raw, *packed;
    float *x;
    float *importance; /* [matrices][n_col] or NULL */
    _Atomic uint64_t bad_row; /* hth_note_bad_row */
} work;

/* ---- choice of types ------------------------------------------------------------------ */

/* Some types can be computed with but not written. */
static hearth_status check_packing(const work *w, hth_type type, hearth_error *err)
{
    if (w->k.pack[type] || w->k.pack_by[type]) return HEARTH_OK;
    return hth_fail(err, HEARTH_ERROR_UNSUPPORTED, "quantize to %s: this type is read, not written",
                    hth_type_find(type)->name);
}

/* Matrices whose rows do not fit the blocks of the type that they should have. */
typedef struct fallback {
    hth_type wanted, given;
    uint32_t n;
    const hth_gguf_tensor *first;
} fallback;
typedef struct fallback_list {
    fallback items[HTH_TYPE_LIMIT]; /* by pair of types, of which there are few */
    uint32_t n;
} fallback_list;

static hearth_status open_patterns(work *w, hearth_error *err)
{
    const hth_quantize_options *o = w->options;
    w->patterns = hth_alloc(o->n_rule, sizeof *w->patterns);
    if (!w->patterns && o->n_rule > 0) return hth_fail_memory(err, o->n_rule * sizeof *w->patterns, "patterns of names");
    for (; w->n_pattern < o->n_rule; w->n_pattern++) {
        char why[80];
        int wrong = regcomp(&w->patterns[w->n_pattern], o->rules[w->n_pattern].pattern, REG_EXTENDED | REG_NOSUB);
        if (wrong == 0) continue;
        regerror(wrong, &w->patterns[w->n_pattern], why, sizeof why);
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "'%.200s' is no pattern of names: %s", o->rules[w->n_pattern].pattern, why);
    }
    return HEARTH_OK;
}

static void close_patterns(work *w)
{
    while (w->n_pattern > 0) regfree(&w->patterns[--w->n_pattern]);
    hth_free(w->patterns);
}

/* The type that a rule or an option gives the matrix. False: none does. */
static bool is_ruled(const work *w, const hth_gguf_tensor *t, hth_type *type)
{
    const hth_quantize_options *o = w->options;
    char name[64]; /* tensors have at most 63 bytes */
    snprintf(name, sizeof name, "%.*s", (int)t->name.n, t->name.bytes);
    for (size_t i = 0; i < w->n_pattern; i++)
        if (regexec(&w->patterns[i], name, 0, NULL, 0) == 0) return *type = o->rules[i].type, true;
    if (!o->keep_output || !hth_ftype_is_head(&w->model, t->name)) return false;
    return *type = o->output_type, true;
}

static hth_type choose_type(const work *w, const hth_gguf_tensor *t, hth_type *wanted)
{
    hth_type to = hth_ftype_type(w->options->ftype, &w->model, t->name, t->dim[0], wanted), ruled;
    if (!is_ruled(w, t, &ruled)) return to;
    *wanted = ruled;
    return t->dim[0] % hth_type_find(ruled)->n_weight == 0 ? ruled : to;
}

static void add_fallback(fallback_list *list, const hth_gguf_tensor *t, hth_type wanted, hth_type given)
{
    uint32_t i = 0;
    while (i < list->n && (list->items[i].wanted != wanted || list->items[i].given != given)) i++;
    if (i == HTH_TYPE_LIMIT) return;
    if (i == list->n) list->items[list->n++] = (fallback){wanted, given, 0, t};
    list->items[i].n++;
}

static void warn_of_fallback(const hth_gguf *file, const fallback_list *list)
{
    for (uint32_t i = 0; i < list->n; i++) {
        const fallback *f = &list->items[i];
        char name[80], more[48] = "";
        if (f->n > 1) snprintf(more, sizeof more, "; likewise %u more", f->n - 1);
        hth_log(HEARTH_LOG_WARN, "%s: tensor '%s': rows of %llu weights do not fit blocks of %s: %s instead%s",
                hth_gguf_path(file), hth_escape(name, sizeof name, f->first->name.bytes, f->first->name.n),
                (unsigned long long)f->first->dim[0], hth_type_find(f->wanted)->name, hth_type_find(f->given)->name,
                more);
    }
}

static hearth_status choose_types(work *w, hearth_error *err)
{
    size_t n = hth_gguf_n_tensor(w->in);
    fallback_list fallbacks = {.n = 0};
    hearth_status st = hth_ftype_open_model(w->in, &w->model, err);
    if (st != HEARTH_OK) return st;
    w->model.pure = w->options->pure;
    w->model.has_imatrix = w->imatrix != NULL;
    w->types = hth_alloc(n, sizeof *w->types);
    if (!w->types) return hth_fail_memory(err, n * sizeof *w->types, "tensor types");
    for (size_t i = 0; i < n; i++) {
        const hth_gguf_tensor *t = hth_gguf_tensor_at(w->in, i);
        const hth_type_info *from = hth_type_find(t->type);
        hth_type wanted;
        w->types[i] = t->type;
        w->total += t->size;
        if (!hth_ftype_is_matrix(t->name, t->n_dim)) continue;
        if (!from || !from->supported) {
            char name[80];
            return hth_fail(
                err, HEARTH_ERROR_UNSUPPORTED,
                "%s: tensor '%s' (info at byte %llu) has type %s, from which quantize cannot start",
                hth_gguf_part_path(w->in, t->i_part), hth_escape(name, sizeof name, t->name.bytes, t->name.n),
                (unsigned long long)t->info_at, from ? from->name : "unknown");
        }
        w->types[i] = choose_type(w, t, &wanted);
        w->result->n_changed += w->types[i] != t->type;
        w->result->n_requantised +=
            w->types[i] != t->type && from->quantised && hth_type_find(w->types[i])->quantised;
        if (w->types[i] != wanted) add_fallback(&fallbacks, t, wanted, w->types[i]);
        if ((st = check_packing(w, w->types[i], err)) != HEARTH_OK) return st;
    }
    warn_of_fallback(w->in, &fallbacks);
    if (w->result->n_requantised)
        hth_log(HEARTH_LOG_WARN, "%u of the matrices are quantised already: the new rounding adds to their loss",
                w->result->n_requantised);
    w->result->n_tensor = (uint32_t)n;
    return HEARTH_OK;
}

/* A file of another type than its name will say: its rows fit no block of that type. */
static void warn_of_no_match(const work *w)
{
    const hth_ftype *asked = w->options->ftype;
    uint32_t n_of_type[HTH_TYPE_LIMIT] = {0}, n_matrix = 0;
    hth_type most = asked->type;
    for (size_t i = 0; i < hth_gguf_n_tensor(w->in); i++) {
        const hth_gguf_tensor *t = hth_gguf_tensor_at(w->in, i);
        if (!hth_ftype_is_matrix(t->name, t->n_dim)) continue;
        n_matrix++;
        if (++n_of_type[w->types[i]] > n_of_type[most]) most = w->types[i];
    }
    if (n_matrix > 0 && n_of_type[asked->type] == 0)
        hth_log(HEARTH_LOG_WARN, "%s: none of %u matrices became %s, as %s asks: %u are %s", hth_gguf_path(w->in), n_matrix,
                hth_type_find(asked->type)->name, asked->name, n_of_type[most], hth_type_find(most)->name);
}

/* ---- importance ------------------------------------------------------------------------ */

/* Embeddings and the head have no entries: llama-imatrix leaves them out. */

static hearth_status fail_without_importance(const work *w, const hth_gguf_tensor *t, hth_type to, hearth_error *err)
{
    char name[80];
    return hth_fail(err, HEARTH_ERROR_ARGUMENT,
                    "%s: tensor '%s': %s needs an importance matrix: make one by hearth imatrix, and give it by quantize_options.imatrix",
                    hth_gguf_path(w->in), hth_escape(name, sizeof name, t->name.bytes, t->name.n),
                    hth_type_find(to)->name);
}

/* Matrices without importance, although there is an importance matrix. */
typedef struct unknown {
    uint32_t n_alike, n_retyped; /* packed with weights that count alike; written as unweighted_type instead */
    const hth_gguf_tensor *first_alike, *first_retyped;
    hth_type wanted; /* the type that first_retyped would have had */
} unknown;

/* Evaluation does not reach every matrix: not those of images, or of layers that draft tokens. */
static void retype(work *w, size_t i, unknown *u)
{
    const hth_gguf_tensor *t = hth_gguf_tensor_at(w->in, i);
    if (u->n_retyped++ == 0) u->first_retyped = t, u->wanted = w->types[i];
    w->types[i] = unweighted_type;
    w->result->n_changed -= t->type == unweighted_type;
}

static hearth_status tell_unknown(const work *w, const unknown *u, hearth_error *err)
{
    const hth_gguf_tensor *first = u->n_alike ? u->first_alike : u->first_retyped;
    const char *path = w->options->imatrix;
    char name[80];
    if (!first) return HEARTH_OK;
    if (w->result->n_weighted == 0)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "%s: has none of the matrices of %s, not even '%s'",
                        hth_gguf_label(path), hth_gguf_label(hth_gguf_path(w->in)),
                        hth_escape(name, sizeof name, first->name.bytes, first->name.n));
    if (u->n_alike)
        hth_log(HEARTH_LOG_WARN, "%s: %u matrices are missing, first '%s': their weights count alike", path, u->n_alike,
                hth_escape(name, sizeof name, first->name.bytes, first->name.n));
    if (u->n_retyped)
        hth_log(HEARTH_LOG_WARN, "%s: %u matrices are missing, first '%s', and %s needs their importance: %s instead", path,
                u->n_retyped, hth_escape(name, sizeof name, u->first_retyped->name.bytes, u->first_retyped->name.n),
                hth_type_find(u->wanted)->name, hth_type_find(unweighted_type)->name);
    return HEARTH_OK;
}

/* Refuses an importance matrix of another model, and types that need one where none is given. */
static hearth_status check_importance(work *w, hearth_error *err)
{
    unknown u = {0};
    hearth_status st = w->imatrix ? hth_imatrix_check_model(w->imatrix, w->options->imatrix, w->in, err) : HEARTH_OK;
    if (st != HEARTH_OK) return st;
    for (size_t i = 0; i < hth_gguf_n_tensor(w->in); i++) {
        const hth_gguf_tensor *t = hth_gguf_tensor_at(w->in, i);
        bool is_known = w->imatrix && hth_imatrix_find(w->imatrix, t->name);
        if (w->types[i] == t->type || !w->k.pack_by[w->types[i]]) continue;
        w->result->n_weighted += is_known;
        if (is_known) continue;
        bool is_needed = hth_ftype_needs_imatrix(w->options->ftype, t->name, w->types[i]);
        if (is_needed && !w->imatrix) return fail_without_importance(w, t, w->types[i], err);
        if (is_needed) retype(w, i, &u);
        else if (hth_str_begins(t->name, "blk.") && u.n_alike++ == 0) u.first_alike = t;
    }
    return w->imatrix ? tell_unknown(w, &u, err) : HEARTH_OK;
}

static hearth_status open_imatrix(work *w, hearth_error *err)
{
    return w->options->imatrix ? hth_imatrix_open(w->options->imatrix, &w->imatrix, err) : HEARTH_OK;
}

/* Sets w->importance for the current tensor; NULL: its rows are rounded alike. */
static hearth_status find_importance(work *w, hearth_error *err)
{
    size_t n_matrix = (size_t)(w->tensor->dim[2] * w->tensor->dim[3]);
    const hth_imatrix_entry *e = w->imatrix ? hth_imatrix_find(w->imatrix, w->tensor->name) : NULL;
    w->importance = NULL;
    if (!w->k.pack_by[w->to] || (!e && w->k.pack[w->to])) return HEARTH_OK;
    w->importance = hth_alloc(n_matrix, w->n_col * sizeof *w->importance);
    if (!w->importance) return hth_fail_memory(err, n_matrix * w->n_col * sizeof *w->importance, "importance");
    for (size_t i = 0; e && i < n_matrix; i++) hth_imatrix_weights(e, i, n_matrix, w->importance + i * w->n_col);
    for (size_t i = 0; !e && i < n_matrix * w->n_col; i++) w->importance[i] = 1.0f;
    return HEARTH_OK;
}

/* ---- the header ------------------------------------------------------------------------- */

/* The keys of llama-quantize. */
static void write_imatrix_keys(const work *w)
{
    const hth_imatrix *m = w->imatrix;
    hth_gguf_writer_text(w->out, "quantize.imatrix.file", w->options->imatrix, strlen(w->options->imatrix));
    if (m->n_dataset > 0)
        hth_gguf_writer_text(w->out, "quantize.imatrix.dataset", m->datasets[0].bytes, m->datasets[0].n);
    hth_gguf_writer_uint(w->out, "quantize.imatrix.entries_count", HTH_GGUF_U32, m->n_entry);
    if (m->n_chunk > 0)
        hth_gguf_writer_uint(w->out, "quantize.imatrix.chunks_count", HTH_GGUF_U32, m->n_chunk);
}

static hearth_status write_header(work *w, hearth_error *err)
{
    for (size_t i = 0; i < hth_gguf_n_value(w->in); i++) {
        const hth_gguf_value *v = hth_gguf_value_at(w->in, i);
        if (v->key.n >= 6 && memcmp(v->key.bytes, "split.", 6) == 0) continue; /* the output is one file */
        hth_gguf_writer_copy(w->out, v);
    }
    hth_gguf_writer_uint(w->out, "general.file_type", HTH_GGUF_U32, w->options->ftype->file_type);
    hth_gguf_writer_uint(w->out, "general.quantization_version", HTH_GGUF_U32, 2);
    hth_gguf_writer_text(w->out, HTH_KEY_MADE_BY, "quantize", 8);
    if (w->imatrix) write_imatrix_keys(w);
    for (size_t i = 0; i < hth_gguf_n_tensor(w->in); i++) {
        const hth_gguf_tensor *t = hth_gguf_tensor_at(w->in, i);
        hth_gguf_writer_tensor(w->out, t->name.bytes, w->types[i], t->n_dim, t->dim);
    }
    return hth_gguf_writer_begin(w->out, err);
}

/* ---- the weights -------------------------------------------------------------------------- */

static void pack_row(const work *w, size_t i_row, const float *x, uint8_t *row)
{
    size_t i_matrix = (size_t)((w->first_row + i_row) / w->tensor->dim[1]);
    if (w->importance) w->k.pack_by[w->to](x, w->importance + i_matrix * w->n_col, w->n_col, row);
    else w->k.pack[w->to](x, w->n_col, row);
}

static void pack_unit(void *arg, size_t i_unit, uint32_t i_thread)
{
    (void)i_thread;
    work *w = arg;
    size_t from_size = hth_type_row_size(w->tensor->type, w->n_col),
           to_size = hth_type_row_size(w->to, w->n_col);
    size_t end = (i_unit + 1) * UNIT_ROWS < w->n_row ? (i_unit + 1) * UNIT_ROWS : w->n_row;
    for (size_t r = i_unit * UNIT_ROWS; r < end; r++) {
        float *x = w->x + r * w->n_col;
        w->k.unpack[w->tensor->type](w->raw + r * from_size, w->n_col, x);
        if (hth_type_in_range(x, w->n_col, w->to)) pack_row(w, r, x, w->packed + r * to_size);
        else hth_note_bad_row(&w->bad_row, r);
    }
}

static hearth_status copy_piece(work *w, hearth_error *err)
{
    uint64_t first_row = w->first_row;
    size_t from_size = hth_type_row_size(w->tensor->type, w->n_col);
    hearth_status st =
        hth_gguf_read(w->in, w->tensor, first_row * from_size, w->n_row * from_size, w->raw, err);
    if (st != HEARTH_OK) return st;
    atomic_store(&w->bad_row, 0);
    hth_pool_run(w->pool, pack_unit, w, (w->n_row + UNIT_ROWS - 1) / UNIT_ROWS);
    uint64_t bad = atomic_load(&w->bad_row);
    if (bad) {
        char name[80];
        return hth_fail(
            err, HEARTH_ERROR_NUMERIC,
            "%s: tensor '%s' at %llu: row %llu holds a weight that is not finite, or too large for %s",
            hth_gguf_part_path(w->in, w->tensor->i_part),
            hth_escape(name, sizeof name, w->tensor->name.bytes, w->tensor->name.n),
            (unsigned long long)w->tensor->offset, (unsigned long long)(first_row + bad - 1),
            hth_type_find(w->to)->name);
    }
    return hth_gguf_writer_data(w->out, w->packed, w->n_row * hth_type_row_size(w->to, w->n_col), err);
}

/* Converts the rows of one tensor, chunk by chunk. */
static hearth_status convert_tensor(work *w, const hth_gguf_tensor *t, hth_type to, hearth_error *err)
{
    size_t n_col = (size_t)t->dim[0];
    uint64_t n_row = t->dim[1] * t->dim[2] * t->dim[3];
    size_t piece = n_col < CHUNK_WEIGHTS ? CHUNK_WEIGHTS / n_col : 1;
    hearth_status st = HEARTH_OK;
    if (piece > n_row) piece = (size_t)n_row;
    w->tensor = t, w->to = to, w->n_col = n_col;
    w->raw = hth_alloc(piece, hth_type_row_size(t->type, n_col));
    w->packed = hth_alloc(piece, hth_type_row_size(to, n_col));
    w->x = hth_alloc(piece, n_col * sizeof *w->x);
    if (!w->raw || !w->packed || !w->x) st = hth_fail_memory(err, piece * n_col * 8, "rows of weights");
    if (st == HEARTH_OK) st = find_importance(w, err);
    for (w->first_row = 0; st == HEARTH_OK && w->first_row < n_row; w->first_row += piece) {
        w->n_row = n_row - w->first_row < piece ? (size_t)(n_row - w->first_row) : piece;
        st = copy_piece(w, err);
    }
    hth_free(w->importance);
    w->importance = NULL;
    hth_free(w->raw);
    hth_free(w->packed);
    hth_free(w->x);
    return st;
}

/* Copies bytes unchanged. */
static hearth_status copy_tensor(work *w, const hth_gguf_tensor *t, hearth_error *err)
{
    size_t capacity = t->size < CHUNK_WEIGHTS ? (size_t)t->size : CHUNK_WEIGHTS;
    uint8_t *bytes = hth_alloc(1, capacity);
    hearth_status st = bytes ? HEARTH_OK : hth_fail_memory(err, capacity, "weights");
    for (uint64_t from = 0; st == HEARTH_OK && from < t->size; from += capacity) {
        size_t n = t->size - from < capacity ? (size_t)(t->size - from) : capacity;
        if ((st = hth_gguf_read(w->in, t, from, n, bytes, err)) != HEARTH_OK) break;
        st = hth_gguf_writer_data(w->out, bytes, n, err);
    }
    hth_free(bytes);
    return st;
}

static hearth_status write_weights(work *w, hearth_error *err)
{
    for (size_t i = 0; i < hth_gguf_n_tensor(w->in); i++) {
        const hth_gguf_tensor *t = hth_gguf_tensor_at(w->in, i);
        hearth_status st =
            w->types[i] == t->type ? copy_tensor(w, t, err) : convert_tensor(w, t, w->types[i], err);
        if (st != HEARTH_OK) return st;
        w->done += t->size;
        w->result->out_bytes +=
            hth_type_row_size(w->types[i], (size_t)t->dim[0]) * t->dim[1] * t->dim[2] * t->dim[3];
        const hth_quantize_options *o = w->options;
        if (o->progress && !o->progress(o->progress_user, w->done, w->total))
            return hth_fail(err, HEARTH_ERROR_CANCELLED, "interrupted; nothing was written");
    }
    w->result->in_bytes = w->total;
    return HEARTH_OK;
}

hearth_status hth_quantize(const char *in_path, const char *out_path, const hth_quantize_options *options,
                           hth_quantize_result *result, hearth_error *err)
{
    hth_cpu level;
    work w = {.options = options, .result = result};
    *result = (hth_quantize_result){0};
    hearth_status st = hth_cpu_choose(NULL, &level, err);
    if (st != HEARTH_OK) return st;
    hth_kernels_init(&w.k, level);
    if ((st = hth_gguf_open(in_path, &w.in, err)) != HEARTH_OK) goto done;
    if (hth_gguf_is_powerinfer(w.in)) { /* the meaning of its magic would be lost */
        st = hth_fail(err, HEARTH_ERROR_UNSUPPORTED,
                      "%s: a PowerInfer file (magic PWRI): hearth pack writes it in other types", in_path);
        goto done;
    }
    if (hth_gguf_n_tensor(w.in) == 0) {
        st = hth_fail(err, HEARTH_ERROR_FORMAT, "%s: there are no tensors", in_path);
        goto done;
    }
    if ((st = open_patterns(&w, err)) != HEARTH_OK) goto done;
    if ((st = open_imatrix(&w, err)) != HEARTH_OK) goto done;
    if ((st = choose_types(&w, err)) != HEARTH_OK) goto done;
    if ((st = check_importance(&w, err)) != HEARTH_OK) goto done;
    warn_of_no_match(&w);
    if ((st = hth_pool_open(hth_pool_default_threads(options->n_thread), &w.pool, err)) != HEARTH_OK)
        goto done;
    if ((st = hth_gguf_writer_open(out_path, &w.out, err)) != HEARTH_OK) goto done;
    if ((st = write_header(&w, err)) != HEARTH_OK) goto done;
    if ((st = write_weights(&w, err)) != HEARTH_OK) goto done;
    st = hth_gguf_writer_finish(w.out, err);
done:
    if (w.out) hth_gguf_writer_close(w.out);
    hth_pool_close(w.pool);
    close_patterns(&w);
    hth_free(w.types);
    hth_ftype_close_model(&w.model);
    hth_imatrix_close(w.imatrix);
    if (w.in) hth_gguf_close(w.in);
    return st;
}
