/* The tensor directory of a part: every entry is checked on its own, then against the size of the file, then
 * against its neighbours. Called by gguf_open.c after the metadata. Gaps and any order are allowed (packed files
 * use both). Overlaps and data outside the file are not. */
#include "file/gguf_int.h"

#include "base/checked_math.h"
#include "base/log.h"

#include <inttypes.h>

/* ---- one entry ------------------------------------------------------------------------ */

static hearth_status read_name(hth_gguf_cursor *c, hth_gguf *file, hth_gguf_tensor *t)
{
    uint64_t n;
    const unsigned char *bytes;
    hearth_status status = hth_gguf_read_count(c, "name length", 1, HTH_GGUF_MAX_NAME, 1, &n);
    if (status == HEARTH_OK) status = hth_gguf_read_bytes(c, n, "name", &bytes);
    if (status != HEARTH_OK) return status;
    char *copy = hth_arena_strndup(&file->arena, (const char *)bytes, (size_t)n);
    if (!copy) return hth_fail_memory(c->err, (size_t)n, "a tensor name");
    t->name = (hth_str){copy, (size_t)n};
    c->context.kind = "tensor";
    c->context.name = t->name;
    if (memchr(copy, 0, (size_t)n))
        return hth_gguf_error(c, HEARTH_ERROR_FORMAT, "the name holds a NUL byte");
    uint32_t there = hth_file_name_find(&file->names, file->tensors, sizeof *t, t->name);
    if (there == HTH_FILE_NAME_NONE) return HEARTH_OK;
    const hth_gguf_tensor *other = &file->tensors[there];
    bool elsewhere = other->i_part != t->i_part;
    return hth_gguf_error(c, HEARTH_ERROR_FORMAT,
                          "the same name is in the info at byte %" PRIu64 "%s%s already", other->info_at,
                          elsewhere ? " of " : "", elsewhere ? file->parts[other->i_part].source.label : "");
}

static hearth_status read_dims(hth_gguf_cursor *c, hth_gguf_tensor *t, uint64_t *n_weight)
{
    uint64_t at = c->offset, n_dim;
    hearth_status status = hth_gguf_read_int(c, 4, "number of dimensions", &n_dim);
    if (status != HEARTH_OK) return status;
    if (n_dim < 1 || n_dim > HTH_GGUF_MAX_DIM)
        return hth_gguf_error(c, HEARTH_ERROR_FORMAT,
                              "number of dimensions at byte %" PRIu64 " is %" PRIu64 ", allowed are 1 to %d",
                              at, n_dim, HTH_GGUF_MAX_DIM);
    t->n_dim = (uint32_t)n_dim;
    *n_weight = 1;
    for (uint32_t i = 0; i < HTH_GGUF_MAX_DIM; i++) t->dim[i] = 1;
    for (uint32_t i = 0; i < t->n_dim; i++) {
        at = c->offset;
        status = hth_gguf_read_int(c, 8, "dimension", &t->dim[i]);
        if (status != HEARTH_OK) return status;
        if (t->dim[i] < 1 || t->dim[i] > HTH_GGUF_MAX_DIM_VALUE)
            return hth_gguf_error(c, HEARTH_ERROR_FORMAT,
                                  "dimension %" PRIu32 " at byte %" PRIu64 " is %" PRIu64
                                  ", allowed are 1 to %" PRIu64,
                                  i, at, t->dim[i], HTH_GGUF_MAX_DIM_VALUE);
        if (!hth_mul_u64(*n_weight, t->dim[i], n_weight) || *n_weight > HTH_GGUF_MAX_WEIGHT)
            return hth_gguf_error(c, HEARTH_ERROR_FORMAT,
                                  "dimensions up to byte %" PRIu64 " multiply to more than %" PRIu64
                                  " weights",
                                  c->offset, HTH_GGUF_MAX_WEIGHT);
    }
    return HEARTH_OK;
}

