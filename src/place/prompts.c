/* Calibration of what prompts do: the same weights for many tokens, on either side, and how fast weights of
 * the host become what a device reads. Only quantised weights may pass through one (run/gpu/stream.c). */
#include "place/calibrate.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "kernels/panel.h"
#include "run/gpu/calls.h"
#include "run/gpu/planes.h"

#include <string.h>

enum { N_COL = 4096, N_TOK = 64, LOCAL = 64, ROUNDS = 3, COLS = 8, ROWS = 4 };
static const uint64_t PATIENCE_NS = (uint64_t)60000000000;

/* ---- rows on the host
 * -------------------------------------------------------------------------------------- */

typedef struct host {
    hth_arena arena;
    hth_matrix m;
    hth_rounding rounding;
    float *x, *y;
    uint8_t *planes;
    hth_planes at;
} host;

static void pack_rows(const host *h, const hth_kernels *k, hth_type type, uint8_t *rows, uint8_t *panels)
{
    float x[N_COL];
    for (size_t i = 0; i < N_COL; i++) x[i] = (float)(i % 31) * 0.01f - 0.15f;
    for (size_t r = 0; r < h->m.n_row; r++)
        if (k->pack[type]) k->pack[type](x, N_COL, rows + r * h->m.row_size);
    size_t panel = HTH_PANEL_ROW * h->m.row_size, block = (size_t)hth_type_find((uint32_t)type)->n_weight;
    for (size_t i = 0; panels && i < h->m.n_row / HTH_PANEL_ROW; i++)
        hth_panel_make(type, N_COL / block, rows + i * panel, h->m.row_size, panels + i * panel);
}

static hearth_status open_host(host *h, const hth_kernels *k, hth_type type, size_t n_row, uint32_t n_thread,
                               hearth_error *err)
{
    const size_t n_block = N_COL / HTH_ACT_BLOCK, n_wide = N_COL / HTH_ACT_BLOCK_256,
                 n_part = N_COL / HTH_ACT_PART;
    hth_rounding *r = &h->rounding;
    h->m = (hth_matrix){
        .type = type, .n_row = n_row, .n_col = N_COL, .row_size = hth_type_row_size(type, N_COL)};
    h->m.layout = k->layout[type];
    const size_t size = n_row * h->m.row_size, f = sizeof(float);
    if (!hth_planes_place(type, n_row, N_COL, &h->at))
        return hth_fail(err, HEARTH_ERROR_UNSUPPORTED, "no program knows the type of these weights");
    uint8_t *rows = hth_arena_alloc(&h->arena, size, 1, 64),
            *panels = hth_arena_alloc(&h->arena, size, 1, 64);
    h->x = hth_arena_alloc(&h->arena, N_TOK * N_COL, f, 64);
    h->y = hth_arena_alloc(&h->arena, N_TOK * n_row, f, 64);
    h->planes = hth_arena_alloc(&h->arena, h->at.size, 1, 64);
    r->q = hth_arena_alloc(&h->arena, N_TOK * N_COL, 1, 64);
    r->d = hth_arena_alloc(&h->arena, N_TOK * n_block, f, 64);
    r->sum = hth_arena_alloc(&h->arena, N_TOK * n_block, sizeof *r->sum, 64);
    r->q_256 = hth_arena_alloc(&h->arena, N_TOK * N_COL, 1, 64);
    r->d_256 = hth_arena_alloc(&h->arena, N_TOK * n_wide, f, 64);
    r->sum_16 = hth_arena_alloc(&h->arena, N_TOK * n_part, sizeof *r->sum_16, 64);
    r->tiles.q = hth_arena_alloc(&h->arena, N_TOK * N_COL, 1, 64);
    r->tiles.x = hth_arena_alloc(&h->arena, N_TOK * N_COL, f, 64);
    r->tiles.d = hth_arena_alloc(&h->arena, N_TOK * n_block, f, 64);
    r->tiles.offset = hth_arena_alloc(&h->arena, N_TOK * n_block, sizeof *r->tiles.offset, 64);
    r->tiles_256.q = hth_arena_alloc(&h->arena, N_TOK * N_COL, 1, 64);
    r->tiles_256.d = hth_arena_alloc(&h->arena, N_TOK * n_wide, f, 64);
    r->tiles_256.sum_16 = hth_arena_alloc(&h->arena, N_TOK * n_part, sizeof *r->tiles_256.sum_16, 64);
    r->part = hth_arena_alloc(&h->arena, n_thread * (size_t)HTH_PRODUCT_PART, f, 64);
    r->work = hth_arena_alloc(&h->arena, n_thread * (size_t)HTH_PANEL_WORK, 1, 64);
    const void *all[] = {rows,           panels,         h->x,
                         h->y,           h->planes,      r->q,
                         r->d,           r->sum,         r->q_256,
                         r->d_256,       r->sum_16,      r->tiles.q,
                         r->tiles.x,     r->tiles.d,     r->tiles.offset,
                         r->tiles_256.q, r->tiles_256.d, r->tiles_256.sum_16,
                         r->part,        r->work};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!all[i]) return hth_fail_memory(err, size, "a calibration");
    pack_rows(h, k, type, rows, h->m.layout == HTH_LAYOUT_PANELS ? panels : NULL);
    h->m.data = h->m.layout == HTH_LAYOUT_PANELS ? panels : rows;
    for (size_t i = 0; i < N_TOK * N_COL; i++) h->x[i] = (float)(i % 17) * 0.125f - 1.0f;
    return HEARTH_OK;
}

