/* Blocks of Q4_1 in panels (layout of a row's block: ref.c). */
enum { WEIGHT_MAX = 15, WEIGHT_OFFSET = 0 };

HTH_INLINE void panel_weights(panel_block a, vints w[8]) { panel_nibbles(a, 4, w); }

HTH_INLINE vfloats panel_scales(panel_block a) { return unit_half(a, 0); }
HTH_INLINE vfloats panel_minima(panel_block a) { return unit_half(a, 2); }
