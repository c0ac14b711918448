/* placeholder until the programs of attention are merged */
#ifndef HTH_RUN_GPU_CACHE_H
#define HTH_RUN_GPU_CACHE_H
#include "run/gpu/calls.h"
#include <hearth/hearth.h>
enum { HTH_GPU_MOST_SHARED = 16 };
uint64_t hth_gpu_cache_head_words(hearth_kv_type type, uint32_t d_head, uint32_t n_position);
#endif
