/* Training on AArch64: sums take sixteen of thirty-two registers. */
#include "kernels/isa.h"

#include <arm_neon.h>

typedef float32x4_t floats;
enum { FLOATS = 4, TILE_ROWS = 4, TILE_VECTORS = 4 };

HTH_INLINE floats no_floats(void) { return vdupq_n_f32(0.0f); }
HTH_INLINE floats load_floats(const float *p) { return vld1q_f32(p); }
HTH_INLINE void store_floats(float *p, floats x) { vst1q_f32(p, x); }
HTH_INLINE floats all_of(float x) { return vdupq_n_f32(x); }
HTH_INLINE floats add_product(floats s, floats a, floats b) { return vfmaq_f32(s, a, b); }

#define LEVEL neon
#include "kernels/training/training_tmpl.h"
