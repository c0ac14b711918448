/* Caches of keys and values as the CPU has them and as they are on a device, and the step block that says where a
 * sequence's pages are: for tests of rope_store and attn. */
#ifndef HEARTH_TESTS_SUPPORT_DEVICE_GPU_CACHE_H
#define HEARTH_TESTS_SUPPORT_DEVICE_GPU_CACHE_H

#include "forward/gpu/shader_params.h"
#include "support/kernels/proof.h"

#include <hearth/hearth.h>

/* Freed with free. */
void *gpu_poisoned(size_t size);
float *gpu_random_floats(test_random *r, proof_kind kind, size_t n);

const char *gpu_kv_name(hearth_kv_type type);

/* Keys or values of n_kv heads as the CPU has them, in pages in the order of the device. */
typedef struct gpu_cache {
    hearth_kv_type type;
    size_t d, n_kv, n_position, head_size; /* bytes of a head's keys, or values */
    uint8_t *keys, *values;
} gpu_cache;

gpu_cache gpu_cache_new(hearth_kv_type type, size_t d, size_t n_kv, size_t n_position);
void gpu_cache_free(gpu_cache *c);
/* One position of all KV heads to where it lies on a device. */
void gpu_cache_put(const gpu_cache *c, size_t at, uint32_t *keys, uint32_t *values);

/* Page tables of up to this many pages. */
enum { GPU_N_TABLE = 20 };
typedef uint32_t gpu_page_table[GPU_N_TABLE];

/* Where a row is, of its position and its sequence. */
size_t gpu_place_of(const gpu_page_table *tables, const uint32_t row[2]);
/* rows: position and sequence of each. The tables of the other class are somewhere else. */
void gpu_fill_step(uint32_t *step, uint32_t n_tok, uint32_t n_row, const uint32_t (*rows)[2],
                   const gpu_page_table *tables, uint32_t n_sequence, uint32_t kv_class);

#endif
