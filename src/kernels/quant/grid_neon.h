/* Rows of a type with a grid (grid_kernels.h) on AArch64: the parts of a block as the definition reads them, sixteen
 * weights of two or four entries at a time. */
#include "kernels/quant/arm.h"

typedef hth_grid_parts block;

HTH_INLINE block unpack(const uint8_t *p)
{
    block k;
    READ_PARTS(p, &k);
    return k;
}

HTH_INLINE uint64_t eight_bytes(const block *k, int i)
{
    const uint16_t *index = k->index + 8 / GRID_WIDTH * i;
    return GRID_WIDTH == 8 ? GRID[index[0]] : GRID[index[0]] | (uint64_t)GRID[index[8 / GRID_WIDTH - 1]] << 32;
}

HTH_INLINE int8x16_t twice_each(uint8_t a, uint8_t b)
{
    return vreinterpretq_s8_u8(vcombine_u8(vdup_n_u8(a), vdup_n_u8(b)));
}

HTH_INLINE int8x16_t weights(const block *k, int i)
{
    const uint8x16_t bit = vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201u));
    uint64x2_t both = vcombine_u64(vcreate_u64(eight_bytes(k, 2 * i)), vcreate_u64(eight_bytes(k, 2 * i + 1)));
    int8x16_t w = vreinterpretq_s8_u64(both);
    if (!HAS_SIGNS) return vsubq_s8(w, vdupq_n_s8(16));
    uint8x16_t signs = vreinterpretq_u8_s8(twice_each(k->sign[2 * i], k->sign[2 * i + 1]));
    int8x16_t minus = vreinterpretq_s8_u8(vtstq_u8(signs, bit));
    return vsubq_s8(veorq_s8(w, minus), minus);
}

#include "kernels/quant/arm_wide.h"
