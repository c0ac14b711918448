/* Rows of Q8_0 with AVX2: weights are loaded where they are used. */
#define KERNEL_NAME q8_0
#define KERNEL_TYPE HTH_TYPE_Q8_0
#define HAS_MINIMUM 0
#include "kernels/quant/x86_256.h"

enum { BLOCK_SIZE = 34 };

typedef struct group {
    const uint8_t *p;
    __m256 d;
} group;

HTH_INLINE __m256 block_scales(const uint8_t *p) { return scales(p, BLOCK_SIZE); }

HTH_INLINE group unpack(const uint8_t *p) { return (group){p, block_scales(p)}; }

HTH_INLINE __m256i block_weights(const group *g, int i) { return load_256(g->p + i * BLOCK_SIZE + 2); }

#include "kernels/quant/x86_256_signed.h"

#include "kernels/quant/rows_tmpl.h"

#include "kernels/axpy/axpy_avx2.h"

enum { PAIR_SHIFT = -1 };

HTH_INLINE void two_rows(const uint8_t *a, const uint8_t *b, __m256i w[4])
{
    signed_pairs(load_256(a + 2), load_256(b + 2), w);
}

#include "kernels/axpy/axpy_32_avx2.h"

#include "kernels/panel/panel_ops_avx2.h"
#include "kernels/quant/q8_0/panel.h"
#include "kernels/panel/panel_32_avx2.h"
#include "kernels/quant/entry.h"
