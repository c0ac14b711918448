/* How fast slices of a matrix (experts) become rows in a device's layout: by one core of the CPU, as streamed weights are
 * packed, and by the shader pack_rows, which reads them in the host's memory.
 *
 *     pack_rows [DEVICE]
 *
 * Prints a line for each type: bytes of the file per second, from panels and from rows in file order, in GB/s. Medians of
 * five runs over 64 MiB. */
#include "base/clock.h"
#include "base/random.h"
#include "base/sample_stats.h"
#include "device/device.h"
#include "forward/gpu/gpu.h"
#include "forward/gpu/experts/pack_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_RUN = 5, N_COL = 4096, SLICE_ROWS = 1024, SIZE = 64 << 20, LOCAL = 256 };

typedef struct matrix {
    hth_matrix m;
    uint32_t n_slice;
    size_t slice_size;
    hth_soa_layout all;
} matrix;

static void check(hearth_status st, const hearth_error *err)
{
    if (st == HEARTH_OK) return;
    fprintf(stderr, "pack_rows: %s\n", err->message);
    exit(1);
}

static void *get(size_t size)
{
    void *p = aligned_alloc(64, (size + 63) / 64 * 64);
    if (!p) exit(1);
    memset(p, 0, size); /* pages are there */
    return p;
}

/* Random bytes are rows as well as panels. */
static matrix matrix_of(hth_type type, hth_layout layout, const uint8_t *bytes)
{
    size_t row_size = hth_type_row_size(type, N_COL);
    matrix a = {.n_slice = (uint32_t)(SIZE / (row_size * SLICE_ROWS)), .slice_size = row_size * SLICE_ROWS};
    a.m = (hth_matrix){.type = type,
                       .n_row = (size_t)a.n_slice * SLICE_ROWS,
                       .n_col = N_COL,
                       .row_size = row_size,
                       .data = bytes,
                       .layout = layout};
    hth_soa_layout_init(type, a.m.n_row, N_COL, &a.all);
    return a;
}

static double rate_of_core(hth_pool *pool, const matrix *a, uint8_t *planes)
{
    double rates[N_RUN];
    for (int i = 0; i < N_RUN; i++) {
        uint64_t start = hth_clock_ns();
        hth_gpu_stage_rows(pool, &a->m, 0, (uint32_t)a->m.n_row, planes);
        rates[i] = (double)(a->m.n_row * a->m.row_size) / hth_clock_since(start);
    }
    return hth_sample_stats_of(rates, N_RUN).median * 1e-9;
}

/* ---- the shader -------------------------------------------------------------------------------------- */

/* The list is run once before. */
static double rate_of_list(hth_device *device, hth_cmdlist *list, double bytes)
{
    hearth_error err;
    double rates[1 + N_RUN];
    for (int i = 0; i <= N_RUN; i++) {
        hth_fence done;
        uint64_t start = hth_device_time(device);
        check(hth_queue_submit(device, &(hth_submit_info){.cmdlist = list}, 1, &done, &err), &err);
        check(hth_queue_wait(device, done, hth_device_submit_timeout_ns(hth_device_get_info(device)), &err),
              &err);
        rates[i] = bytes * 1e9 / (double)(hth_device_time(device) - start + 1);
    }
    return hth_sample_stats_of(rates + 1, N_RUN).median * 1e-9;
}

