/* Calibration for plans: rates of device and CPU, transfer and synchronisation costs, and the cost of a dispatch.
 * Each figure is the best or the median of a few rounds, as noted with it. */
#include "placement/calibrate.h"
#include "placement/calibrate_int.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "kernels/panel/panel.h"
#include "kernels/sparse_down.h"
#include "base/sample_stats.h"
#include "forward/gpu/shader_params.h"
#include "forward/gpu/weight_layout.h"

#include <string.h>

enum { ROUNDS = 5, N_SYNC = 200, N_BUSY_SYNC = 60, N_DISPATCH = 200 };
static const uint64_t ENOUGH = HTH_CALIBRATION_SIZE; /* larger than caches */

/* Bytes per second from the seconds of the rounds. */
static hth_sample_stats rates_of(double bytes, const double seconds[ROUNDS])
{
    double rates[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) rates[i] = bytes / seconds[i];
    return hth_sample_stats_of(rates, ROUNDS);
}

/* One quantised row of pseudo-random weights. */
static void make_row(const hth_kernels *k, hth_type type, uint8_t *row)
{
    float x[N_COL];
    uint32_t state = 1;
    for (int i = 0; i < N_COL; i++) {
        state = state * 1664525u + 1013904223u;
        x[i] = (float)(int32_t)state * 0x1p-36f;
    }
    if (k->pack[type]) k->pack[type](x, N_COL, row);
}

/* ---- the device ------------------------------------------------------------------------------------- */

/* close_bench frees everything created here. */
typedef struct bench {
    hth_device *device;
    hth_buffer *weights, *memory, *from_host, *to_host;
    hth_cmdlist *cmdlists[5];
    hearth_error *err;
} bench;

static void close_bench(bench *b)
{
    hth_queue_drain(b->device, TIMEOUT_NS, NULL);
    for (int i = 0; i < 5; i++) hth_cmdlist_free(b->cmdlists[i]);
    hth_buffer_free(b->weights);
    hth_buffer_free(b->memory);
    hth_buffer_free(b->from_host);
    hth_buffer_free(b->to_host);
}

/* Byte offsets in memory. */
enum {
    AT_STEP = 0,
    AT_X = 256,
    AT_Q = AT_X + 4 * N_COL,
    AT_D = AT_Q + N_COL,
    AT_SUM = AT_D + N_COL,
    AT_Y = AT_SUM + N_COL
};

/* More than a GPU's caches hold; where the CPU is the device, an amount that takes no noticeable time. */
static uint64_t enough_for(hth_device_kind kind)
{
    if (kind == HTH_DEVICE_CPU || kind == HTH_DEVICE_REF) return (uint64_t)1 << 20;
    return kind == HTH_DEVICE_SIMULATED ? (uint64_t)32 << 20 : ENOUGH;
}

/* Also within one binding, less what the device's layout and the last rows add. */
static uint64_t rows_that_fit(const hth_device *device, hth_type type)
{
    const hth_device_info *info = hth_device_get_info(device);
    hth_device_usage use = hth_device_state(device);
    uint64_t row = hth_type_row_size(type, N_COL), bytes = (use.limit - use.used) / 16;
    uint64_t enough = enough_for(info->kind), bound = info->max_binding_size - info->max_binding_size / 16;
    if (bytes > enough) bytes = enough;
    if (bytes > bound) bytes = bound;
    return bytes / row / 64 * 64 + 64;
}

uint64_t hth_calibration_bytes(const hth_device *device, hth_type type)
{
    return rows_that_fit(device, type) * hth_type_row_size(type, N_COL);
}

