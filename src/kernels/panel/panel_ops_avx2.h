/* Operations that unpack the blocks of panels with AVX2: eight of the sixteen rows at once. quant/TYPE/panel.h
 * uses these names at every ISA level. */
#include "kernels/quant/x86/x86_256.h"

enum { SIGNED_OFFSET = 0 };

/* Half of a block of a panel. */
typedef struct panel_block {
    const uint8_t *p;
    int half; /* 0, or 1: rows 8 to 15 */
} panel_block;

typedef __m256i vints;
typedef __m256 vfloats;

/* Unit u of the field of dwords at byte `at` of a row's block. */
HTH_INLINE vints unit(panel_block a, int at, int u)
{
    return load_256(a.p + HTH_PANEL_ROW * at + 64 * u + 32 * a.half);
}

/* The F16 values at byte `at`, as floats, and the two bytes there, as dwords. */
HTH_INLINE vfloats unit_half(panel_block a, int at)
{
    return _mm256_cvtph_ps(load_128(a.p + HTH_PANEL_ROW * at + 16 * a.half));
}

HTH_INLINE vints unit_u16(panel_block a, int at)
{
    return _mm256_cvtepu16_epi32(load_128(a.p + HTH_PANEL_ROW * at + 16 * a.half));
}

/* The scales of MXFP4, the first byte of a block. */
HTH_INLINE vfloats unit_exponent(panel_block a)
{
    __m128i e = load_128(a.p);
    return mxfp4_scales(a.half ? _mm_srli_si128(e, 8) : e);
}

/* Bytes: x & m; a | (b & m); x - n. */
HTH_INLINE vints masked(vints x, int m) { return _mm256_and_si256(x, _mm256_set1_epi8((char)m)); }
HTH_INLINE vints or_masked(vints a, vints b, int m) { return _mm256_or_si256(a, masked(b, m)); }
HTH_INLINE vints less(vints x, int n) { return _mm256_sub_epi8(x, _mm256_set1_epi8((char)n)); }

/* Shifts for bits that are masked afterwards: bits may cross bytes. */
HTH_INLINE vints bits_down(vints x, int n) { return _mm256_srli_epi64(x, n); }
HTH_INLINE vints bits_up(vints x, int n) { return _mm256_slli_epi64(x, n); }

/* The n bits of each byte from bit `first` on. */
HTH_INLINE vints bit_field(vints x, int first, int n) { return masked(bits_down(x, first), (1 << n) - 1); }

/* Entries of a table, indexed by bytes of 0..15: `more` is added to each; or as signed weights. */
HTH_INLINE vints entries(const int8_t table[16], int more, vints i)
{
    __m128i t = _mm_add_epi8(load_128(table), _mm_set1_epi8((char)more));
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(t), i);
}

HTH_INLINE vints signed_entries(const int8_t table[16], vints i) { return entries(table, 0, i); }
HTH_INLINE vints signed_bytes(vints w) { return w; }

/* Moves fields of n bits: bit `first` + `step` * k of every dword to byte k, at bit `to`. Other bits of the
 * byte are undefined. */
HTH_INLINE vints spread_bits(vints x, int first, int step, int to)
{
    vints all = _mm256_setzero_si256();
    for (int k = 0; k < 4; k++) {
        int by = 8 * k + to - (first + step * k);
        vints moved = by < 0 ? _mm256_srli_epi32(x, -by) : _mm256_slli_epi32(x, by);
        all = _mm256_or_si256(all, _mm256_and_si256(moved, _mm256_set1_epi32((int)(0xffu << 8 * k))));
    }
    return all;
}

#include "kernels/panel/panel_words.h"
