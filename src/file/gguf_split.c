/* Models of several files, NAME-00001-of-00003.gguf and so on, or descriptors. Called by gguf_open.c after the given file
 * is parsed. That may be any part: if it is not the first, all is closed and the first is opened instead. The numbers
 * in names and metadata must agree. Metadata are taken from the first part only. */
#include "file/gguf_int.h"

#include <inttypes.h>
#include <stdio.h>

/* The split metadata of one part. */
typedef struct split_info {
    uint64_t no, count, n_tensor;
    bool has_no, has_count, has_n_tensor;
} split_info;

/* "-00001-of-00003.gguf" */
enum { SUFFIX_SIZE = 20 };

typedef struct split_name {
    size_t n_prefix;
    uint32_t number, count; /* number counts from 1 */
} split_name;

static bool read_digits(const char *text, uint32_t *value)
{
    *value = 0;
    for (int i = 0; i < 5; i++) {
        if (text[i] < '0' || text[i] > '9') return false;
        *value = *value * 10 + (uint32_t)(text[i] - '0');
    }
    return true;
}

static bool parse_name(const char *path, split_name *name)
{
    size_t n = strlen(path);
    if (n < SUFFIX_SIZE) return false;
    const char *suffix = path + n - SUFFIX_SIZE;
    name->n_prefix = n - SUFFIX_SIZE;
    return suffix[0] == '-' && read_digits(suffix + 1, &name->number) && memcmp(suffix + 6, "-of-", 4) == 0 &&
           read_digits(suffix + 10, &name->count) && strcmp(suffix + 15, ".gguf") == 0;
}

static hearth_status read_split_info(const hth_gguf_part *part, split_info *info, hearth_error *err)
{
    *info = (split_info){0};
    hearth_status status =
        hth_gguf_part_uint(part, "split.count", 0, HTH_GGUF_MAX_PART, &info->count, &info->has_count, err);
    if (status == HEARTH_OK)
        status =
            hth_gguf_part_uint(part, "split.no", 0, HTH_GGUF_MAX_PART - 1, &info->no, &info->has_no, err);
    if (status == HEARTH_OK)
        status = hth_gguf_part_uint(part, "split.tensors.count", 0, HTH_GGUF_MAX_TENSOR, &info->n_tensor,
                                    &info->has_n_tensor, err);
    return status;
}

/* Checks that the metadata of part `number` (counted from 1) of count say so. */
static hearth_status check_split_info(const hth_gguf_part *part, uint32_t number, uint32_t count,
                                      hearth_error *err)
{
    split_info info;
    const char *label = part->source.label;
    hearth_status status = read_split_info(part, &info, err);
    if (status != HEARTH_OK) return status;
    if (!info.has_count || !info.has_no)
        return hth_fail(err, HEARTH_ERROR_FORMAT,
                        "%s: key %s missing (needed by a model of %" PRIu32 " parts)", label,
                        info.has_count ? "split.no" : "split.count", count);
    if (info.count != count)
        return hth_fail(err, HEARTH_ERROR_FORMAT,
                        "%s: split.count is %" PRIu64 ", but there are %" PRIu32 " parts by name", label,
                        info.count, count);
    if (info.no + 1 != number)
        return hth_fail(err, HEARTH_ERROR_FORMAT,
                        "%s: split.no is %" PRIu64 ", expected %" PRIu32 " for part %" PRIu32 " of %" PRIu32
                        ": parts were renamed or mixed up",
                        label, info.no, number - 1, number, count);
    return HEARTH_OK;
}

/* ---- consistency of parts --------------------------------------------------------------- */

static bool may_differ(hth_str key)
{
    static const char *const own[] = {"split.no", "split.count", "split.tensors.count", "general.alignment"};
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
        if (key.n == strlen(own[i]) && memcmp(key.bytes, own[i], key.n) == 0) return true;
    return false;
}

/* Later parts may repeat metadata of the first. Repeated values must be equal. */
static hearth_status check_split_match(const hth_gguf_part *first, const hth_gguf_part *part,
                                       hearth_error *err)
{
    if (part->version != first->version)
        return hth_fail(err, HEARTH_ERROR_FORMAT,
                        "%s: version at byte 4 is %" PRIu32 ", but %" PRIu32 " in %s", part->source.label,
                        part->version, first->version, first->source.label);
    for (size_t i = 0; i < part->n_value; i++) {
        const hth_gguf_value *v = &part->values[i];
        const hth_gguf_value *w = hth_gguf_part_find(first, v->key.bytes);
        if (!w || may_differ(v->key)) continue;
        if (v->type == w->type && v->raw.n == w->raw.n && memcmp(v->raw.bytes, w->raw.bytes, v->raw.n) == 0)
            continue;
        return hth_fail(err, HEARTH_ERROR_FORMAT,
                        "%s: key '%s' (at byte %" PRIu64 "): differs from %s: the parts are not of one model",
                        part->source.label, hth_gguf_show(v->key).text, v->offset, first->source.label);
    }
    return HEARTH_OK;
}

static hearth_status check_sum(const hth_gguf *file, hearth_error *err)
{
    for (uint32_t i = 0; i < file->n_part; i++) {
        split_info info;
        hearth_status status = read_split_info(&file->parts[i], &info, err);
        if (status != HEARTH_OK) return status;
        if (info.has_n_tensor && info.n_tensor != file->n_tensor)
            return hth_fail(err, HEARTH_ERROR_FORMAT,
                            "%s: split.tensors.count is %" PRIu64 ", but the %" PRIu32
                            " parts have %zu tensors together",
                            file->parts[i].source.label, info.n_tensor, file->n_part, file->n_tensor);
    }
    return HEARTH_OK;
}

