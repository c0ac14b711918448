/* Bit operations on eight bytes at a time, shared by packing and unpacking of the device layout. Packing
 * determines the time to load a model, and the reference device computes with unpacked blocks. */
#ifndef HTH_FORWARD_GPU_WEIGHT_LAYOUT_INT_H
#define HTH_FORWARD_GPU_WEIGHT_LAYOUT_INT_H

#include "base/bits.h"

#include <stdint.h>
#include <string.h>

static const uint64_t BYTES = 0x0101010101010101u;

/* For n bytes (a multiple of 8): to |= (p >> shift & mask) << up, bytewise. */
static inline void add_bits(const uint8_t *p, size_t n, unsigned shift, unsigned mask, unsigned up,
                            uint8_t *to)
{
    for (size_t i = 0; i < n; i += 8) {
        uint64_t x = hth_load_u64(to + i) | (hth_load_u64(p + i) >> shift & mask * BYTES) << up;
        memcpy(to + i, &x, sizeof x);
    }
}

#endif
