/* Rows of Q8_0 with AVX2: the weights are loaded where they are used. */
#define HAS_MINIMUM 0
#include "kernels/x86_256.h"

enum { BLOCK_SIZE = 34 };

typedef struct group {
    const uint8_t *p;
    __m256 d;
} group;

HTH_INLINE group unpack(const uint8_t *p) { return (group){p, scales(p, BLOCK_SIZE)}; }

HTH_INLINE __m256i block_weights(const group *g, int i) { return load_256(g->p + i * BLOCK_SIZE + 2); }

#include "kernels/x86_256_signed.h"

#include "kernels/rows_tmpl.h"

void hth_kernels_q8_0_avx2(hth_kernels *k) { k->rows[HTH_TYPE_Q8_0] = rows; }
