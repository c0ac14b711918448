/* Calibration of prompts: the same weights for many tokens, on device and CPU, and the rate at which host
 * weights are packed into the device layout. Only quantised weights can be streamed
 * (forward/gpu/weight_stream.c). */
#include "placement/calibrate.h"
#include "placement/calibrate_int.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "kernels/panel/panel.h"
#include "forward/gpu/shader_params.h"
#include "forward/gpu/weight_layout.h"

#include <string.h>

enum { N_TOK = 64, ROUNDS = 3 };

/* ---- rows on the CPU ---------------------------------------------------------------------------------- */

typedef struct host {
    hth_arena arena;
    hth_matrix m;
    hth_act_q8 act;
    float *x, *y;
    uint8_t *planes;
    hth_soa_layout at;
} host;

static void pack_rows(const host *h, const hth_kernels *k, hth_type type, uint8_t *rows, uint8_t *panels)
{
    float x[N_COL];
    for (size_t i = 0; i < N_COL; i++) x[i] = (float)(i % 31) * 0.01f - 0.15f;
    for (size_t r = 0; r < h->m.n_row; r++)
        if (k->pack[type]) k->pack[type](x, N_COL, rows + r * h->m.row_size);
    size_t panel = HTH_PANEL_ROW * h->m.row_size, block = (size_t)hth_type_find((uint32_t)type)->n_weight;
    for (size_t i = 0; panels && i < h->m.n_row / HTH_PANEL_ROW; i++)
        hth_panel_pack(type, N_COL / block, rows + i * panel, h->m.row_size, panels + i * panel);
}

/* Allocates N_TOK * n values; NULL: out of memory. */
static void *for_tokens(hth_arena *arena, size_t n, size_t size)
{
    return hth_arena_alloc(arena, N_TOK * n, size, 64);
}

/* Buffers of the quantised inputs in row order, and per-thread scratch memory. */
static bool open_act(hth_act_q8 *r, hth_arena *arena, uint32_t n_thread)
{
    r->q = for_tokens(arena, N_COL, 1);
    r->d = for_tokens(arena, N_COL / HTH_ACT_BLOCK, sizeof *r->d);
    r->sum = for_tokens(arena, N_COL / HTH_ACT_BLOCK, sizeof *r->sum);
    r->q_256 = for_tokens(arena, N_COL, 1);
    r->d_256 = for_tokens(arena, N_COL / HTH_ACT_BLOCK_256, sizeof *r->d_256);
    r->sum_16 = for_tokens(arena, N_COL / HTH_ACT_SUBBLOCK, sizeof *r->sum_16);
    r->part = hth_arena_alloc(arena, n_thread * (size_t)HTH_PRODUCT_SCRATCH, sizeof *r->part, 64);
    r->work = hth_arena_alloc(arena, n_thread * (size_t)HTH_PANEL_WORK, 1, 64);
    return r->q && r->d && r->sum && r->q_256 && r->d_256 && r->sum_16 && r->part && r->work;
}

/* The same in tile order, several tokens interleaved. */
static bool open_tiles(hth_act_q8 *r, hth_arena *arena)
{
    r->tiles.q = for_tokens(arena, N_COL, 1);
    r->tiles.x = for_tokens(arena, N_COL, sizeof *r->tiles.x);
    r->tiles.d = for_tokens(arena, N_COL / HTH_ACT_BLOCK, sizeof *r->tiles.d);
    r->tiles.offset = for_tokens(arena, N_COL / HTH_ACT_BLOCK, sizeof *r->tiles.offset);
    r->tiles_256.q = for_tokens(arena, N_COL, 1);
    r->tiles_256.d = for_tokens(arena, N_COL / HTH_ACT_BLOCK_256, sizeof *r->tiles_256.d);
    r->tiles_256.sum_16 = for_tokens(arena, N_COL / HTH_ACT_SUBBLOCK, sizeof *r->tiles_256.sum_16);
    return r->tiles.q && r->tiles.x && r->tiles.d && r->tiles.offset && r->tiles_256.q && r->tiles_256.d &&
           r->tiles_256.sum_16;
}

