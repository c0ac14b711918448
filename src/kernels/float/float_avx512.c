/* Rows and neuron-major down of F32, F16 and BF16 with AVX-512: the sixteen partial sums are one register. */
#include "kernels/isa.h"

#include <immintrin.h>

typedef __m512 floats;

HTH_INLINE floats zeros(void) { return _mm512_setzero_ps(); }
HTH_INLINE floats load_f32(const uint8_t *p) { return _mm512_loadu_ps(p); }

HTH_INLINE floats load_f16(const uint8_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}

HTH_INLINE floats load_bf16(const uint8_t *p)
{
    __m256i halves = _mm256_loadu_si256((const __m256i *)(const void *)p);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}

HTH_INLINE floats add_products(floats p, floats w, floats x) { return _mm512_fmadd_ps(w, x, p); }

HTH_INLINE float tree(floats p)
{
    __m256 a = _mm256_add_ps(_mm512_castps512_ps256(p), _mm512_extractf32x8_ps(p, 1));
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}

/* Sixteen partial sums, four tokens and a weight use 21 of 32 registers. */
enum { ROWS_AT_ONCE = 4 };

#include "kernels/float/float_tmpl.h"

HTH_INLINE floats all_of(float x) { return _mm512_set1_ps(x); }
HTH_INLINE void store_floats(float *y, floats p) { _mm512_storeu_ps(y, p); }

#include "kernels/axpy/axpy_float_tmpl.h"

static bool flush_chain(size_t n_out, float *chain, int64_t *acc64)
{
    size_t n_whole = n_out - n_out % 8;
    unsigned all_fit = 255;
    for (size_t o = 0; o < n_whole; o += 8) {
        __m256 a = _mm256_loadu_ps(chain + o), size = _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a);
        __mmask8 fits = _mm256_cmp_ps_mask(size, _mm256_set1_ps(0x1p23f), _CMP_LT_OQ);
        __m512i part = _mm512_maskz_cvttps_epi64(fits, _mm256_mul_ps(a, _mm256_set1_ps(0x1p32f)));
        all_fit &= fits;
        _mm512_storeu_si512(acc64 + o, _mm512_add_epi64(_mm512_loadu_si512(acc64 + o), part));
        _mm256_storeu_ps(chain + o, _mm256_setzero_ps());
    }
    bool rest = hth_axpy_flush_chain(n_out - n_whole, chain + n_whole, acc64 + n_whole);
    return rest && all_fit == 255;
}

#include "kernels/panel/panel_float_avx512.h"

void hth_kernels_float_avx512(hth_kernels *k)
{
    k->axpy[HTH_TYPE_F32] = down_f32;
    k->axpy[HTH_TYPE_F16] = down_f16;
    k->axpy[HTH_TYPE_BF16] = down_bf16;
    k->axpy_flush_chain = flush_chain;
    k->rows[HTH_TYPE_F32] = rows_f32;
    k->rows[HTH_TYPE_F16] = rows_f16;
    k->rows[HTH_TYPE_BF16] = rows_bf16;
    k->panels[HTH_TYPE_F32] = panels_f32;
    k->layout[HTH_TYPE_F32] = HTH_LAYOUT_PANELS;
    k->panels[HTH_TYPE_F16] = panels_f16;
    k->layout[HTH_TYPE_F16] = HTH_LAYOUT_PANELS;
    k->panels[HTH_TYPE_BF16] = hth_panels_bf16_avx512;
    k->layout[HTH_TYPE_BF16] = HTH_LAYOUT_PANELS;
}
