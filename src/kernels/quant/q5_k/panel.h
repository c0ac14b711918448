/* Blocks of Q5_K in panels (layout of a row's block: ref.c). */
enum { WEIGHT_MAX = 31, N_SCALE = 8, SCALES_SIGNED = 0 };

HTH_INLINE vints fifth_bit(vints high, int n)
{
    return n < 4 ? bits_up(high, 4 - n) : bits_down(high, n - 4);
}

/* Bit s of byte c of the high bits belongs to weight 32s + c. */
HTH_INLINE void panel_weights(panel_block a, int i, vints w[16])
{
    HTH_UNROLL
    for (int u = 0; u < 8; u++) {
        vints both = unit(a, 48, 8 * i + u), high = unit(a, 16, u);
        w[u] = or_masked(masked(both, 15), fifth_bit(high, 2 * i), 16);
        w[8 + u] = or_masked(bit_field(both, 4, 4), fifth_bit(high, 2 * i + 1), 16);
    }
}

HTH_INLINE void panel_scales(panel_block a, vints s[2], vints m[2]) { panel_k_scales(a, s, m); }
