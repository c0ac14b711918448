/* Rows of a type with a grid (grid_kernels.h) with AVX-512 (VNNI, VBMI). Entries of IQ2 and IQ3 are computed from codes
 * (grids.h) that unpack() has looked up. Those of IQ1, of which there are too many, are gathered by loads that fill lanes
 * with one entry. */
#ifndef INDEX
#define INDEX(k, g) (k)->high.index[g]
#endif

enum { OFFSET_SHIFT = HAS_SIGNS ? -1 : 4, SUMS_FIT_16 = 1 };

#ifdef VALUES
/* Weights 64i to 64i + 63 without their signs. */
HTH_INLINE __m512i weights(const block *k, int i)
{
    const uint16_t *at = k->high.index + 64 / GRID_WIDTH * i;
    __m512i codes = GRID_WIDTH == 8 ? _mm512_cvtepu16_epi64(load_128(at)) : _mm512_cvtepu16_epi32(load_256(at));
    __m512i bits = _mm512_set1_epi64(GRID_WIDTH == 8 ? 0x0e0c0a0806040200 : 0x2926232009060300);
    __m512i digits = _mm512_multishift_epi64_epi8(bits, codes);
    return _mm512_permutexvar_epi8(digits, _mm512_set1_epi64(VALUES));
}
#else
HTH_INLINE __m256i four_entries(const block *k, int g)
{
    __m256i x = _mm256_set1_epi64x((int64_t)GRID[INDEX(k, g)]);
    HTH_UNROLL
    for (int i = 1; i < 4; i++)
        x = _mm256_mask_mov_epi64(x, (__mmask8)(1 << i), _mm256_set1_epi64x((int64_t)GRID[INDEX(k, g + i)]));
    return x;
}

/* Weights 64i to 64i + 63, too large by 16. */
HTH_INLINE __m512i weights(const block *k, int i)
{
    return _mm512_inserti64x4(_mm512_castsi256_si512(four_entries(k, 8 * i)), four_entries(k, 8 * i + 4), 1);
}
#endif

/* Moves the signs of weights 64i to 64i + 63 to the inputs. */
HTH_INLINE __m512i signed_inputs(const block *k, int i, __m512i q)
{
    return HAS_SIGNS ? _mm512_mask_sub_epi8(q, hth_load_u64(k->high.sign + 8 * i), _mm512_setzero_si512(), q) : q;
}

#define SIGNED(k, i, q) signed_inputs(k, i, q)
#define IN_MEMORY
#include "kernels/quant/x86/x86_512_wide.h"
#include "kernels/quant/rows_256_tmpl.h"

/* ---- several tokens ---------------------------------------------------------------------------- */

HTH_INLINE __m512i unsigned_weights(const block *k, int i)
{
    __m512i w = weights(k, i), offset = _mm512_set1_epi8(64);
    if (!HAS_SIGNS) return w;
    return _mm512_mask_sub_epi8(_mm512_add_epi8(offset, w), hth_load_u64(k->high.sign + 8 * i), offset, w);
}

#define OFFSET_SHIFT (HAS_SIGNS ? 6 : 4)
#define FROM_ROWS
#define ROWS_FOR_ONE_TOKEN
enum { WEIGHT_MAX = 127, SCALES_SIGNED = 0 };
#include "kernels/panel/panel_ops_avx512.h"
#include "kernels/panel/panel_256_avx512.h"
