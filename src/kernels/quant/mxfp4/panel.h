/* Blocks of MXFP4 in panels (layout of a row's block: ref.c). Its values are -12..12. */
enum { WEIGHT_MAX = 28, WEIGHT_OFFSET = 16 };

HTH_INLINE void panel_weights(panel_block a, vints w[8])
{
    panel_nibbles(a, 1, w);
    HTH_UNROLL
    for (int g = 0; g < 8; g++) w[g] = entries(hth_mxfp4_values, 16, w[g]);
}

HTH_INLINE vfloats panel_scales(panel_block a) { return unit_exponent(a); }