static hearth_status fill_weights(bench *b, const hth_kernels *k, hth_type type, uint64_t n_row,
                                  hth_soa_layout *layout)
{
    uint8_t row[4 * N_COL];
    if (!hth_soa_layout_init(type, n_row, N_COL, layout))
        return hth_fail(b->err, HEARTH_ERROR_UNSUPPORTED, "no shader supports %s",
                        hth_type_find((uint32_t)type)->name);
    make_row(k, type, row);
    uint8_t *bytes = hth_alloc(1, layout->size);
    if (!bytes) return hth_fail_memory(b->err, layout->size, "a calibration");
    for (uint64_t i = 0; i < n_row; i++)
        hth_soa_layout_pack(type, n_row, N_COL, row, hth_type_row_size(type, N_COL), i, 1, bytes);
    hearth_status st =
        hth_buffer_new(b->device, HTH_MEMORY_DEVICE, layout->size, "a calibration", &b->weights, b->err);
    if (st == HEARTH_OK) st = hth_device_upload((hth_buffer_range){b->weights, 0, 0}, bytes, b->err);
    hth_free(bytes);
    return st;
}

static hth_buffer_range at(const bench *b, uint64_t from, uint64_t bytes)
{
    return (hth_buffer_range){b->memory, from, bytes};
}

/* The first n_row rows of the weights, for one token. */
typedef struct rows {
    hth_type type;
    uint64_t n_row, n_all; /* n_all: rows of `layout` */
    uint64_t n_repeat;     /* repetitions of busy_rows */
    hth_soa_layout layout;
    const hth_pipeline *pipeline;
} rows;

static void record_rows(bench *b, hth_cmdlist *cmdlist, const rows *w)
{
    hth_quant_desc desc;
    const hth_type type = w->type;
    const uint64_t n_row = w->n_row;
    const hth_soa_layout *p = &w->layout;
    const hth_pipeline *pipeline = w->pipeline;
    hth_buffer_range y = at(b, AT_Y, 4 * n_row), step = at(b, AT_STEP, 64);
    uint32_t groups = (uint32_t)((n_row + LOCAL / 8 - 1) / (LOCAL / 8));
    if (hth_quant_desc_of(type, &desc)) {
        hth_push_mul_mat_vec_q push = {.n_row = (uint32_t)n_row,
                                       .n_block = N_COL / desc.block,
                                       .y_stride = (uint32_t)n_row,
                                       .at = p->offsets};
        hth_cmdlist_dispatch(cmdlist, pipeline,
                             (hth_buffer_range[]){step,
                                                  {b->weights, 0, 0},
                                                  at(b, AT_Q, N_COL),
                                                  at(b, AT_D, N_COL),
                                                  at(b, AT_SUM, N_COL),
                                                  step,
                                                  y},
                             &push, 1, groups, 1);
    } else {
        hth_push_mul_mat_vec_f push = {.n_row = (uint32_t)n_row,
                                       .n_col = N_COL,
                                       .y_stride = (uint32_t)n_row,
                                       .row_words = hth_soa_row_words(type, N_COL)};
        hth_cmdlist_dispatch(cmdlist, pipeline,
                             (hth_buffer_range[]){step, {b->weights, 0, 0}, at(b, AT_X, 4 * N_COL), step, y},
                             &push, 1, groups, 1);
    }
    hth_cmdlist_hint_bytes(cmdlist, p->size * n_row / w->n_all);
    hth_cmdlist_barrier(cmdlist, &y, 1);
}

static hearth_status run_cmdlist(bench *b, hth_cmdlist *cmdlist, double *seconds)
{
    hth_fence fence;
    uint64_t start = hth_device_time(b->device);
    hearth_status st = hth_queue_submit(b->device, (hth_submit_info[]){{.cmdlist = cmdlist}}, 1, &fence, b->err);
    if (st == HEARTH_OK) st = hth_queue_wait(b->device, fence, TIMEOUT_NS, b->err);
    *seconds = device_since(b->device, start);
    return st;
}

/* Rounds of a command list, after one warm-up run. */
static hearth_status run_rounds(bench *b, hth_cmdlist *cmdlist, double seconds[ROUNDS])
{
    hearth_status st = run_cmdlist(b, cmdlist, &seconds[0]);
    for (int i = 0; st == HEARTH_OK && i < ROUNDS; i++) st = run_cmdlist(b, cmdlist, &seconds[i]);
    return st;
}

