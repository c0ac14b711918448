/* Measures how fast a device reads rows of the host's memory where they lie, and converts them to its layout
 * (pack_rows): the rate of experts that are uploaded, or read when they are missing. */
#include "forward/gpu/gpu_int.h"

#include "base/alloc.h"
#include "base/checked_math.h"
#include "forward/gpu/experts/pack_table.h"

#include <string.h>

/* Slices as experts are. */
enum { N_COL = 2048, SLICE_ROWS = 256, MAX_SLICE = 96, N_RUN = 3 };

typedef struct bench {
    hth_device *device;
    hth_type type;
    uint32_t n_slice;
    size_t slice_bytes;
    uint8_t *rows; /* [n_slice][slice_bytes], of the host */
    hth_soa_layout layout;
    hth_buffer *jobs, *source, *table, *planes;
    uint64_t base;
    hth_cmdlist *cmdlist;
} bench;

static void close_bench(bench *b)
{
    hth_cmdlist_free(b->cmdlist);
    hth_buffer *all[] = {b->jobs, b->source, b->table, b->planes};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) hth_buffer_free(all[i]);
    hth_queue_drain(b->device, hth_device_submit_timeout_ns(hth_device_get_info(b->device)), NULL);
    hth_pages_free(b->rows, b->n_slice * b->slice_bytes);
}

static hearth_status open_buffers(bench *b, const uint32_t *table, uint32_t n_word, hearth_error *err)
{
    uint32_t jobs[HTH_PACK_ROWS_HEAD + 2 * MAX_SLICE] = {b->n_slice};
    for (uint32_t i = 0; i < b->n_slice; i++) jobs[HTH_PACK_ROWS_HEAD + 2 * i] = jobs[HTH_PACK_ROWS_HEAD + 2 * i + 1] = i;
    static const char what[] = "a calibration";
    hearth_status st = hth_buffer_new(b->device, HTH_MEMORY_UPLOAD, sizeof jobs, what, &b->jobs, err);
    if (st == HEARTH_OK) st = hth_buffer_new(b->device, HTH_MEMORY_DEVICE, 4 * (uint64_t)n_word, what, &b->table, err);
    if (st == HEARTH_OK) st = hth_buffer_new(b->device, HTH_MEMORY_DEVICE, b->layout.size, what, &b->planes, err);
    if (st == HEARTH_OK) st = hth_device_upload((hth_buffer_range){b->jobs, 0, 0}, jobs, err);
    return st == HEARTH_OK ? hth_device_upload((hth_buffer_range){b->table, 0, 0}, table, err) : st;
}

static hearth_status record(bench *b, hearth_error *err)
{
    const hth_device_info *info = hth_device_get_info(b->device);
    uint32_t consts[HTH_PACK_ROWS_N_CONST], grid[2];
    const hth_pipeline *pipeline;
    hth_quant_desc desc;
    hth_quant_desc_of(b->type, &desc);
    hth_gpu_pack_constants(info, b->type, HTH_PACK_ROWS_FILE, consts);
    const hth_push_pack_rows push = {0, (uint32_t)b->base, (uint32_t)b->slice_bytes, SLICE_ROWS, N_COL / desc.block,
                                     b->layout.offsets};
    const hth_buffer_range bind[] = {{b->jobs, 0, 0}, {b->source, 0, 0}, {b->table, 0, 0}, {b->planes, 0, 0}};
    hearth_status st = hth_pipeline_get(b->device, HTH_SHADER_pack_rows, consts, &pipeline, err);
    if (st == HEARTH_OK) st = hth_cmdlist_begin(b->device, &b->cmdlist, err);
    if (st != HEARTH_OK) return st;
    hth_pack_rows_grid(consts, SLICE_ROWS, push.n_block, grid);
    hth_cmdlist_dispatch(b->cmdlist, pipeline, bind, &push, grid[0], grid[1], b->n_slice);
    hth_cmdlist_hint_link_bytes(b->cmdlist, b->n_slice * b->slice_bytes);
    return hth_cmdlist_end(b->cmdlist, err);
}

/* Seconds of the fastest run; the first one is not counted. */
static hearth_status run(const bench *b, double *seconds, hearth_error *err)
{
    uint64_t timeout = hth_device_submit_timeout_ns(hth_device_get_info(b->device)), least = UINT64_MAX;
    hearth_status st = HEARTH_OK;
    for (int i = 0; st == HEARTH_OK && i <= N_RUN; i++) {
        hth_fence fence;
        uint64_t start = hth_device_time(b->device);
        st = hth_queue_submit(b->device, &(hth_submit_info){.cmdlist = b->cmdlist}, 1, &fence, err);
        if (st == HEARTH_OK) st = hth_queue_wait_spin(b->device, fence, timeout / 100, timeout, err);
        uint64_t ns = hth_device_time(b->device) - start;
        if (i > 0) least = hth_min_u64(least, ns);
    }
    *seconds = (double)hth_max_u64(least, 1) * 1e-9;
    return st;
}

static hearth_status measure(bench *b, const uint32_t *table, uint32_t n_word, double *rate, hearth_error *err)
{
    double seconds = 0.0;
    uint64_t size = b->n_slice * b->slice_bytes;
    b->rows = hth_pages_alloc(size);
    if (!b->rows) return hth_fail_memory(err, size, "a calibration");
    memset(b->rows, 1, size);
    if (hth_buffer_import(b->device, b->rows, size, "a calibration", &b->source, &b->base, NULL) != HEARTH_OK)
        return HEARTH_OK;
    hearth_status st = open_buffers(b, table, n_word, err);
    if (st == HEARTH_OK) st = record(b, err);
    if (st == HEARTH_OK) st = run(b, &seconds, err);
    if (st == HEARTH_OK) *rate = (double)size / seconds;
    return st;
}

/* Of little of the memory that is free. Where the CPU is the device, one takes long enough. */
static uint32_t n_slice_for(const hth_device *device, size_t slice_bytes)
{
    const hth_device_info *info = hth_device_get_info(device);
    hth_device_usage use = hth_device_state(device);
    bool is_gpu = hth_device_is_gpu(info) || info->kind == HTH_DEVICE_SIMULATED;
    return (uint32_t)hth_min_u64((use.limit - use.used) / 16 / slice_bytes, is_gpu ? MAX_SLICE : 1);
}

hearth_status hth_gpu_measure_reads(hth_device *device, hth_type type, double *rate, hearth_error *err)
{
    uint32_t table[HTH_PACK_TABLE_WORDS], n_word;
    const hth_device_info *info = hth_device_get_info(device);
    bench b = {.device = device, .type = type, .slice_bytes = SLICE_ROWS * hth_type_row_size(type, N_COL)};
    b.n_slice = n_slice_for(device, b.slice_bytes);
    *rate = 0.0;
    if (b.n_slice == 0 || !(info->features & HTH_FEATURE_IMPORT) || !hth_pack_table(type, HTH_LAYOUT_ROWS, table, &n_word) ||
        !hth_soa_layout_init(type, (uint64_t)b.n_slice * SLICE_ROWS, N_COL, &b.layout))
        return HEARTH_OK;
    hearth_status st = measure(&b, table, n_word, rate, err);
    close_bench(&b);
    return st;
}
