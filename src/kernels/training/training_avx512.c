/* Training with AVX-512: sums take sixteen of thirty-two registers. */
#include "kernels/isa.h"

#include <immintrin.h>

typedef __m512 floats;
enum { FLOATS = 16, TILE_ROWS = 8, TILE_VECTORS = 2 };

HTH_INLINE floats no_floats(void) { return _mm512_setzero_ps(); }
HTH_INLINE floats load_floats(const float *p) { return _mm512_loadu_ps(p); }
HTH_INLINE void store_floats(float *p, floats x) { _mm512_storeu_ps(p, x); }
HTH_INLINE floats all_of(float x) { return _mm512_set1_ps(x); }
HTH_INLINE floats add_product(floats s, floats a, floats b) { return _mm512_fmadd_ps(a, b, s); }

#define LEVEL avx512
#include "kernels/training/training_tmpl.h"
