/* The GGUF writer: it collects pairs and tensors, `begin` writes them, then data follow in the order of the
 * directory. Called by convert/ and by everything that writes a sidecar. It enforces the limits of the reader, so
 * that every finished file can be opened. The layout (version 3, contiguous, every tensor padded) is the one that
 * llama.cpp requires. */
#include "file/gguf_write.h"

#include "base/checked_math.h"
#include "file/gguf_int.h"
#include "file/atomic_writer.h"

#include <inttypes.h>

typedef struct pair {
    hth_str key; /* must be first: the name index reads it */
    hth_gguf_type type;
    hth_str raw;
} pair;

typedef struct {
    hth_str name; /* must be first: the name index reads it */
    hth_type type;
    uint32_t n_dim;
    uint64_t dim[HTH_GGUF_MAX_DIM];
    uint64_t size, offset; /* from the start of the data */
} entry;

struct hth_gguf_writer {
    hth_atomic_writer writer;
    hth_arena arena;
    pair *pairs;
    size_t n_pair, pair_capacity;
    entry *entries;
    size_t n_entry, room_entry;
    hth_file_name_index keys, names;
    uint64_t alignment;
    bool begun, finished;
    size_t i_entry;    /* the tensor whose data come next */
    uint64_t n_done;   /* bytes of it that are written */
    hearth_error first_error; /* the first failure; all later calls return it */
};

hearth_status hth_gguf_writer_open(const char *path, hth_gguf_writer **out, hearth_error *err)
{
    *out = NULL;
    hth_gguf_writer *w = hth_alloc(1, sizeof *w);
    if (!w) return hth_fail_memory(err, sizeof *w, "writing a model");
    w->alignment = HTH_GGUF_ALIGNMENT;
    hearth_status status = hth_atomic_writer_open(&w->writer, path, err);
    if (status == HEARTH_OK) *out = w;
    else hth_gguf_writer_close(w);
    return status;
}

void hth_gguf_writer_close(hth_gguf_writer *w)
{
    if (!w) return;
    hth_atomic_writer_close(&w->writer);
    hth_file_name_free(&w->keys);
    hth_file_name_free(&w->names);
    hth_free(w->pairs);
    hth_free(w->entries);
    hth_arena_free(&w->arena);
    hth_free(w);
}

/* ---- deferred errors ---------------------------------------------------------------------- */

static bool failed(const hth_gguf_writer *w) { return w->first_error.status != HEARTH_OK; }

static hearth_status return_error(const hth_gguf_writer *w, hearth_error *err)
{
    if (err && failed(w)) *err = w->first_error;
    return w->first_error.status;
}

static void fail_memory(hth_gguf_writer *w, size_t size, const char *what)
{
    if (!failed(w)) hth_fail_memory(&w->first_error, size, what);
}

static void fail_pair(hth_gguf_writer *w, hth_str key, const char *why)
{
    if (!failed(w))
        hth_fail(&w->first_error, HEARTH_ERROR_ARGUMENT, "%s: key '%s': %s", w->writer.label, hth_gguf_show(key).text,
                 why);
}

static void fail_tensor(hth_gguf_writer *w, const char *name, const char *why)
{
    if (!failed(w))
        hth_fail(&w->first_error, HEARTH_ERROR_ARGUMENT, "%s: tensor '%s': %s", w->writer.label,
                 hth_gguf_show((hth_str){name, strlen(name)}).text, why);
}

/* ---- pairs ------------------------------------------------------------------------------------ */

static bool reserve_pair(hth_gguf_writer *w)
{
    if (w->n_pair < w->pair_capacity) return true;
    size_t capacity = w->pair_capacity ? 2 * w->pair_capacity : 32;
    pair *larger = hth_realloc(w->pairs, capacity, sizeof *larger);
    if (!larger) {
        fail_memory(w, capacity * sizeof *larger, "metadata");
        return false;
    }
    w->pairs = larger;
    w->pair_capacity = capacity;
    return true;
}

static bool check_pair(hth_gguf_writer *w, hth_str key)
{
    if (failed(w)) return false;
    if (w->begun) fail_pair(w, key, "set after the directory was written");
    if (key.n < 1 || key.n > HTH_GGUF_MAX_KEY) fail_pair(w, key, "1 to 65535 bytes are allowed");
    for (size_t i = 0; i < key.n; i++)
        if ((unsigned char)key.bytes[i] < 0x20 || key.bytes[i] == 0x7f)
            fail_pair(w, key, "control bytes are not allowed");
    return !failed(w);
}

