/* Rows of Q5_K with AVX2: nibbles as in Q4_K, and a fifth bit from bytes that hold eight. */
#define KERNEL_NAME q5_k
#define KERNEL_TYPE HTH_TYPE_Q5_K
#define HAS_MINIMUM 1
#include "kernels/quant/x86_wide.h"

enum { BLOCK_SIZE = 176, SCALE_AT = 0, MINIMUM_AT = 2, OFFSET_SHIFT = -1 };

typedef struct block {
    const uint8_t *p;
    __m256i fifth, scale, minimum;
} block;

HTH_INLINE block unpack(const uint8_t *p)
{
    __m128i both = k_scales(p);
    return (block){p, load_256(p + 16), low_twice(both), high_twice(both)};
}

HTH_INLINE __m256i weights(const block *k, int i)
{
    __m256i bytes = load_256(k->p + 48 + 32 * (i / 2));
    __m256i low = _mm256_and_si256(_mm256_srli_epi16(bytes, 4 * (i % 2)), _mm256_set1_epi8(15));
    __m256i bit = i < 4 ? _mm256_slli_epi16(k->fifth, 4 - i) : _mm256_srli_epi16(k->fifth, i - 4);
    return _mm256_or_si256(low, _mm256_and_si256(bit, _mm256_set1_epi8(16)));
}

HTH_INLINE __m256i products(__m256i w, __m256i q) { return _mm256_maddubs_epi16(w, q); }

#include "kernels/quant/x86_256_wide.h"

#include "kernels/quant/rows_256_tmpl.h"

enum { SIGNED_WEIGHTS = 0, NIBBLES_AT = 0 };

#define SCALES_OF_32
#include "kernels/axpy/axpy_256_avx2.h"

#include "kernels/panel/panel_ops_avx2.h"
#include "kernels/quant/q5_k/panel.h"
#include "kernels/panel/panel_256_avx2.h"
#define ROWS_FOR_ONE_TOKEN /* faster than panels */
#include "kernels/quant/entry.h"
