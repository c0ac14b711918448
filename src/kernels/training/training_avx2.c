/* Training with AVX2 and FMA: sums take twelve of sixteen registers. */
#include "kernels/isa.h"

#include <immintrin.h>

typedef __m256 floats;
enum { FLOATS = 8, TILE_ROWS = 6, TILE_VECTORS = 2 };

HTH_INLINE floats no_floats(void) { return _mm256_setzero_ps(); }
HTH_INLINE floats load_floats(const float *p) { return _mm256_loadu_ps(p); }
HTH_INLINE void store_floats(float *p, floats x) { _mm256_storeu_ps(p, x); }
HTH_INLINE floats all_of(float x) { return _mm256_set1_ps(x); }
HTH_INLINE floats add_product(floats s, floats a, floats b) { return _mm256_fmadd_ps(a, b, s); }

#define LEVEL avx2
#include "kernels/training/training_tmpl.h"