/* Adds or replaces a pair. raw is already in the arena. */
static void put_pair(hth_gguf_writer *w, hth_str key, hth_gguf_type type, hth_str raw)
{
    uint32_t i = hth_file_name_find(&w->keys, w->pairs, sizeof *w->pairs, key);
    if (i != HTH_FILE_NAME_NONE) {
        w->pairs[i].type = type;
        w->pairs[i].raw = raw;
        return;
    }
    if (w->n_pair >= HTH_GGUF_MAX_PAIR) {
        fail_pair(w, key, "more than 65536 metadata pairs");
        return;
    }
    char *copy = hth_arena_strndup(&w->arena, key.bytes, key.n);
    if (!copy || !hth_file_name_add(&w->keys, key, (uint32_t)w->n_pair)) {
        fail_memory(w, key.n, "a metadata key");
        return;
    }
    if (reserve_pair(w)) w->pairs[w->n_pair++] = (pair){{copy, key.n}, type, raw};
}

/* Memory for the bytes of a value. NULL, with the error stored, on failure. */
static char *new_raw(hth_gguf_writer *w, uint64_t size)
{
    char *raw = size <= SIZE_MAX ? hth_arena_alloc(&w->arena, (size_t)size, 1, 1) : NULL;
    if (!raw) fail_memory(w, (size_t)size, "a metadata value");
    return raw;
}

static hth_str text_of(const char *s) { return (hth_str){s, strlen(s)}; }

static void put_scalar(hth_gguf_writer *w, const char *key, hth_gguf_type type, uint64_t word)
{
    size_t size = hth_gguf_scalar_size(type);
    if (!check_pair(w, text_of(key))) return;
    char *raw = new_raw(w, size);
    if (!raw) return;
    hth_gguf_store(raw, word, size);
    put_pair(w, text_of(key), type, (hth_str){raw, size});
}

void hth_gguf_writer_uint(hth_gguf_writer *w, const char *key, hth_gguf_type type, uint64_t value)
{
    size_t size = hth_gguf_scalar_size(type);
    if (!hth_gguf_is_unsigned(type)) fail_pair(w, text_of(key), "the type is not one of u8 to u64");
    else if (size < 8 && value >> (8 * size) != 0)
        fail_pair(w, text_of(key), "the value does not fit into its type");
    put_scalar(w, key, type, value);
}

void hth_gguf_writer_int(hth_gguf_writer *w, const char *key, hth_gguf_type type, int64_t value)
{
    size_t size = hth_gguf_scalar_size(type);
    unsigned char bytes[8];
    hth_gguf_store(bytes, (uint64_t)value, sizeof bytes);
    if (!hth_gguf_is_signed(type)) fail_pair(w, text_of(key), "the type is not one of i8 to i64");
    else if (hth_gguf_load_signed(bytes, size) != value)
        fail_pair(w, text_of(key), "the value does not fit into its type");
    put_scalar(w, key, type, (uint64_t)value);
}

void hth_gguf_writer_float(hth_gguf_writer *w, const char *key, hth_gguf_type type, double value)
{
    uint64_t word = 0;
    if (type == HTH_GGUF_F32) {
        float f = (float)value;
        uint32_t half;
        memcpy(&half, &f, sizeof half);
        word = half;
    } else if (type == HTH_GGUF_F64) {
        memcpy(&word, &value, sizeof word);
    } else {
        fail_pair(w, text_of(key), "the type is neither f32 nor f64");
    }
    put_scalar(w, key, type, word);
}

void hth_gguf_writer_bool(hth_gguf_writer *w, const char *key, bool value)
{
    put_scalar(w, key, HTH_GGUF_BOOL, value);
}

void hth_gguf_writer_text(hth_gguf_writer *w, const char *key, const char *text, size_t n)
{
    if (!check_pair(w, text_of(key))) return;
    if (n > HTH_GGUF_MAX_TEXT) {
        fail_pair(w, text_of(key), "a text of more than 16 MiB");
        return;
    }
    char *raw = new_raw(w, 8 + (uint64_t)n);
    if (!raw) return;
    hth_gguf_store(raw, n, 8);
    if (n > 0) memcpy(raw + 8, text, n);
    put_pair(w, text_of(key), HTH_GGUF_TEXT, (hth_str){raw, 8 + n});
}

/* ---- arrays -------------------------------------------------------------------------------------- */

static void store_array_head(char *raw, hth_gguf_type type, uint64_t n)
{
    hth_gguf_store(raw, (uint64_t)type, 4);
    hth_gguf_store(raw + 4, n, 8);
}

