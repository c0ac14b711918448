/* Operations that unpack the blocks of panels on AArch64: four of the sixteen rows at once. quant/TYPE/panel.h
 * uses these names at every ISA level. */
#include "kernels/quant/arm.h"

enum { SIGNED_OFFSET = 0 };

/* A quarter of a block of a panel. */
typedef struct panel_block {
    const uint8_t *p;
    int quarter; /* 0 to 3: rows 4 * quarter to 4 * quarter + 3 */
} panel_block;

typedef uint8x16_t vints;
typedef float32x4_t vfloats;

/* Unit u of the field of dwords at byte `at` of a row's block. */
HTH_INLINE vints unit(panel_block a, int at, int u)
{
    return vld1q_u8(a.p + HTH_PANEL_ROW * at + 64 * u + 16 * a.quarter);
}

/* The F16 values at byte `at`, as floats, and the two bytes there, as dwords. */
HTH_INLINE uint8x8_t four_halves(panel_block a, int at)
{
    return vld1_u8(a.p + HTH_PANEL_ROW * at + 8 * a.quarter);
}

HTH_INLINE vfloats unit_half(panel_block a, int at)
{
    return vcvt_f32_f16(vreinterpret_f16_u8(four_halves(a, at)));
}

HTH_INLINE vints unit_u16(panel_block a, int at)
{
    return vreinterpretq_u8_u32(vmovl_u16(vreinterpret_u16_u8(four_halves(a, at))));
}

/* The scales of MXFP4, the first byte of a block. */
HTH_INLINE vfloats unit_exponent(panel_block a)
{
    uint8x8_t e = vcreate_u8(hth_load_u32(a.p + 4 * a.quarter));
    return powers(vmovl_u16(vget_low_u16(vmovl_u8(e))));
}

/* Bytes: x & m; a | (b & m), for a without bits of m; x - n. */
HTH_INLINE vints masked(vints x, int m) { return vandq_u8(x, vdupq_n_u8((uint8_t)m)); }
HTH_INLINE vints or_masked(vints a, vints b, int m) { return vbslq_u8(vdupq_n_u8((uint8_t)m), b, a); }
HTH_INLINE vints less(vints x, int n) { return vsubq_u8(x, vdupq_n_u8((uint8_t)n)); }

/* Shifts for bits that are masked afterwards. */
HTH_INLINE vints bits_down(vints x, int n) { return x >> vdupq_n_u8((uint8_t)n); }
HTH_INLINE vints bits_up(vints x, int n) { return x << vdupq_n_u8((uint8_t)n); }

/* The n bits of each byte from bit `first` on. */
HTH_INLINE vints bit_field(vints x, int first, int n)
{
    return first + n == 8 ? bits_down(x, first) : masked(bits_down(x, first), (1 << n) - 1);
}

/* Entries of a table, indexed by bytes of 0..15: `more` is added to each; or as signed weights. */
HTH_INLINE vints entries(const int8_t table[16], int more, vints i)
{
    return vreinterpretq_u8_s8(vqtbl1q_s8(vaddq_s8(vld1q_s8(table), vdupq_n_s8((int8_t)more)), i));
}

HTH_INLINE vints signed_entries(const int8_t table[16], vints i) { return entries(table, 0, i); }
HTH_INLINE vints signed_bytes(vints w) { return w; }

/* Selects bytes of every dword by the bytes of `at`, lowest first: 0 to 3, or 0x80 for zero. */
HTH_INLINE vints pick(vints x, uint32_t at)
{
    uint64x2_t fours = vcombine_u64(vcreate_u64(0x0404040400000000u), vcreate_u64(0x0c0c0c0c08080808u));
    return vqtbl1q_u8(x, vaddq_u8(vreinterpretq_u8_u64(fours), vreinterpretq_u8_u32(vdupq_n_u32(at))));
}

/* Moves fields of n bits: bit `first` + `step` * k of every dword to byte k, at bit `to`. Other bits of the
 * byte are undefined. No field crosses a byte. */
HTH_INLINE vints spread_bits(vints x, int first, int step, int to)
{
    uint32_t at = 0, up = 0;
    for (int k = 3; k >= 0; k--) {
        int bit = first + step * k;
        at = at << 8 | (uint32_t)(bit / 8);
        up = up << 8 | (uint8_t)(to - bit % 8);
    }
    return vshlq_u8(pick(x, at), vreinterpretq_s8_u32(vdupq_n_u32(up)));
}

#include "kernels/panel/panel_words.h"