/* The weights, in the layout that the kernels prefer. */
static bool open_rows(host *h, const hth_kernels *k, hth_type type)
{
    const size_t size = h->m.n_row * h->m.row_size;
    bool in_panels = h->m.layout == HTH_LAYOUT_PANELS;
    uint8_t *rows = hth_arena_alloc(&h->arena, size, 1, 64),
            *panels = in_panels ? hth_arena_alloc(&h->arena, size, 1, 64) : NULL;
    if (!rows || (in_panels && !panels)) return false;
    pack_rows(h, k, type, rows, panels);
    h->m.data = in_panels ? panels : rows;
    return true;
}

static hearth_status open_host(host *h, const hth_kernels *k, hth_type type, hth_layout layout, size_t n_row,
                               uint32_t n_thread, hearth_error *err)
{
    h->m = (hth_matrix){.type = type,
                        .n_row = n_row,
                        .n_col = N_COL,
                        .row_size = hth_type_row_size(type, N_COL),
                        .layout = layout};
    h->x = for_tokens(&h->arena, N_COL, sizeof *h->x);
    h->y = for_tokens(&h->arena, n_row, sizeof *h->y);
    if (!h->x || !h->y || !open_act(&h->act, &h->arena, n_thread) ||
        !open_tiles(&h->act, &h->arena) || !open_rows(h, k, type))
        return hth_fail_memory(err, n_row * h->m.row_size, "a calibration");
    for (size_t i = 0; i < N_TOK * N_COL; i++) h->x[i] = (float)(i % 17) * 0.125f - 1.0f;
    return HEARTH_OK;
}

/* Allocates the rows in the layout of a device. */
static hearth_status open_planes(host *h, hearth_error *err)
{
    if (!hth_soa_layout_init(h->m.type, h->m.n_row, N_COL, &h->at))
        return hth_fail(err, HEARTH_ERROR_UNSUPPORTED, "no shader supports %s",
                        hth_type_find((uint32_t)h->m.type)->name);
    h->planes = hth_arena_alloc(&h->arena, h->at.size, 1, 64);
    return h->planes ? HEARTH_OK : hth_fail_memory(err, h->at.size, "a calibration");
}

static double median(const double seconds[ROUNDS]) { return hth_sample_stats_of(seconds, ROUNDS).median; }

/* Bytes times tokens per second. */
static double measure_product(host *h, const hth_kernels *k, hth_pool *pool)
{
    double seconds[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        const hth_output y = {.matrix = &h->m, .y = h->y};
        uint64_t start = hth_clock_ns();
        hth_product(k, pool, &h->act, h->x, N_TOK, &y, 1);
        seconds[i] = hth_clock_since(start);
    }
    hth_pool_quiesce(pool);
    return (double)(h->m.n_row * h->m.row_size) * N_TOK / median(seconds);
}

static void measure_host(host *h, const hth_kernels *k, hth_pool *pool, hth_calibration *out)
{
    double staged[ROUNDS];
    out->cpu_prompt = measure_product(h, k, pool);
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t start = hth_clock_ns();
        hth_gpu_stage_rows(pool, &h->m, 0, (uint32_t)h->m.n_row, h->planes);
        staged[i] = hth_clock_since(start);
    }
    hth_pool_quiesce(pool);
    out->pack_rate = (double)(h->m.n_row * h->m.row_size) / median(staged);
}

/* Some times the second-level cache. */
enum { CPU_PROMPT_SIZE = 8 << 20 };

