/* What making planes and reading them share: bits of bytes, eight bytes at a time. Loading a model takes as long
 * as the one does, and a null device computes with what the other reads. */
#ifndef HTH_RUN_GPU_PLANES_INT_H
#define HTH_RUN_GPU_PLANES_INT_H

#include "base/bits.h"

#include <stdint.h>
#include <string.h>

static const uint64_t BYTES = 0x0101010101010101u;

/* n bytes of `to` (a multiple of 8) gain `mask` of the bits of p from `shift` on, moved up by `up`. */
static inline void add_bits(const uint8_t *p, size_t n, unsigned shift, unsigned mask, unsigned up,
                            uint8_t *to)
{
    for (size_t i = 0; i < n; i += 8) {
        uint64_t x = hth_load_u64(to + i) | (hth_load_u64(p + i) >> shift & mask * BYTES) << up;
        memcpy(to + i, &x, sizeof x);
    }
}

#endif
