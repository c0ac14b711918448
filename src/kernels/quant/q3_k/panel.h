/* Blocks of Q3_K in panels (layout of a row's block: ref.c). */
enum { WEIGHT_MAX = 7, N_SCALE = 16, SCALES_SIGNED = 1 };

HTH_INLINE vints third_bit(vints high, int n)
{
    return n < 2 ? bits_up(high, 2 - n) : bits_down(high, n - 2);
}

/* Two bits as in Q2_K, and bit 4a + b of byte c of the high bits. */
HTH_INLINE void panel_weights(panel_block a, int i, vints w[16])
{
    HTH_UNROLL
    for (int u = 0; u < 8; u++) {
        vints bits = unit(a, 32, 8 * (i / 2) + u), high = unit(a, 0, u);
        w[u] = or_masked(bit_field(bits, 4 * (i % 2), 2), third_bit(high, 2 * i), 4);
        w[8 + u] = or_masked(bit_field(bits, 4 * (i % 2) + 2, 2), third_bit(high, 2 * i + 1), 4);
    }
}

/* Sixteen scales of six bits, minus 32: the low four bits of scales k and k + 8 are in byte k, the high two
 * bits of scales k, k + 4, k + 8, k + 12 in byte 8 + k. */
HTH_INLINE void panel_scales(panel_block a, vints s[4], vints m[4])
{
    vints high = unit(a, 96, 2);
    (void)m;
    HTH_UNROLL
    for (int k = 0; k < 4; k++) {
        vints four = bit_field(unit(a, 96, k % 2), 4 * (k / 2), 4);
        vints two = k < 2 ? bits_up(high, 4 - 2 * k) : bits_down(high, 2 * k - 4);
        s[k] = less(or_masked(four, two, 0x30), 32);
    }
}