/* ---- joining ------------------------------------------------------------------------------ */

static hearth_status add_numbered(hth_gguf *file, const split_name *name, uint32_t number, hearth_error *err)
{
    size_t size = name->n_prefix + SUFFIX_SIZE + 1;
    char *path = hth_alloc(size, 1);
    if (!path) return hth_fail_memory(err, size, "the path of a part");
    memcpy(path, file->path, name->n_prefix);
    snprintf(path + name->n_prefix, SUFFIX_SIZE + 1, "-%05u-of-%05u.gguf", number % 100000,
             name->count % 100000);
    hearth_status status = hth_gguf_add_part(file, path, err);
    if (status == HEARTH_OK) status = check_split_info(&file->parts[number - 1], number, name->count, err);
    hth_free(path);
    return status;
}

/* Parses the name of the file that was opened, which must be one of `count` parts. */
static hearth_status check_name(const hth_gguf *file, uint64_t count, split_name *name, hearth_error *err)
{
    const hth_gguf_part *part = &file->parts[0];
    if (part->source.fd < 0)
        return hth_fail(err, HEARTH_ERROR_UNSUPPORTED,
                        "%s: is one of %" PRIu64 " parts: models in memory must be whole", part->source.label,
                        count);
    if (!parse_name(file->path, name))
        return hth_fail(err, HEARTH_ERROR_FORMAT,
                        "%s: split.count is %" PRIu64 ", so the name must end in -00001-of-%05" PRIu64
                        ".gguf",
                        part->source.label, count, count);
    return check_split_info(part, name->number, name->count, err);
}

/* Reports a file whose metadata say that it is the only part, but whose name says otherwise. */
static hearth_status check_not_split(const hth_gguf *file, const split_info *info, hearth_error *err)
{
    split_name name;
    if (info->count != 1 || !file->path || !parse_name(file->path, &name) || name.count == 1)
        return HEARTH_OK;
    return hth_fail(err, HEARTH_ERROR_FORMAT,
                    "%s: split.count is 1, but the name says that there are %" PRIu32 " parts",
                    file->parts[0].source.label, name.count);
}

hearth_status hth_gguf_join_parts(hth_gguf *file, hearth_error *err)
{
    split_info info;
    split_name name;
    hearth_status status = read_split_info(&file->parts[0], &info, err);
    if (status != HEARTH_OK) return status;
    if (info.count <= 1) return check_not_split(file, &info, err);
    status = check_name(file, info.count, &name, err);
    if (status != HEARTH_OK) return status;
    uint32_t number = 2;
    if (name.number != 1) {
        hth_gguf_drop_parts(file);
        number = 1;
    }
    for (; number <= name.count && status == HEARTH_OK; number++) {
        status = add_numbered(file, &name, number, err);
        if (status == HEARTH_OK) status = check_split_match(&file->parts[0], &file->parts[number - 1], err);
    }
    return status == HEARTH_OK ? check_sum(file, err) : status;
}

/* ---- descriptors --------------------------------------------------------------------------------- */

/* Reads which part a descriptor is. i_fd[n_fd]: the descriptors by part, UINT32_MAX where none is known. A model of one
 * file is then parsed, the parts of others are dropped. */
static hearth_status find_part(hth_gguf *file, const int *fds, size_t n_fd, size_t i, uint32_t *i_fd,
                               hearth_error *err)
{
    split_info info;
    hearth_status status = hth_gguf_add_descriptor(file, i, fds[i], err);
    if (status == HEARTH_OK) status = read_split_info(&file->parts[0], &info, err);
    if (status != HEARTH_OK) return status;
    const char *label = file->parts[0].source.label;
    uint64_t count = info.count > 0 ? info.count : 1;
    if (count != n_fd)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT,
                        "%s: is one of %" PRIu64
                        " files of a model, but n_fd is %zu: give the descriptor of each once",
                        label, count, n_fd);
    if (n_fd == 1) return HEARTH_OK;
    if (info.no >= n_fd)
        return hth_fail(err, HEARTH_ERROR_FORMAT, "%s: split.no is %" PRIu64 ", but split.count is %" PRIu64,
                        label, info.no, count);
    if (i_fd[info.no] != UINT32_MAX)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "%s: is part %" PRIu64 " of %" PRIu64 ", as fds[%u] is",
                        label, info.no + 1, count, i_fd[info.no]);
    i_fd[info.no] = (uint32_t)i;
    hth_gguf_drop_parts(file);
    return HEARTH_OK;
}

hearth_status hth_gguf_join_descriptors(hth_gguf *file, const int *fds, size_t n_fd, hearth_error *err)
{
    uint32_t i_fd[HTH_GGUF_MAX_PART];
    if (n_fd < 1 || n_fd > HTH_GGUF_MAX_PART)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "n_fd is %zu; a model has 1 to %d files", n_fd,
                        HTH_GGUF_MAX_PART);
    hearth_status status = HEARTH_OK;
    memset(i_fd, 0xFF, n_fd * sizeof *i_fd);
    for (size_t i = 0; i < n_fd && status == HEARTH_OK; i++)
        status = find_part(file, fds, n_fd, i, i_fd, err);
    if (n_fd == 1) return status;
    for (uint32_t i = 0; i < n_fd && status == HEARTH_OK; i++) {
        status = hth_gguf_add_descriptor(file, i_fd[i], fds[i_fd[i]], err);
        if (status == HEARTH_OK) status = check_split_info(&file->parts[i], i + 1, (uint32_t)n_fd, err);
        if (status == HEARTH_OK) status = check_split_match(&file->parts[0], &file->parts[i], err);
    }
    return status == HEARTH_OK ? check_sum(file, err) : status;
}
