/* Times rows for many tokens on a device, once for each way to compute them: by dot products, and by the matrix units
 * that it has. Called when a GPU is opened for the first time, and for plans (placement/). Which way is the fastest
 * depends on the GPU and its driver; all of them give the same bits. */
#include "forward/gpu/recorder.h"

#include "base/alloc.h"
#include "base/checked_math.h"
#include "base/sample_stats.h"

#include <string.h>

/* Columns of a row; rows and tokens: as many as occupy a large GPU, or few for a device that computes on the CPU or of
 * which a description gives the rates. */
enum { N_COL = 4096, MAX_ROW = 4096, MAX_TOK = 256, FEW_ROW = 256, FEW_TOK = 64, MIN_ROW = 64, ROUNDS = 3 };
/* A run of so many rows is timed first; if it is short, all rows are, again and again in one command list. */
enum { FIRST_ROW = 512, MAX_REPEAT = 1024 };
static const double SHORT_S = 2e-3, ENOUGH_S = 5e-3;
static const uint64_t TIMEOUT_NS = (uint64_t)60000000000;

typedef struct bench {
    hth_device *device;
    bool is_gpu;
    hth_type type;
    hth_quant_desc desc;
    uint32_t n_row, n_tok;
    hth_soa_layout layout;
    hth_buffer *weights, *memory;
    uint64_t q, d, sum; /* bytes of the inputs; the step block precedes them */
} bench;

enum { STEP = 256 };

static uint64_t align_256(uint64_t bytes) { return (bytes + 255) / 256 * 256; }

/* Half of the free memory is for weights and results. */
static uint32_t rows_that_fit(const bench *b)
{
    hth_device_usage use = hth_device_state(b->device);
    uint32_t max = b->is_gpu ? MAX_ROW : FEW_ROW;
    uint64_t each = hth_type_row_size(b->type, N_COL) + b->n_tok * sizeof(float);
    uint64_t n = (use.limit - use.used) / 2 / each / MIN_ROW * MIN_ROW;
    return n < MIN_ROW ? MIN_ROW : n < max ? (uint32_t)n : max;
}

/* Zeros: the time does not depend on values. A simulated device computes no token, its clock counts bytes. */
static hearth_status upload_zeros(const bench *b, hearth_error *err)
{
    uint64_t inputs = STEP + b->q + b->d + b->sum, size = hth_max_u64(inputs, b->layout.size);
    uint32_t *zeros = hth_alloc(size, 1);
    if (!zeros) return hth_fail_memory(err, size, "a calibration");
    hearth_status st = hth_device_upload((hth_buffer_range){b->weights, 0, 0}, zeros, err);
    zeros[HTH_STEP_N_TOK] = hth_device_get_info(b->device)->kind == HTH_DEVICE_SIMULATED ? 0 : b->n_tok;
    if (st == HEARTH_OK) st = hth_device_upload((hth_buffer_range){b->memory, 0, inputs}, zeros, err);
    hth_free(zeros);
    return st;
}

static hearth_status open_bench(bench *b, hearth_error *err)
{
    b->n_tok = b->is_gpu ? MAX_TOK : FEW_TOK;
    b->n_row = rows_that_fit(b);
    if (!hth_quant_desc_of(b->type, &b->desc) || !hth_soa_layout_init(b->type, b->n_row, N_COL, &b->layout))
        return hth_fail(err, HEARTH_ERROR_UNSUPPORTED, "no shader supports %s",
                        hth_type_find((uint32_t)b->type)->name);
    b->q = align_256((uint64_t)b->n_tok * N_COL), b->d = align_256((uint64_t)b->n_tok * N_COL / HTH_ACT_BLOCK * 4);
    b->sum = align_256((uint64_t)b->n_tok * N_COL / HTH_ACT_SUBBLOCK * 4);
    uint64_t y = (uint64_t)b->n_tok * b->n_row * sizeof(float);
    hearth_status st = hth_buffer_new(b->device, HTH_MEMORY_DEVICE, STEP + b->q + b->d + b->sum + y,
                                      "a calibration", &b->memory, err);
    if (st == HEARTH_OK)
        st = hth_buffer_new(b->device, HTH_MEMORY_DEVICE, b->layout.size, "a calibration", &b->weights, err);
    return st == HEARTH_OK ? upload_zeros(b, err) : st;
}

static void close_bench(bench *b)
{
    hth_queue_drain(b->device, TIMEOUT_NS, NULL);
    hth_buffer_free(b->weights);
    hth_buffer_free(b->memory);
}

/* Constants as recorder.c chooses them. false: the device cannot compute so. */
static bool choose(const bench *b, hth_coopmat_level level, uint32_t consts[HTH_TILE_N_CONST])
{
    const hth_device_info *info = hth_device_get_info(b->device);
    const uint32_t rows[HTH_TILE_N_CONST] = {HTH_REC_LOCAL, HTH_GPU_FEW_ROWS,
                                             hth_rec_rows_of_many(info, b->desc.block == HTH_ACT_BLOCK_256), 0, 8};
    memcpy(consts, rows, sizeof rows);
    memcpy(consts + HTH_ROWS_FORMAT, &b->desc, sizeof b->desc);
    if (level == HTH_COOPMAT_CM2 && !(info->features & HTH_FEATURE_COOPMAT2)) return false;
    return level == HTH_COOPMAT_NONE || hth_gpu_choose_tile(info, &b->desc, level, b->n_tok, consts) == level;
}

