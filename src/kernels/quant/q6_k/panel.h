/* Blocks of Q6_K in panels (layout of a row's block: ref.c). */
enum { WEIGHT_MAX = 63, N_SCALE = 16, SCALES_SIGNED = 1 };

/* Weight 128a + 32b + c is nibble b / 2 of byte 64a + 32 (b mod 2) + c of the low bits, with bits 2b, 2b + 1 of
 * byte 32a + c of the high bits above it. */
HTH_INLINE void panel_weights(panel_block a, int i, vints w[16])
{
    HTH_UNROLL
    for (int u = 0; u < 8; u++) {
        vints bits = unit(a, 128, 8 * (i / 2) + u);
        vints first = unit(a, 0, 16 * (i / 2) + u), second = unit(a, 0, 16 * (i / 2) + 8 + u);
        if (i % 2 == 0) {
            w[u] = or_masked(masked(first, 15), bits_up(bits, 4), 0x30);
            w[8 + u] = or_masked(masked(second, 15), bits_up(bits, 2), 0x30);
        } else {
            w[u] = or_masked(bit_field(first, 4, 4), bits, 0x30);
            w[8 + u] = or_masked(bit_field(second, 4, 4), bits_down(bits, 2), 0x30);
        }
    }
}

HTH_INLINE void panel_scales(panel_block a, vints s[4], vints m[4])
{
    (void)m;
    for (int k = 0; k < 4; k++) s[k] = unit(a, 192, k);
}