static hearth_status get_rows(bench *b, hth_type type, const hth_pipeline **pipeline)
{
    hth_quant_desc desc;
    uint32_t consts[HTH_ROWS_N_CONST] = {LOCAL, 1, 1, 0, 8};
    if (hth_quant_desc_of(type, &desc)) {
        memcpy(consts + HTH_ROWS_FORMAT, &desc, sizeof desc);
        return hth_pipeline_get(b->device, HTH_SHADER_mul_mat_vec_q, consts, pipeline, b->err);
    }
    consts[HTH_FLOATS_TYPE] = (uint32_t)type;
    return hth_pipeline_get(b->device, HTH_SHADER_mul_mat_vec_f, consts, pipeline, b->err);
}

static hearth_status measure_rows(bench *b, const hth_kernels *k, hth_type type, rows *w, hth_calibration *out)
{
    uint64_t n_row = rows_that_fit(b->device, type);
    *w = (rows){.type = type, .n_row = n_row, .n_all = n_row};
    uint32_t step[16] = {n_token(b->device, 1)};
    double seconds[ROUNDS];
    hearth_status st = fill_weights(b, k, type, n_row, &w->layout);
    if (st == HEARTH_OK)
        st = hth_buffer_new(b->device, HTH_MEMORY_DEVICE, AT_Y + 4 * n_row, "a calibration", &b->memory,
                            b->err);
    uint8_t *zeros = hth_alloc(1, AT_Y);
    if (!zeros && st == HEARTH_OK) st = hth_fail_memory(b->err, AT_Y, "a calibration");
    if (st == HEARTH_OK) st = hth_device_upload(at(b, 0, AT_Y), zeros, b->err);
    hth_free(zeros);
    if (st == HEARTH_OK) st = hth_device_upload(at(b, AT_STEP, sizeof step), step, b->err);
    if (st == HEARTH_OK) st = get_rows(b, type, &w->pipeline);
    if (st == HEARTH_OK) st = hth_cmdlist_begin(b->device, &b->cmdlists[0], b->err);
    if (st != HEARTH_OK) return st;
    for (int i = 0; i < 4; i++) record_rows(b, b->cmdlists[0], w);
    st = hth_cmdlist_end(b->cmdlists[0], b->err);
    if (st == HEARTH_OK) st = run_rounds(b, b->cmdlists[0], seconds);
    if (st == HEARTH_OK) out->device_rate = rates_of(4.0 * (double)w->layout.size, seconds);
    return st;
}

/* Seconds that a small dispatch of a step (a norm, a rotation, attention over few positions) takes longer than an empty
 * one, because its loads wait for one another. On an NVIDIA H200 it takes 7.8 us with the barrier, and an empty one two
 * or three (docs/plan.md). */
static const double small_dispatch = 6e-6;

static hearth_status measure_dispatch(bench *b, hth_calibration *out)
{
    hth_device_kind kind = hth_device_get_info(b->device)->kind;
    double loads = kind == HTH_DEVICE_REF || kind == HTH_DEVICE_SIMULATED ? 0.0 : small_dispatch;
    const hth_pipeline *fill;
    static const uint32_t push[2] = {1, 0};
    hth_buffer_range word = at(b, AT_X, 64);
    double seconds[ROUNDS];
    hearth_status st = hth_pipeline_get(b->device, HTH_SHADER_fill, NULL, &fill, b->err);
    if (st == HEARTH_OK) st = hth_cmdlist_begin(b->device, &b->cmdlists[1], b->err);
    if (st != HEARTH_OK) return st;
    for (int i = 0; i < N_DISPATCH; i++) {
        hth_cmdlist_dispatch(b->cmdlists[1], fill, &word, push, 1, 1, 1);
        hth_cmdlist_barrier(b->cmdlists[1], &word, 1);
    }
    st = hth_cmdlist_end(b->cmdlists[1], b->err);
    if (st == HEARTH_OK) st = run_rounds(b, b->cmdlists[1], seconds);
    if (st == HEARTH_OK) out->dispatch = loads + hth_sample_stats_of(seconds, ROUNDS).median / N_DISPATCH;
    return st;
}

/* ---- transfers and synchronisation ------------------------------------------------------------------- */

