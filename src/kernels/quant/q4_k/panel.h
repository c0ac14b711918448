/* Blocks of Q4_K in panels (layout of a row's block: ref.c). */
enum { WEIGHT_MAX = 15, N_SCALE = 8, SCALES_SIGNED = 0 };

HTH_INLINE void panel_weights(panel_block a, int i, vints w[16])
{
    HTH_UNROLL
    for (int u = 0; u < 8; u++) {
        vints both = unit(a, 16, 8 * i + u);
        w[u] = masked(both, 15);
        w[8 + u] = bit_field(both, 4, 4);
    }
}

HTH_INLINE void panel_scales(panel_block a, vints s[2], vints m[2]) { panel_k_scales(a, s, m); }
