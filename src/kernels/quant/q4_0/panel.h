/* Blocks of Q4_0 in panels (layout of a row's block: ref.c). */
enum { WEIGHT_MAX = 15, WEIGHT_OFFSET = 8 };

HTH_INLINE void panel_weights(panel_block a, vints w[8]) { panel_nibbles(a, 2, w); }

HTH_INLINE vfloats panel_scales(panel_block a) { return unit_half(a, 0); }