/* Medians and 99th percentiles of the time from a signal, or a submission, to the completion of the command list that
 * waits for it, which the host waits for as a step does. */
static hearth_status sample_sync(bench *b, hth_cmdlist *list, hth_submit_mode how, size_t n_sample, double *median,
                                 double *p99)
{
    enum { IN_QUEUE = 20 };
    double samples[N_SYNC];
    uint64_t host_value = hth_queue_host_value(b->device), last_ns = 0;
    hearth_status st = HEARTH_OK;
    for (size_t n = 0; st == HEARTH_OK && n < n_sample; n += IN_QUEUE) {
        hth_submit_info submits[IN_QUEUE];
        hth_fence fences[IN_QUEUE];
        for (size_t i = 0; i < IN_QUEUE; i++)
            submits[i] = (hth_submit_info){.cmdlist = list, .wait = how == HTH_SUBMIT_UPFRONT ? host_value + i + 1 : 0};
        if (how == HTH_SUBMIT_UPFRONT) st = hth_queue_submit(b->device, submits, IN_QUEUE, fences, b->err);
        for (size_t i = 0; st == HEARTH_OK && i < IN_QUEUE; i++) {
            uint64_t start = hth_device_time(b->device);
            if (how == HTH_SUBMIT_UPFRONT) st = hth_queue_signal(b->device, ++host_value, b->err);
            else st = hth_queue_submit(b->device, submits + i, 1, fences + i, b->err);
            if (st == HEARTH_OK)
                st = hth_queue_wait_spin(b->device, fences[i], hth_queue_spin_ns(b->device, last_ns),
                                         TIMEOUT_NS, b->err);
            last_ns = hth_device_time(b->device) - start;
            samples[n + i] = (double)last_ns * 1e-9;
        }
    }
    if (st != HEARTH_OK) return st;
    *median = hth_kth_smallest(samples, n_sample, n_sample / 2);
    *p99 = hth_kth_smallest(samples, n_sample, n_sample * 99 / 100);
    return HEARTH_OK;
}

/* Command list i, from 2 on: i - 2 times some work, then a message's bytes in each direction. */
enum { MESSAGE = 4 * N_COL, SUMS = 8 * N_COL };
static hearth_status record_message(bench *b, int i, const rows *work)
{
    hth_buffer_range answer = {b->from_host, 0, MESSAGE}, x = at(b, AT_X, MESSAGE);
    hearth_status st = hth_cmdlist_begin(b->device, &b->cmdlists[i], b->err);
    if (st != HEARTH_OK) return st;
    for (uint64_t k = 0; k < (uint64_t)(i - 2) * work->n_repeat; k++) record_rows(b, b->cmdlists[i], work);
    hth_cmdlist_copy(b->cmdlists[i], answer, x);
    hth_cmdlist_barrier(b->cmdlists[i], &x, 1);
    hth_cmdlist_copy(b->cmdlists[i], x, (hth_buffer_range){b->to_host, 0, MESSAGE});
    return hth_cmdlist_end(b->cmdlists[i], b->err);
}

/* The latency of a message behind nothing, or behind about 200 microseconds of work, as in a divided layer, if that is
 * longer: what such work takes is the difference to twice as much of it. */
static hearth_status measure_sync_latency(bench *b, hth_submit_mode how, bool is_gpu, hth_calibration *out)
{
    double *median = &out->sync_latency[how], *p99 = &out->sync_latency_99[how], busy, busy_99, twice, twice_99;
    hearth_status st = sample_sync(b, b->cmdlists[2], how, N_SYNC, median, p99);
    if (!is_gpu) return st;
    if (st == HEARTH_OK) st = sample_sync(b, b->cmdlists[3], how, N_BUSY_SYNC, &busy, &busy_99);
    if (st == HEARTH_OK) st = sample_sync(b, b->cmdlists[4], how, N_BUSY_SYNC, &twice, &twice_99);
    if (st != HEARTH_OK) return st;
    double work = twice - busy;
    if (busy - work > *median) *median = busy - work;
    if (busy_99 - work > *p99) *p99 = busy_99 - work;
    return HEARTH_OK;
}