hearth_status hth_calibrate_cpu_prompts(const hth_kernels *k, hth_pool *pool, hth_type type, hth_calibration *out,
                                        hearth_error *err)
{
    const hth_layout layouts[] = {k->layout[type], HTH_LAYOUT_ROWS};
    double *const rates[] = {&out->cpu_prompt, &out->cpu_prompt_rows};
    size_t n_row = CPU_PROMPT_SIZE / hth_type_row_size(type, N_COL) / 64 * 64 + 64;
    hearth_status st = HEARTH_OK;
    for (int i = 0; i < 2 && st == HEARTH_OK; i++) {
        host h = {.x = NULL};
        st = open_host(&h, k, type, layouts[i], n_row, hth_pool_n_thread(pool), err);
        if (st == HEARTH_OK) *rates[i] = measure_product(&h, k, pool);
        hth_arena_free(&h.arena);
    }
    return st;
}

/* With a described host, uses the description's figures: it reads bytes at one rate, and computes products at another.
 * If that is not given, products are free on the simulated clock; here they are as many for a byte as 64 tokens take. */
static bool use_described(const hth_device_info *info, hth_type type, hth_calibration *out)
{
    if (info->host_rate == 0.0) return false;
    out->cpu_prompt = info->host_rate * N_TOK;
    if (info->host_products > 0.0)
        out->cpu_prompt = info->host_products * (double)hth_type_row_size(type, N_COL) / N_COL;
    out->pack_rate = info->host_rate;
    return true;
}

/* ---- rows on the device ------------------------------------------------------------------------------- */

static hearth_status measure_device(hth_device *device, hth_type type, hth_calibration *out, hearth_error *err)
{
    hearth_status st = hth_gpu_measure_prompts(device, type, out->device_prompts, err);
    for (int i = 0; st == HEARTH_OK && i < HTH_N_COOPMAT_LEVEL; i++)
        if (out->device_prompts[i] > out->device_prompt) out->device_prompt = out->device_prompts[i];
    return st;
}

/* A CPU device gets few rows, because it is too slow for many. */
static size_t n_row_of(const hth_device *device)
{
    enum { MANY = 4096, FEW = 256 };
    hth_device_kind kind = hth_device_get_info(device)->kind;
    return kind == HTH_DEVICE_DISCRETE || kind == HTH_DEVICE_INTEGRATED ? MANY : FEW;
}

hearth_status hth_calibrate_prompts(hth_device *device, const hth_kernels *kernels, hth_pool *pool,
                                    hth_type type, hth_calibration *out, hearth_error *err)
{
    host h = {.x = NULL};
    hth_quant_desc desc;
    if (!hth_quant_desc_of(type, &desc)) return HEARTH_OK;
    hearth_status st =
        open_host(&h, kernels, type, kernels->layout[type], n_row_of(device), hth_pool_n_thread(pool), err);
    if (st == HEARTH_OK) st = open_planes(&h, err);
    if (st == HEARTH_OK && !use_described(hth_device_get_info(device), type, out))
        measure_host(&h, kernels, pool, out);
    hth_arena_free(&h.arena);
    return st == HEARTH_OK ? measure_device(device, type, out, err) : st;
}

double hth_calibration_products(const hth_calibration *c)
{
    return hth_gpu_products(c->type, c->device_prompts[HTH_COOPMAT_NONE]);
}

/* ---- choice of the CPU share ------------------------------------------------------------------------- */

/* Weights of a step, on a calibrated machine. Streamed while the CPU computes `cpu_share` of HTH_PLACEMENT_PARTS of the
 * neurons; all parts: no streaming. */
typedef struct work {
    const hth_calibration *c;
    const hth_stream_work *w;
} work;

/* Seconds of the neurons for n tokens. Staging, copying and using a chunk overlap with those of the next; the host
 * alternates between staging and computing. The share is taken exactly, as the clusters of each layer are not
 * known here: a run rounds it to whole clusters of each layer (hth_gpu_n_streamed). */
static double seconds_of_neurons(const work *w, double n, uint32_t cpu_share)
{
    const hth_calibration *c = w->c;
    double stays = w->w->cold * cpu_share / HTH_PLACEMENT_PARTS, passes = w->w->cold - stays;
    double staged = passes / c->pack_rate, way = passes / c->h2d_rate, use = passes * n / c->device_prompt;
    double passing = way > use ? way : use;
    if (staged > passing) passing = staged;
    double on_host = stays * n / c->cpu_prompt + staged, there = w->w->hot * n / c->device_prompt + passing;
    return on_host > there ? on_host : there;
}

