/* What the parts of packing and unpacking share: decoded blocks, and bit operations on eight bytes at a time. Packing
 * determines the time to load a model, and the reference device computes with unpacked blocks. */
#ifndef HTH_FORWARD_GPU_WEIGHT_LAYOUT_INT_H
#define HTH_FORWARD_GPU_WEIGHT_LAYOUT_INT_H

#include "base/bits.h"

#include <stdint.h>
#include <string.h>

/* A block of a file as integers and scales. Fields that its descriptor lacks keep their old values. */
typedef struct hth_soa_decoded {
    uint8_t raw[256];
    uint16_t d, m;
    uint8_t exponent;
    int8_t part[16];
    uint8_t sub_min[16];
} hth_soa_decoded;

/* Blocks with a grid (kernels/quant/grids.h): weights become indices of the type's table. */
void hth_soa_read_iq3_xxs(const uint8_t *p, hth_soa_decoded *k);
void hth_soa_read_iq3_s(const uint8_t *p, hth_soa_decoded *k);
void hth_soa_read_iq2_xxs(const uint8_t *p, hth_soa_decoded *k);
void hth_soa_read_iq2_xs(const uint8_t *p, hth_soa_decoded *k);
void hth_soa_read_iq2_s(const uint8_t *p, hth_soa_decoded *k);
void hth_soa_read_iq1_s(const uint8_t *p, hth_soa_decoded *k);
void hth_soa_read_iq1_m(const uint8_t *p, hth_soa_decoded *k);

static const uint64_t BYTES = 0x0101010101010101u;

/* Byte k of the result is bit k. */
static inline uint64_t spread_bits(uint64_t bits)
{
    uint64_t alone = bits * BYTES & 0x8040201008040201u; /* bit k of byte k */
    return (alone + 0x00406070787c7e7fu) >> 7 & BYTES;   /* nonzero bytes become 0x80 */
}

/* Every step-th of sixteen scales. */
static inline void narrow(const int16_t wide[16], size_t step, int8_t *part)
{
    for (size_t i = 0; i * step < 16; i++) part[i] = (int8_t)wide[i * step];
}

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