static bool holds_only_bools(const unsigned char *bytes, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        if (bytes[i] > 1) return false;
    return true;
}

void hth_gguf_writer_array(hth_gguf_writer *w, const char *key, hth_gguf_type element_type,
                           const void *elements, uint64_t n)
{
    size_t each = hth_gguf_scalar_size(element_type);
    if (!check_pair(w, text_of(key))) return;
    if (each == 0) fail_pair(w, text_of(key), "elements must be numbers or bools");
    if (n > HTH_GGUF_MAX_ELEMENT) fail_pair(w, text_of(key), "more than 2^24 elements");
    if (failed(w)) return;
    if (element_type == HTH_GGUF_BOOL && !holds_only_bools(elements, n)) {
        fail_pair(w, text_of(key), "bools must be 0 or 1");
        return;
    }
    size_t size = (size_t)n * each; /* at most 2^27 */
    char *raw = new_raw(w, 12 + (uint64_t)size);
    if (!raw) return;
    store_array_head(raw, element_type, n);
    if (size > 0) memcpy(raw + 12, elements, size);
    put_pair(w, text_of(key), HTH_GGUF_ARRAY, (hth_str){raw, 12 + size});
}

/* Bytes of an array of strings; 0 if it exceeds a limit. */
static uint64_t size_of_texts(const hth_str *texts, uint64_t n)
{
    uint64_t size = 12;
    if (n > HTH_GGUF_MAX_ELEMENT) return 0;
    for (uint64_t i = 0; i < n; i++) {
        if (texts[i].n > HTH_GGUF_MAX_TEXT) return 0;
        if (!hth_add_u64(size, 8 + (uint64_t)texts[i].n, &size)) return 0;
    }
    return size;
}

void hth_gguf_writer_texts(hth_gguf_writer *w, const char *key, const hth_str *texts, uint64_t n)
{
    if (!check_pair(w, text_of(key))) return;
    uint64_t size = size_of_texts(texts, n);
    if (size == 0) {
        fail_pair(w, text_of(key), "more than 2^24 texts, or one of more than 16 MiB");
        return;
    }
    char *raw = new_raw(w, size);
    if (!raw) return;
    char *to = raw + 12;
    store_array_head(raw, HTH_GGUF_TEXT, n);
    for (uint64_t i = 0; i < n; i++) {
        hth_gguf_store(to, texts[i].n, 8);
        if (texts[i].n > 0) memcpy(to + 8, texts[i].bytes, texts[i].n);
        to += 8 + texts[i].n;
    }
    put_pair(w, text_of(key), HTH_GGUF_ARRAY, (hth_str){raw, (size_t)size});
}

void hth_gguf_writer_copy(hth_gguf_writer *w, const hth_gguf_value *value)
{
    if (!check_pair(w, value->key)) return;
    char *raw = new_raw(w, value->raw.n);
    if (!raw) return;
    memcpy(raw, value->raw.bytes, value->raw.n);
    put_pair(w, value->key, value->type, (hth_str){raw, value->raw.n});
}

/* ---- tensors --------------------------------------------------------------------------------------- */

/* The error in a shape, or NULL. *size receives its bytes. */
static const char *check_shape(hth_type type, uint32_t n_dim, const uint64_t dim[], uint64_t *size)
{
    const hth_type_info *info = hth_type_find((uint32_t)type);
    uint64_t n_weight = 1;
    if (!info) return "unknown type";
    if (n_dim < 1 || n_dim > HTH_GGUF_MAX_DIM) return "1 to 4 dimensions are allowed";
    for (uint32_t i = 0; i < n_dim; i++) {
        if (dim[i] < 1 || dim[i] > HTH_GGUF_MAX_DIM_VALUE) return "a dimension is 0 or too large";
        if (!hth_mul_u64(n_weight, dim[i], &n_weight) || n_weight > HTH_GGUF_MAX_WEIGHT)
            return "too many weights";
    }
    if (dim[0] % info->n_weight != 0) return "rows are not a multiple of the type's block";
    return hth_mul_u64(n_weight / info->n_weight, info->size, size) ? NULL : "too many weights";
}

static bool room_for_entry(hth_gguf_writer *w)
{
    if (w->n_entry < w->room_entry) return true;
    size_t capacity = w->room_entry ? 2 * w->room_entry : 64;
    entry *larger = hth_realloc(w->entries, capacity, sizeof *larger);
    if (!larger) {
        fail_memory(w, capacity * sizeof *larger, "the tensor directory");
        return false;
    }
    w->entries = larger;
    w->room_entry = capacity;
    return true;
}

