/* Submissions of tests: a calibration that is kept says how large they are; command lists are read command by
 * command. */
#include "support/device/submissions.h"

#include "base/system/cpu.h"
#include "device/device_int.h"
#include "forward/gpu/gpu_int.h"
#include "support/device/hybrid.h"
#include "support/models/made_up.h"
#include "support/kernels/proof.h"
#include "support/test.h"

/* ---- how large they are ------------------------------------------------------------------------------- */

static char folder[512];

/* As if weights of every type had been measured. */
static void keep_all(uint64_t fingerprint, uint64_t max_work)
{
    hth_soa_layout layout;
    for (uint32_t type = 0; type < HTH_TYPE_LIMIT; type++) {
        hth_calibration c = made_up_gpu((hth_type)type, 1.0);
        if (!hth_soa_layout_init((hth_type)type, 64, 4096, &layout)) continue;
        double measured = (double)hth_gpu_max_submit_work(hth_calibration_products(&c));
        c.device_prompts[0] *= ((double)max_work + 0.5) / measured;
        hth_calibration_cache_store(fingerprint, &c);
    }
}

bool submissions_begin(const char *device, uint32_t n_thread, uint64_t max_work)
{
    hth_cpu level;
    CLOSED(hth_device) *d = hybrid_open_device(device);
    if (!d) return false;
    made_up_cache_open(folder);
    CHECK_OK(hth_cpu_choose(NULL, &level, err));
    hth_kernels kernels = proof_kernels(level);
    keep_all(hth_calibration_fingerprint(hth_device_get_info(d), &kernels, n_thread), max_work);
    return true;
}

void submissions_end(void) { made_up_cache_close(folder); }

/* ---- what command lists hold ---------------------------------------------------------------------------------- */

static bool is_counted(hth_shader_id id)
{
    static const hth_shader_id all[] = {
        HTH_SHADER_mul_mat_vec_q, HTH_SHADER_mul_mat_vec_q_acc, HTH_SHADER_mul_mat_q, HTH_SHADER_mul_mat_q_acc,
        HTH_SHADER_mul_mat_q_cm2, HTH_SHADER_mul_mat_q_cm2_acc, HTH_SHADER_mul_mat_vec_f,
        HTH_SHADER_mul_mat_vec_f_acc, HTH_SHADER_mul_mat_vec_q_sparse, HTH_SHADER_mul_mat_vec_f_sparse,
        HTH_SHADER_mul_mat_vec_q_sliced, HTH_SHADER_mul_mat_vec_f_sliced, HTH_SHADER_mul_mat_q_sliced,
        HTH_SHADER_mul_mat_q_cm2_sliced, HTH_SHADER_attn, HTH_SHADER_down_q, HTH_SHADER_down_f, HTH_SHADER_down_q_sliced,
        HTH_SHADER_down_f_sliced, HTH_SHADER_router_rows,
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i] == id) return true;
    return false;
}

/* Whether a run cannot be divided further: 64 rows, 256 neurons, a token; or attention whose workgroups are so few that
 * four times the work is allowed. */
static bool is_least(const hth_cmd *cmd, bool is_over_four)
{
    enum { FEW_GROUPS = 2048 + 64 };
    const uint32_t *c = cmd->pipeline->consts;
    switch (cmd->pipeline->id) {
    case HTH_SHADER_attn:
        return cmd->kind == HTH_CMD_DISPATCH_INDIRECT || cmd->grid[2] == 1 ||
               (!is_over_four && cmd->grid[1] * cmd->grid[2] <= FEW_GROUPS);
    case HTH_SHADER_down_q: return cmd->grid[1] * HTH_DOWN_SPLIT <= 256;
    case HTH_SHADER_down_f: return cmd->grid[1] * HTH_CLUSTER_NEURONS <= 256;
    case HTH_SHADER_down_q_sliced:
    case HTH_SHADER_down_f_sliced: return cmd->grid[2] == 1;
    case HTH_SHADER_router_rows: return cmd->grid[0] * HTH_ROUTER_ROWS <= 64;
    default: return cmd->grid[1] * hth_rows_per_workgroup(c) <= 64;
    }
}

static void check_cut(const hth_gpu_segment *cut, uint64_t max)
{
    size_t n_op = 0, n_counted = 0, n_large = 0;
    for (size_t i = 0; i < cut->cmdlist->n_cmd; i++) {
        const hth_cmd *cmd = &cut->cmdlist->cmds[i];
        bool runs = cmd->kind == HTH_CMD_DISPATCH || cmd->kind == HTH_CMD_DISPATCH_INDIRECT;
        n_op += runs || cmd->kind == HTH_CMD_COPY;
        n_counted += runs && is_counted(cmd->pipeline->id);
        n_large += runs && is_counted(cmd->pipeline->id) && !is_least(cmd, cut->work > 4 * max);
    }
    CHECK(n_op > 0);
    CHECK((cut->work > 0) == (n_counted > 0));
    if (cut->work > max && (n_counted > 1 || n_large > 0))
        test_fail(__FILE__, __LINE__,
                  "%zu runs, %zu of them not the least, of %llu together, %llu are allowed", n_counted,
                  n_large, (unsigned long long)cut->work, (unsigned long long)max);
}

uint64_t submissions_check(const hth_gpu *g, uint64_t *work)
{
    enum { N_OTHER = HTH_GPU_N_CLASS + HTH_GPU_N_SHORT + 3 };
    const hth_gpu_segments *all[N_OTHER + HTH_PLACEMENT_STREAMS] = {&g->head_segments[0], &g->head_segments[1],
                                                                    &g->copy_segment};
    uint64_t n = 0;
    *work = 0;
    for (int i = 0; i < HTH_GPU_N_CLASS; i++) all[3 + i] = &g->segments[i];
    for (int i = 0; i < HTH_GPU_N_SHORT; i++) all[3 + HTH_GPU_N_CLASS + i] = &g->short_segments[i];
    for (uint32_t i = 0; i < g->n_stream; i++) all[N_OTHER + i] = &g->streams[i].segments;
    for (size_t i = 0; i < N_OTHER + g->n_stream; i++)
        for (uint32_t k = 0; k < all[i]->n; k++, n++) {
            if (all[i] == &g->copy_segment && g->params.host_kv) continue; /* nothing is copied */
            check_cut(&all[i]->segments[k], g->params.max_work);
            *work += all[i]->segments[k].work;
        }
    return n;
}
