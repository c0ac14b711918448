/* Submissions of tests: a calibration that is kept says how large they are; tapes are read op by op. */
#include "support/submissions.h"

#include "base/cpu.h"
#include "device/device_int.h"
#include "run/gpu/gpu_int.h"
#include "support/hybrid.h"
#include "support/made_up.h"
#include "support/test.h"

/* ---- how large they are ------------------------------------------------------------------------------- */

static char folder[512];

/* As if weights of every type had been measured. */
static void keep_all(uint64_t mark, uint64_t n_work)
{
    hth_planes planes;
    for (uint32_t type = 0; type < HTH_TYPE_LIMIT; type++) {
        hth_calibration c = made_up_card((hth_type)type, 1.0);
        if (!hth_planes_place((hth_type)type, 64, 4096, &planes)) continue;
        double measured = (double)hth_gpu_submission(hth_calibration_products(&c));
        c.device_prompt *= ((double)n_work + 0.5) / measured;
        hth_calibration_keep(mark, &c);
    }
}

bool submissions_begin(const char *device, uint32_t n_thread, uint64_t n_work)
{
    hth_cpu level;
    hth_kernels kernels;
    hth_device *d = hybrid_open_device(device);
    if (!d) return false;
    made_up_cache_open(folder);
    CHECK_OK(hth_cpu_choose(&level, err));
    hth_kernels_init(&kernels, level);
    keep_all(hth_calibration_mark(hth_device_get_info(d), &kernels, n_thread), n_work);
    hth_device_close(d);
    return true;
}

void submissions_end(void) { made_up_cache_close(folder); }

/* ---- what tapes hold ---------------------------------------------------------------------------------- */

static bool is_counted(hth_program_id id)
{
    static const hth_program_id all[] = {
        HTH_PROGRAM_rows_q,      HTH_PROGRAM_rows_q_onto,     HTH_PROGRAM_tile_q, HTH_PROGRAM_tile_q_onto,
        HTH_PROGRAM_tile_q_cm2,  HTH_PROGRAM_tile_q_cm2_onto, HTH_PROGRAM_rows_f, HTH_PROGRAM_rows_f_onto,
        HTH_PROGRAM_rows_q_live, HTH_PROGRAM_rows_f_live,     HTH_PROGRAM_attend, HTH_PROGRAM_down_q,
        HTH_PROGRAM_down_f};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i] == id) return true;
    return false;
}

/* Whether a run cannot be divided further: 64 rows, 256 neurons, a token. */
static bool is_least(const hth_op *op)
{
    const uint32_t *c = op->program->consts;
    switch (op->program->id) {
    case HTH_PROGRAM_attend: return op->kind == HTH_OP_RUN_AT || op->grid[2] == 1;
    case HTH_PROGRAM_down_q: return op->grid[1] * HTH_DOWN_SPLIT <= 256;
    case HTH_PROGRAM_down_f: return op->grid[1] * HTH_DOWN_GROUP <= 256;
    default: return op->grid[0] * (c[HTH_ROWS_LOCAL] / 8 * c[HTH_ROWS_ROWS]) <= 64;
    }
}

static void check_cut(const hth_gpu_cut *cut, uint64_t most)
{
    size_t n_op = 0, n_counted = 0, n_large = 0;
    for (size_t i = 0; i < cut->tape->n_op; i++) {
        const hth_op *op = &cut->tape->ops[i];
        bool runs = op->kind == HTH_OP_RUN || op->kind == HTH_OP_RUN_AT;
        n_op += runs || op->kind == HTH_OP_COPY;
        n_counted += runs && is_counted(op->program->id);
        n_large += runs && is_counted(op->program->id) && !is_least(op);
    }
    CHECK(n_op > 0);
    CHECK((cut->work > 0) == (n_counted > 0));
    if (cut->work > most && (n_counted > 1 || n_large > 0))
        test_fail(__FILE__, __LINE__,
                  "%zu runs, %zu of them not the least, of %llu together, %llu are allowed", n_counted,
                  n_large, (unsigned long long)cut->work, (unsigned long long)most);
}

uint64_t submissions_check(const hth_gpu *g, uint64_t *work)
{
    enum { N_OTHER = 6 };
    const hth_gpu_tapes *all[N_OTHER + HTH_PLACEMENT_STREAMS + 1] = {
        &g->tapes[0], &g->tapes[1], &g->tapes[2], &g->careful, &g->head_tapes[0], &g->head_tapes[1]};
    uint64_t n = 0;
    *work = 0;
    for (uint32_t i = 0; i < g->n_passage; i++) all[N_OTHER + i] = &g->passages[i].tapes;
    for (size_t i = 0; i < N_OTHER + g->n_passage; i++)
        for (uint32_t k = 0; k < all[i]->n; k++, n++) {
            check_cut(&all[i]->cut[k], g->place.n_work);
            *work += all[i]->cut[k].work;
        }
    return n;
}