/* Rows for about 200 microseconds. */
static rows busy_rows(const rows *all, const hth_calibration *c)
{
    const double busy_s = 200e-6;
    double share = c->device_rate.median * busy_s / (double)all->layout.size;
    rows some = *all;
    some.n_repeat = share > 1.0 ? (uint64_t)share : 1;
    if (share < 1.0) some.n_row = (uint64_t)(share * (double)all->n_row) / 64 * 64 + 64;
    if (some.n_row > all->n_row) some.n_row = all->n_row;
    return some;
}

static hearth_status measure_transfer(bench *b, const rows *all, hth_calibration *out)
{
    hth_device_kind kind = hth_device_get_info(b->device)->kind;
    bool is_gpu = kind != HTH_DEVICE_CPU && kind != HTH_DEVICE_REF;
    uint64_t bytes = hth_buffer_size(b->weights), start;
    const rows work = busy_rows(all, out);
    hearth_status st =
        hth_buffer_new(b->device, HTH_MEMORY_UPLOAD, SUMS, "a calibration", &b->from_host, b->err);
    if (st == HEARTH_OK)
        st = hth_buffer_new(b->device, HTH_MEMORY_READBACK, MESSAGE, "a calibration", &b->to_host, b->err);
    for (int i = 2; st == HEARTH_OK && i < (is_gpu ? 5 : 3); i++) st = record_message(b, i, &work);
    if (st == HEARTH_OK) st = measure_sync_latency(b, HTH_SUBMIT_UPFRONT, is_gpu, out);
    if (st == HEARTH_OK) st = measure_sync_latency(b, HTH_SUBMIT_ON_DEMAND, is_gpu, out);
    uint8_t *host = hth_alloc(1, bytes);
    if (!host && st == HEARTH_OK) st = hth_fail_memory(b->err, bytes, "a calibration");
    start = hth_device_time(b->device);
    if (st == HEARTH_OK) st = hth_device_download((hth_buffer_range){b->weights, 0, 0}, host, b->err);
    out->d2h_rate = (double)bytes / device_since(b->device, start);
    start = hth_device_time(b->device);
    if (st == HEARTH_OK) st = hth_device_upload((hth_buffer_range){b->weights, 0, 0}, host, b->err);
    out->h2d_rate = (double)bytes / device_since(b->device, start);
    hth_free(host);
    return st;
}

/* ---- the CPU ------------------------------------------------------------------------------------------- */

/* Rows of one type in memory, and workspace for products over them. */
typedef struct cpu_rows {
    hth_matrix m;
    uint8_t *memory;
    size_t size;
    hth_arena arena;
    hth_act_q8 act;
    hth_axpy_scratch axpy;
    float *x, *y, *h, *scale_max;
    int32_t *list;
} cpu_rows;

