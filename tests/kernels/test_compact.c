/* Compaction (hth_compact_fn): every level keeps what a plain loop keeps, between guard pages, with and
 * without lists and thresholds of their own, in place too. */
#include "kernels/kernels.h"
#include "support/guard.h"
#include "support/kernels/proof.h"

enum { MAX_VALUES = 700, N_THRESHOLD = 3000 };

static guard x_guard, list_guard, threshold_guard, out_idx_guard, out_x_guard;
static float x[MAX_VALUES], thresholds[N_THRESHOLD];
static int32_t list[MAX_VALUES];

typedef struct wanted {
    bool magnitudes, listed, has_thresholds, in_place, values;
    size_t n;
    float threshold;
    guard_side side;
} wanted;

static size_t expect(const wanted *w, int32_t *numbers, float *values)
{
    size_t n = 0;
    for (size_t i = 0; i < w->n; i++) {
        int32_t number = w->listed ? list[i] : (int32_t)i;
        float threshold = w->has_thresholds ? thresholds[number] : w->threshold;
        float size = w->magnitudes ? fabsf(x[i]) : x[i];
        if (size < threshold) continue;
        numbers[n] = number;
        values[n++] = x[i];
    }
    return n;
}

typedef struct invocation {
    hth_compact_fn *compact;
    hth_compact job;
    size_t n_kept;
} invocation;

static void invoke(void *arg)
{
    invocation *v = arg;
    v->n_kept = v->compact(&v->job);
}

static void check_level(const hth_kernels *k, const wanted *w)
{
    static int32_t numbers[MAX_VALUES];
    static float values[MAX_VALUES];
    size_t n = expect(w, numbers, values), bytes = w->n * sizeof(float);
    float *own_x = guard_place(&x_guard, bytes, w->side, 0);
    int32_t *own_list = guard_place(&list_guard, w->listed || w->in_place ? bytes : 0, w->side, 0);
    float *own_thresholds = guard_place(&threshold_guard, sizeof thresholds, w->side, 0);
    memcpy(own_x, x, bytes);
    if (w->listed) memcpy(own_list, list, bytes);
    memcpy(own_thresholds, thresholds, sizeof thresholds);
    int32_t *out_idx = w->in_place ? own_list : guard_place(&out_idx_guard, bytes, w->side, 0);
    float *out_x = w->in_place ? own_x : guard_place(&out_x_guard, bytes, w->side, 0);
    invocation v = {w->magnitudes ? k->compact_abs : k->compact,
                    {.x = own_x,
                     .list = w->listed ? own_list : NULL,
                     .n = w->n,
                     .thresholds = w->has_thresholds ? own_thresholds : NULL,
                     .threshold = w->threshold,
                     .out_idx = out_idx,
                     .out_x = w->values ? out_x : NULL},
                    0};
    bool same = guard_call(invoke, &v) && v.n_kept == n &&
                memcmp(out_idx, numbers, n * sizeof *numbers) == 0 &&
                (!w->values || memcmp(out_x, values, n * sizeof *values) == 0) && guard_is_whole(&x_guard) &&
                guard_is_whole(&list_guard) && guard_is_whole(&threshold_guard);
    if (!w->in_place) same = same && guard_is_whole(&out_idx_guard) && guard_is_whole(&out_x_guard);
    if (!same)
        test_fail(__FILE__, __LINE__,
                  "%s: %zu of %zu kept (%zu expected), magnitudes %d, list %d, thresholds %d, in place %d",
                  hth_cpu_name(k->level), v.n_kept, w->n, n, w->magnitudes, w->listed, w->has_thresholds,
                  w->in_place);
}

TEST(every_level_keeps_what_is_not_below_its_threshold)
{
    hth_cpu levels[PROOF_MAX_LEVEL + 1] = {HTH_CPU_GENERIC};
    int n_level = 1 + proof_levels(levels + 1);
    test_random r = proof_random();
    guard_open(&x_guard, sizeof x);
    guard_open(&list_guard, sizeof list);
    guard_open(&threshold_guard, sizeof thresholds);
    guard_open(&out_idx_guard, sizeof list);
    guard_open(&out_x_guard, sizeof x);
    for (int i = 0; i < 1500; i++) {
        uint64_t bits = test_random_next(&r);
        wanted w = {.magnitudes = bits & 1, .listed = bits & 2, .has_thresholds = bits & 4, .in_place = bits & 8,
                    .values = bits & 16, .side = bits & 32 ? GUARD_BEFORE : GUARD_BEHIND,
                    .n = (bits >> 8) % (i % 3 ? 70 : MAX_VALUES)};
        static const float common[] = {0x1p-149f, 0.0f, 0.5f, -0.5f, 3e38f, -3e38f};
        w.threshold = common[(bits >> 40) % 6];
        proof_fill_f32(&r, (proof_kind)((bits >> 48) % PROOF_N_KIND), x, w.n);
        proof_fill_f32(&r, (proof_kind)((bits >> 56) % 4), thresholds, N_THRESHOLD);
        for (size_t j = 0, number = 0; j < w.n; j++) list[j] = (int32_t)(number += 1 + test_random_next(&r) % 4);
        for (int l = 0; l < n_level; l++) {
            hth_kernels k = proof_kernels(levels[l]);
            check_level(&k, &w);
        }
    }
    guard_close(&x_guard);
    guard_close(&list_guard);
    guard_close(&threshold_guard);
    guard_close(&out_idx_guard);
    guard_close(&out_x_guard);
}
