/* The layout of a layer's KV cache on a device: one buffer of keys and one of values, in words of one position
 * each, so that no two invocations write the same word. device/vulkan/shaders/attention.glsl uses the same
 * offsets.
 *
 * A position of a KV head has hth_gpu_cache_words words, for keys and values alike:
 *   F16   d_head / 2, each two halves of neighbouring dims, the first in the low half
 *   F32   d_head, floats
 *   Q8_0  d_head / 4, each four integers of neighbouring dims, the first in the lowest byte; then
 *         d_head / 32 scales as floats (the values of the bf16 scales of docs/arithmetic.md 7)
 * Offset of word i of position `at` within its KV head:
 *   keys    [at / 16][i][at % 16]: neighbouring invocations take neighbouring positions
 *   values  [at][i]: they take neighbouring dims
 * KV heads are hth_gpu_cache_head_words apart. Sequences share a cache, by pages as on the host: page i of the layer's
 * class (kv_pool.h) is at [HTH_KV_PAGE i, HTH_KV_PAGE (i + 1)), adjacent words of a KV head. */
#ifndef HTH_FORWARD_GPU_CACHE_H
#define HTH_FORWARD_GPU_CACHE_H

#include <hearth/hearth.h>
#include <stddef.h>
#include <stdint.h>

/* d_head that rope_store and attn support: multiples of 4 (of 32 for Q8_0) up to this, which the shared memory of
 * a workgroup limits. Any number of query heads may share a KV head. */
enum { HTH_GPU_MAX_D_HEAD = 576 };

enum { HTH_GPU_CACHE_GROUP = 16 }; /* positions whose keys are interleaved */

/* Words of one position of one KV head. */
static inline size_t hth_gpu_cache_words(hearth_kv_type type, size_t d_head)
{
    if (type == HEARTH_KV_Q8_0) return d_head / 4 + d_head / 32;
    return type == HEARTH_KV_F16 ? d_head / 2 : d_head;
}

/* Words of a KV head's keys, or of its values; n_position is a multiple of HTH_KV_PAGE. */
static inline size_t hth_gpu_cache_head_words(hearth_kv_type type, size_t d_head, size_t n_position)
{
    return n_position * hth_gpu_cache_words(type, d_head);
}

/* Offset of word i of position `at` among the keys, or values, of its KV head; n_word: words of a position. */
static inline size_t hth_gpu_cache_key_at(size_t n_word, size_t at, size_t i)
{
    return (at / HTH_GPU_CACHE_GROUP * n_word + i) * HTH_GPU_CACHE_GROUP + at % HTH_GPU_CACHE_GROUP;
}
static inline size_t hth_gpu_cache_value_at(size_t n_word, size_t at, size_t i) { return at * n_word + i; }

#endif
