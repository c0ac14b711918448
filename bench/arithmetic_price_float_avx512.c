/* Free forms of F16 rows with AVX-512. */
#include "arithmetic_price.h"
#include "kernels/isa.h"

#include <immintrin.h>
#include <string.h>

typedef __m512 V;
enum { W = 16, TILE_ROW = 4 };
#define V_ZERO _mm512_setzero_ps()
#define V_LOAD(p) _mm512_loadu_ps(p)
#define V_HALF(p) _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)(p)))
#define V_FMA(a, b, c) _mm512_fmadd_ps(a, b, c)
#define V_ADD(a, b) _mm512_add_ps(a, b)
#define V_SUM(v) sum_of(v)

/* The tree of rule R9, so that the bits can be compared. */
HTH_INLINE float sum_of(__m512 p)
{
    __m256 a = _mm256_add_ps(_mm512_castps512_ps256(p), _mm512_extractf32x8_ps(p, 1));
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}

#include "arithmetic_price_float.h"

enum { PANEL_COL = 256, PANEL_ROW = 32, PANEL_TOK = 8 };

/* Sixteen rows of sixteen floats to sixteen columns. */
HTH_INLINE void transpose(const __m512 in[16], float out[][PANEL_ROW])
{
    __m512 a[16], b[16];
    for (int i = 0; i < 8; i++) {
        a[2 * i] = _mm512_unpacklo_ps(in[2 * i], in[2 * i + 1]);
        a[2 * i + 1] = _mm512_unpackhi_ps(in[2 * i], in[2 * i + 1]);
    }
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 2; k++) {
            __m512d low = _mm512_castps_pd(a[4 * i + k]), high = _mm512_castps_pd(a[4 * i + 2 + k]);
            b[4 * i + 2 * k] = _mm512_castpd_ps(_mm512_unpacklo_pd(low, high));
            b[4 * i + 2 * k + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(low, high));
        }
    for (int i = 0; i < 4; i++) {
        __m512 u = _mm512_shuffle_f32x4(b[i], b[4 + i], 0x88),
               v = _mm512_shuffle_f32x4(b[8 + i], b[12 + i], 0x88);
        __m512 s = _mm512_shuffle_f32x4(b[i], b[4 + i], 0xdd),
               t = _mm512_shuffle_f32x4(b[8 + i], b[12 + i], 0xdd);
        _mm512_store_ps(out[i], _mm512_shuffle_f32x4(u, v, 0x88));
        _mm512_store_ps(out[8 + i], _mm512_shuffle_f32x4(u, v, 0xdd));
        _mm512_store_ps(out[4 + i], _mm512_shuffle_f32x4(s, t, 0x88));
        _mm512_store_ps(out[12 + i], _mm512_shuffle_f32x4(s, t, 0xdd));
    }
}

/* A lane is a row: panels of 32 rows, eight tokens, one sum for each output. */
static void tile_by_panel(const hth_rows *job)
{
    _Alignas(64) static float panel[PANEL_COL][PANEL_ROW], y[64][PANEL_ROW];
    for (size_t i = job->first; i < job->end; i += PANEL_ROW) {
        memset(y, 0, sizeof y);
        for (size_t first = 0; first < job->n_col; first += PANEL_COL) {
            for (size_t c = 0; c < PANEL_COL; c += 16)
                for (size_t half = 0; half < PANEL_ROW; half += 16) {
                    __m512 in[16];
                    for (size_t r = 0; r < 16; r++)
                        in[r] = V_HALF(row_of(job, i + half + r) + 2 * (first + c));
                    transpose(in, (float(*)[PANEL_ROW])(void *)&panel[c][half]);
                }
            for (size_t t = 0; t < job->n_tok; t += PANEL_TOK) {
                __m512 acc[PANEL_TOK][2];
                const float *x = job->act.x + t * job->n_col + first;
                for (size_t k = 0; k < PANEL_TOK; k++)
                    acc[k][0] = _mm512_load_ps(y[t + k]), acc[k][1] = _mm512_load_ps(y[t + k] + 16);
                for (size_t c = 0; c < PANEL_COL; c++) {
                    __m512 w0 = _mm512_load_ps(panel[c]), w1 = _mm512_load_ps(panel[c] + 16);
                    for (size_t k = 0; k < PANEL_TOK; k++) {
                        __m512 v = _mm512_set1_ps(x[k * job->n_col + c]);
                        acc[k][0] = _mm512_fmadd_ps(w0, v, acc[k][0]);
                        acc[k][1] = _mm512_fmadd_ps(w1, v, acc[k][1]);
                    }
                }
                for (size_t k = 0; k < PANEL_TOK; k++)
                    _mm512_store_ps(y[t + k], acc[k][0]), _mm512_store_ps(y[t + k] + 16, acc[k][1]);
            }
        }
        for (size_t t = 0; t < job->n_tok; t++) memcpy(job->y + t * job->y_stride + i, y[t], sizeof y[t]);
    }
}

