/* Rows of Q6_K with AVX-512: nibbles and two bits above each. The sums of the activations subtract the offset
 * 32. */
#define KERNEL_NAME q6_k
#define KERNEL_TYPE HTH_TYPE_Q6_K
#define HAS_MINIMUM 0
enum { BLOCK_SIZE = 210, SCALE_AT = 208, OFFSET_SHIFT = 5, SUMS_FIT_16 = 1 };

#include "kernels/quant/x86_512.h"
#include "kernels/quant/x86_wide.h"

typedef struct block {
    const uint8_t *p;
    __m256i scale;
} block;

HTH_INLINE block unpack(const uint8_t *p) { return (block){p, _mm256_cvtepi8_epi16(load_128(p + 192))}; }

HTH_INLINE __m512i weights(const block *k, int i)
{
    __m512i bytes = load_512(k->p + 64 * (i / 2)), bits = twice_256(k->p + 128 + 32 * (i / 2));
    __m512i low = _mm512_and_si512(i % 2 ? _mm512_srli_epi16(bytes, 4) : bytes, _mm512_set1_epi8(15));
    bits = _mm512_rolv_epi64(bits, i % 2 ? by_halves(0, 62) : by_halves(4, 2));
    return or_and(low, bits, _mm512_set1_epi8(0x30));
}

#include "kernels/quant/x86_512_wide.h"

#include "kernels/quant/rows_256_tmpl.h"

#include "kernels/axpy/axpy_256_avx512.h"

#include "kernels/panel/panel_ops_avx512.h"
#include "kernels/quant/q6_k/panel.h"
#include "kernels/panel/panel_256_avx512.h"
#include "kernels/quant/entry.h"