/* The first n_row rows, n_repeat times. */
static hearth_status record(const bench *b, const hth_pipeline *pipeline, const uint32_t *consts, uint32_t n_row,
                            uint32_t n_repeat, hth_cmdlist **list, hearth_error *err)
{
    hth_buffer_range y = {b->memory, STEP + b->q + b->d + b->sum, (uint64_t)b->n_tok * b->n_row * sizeof(float)};
    const hth_buffer_range step = {b->memory, 0, STEP},
                           bind[] = {step,
                                     {b->weights, 0, 0},
                                     {b->memory, STEP, b->q},
                                     {b->memory, STEP + b->q, b->d},
                                     {b->memory, STEP + b->q + b->d, b->sum},
                                     step,
                                     y};
    const hth_push_mul_mat_vec_q push = {
        .n_row = n_row, .n_block = N_COL / b->desc.block, .y_stride = b->n_row, .at = b->layout.offsets};
    hearth_status st = hth_cmdlist_begin(b->device, list, err);
    if (st != HEARTH_OK) return st;
    for (uint32_t i = 0; i < n_repeat; i++) {
        if (i > 0) hth_cmdlist_barrier(*list, &y, 1);
        hth_cmdlist_dispatch(*list, pipeline, bind, &push, hth_div_ceil(b->n_tok, consts[HTH_ROWS_COLS]),
                             hth_div_ceil(n_row, hth_rows_per_workgroup(consts)), 1);
        hth_cmdlist_hint_bytes(*list, b->layout.size * n_row / b->n_row);
    }
    return hth_cmdlist_end(*list, err);
}

/* Median seconds of some runs, after one that is not counted. */
static hearth_status time_runs(const bench *b, hth_cmdlist *list, double *seconds, hearth_error *err)
{
    double all[ROUNDS];
    hearth_status st = HEARTH_OK;
    for (int i = -1; st == HEARTH_OK && i < ROUNDS; i++) {
        hth_fence fence;
        uint64_t start = hth_device_time(b->device);
        st = hth_queue_submit(b->device, (hth_submit_info[]){{.cmdlist = list}}, 1, &fence, err);
        if (st == HEARTH_OK) st = hth_queue_wait(b->device, fence, TIMEOUT_NS, err);
        all[i < 0 ? 0 : i] = (double)(hth_device_time(b->device) - start) * 1e-9;
    }
    if (st == HEARTH_OK) *seconds = hth_sample_stats_of(all, ROUNDS).median;
    return st;
}

/* Bytes times tokens per second. */
static hearth_status time_level(const bench *b, hth_coopmat_level level, double *rate, hearth_error *err)
{
    static const hth_shader_id ids[HTH_N_COOPMAT_LEVEL] = {HTH_SHADER_mul_mat_vec_q, HTH_SHADER_mul_mat_q,
                                                           HTH_SHADER_mul_mat_q_cm2};
    uint32_t consts[HTH_TILE_N_CONST], n_row = b->is_gpu ? FIRST_ROW : b->n_row, n_repeat = 1;
    const hth_pipeline *pipeline;
    double seconds = 0.0;
    if (!choose(b, level, consts)) return HEARTH_OK;
    hearth_status st = hth_pipeline_get(b->device, ids[level], consts, &pipeline, err);
    if (n_row > b->n_row) n_row = b->n_row;
    for (bool enough = false; st == HEARTH_OK && !enough;) {
        hth_cmdlist *list = NULL;
        st = record(b, pipeline, consts, n_row, n_repeat, &list, err);
        if (st == HEARTH_OK) st = time_runs(b, list, &seconds, err);
        hth_cmdlist_free(list);
        if (st != HEARTH_OK) break;
        *rate = (double)b->layout.size * n_row / b->n_row * n_repeat * b->n_tok / seconds;
        enough = !b->is_gpu || n_repeat == MAX_REPEAT || seconds >= (n_row < b->n_row ? SHORT_S : ENOUGH_S);
        if (n_row == b->n_row) n_repeat *= 4;
        n_row = b->n_row;
    }
    return st;
}

hearth_status hth_gpu_measure_prompts(hth_device *device, hth_type type, double rates[HTH_N_COOPMAT_LEVEL],
                                      hearth_error *err)
{
    bench b = {.device = device, .is_gpu = hth_device_is_gpu(hth_device_get_info(device)), .type = type};
    for (int i = 0; i < HTH_N_COOPMAT_LEVEL; i++) rates[i] = 0.0;
    hearth_status st = open_bench(&b, err);
    for (int i = 0; st == HEARTH_OK && i < HTH_N_COOPMAT_LEVEL; i++) {
        st = time_level(&b, (hth_coopmat_level)i, &rates[i], err);
        /* A shader that does not compile is named when the model's command lists are recorded. */
        if (st == HEARTH_ERROR_UNSUPPORTED && i > HTH_COOPMAT_NONE) st = HEARTH_OK;
    }
    close_bench(&b);
    return st;
}

uint32_t hth_gpu_slow_levels(const double rates[HTH_N_COOPMAT_LEVEL])
{
    double best = rates[0];
    uint32_t slow = 0;
    for (uint32_t i = 1; i < HTH_N_COOPMAT_LEVEL; i++) {
        if (rates[i] > 0.0 && rates[i] <= best) slow |= 1u << i;
        if (rates[i] > best) best = rates[i];
    }
    return slow;
}

double hth_gpu_products(hth_type type, double rate)
{
    hth_soa_layout layout;
    if (!hth_soa_layout_init(type, MIN_ROW, N_COL, &layout)) return 0.0;
    return rate / (double)layout.size * MIN_ROW * N_COL;
}
