/* A hash index from names to positions in an array: the keys and tensors of a file. The array belongs to the
 * caller. Its items start with an hth_str, the name. */
#ifndef HTH_FILE_NAME_INDEX_H
#define HTH_FILE_NAME_INDEX_H

#include "file/gguf.h"

#define HTH_FILE_NAME_NONE UINT32_MAX

/* A zero-initialised index is empty. */
typedef struct hth_file_name_index {
    struct hth_file_name_slot *slots;
    size_t n_slot; /* 0 or a power of two */
    size_t n_used;
    uint64_t seed;
} hth_file_name_index;

/* Position of name in items (each `stride` bytes long), or HTH_FILE_NAME_NONE. */
uint32_t hth_file_name_find(const hth_file_name_index *index, const void *items, size_t stride,
                            hth_str name);
/* Adds position i for a name that is not in the index. False if memory runs out. */
bool hth_file_name_add(hth_file_name_index *index, hth_str name, uint32_t i);
void hth_file_name_free(hth_file_name_index *index);

#endif
