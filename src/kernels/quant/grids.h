/* Grids of the types IQ1, IQ2 and IQ3: a block holds indices of entries, which are eight weights (IQ3: four) side by
 * side, one byte each. IQ2 and IQ3: magnitudes; signs are stored apart. IQ1: 8 w + 17 of weights w = -1, 0, 1 whose shift
 * is +1; from entry 2048 on the same entries with the shift -1: 8 w + 15. */
#ifndef HTH_KERNELS_QUANT_GRIDS_H
#define HTH_KERNELS_QUANT_GRIDS_H

#include <stdint.h>

extern const uint64_t hth_iq1_grid[4096], hth_iq2_xxs_grid[256], hth_iq2_xs_grid[512], hth_iq2_s_grid[1024];
extern const uint32_t hth_iq3_xxs_grid[256], hth_iq3_s_grid[512];

/* The entries of IQ2 as eight numbers of two bits and those of IQ3 as four of three bits: the low bytes of all, then the
 * high bytes. */
extern const uint8_t hth_iq2_xxs_codes[2][256], hth_iq2_xs_codes[2][512], hth_iq2_s_codes[2][1024];
extern const uint8_t hth_iq3_xxs_codes[2][256], hth_iq3_s_codes[2][512];

#endif
