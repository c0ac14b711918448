/* Opens and closes files, and returns their properties. A file's handle owns all its memory (parts, one arena, two
 * indices), so that hth_gguf_close cleans up after a failure at any point. */
#include "file/gguf_int.h"

#include "base/checked_math.h"

#include <inttypes.h>
#include <stdio.h>

/* ---- parts ------------------------------------------------------------------------------ */

/* Adds one empty part. The caller opens its source. */
static hearth_status new_part(hth_gguf *file, hth_gguf_part **part, hearth_error *err)
{
    size_t n = (size_t)file->n_part + 1;
    hth_gguf_part *larger = hth_realloc(file->parts, n, sizeof *larger);
    if (!larger) return hth_fail_memory(err, n * sizeof *larger, "the parts of a model");
    file->parts = larger;
    *part = &file->parts[file->n_part++];
    **part = (hth_gguf_part){.source.fd = -1};
    return HEARTH_OK;
}

static hearth_status parse_part(hth_gguf *file, uint32_t i_part, hearth_error *err)
{
    hth_gguf_part *part = &file->parts[i_part];
    hth_gguf_cursor c = {.source = &part->source, .mark = UINT64_MAX, .err = err};
    hearth_status status = hth_gguf_parse_header(&c, part);
    if (status == HEARTH_OK) status = hth_gguf_parse_meta(&c, file, part);
    if (status == HEARTH_OK) status = hth_gguf_parse_tensors(&c, file, i_part);
    hth_gguf_cursor_free(&c);
    return status;
}

hearth_status hth_gguf_add_part(hth_gguf *file, const char *path, hearth_error *err)
{
    hth_gguf_part *part = NULL;
    hearth_status status = new_part(file, &part, err);
    if (status == HEARTH_OK) status = hth_gguf_source_open(&part->source, path, err);
    return status == HEARTH_OK ? parse_part(file, file->n_part - 1, err) : status;
}

hearth_status hth_gguf_add_descriptor(hth_gguf *file, size_t i, int fd, hearth_error *err)
{
    hth_gguf_part *part = NULL;
    size_t size = strlen(file->path) + 32;
    char *name = hth_alloc(size, 1);
    if (!name) return hth_fail_memory(err, size, "the name of a part");
    snprintf(name, size, "%s (fds[%zu])", file->path, i);
    hearth_status status = new_part(file, &part, err);
    if (status == HEARTH_OK) status = hth_gguf_source_descriptor(&part->source, fd, name, err);
    hth_free(name);
    return status == HEARTH_OK ? parse_part(file, file->n_part - 1, err) : status;
}

static void free_part(hth_gguf_part *part)
{
    hth_gguf_source_close(&part->source);
    hth_file_name_free(&part->keys);
    hth_free(part->values);
}

void hth_gguf_drop_parts(hth_gguf *file)
{
    for (uint32_t i = 0; i < file->n_part; i++) free_part(&file->parts[i]);
    file->n_part = 0;
    file->n_tensor = 0;
    hth_file_name_free(&file->names);
    hth_arena_free(&file->arena);
}

/* ---- opening ------------------------------------------------------------------------------ */

static hearth_status keep_path(hth_gguf *file, const char *path, hearth_error *err)
{
    size_t size = strlen(path) + 1;
    file->path = hth_alloc(size, 1);
    if (!file->path) return hth_fail_memory(err, size, "the path of a model");
    memcpy(file->path, path, size);
    return HEARTH_OK;
}

static hearth_status open_path(hth_gguf *file, const char *path, hearth_error *err)
{
    hearth_status status = keep_path(file, path, err);
    if (status == HEARTH_OK) status = hth_gguf_add_part(file, path, err);
    return status == HEARTH_OK ? hth_gguf_join_parts(file, err) : status;
}

static hearth_status open_memory(hth_gguf *file, const void *data, size_t size, const char *name,
                                 hearth_error *err)
{
    hth_gguf_part *part = NULL;
    hearth_status status = new_part(file, &part, err);
    if (status == HEARTH_OK) status = hth_gguf_source_memory(&part->source, data, size, name, err);
    if (status == HEARTH_OK) status = parse_part(file, 0, err);
    return status == HEARTH_OK ? hth_gguf_join_parts(file, err) : status;
}

hearth_status hth_gguf_open(const char *path, hth_gguf **out, hearth_error *err)
{
    *out = NULL;
    hth_gguf *file = hth_alloc(1, sizeof *file);
    if (!file) return hth_fail_memory(err, sizeof *file, "a model file");
    hearth_status status = open_path(file, path, err);
    if (status == HEARTH_OK) *out = file;
    else hth_gguf_close(file);
    return status;
}

hearth_status hth_gguf_open_memory(const void *data, size_t size, const char *name, hth_gguf **out,
                                   hearth_error *err)
{
    *out = NULL;
    hth_gguf *file = hth_alloc(1, sizeof *file);
    if (!file) return hth_fail_memory(err, sizeof *file, "a model file");
    hearth_status status = open_memory(file, data, size, name, err);
    if (status == HEARTH_OK) *out = file;
    else hth_gguf_close(file);
    return status;
}

hearth_status hth_gguf_open_descriptors(const int *fds, size_t n_fd, const char *name, hth_gguf **out,
                                        hearth_error *err)
{
    *out = NULL;
    hth_gguf *file = hth_alloc(1, sizeof *file);
    if (!file) return hth_fail_memory(err, sizeof *file, "a model file");
    hearth_status status = keep_path(file, name, err);
    if (status == HEARTH_OK) status = hth_gguf_join_descriptors(file, fds, n_fd, err);
    if (status == HEARTH_OK) *out = file;
    else hth_gguf_close(file);
    return status;
}

