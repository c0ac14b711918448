/* Decodes blocks of the types with a grid (kernels/quant/grids.h) for weight_layout.c. Devices have no grids: an entry
 * becomes an index of few bits for each weight, whose value is in the type's table of sixteen
 * (hth_soa_values). */
#include "forward/gpu/weight_layout_int.h"

#include "kernels/quant/grid_parts.h"
#include "kernels/quant/grids.h"

/* Entries of four magnitudes, whose three bits begin at bit `shift`; the sign is the fourth. */
static void read_iq3(const uint8_t *p, const hth_grid_parts *parts, const uint32_t *grid, unsigned shift,
                     hth_soa_decoded *k)
{
    k->d = hth_load_u16(p);
    for (size_t i = 0; i < 32; i++) {
        uint64_t eight = grid[parts->index[2 * i]] | (uint64_t)grid[parts->index[2 * i + 1]] << 32;
        eight = (eight >> shift & 7 * BYTES) | spread_bits(parts->sign[i]) << 3;
        memcpy(k->raw + 8 * i, &eight, sizeof eight);
    }
    narrow(parts->scale, 2, k->part);
}

void hth_soa_read_iq3_xxs(const uint8_t *p, hth_soa_decoded *k)
{
    hth_grid_parts parts;
    hth_iq3_xxs_parts(p, &parts);
    read_iq3(p, &parts, hth_iq3_xxs_grid, 3, k); /* 4, 12, ... 52, 62 */
}

void hth_soa_read_iq3_s(const uint8_t *p, hth_soa_decoded *k)
{
    hth_grid_parts parts;
    hth_iq3_s_parts(p, &parts);
    read_iq3(p, &parts, hth_iq3_s_grid, 1, k); /* 1, 3, ... 15 */
}

/* Entries of eight magnitudes 8, 25 and 43, which bits 4 and 5 tell apart; the sign is the third bit. */
static void read_iq2(const uint8_t *p, const hth_grid_parts *parts, const uint64_t *grid, size_t step,
                     hth_soa_decoded *k)
{
    k->d = hth_load_u16(p);
    for (size_t i = 0; i < 32; i++) {
        uint64_t eight = (grid[parts->index[i]] >> 4 & 3 * BYTES) | spread_bits(parts->sign[i]) << 2;
        memcpy(k->raw + 8 * i, &eight, sizeof eight);
    }
    narrow(parts->scale, step, k->part);
}

void hth_soa_read_iq2_xxs(const uint8_t *p, hth_soa_decoded *k)
{
    hth_grid_parts parts;
    hth_iq2_xxs_parts(p, &parts);
    read_iq2(p, &parts, hth_iq2_xxs_grid, 2, k);
}

void hth_soa_read_iq2_xs(const uint8_t *p, hth_soa_decoded *k)
{
    hth_grid_parts parts;
    hth_iq2_xs_parts(p, &parts);
    read_iq2(p, &parts, hth_iq2_xs_grid, 1, k);
}

void hth_soa_read_iq2_s(const uint8_t *p, hth_soa_decoded *k)
{
    hth_grid_parts parts;
    hth_iq2_s_parts(p, &parts);
    read_iq2(p, &parts, hth_iq2_s_grid, 1, k);
}

/* Entries of eight weights w: 8 w + 17, or 8 w + 15 where the shift is -1. The index is w + 1, and 4 more for that
 * shift, which is bit 1 of the entry's bytes. */
static void read_iq1(const hth_grid_parts *parts, size_t step, hth_soa_decoded *k)
{
    for (size_t i = 0; i < 32; i++) {
        uint64_t eight = hth_iq1_grid[parts->index[i]];
        eight = (((eight + BYTES) >> 3 & 3 * BYTES) - BYTES) | (eight >> 1 & BYTES) << 2;
        memcpy(k->raw + 8 * i, &eight, sizeof eight);
    }
    narrow(parts->scale, step, k->part);
}

void hth_soa_read_iq1_s(const uint8_t *p, hth_soa_decoded *k)
{
    hth_grid_parts parts;
    k->d = hth_load_u16(p);
    hth_iq1_s_parts(p, &parts);
    read_iq1(&parts, 2, k);
}

void hth_soa_read_iq1_m(const uint8_t *p, hth_soa_decoded *k)
{
    hth_grid_parts parts;
    k->d = hth_iq1_m_half(p);
    hth_iq1_m_parts(p, &parts);
    read_iq1(&parts, 1, k);
}
