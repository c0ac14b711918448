/* Arithmetic on sizes that come from outside: every product, sum and rounding of such a size uses these functions.
 * All return false on overflow and then leave *out unchanged. */
#ifndef HTH_BASE_CHECKED_MATH_H
#define HTH_BASE_CHECKED_MATH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline bool hth_mul_size(size_t a, size_t b, size_t *out)
{
    size_t r;
    if (__builtin_mul_overflow(a, b, &r)) return false;
    *out = r;
    return true;
}

static inline bool hth_add_size(size_t a, size_t b, size_t *out)
{
    size_t r;
    if (__builtin_add_overflow(a, b, &r)) return false;
    *out = r;
    return true;
}

static inline bool hth_mul_u64(uint64_t a, uint64_t b, uint64_t *out)
{
    uint64_t r;
    if (__builtin_mul_overflow(a, b, &r)) return false;
    *out = r;
    return true;
}

static inline bool hth_add_u64(uint64_t a, uint64_t b, uint64_t *out)
{
    uint64_t r;
    if (__builtin_add_overflow(a, b, &r)) return false;
    *out = r;
    return true;
}

/* Rounds a up to a multiple of align, a power of two. */
static inline bool hth_align_u64(uint64_t a, uint64_t align, uint64_t *out)
{
    uint64_t r;
    if (__builtin_add_overflow(a, align - 1, &r)) return false;
    *out = r & ~(align - 1);
    return true;
}

static inline uint64_t hth_max_u64(uint64_t a, uint64_t b) { return a > b ? a : b; }

#endif
