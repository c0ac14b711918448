/* Rows of IQ4_XS with AVX2: nibbles are indices into a table of signed values, which fits one register. */
#define HAS_MINIMUM 0
#include "kernels/quant/blocks.h"
#include "kernels/quant/x86/x86_wide.h"

enum { BLOCK_SIZE = 136, SCALE_AT = 0, OFFSET_SHIFT = -1, SIGNED_WEIGHTS = 1, NIBBLES_AT = 0 };

HTH_INLINE block unpack(const uint8_t *p) { return (block){p, iq4_xs_scales(p)}; }

HTH_INLINE __m256i weights(const block *k, int i)
{
    const __m256i values = _mm256_broadcastsi128_si256(load_128(hth_iq4_values));
    __m256i twice = _mm256_broadcastsi128_si256(load_128(k->p + 8 + 16 * i));
    __m256i places = _mm256_srlv_epi64(twice, _mm256_setr_epi64x(0, 0, 4, 4));
    return _mm256_shuffle_epi8(values, _mm256_and_si256(places, _mm256_set1_epi8(15)));
}

/* Moves the sign of the weight to the activation, which is never -128. */
HTH_INLINE __m256i products(__m256i w, __m256i q)
{
    return _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(q, w));
}

#include "kernels/quant/x86/x86_blocks_256.h"
