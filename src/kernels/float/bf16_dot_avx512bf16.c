/* Prompt products of BF16 rows with the CPU's dot product of bf16 pairs (AVX-512 BF16). Inputs are rounded to
 * bf16 and sums run in the fastest order, so results are approximate. Only sessions that request it explicitly
 * use it (hth_kernels_use_bf16_dot). Single tokens use the exact kernels. */
#include "kernels/quant/rows_loop.h"

#include <immintrin.h>

enum {
    N_PANEL = 3, /* with eight tokens, their sums fill the registers */
    N_TOK = HTH_TILE_FLOAT_TOK,
    PANEL_TOK = 128,   /* tokens that share a chunk; a multiple of a tile */
    PANEL_CHUNK = 128, /* weights of a row in a chunk */
    N_PAIR = PANEL_CHUNK / 2,
    PER_SHARE = 4, /* pairs that are multiplied per share of the prefetch */
    N_PASS = 16,
    WEIGHT_SIZE = 2,
};

typedef struct panel_work {
    __m512i w[N_PAIR][N_PANEL]; /* lane r: two weights of row r */
    uint32_t x[N_PAIR][N_TOK];  /* two inputs per token */
    uint8_t raw[PANEL_CHUNK * HTH_PANEL_ROW * WEIGHT_SIZE];
    __m512 sum[PANEL_TOK][N_PANEL];
    hth_prefetch_cursor next;
} panel_work;
_Static_assert(sizeof(panel_work) <= HTH_PANEL_WORK, "a panel's work needs more room");

/* Copies n weights of each row of a panel that begins at row i, for inputs first, first + 16, ..., which are
 * stored from position p on. An odd weight is paired with zeros. */
static void fill_chunk(panel_work *work, const hth_rows *job, size_t i, int r, size_t first, size_t p,
                       size_t n)
{
    const uint8_t *at = hth_panel_blocks(job, HTH_TYPE_BF16, WEIGHT_SIZE, i, p, first, n, work->raw);
    for (size_t k = 0; k < n; k += 2, at += 2 * HTH_PANEL_ROW * WEIGHT_SIZE) {
        __m512i a = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)at)), b;
        const uint8_t *second = at + HTH_PANEL_ROW * WEIGHT_SIZE;
        b = k + 1 < n ? _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)second))
                      : _mm512_setzero_si512();
        work->w[k / 2][r] = _mm512_or_si512(a, _mm512_slli_epi32(b, 16));
    }
}

/* Rounds the inputs of a tile for a chunk, four of each token at a time: they are read by token and written as
 * pairs. Zeros follow the last ones. */
static void round_inputs(panel_work *work, const float *x, size_t n)
{
    _Alignas(64) static const uint16_t order[32] = {0,  8,  1,  9,  2,  10, 3,  11, 4,  12, 5,
                                                    13, 6,  14, 7,  15, 16, 24, 17, 25, 18, 26,
                                                    19, 27, 20, 28, 21, 29, 22, 30, 23, 31};
    const __m512i pairs = _mm512_load_si512(order);
    for (size_t k = 0; k < n; k += 4, x += 4 * N_TOK) {
        size_t left = n - k < 4 ? n - k : 4;
        uint32_t used = left == 4 ? UINT32_MAX : (1u << left * N_TOK) - 1;
        __m512 a = _mm512_maskz_loadu_ps((__mmask16)used, x);
        __m512 b = _mm512_maskz_loadu_ps((__mmask16)(used >> 16), x + 2 * N_TOK);
        __m512i both = (__m512i)_mm512_cvtne2ps_pbh(b, a);
        _mm512_storeu_si512(work->x[k / 2], _mm512_permutexvar_epi16(pairs, both));
    }
}
_Static_assert(N_TOK == 8 && N_PAIR % 2 == 0, "four inputs of a tile fill two registers");

/* Computes the whole tile even if some of its tokens are unused. The memory of the unused tokens exists. */
static void multiply_tile(panel_work *work, size_t n, size_t i_tok)
{
    __m512 s[N_TOK][N_PANEL];
    for (size_t t = 0; t < N_TOK; t++)
        for (int r = 0; r < N_PANEL; r++) s[t][r] = work->sum[i_tok + t][r];
    for (size_t k = 0; k < (n + 1) / 2; k++) {
        if (k % PER_SHARE == 0) hth_prefetch_share(&work->next, N_PANEL);
        HTH_UNROLL
        for (size_t t = 0; t < N_TOK; t++) {
            __m512bh in = (__m512bh)_mm512_set1_epi32((int)work->x[k][t]);
            for (int r = 0; r < N_PANEL; r++)
                s[t][r] = _mm512_dpbf16_ps(s[t][r], (__m512bh)work->w[k][r], in);
        }
    }
    for (size_t t = 0; t < N_TOK; t++)
        for (int r = 0; r < N_PANEL; r++) work->sum[i_tok + t][r] = s[t][r];
}

static void multiply_panels(panel_work *work, const hth_rows *job, const size_t row[N_PANEL], size_t t,
                            size_t n_tok)
{
    size_t p = 0, weight = HTH_PANEL_ROW * WEIGHT_SIZE, n_tile = (n_tok + N_TOK - 1) / N_TOK;
    for (size_t k = 0; k < PANEL_TOK; k++)
        for (int r = 0; r < N_PANEL; r++) work->sum[k][r] = _mm512_setzero_ps();
    for (size_t j = 0; j < N_PASS; j++) {
        size_t first = hth_panel_sum_order(false, j), n;
        for (size_t left = (job->n_col + N_PASS - 1 - first) / N_PASS; left > 0; left -= n, p += n) {
            n = left < PANEL_CHUNK ? left : PANEL_CHUNK;
            work->next = hth_prefetch_cursor_of(job, row, N_PANEL, (p + PANEL_CHUNK) * weight, n * weight,
                                       (n / 2 + PER_SHARE - 1) / PER_SHARE * n_tile + 1);
            for (int r = 0; r < N_PANEL; r++) fill_chunk(work, job, row[r], r, first, p, n);
            for (size_t k = 0; k < n_tok; k += N_TOK) {
                round_inputs(work, job->act.tiles.x + (t + k) * job->n_col + p * N_TOK, n);
                multiply_tile(work, n, k);
            }
            first += n * N_PASS;
        }
    }
    for (size_t k = 0; k < n_tok; k++)
        for (int r = 0; r < N_PANEL; r++)
            _mm512_storeu_ps(job->y + (t + k) * job->y_stride + row[r], work->sum[k][r]);
}

void hth_panels_bf16_dot(const hth_rows *job)
{
    if (job->n_tok == 1) {
        hth_panels_bf16_avx512(job);
        return;
    }
    panel_work *work = job->work;
    for (size_t t = 0; t < job->n_tok; t += PANEL_TOK) {
        size_t n_tok = job->n_tok - t < PANEL_TOK ? job->n_tok - t : PANEL_TOK;
        for (size_t i = job->first; i < job->end; i += N_PANEL * HTH_PANEL_ROW) {
            size_t row[N_PANEL];
            hth_panels_at(i, job->end, N_PANEL, row);
            multiply_panels(work, job, row, t, n_tok);
        }
    }
}
