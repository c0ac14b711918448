/* Blocks of Q8_0 in panels (layout of a row's block: ref.c). */
enum { WEIGHT_MAX = 128, WEIGHT_OFFSET = SIGNED_OFFSET };

HTH_INLINE void panel_weights(panel_block a, vints w[8])
{
    HTH_UNROLL
    for (int g = 0; g < 8; g++) w[g] = signed_bytes(unit(a, 2, g));
}

HTH_INLINE vfloats panel_scales(panel_block a) { return unit_half(a, 0); }
