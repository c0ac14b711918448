/* Compaction (hth_compact_fn): every level keeps what a plain loop keeps, between guard pages, with and
 * without lists and thresholds of their own, in place too. */
#include "kernels/kernels.h"
#include "support/guard.h"
#include "support/kernels/proof.h"

enum { MOST = 700, N_FLOOR = 3000 };

static guard x_room, list_room, floor_room, kept_list_room, kept_x_room;
static float x[MOST], floors[N_FLOOR];
static int32_t list[MOST];

typedef struct wanted {
    bool magnitudes, listed, floored, in_place, values;
    size_t n;
    float floor;
    guard_side side;
} wanted;

static size_t expect(const wanted *w, int32_t *numbers, float *values)
{
    size_t n = 0;
    for (size_t i = 0; i < w->n; i++) {
        int32_t number = w->listed ? list[i] : (int32_t)i;
        float floor = w->floored ? floors[number] : w->floor, size = w->magnitudes ? fabsf(x[i]) : x[i];
        if (size < floor) continue;
        numbers[n] = number;
        values[n++] = x[i];
    }
    return n;
}

typedef struct invocation {
    hth_compact_fn *pick;
    hth_compact job;
    size_t n_kept;
} invocation;

static void invoke(void *arg)
{
    invocation *v = arg;
    v->n_kept = v->pick(&v->job);
}

static void check_level(const hth_kernels *k, const wanted *w)
{
    static int32_t numbers[MOST];
    static float values[MOST];
    size_t n = expect(w, numbers, values), bytes = w->n * sizeof(float);
    float *own_x = guard_place(&x_room, bytes, w->side, 0);
    int32_t *own_list = guard_place(&list_room, w->listed || w->in_place ? bytes : 0, w->side, 0);
    float *own_floors = guard_place(&floor_room, sizeof floors, w->side, 0);
    memcpy(own_x, x, bytes);
    if (w->listed) memcpy(own_list, list, bytes);
    memcpy(own_floors, floors, sizeof floors);
    int32_t *kept_list = w->in_place ? own_list : guard_place(&kept_list_room, bytes, w->side, 0);
    float *kept_x = w->in_place ? own_x : guard_place(&kept_x_room, bytes, w->side, 0);
    invocation v = {w->magnitudes ? k->compact_abs : k->compact,
                    {.x = own_x,
                     .list = w->listed ? own_list : NULL,
                     .n = w->n,
                     .thresholds = w->floored ? own_floors : NULL,
                     .threshold = w->floor,
                     .out_idx = kept_list,
                     .out_x = w->values ? kept_x : NULL},
                    0};
    bool same = guard_call(invoke, &v) && v.n_kept == n &&
                memcmp(kept_list, numbers, n * sizeof *numbers) == 0 &&
                (!w->values || memcmp(kept_x, values, n * sizeof *values) == 0) && guard_is_whole(&x_room) &&
                guard_is_whole(&list_room) && guard_is_whole(&floor_room);
    if (!w->in_place) same = same && guard_is_whole(&kept_list_room) && guard_is_whole(&kept_x_room);
    if (!same)
        test_fail(__FILE__, __LINE__,
                  "%s: %zu of %zu kept (%zu expected), magnitudes %d, list %d, floors %d, in place %d",
                  hth_cpu_name(k->level), v.n_kept, w->n, n, w->magnitudes, w->listed, w->floored,
                  w->in_place);
}

TEST(every_level_keeps_what_is_not_below_its_threshold)
{
    hth_cpu levels[PROOF_MAX_LEVEL + 1] = {HTH_CPU_GENERIC};
    int n_level = 1 + proof_levels(levels + 1);
    test_random r = proof_random();
    guard_open(&x_room, sizeof x);
    guard_open(&list_room, sizeof list);
    guard_open(&floor_room, sizeof floors);
    guard_open(&kept_list_room, sizeof list);
    guard_open(&kept_x_room, sizeof x);
    for (int i = 0; i < 1500; i++) {
        uint64_t bits = test_random_next(&r);
        wanted w = {.magnitudes = bits & 1, .listed = bits & 2, .floored = bits & 4, .in_place = bits & 8,
                    .values = bits & 16, .side = bits & 32 ? GUARD_BEFORE : GUARD_BEHIND,
                    .n = (bits >> 8) % (i % 3 ? 70 : MOST)};
        static const float common[] = {0x1p-149f, 0.0f, 0.5f, -0.5f, 3e38f, -3e38f};
        w.floor = common[(bits >> 40) % 6];
        proof_fill_f32(&r, (proof_kind)((bits >> 48) % PROOF_N_KIND), x, w.n);
        proof_fill_f32(&r, (proof_kind)((bits >> 56) % 4), floors, N_FLOOR);
        for (size_t j = 0, number = 0; j < w.n; j++) list[j] = (int32_t)(number += 1 + test_random_next(&r) % 4);
        for (int l = 0; l < n_level; l++) {
            hth_kernels k = proof_kernels(levels[l]);
            check_level(&k, &w);
        }
    }
    guard_close(&x_room);
    guard_close(&list_room);
    guard_close(&floor_room);
    guard_close(&kept_list_room);
    guard_close(&kept_x_room);
}
