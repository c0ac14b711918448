/* Reads and writes structs by their sizes, as clone3 and openat2 of Linux do. */
#include "engine/struct_size.h"

#include "base/status.h"

#include <string.h>

/* No struct grows beyond this. What is larger is no size, and bytes behind a struct that never had one are not looked
 * at. */
enum { MAX_SIZE = 4096 };

/* Padding at the end would hold what programs happened to have there, when a later version has a field in it. */
#define CHECK_STRUCT(T, first, last)                                                                         \
    _Static_assert(offsetof(T, size) == 0, "size comes first");                                              \
    _Static_assert(offsetof(T, last) + sizeof(((T *)0)->last) == sizeof(T),                                  \
                   "there is no padding at the end");                                                        \
    _Static_assert(sizeof(T) <= MAX_SIZE, "its size is a possible one");                                     \
    const hth_sized_struct hth_size_of_##T = {#T, offsetof(T, first) + sizeof(((T *)0)->first), sizeof(T)};
HTH_FOR_EACH_SIZED_STRUCT(CHECK_STRUCT)

static bool is_zero(const void *bytes, size_t n)
{
    const unsigned char *b = bytes;
    while (n > 0 && *b == 0) b++, n--;
    return n == 0;
}

/* The size of the caller's struct by its first member; SIZE_MAX: no version has that size. */
static size_t given_size(const hth_sized_struct *type, const void *given)
{
    size_t size;
    memcpy(&size, given, sizeof size);
    if (size == 0) size = type->first_size;
    return size >= type->first_size && size <= MAX_SIZE ? size : SIZE_MAX;
}

hearth_status hth_engine_read_options(const hth_sized_struct *type, const void *options, void *out,
                                      hearth_error *err)
{
    memset(out, 0, type->size);
    if (options) {
        size_t size = given_size(type, options), n = size < type->size ? size : type->size;
        if (size == SIZE_MAX)
            return hth_fail(err, HEARTH_ERROR_ARGUMENT, "%s.size is %zu; expected 0, or from %zu to %d",
                            type->name, *(const size_t *)options, type->first_size, MAX_SIZE);
        if (!is_zero((const char *)options + n, size - n))
            return hth_fail(
                err, HEARTH_ERROR_ARGUMENT,
                "%s.size is %zu, and fields behind the %zu bytes that libhearth %s knows are not zero",
                type->name, size, type->size, hearth_version());
        memcpy(out, options, n);
    }
    memcpy(out, &type->size, sizeof type->size);
    return HEARTH_OK;
}

bool hth_engine_can_write_result(const hth_sized_struct *type, const void *to)
{
    return to && given_size(type, to) != SIZE_MAX;
}

void hth_engine_write_result(const hth_sized_struct *type, const void *from, void *to)
{
    size_t size = given_size(type, to), n = size < type->size ? size : type->size;
    memcpy((char *)to + sizeof(size_t), (const char *)from + sizeof(size_t), n - sizeof(size_t));
    memset((char *)to + n, 0, size - n);
}

hearth_status hth_engine_check_reserved(const char *name, const void *reserved, size_t size,
                                        hearth_error *err)
{
    if (is_zero(reserved, size)) return HEARTH_OK;
    return hth_fail(err, HEARTH_ERROR_ARGUMENT, "%s.reserved is not zero", name);
}