static hearth_status read_type(hth_gguf_cursor *c, hth_gguf_tensor *t, uint64_t n_weight)
{
    uint64_t at = c->offset, id;
    hearth_status status = hth_gguf_read_int(c, 4, "type", &id);
    if (status != HEARTH_OK) return status;
    const hth_type_info *info = hth_type_find((uint32_t)id);
    if (!info)
        return hth_gguf_error(c, HEARTH_ERROR_UNSUPPORTED, "unknown type %" PRIu64 " at byte %" PRIu64 "%s",
                              id, at,
                              id < HTH_TYPE_LIMIT ? ": it was removed from the format, convert the "
                                                    "model again"
                                                  : "");
    t->type = (hth_type)id;
    if (t->dim[0] % info->n_weight != 0)
        return hth_gguf_error(c, HEARTH_ERROR_FORMAT,
                              "rows of %" PRIu64 " weights, but %s has blocks of %" PRIu32, t->dim[0],
                              info->name, info->n_weight);
    if (!hth_mul_u64(n_weight / info->n_weight, info->size, &t->size))
        return hth_gguf_error(c, HEARTH_ERROR_FORMAT, "%" PRIu64 " weights are too many", n_weight);
    return HEARTH_OK;
}

/* The offset counts from the start of the data, which is known only after the last entry. It stays relative until
 * place_tensors. */
static hearth_status read_offset(hth_gguf_cursor *c, uint64_t alignment, hth_gguf_tensor *t)
{
    uint64_t at = c->offset;
    hearth_status status = hth_gguf_read_int(c, 8, "offset", &t->offset);
    if (status != HEARTH_OK) return status;
    if (t->offset % alignment != 0)
        return hth_gguf_error(c, HEARTH_ERROR_FORMAT,
                              "offset at byte %" PRIu64 " is %" PRIu64
                              ", not a multiple of the alignment %" PRIu64,
                              at, t->offset, alignment);
    return HEARTH_OK;
}

static hearth_status keep_tensor(hth_gguf_cursor *c, hth_gguf *file, const hth_gguf_tensor *t)
{
    if (file->n_tensor >= HTH_GGUF_MAX_TENSOR)
        return hth_gguf_error(c, HEARTH_ERROR_FORMAT, "more than %d tensors in all parts",
                              HTH_GGUF_MAX_TENSOR);
    if (file->n_tensor == file->tensor_capacity) {
        size_t capacity = file->tensor_capacity ? 2 * file->tensor_capacity : 64;
        hth_gguf_tensor *larger = hth_realloc(file->tensors, capacity, sizeof *larger);
        if (!larger) return hth_fail_memory(c->err, capacity * sizeof *larger, "the tensor directory");
        file->tensors = larger;
        file->tensor_capacity = capacity;
    }
    if (!hth_file_name_add(&file->names, t->name, (uint32_t)file->n_tensor))
        return hth_fail_memory(c->err, t->name.n, "the index of tensors");
    file->tensors[file->n_tensor++] = *t;
    return HEARTH_OK;
}

static hearth_status parse_info(hth_gguf_cursor *c, hth_gguf *file, uint32_t i_part, uint64_t i)
{
    const hth_gguf_part *part = &file->parts[i_part];
    hth_gguf_tensor t = {.i_part = i_part, .info_at = c->offset};
    uint64_t n_weight = 0;
    c->context =
        (hth_gguf_context){.kind = "tensor info", .number = i + 1, .n = part->n_tensor, .offset = c->offset};
    hearth_status status = read_name(c, file, &t);
    if (status == HEARTH_OK) status = read_dims(c, &t, &n_weight);
    if (status == HEARTH_OK) status = read_type(c, &t, n_weight);
    if (status == HEARTH_OK) status = read_offset(c, part->alignment, &t);
    return status == HEARTH_OK ? keep_tensor(c, file, &t) : status;
}

/* ---- all entries --------------------------------------------------------------------------- */

static hearth_status place_tensor(hth_gguf_cursor *c, const hth_gguf_part *part, hth_gguf_tensor *t)
{
    uint64_t at, end, relative = t->offset;
    c->context = (hth_gguf_context){.kind = "tensor", .name = t->name, .offset = t->info_at};
    if (!hth_add_u64(part->data_offset, relative, &at) || !hth_add_u64(at, t->size, &end) ||
        end > c->source->size)
        return hth_gguf_error(c, HEARTH_ERROR_FORMAT,
                              "data start %" PRIu64 " + offset %" PRIu64 " + %" PRIu64
                              " bytes is past the end of the file (%" PRIu64
                              "): the file is cut short, or the offset wrong",
                              part->data_offset, relative, t->size, c->source->size);
    t->offset = at;
    return HEARTH_OK;
}

