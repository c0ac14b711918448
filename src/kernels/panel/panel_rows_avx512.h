/* Unpacks blocks of 256 of sixteen rows in file order to a chunk of panels with AVX-512, for panel_256_avx512.h. The
 * including file defines
 *   block, unpack(p)         the block at p, with sixteen scales of 16 bits
 *   unsigned_weights(k, i)   weights 64i to 64i + 63, plus 2^OFFSET_SHIFT
 *   BLOCK_HALF(p), UNIT      the scale of the block, and a factor of it */

/* Element g of register r becomes element r of register g. */
HTH_INLINE void transpose(__m512i x[16])
{
    __m512i a[16], b[16];
    for (int i = 0; i < 16; i += 2) {
        a[i] = _mm512_unpacklo_epi32(x[i], x[i + 1]);
        a[i + 1] = _mm512_unpackhi_epi32(x[i], x[i + 1]);
    }
    for (int i = 0; i < 16; i += 4)
        for (int k = 0; k < 2; k++) {
            b[i + 2 * k] = _mm512_unpacklo_epi64(a[i + k], a[i + 2 + k]);
            b[i + 2 * k + 1] = _mm512_unpackhi_epi64(a[i + k], a[i + 2 + k]);
        }
    for (int i = 0; i < 4; i++) {
        __m512i low = _mm512_shuffle_i32x4(b[i], b[4 + i], 0x44), high = _mm512_shuffle_i32x4(b[i], b[4 + i], 0xee);
        __m512i low_8 = _mm512_shuffle_i32x4(b[8 + i], b[12 + i], 0x44);
        __m512i high_8 = _mm512_shuffle_i32x4(b[8 + i], b[12 + i], 0xee);
        x[i] = _mm512_shuffle_i32x4(low, low_8, 0x88);
        x[4 + i] = _mm512_shuffle_i32x4(low, low_8, 0xdd);
        x[8 + i] = _mm512_shuffle_i32x4(high, high_8, 0x88);
        x[12 + i] = _mm512_shuffle_i32x4(high, high_8, 0xdd);
    }
}

HTH_INLINE void fill(chunk *to, size_t i, int r, const hth_rows *job, size_t row, size_t b)
{
    block blocks[HTH_PANEL_ROW];
    uint16_t half[HTH_PANEL_ROW];
    __m512i x[16];
    for (size_t k = 0; k < HTH_PANEL_ROW; k++) {
        const uint8_t *p = hth_row_at(job, row + k) + b * BLOCK_SIZE;
        blocks[k] = unpack(p);
        half[k] = BLOCK_HALF(p);
    }
    __asm__ volatile("" : "+m"(blocks)); /* as in rows_256_tmpl.h */
    to->block[i].d[r] = _mm512_mul_ps(_mm512_cvtph_ps(load_256(half)), _mm512_set1_ps(UNIT));
    HTH_UNROLL
    for (int k = 0; k < 4; k++) {
        for (int n = 0; n < HTH_PANEL_ROW; n++) x[n] = unsigned_weights(&blocks[n], k);
        transpose(x);
        for (int g = 0; g < 16; g++) to->block[i].w[16 * k + g][r] = x[g];
    }
    for (int n = 0; n < HTH_PANEL_ROW; n++) x[n] = _mm512_castsi256_si512(blocks[n].scale);
    transpose(x);
    for (int n = 0; n < 8; n++) to->block[i].pairs[n][r] = x[n];
    for (int n = 0; n < N_SUM; n++) {
        __m512i pair = x[n * 8 / N_SUM];
        to->block[i].scale[n][r] = n * 16 / N_SUM % 2 ? _mm512_srli_epi32(pair, 16) : _mm512_and_si512(pair, _mm512_set1_epi32(0xffff));
    }
}
