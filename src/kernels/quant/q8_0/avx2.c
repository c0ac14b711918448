/* Rows of Q8_0 with AVX2: weights are loaded where they are used. */
#define HAS_MINIMUM 0
#include "kernels/axpy/axpy_avx2.h"

enum { BLOCK_SIZE = 34, PAIR_SHIFT = -1 };

typedef struct {
    const uint8_t *p;
    __m256 d;
} group;

HTH_INLINE __m256 block_scales(const uint8_t *p) { return scales(p, BLOCK_SIZE); }

HTH_INLINE group unpack(const uint8_t *p) { return (group){p, block_scales(p)}; }

HTH_INLINE __m256i block_weights(const group *g, int i) { return load_256(g->p + i * BLOCK_SIZE + 2); }

#include "kernels/quant/x86/x86_256_signed.h"

HTH_INLINE void two_rows(const uint8_t *a, const uint8_t *b, __m256i w[4])
{
    signed_pairs(load_256(a + 2), load_256(b + 2), w);
}

#include "kernels/quant/x86/x86_blocks_32.h"
