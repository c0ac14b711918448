/* Metadata pairs of a part: read, checked, and copied into the file's arena. Called by gguf_open.c after the
 * header. A value is scanned once in the cursor's window (all counts are compared with the remaining bytes), then
 * copied, then parsed in the copy. Nothing is allocated for a count that has not been scanned. */
#include "file/gguf_int.h"

#include "base/checked_math.h"
#include "base/log.h"

#include <inttypes.h>

static const struct {
    const char *name;
    uint8_t size;     /* bytes of a scalar */
    uint8_t min_size; /* least bytes of an array element in the file */
} kinds[] = {
    [HTH_GGUF_U8] = {"u8", 1, 1},        [HTH_GGUF_I8] = {"i8", 1, 1},     [HTH_GGUF_U16] = {"u16", 2, 2},
    [HTH_GGUF_I16] = {"i16", 2, 2},      [HTH_GGUF_U32] = {"u32", 4, 4},   [HTH_GGUF_I32] = {"i32", 4, 4},
    [HTH_GGUF_F32] = {"f32", 4, 4},      [HTH_GGUF_BOOL] = {"bool", 1, 1}, [HTH_GGUF_TEXT] = {"text", 0, 8},
    [HTH_GGUF_ARRAY] = {"array", 0, 12}, [HTH_GGUF_U64] = {"u64", 8, 8},   [HTH_GGUF_I64] = {"i64", 8, 8},
    [HTH_GGUF_F64] = {"f64", 8, 8},
};
enum { N_KIND = sizeof kinds / sizeof kinds[0] };

size_t hth_gguf_scalar_size(hth_gguf_type type) { return (unsigned)type < N_KIND ? kinds[type].size : 0; }

const char *hth_gguf_type_name(hth_gguf_type type)
{
    return (unsigned)type < N_KIND ? kinds[type].name : "unknown";
}

/* ---- keys ------------------------------------------------------------------------ */

/* The format requires lower_snake_case segments joined by dots. */
static bool is_plain_key(hth_str key)
{
    char before = '.';
    for (size_t i = 0; i < key.n; i++) {
        char c = key.bytes[i];
        bool word = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
        if (!word && (c != '.' || before == '.')) return false;
        before = c;
    }
    return before != '.';
}

static bool has_control(hth_str key)
{
    for (size_t i = 0; i < key.n; i++) {
        unsigned char c = (unsigned char)key.bytes[i];
        if (c < 0x20 || c == 0x7f) return true;
    }
    return false;
}

static hearth_status read_key(hth_gguf_cursor *c, hth_gguf *file, hth_gguf_part *part, hth_gguf_value *v)
{
    uint64_t n;
    const unsigned char *bytes;
    v->offset = c->offset;
    c->context = (hth_gguf_context){
        .kind = "metadata pair", .number = part->n_value + 1, .n = part->n_pair, .offset = c->offset};
    hearth_status status = hth_gguf_read_count(c, "key length", 1, HTH_GGUF_MAX_KEY, 1, &n);
    if (status == HEARTH_OK) status = hth_gguf_read_bytes(c, n, "key", &bytes);
    if (status != HEARTH_OK) return status;
    char *copy = hth_arena_strndup(&file->arena, (const char *)bytes, (size_t)n);
    if (!copy) return hth_fail_memory(c->err, (size_t)n, "a metadata key");
    v->key = (hth_str){copy, (size_t)n};
    c->context.kind = "key";
    c->context.name = v->key;
    if (has_control(v->key)) return hth_gguf_error(c, HEARTH_ERROR_FORMAT, "the key holds control bytes");
    uint32_t there = hth_file_name_find(&part->keys, part->values, sizeof *v, v->key);
    if (there != HTH_FILE_NAME_NONE)
        return hth_gguf_error(c, HEARTH_ERROR_FORMAT, "the same key is at byte %" PRIu64 " already",
                              part->values[there].offset);
    return HEARTH_OK;
}

/* ---- scanning a value: checks, no allocation ---------------------------------------- */

static hearth_status take_type(hth_gguf_cursor *c, const char *what, hth_gguf_type *type)
{
    uint64_t at = c->offset, word;
    hearth_status status = hth_gguf_read_int(c, 4, what, &word);
    *type = HTH_GGUF_U8; /* if this fails */
    if (status != HEARTH_OK) return status;
    if (word >= N_KIND)
        return hth_gguf_error(c, HEARTH_ERROR_FORMAT,
                              "%s at byte %" PRIu64 " is %" PRIu64 ", the format knows 0 to %d", what, at,
                              word, N_KIND - 1);
    *type = (hth_gguf_type)word;
    return HEARTH_OK;
}