static hearth_status open_rows(cpu_rows *r, const hth_kernels *k, hth_type type, uint32_t n_thread, uint64_t max_size,
                               hearth_error *err)
{
    uint8_t row[4 * N_COL];
    uint64_t size = max_size < ENOUGH ? max_size : ENOUGH;
    size_t row_size = hth_type_row_size(type, N_COL), n_row = (size_t)(size / row_size) / 64 * 64 + 64;
    size_t widest = n_row > N_COL ? n_row : N_COL, width = hth_axpy_width(N_COL);
    r->size = n_row * row_size;
    r->memory = hth_pages_alloc(r->size);
    float *f = hth_arena_alloc(&r->arena, 3 * widest + n_thread * HTH_PRODUCT_SCRATCH + 64, sizeof *f, 64);
    r->act.tiles.x = hth_arena_alloc(&r->arena, N_COL, sizeof *r->act.tiles.x, 64); /* for float rows in panels */
    r->act.q = hth_arena_alloc(&r->arena, 2 * N_COL, 1, 64);
    r->act.d = hth_arena_alloc(&r->arena, 4 * N_COL, sizeof(float), 64);
    r->act.work = hth_arena_alloc(&r->arena, n_thread, HTH_PANEL_WORK, 64);
    r->list = hth_arena_alloc(&r->arena, n_row, sizeof *r->list, 64);
    r->axpy.acc64 = hth_arena_alloc(&r->arena, n_thread * width, sizeof *r->axpy.acc64, 64);
    r->axpy.sums = hth_arena_alloc(&r->arena, n_thread * width, sizeof *r->axpy.sums, 64);
    r->axpy.offsets = hth_arena_alloc(&r->arena, n_thread * width / 16, sizeof *r->axpy.offsets, 64);
    r->axpy.chain = hth_arena_alloc(&r->arena, n_thread * width, sizeof *r->axpy.chain, 64);
    r->axpy.state = hth_arena_alloc(&r->arena, n_thread, sizeof *r->axpy.state, 64);
    r->axpy.n_cluster = hth_n_cluster(n_row);
    r->axpy.scale = hth_arena_alloc(&r->arena, r->axpy.n_cluster, sizeof *r->axpy.scale, 64);
    r->scale_max = hth_arena_alloc(&r->arena, r->axpy.n_cluster, sizeof *r->scale_max, 64);
    if (!r->memory || !f || !r->act.tiles.x || !r->act.q || !r->act.d || !r->act.work || !r->list ||
        !r->axpy.acc64 || !r->axpy.sums || !r->axpy.offsets || !r->axpy.chain || !r->axpy.state ||
        !r->axpy.scale || !r->scale_max)
        return hth_fail_memory(err, r->size, "a calibration");
    r->x = f, r->y = f + widest, r->h = f + 2 * widest, r->act.part = f + 3 * widest;
    r->act.q_256 = r->act.q + N_COL;
    r->act.sum = (int32_t *)(void *)(r->act.d + N_COL);
    r->act.d_256 = r->act.d + 2 * N_COL;
    r->act.sum_16 = (int16_t *)(void *)(r->act.d + 3 * N_COL);
    r->act.tiles.q = r->act.tiles_256.q = NULL;
    make_row(k, type, row);
    for (size_t i = 0; i < n_row; i++) memcpy(r->memory + i * row_size, row, row_size);
    for (size_t i = 0; i < N_COL; i++) r->x[i] = (float)(i % 17) * 0.125f - 1.0f;
    for (size_t i = 0; i < n_row; i++) r->h[i] = 0.5f;
    for (size_t i = 0; i < r->axpy.n_cluster; i++) r->scale_max[i] = hth_axpy_absmax_scale(type, row, N_COL);
    r->m =
        (hth_matrix){.type = type, .n_row = n_row, .n_col = N_COL, .row_size = row_size, .data = r->memory};
    return HEARTH_OK;
}

static void close_rows(cpu_rows *r)
{
    hth_pages_free(r->memory, r->size);
    hth_arena_free(&r->arena);
}

/* Rows are read matrix by matrix, as a layer reads them: at the end of each all threads wait for the last. 6 to 12 MiB,
 * a matrix of a small model; a common multiple of the rows of clusters (256), panels (16) and units of work (48). */
static size_t rows_of_matrix(const cpu_rows *r)
{
    enum { BYTES = 8 << 20, UNIT = 768 };
    size_t n = BYTES / r->m.row_size / UNIT * UNIT;
    return n > 0 ? n : UNIT;
}

/* The matrix that begins at row `first`; the last one may have fewer rows. */
static hth_matrix matrix_at(const cpu_rows *r, size_t first)
{
    hth_matrix m = r->m;
    size_t n = rows_of_matrix(r);
    m.n_row = r->m.n_row - first < n ? r->m.n_row - first : n;
    m.data = r->memory + first * r->m.row_size;
    return m;
}

/* Lists the active rows of m; returns their number. */
static size_t draw_active(cpu_rows *r, const hth_matrix *m, double share, uint32_t *state)
{
    size_t n = 0;
    for (size_t i = 0; i < m->n_row; i++) {
        *state = *state * 1664525u + 1013904223u;
        if ((double)*state * 0x1p-32 < share) r->list[n++] = (int32_t)i;
    }
    return n;
}

