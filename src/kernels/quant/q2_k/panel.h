/* Blocks of Q2_K in panels (layout of a row's block: ref.c). */
enum { WEIGHT_MAX = 3, N_SCALE = 16, SCALES_SIGNED = 0 };

/* Weights 128a + 32b + c are bits 2b, 2b + 1 of byte 32a + c. */
HTH_INLINE void panel_weights(panel_block a, int i, vints w[16])
{
    HTH_UNROLL
    for (int u = 0; u < 8; u++) {
        vints bits = unit(a, 16, 8 * (i / 2) + u);
        w[u] = bit_field(bits, 4 * (i % 2), 2);
        w[8 + u] = bit_field(bits, 4 * (i % 2) + 2, 2);
    }
}

HTH_INLINE void panel_scales(panel_block a, vints s[4], vints m[4])
{
    HTH_UNROLL
    for (int k = 0; k < 4; k++) {
        vints both = unit(a, 0, k);
        s[k] = masked(both, 15);
        m[k] = bit_field(both, 4, 4);
    }
}
