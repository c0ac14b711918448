/* Rows of a type with a grid (grid_kernels.h) with AVX2: 32 weights are gathered by loads that fill a register with one
 * entry, and blends, which are cheaper than insertions and than gathers. */
#ifndef INDEX
#define INDEX(k, g) (k)->high.index[g]
#endif

enum { OFFSET_SHIFT = HAS_SIGNS ? -1 : 4 };

/* Weights 32i to 32i + 31 without their signs; those of IQ1 have none, and are too large by 16. */
HTH_INLINE __m256i weights(const block *k, int i)
{
    __m256i e[32 / GRID_WIDTH];
    HTH_UNROLL
    for (int g = 0; g < 32 / GRID_WIDTH; g++) {
        uint64_t entry = GRID[INDEX(k, 32 / GRID_WIDTH * i + g)];
        e[g] = GRID_WIDTH == 8 ? _mm256_set1_epi64x((int64_t)entry) : _mm256_set1_epi32((int)entry);
    }
#if GRID_WIDTH == 4
    for (int g = 0; g < 8; g += 2) e[g / 2] = _mm256_blend_epi32(e[g], e[g + 1], 0xaa);
#endif
    return _mm256_blend_epi32(_mm256_blend_epi32(e[0], e[1], 0x0c), _mm256_blend_epi32(e[2], e[3], 0xc0), 0xf0);
}

/* Each of four bytes eight times. */
HTH_INLINE __m256i eight_times(const uint8_t *p)
{
    const __m256i places = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    return _mm256_shuffle_epi8(_mm256_set1_epi32((int)hth_load_u32(p)), places);
}


/* Moves the signs of weights 32i to 32i + 31 to the inputs. */
HTH_INLINE __m256i signed_inputs(const block *k, int i, __m256i q)
{
    const __m256i bit = _mm256_set1_epi64x((int64_t)0x8040201008040201u);
    if (!HAS_SIGNS) return q;
    __m256i minus = _mm256_cmpeq_epi8(_mm256_and_si256(eight_times(k->high.sign + 4 * i), bit), bit);
    return _mm256_sign_epi8(q, _mm256_or_si256(minus, _mm256_set1_epi8(1)));
}

HTH_INLINE __m256i products(__m256i w, __m256i q) { return _mm256_maddubs_epi16(w, q); }

#define SIGNED(k, i, q) signed_inputs(k, i, q)
#define IN_MEMORY
#include "kernels/quant/x86/x86_256_wide.h"
#include "kernels/quant/rows_256_tmpl.h"