static const char *check_name(const hth_gguf_writer *w, const char *name)
{
    hth_str text = text_of(name);
    if (text.n < 1 || text.n > HTH_GGUF_MAX_NAME) return "names of 1 to 63 bytes are allowed";
    if (w->n_entry >= HTH_GGUF_MAX_TENSOR) return "more than 2^20 tensors";
    if (hth_file_name_find(&w->names, w->entries, sizeof *w->entries, text) != HTH_FILE_NAME_NONE)
        return "declared twice";
    return w->begun ? "declared after the directory was written" : NULL;
}

void hth_gguf_writer_tensor(hth_gguf_writer *w, const char *name, hth_type type, uint32_t n_dim,
                            const uint64_t dim[])
{
    entry e = {.type = type, .n_dim = n_dim};
    if (failed(w)) return;
    const char *why = check_name(w, name);
    if (!why) why = check_shape(type, n_dim, dim, &e.size);
    if (why) {
        fail_tensor(w, name, why);
        return;
    }
    for (uint32_t i = 0; i < n_dim; i++) e.dim[i] = dim[i];
    e.name = (hth_str){hth_arena_strndup(&w->arena, name, strlen(name)), strlen(name)};
    if (!e.name.bytes || !hth_file_name_add(&w->names, e.name, (uint32_t)w->n_entry)) {
        fail_memory(w, strlen(name), "a tensor name");
        return;
    }
    if (room_for_entry(w)) w->entries[w->n_entry++] = e;
}

/* ---- the directory ------------------------------------------------------------------------------------ */

static hearth_status read_alignment(hth_gguf_writer *w)
{
    uint32_t i = hth_file_name_find(&w->keys, w->pairs, sizeof *w->pairs, text_of("general.alignment"));
    if (i == HTH_FILE_NAME_NONE) return HEARTH_OK;
    const pair *p = &w->pairs[i];
    if (p->type != HTH_GGUF_U32 || !hth_gguf_alignment_valid(hth_gguf_load(p->raw.bytes, 4)))
        fail_pair(w, p->key, "must be an u32, a power of two from 8 to 65536");
    else w->alignment = hth_gguf_load(p->raw.bytes, 4);
    return w->first_error.status;
}

/* Sets the offsets of all tensors, contiguous. */
static hearth_status place_entries(hth_gguf_writer *w)
{
    uint64_t at = 0;
    for (size_t i = 0; i < w->n_entry; i++) {
        entry *e = &w->entries[i];
        e->offset = at;
        if (!hth_add_u64(at, e->size, &at) || !hth_align_u64(at, w->alignment, &at) || at > INT64_MAX) {
            fail_tensor(w, e->name.bytes, "the file would be larger than 2^63 bytes");
            break;
        }
    }
    return w->first_error.status;
}

static hearth_status write_word(hth_gguf_writer *w, uint64_t word, size_t size)
{
    unsigned char bytes[8];
    hth_gguf_store(bytes, word, size);
    return hth_atomic_writer_write(&w->writer, bytes, size, &w->first_error);
}

static hearth_status write_text(hth_gguf_writer *w, hth_str text)
{
    hearth_status status = write_word(w, text.n, 8);
    if (status == HEARTH_OK) status = hth_atomic_writer_write(&w->writer, text.bytes, text.n, &w->first_error);
    return status;
}

static hearth_status write_header(hth_gguf_writer *w)
{
    hearth_status status = hth_atomic_writer_write(&w->writer, "GGUF", 4, &w->first_error);
    if (status == HEARTH_OK) status = write_word(w, HTH_GGUF_VERSION, 4);
    if (status == HEARTH_OK) status = write_word(w, w->n_entry, 8);
    if (status == HEARTH_OK) status = write_word(w, w->n_pair, 8);
    return status;
}

static hearth_status write_pair(hth_gguf_writer *w, const pair *p)
{
    hearth_status status = write_text(w, p->key);
    if (status == HEARTH_OK) status = write_word(w, (uint64_t)p->type, 4);
    if (status == HEARTH_OK) status = hth_atomic_writer_write(&w->writer, p->raw.bytes, p->raw.n, &w->first_error);
    return status;
}

