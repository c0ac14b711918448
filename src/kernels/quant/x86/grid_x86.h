/* Helpers that unpack the blocks of a type with a grid (grids.h) with AVX2 and AVX-512: indices, signs, shifts and
 * scales of a whole block, in 256-bit registers. */
#ifdef HTH_LEVEL_AVX2
#include "kernels/quant/x86/x86_256.h"
#else
#include "kernels/quant/x86/x86_512.h"
#endif

#define HIGH_BITS grid_codes
typedef struct grid_codes {
    _Alignas(64) uint16_t index[N_INDEX]; /* indices of entries, or codes; [1] if indices are bytes of the block */
    uint8_t sign[32]; /* bit j of byte i: weight 8i + j is negative */
} grid_codes;
#include "kernels/quant/x86/x86_wide.h"

HTH_INLINE void store_256(void *p, __m256i x) { _mm256_storeu_si256(p, x); }

/* The low half of each byte before its high half: bytes of 0..15. */
HTH_INLINE __m128i eight_nibbles(__m128i x)
{
    const __m128i low = _mm_set1_epi8(15);
    return _mm_unpacklo_epi8(_mm_and_si128(x, low), _mm_and_si128(_mm_srli_epi16(x, 4), low));
}

/* 2 s + 1 in 16 bits. */
HTH_INLINE __m256i odd_scales(__m256i s)
{
    return _mm256_add_epi16(_mm256_add_epi16(s, s), _mm256_set1_epi16(1));
}
HTH_INLINE __m256i odd_scales_of_bytes(__m128i s) { return odd_scales(_mm256_cvtepu8_epi16(s)); }

/* Bytes of seven signs, to which the eighth is added (hth_even_signs). */
HTH_INLINE __m256i with_eighth_signs(__m256i seven)
{
    const __m256i odd = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, -128, -128, 0, -128, 0, 0, -128, -128, 0, 0, -128, 0, -128, -128, 0));
    __m256i high = _mm256_and_si256(_mm256_srli_epi16(seven, 4), _mm256_set1_epi8(15));
    __m256i low = _mm256_and_si256(seven, _mm256_set1_epi8(15));
    __m256i eighth = _mm256_xor_si256(_mm256_shuffle_epi8(odd, low), _mm256_shuffle_epi8(odd, high));
    return _mm256_or_si256(seven, eighth);
}

/* Signs and scales from eight words (hth_read_signs_and_scale). */
HTH_INLINE void take_words(block *k, __m256i words)
{
#ifdef HTH_LEVEL_AVX512
    __m256i all = _mm256_multishift_epi64_epi8(_mm256_set1_epi64x(0x352e2720150e0700), words);
    all = _mm256_and_si256(all, _mm256_set1_epi8(0x7f));
#else
    __m256i all = _mm256_setzero_si256();
    for (int i = 0; i < 4; i++)
        all = _mm256_or_si256(all, _mm256_and_si256(_mm256_slli_epi32(words, i), _mm256_set1_epi32(0x7f << 8 * i)));
#endif
    store_256(k->high.sign, with_eighth_signs(all));
    __m256i scale = _mm256_srli_epi32(words, 28);
    k->scale = odd_scales(_mm256_or_si256(scale, _mm256_slli_epi32(scale, 16)));
}

#ifdef HTH_LEVEL_AVX512
#define IQ2_VALUES 0x002b1908002b1908

/* Bytes of a table of n = 256, 512 or 1024: the low eight bits of their indices, and the ninth and tenth. */
HTH_INLINE __m512i look_up(const uint8_t *table, int n, __m512i index, __mmask64 ninth, __mmask64 tenth)
{
    __mmask64 eighth = _mm512_movepi8_mask(index);
    __m512i part[4];
    for (int i = 0; i < n / 256; i++, table += 256)
        part[i] = _mm512_mask_blend_epi8(
            eighth, _mm512_permutex2var_epi8(load_512(table), index, load_512(table + 64)),
            _mm512_permutex2var_epi8(load_512(table + 128), index, load_512(table + 192)));
    for (int n_pair = n / 512; n_pair > 0; n_pair /= 2, ninth = tenth)
        for (int i = 0; i < n_pair; i++) part[i] = _mm512_mask_blend_epi8(ninth, part[2 * i], part[2 * i + 1]);
    return part[0];
}

/* IQ3: codes in place of indices, from the low eight bits of 64 indices at p and their ninth bits. */
HTH_INLINE void put_codes_of_four(block *k, const uint8_t *p, uint64_t ninth, const uint8_t *codes, int n)
{
    /* The order that joining bytes of two registers undoes. */
    __m512i index = _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7), load_512(p));
    ninth = _pdep_u64(ninth, 0x00ff00ff00ff00ffu) | _pdep_u64(ninth >> 32, 0xff00ff00ff00ff00u);
    __m512i low = look_up(codes, n, index, ninth, 0), high = look_up(codes + n, n, index, ninth, 0);
    _mm512_storeu_si512(k->high.index, _mm512_unpacklo_epi8(low, high));
    _mm512_storeu_si512(k->high.index + 32, _mm512_unpackhi_epi8(low, high));
}

/* IQ2: the same from 32 indices, each of them, and its ninth and tenth bit, twice. */
HTH_INLINE void put_codes_of_eight(block *k, __m512i index, __mmask64 ninth, __mmask64 tenth, const uint8_t *codes,
                                   int n)
{
    __m512i low = look_up(codes, n, index, ninth, tenth), high = look_up(codes + n, n, index, ninth, tenth);
    _mm512_storeu_si512(k->high.index, _mm512_mask_blend_epi8(0xaaaaaaaaaaaaaaaau, low, high));
}
#endif

/* Indices 16i to 16i + 15, whose low bytes are at p. */
HTH_INLINE void put_indices(block *k, int i, const uint8_t *p, __m256i high)
{
    store_256(k->high.index + 16 * i, _mm256_or_si256(_mm256_cvtepu8_epi16(load_128(p)), high));
}
