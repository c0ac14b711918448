/* A plan for several devices: what trying everything finds where there are few layers, never slower than on one of
 * them alone, within every capacity, and each device has layers one behind the other. */
#include "planner/plan.h"
#include "support/planner/plan_reference.h"
#include "support/test.h"

#include <math.h>

enum { N_LAYER = 4, N_CLUSTER = 3, MAX_DEVICE = 3 };

typedef struct machine_case {
    double share[N_LAYER][N_CLUSTER];
    hth_plan_layer layers[N_LAYER];
    hth_plan_model model;
    hth_plan_machine machine;
    hth_plan_options options;
    uint32_t n_device;
} machine_case;

static void draw_home(test_random *r, hth_plan_tier *h, const char *name, hth_plan_kind kind, double rate)
{
    *h = (hth_plan_tier){.name = name, .kind = kind, .capacity = UINT64_MAX};
    for (int i = 0; i < HTH_PLAN_N_KNOT; i++) h->rates.at[i] = rate;
    if (kind != HTH_PLAN_DEVICE) return;
    h->sync_latency = test_random_between(r, 0, 40e-6);
    h->dispatch = test_random_between(r, 0, 4e-6), h->merge = test_random_between(r, 0, 5e-6);
    h->fixed_bytes = test_random_below(r, 1u << 20);
    h->capacity = (uint64_t)(test_random_between(r, 0, 1) * (24u << 20));
}

static void draw(test_random *r, uint32_t n_device, machine_case *c)
{
    static const char *const names[MAX_DEVICE] = {"one", "two", "three"};
    *c = (machine_case){.model = {.n_layer = N_LAYER, .layers = c->layers}, .n_device = n_device};
    for (int l = 0; l < N_LAYER; l++) {
        uint64_t bytes = 1 + test_random_below(r, 3u << 20);
        for (int k = 0; k < N_CLUSTER; k++) c->share[l][k] = test_random_between(r, 0, 1);
        c->layers[l] = (hth_plan_layer){.attention_bytes = 1 + test_random_below(r, 3u << 20),
                                        .kv_bytes = test_random_below(r, 2048),
                                        .cluster_bytes = {bytes, bytes},
                                        .n_cluster = test_random_below(r, 4) == 0 ? 0 : N_CLUSTER,
                                        .n_dispatch = 7,
                                        .n_dispatch_hot = 4,
                                        .share = c->share[l]};
    }
    c->model.head_bytes = test_random_below(r, 6u << 20);
    c->model.head_stays = test_random_below(r, 5) == 0;
    c->machine.n_home = n_device + 1;
    for (uint32_t i = 0; i < n_device; i++)
        draw_home(r, &c->machine.homes[i], names[i], HTH_PLAN_DEVICE, test_random_between(r, 20e9, 600e9));
    draw_home(r, &c->machine.homes[n_device], "the CPU", HTH_PLAN_HOST, test_random_between(r, 10e9, 60e9));
    c->options = (hth_plan_options){.n_ctx = 256, .context = test_random_below(r, 257)};
}

/* The divisions from layer l on, whose attention is on `home` or one behind it. */
static void try_all(const machine_case *c, hth_plan_division *divisions, int l, uint32_t home, double *least)
{
    uint32_t n = c->n_device;
    if (l == N_LAYER) {
        for (int head = 0; head <= (divisions[l - 1].attention < n && !c->model.head_stays); head++) {
            hth_plan plan;
            hearth_error err;
            if (hth_plan_evaluate(&c->model, &c->machine, &c->options, divisions, head, &plan, &err) != HEARTH_OK)
                continue; /* more than a capacity */
            if (plan.seconds < *least) *least = plan.seconds;
            hth_plan_free(&plan);
        }
        return;
    }
    for (uint32_t h = home; h <= n; h++)
        for (uint32_t k = 0; k <= (h < n ? c->layers[l].n_cluster : 0); k++) {
            divisions[l] = (hth_plan_division){.attention = h};
            divisions[l].n_cluster[h] = k;
            divisions[l].n_cluster[n] += c->layers[l].n_cluster - k;
            try_all(c, divisions, l + 1, h, least);
        }
}

