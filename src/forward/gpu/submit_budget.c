/* How much work a submission may be. Watchdogs reset a card whose submission takes too long, and the screen
 * that it draws stands still meanwhile. So a tape ends where the next run would take it beyond some 50 ms of
 * estimated work, and a run that takes longer by itself is divided: into rows, or into tokens, which changes
 * no result. Called while tapes are recorded (recorder.c, record.c, record_ffn.c).
 *
 * Counted are products of rows, attention, and down of neurons, for as many tokens and positions as there can
 * be. All else (norms, rotation, sums of parts, copies) goes by bandwidth, and is some tenth of a step. */
#include "forward/gpu/recorder.h"

/* Tokens that a row counts for, at least: a card reads it in the time of products with some four. */
enum { MIN_TOKENS = 4 };

/* ---- of a device -------------------------------------------------------------------------------------- */

/* Products of a weight and a byte in a second, where nobody has measured them: what the slowest cards of a
 * kind that are still in use should do. Where one does less, its submissions are longer than meant, not
 * wrong: watchdogs wait ten times as long. */
static double guessed_rate(const hth_device_info *info)
{
    switch (info->kind) {
    case HTH_DEVICE_DISCRETE: return 5e11;             /* of 2 TFLOPS: half of their multiply-adds */
    case HTH_DEVICE_INTEGRATED: return 1e11;           /* a fifth of that */
    case HTH_DEVICE_SIMULATED: return info->flops / 2; /* as its description says */
    case HTH_DEVICE_CPU:
    case HTH_DEVICE_REF: break;
    }
    return 2e10; /* many cores: there is neither watchdog nor screen, so more tapes would gain nothing */
}

uint64_t hth_gpu_max_submit_work(double rate)
{
    uint64_t work = (uint64_t)(rate * 1e-3 * HTH_GPU_SUBMIT_MS);
    return work > 0 ? work : 1;
}

uint64_t hth_gpu_default_submit_work(const hth_device_info *info)
{
    return hth_gpu_max_submit_work(guessed_rate(info));
}

/* ---- of a tape ---------------------------------------------------------------------------------------- */

uint64_t hth_rec_row_work(uint64_t n_col, uint32_t n_tok, hth_dot_mode how)
{
    return n_col * (n_tok > MIN_TOKENS ? n_tok : MIN_TOKENS) * how;
}

uint32_t hth_rec_rows_per_dispatch(const hth_recorder *r, uint32_t n, uint64_t work, uint32_t grain)
{
    uint64_t max = r->g->params.max_work / work / grain;
    uint32_t n_grain = hth_div_ceil(n, grain), n_run = hth_div_ceil(n_grain, max > 0 ? max : 1);
    return hth_div_ceil(n_grain, n_run) * grain;
}

void hth_rec_reserve_work(hth_recorder *r, uint64_t work)
{
    const hth_gpu_segments *t = r->segments;
    if (r->st != HEARTH_OK) return;
    uint64_t before = t->segments[t->n - 1].work;
    if (before > 0 && before + work > r->g->params.max_work) hth_rec_split(r);
    if (r->st == HEARTH_OK) t->segments[t->n - 1].work += work;
}
