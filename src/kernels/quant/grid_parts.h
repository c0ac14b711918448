/* The parts of a block of each type with a grid (grids.h), which the kernels of the type and the packing of device
 * weights read. Layouts follow the block structs of the format (ggml-common.h). */
#ifndef HTH_KERNELS_QUANT_GRID_PARTS_H
#define HTH_KERNELS_QUANT_GRID_PARTS_H

#include "base/bits.h"

/* A block without its scale. */
typedef struct hth_grid_parts {
    uint16_t index[64]; /* indices of entries, in the order of the weights */
    uint8_t sign[32];   /* IQ2, IQ3: bit j of byte i: weight 8i + j is negative */
    int16_t scale[16];  /* 1, 3, 5, ...: the format stores s for 2 s + 1 */
} hth_grid_parts;

/* Only seven signs of eight weights are stored: the number of minus signs is even. */
static inline uint8_t hth_even_signs(uint32_t seven)
{
    return (uint8_t)(seven | (uint32_t)__builtin_parity(seven) << 7);
}

/* Part s of eight: four times seven signs in the low 28 bits of a word, and the scale of 32 weights above them. */
static inline void hth_read_signs_and_scale(hth_grid_parts *k, int s, uint32_t word)
{
    for (int i = 0; i < 4; i++) k->sign[4 * s + i] = hth_even_signs(word >> 7 * i & 127);
    k->scale[2 * s] = k->scale[2 * s + 1] = (int16_t)(2 * (word >> 28) + 1);
}

/* Number i of four-bit numbers, the low half of a byte first. */
static inline int hth_nibble_at(const uint8_t *p, int i) { return p[i / 2] >> 4 * (i % 2) & 15; }

static inline void hth_iq1_s_parts(const uint8_t *p, hth_grid_parts *k)
{
    for (int g = 0; g < 32; g++) {
        uint16_t high = hth_load_u16(p + 34 + 2 * (g / 4));
        k->index[g] = (uint16_t)(p[2 + g] | (high >> 3 * (g % 4) & 7) << 8 | high >> 15 << 11);
        k->scale[g / 2] = (int16_t)(2 * (high >> 12 & 7) + 1);
    }
}

/* The high four bits of each of the four 16-bit words, the lowest first. */
static inline uint16_t hth_iq1_m_half(const uint8_t *p)
{
    uint64_t high = hth_load_u64(p + 48) >> 12 & 0x000f000f000f000fu;
    return (uint16_t)(high | high >> 12 | high >> 24 | high >> 36);
}

static inline void hth_iq1_m_parts(const uint8_t *p, hth_grid_parts *k)
{
    for (int g = 0; g < 32; g++) k->index[g] = (uint16_t)(p[g] | hth_nibble_at(p + 32, g) << 8);
    for (int i = 0; i < 16; i++)
        k->scale[i] = (int16_t)(2 * (hth_load_u16(p + 48 + 2 * (i / 4)) >> 3 * (i % 4) & 7) + 1);
}

static inline void hth_iq2_xxs_parts(const uint8_t *p, hth_grid_parts *k)
{
    for (int g = 0; g < 32; g++) k->index[g] = p[2 + 8 * (g / 4) + g % 4];
    for (int s = 0; s < 8; s++) hth_read_signs_and_scale(k, s, hth_load_u32(p + 6 + 8 * s));
}

static inline void hth_iq2_xs_parts(const uint8_t *p, hth_grid_parts *k)
{
    for (int g = 0; g < 32; g++) {
        uint16_t both = hth_load_u16(p + 2 + 2 * g);
        k->index[g] = both & 511;
        k->sign[g] = hth_even_signs(both >> 9);
    }
    for (int i = 0; i < 16; i++) k->scale[i] = (int16_t)(2 * hth_nibble_at(p + 66, i) + 1);
}

static inline void hth_iq2_s_parts(const uint8_t *p, hth_grid_parts *k)
{
    for (int g = 0; g < 32; g++) {
        k->index[g] = (uint16_t)(p[2 + g] | (p[66 + g / 4] >> 2 * (g % 4) & 3) << 8);
        k->sign[g] = p[34 + g];
    }
    for (int i = 0; i < 16; i++) k->scale[i] = (int16_t)(2 * hth_nibble_at(p + 74, i) + 1);
}

static inline void hth_iq3_xxs_parts(const uint8_t *p, hth_grid_parts *k)
{
    for (int g = 0; g < 64; g++) k->index[g] = p[2 + g];
    for (int s = 0; s < 8; s++) hth_read_signs_and_scale(k, s, hth_load_u32(p + 66 + 4 * s));
}

static inline void hth_iq3_s_parts(const uint8_t *p, hth_grid_parts *k)
{
    for (int g = 0; g < 64; g++) k->index[g] = (uint16_t)(p[2 + g] | (p[66 + g / 8] >> g % 8 & 1) << 8);
    for (int i = 0; i < 32; i++) k->sign[i] = p[74 + i];
    for (int i = 0; i < 16; i++) k->scale[i] = (int16_t)(2 * hth_nibble_at(p + 106, i / 2) + 1);
}

#endif