void hth_gguf_close(hth_gguf *file)
{
    if (!file) return;
    hth_gguf_drop_parts(file);
    hth_free(file->tensors);
    hth_free(file->parts);
    hth_free(file->path);
    hth_free(file);
}

/* ---- properties ------------------------------------------------------------------------------ */

const char *hth_gguf_path(const hth_gguf *file)
{
    return file->path ? file->path : file->parts[0].source.path;
}

const char *hth_gguf_part_path(const hth_gguf *file, uint32_t i_part)
{
    return i_part < file->n_part ? file->parts[i_part].source.path : NULL;
}

void hth_gguf_read_uncached(hth_gguf *file)
{
    for (uint32_t i = 0; i < file->n_part; i++)
        hth_gguf_source_read_uncached(&file->parts[i].source, file->parts[i].data_offset);
}

const char *hth_gguf_written_part(const hth_gguf *file)
{
    for (uint32_t i = 0; i < file->n_part; i++)
        if (hth_gguf_source_was_written(&file->parts[i].source)) return file->parts[i].source.label;
    return NULL;
}

int hth_gguf_part_fd(const hth_gguf *file, uint32_t i_part) { return file->parts[i_part].source.fd; }

uint32_t hth_gguf_version(const hth_gguf *file) { return file->parts[0].version; }
bool hth_gguf_is_powerinfer(const hth_gguf *file) { return file->parts[0].powerinfer; }
uint32_t hth_gguf_n_part(const hth_gguf *file) { return file->n_part; }
uint64_t hth_gguf_alignment(const hth_gguf *file) { return file->parts[0].alignment; }

/* Sizes of files are below 2^63, so 1,024 of them could exceed 64 bits in theory. The sum then saturates. */
uint64_t hth_gguf_size(const hth_gguf *file)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < file->n_part; i++)
        if (!hth_add_u64(sum, file->parts[i].source.size, &sum)) return UINT64_MAX;
    return sum;
}

uint64_t hth_gguf_trailing(const hth_gguf *file)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < file->n_part; i++) {
        const hth_gguf_part *part = &file->parts[i];
        uint64_t padded;
        if (!hth_align_u64(part->end, part->alignment, &padded) || padded >= part->source.size) continue;
        if (!hth_add_u64(sum, part->source.size - padded, &sum)) return UINT64_MAX;
    }
    return sum;
}

size_t hth_gguf_n_value(const hth_gguf *file) { return file->parts[0].n_value; }

const hth_gguf_value *hth_gguf_value_at(const hth_gguf *file, size_t i)
{
    return i < file->parts[0].n_value ? &file->parts[0].values[i] : NULL;
}

size_t hth_gguf_n_tensor(const hth_gguf *file) { return file->n_tensor; }

const hth_gguf_tensor *hth_gguf_tensor_at(const hth_gguf *file, size_t i)
{
    return i < file->n_tensor ? &file->tensors[i] : NULL;
}

const hth_gguf_tensor *hth_gguf_find_tensor(const hth_gguf *file, const char *name)
{
    uint32_t i =
        hth_file_name_find(&file->names, file->tensors, sizeof *file->tensors, (hth_str){name, strlen(name)});
    return i == HTH_FILE_NAME_NONE ? NULL : &file->tensors[i];
}

/* ---- data --------------------------------------------------------------------------------------- */

hearth_status hth_gguf_read(const hth_gguf *file, const hth_gguf_tensor *tensor, uint64_t from, size_t size,
                            void *dst, hearth_error *err)
{
    const hth_gguf_source *source = &file->parts[tensor->i_part].source;
    if (from > tensor->size || size > tensor->size - from)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT,
                        "%s: tensor '%s': %zu bytes from byte %" PRIu64 " requested, it has %" PRIu64,
                        source->label, hth_gguf_show(tensor->name).text, size, from, tensor->size);
    return hth_gguf_source_read(source, tensor->offset + from, size, dst, err);
}

hearth_status hth_gguf_map(hth_gguf *file, hearth_error *err)
{
    hearth_status status = HEARTH_OK;
    for (uint32_t i = 0; i < file->n_part && status == HEARTH_OK; i++)
        status = hth_gguf_source_map(&file->parts[i].source, err);
    return status;
}

hearth_status hth_gguf_check_map(const hth_gguf *file, hearth_error *err)
{
    hearth_status status = HEARTH_OK;
    for (uint32_t i = 0; i < file->n_part && status == HEARTH_OK; i++)
        status = hth_gguf_source_check_map(&file->parts[i].source, err);
    return status;
}

const void *hth_gguf_mapped(const hth_gguf *file, const hth_gguf_tensor *tensor)
{
    const unsigned char *bytes = file->parts[tensor->i_part].source.bytes;
    return bytes ? bytes + tensor->offset : NULL;
}

bool hth_gguf_is_in_map(const hth_gguf *file, const void *address)
{
    bool found = false;
    for (uint32_t i = 0; i < file->n_part; i++) {
        const hth_gguf_source *s = &file->parts[i].source;
        found = found || (s->mapped && (uintptr_t)address - (uintptr_t)s->bytes < s->size);
    }
    return found;
}
