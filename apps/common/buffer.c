/* Arrays that grow to twice the required size, so that appending copies each element about once. */
#include "common/buffer.h"

#include <stdlib.h>
#include <string.h>

void *grow_array(void *array, size_t *capacity, size_t n, size_t size)
{
    if (array && n <= *capacity) return array;
    void *more = realloc(array, (2 * n + 256) * size);
    if (more) *capacity = 2 * n + 256;
    return more;
}

bool buffer_add(buffer *b, const char *bytes, size_t n)
{
    char *more = grow_array(b->bytes, &b->capacity, b->n + n + 1, 1);
    if (!more) return false;
    b->bytes = more;
    if (n) memcpy(b->bytes + b->n, bytes, n);
    b->n += n;
    b->bytes[b->n] = '\0';
    return true;
}

bool id_list_add(id_list *l, const int32_t *ids, size_t n)
{
    int32_t *more = grow_array(l->at, &l->capacity, l->n + n, sizeof *more);
    if (!more) return false;
    l->at = more;
    if (n) memcpy(l->at + l->n, ids, n * sizeof *ids);
    l->n += n;
    return true;
}