static hearth_status write_entry(hth_gguf_writer *w, const entry *e)
{
    hearth_status status = write_text(w, e->name);
    if (status == HEARTH_OK) status = write_word(w, e->n_dim, 4);
    for (uint32_t i = 0; i < e->n_dim && status == HEARTH_OK; i++) status = write_word(w, e->dim[i], 8);
    if (status == HEARTH_OK) status = write_word(w, (uint64_t)e->type, 4);
    if (status == HEARTH_OK) status = write_word(w, e->offset, 8);
    return status;
}

static hearth_status pad_to_alignment(hth_gguf_writer *w)
{
    uint64_t over = w->writer.at % w->alignment;
    return hth_atomic_writer_pad(&w->writer, over ? w->alignment - over : 0, &w->first_error);
}

/* The reader rejects a longer directory, so the writer does too. */
static hearth_status check_directory_size(hth_gguf_writer *w)
{
    if (w->writer.at <= HTH_GGUF_MAX_DIRECTORY) return HEARTH_OK;
    return hth_fail(&w->first_error, HEARTH_ERROR_ARGUMENT,
                    "%s: metadata and directory take %" PRIu64 " bytes, allowed are %d", w->writer.label,
                    w->writer.at, HTH_GGUF_MAX_DIRECTORY);
}

hearth_status hth_gguf_writer_begin(hth_gguf_writer *w, hearth_error *err)
{
    if (failed(w)) return return_error(w, err);
    if (w->begun) return hth_fail(err, HEARTH_ERROR_ARGUMENT, "%s: begun twice", w->writer.label);
    hearth_status status = read_alignment(w);
    if (status == HEARTH_OK) status = place_entries(w);
    if (status == HEARTH_OK) status = write_header(w);
    for (size_t i = 0; i < w->n_pair && status == HEARTH_OK; i++) status = write_pair(w, &w->pairs[i]);
    for (size_t i = 0; i < w->n_entry && status == HEARTH_OK; i++) status = write_entry(w, &w->entries[i]);
    if (status == HEARTH_OK) status = check_directory_size(w);
    if (status == HEARTH_OK) status = pad_to_alignment(w);
    w->begun = true;
    return return_error(w, err);
}

/* ---- data --------------------------------------------------------------------------------------------- */

static hearth_status refuse_data(hth_gguf_writer *w, size_t size)
{
    if (!w->begun)
        return hth_fail(&w->first_error, HEARTH_ERROR_ARGUMENT, "%s: data before the directory", w->writer.label);
    if (w->i_entry == w->n_entry)
        return hth_fail(&w->first_error, HEARTH_ERROR_ARGUMENT, "%s: %zu bytes of data after the last tensor",
                        w->writer.label, size);
    const entry *e = &w->entries[w->i_entry];
    return hth_fail(&w->first_error, HEARTH_ERROR_ARGUMENT,
                    "%s: tensor '%s': %zu bytes more than the %" PRIu64 " that it has left", w->writer.label,
                    hth_gguf_show(e->name).text, size, e->size - w->n_done);
}

hearth_status hth_gguf_writer_data(hth_gguf_writer *w, const void *data, size_t size, hearth_error *err)
{
    if (failed(w)) return return_error(w, err);
    if (size == 0) return HEARTH_OK;
    if (!w->begun || w->i_entry == w->n_entry || size > w->entries[w->i_entry].size - w->n_done) {
        refuse_data(w, size);
        return return_error(w, err);
    }
    hearth_status status = hth_atomic_writer_write(&w->writer, data, size, &w->first_error);
    w->n_done += size;
    if (status == HEARTH_OK && w->n_done == w->entries[w->i_entry].size) {
        w->i_entry++;
        w->n_done = 0;
        pad_to_alignment(w);
    }
    return return_error(w, err);
}

static void fail_missing_data(hth_gguf_writer *w)
{
    if (!w->begun) {
        hth_fail(&w->first_error, HEARTH_ERROR_ARGUMENT, "%s: finished before it was begun", w->writer.label);
        return;
    }
    const entry *e = &w->entries[w->i_entry];
    hth_fail(&w->first_error, HEARTH_ERROR_ARGUMENT, "%s: tensor '%s': %" PRIu64 " of %" PRIu64 " bytes are missing",
             w->writer.label, hth_gguf_show(e->name).text, e->size - w->n_done, e->size);
}

hearth_status hth_gguf_writer_finish(hth_gguf_writer *w, hearth_error *err)
{
    if (failed(w) || w->finished) return return_error(w, err);
    if (!w->begun || w->i_entry < w->n_entry) fail_missing_data(w);
    else w->finished = hth_atomic_writer_finish(&w->writer, &w->first_error) == HEARTH_OK;
    return return_error(w, err);
}
