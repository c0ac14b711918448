/* Growable arrays: text that arrives in parts, ids of tokens. Zero-initialised is empty; the owner frees the
 * array. */
#ifndef HEARTH_APPS_COMMON_BUFFER_H
#define HEARTH_APPS_COMMON_BUFFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct buffer {
    char *bytes; /* terminated, unless NULL */
    size_t n, capacity;
} buffer;

typedef struct id_list {
    int32_t *at;
    size_t n, capacity;
} id_list;

/* False: out of memory, and nothing was appended. */
bool buffer_add(buffer *b, const char *bytes, size_t n);
bool id_list_add(id_list *l, const int32_t *ids, size_t n);

/* Returns the array with capacity for n elements of that size; *capacity is its capacity. NULL: out of memory, the
 * array is unchanged. */
void *grow_array(void *array, size_t *capacity, size_t n, size_t size);

#endif
