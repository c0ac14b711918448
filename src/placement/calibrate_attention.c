/* Calibration of attention: a prompt's tokens over a cache of halves, on the CPU. */
#include "placement/calibrate.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "kernels/attn/attn.h"

/* Heads of a usual model, and positions of which a thread's second-level cache holds the keys. */
enum { D_HEAD = 128, N_HEAD = 4, N_ROW = 16, N_POS = 512, N_UNIT = 16, ROUNDS = 3 };
enum { N_QUERY = N_ROW * N_HEAD, N_PAGE = N_POS / HTH_KV_PAGE, HALF_PAGE = HTH_KV_PAGE * D_HEAD * 2 };

typedef struct attending {
    const hth_kernels *k;
    const uint8_t *pages[N_PAGE]; /* keys, then values */
    float *q, *y, *scratch;       /* y, scratch: of all threads */
    size_t n_scratch;
} attending;

static void attend(void *arg, size_t i_unit, uint32_t i_thread)
{
    const attending *a = arg;
    (void)i_unit;
    const hth_attn job = {.k_pages = a->pages,
                          .v_pages = a->pages,
                          .v_offset = HALF_PAGE,
                          .d_head = D_HEAD,
                          .n_row = N_ROW,
                          .n_head = N_HEAD,
                          .n_pos = N_POS - N_ROW + 1,
                          .q = a->q,
                          .q_stride = N_HEAD * D_HEAD,
                          .scale = 0.0884f,
                          .scratch = a->scratch + i_thread * a->n_scratch,
                          .out_stride = N_HEAD};
    hth_attn_all_splits(a->k, HEARTH_KV_F16, &job, NULL, a->y + (size_t)i_thread * N_QUERY * D_HEAD);
}

static hearth_status measure(attending *a, hth_pool *pool, hth_arena *arena, double *rate, hearth_error *err)
{
    double seconds[ROUNDS], n_product = 0.0;
    size_t n_thread = hth_pool_n_thread(pool), n_query = (size_t)N_QUERY * D_HEAD;
    uint8_t *cache = hth_arena_alloc(arena, 2 * (size_t)N_PAGE, HALF_PAGE, 64);
    a->n_scratch = hth_attn_scratch(D_HEAD, N_QUERY);
    a->q = hth_arena_alloc(arena, n_query, sizeof *a->q, 64);
    a->y = hth_arena_alloc(arena, n_thread * n_query, sizeof *a->y, 64);
    a->scratch = hth_arena_alloc(arena, n_thread * a->n_scratch, sizeof *a->scratch, 64);
    if (!cache || !a->q || !a->y || !a->scratch)
        return hth_fail_memory(err, n_thread * a->n_scratch * sizeof *a->scratch, "a calibration");
    for (size_t i = 0; i < n_query; i++) a->q[i] = (float)(i % 17) * 0.125f - 1.0f;
    for (size_t i = 0; i < N_PAGE; i++) a->pages[i] = cache + 2 * i * HALF_PAGE; /* zeros */
    for (size_t i = 0; i < N_ROW; i++) n_product += (double)(N_POS - N_ROW + 1 + i) * N_HEAD * 2 * D_HEAD;
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t start = hth_clock_ns();
        hth_pool_run(pool, attend, a, N_UNIT * n_thread);
        seconds[i] = hth_clock_since(start);
    }
    hth_pool_quiesce(pool);
    *rate = n_product * N_UNIT * (double)n_thread / hth_sample_stats_of(seconds, ROUNDS).median;
    return HEARTH_OK;
}

hearth_status hth_calibrate_attention(const hth_kernels *k, hth_pool *pool, hth_calibration *out,
                                      hearth_error *err)
{
    attending a = {.k = k};
    hth_arena arena = {0};
    hearth_status st = measure(&a, pool, &arena, &out->cpu_attention, err);
    hth_arena_free(&arena);
    return st;
}
