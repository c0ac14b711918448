/* Training, and products of recurrent mixers, in C: the definition. Fused operations are here, where a job asks for them,
 * and in float_ref.c only. */
#include "base/fma.h"
#include "kernels/isa.h"

typedef float floats;
enum { FLOATS = 1, TILE_ROWS = 1, TILE_VECTORS = 1 };

HTH_INLINE floats no_floats(void) { return 0.0f; }
HTH_INLINE floats load_floats(const float *p) { return *p; }
HTH_INLINE void store_floats(float *p, floats x) { *p = x; }
HTH_INLINE floats all_of(float x) { return x; }
HTH_INLINE floats add_product(floats s, floats a, floats b) { return hth_fma(a, b, s); }

#define LEVEL ref
#include "kernels/training/training_tmpl.h"
