/* Rows of IQ4_NL with AVX2: nibbles are indices into a table of signed values, which fits one register. */
#define HAS_MINIMUM 0
#include "kernels/quant/blocks.h"
#include "kernels/axpy/axpy_avx2.h"

enum { BLOCK_SIZE = 18, PAIR_SHIFT = -1 };

typedef struct {
    __m256i w[8];
    __m256 d;
} group;

HTH_INLINE __m256 block_scales(const uint8_t *p) { return scales(p, BLOCK_SIZE); }

/* The 32 weights of the block at p. */
HTH_INLINE __m256i block_bytes(const uint8_t *p)
{
    const __m256i values = _mm256_broadcastsi128_si256(load_128(hth_iq4_values));
    __m256i twice = _mm256_broadcastsi128_si256(load_128(p + 2));
    __m256i places = _mm256_srlv_epi64(twice, _mm256_setr_epi64x(0, 0, 4, 4));
    return _mm256_shuffle_epi8(values, _mm256_and_si256(places, _mm256_set1_epi8(15)));
}

HTH_INLINE group unpack(const uint8_t *p)
{
    group g = {.d = block_scales(p)};
    for (int i = 0; i < 8; i++) g.w[i] = block_bytes(p + i * BLOCK_SIZE);
    return g;
}

HTH_INLINE __m256i block_weights(const group *g, int i) { return g->w[i]; }

#include "kernels/quant/x86/x86_256_signed.h"

HTH_INLINE void two_rows(const uint8_t *a, const uint8_t *b, __m256i w[4])
{
    signed_pairs(block_bytes(a), block_bytes(b), w);
}

#include "kernels/quant/x86/x86_blocks_32.h"