static double since(uint64_t start) { return (double)(hth_clock_ns() - start) * 1e-9; }
static double median(const double seconds[ROUNDS]) { return hth_spread_of(seconds, ROUNDS).median; }

static void measure_host(host *h, const hth_kernels *k, hth_pool *pool, hth_calibration *out)
{
    double product[ROUNDS], staged[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        const hth_output y = {.matrix = &h->m, .y = h->y};
        uint64_t start = hth_clock_ns();
        hth_product(k, pool, &h->rounding, h->x, N_TOK, &y, 1);
        product[i] = since(start);
        start = hth_clock_ns();
        hth_gpu_stage_rows(pool, &h->m, 0, (uint32_t)h->m.n_row, h->planes);
        staged[i] = since(start);
    }
    hth_pool_settle(pool);
    double bytes = (double)(h->m.n_row * h->m.row_size);
    out->cpu_prompt = bytes * N_TOK / median(product);
    out->staged = bytes / median(staged);
}

/* ---- the same on the device -------------------------------------------------------------------------------
 */

typedef struct bench {
    hth_device *device;
    hth_buffer *weights, *memory;
    hth_tape *tape;
} bench;

static uint64_t grains(uint64_t bytes) { return (bytes + 255) / 256 * 256; }

static hearth_status record(bench *b, const host *h, hearth_error *err)
{
    enum { STEP = 256 };
    const uint64_t q = grains(N_TOK * N_COL), d = grains(N_TOK * N_COL / HTH_ACT_BLOCK * 4),
                   sum = grains(N_TOK * N_COL / HTH_ACT_PART * 4), y = N_TOK * h->m.n_row * sizeof(float);
    const uint64_t size = STEP + q + d + sum + y;
    const hth_program *program;
    hth_form form;
    uint32_t consts[HTH_ROWS_N_CONST] = {LOCAL, COLS, ROWS, 0};
    hth_form_of(h->m.type, &form);
    memcpy(consts + HTH_ROWS_FORM, &form, sizeof form);
    hearth_status st = hth_program_get(b->device, HTH_PROGRAM_rows_q, consts, &program, err);
    if (st == HEARTH_OK)
        st = hth_buffer_new(b->device, HTH_MEMORY_DEVICE, size, "a calibration", &b->memory, err);
    if (st == HEARTH_OK)
        st = hth_buffer_new(b->device, HTH_MEMORY_DEVICE, h->at.size, "a calibration", &b->weights, err);
    if (st == HEARTH_OK) st = hth_device_upload((hth_slice){b->weights, 0, 0}, h->planes, err);
    uint32_t *inputs = hth_alloc(size, 1);
    if (!inputs && st == HEARTH_OK) st = hth_fail_memory(err, size, "a calibration");
    if (inputs) inputs[HTH_STEP_N_TOK] = N_TOK;
    if (st == HEARTH_OK) st = hth_device_upload((hth_slice){b->memory, 0, 0}, inputs, err);
    hth_free(inputs);
    if (st == HEARTH_OK) st = hth_tape_begin(b->device, &b->tape, err);
    if (st != HEARTH_OK) return st;
    const hth_slice step = {b->memory, 0, STEP}, out = {b->memory, STEP + q + d + sum, y};
    const hth_slice bind[] = {step,
                              {b->weights, 0, 0},
                              {b->memory, STEP, q},
                              {b->memory, STEP + q, d},
                              {b->memory, STEP + q + d, sum},
                              step,
                              out};
    const hth_push_rows push = {.n_row = (uint32_t)h->m.n_row,
                                .n_block = N_COL / form.block,
                                .y_stride = (uint32_t)h->m.n_row,
                                .at = h->at.at};
    hth_tape_run(b->tape, program, bind, &push, (uint32_t)(h->m.n_row / (LOCAL / 8 * ROWS)), N_TOK / COLS, 1);
    hth_tape_reads(b->tape, h->at.size);
    return hth_tape_end(b->tape, err);
}