static double time_down(cpu_rows *r, const hth_kernels *k, hth_pool *pool, double share)
{
    double seconds[ROUNDS], n_active = 0;
    for (int i = 0; i < ROUNDS; i++) {
        uint32_t state = 7;
        seconds[i] = n_active = 0;
        for (size_t first = 0; first < r->m.n_row;) {
            hth_transposed_down down_t = {.rows = matrix_at(r, first), .scale_max = r->scale_max};
            hth_axpy_output out = {.down_t = &down_t, .y = r->y};
            hth_active_set active = {r->list, r->h, draw_active(r, &down_t.rows, share, &state)};
            down_t.n_summed = hth_n_cluster(down_t.rows.n_row);
            uint64_t start = hth_clock_ns();
            hth_axpy_add(k, pool, &r->axpy, &active, 1, &out);
            hth_pool_finish(pool);
            seconds[i] += hth_clock_since(start);
            n_active += (double)active.n;
            first += down_t.rows.n_row;
        }
    }
    return rates_of(n_active * (double)r->m.row_size, seconds).median;
}

static hth_sample_stats time_rows(cpu_rows *r, const hth_kernels *k, hth_pool *pool)
{
    double seconds[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t start = hth_clock_ns();
        for (size_t first = 0; first < r->m.n_row;) {
            hth_matrix m = matrix_at(r, first);
            hth_output y = {.matrix = &m, .y = r->y};
            hth_product(k, pool, &r->act, r->x, 1, &y, 1);
            first += m.n_row;
        }
        seconds[i] = hth_clock_since(start);
    }
    return rates_of((double)r->size, seconds);
}

/* Replaces the rows, which are all the same, by panels of them. */
static void pack_rows(cpu_rows *r, const hth_kernels *k)
{
    size_t panel = HTH_PANEL_ROW * r->m.row_size, n_block = N_COL / hth_type_find((uint32_t)r->m.type)->n_weight;
    r->m.layout = k->layout[r->m.type];
    if (r->m.layout != HTH_LAYOUT_PANELS) return;
    hth_panel_pack(r->m.type, n_block, r->memory, r->m.row_size, r->memory + panel);
    memcpy(r->memory, r->memory + panel, panel);
    for (size_t at = panel; at + panel <= r->size; at += panel) memcpy(r->memory + at, r->memory, panel);
}

hearth_status hth_calibrate_cpu(const hth_kernels *k, hth_pool *pool, hth_type type, uint64_t max_size,
                                hth_calibration *out, hearth_error *err)
{
    cpu_rows r = {.size = 0};
    hearth_status st = open_rows(&r, k, type, hth_pool_n_thread(pool), max_size, err);
    if (st == HEARTH_OK) out->cpu_rate = time_rows(&r, k, pool);
    for (int i = 0; st == HEARTH_OK && i < HTH_PLAN_N_KNOT; i++)
        out->cpu_down[i] = time_down(&r, k, pool, hth_plan_knots[i]);
    hth_pool_quiesce(pool);
    if (st == HEARTH_OK) {
        pack_rows(&r, k);
        out->cpu_packed = time_rows(&r, k, pool);
    }
    hth_pool_quiesce(pool);
    close_rows(&r);
    return st;
}

/* Uses the host rate of the GPU description, if given. */
static bool use_described(const hth_device_info *info, hth_calibration *out)
{
    double rate = info->host_rate;
    if (rate == 0.0) return false;
    out->cpu_rate = (hth_sample_stats){rate, rate, rate};
    for (int i = 0; i < HTH_PLAN_N_KNOT; i++) out->cpu_down[i] = rate;
    return true;
}

/* ---- entry points ------------------------------------------------------------------------------------- */