static void check_case(const machine_case *c, int i, int *n_used)
{
    hth_plan plan, one;
    hth_plan_division divisions[N_LAYER];
    double least = (double)INFINITY;
    CHECK_OK(hth_plan_solve(&c->model, &c->machine, &c->options, &plan, err));
    try_all(c, divisions, 0, 0, &least);
    if (!(fabs(plan.seconds - least) <= 1e-6 * least))
        test_fail(__FILE__, __LINE__, "case %d, %u devices: %.9g s, by trying %.9g s", i, c->n_device,
                  plan.seconds, least);
    for (uint32_t d = 0; d < c->n_device; d++) { /* each of them alone */
        hth_plan_machine alone = {.n_home = 2, .homes = {c->machine.homes[d], c->machine.homes[c->n_device]}};
        CHECK(plan.bytes[d].total <= c->machine.homes[d].capacity);
        CHECK_OK(hth_plan_solve(&c->model, &alone, &c->options, &one, err));
        CHECK(plan.seconds <= one.seconds * (1 + 1e-6));
        hth_plan_free(&one);
        *n_used += plan.bytes[d].total > 0;
    }
    hth_plan_free(&plan);
}

TEST(several_devices_get_what_trying_everything_finds)
{
    test_random r = {11};
    int n_used[MAX_DEVICE + 1] = {0};
    for (int i = 0; i < 60; i++) {
        machine_case c;
        uint32_t n_device = i % 4 == 3 ? 3 : 2;
        draw(&r, n_device, &c);
        check_case(&c, i, &n_used[n_device]);
    }
    printf("     devices in use: %d of 90, %d of 45\n", n_used[2], n_used[3]);
    CHECK(n_used[2] > 50 && n_used[3] > 22);
}

/* Layers of real shapes: the search for the borders of devices loses little, and a second device of the same kind
 * gains. */
TEST(a_second_device_gains_and_its_border_is_found)
{
    const hth_plan_card *card = &hth_plan_cards[0];
    hth_plan_model model;
    hth_plan_options options = {.n_ctx = 4096, .context = 4096};
    CHECK_OK(hth_plan_shape_model(&hth_plan_shapes[0], &hth_plan_sharp, &model, err));
    hth_plan_machine one = card->machine;
    one.homes[0].sync_latency = hth_plan_probe(&card->link, model.d2h_bytes, model.h2d_bytes, 1);
    one.homes[0].fixed_bytes = (uint64_t)256 << 20;
    for (uint64_t capacity = (uint64_t)1 << 30; capacity <= (uint64_t)3 << 30; capacity += (uint64_t)1 << 30) {
        hth_plan_machine two = {.n_home = 3, .homes = {one.homes[0], one.homes[0], one.homes[1]}};
        hth_plan with_one, with_two, with_more;
        one.homes[0].capacity = two.homes[0].capacity = two.homes[1].capacity = capacity;
        CHECK_OK(hth_plan_solve(&model, &one, &options, &with_one, err));
        CHECK_OK(hth_plan_solve(&model, &two, &options, &with_two, err));
        one.homes[0].capacity = 2 * capacity;
        CHECK_OK(hth_plan_solve(&model, &one, &options, &with_more, err));
        printf("     %.1f GiB: %.1f tokens/s, on two %.1f, on one of twice the memory %.1f\n",
               (double)capacity * 0x1p-30, 1 / with_one.seconds, 1 / with_two.seconds, 1 / with_more.seconds);
        CHECK(with_two.seconds <= with_one.seconds);
        /* One more transfer and workspace, and layers that are not divided between devices. */
        CHECK(with_two.seconds >= with_more.seconds * (1 - 1e-6) && with_two.seconds <= with_more.seconds * 1.15);
        hth_plan_free(&with_one), hth_plan_free(&with_two), hth_plan_free(&with_more);
    }
    hth_plan_shape_free(&model);
}