/* Sorts order[] by offset with heapsort: no memory, no quadratic worst case. */
static void sift_down(uint32_t order[], size_t root, size_t n, const hth_gguf_tensor *tensors)
{
    for (size_t child; (child = 2 * root + 1) < n; root = child) {
        if (child + 1 < n && tensors[order[child]].offset < tensors[order[child + 1]].offset) child++;
        if (tensors[order[root]].offset >= tensors[order[child]].offset) return;
        uint32_t swap = order[root];
        order[root] = order[child];
        order[child] = swap;
    }
}

static void sort_by_offset(uint32_t order[], size_t n, const hth_gguf_tensor *tensors)
{
    for (size_t i = n / 2; i-- > 0;) sift_down(order, i, n, tensors);
    for (size_t i = n; i-- > 1;) {
        uint32_t swap = order[0];
        order[0] = order[i];
        order[i] = swap;
        sift_down(order, 0, i, tensors);
    }
}

static hearth_status refuse_overlap(hth_gguf_cursor *c, const hth_gguf_tensor *a, const hth_gguf_tensor *b)
{
    c->context = (hth_gguf_context){.kind = "tensor", .name = b->name, .offset = b->info_at};
    return hth_gguf_error(c, HEARTH_ERROR_FORMAT,
                          "data at byte %" PRIu64 " overlap those of '%s' (%" PRIu64
                          " bytes from byte %" PRIu64 ")",
                          b->offset, hth_gguf_show(a->name).text, a->size, a->offset);
}

static hearth_status check_overlaps(hth_gguf_cursor *c, const hth_gguf_tensor *tensors, size_t n)
{
    hearth_status status = HEARTH_OK;
    uint32_t *order = hth_alloc(n, sizeof *order);
    if (!order) return hth_fail_memory(c->err, n * sizeof *order, "the order of tensors");
    for (size_t i = 0; i < n; i++) order[i] = (uint32_t)i;
    sort_by_offset(order, n, tensors);
    for (size_t i = 1; i < n && status == HEARTH_OK; i++) {
        const hth_gguf_tensor *a = &tensors[order[i - 1]], *b = &tensors[order[i]];
        if (b->offset - a->offset < a->size) status = refuse_overlap(c, a, b);
    }
    hth_free(order);
    return status;
}

static hearth_status place_tensors(hth_gguf_cursor *c, hth_gguf_part *part, hth_gguf_tensor *tensors,
                                   size_t n)
{
    hearth_status status = HEARTH_OK;
    for (size_t i = 0; i < n && status == HEARTH_OK; i++) {
        status = place_tensor(c, part, &tensors[i]);
        if (status == HEARTH_OK && tensors[i].offset + tensors[i].size > part->end)
            part->end = tensors[i].offset + tensors[i].size;
    }
    return status == HEARTH_OK ? check_overlaps(c, tensors, n) : status;
}

/* Writers pad the last tensor too. A file that lacks only this padding is complete. */
static void warn_lost_padding(const hth_gguf_part *part)
{
    uint64_t padded;
    if (!hth_align_u64(part->end, part->alignment, &padded) || padded <= part->source.size) return;
    hth_log(HEARTH_LOG_WARN,
            "%s: ends at byte %" PRIu64 ", within the padding after the last tensor (to byte %" PRIu64 ")",
            part->source.label, part->source.size, padded);
}

hearth_status hth_gguf_parse_tensors(hth_gguf_cursor *c, hth_gguf *file, uint32_t i_part)
{
    hth_gguf_part *part = &file->parts[i_part];
    hearth_status status = HEARTH_OK;
    part->i_first = file->n_tensor;
    for (uint64_t i = 0; i < part->n_tensor && status == HEARTH_OK; i++)
        status = parse_info(c, file, i_part, i);
    if (status != HEARTH_OK) return status;
    part->end = c->offset;
    if (!hth_align_u64(c->offset, part->alignment, &part->data_offset))
        return hth_gguf_error(c, HEARTH_ERROR_FORMAT, "the directory is too long");
    size_t n = file->n_tensor - part->i_first;
    if (n == 0) return HEARTH_OK;
    status = place_tensors(c, part, file->tensors + part->i_first, n);
    if (status == HEARTH_OK) warn_lost_padding(part);
    return status;
}