hearth_status hth_calibrate(hth_device *device, const hth_kernels *kernels, hth_pool *pool, hth_type type,
                            hth_calibration *out, hearth_error *err)
{
    bench b = {.device = device, .err = err};
    rows all;
    *out = (hth_calibration){.type = type, .bytes = hth_calibration_bytes(device, type)};
    hearth_status st = measure_rows(&b, kernels, type, &all, out);
    if (st == HEARTH_OK) st = measure_dispatch(&b, out);
    if (st == HEARTH_OK) st = measure_transfer(&b, &all, out);
    close_bench(&b);
    if (st == HEARTH_OK && !use_described(hth_device_get_info(device), out))
        st = hth_calibrate_cpu(kernels, pool, type, ENOUGH, out, err);
    if (st == HEARTH_OK) st = hth_gpu_measure_reads(device, type, &out->read_rate, err);
    return st == HEARTH_OK ? hth_calibrate_prompts(device, kernels, pool, type, out, err) : st;
}

hth_submit_mode hth_calibration_submit_mode(const hth_calibration *c)
{
    return c->sync_latency[HTH_SUBMIT_ON_DEMAND] < c->sync_latency[HTH_SUBMIT_UPFRONT] ? HTH_SUBMIT_ON_DEMAND
                                                                                       : HTH_SUBMIT_UPFRONT;
}

/* Fraction of an FFN's matrices, three or two, that both sides read whole: the first, where no predictor selects
 * neurons. */
static double read_whole(hearth_selector selector, bool gated)
{
    if (selector == HEARTH_SELECTOR_DENSE) return 1.0;
    return selector == HEARTH_SELECTOR_PREDICTOR ? 0.0 : gated ? 1.0 / 3.0 : 0.5;
}

double hth_calibration_share(hearth_selector selector, bool gated, double fires)
{
    double whole = read_whole(selector, gated);
    return whole + (1.0 - whole) * fires;
}

double hth_estimate_rate(hth_sample_stats rate, hth_estimate estimate)
{
    return estimate == HTH_ESTIMATE_MEDIAN ? rate.median : estimate == HTH_ESTIMATE_WORST ? rate.min : rate.max;
}

static double down_rate(const hth_calibration *c, double share)
{
    hth_plan_rates rates;
    memcpy(rates.at, c->cpu_down, sizeof rates.at);
    return hth_plan_rate(&rates, share);
}

void hth_calibration_machine(const hth_calibration *c, hearth_selector selector, bool gated,
                             hth_estimate estimate, hth_plan_machine *out)
{
    const double *sync_latency = estimate == HTH_ESTIMATE_WORST ? c->sync_latency_99 : c->sync_latency;
    double whole = read_whole(selector, gated), gpu_rate = hth_estimate_rate(c->device_rate, estimate),
           cpu_rate = hth_estimate_rate(c->cpu_rate, estimate);
    *out = (hth_plan_machine){.n_home = HTH_N_HOME};
    hth_plan_tier *device = &out->homes[HTH_HOME_DEVICE], *host = &out->homes[HTH_HOME_HOST];
    *device = (hth_plan_tier){.name = "the device",
                              .kind = HTH_PLAN_DEVICE,
                              .capacity = UINT64_MAX,
                              .min_active_share = hth_plan_knots[0],
                              .sync_latency = sync_latency[hth_calibration_submit_mode(c)],
                              .dispatch = c->dispatch,
                              .merge = 2.0 * c->dispatch,
                              .way_rate = c->h2d_rate < c->d2h_rate ? c->h2d_rate : c->d2h_rate,
                              .kv_rate = cpu_rate,
                              .read_rate = c->read_rate,
                              .product_rate = c->device_prompt};
    *host = (hth_plan_tier){
        .name = "the CPU", .kind = HTH_PLAN_HOST, .capacity = UINT64_MAX, .product_rate = c->cpu_prompt};
    for (int i = 0; i < HTH_PLAN_N_KNOT; i++) {
        double share = hth_plan_knots[i], fires = whole < 1.0 ? (share - whole) / (1.0 - whole) : 1.0;
        if (fires < 0.0) fires = 0.0;
        double down = down_rate(c, fires) * cpu_rate / c->cpu_rate.median;
        device->rates.at[i] = gpu_rate; /* the same for single active rows: it counts rows that are read */
        double seconds = whole / cpu_rate + (share > whole ? (share - whole) / down : 0.0);
        host->rates.at[i] = whole < 1.0 ? share / seconds : cpu_rate;
    }
}
