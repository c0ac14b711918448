/* The work limit of a submission. Watchdogs reset a GPU whose submission takes too long, and its display freezes
 * meanwhile. Therefore a segment ends where the next dispatch would exceed about 50 ms of estimated work, and a
 * dispatch that is longer by itself is divided, into rows or tokens, which changes no result. Called while command
 * lists are recorded (recorder.c, record_attention.c, record_ffn.c).
 *
 * Counted: matrix products, attention, and the transposed down, for the maximum number of tokens and positions.
 * Everything else (norms, rotation, reductions, copies) is bandwidth-bound, about a tenth of a step. */
#include "forward/gpu/recorder.h"

/* Minimum tokens that a row counts for: a GPU reads a row in the time of its products with about four. */
enum { MIN_TOKENS = 4 };

/* ---- device rates ------------------------------------------------------------------------------------- */

/* Products of a weight and a byte per second, where none were measured: the slowest GPUs of a kind still in use. A
 * slower device gets longer submissions, which is still correct: watchdogs wait ten times as long. */
static double guessed_rate(const hth_device_info *info)
{
    switch (info->kind) {
    case HTH_DEVICE_DISCRETE: return 5e11;             /* 2 TFLOPS: half of their multiply-adds */
    case HTH_DEVICE_INTEGRATED: return 1e11;           /* a fifth of that */
    case HTH_DEVICE_SIMULATED: return info->flops / 2; /* from its description */
    case HTH_DEVICE_CPU:
    case HTH_DEVICE_REF: break;
    }
    return 2e10; /* many cores: there is neither watchdog nor display, so more segments would gain nothing */
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

/* ---- segments ----------------------------------------------------------------------------------------- */

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

uint32_t hth_rec_tokens_per_dispatch(const hth_recorder *r, uint32_t n, uint64_t work, uint32_t grain, uint32_t n_head)
{
    /* Eight workgroups for each of four groups of 64 on a processor, 64 processors. Watchdogs wait ten times as
     * long. */
    enum { MIN_GROUPS = 2048, MOST = 4 };
    uint32_t step = hth_rec_rows_per_dispatch(r, n, work, grain);
    uint64_t busy = (uint64_t)hth_div_ceil(MIN_GROUPS, n_head) * grain, most = MOST * r->g->params.max_work / work;
    if (busy > most) busy = most / grain * grain;
    if (busy > n) busy = n;
    return step > busy ? step : (uint32_t)busy;
}

void hth_rec_reserve_work(hth_recorder *r, uint64_t work)
{
    const hth_gpu_segments *t = r->segments;
    if (r->st != HEARTH_OK) return;
    uint64_t before = t->segments[t->n - 1].work;
    if (before > 0 && before + work > r->g->params.max_work) hth_rec_split(r);
    if (r->st == HEARTH_OK) t->segments[t->n - 1].work += work;
}
