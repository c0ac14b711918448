/* Compaction with AVX-512: sixteen values at a time. Stores go through a register, because a compressing store
 * to memory is microcode on Zen 4. */
#include "kernels/isa.h"

#include <immintrin.h>

/* Compacts the lanes of `in`, from entry i on, to position n. All entries below i + 16 have been read by then
 * and n <= i, so the lists may be the same. */
HTH_INLINE size_t compact_16(const hth_compact *job, size_t i, size_t n, __mmask16 in, int magnitudes)
{
    __m512i counted = _mm512_add_epi32(
        _mm512_set1_epi32((int)i), _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
    __m512i number = job->list ? _mm512_maskz_loadu_epi32(in, job->list + i) : counted;
    __m512 x = _mm512_maskz_loadu_ps(in, job->x + i), size = magnitudes ? _mm512_abs_ps(x) : x;
    __m512 threshold = _mm512_set1_ps(job->threshold);
    if (job->thresholds) threshold = _mm512_mask_i32gather_ps(threshold, in, number, job->thresholds, 4);
    __mmask16 kept = _mm512_mask_cmp_ps_mask(in, size, threshold, _CMP_NLT_UQ);
    __mmask16 out = _cvtu32_mask16((1u << __builtin_popcount(kept)) - 1);
    _mm512_mask_storeu_epi32(job->out_idx + n, out, _mm512_maskz_compress_epi32(kept, number));
    if (job->out_x) _mm512_mask_storeu_ps(job->out_x + n, out, _mm512_maskz_compress_ps(kept, x));
    return n + (size_t)__builtin_popcount(kept);
}

HTH_INLINE size_t compact_masked(const hth_compact *job, int magnitudes)
{
    size_t n = 0, i = 0;
    for (; i + 16 <= job->n; i += 16) n = compact_16(job, i, n, 0xffff, magnitudes);
    if (i < job->n) n = compact_16(job, i, n, _cvtu32_mask16((1u << (job->n - i)) - 1), magnitudes);
    return n;
}

static size_t compact_values(const hth_compact *job) { return compact_masked(job, 0); }
static size_t compact_magnitudes(const hth_compact *job) { return compact_masked(job, 1); }

void hth_kernels_compact_avx512(hth_kernels *k)
{
    k->compact = compact_values;
    k->compact_abs = compact_magnitudes;
}