/* Buffers: jobs and table, source, planes. */
static double rate_of_shader(hth_device *device, const matrix *a, hth_buffer *const buffers[3])
{
    const uint32_t size = hth_type_find((uint32_t)a->m.type)->size;
    uint32_t *words = hth_buffer_map(buffers[0]), *jobs = words + HTH_PACK_TABLE_WORDS, n_word = 0, grid[2];
    uint32_t consts[HTH_PACK_ROWS_N_CONST] = {LOCAL, (uint32_t)a->m.layout, size, hth_pack_rows_blocks(size)};
    const hth_pipeline *pipeline;
    hth_quant_desc desc;
    hth_cmdlist *list;
    hearth_error err;
    if (!hth_pack_table(a->m.type, a->m.layout, words, &n_word) || !hth_quant_desc_of(a->m.type, &desc))
        return 0.0;
    memcpy(consts + HTH_PACK_ROWS_FORMAT, &desc, sizeof desc);
    jobs[0] = a->n_slice;
    for (uint32_t i = 0; i < a->n_slice; i++)
        jobs[HTH_PACK_ROWS_HEAD + 2 * i] = a->n_slice - 1 - i, jobs[HTH_PACK_ROWS_HEAD + 2 * i + 1] = i;
    const hth_push_pack_rows push = {
        0, 0, (uint32_t)a->slice_size, SLICE_ROWS, N_COL / desc.block, a->all.offsets};
    const hth_buffer_range bind[] = {{buffers[0], 4 * HTH_PACK_TABLE_WORDS, 0},
                                     {buffers[1], 0, (a->n_slice * a->slice_size + 15) / 16 * 16},
                                     {buffers[0], 0, 4 * HTH_PACK_TABLE_WORDS},
                                     {buffers[2], 0, a->all.size}};
    hth_pack_rows_grid(consts, SLICE_ROWS, push.n_block, grid);
    check(hth_pipeline_get(device, HTH_SHADER_pack_rows, consts, &pipeline, &err), &err);
    check(hth_cmdlist_begin(device, &list, &err), &err);
    hth_cmdlist_dispatch(list, pipeline, bind, &push, grid[0], grid[1], a->n_slice);
    check(hth_cmdlist_end(list, &err), &err);
    double rate = rate_of_list(device, list, (double)a->slice_size * a->n_slice);
    hth_cmdlist_free(list);
    return rate;
}

static void open_buffers(hth_device *device, const uint8_t *bytes, hth_buffer *buffers[3])
{
    static const hth_memory kinds[] = {HTH_MEMORY_UPLOAD, HTH_MEMORY_UPLOAD, HTH_MEMORY_DEVICE};
    static const uint64_t sizes[] = {64 << 10, SIZE, 2 * (uint64_t)SIZE};
    hearth_error err;
    for (int i = 0; i < 3; i++)
        check(hth_buffer_new(device, kinds[i], sizes[i], "slices", &buffers[i], &err), &err);
    memcpy(hth_buffer_map(buffers[1]), bytes, SIZE);
}

int main(int argc, char **argv)
{
    static const hth_type types[] = {HTH_TYPE_Q4_0, HTH_TYPE_Q4_K, HTH_TYPE_Q6_K, HTH_TYPE_Q8_0,
                                     HTH_TYPE_MXFP4};
    uint8_t *bytes = get(SIZE), *planes = get(2 * (size_t)SIZE);
    hth_device *device = NULL;
    hth_buffer *buffers[3] = {NULL};
    hth_pool *pool;
    hearth_error err;
    uint64_t random = 1;
    for (size_t i = 0; i < SIZE; i++) bytes[i] = (uint8_t)(hth_random_next(&random) >> 32);
    check(hth_pool_open(1, &pool, &err), &err);
    if (argc > 1) {
        const hth_device_spec spec = {.name = argv[1], .shader_refs = hth_shader_ref_table};
        check(hth_device_open(&spec, &device, &err), &err);
        open_buffers(device, bytes, buffers);
    }
    printf("type    core: panels  rows%s\n", device ? "    device: panels   rows" : "");
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        printf("%-6s", hth_type_find((uint32_t)types[t])->name);
        for (int layout = HTH_LAYOUT_PANELS; layout >= HTH_LAYOUT_ROWS; layout--) {
            const matrix a = matrix_of(types[t], (hth_layout)layout, bytes);
            printf(" %9.2f", rate_of_core(pool, &a, planes));
        }
        for (int layout = HTH_LAYOUT_PANELS; device && layout >= HTH_LAYOUT_ROWS; layout--) {
            const matrix a = matrix_of(types[t], (hth_layout)layout, bytes);
            printf(" %12.2f", rate_of_shader(device, &a, buffers));
        }
        printf("\n");
    }
    hth_pool_close(pool);
    hth_device_close(device);
    free(bytes), free(planes);
    return 0;
}
