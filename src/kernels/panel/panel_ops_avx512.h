/* Operations that unpack the blocks of panels with AVX-512 (VBMI): all sixteen rows at once. quant/TYPE/panel.h
 * uses these names at every ISA level. Signed weights are made unsigned by adding 128, as the dot product
 * needs. */
#include "kernels/quant/x86/x86_512.h"

enum { SIGNED_OFFSET = 128 };

/* A block of a panel. */
typedef struct panel_block {
    const uint8_t *p;
} panel_block;

typedef __m512i vints;
typedef __m512 vfloats;

/* Unit u of the field of dwords at byte `at` of a row's block. */
HTH_INLINE vints unit(panel_block a, int at, int u) { return load_512(a.p + HTH_PANEL_ROW * at + 64 * u); }

/* The F16 values at byte `at`, as floats, and the two bytes there, as dwords. */
HTH_INLINE vfloats unit_half(panel_block a, int at)
{
    return _mm512_cvtph_ps(load_256(a.p + HTH_PANEL_ROW * at));
}

HTH_INLINE vints unit_u16(panel_block a, int at)
{
    return _mm512_cvtepu16_epi32(load_256(a.p + HTH_PANEL_ROW * at));
}

/* The scales of MXFP4, the first byte of a block. */
HTH_INLINE vfloats unit_exponent(panel_block a)
{
    __m128i e = load_128(a.p);
    return _mm512_insertf32x8(_mm512_castps256_ps512(mxfp4_scales(e)), mxfp4_scales(_mm_srli_si128(e, 8)), 1);
}

/* Bytes: x & m; a | (b & m); x - n. */
HTH_INLINE vints masked(vints x, int m) { return _mm512_and_si512(x, _mm512_set1_epi8((char)m)); }
HTH_INLINE vints or_masked(vints a, vints b, int m) { return or_and(a, b, _mm512_set1_epi8((char)m)); }
HTH_INLINE vints less(vints x, int n) { return _mm512_sub_epi8(x, _mm512_set1_epi8((char)n)); }

/* Shifts for bits that are masked afterwards: bits may cross bytes. */
HTH_INLINE vints bits_down(vints x, int n) { return bits_from(x, n); }
HTH_INLINE vints bits_up(vints x, int n) { return _mm512_sllv_epi64(x, _mm512_set1_epi64(n)); }

/* The n bits of each byte from bit `first` on. */
HTH_INLINE vints bit_field(vints x, int first, int n) { return masked(bits_down(x, first), (1 << n) - 1); }

/* Entries of a table, indexed by bytes of 0..15: `more` is added to each; or as signed weights. */
HTH_INLINE vints entries(const int8_t table[16], int more, vints i)
{
    __m128i t = _mm_add_epi8(load_128(table), _mm_set1_epi8((char)more));
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(t), i);
}

HTH_INLINE vints signed_entries(const int8_t table[16], vints i) { return entries(table, 128, i); }
HTH_INLINE vints signed_bytes(vints w) { return _mm512_xor_si512(w, _mm512_set1_epi8((char)0x80)); }

/* Moves fields of n bits: bit `first` + `step` * k of every dword to byte k, at bit `to`. Other bits of the
 * byte are undefined. */
HTH_INLINE vints spread_bits(vints x, int first, int step, int to)
{
    int64_t from = 0;
    for (int k = 7; k >= 0; k--) from = from << 8 | ((first + step * (k % 4) + 32 * (k / 4) - to) & 63);
    return _mm512_multishift_epi64_epi8(_mm512_set1_epi64(from), x);
}

#include "kernels/panel/panel_words.h"