static hearth_status walk_text(hth_gguf_cursor *c)
{
    uint64_t n;
    const unsigned char *bytes;
    hearth_status status = hth_gguf_read_count(c, "text length", 0, HTH_GGUF_MAX_TEXT, 1, &n);
    return status == HEARTH_OK ? hth_gguf_read_bytes(c, n, "text", &bytes) : status;
}

static hearth_status walk_scalars(hth_gguf_cursor *c, hth_gguf_type type, uint64_t n)
{
    uint64_t at = c->offset;
    const unsigned char *bytes;
    /* n is at most 2^24, or 1 */
    hearth_status status = hth_gguf_read_bytes(c, n * kinds[type].size, "value", &bytes);
    if (status != HEARTH_OK || type != HTH_GGUF_BOOL) return status;
    for (uint64_t i = 0; i < n; i++)
        if (bytes[i] > 1)
            return hth_gguf_error(c, HEARTH_ERROR_FORMAT,
                                  "bool at byte %" PRIu64 " is %u, allowed are 0 and 1", at + i, bytes[i]);
    return HEARTH_OK;
}

/* Scans the header of an array and its elements. If the elements are arrays, pushes their number onto the stack
 * instead. */
static hearth_status scan_array_header(hth_gguf_cursor *c, uint64_t stack[], uint32_t *depth)
{
    hth_gguf_type type;
    uint64_t n;
    hearth_status status = take_type(c, "element type", &type);
    if (status == HEARTH_OK)
        status =
            hth_gguf_read_count(c, "number of elements", 0, HTH_GGUF_MAX_ELEMENT, kinds[type].min_size, &n);
    if (status != HEARTH_OK) return status;
    if (type == HTH_GGUF_ARRAY) {
        if (*depth >= HTH_GGUF_MAX_DEPTH)
            return hth_gguf_error(c, HEARTH_ERROR_FORMAT,
                                  "arrays in arrays at byte %" PRIu64 ", deeper than %d", c->offset,
                                  HTH_GGUF_MAX_DEPTH);
        stack[(*depth)++] = n;
    } else if (type == HTH_GGUF_TEXT) {
        for (uint64_t i = 0; i < n && status == HEARTH_OK; i++) status = walk_text(c);
    } else {
        status = walk_scalars(c, type, n);
    }
    return status;
}

static hearth_status walk_array(hth_gguf_cursor *c)
{
    uint64_t stack[HTH_GGUF_MAX_DEPTH] = {1}; /* arrays still to scan, per level */
    uint32_t depth = 1;
    hearth_status status = HEARTH_OK;
    while (depth > 0 && status == HEARTH_OK) {
        if (stack[depth - 1] == 0) {
            depth--;
            continue;
        }
        stack[depth - 1]--;
        status = scan_array_header(c, stack, &depth);
    }
    return status;
}

static hearth_status walk_value(hth_gguf_cursor *c, hth_gguf_type type)
{
    if (type == HTH_GGUF_TEXT) return walk_text(c);
    if (type == HTH_GGUF_ARRAY) return walk_array(c);
    return walk_scalars(c, type, 1);
}

/* ---- parsing the copy ----------------------------------------------------------------- */

static void load_scalar(hth_gguf_value *v)
{
    size_t size = kinds[v->type].size;
    if (hth_gguf_is_signed(v->type)) v->as.i = hth_gguf_load_signed(v->raw.bytes, size);
    else if (v->type == HTH_GGUF_F32 || v->type == HTH_GGUF_F64)
        v->as.f = hth_gguf_load_float(v->raw.bytes, size);
    else v->as.u = hth_gguf_load(v->raw.bytes, size);
}

/* Strings of an array: each is copied once more, with a NUL after it. */
static hearth_status load_texts(hth_gguf_cursor *c, hth_gguf *file, hth_gguf_value *v, const char *from)
{
    size_t n = (size_t)v->n_element;
    size_t lengths = 8 * n; /* the scan has seen that many bytes */
    size_t n_pool = v->raw.n - 12 - lengths + n;
    hth_str *texts = hth_arena_alloc(&file->arena, n, sizeof *texts, sizeof(void *));
    char *pool = hth_arena_alloc(&file->arena, n_pool, 1, 1);
    if (!texts || !pool) return hth_fail_memory(c->err, n * sizeof *texts + n_pool, "an array of texts");
    for (size_t i = 0; i < n; i++) {
        size_t length = (size_t)hth_gguf_load(from, 8);
        memcpy(pool, from + 8, length);
        texts[i] = (hth_str){pool, length};
        pool += length + 1;
        from += 8 + length;
    }
    v->elements = texts;
    return HEARTH_OK;
}