static hearth_status measure_device(bench *b, const host *h, hth_calibration *out, hearth_error *err)
{
    double seconds[ROUNDS];
    hearth_status st = record(b, h, err);
    for (int i = -1; st == HEARTH_OK && i < ROUNDS; i++) { /* the first warms it up */
        hth_tick tick;
        uint64_t start = hth_device_time(b->device);
        st = hth_queue_submit(b->device, (hth_turn[]){{b->tape, 0}}, 1, &tick, err);
        if (st == HEARTH_OK) st = hth_queue_wait(b->device, tick, PATIENCE_NS, err);
        seconds[i < 0 ? 0 : i] = (double)(hth_device_time(b->device) - start) * 1e-9;
    }
    if (st == HEARTH_OK) out->device_prompt = (double)h->at.size * N_TOK / median(seconds);
    return st;
}

hearth_status hth_calibrate_prompts(hth_device *device, const hth_kernels *kernels, hth_pool *pool,
                                    hth_type type, hth_calibration *out, hearth_error *err)
{
    enum { MANY_ROWS = 4096, FEW_ROWS = 256 }; /* the CPU in a card's place has no time for many */
    hth_device_kind kind = hth_device_get_info(device)->kind;
    size_t n_row = kind == HTH_DEVICE_DISCRETE || kind == HTH_DEVICE_INTEGRATED ? MANY_ROWS : FEW_ROWS;
    host h = {.x = NULL};
    bench b = {.device = device};
    hth_form form;
    if (!hth_form_of(type, &form)) return HEARTH_OK;
    hearth_status st = open_host(&h, kernels, type, n_row, hth_pool_n_thread(pool), err);
    if (st == HEARTH_OK) measure_host(&h, kernels, pool, out);
    if (st == HEARTH_OK) st = measure_device(&b, &h, out, err);
    hth_tape_free(b.tape);
    hth_buffer_free(b.weights);
    hth_buffer_free(b.memory);
    hth_arena_free(&h.arena);
    return st;
}

double hth_calibration_products(const hth_calibration *c)
{
    enum { SOME_ROWS = 64 };
    hth_planes planes;
    if (!hth_planes_place(c->type, SOME_ROWS, N_COL, &planes)) return 0.0;
    return c->device_prompt / (double)planes.size * SOME_ROWS * N_COL;
}

/* Seconds of n tokens: by weights that pass through, whose way and use overlap; by both sides at once. */
static double passing(const hth_calibration *c, double hot, double cold, double n)
{
    double way = cold / (c->staged < c->up ? c->staged : c->up), use = cold * n / c->device_prompt;
    return hot * n / c->device_prompt + (way > use ? way : use);
}

static double by_both(const hth_calibration *c, double hot, double cold, double n)
{
    double there = hot * n / c->device_prompt, here = cold * n / c->cpu_prompt;
    return there > here ? there : here;
}

uint32_t hth_calibration_stream(const hth_calibration *c, double hot, double cold, uint32_t most)
{
    uint32_t n = most + 1;
    if (!(c->device_prompt > 0.0 && c->cpu_prompt > 0.0 && c->staged > 0.0) || !(cold > 0.0)) return 0;
    while (n > 1 && passing(c, hot, cold, n - 1) < by_both(c, hot, cold, n - 1)) n--;
    return n > most ? 0 : n;
}