static double power(double x, uint32_t n)
{
    double y = 1.0;
    for (; n > 0; n /= 2, x *= x)
        if (n % 2) y *= x;
    return y;
}

/* Seconds of the experts for n tokens, each of which chooses any alike. All without a slot are streamed, or the CPU
 * computes those that are chosen. It reads each one once, however few tokens it is for. */
static double seconds_of_experts(const work *w, double n, bool streamed)
{
    const hth_calibration *c = w->c;
    const hth_stream_work *e = w->w;
    if (!(e->missing > 0.0)) return 0.0;
    double chosen = 1.0 - power(1.0 - e->used, (uint32_t)n), here = e->slots * e->used * n / c->device_prompt,
           read = e->missing * chosen / c->cpu_rate.median, use = e->missing * e->used * n / c->cpu_prompt,
           on_cpu = read > use ? read : use, all = here + e->missing * e->used * n / c->device_prompt;
    if (!streamed) return on_cpu > here ? on_cpu : here;
    double way = e->missing / c->read_rate;
    return way > all ? way : all;
}

static double seconds_of(const work *w, double n, uint32_t cpu_share)
{
    bool streamed = cpu_share < HTH_PLACEMENT_PARTS && w->c->read_rate > 0.0;
    return seconds_of_neurons(w, n, cpu_share) + seconds_of_experts(w, n, streamed);
}

/* A CPU share must gain at least a tenth: its figures assume a host that does nothing else. */
static bool is_faster(const work *w, double n, uint32_t cpu_share)
{
    double other = seconds_of(w, n, HTH_PLACEMENT_PARTS), whole = seconds_of(w, n, 0),
           both = seconds_of(w, n, cpu_share);
    if (cpu_share == 0) return whole < other;
    return both < 0.9 * (whole < other ? whole : other);
}

/* The best share for n tokens; HTH_PLACEMENT_PARTS: no streaming. */
static uint32_t best_share(const work *w, double n)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < HTH_PLACEMENT_PARTS; i++)
        if (seconds_of(w, n, i) < seconds_of(w, n, best)) best = i;
    if (best > 0 && !is_faster(w, n, best)) best = 0;
    return is_faster(w, n, best) ? best : HTH_PLACEMENT_PARTS;
}

/* By halves of `max`, from the largest down: a share suits the largest batch of its half, and smaller batches
 * do not wait for the host. */
void hth_calibration_stream_thresholds(const hth_calibration *c, const hth_stream_work *of, uint32_t max,
                                       hth_placement_stream streams[HTH_PLACEMENT_STREAMS])
{
    const work w = {c, of};
    hth_placement_stream found[HTH_PLACEMENT_STREAMS]; /* descending */
    uint32_t n = 0;
    memset(streams, 0, HTH_PLACEMENT_STREAMS * sizeof *streams);
    if (!(c->device_prompt > 0.0 && c->cpu_prompt > 0.0 && c->pack_rate > 0.0) || !(of->cold + of->missing > 0.0)) return;
    for (uint32_t end = max, from = 0; n < HTH_PLACEMENT_STREAMS && end > 0; end = from - 1) {
        uint32_t min = n + 1 < HTH_PLACEMENT_STREAMS ? end / 2 + 1 : 1, cpu_share = best_share(&w, end);
        if (cpu_share == HTH_PLACEMENT_PARTS) break;
        for (from = end; from > min && is_faster(&w, from - 1, cpu_share);) from--;
        if (n > 0 && found[n - 1].cpu_share == cpu_share) n--;
        found[n++] = (hth_placement_stream){from, cpu_share};
        if (from > min) break;
    }
    for (uint32_t i = 0; i < n; i++) streams[i] = found[n - 1 - i];
}