static hearth_status load_value(hth_gguf_cursor *c, hth_gguf *file, hth_gguf_value *v)
{
    size_t n;
    const unsigned char *bytes = hth_gguf_marked(c, &n);
    char *raw = hth_arena_strndup(&file->arena, (const char *)bytes, n);
    if (!raw) return hth_fail_memory(c->err, n, "a metadata value");
    v->raw = (hth_str){raw, n};
    if (v->type == HTH_GGUF_TEXT) {
        v->as.text = (hth_str){raw + 8, n - 8};
        return HEARTH_OK;
    }
    if (v->type != HTH_GGUF_ARRAY) {
        load_scalar(v);
        return HEARTH_OK;
    }
    v->element_type = (hth_gguf_type)hth_gguf_load(raw, 4);
    v->n_element = hth_gguf_load(raw + 4, 8);
    if (v->element_type == HTH_GGUF_TEXT) return load_texts(c, file, v, raw + 12);
    if (v->element_type != HTH_GGUF_ARRAY) v->elements = raw + 12;
    return HEARTH_OK;
}

/* ---- pairs ------------------------------------------------------------------------------ */

hearth_status hth_gguf_keep_value(hth_gguf_part *part, const hth_gguf_value *v, hearth_error *err)
{
    if (part->n_value == part->value_capacity) {
        size_t capacity = part->value_capacity ? 2 * part->value_capacity : 32;
        hth_gguf_value *larger = hth_realloc(part->values, capacity, sizeof *larger);
        if (!larger) return hth_fail_memory(err, capacity * sizeof *larger, "metadata");
        part->values = larger;
        part->value_capacity = capacity;
    }
    if (!hth_file_name_add(&part->keys, v->key, (uint32_t)part->n_value))
        return hth_fail_memory(err, v->key.n, "the index of keys");
    part->values[part->n_value++] = *v;
    return HEARTH_OK;
}

static hearth_status parse_pair(hth_gguf_cursor *c, hth_gguf *file, hth_gguf_part *part)
{
    hth_gguf_value v = {0};
    hearth_status status = read_key(c, file, part, &v);
    if (status == HEARTH_OK) status = take_type(c, "value type", &v.type);
    if (status != HEARTH_OK) return status;
    c->mark = c->offset;
    status = walk_value(c, v.type);
    if (status == HEARTH_OK) status = load_value(c, file, &v);
    c->mark = UINT64_MAX;
    return status == HEARTH_OK ? hth_gguf_keep_value(part, &v, c->err) : status;
}

/* general.alignment determines the offsets of the data: it must be exactly what the format specifies, u32. */
static hearth_status read_alignment(hth_gguf_cursor *c, hth_gguf_part *part)
{
    const hth_gguf_value *v = hth_gguf_part_find(part, "general.alignment");
    part->alignment = HTH_GGUF_ALIGNMENT;
    if (!v) return HEARTH_OK;
    c->context = (hth_gguf_context){.kind = "key", .name = v->key, .offset = v->offset};
    if (v->type != HTH_GGUF_U32)
        return hth_gguf_error(c, HEARTH_ERROR_FORMAT, "is of type %s, expected u32",
                              hth_gguf_type_name(v->type));
    if (!hth_gguf_alignment_valid(v->as.u))
        return hth_gguf_error(c, HEARTH_ERROR_FORMAT,
                              "is %" PRIu64 ", allowed are powers of two from %d to %d", v->as.u,
                              HTH_GGUF_MIN_ALIGNMENT, HTH_GGUF_MAX_ALIGNMENT);
    part->alignment = v->as.u;
    return HEARTH_OK;
}

static void warn_odd_keys(const hth_gguf_part *part)
{
    const hth_gguf_value *first = NULL;
    size_t n = 0;
    for (size_t i = 0; i < part->n_value; i++) {
        if (is_plain_key(part->values[i].key)) continue;
        if (n++ == 0) first = &part->values[i];
    }
    if (!first) return;
    hth_log(HEARTH_LOG_WARN,
            "%s: key '%s' (at byte %" PRIu64 ") is not lower_snake_case; %zu such keys in all",
            part->source.label, hth_gguf_show(first->key).text, first->offset, n);
}

hearth_status hth_gguf_parse_meta(hth_gguf_cursor *c, hth_gguf *file, hth_gguf_part *part)
{
    for (uint64_t i = 0; i < part->n_pair; i++) {
        hearth_status status = parse_pair(c, file, part);
        if (status != HEARTH_OK) return status;
    }
    hearth_status status = read_alignment(c, part);
    if (status == HEARTH_OK) warn_odd_keys(part);
    return status;
}