/* The settled bits by panels: columns c mod 16 = j in a pass of their own, in the order
 * that lets the tree be built on the way. The activations of a pass lie together; that is
 * done once per input (it belongs to the step that rounds activations), so it is kept. */
static void settled_by_panel(const hth_rows *job)
{
    static const size_t order[16] = {0, 8, 4, 12, 2, 10, 6, 14, 1, 9, 5, 13, 3, 11, 7, 15};
    _Alignas(64) static float panel[16][PANEL_COL][PANEL_ROW], wait[4][64][PANEL_ROW], x[64][16][PANEL_COL];
    static const float *permuted;
    size_t n = job->n_col / 16;
    for (size_t t = 0; t < job->n_tok && permuted != job->act.x; t++)
        for (size_t c = 0; c < n; c++)
            for (size_t j = 0; j < 16; j++) x[t][j][c] = job->act.x[t * job->n_col + 16 * c + j];
    permuted = job->act.x;
    for (size_t i = job->first; i < job->end; i += PANEL_ROW) {
        for (size_t c = 0; c < n; c++)
            for (size_t half = 0; half < PANEL_ROW; half += 16) {
                __m512 in[16];
                _Alignas(64) float out[16][PANEL_ROW];
                for (size_t r = 0; r < 16; r++) in[r] = V_HALF(row_of(job, i + half + r) + 2 * 16 * c);
                transpose(in, out);
                for (size_t j = 0; j < 16; j++) _mm512_store_ps(&panel[j][c][half], _mm512_load_ps(out[j]));
            }
        for (size_t pass = 0; pass < 16; pass++) {
            size_t j = order[pass];
            for (size_t t = 0; t < job->n_tok; t += PANEL_TOK) {
                __m512 acc[PANEL_TOK][2];
                for (size_t k = 0; k < PANEL_TOK; k++) acc[k][0] = acc[k][1] = _mm512_setzero_ps();
                for (size_t c = 0; c < n; c++) {
                    __m512 w0 = _mm512_load_ps(panel[j][c]), w1 = _mm512_load_ps(panel[j][c] + 16);
                    for (size_t k = 0; k < PANEL_TOK; k++) {
                        __m512 v = _mm512_set1_ps(x[t + k][j][c]);
                        acc[k][0] = _mm512_fmadd_ps(w0, v, acc[k][0]);
                        acc[k][1] = _mm512_fmadd_ps(w1, v, acc[k][1]);
                    }
                }
                for (size_t k = 0; k < PANEL_TOK; k++)
                    for (size_t half = 0; half < 2; half++) {
                        __m512 p = acc[k][half];
                        size_t level = 0;
                        for (; level < 4 && (pass >> level & 1); level++)
                            p = _mm512_add_ps(_mm512_load_ps(wait[level][t + k] + 16 * half), p);
                        if (level == 4) _mm512_storeu_ps(job->y + (t + k) * job->y_stride + i + 16 * half, p);
                        else _mm512_store_ps(wait[level][t + k] + 16 * half, p);
                    }
            }
        }
    }
}

void price_float_avx512(price_level *l)
{
    l->decode[HTH_TYPE_F16][0] = (price_free){"4 sums of 16", decode_four_sums};
    l->tile[HTH_TYPE_F16][0] = (price_free){"panel of 32 rows, 8 tokens", tile_by_panel};
    l->tile[HTH_TYPE_F16][1] = (price_free){"settled bits, 4 rows, 4 tokens", tile_in_registers};
    l->tile[HTH_TYPE_F16][2] = (price_free){"settled bits, panel, 16 passes", settled_by_panel};
}
