/* Operations shared by the panel blocks of several types, in terms of panel_ops_LEVEL.h. */
#include "kernels/quant/blocks.h"

/* Converts sixteen bytes of nibbles at byte `at` of a row's block to eight fours of weights. */
HTH_INLINE void panel_nibbles(panel_block a, int at, vints w[8])
{
    HTH_UNROLL
    for (int u = 0; u < 4; u++) {
        vints both = unit(a, at, u);
        w[u] = masked(both, 15);
        w[u + 4] = bit_field(both, 4, 4);
    }
}

/* Adds 16 to weights whose bit is set, of the 32 bits at byte `at`. */
HTH_INLINE void panel_fifth_bits(panel_block a, int at, vints w[8])
{
    vints bits = unit(a, at, 0);
    HTH_UNROLL
    for (int g = 0; g < 8; g++) w[g] = or_masked(w[g], spread_bits(bits, 4 * g, 1, 4), 16);
}

/* Q4_K, Q5_K: the eight scales and eight minima of six bits in the twelve bytes from the fourth on. The first
 * four of each are the low six bits of bytes 0 to 3 (4 to 7). The others are nibbles of bytes 8 to 11 with the
 * two remaining bits above them. */
HTH_INLINE void panel_k_scales(panel_block a, vints s[2], vints m[2])
{
    vints x = unit(a, 4, 0), y = unit(a, 4, 1), z = unit(a, 4, 2);
    s[0] = masked(x, 0x3f);
    m[0] = masked(y, 0x3f);
    s[1] = or_masked(masked(z, 15), bits_down(x, 2), 0x30);
    m[1] = or_masked(bit_field(z, 4, 4), bits_down(y, 2), 0x30);
}
