/* Rows of Q8_0 with AVX2: the weights are loaded where they are used. */
#define HAS_MINIMUM 0
#include "kernels/x86_256.h"

enum { BLOCK_SIZE = 34 };

typedef struct group {
    const uint8_t *p;
    __m256 d;
} group;

HTH_INLINE __m256 block_scales(const uint8_t *p) { return scales(p, BLOCK_SIZE); }

HTH_INLINE group unpack(const uint8_t *p) { return (group){p, block_scales(p)}; }

HTH_INLINE __m256i block_weights(const group *g, int i) { return load_256(g->p + i * BLOCK_SIZE + 2); }

#include "kernels/x86_256_signed.h"

#include "kernels/rows_tmpl.h"

#include "kernels/axpy_avx2.h"

enum { PAIR_SHIFT = -1 };

HTH_INLINE void two_rows(const uint8_t *a, const uint8_t *b, __m256i w[4])
{
    signed_pairs(load_256(a + 2), load_256(b + 2), w);
}

#include "kernels/axpy_32_avx2.h"

static const hth_type panel_type = HTH_TYPE_Q8_0;

#include "kernels/panel_ops_avx2.h"
#include "kernels/panel_words.h"

#include "kernels/panel_q8_0.h"

#include "kernels/panel_32_avx2.h"

void hth_kernels_q8_0_avx2(hth_kernels *k)
{
    k->rows[HTH_TYPE_Q8_0] = rows;
    k->axpy[HTH_TYPE_Q8_0] = down;
    k->panels[HTH_TYPE_Q8_0] = panels;
    k->layout[HTH_TYPE_Q8_0] = HTH_LAYOUT_PANELS;
}
