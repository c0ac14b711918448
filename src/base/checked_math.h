/* Arithmetic on sizes that come from outside: every product, sum and rounding of such a size uses these functions.
 * All return false on overflow and then leave *out unchanged. */
#ifndef HTH_BASE_CHECKED_MATH_H
#define HTH_BASE_CHECKED_MATH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HTH_CHECKED(NAME, TYPE, OPERATION)                                                                   \
    static inline bool NAME(TYPE a, TYPE b, TYPE *out)                                                       \
    {                                                                                                        \
        TYPE r;                                                                                              \
        if (OPERATION(a, b, &r)) return false;                                                               \
        *out = r;                                                                                            \
        return true;                                                                                         \
    }
HTH_CHECKED(hth_mul_size, size_t, __builtin_mul_overflow)
HTH_CHECKED(hth_add_size, size_t, __builtin_add_overflow)
HTH_CHECKED(hth_mul_u64, uint64_t, __builtin_mul_overflow)
HTH_CHECKED(hth_add_u64, uint64_t, __builtin_add_overflow)
#undef HTH_CHECKED

/* Rounds a up to a multiple of align, a power of two. */
static inline bool hth_align_u64(uint64_t a, uint64_t align, uint64_t *out)
{
    uint64_t r;
    if (__builtin_add_overflow(a, align - 1, &r)) return false;
    *out = r & ~(align - 1);
    return true;
}

static inline uint32_t hth_min_u32(uint32_t a, uint32_t b) { return a < b ? a : b; }
static inline uint32_t hth_max_u32(uint32_t a, uint32_t b) { return a > b ? a : b; }
static inline uint64_t hth_min_u64(uint64_t a, uint64_t b) { return a < b ? a : b; }
static inline uint64_t hth_max_u64(uint64_t a, uint64_t b) { return a > b ? a : b; }

#endif
