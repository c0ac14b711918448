/* Compaction with AVX2: eight values are compared at a time. The kept ones, usually few, are written one by
 * one. */
#include "kernels/isa.h"

#include <immintrin.h>

HTH_INLINE int32_t number_of(const hth_compact *job, size_t i) { return job->list ? job->list[i] : (int32_t)i; }

HTH_INLINE size_t keep(const hth_compact *job, size_t i, size_t n)
{
    float x = job->x[i];
    job->out_idx[n] = number_of(job, i);
    if (job->out_x) job->out_x[n] = x;
    return n + 1;
}

HTH_INLINE __m256 thresholds_of(const hth_compact *job, size_t i)
{
    if (!job->thresholds) return _mm256_set1_ps(job->threshold);
    if (!job->list) return _mm256_loadu_ps(job->thresholds + i);
    return _mm256_i32gather_ps(job->thresholds, _mm256_loadu_si256((const __m256i *)(job->list + i)), 4);
}

HTH_INLINE size_t compact_masked(const hth_compact *job, int magnitudes)
{
    const __m256 mask = _mm256_castsi256_ps(_mm256_set1_epi32(magnitudes ? 0x7fffffff : -1));
    size_t n = 0, i = 0;
    for (; i + 8 <= job->n; i += 8) {
        __m256 x = _mm256_and_ps(_mm256_loadu_ps(job->x + i), mask);
        unsigned kept = (unsigned)_mm256_movemask_ps(_mm256_cmp_ps(x, thresholds_of(job, i), _CMP_NLT_UQ));
        for (; kept; kept &= kept - 1) n = keep(job, i + (unsigned)__builtin_ctz(kept), n);
    }
    for (; i < job->n; i++) {
        float x = magnitudes ? __builtin_fabsf(job->x[i]) : job->x[i];
        float threshold = job->thresholds ? job->thresholds[number_of(job, i)] : job->threshold;
        if (!(x < threshold)) n = keep(job, i, n);
    }
    return n;
}

static size_t compact_values(const hth_compact *job) { return compact_masked(job, 0); }
static size_t compact_magnitudes(const hth_compact *job) { return compact_masked(job, 1); }

void hth_kernels_compact_avx2(hth_kernels *k)
{
    k->compact = compact_values;
    k->compact_abs = compact_magnitudes;
}
