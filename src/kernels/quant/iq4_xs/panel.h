/* Blocks of IQ4_XS in panels (layout of a row's block: ref.c). */
enum { WEIGHT_MAX = 128, N_SCALE = 8, SCALES_SIGNED = 1 };

HTH_INLINE void panel_weights(panel_block a, int i, vints w[16])
{
    panel_nibbles(a, 8 + 32 * i, w);
    panel_nibbles(a, 8 + 32 * i + 16, w + 8);
    HTH_UNROLL
    for (int g = 0; g < 16; g++) w[g] = signed_entries(hth_iq4_values, w[g]);
}

/* Eight scales of six bits, minus 32: the low four bits of scale k are nibble k of four bytes, the high two are
 * bits 2k, 2k + 1 of the two bytes before those. */
HTH_INLINE void panel_scales(panel_block a, vints s[2], vints m[2])
{
    vints low = unit(a, 4, 0), high = unit_u16(a, 2);
    (void)m;
    for (int k = 0; k < 2; k++) {
        vints four = masked(spread_bits(low, 16 * k, 4, 0), 15);
        s[k] = less(or_masked(four, spread_bits(high, 8 * k, 2, 4), 0x30), 32);
    }
}
