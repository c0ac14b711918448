/* What is promised of plans: the solver finds what trying everything finds, is never beaten, keeps budgets,
 * and what it predicts is what a simulated machine does. With "predictions" as argument it prints the table
 * of docs/plan.md; every speed in it is simulated. */
#include "base/clock.h"
#include "base/hash.h"
#include "support/planner/plan_reference.h"
#include "support/test.h"

/* ---- small cases ----------------------------------------------------------------------------- */

enum { N_SMALL_LAYER = 4, N_SMALL_CLUSTER = 6, N_SMALL_USED = 3 };

typedef struct small_case {
    double share[N_SMALL_LAYER][N_SMALL_CLUSTER], moves[N_SMALL_CLUSTER + 1][HTH_PLAN_N_MOVE];
    double misses[N_SMALL_CLUSTER + 1][N_SMALL_USED + 1];
    hth_plan_layer layers[N_SMALL_LAYER];
    hth_plan_model model;
    hth_plan_machine machine;
    hth_plan_options options;
} small_case;

static hth_plan_rates some_rates(test_random *r, double max)
{
    hth_plan_rates rates;
    for (int i = 0; i < HTH_PLAN_N_KNOT; i++)
        rates.at[i] = max * (0.5 + 0.5 * i / (HTH_PLAN_N_KNOT - 1)) * test_random_between(r, 0.9, 1);
    return rates;
}

static int falling(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x < *y) - (*x > *y);
}

/* Rates, shares and bytes at random, so that each side limits some layers and the way between others. */
static void make_small(test_random *r, small_case *c)
{
    bool sorted = test_random_below(r, 4) > 0, dense = test_random_below(r, 6) == 0;
    *c = (small_case){.model = {.n_layer = N_SMALL_LAYER, .layers = c->layers}};
    for (int l = 0; l < N_SMALL_LAYER; l++) {
        hth_plan_layer *layer = &c->layers[l];
        for (int k = 0; k < N_SMALL_CLUSTER; k++) {
            double x = test_random_between(r, 0, 1);
            c->share[l][k] = dense ? 1 : test_random_below(r, 8) == 0 ? 0 : x * x * x;
        }
        if (sorted) qsort(c->share[l], N_SMALL_CLUSTER, sizeof(double), falling);
        layer->n_cluster = N_SMALL_CLUSTER - test_random_below(r, 3);
        layer->attention_bytes = 1 + test_random_below(r, 4u << 20);
        layer->kv_bytes = test_random_below(r, 4096);
        uint64_t bytes = 1 + test_random_below(r, 2u << 20);
        layer->cluster_bytes[HTH_PLAN_DEVICE] = bytes;
        layer->cluster_bytes[HTH_PLAN_HOST] = bytes - test_random_below(r, 2) * bytes / 9;
        layer->n_dispatch = test_random_below(r, 8), layer->n_dispatch_hot = test_random_below(r, 4);
        layer->share = c->share[l];
    }
    c->model.head_bytes = test_random_below(r, 8u << 20);
    c->machine = (hth_plan_machine){.n_home = 2,
                                    .homes = {{.name = "the device", .kind = HTH_PLAN_DEVICE},
                                              {.name = "the CPU", .kind = HTH_PLAN_HOST}}};
    hth_plan_tier *gpu = &c->machine.homes[0], *host = &c->machine.homes[1];
    gpu->rates = some_rates(r, test_random_between(r, 5e9, 400e9));
    host->rates = some_rates(r, test_random_between(r, 5e9, 80e9));
    gpu->min_active_share = test_random_between(r, 0, 0.02);
    gpu->sync_latency = test_random_between(r, 0, 1) < 0.5 ? test_random_between(r, 0, 100e-6)
                                                           : test_random_between(r, 0, 2e-3);
    gpu->dispatch = test_random_between(r, 0, 5e-6), gpu->merge = test_random_between(r, 0, 10e-6);
    gpu->fixed_bytes = test_random_below(r, 1u << 20);
    c->options.n_ctx = test_random_below(r, 1000);
    c->options.context = test_random_below(r, c->options.n_ctx + 1);
    gpu->capacity = (uint64_t)(test_random_between(r, 0, 1) * (64u << 20));
    host->capacity = UINT64_MAX;
}

static void put_clusters_on_host(const small_case *c, hth_plan_division divisions[N_SMALL_LAYER])
{
    for (int l = 0; l < N_SMALL_LAYER; l++)
        divisions[l] = (hth_plan_division){.n_cluster = {0, c->layers[l].n_cluster}};
}

/* The least seconds of all placements that fit, written again from docs/plan.md. */
static double rate_of(const hth_plan_rates *rates, double share)
{
    const double x[] = {0.05, 0.2, 0.5, 1};
    int i = 1;
    while (i < 3 && share > x[i]) i++;
    double y = rates->at[i - 1] + (rates->at[i] - rates->at[i - 1]) / (x[i] - x[i - 1]) * (share - x[i - 1]);
    return share < x[0] ? rates->at[0] : y;
}

/* The experts of a layer with k slots, of which the device reads missing ones into n_spare. */
static double reading_seconds(const hth_plan_layer *layer, const hth_plan_tier *gpu, int k)
{
    int n_there = k - (int)layer->n_spare;
    double there = 0, missing = 0;
    if (layer->n_spare == 0 || gpu->read_rate == 0 || n_there < (int)layer->n_spare) return (double)INFINITY;
    for (int i = 0; i < (int)layer->n_cluster; i++) *(i < n_there ? &there : &missing) += layer->share[i];
    return (layer->n_dispatch_hot + layer->n_dispatch_read) * gpu->dispatch +
           (there + missing) * (double)layer->cluster_bytes[HTH_PLAN_DEVICE] / gpu->rates.at[3] +
           missing * (double)layer->cluster_bytes[HTH_PLAN_HOST] / gpu->read_rate;
}

/* A layer of which tokens miss different numbers of experts, with k slots into which some move meanwhile. */
static double slots_seconds(const hth_plan_layer *layer, const hth_plan_tier *gpu, const hth_plan_tier *host, double before, int k)
{
    double bytes = (double)layer->cluster_bytes[HTH_PLAN_HOST], rate = host->rates.at[3], link = gpu->read_rate,
           left = fmax(rate - link, rate / 4), free = fmax(before + gpu->merge - layer->n_dispatch_beside * gpu->dispatch, 0),
           seconds = before + gpu->merge,
           hot = (double)layer->cluster_bytes[HTH_PLAN_DEVICE] / gpu->rates.at[3];
    for (int m = 0; m <= N_SMALL_USED; m++) {
        double there = (k > 0 ? layer->n_dispatch_hot * gpu->dispatch : 0) + (N_SMALL_USED - m) * hot,
               here = gpu->sync_latency + m * bytes / rate - layer->n_dispatch_beside * gpu->dispatch;
        for (int n = 1; link > 0 && n < HTH_PLAN_N_MOVE; n++) {
            double both = 0, end = n * bytes / link, busy = m * bytes / left; /* over this layer, and others like it behind it */
            for (double from = 0; m > 0 && from < end; from += free + busy) both += fmin(fmax(end - from - free, 0), busy);
            here += layer->moves[k * HTH_PLAN_N_MOVE + n] * both * (rate - left) / rate;
        }
        seconds += layer->misses[k * (N_SMALL_USED + 1) + m] * fmax(there, here);
    }
    return seconds;
}

/* A layer with its first k clusters on the device, and the others on the host; k below 0: attention too. */
static double layer_seconds(const small_case *c, int l, int k)
{
    const hth_plan_layer *layer = &c->layers[l];
    const hth_plan_tier *gpu = &c->machine.homes[0], *host = &c->machine.homes[1];
    double weights = (double)layer->attention_bytes - (double)layer->idle_bytes,
           seen = layer->kv_window > 0 ? fmin(layer->kv_window, c->options.context) : c->options.context,
           kv = (double)layer->kv_bytes * seen, hot = 0, cold = 0, silent = 1;
    for (int i = 0; i < (int)layer->n_cluster; i++) {
        double p = layer->share[i], live = fmax(p, gpu->min_active_share);
        if (layer->has_experts) {
            const hth_plan_tier *home = i < k ? gpu : host;
            double seconds = (double)layer->cluster_bytes[home->kind] * p / home->rates.at[3];
            if (i < k) hot += seconds;
            else cold += seconds, silent = 0;
        } else if (i < k) hot += (double)layer->cluster_bytes[HTH_PLAN_DEVICE] * live / rate_of(&gpu->rates, live);
        else
            cold += (double)layer->cluster_bytes[HTH_PLAN_HOST] * p / rate_of(&host->rates, p),
                silent *= pow(1 - p, 256);
    }
    if (k < 0) return (weights + kv) / host->rates.at[3] + cold;
    if (k > 0) hot += layer->n_dispatch_hot * gpu->dispatch;
    double away = layer->n_trip * gpu->sync_latency + (double)layer->trip_bytes / gpu->way_rate + kv / gpu->kv_rate,
           before = weights / gpu->rates.at[3] + (layer->n_trip > 0 ? away : kv / gpu->rates.at[3]) +
                    layer->n_dispatch * gpu->dispatch,
           fires = 1 - silent;
    if (k == (int)layer->n_cluster) return before + hot;
    double beside = layer->n_dispatch_beside * gpu->dispatch,
           waits = fires > 0 ? fmax(hot, gpu->sync_latency + cold / fires - beside) : hot,
           split = before + fires * waits + silent * hot + gpu->merge;
    if (layer->misses) split = slots_seconds(layer, gpu, host, before, k);
    return fmin(split, before + reading_seconds(layer, gpu, k));
}

/* Bytes of a layer on the device. */
static uint64_t layer_bytes(const small_case *c, int l, int k)
{
    const hth_plan_layer *layer = &c->layers[l];
    uint64_t kv = layer->n_trip > 0 ? 0 : layer->kv_bytes * c->options.n_ctx,
             bytes = layer->attention_bytes + layer->state_bytes + kv;
    return k < 0 ? 0 : (bytes + (uint64_t)k * layer->cluster_bytes[HTH_PLAN_DEVICE] + 65535) / 65536 * 65536;
}

/* Seconds of each layer by k + 1. */
typedef double small_costs[N_SMALL_LAYER][N_SMALL_CLUSTER + 2];

/* All placements of the layers from l on, behind some that took `used` bytes of the device and `seconds`. n_there: the
 * first layers that must be on the device; the others are not. */
static void try_all(const small_case *c, small_costs costs, int l, int n_there, uint64_t used, double seconds,
                    double *least)
{
    if (used > c->machine.homes[0].capacity || seconds >= *least) return;
    if (l == N_SMALL_LAYER) {
        *least = seconds;
        return;
    }
    int from = l < n_there ? 0 : -1, to = l < n_there ? (int)(c->layers[l].n_cluster - c->layers[l].n_beyond) : -1;
    for (int k = from; k <= to; k++)
        try_all(c, costs, l + 1, n_there, used + layer_bytes(c, l, k), seconds + costs[l][k + 1], least);
}

static double brute_force(const small_case *c)
{
    const hth_plan_tier *gpu = &c->machine.homes[0], *host = &c->machine.homes[1];
    double here = (double)c->model.head_bytes / host->rates.at[3], min = (double)INFINITY;
    double there = (double)c->model.head_bytes / gpu->rates.at[3] + gpu->dispatch;
    small_costs costs;
    for (int l = 0; l < N_SMALL_LAYER; l++)
        for (int k = -1; k <= (int)c->layers[l].n_cluster; k++) costs[l][k + 1] = layer_seconds(c, l, k);
    try_all(c, costs, 0, 0, 0, here, &min);
    for (int n = 1; n <= N_SMALL_LAYER; n++)
        try_all(c, costs, 0, n, gpu->fixed_bytes, here + gpu->sync_latency, &min);
    try_all(c, costs, 0, N_SMALL_LAYER, gpu->fixed_bytes + c->model.head_bytes, there + gpu->sync_latency, &min);
    return min;
}

/* Quanta of 2^-29 of the slowest sum: so far may a solution be from the best. */
static bool near(double a, double b) { return fabs(a - b) <= 1e-6 * fabs(b); }

/* Experts of which a token reads some: divided in the first layers, else as a whole. */
static void make_mixture(test_random *r, small_case *c, bool has_misses)
{
    for (int k = 0; k <= N_SMALL_CLUSTER; k++) {
        double sum = 0;
        for (int n = 0; n < HTH_PLAN_N_MOVE; n++) c->moves[k][n] = test_random_between(r, 0, 0.25);
        for (int m = 0; m <= N_SMALL_USED; m++) sum += c->misses[k][m] = test_random_between(r, 0, 1);
        for (int m = 0; m <= N_SMALL_USED; m++) c->misses[k][m] /= sum;
    }
    for (uint32_t l = 0; l < N_SMALL_LAYER; l++) {
        c->layers[l].has_experts = l < 2;
        c->layers[l].n_dispatch_beside = l < 2 ? c->layers[l].n_dispatch / 2 : 0;
        if (has_misses && l < 2) c->layers[l].n_used = N_SMALL_USED, c->layers[l].misses = c->misses[0], c->layers[l].moves = c->moves[0];
        if (l < 2 && has_misses) c->layers[l].n_beyond = test_random_below(r, c->layers[l].n_cluster + 1);
        if (l % 2) c->layers[l].kv_window = test_random_below(r, 500);
        c->layers[l].n_spare = l, c->layers[l].n_dispatch_read = 3;
        c->layers[l].state_bytes = l * 100000;
        c->layers[l].idle_bytes = c->layers[l].attention_bytes / (1 + l) / 2;
    }
    c->machine.homes[0].read_rate = c->machine.homes[0].rates.at[3] / 10;
}

/* The host has the keys and values. Layers without any have no trips. */
static void keep_kv_on_host(small_case *c)
{
    for (uint32_t l = 0; l < N_SMALL_LAYER; l++) {
        c->layers[l].n_trip = l, c->layers[l].trip_bytes = 20000 * l;
        if (l == 0) c->layers[l].kv_bytes = 0;
    }
    c->machine.homes[0].way_rate = 10e9, c->machine.homes[0].kv_rate = c->machine.homes[1].rates.at[3];
}

TEST(solver_finds_what_trying_everything_finds)
{
    enum { N_CASE = 600 };
    test_random r = {2026};
    int n_better = 0, n_much = 0, n_split = 0, n_cpu = 0, n_head = 0, n_none = 0, n_whole = 0, n_read = 0;
    for (int i = 0; i < N_CASE; i++) {
        small_case c;
        hth_plan plan, prices, shares;
        make_small(&r, &c);
        if (i % 2) make_mixture(&r, &c, i % 4 == 1);
        if (i % 3 == 0) keep_kv_on_host(&c);
        CHECK_OK(hth_plan_solve(&c.model, &c.machine, &c.options, &plan, err));
        CHECK_OK(hth_plan_lagrangian(&c.model, &c.machine, &c.options, &prices, err));
        CHECK_OK(hth_plan_greedy_baseline(&c.model, &c.machine, &c.options, &shares, err));
        CHECK(plan.seconds <= prices.seconds * (1 + 1e-6) && plan.seconds <= shares.seconds * (1 + 1e-6));
        n_better += plan.seconds < prices.seconds * 0.999;
        n_much += plan.seconds < shares.seconds * 0.9;
        hth_plan_free(&prices), hth_plan_free(&shares);
        double best = brute_force(&c);
        if (!near(plan.seconds, best))
            test_fail(__FILE__, __LINE__, "case %d: %.9g s, by trying %.9g s", i, plan.seconds, best);
        CHECK(plan.bytes[0].total <= c.machine.homes[0].capacity);
        n_head += plan.head, n_none += plan.n_device == 0;
        for (int l = 0; l < N_SMALL_LAYER; l++) {
            uint32_t hot = plan.divisions[l].n_cluster[0];
            CHECK(hot <= c.layers[l].n_cluster - c.layers[l].n_beyond);
            n_cpu += plan.n_device > 0 && plan.divisions[l].attention == 1;
            n_whole += hot == c.layers[l].n_cluster;
            n_split += hot > 0 && hot < c.layers[l].n_cluster;
            n_read += plan.divisions[l].reads;
        }
        hth_plan_free(&plan);
    }
    /* Cases of every kind were among them. */
    printf("faster than by prices in %d, by a tenth than by shares in %d\n", n_better, n_much);
    CHECK(n_better > 5 && n_much > 50 && n_read > 10);
    printf("split layers %d, whole %d, behind the border %d; heads %d, nothing on the device %d\n", n_split,
           n_whole, n_cpu, n_head, n_none);
    CHECK(n_split > 50 && n_cpu > 50 && n_head > 50 && n_none > 20 && n_whole > 50);
}

TEST(least_and_gain_are_what_other_budgets_show)
{
    test_random r = {7};
    int n_wins = 0, n_never = 0;
    for (int i = 0; i < 150; i++) {
        small_case c;
        hth_plan plan, other;
        make_small(&r, &c);
        CHECK_OK(hth_plan_solve(&c.model, &c.machine, &c.options, &plan, err));
        hth_plan_machine changed = c.machine;
        changed.homes[0].capacity += (uint64_t)1 << 30;
        CHECK_OK(hth_plan_solve(&c.model, &changed, &c.options, &other, err));
        CHECK(fabs(1 / other.seconds - 1 / plan.seconds - plan.tps_per_gib) <= 2e-6 / other.seconds);
        n_never += plan.min_vram == 0;
        CHECK(plan.min_vram > 0 || other.n_device == 0);
        hth_plan_free(&other);
        if (plan.min_vram > 0) {
            changed.homes[0].capacity = plan.min_vram;
            CHECK_OK(hth_plan_solve(&c.model, &changed, &c.options, &other, err));
            CHECK(other.n_device > 0 && other.seconds < other.seconds_cpu);
            hth_plan_free(&other);
            changed.homes[0].capacity -= HTH_PLAN_UNIT;
            CHECK_OK(hth_plan_solve(&c.model, &changed, &c.options, &other, err));
            CHECK_INT(other.n_device, 0);
            hth_plan_free(&other);
            n_wins++;
        }
        hth_plan_free(&plan);
    }
    CHECK(n_wins > 50 && n_never > 5);
}

/* ---- stated shapes --------------------------------------------------------------------------- */

static const hth_plan_firing *const firings[] = {&hth_plan_dense, &hth_plan_sharp, &hth_plan_flat};
enum { N_FIRING = 3, N_TOKEN = 16 };

static const hth_plan_simulation usual = {N_TOKEN, 42, 0.15};

typedef struct stated {
    hth_plan_model model;
    hth_plan_machine machine;
    hth_plan_options options;
} stated;

static void make_stated(stated *s, const hth_plan_card *card, const hth_plan_shape *shape,
                        const hth_plan_firing *firing)
{
    CHECK_OK(hth_plan_shape_model(shape, firing, &s->model, err));
    s->machine = card->machine;
    s->machine.homes[0].sync_latency = hth_plan_probe(&card->link, s->model.d2h_bytes, s->model.h2d_bytes, 1);
    /* 1.5 GiB are left to others; 256 MiB for a step. */
    s->machine.homes[0].capacity -= (uint64_t)3 << 29;
    s->machine.homes[0].fixed_bytes = (uint64_t)256 << 20;
    s->options = (hth_plan_options){.n_ctx = 4096, .context = 4096};
}

static uint64_t whole_bytes(const stated *s)
{
    uint64_t bytes = s->model.head_bytes + s->machine.homes[0].fixed_bytes;
    for (uint32_t l = 0; l < s->model.n_layer; l++) {
        const hth_plan_layer *layer = &s->model.layers[l];
        bytes += layer->attention_bytes + layer->kv_bytes * s->options.n_ctx +
                 layer->cluster_bytes[HTH_PLAN_DEVICE] * layer->n_cluster + 65535;
    }
    return bytes;
}

TEST(solver_is_never_beaten_and_more_memory_never_slower)
{
    enum { N_BUDGET = 4 };
    int n_better_share = 0, n_all = 0;
    for (size_t i = 0; i < hth_plan_n_card * hth_plan_n_shape * N_FIRING; i++) {
        size_t i_card = i % hth_plan_n_card, i_shape = i / hth_plan_n_card % hth_plan_n_shape,
               i_firing = i / hth_plan_n_card / hth_plan_n_shape;
        stated s;
        /* A plan takes up to a second: each shape on each GPU, with one of the active shares. */
        if ((i_card + i_shape) % hth_plan_n_card != i_firing) continue;
        make_stated(&s, &hth_plan_cards[i_card], &hth_plan_shapes[i_shape], firings[i_firing]);
        double before = (double)INFINITY;
        uint64_t whole = whole_bytes(&s);
        for (uint64_t b = 0; b < N_BUDGET; b++) {
            hth_plan plan, prices, shares;
            uint64_t capacity = s.machine.homes[0].capacity = whole * b / (N_BUDGET - 1);
            CHECK_OK(hth_plan_solve(&s.model, &s.machine, &s.options, &plan, err));
            CHECK_OK(hth_plan_lagrangian(&s.model, &s.machine, &s.options, &prices, err));
            CHECK_OK(hth_plan_greedy_baseline(&s.model, &s.machine, &s.options, &shares, err));
            CHECK(plan.bytes[0].total <= capacity && prices.bytes[0].total <= capacity &&
                  shares.bytes[0].total <= capacity);
            CHECK(plan.seconds <= prices.seconds * (1 + 1e-6));
            CHECK(plan.seconds <= shares.seconds * (1 + 1e-6));
            CHECK(plan.seconds <= before * (1 + 1e-6));
            CHECK(prices.seconds <= plan.seconds * 1.06);
            CHECK(plan.seconds_empty <= plan.seconds_full && plan.seconds == plan.seconds_full);
            n_better_share += plan.seconds < shares.seconds * 0.99;
            n_all++;
            before = plan.seconds;
            hth_plan_free(&plan), hth_plan_free(&prices), hth_plan_free(&shares);
        }
        hth_plan_shape_free(&s.model);
    }
    printf("%d budgets: faster than by shares in %d\n", n_all, n_better_share);
    CHECK(n_better_share > n_all / 4);
}

/* Two layers, space for three of four clusters: one layer whole and the other half way costs one way
 * between, a split by share costs two. */
TEST(solver_buys_whole_layers_where_the_way_between_costs_most)
{
    double share[2][2] = {{0.9, 0.3}, {0.9, 0.3}};
    hth_plan_layer layers[2];
    for (int l = 0; l < 2; l++)
        layers[l] = (hth_plan_layer){.attention_bytes = 40 * 65536,
                                     .cluster_bytes = {65536, 65536},
                                     .n_cluster = 2,
                                     .share = share[l]};
    hth_plan_model model = {.n_layer = 2, .layers = layers};
    hth_plan_machine machine = {.n_home = 2,
                                .homes = {{.name = "the device",
                                           .kind = HTH_PLAN_DEVICE,
                                           .capacity = 82 * 65536,
                                           .rates = {{100e9, 100e9, 100e9, 100e9}},
                                           .sync_latency = 100e-6},
                                          {.name = "the CPU",
                                           .kind = HTH_PLAN_HOST,
                                           .capacity = UINT64_MAX,
                                           .rates = {{10e9, 10e9, 10e9, 10e9}}}}};
    hth_plan_options options = {0};
    hth_plan plan, shares;
    CHECK_OK(hth_plan_solve(&model, &machine, &options, &plan, err));
    CHECK_OK(hth_plan_greedy_baseline(&model, &machine, &options, &shares, err));
    CHECK(shares.divisions[0].n_cluster[0] == 1 && shares.divisions[1].n_cluster[0] == 1);
    CHECK_INT(plan.divisions[0].n_cluster[0] + plan.divisions[1].n_cluster[0], 2);
    CHECK_INT(plan.divisions[0].n_cluster[0] * plan.divisions[1].n_cluster[0], 0);
    CHECK(shares.seconds - plan.seconds > 80e-6);
    hth_plan_free(&plan), hth_plan_free(&shares);
    /* The first cold cluster costs the way: with one more unit than a whole layer wants, the second stays
     * empty rather than the first being opened. */
    machine.homes[0].capacity = 83 * 65536;
    CHECK_OK(hth_plan_solve(&model, &machine, &options, &plan, err));
    CHECK(plan.divisions[0].n_cluster[0] == 2 || plan.divisions[1].n_cluster[0] == 2);
    hth_plan_free(&plan);
}

/* ---- bits ------------------------------------------------------------------------------------ */

static uint64_t hash_plan(uint64_t h, const hth_plan *p)
{
    const hth_plan_bytes *b = &p->bytes[0];
    double seconds[] = {p->seconds,      p->seconds_empty,    p->seconds_full, p->seconds_cpu,
                        p->head_seconds, p->transfer_seconds, p->tps_per_gib};
    uint64_t numbers[] = {p->n_device, p->head, b->fixed, b->attention, b->kv,
                          b->clusters, b->head, b->total, p->min_vram,  p->unit};
    h = hth_hash_more(h, seconds, sizeof seconds);
    h = hth_hash_more(h, numbers, sizeof numbers);
    for (uint32_t l = 0; l < p->n_layer; l++) {
        const hth_plan_time *t = &p->layers[l];
        bool on_cpu = p->divisions[l].attention == 1;
        int32_t n_hot = on_cpu ? -1 : (int32_t)p->divisions[l].n_cluster[0];
        double times[] = {t->home[0], t->home[1], t->sync, t->merge, t->total};
        uint32_t bound = t->bound == HTH_PLAN_BOUND_SYNC ? 2 : t->bound;
        h = hth_hash_more(h, &n_hot, sizeof n_hot);
        h = hth_hash_more(h, times, sizeof times);
        h = hth_hash_more(h, &bound, sizeof bound);
    }
    return h;
}

/* Answers for a device and an unlimited host, of a solver that knows only these two: some of the 600 cases,
 * and hashes of all their numbers. -1: on the CPU. */
static const struct {
    int i, n_hot[N_SMALL_LAYER], head;
    uint64_t vram, min_vram;
    double seconds, tps_per_gib;
} kept_answers[] = {
    {1, {6, 6, 4, 4}, 1, 39041811, 4663395, 0x1.51ee593a8c278p-13, 0x0p+0},
    {3, {-1, -1, -1, -1}, 0, 0, 14749685, 0x1.1c6acc2cb39ep-11, 0x1.90be49fe84862p+11},
    {4, {4, 5, 5, 5}, 1, 38741636, 5333291, 0x1.80f9c46b923c4p-13, 0x0p+0},
    {5, {1, 5, -1, -1}, 0, 17832427, 4200939, 0x1.6ffe50d267de6p-10, 0x1.9f6a3a92965cbp+11},
    {8, {3, -1, -1, -1}, 0, 8954044, 5284028, 0x1.14363de9c36c8p-8, 0x1.884abc716087ep+8},
    {10, {5, 6, 4, 5}, 1, 34564806, 14514138, 0x1.df56fbc47529ap-12, 0x0p+0},
    {13, {5, 6, 6, 5}, 1, 38788727, 3112987, 0x1.5efa3bf641cd1p-12, 0x0p+0},
    {15, {5, 6, 4, 4}, 1, 52425511, 4027144, 0x1.44770d90b417fp-12, 0x1.af2c1187f8bp+6},
    {17, {4, 4, 5, 4}, 0, 26337794, 12771842, 0x1.503c7b7164e2ap-11, 0x1.3a6248d3277e6p+10},
    {19, {4, 3, 4, 3}, 1, 27380211, 8161992, 0x1.1f1de9c8acda3p-12, 0x0p+0},
};
static const uint64_t kept_solved = 0x90a2bccafb4121c6, kept_greedy = 0x7fe497e7b32478bf;
/* Of the 12 GB GPU, by firing and shape. */
static const uint64_t kept_stated[][4] = {
    {0x1cc3ec0e9e1d5502, 0x7160a34200ffcc07, 0x8af1b60d1d097d23, 0x697bd86f86c0d46c},
    {0xa224b3806214e3c6, 0xde9b98bc65b27974, 0x5e4ac625a651ab87, 0xaec219e393deba34},
    {0x9c881a8c05e42139, 0x57f2f1008ecf7c0a, 0x5aa1a522ce94e0a2, 0x918a9fc643eb1df4},
};

TEST(answers_for_a_device_and_a_host_keep_their_bits)
{
    test_random r = {2026};
    uint64_t solved = 0, greedy = 0;
    size_t next = 0;
    for (int i = 0; i < 600; i++) {
        small_case c;
        hth_plan plan, shares;
        make_small(&r, &c);
        CHECK_OK(hth_plan_solve(&c.model, &c.machine, &c.options, &plan, err));
        CHECK_OK(hth_plan_greedy_baseline(&c.model, &c.machine, &c.options, &shares, err));
        solved = hash_plan(solved, &plan), greedy = hash_plan(greedy, &shares);
        if (next < sizeof kept_answers / sizeof *kept_answers && kept_answers[next].i == i) {
            for (int l = 0; l < N_SMALL_LAYER; l++) {
                const hth_plan_division *d = &plan.divisions[l];
                CHECK_INT(d->attention == 1 ? -1 : (int)d->n_cluster[0], kept_answers[next].n_hot[l]);
            }
            CHECK(plan.head == kept_answers[next].head && plan.bytes[0].total == kept_answers[next].vram);
            CHECK(plan.min_vram == kept_answers[next].min_vram && plan.seconds == kept_answers[next].seconds);
            CHECK(plan.tps_per_gib == kept_answers[next++].tps_per_gib);
        }
        hth_plan_free(&plan), hth_plan_free(&shares);
    }
    CHECK(next == sizeof kept_answers / sizeof *kept_answers && solved == kept_solved &&
          greedy == kept_greedy);
    for (size_t i = 0; i < N_FIRING * hth_plan_n_shape; i++) {
        stated s;
        hth_plan plan;
        make_stated(&s, &hth_plan_cards[1], &hth_plan_shapes[i % hth_plan_n_shape],
                    firings[i / hth_plan_n_shape]);
        CHECK_OK(hth_plan_solve(&s.model, &s.machine, &s.options, &plan, err));
        CHECK(hash_plan(0, &plan) == kept_stated[i / hth_plan_n_shape][i % hth_plan_n_shape]);
        hth_plan_free(&plan);
        hth_plan_shape_free(&s.model);
    }
}

/* ---- other homes ----------------------------------------------------------------------------- */

TEST(a_host_without_a_device_has_everything)
{
    test_random r = {9};
    small_case c;
    hth_plan plan;
    make_small(&r, &c);
    const hth_plan_machine machine = {.n_home = 1, .homes = {c.machine.homes[1]}};
    CHECK_OK(hth_plan_solve(&c.model, &machine, &c.options, &plan, err));
    CHECK(plan.n_device == 0 && plan.seconds == plan.seconds_cpu && plan.min_vram == 0 && plan.tps_per_gib == 0);
    c.machine.homes[0].capacity = 0;
    CHECK(near(plan.seconds, brute_force(&c)));
    hth_plan_free(&plan);
}

/* By hand: four clusters of 1 MB that always fire, on each of two devices and the host. */
TEST(placements_on_any_homes_have_a_cost)
{
    const double share[] = {1, 1, 1, 1};
    hth_plan_layer layer = {.attention_bytes = 100000,
                            .kv_bytes = 10,
                            .cluster_bytes = {1000000, 1000000},
                            .n_cluster = 4,
                            .n_dispatch = 2,
                            .n_dispatch_hot = 3,
                            .share = share};
    hth_plan_layer layers[] = {layer, layer, layer};
    hth_plan_model model = {.n_layer = 3, .layers = layers, .head_bytes = 500000};
    hth_plan_tier first = {.name = "one",
                           .kind = HTH_PLAN_DEVICE,
                           .capacity = UINT64_MAX,
                           .sync_latency = 20e-6,
                           .rates = {{1e11, 1e11, 1e11, 1e11}},
                           .dispatch = 1e-6,
                           .merge = 4e-6,
                           .fixed_bytes = 7};
    hth_plan_tier second = first, host = {.name = "the host",
                                          .kind = HTH_PLAN_HOST,
                                          .capacity = UINT64_MAX,
                                          .rates = {{1e10, 1e10, 1e10, 1e10}}};
    second.name = "two", second.rates.at[3] = 5e10, second.sync_latency = 30e-6;
    const hth_plan_machine machine = {.n_home = 3, .homes = {first, second, host}};
    const hth_plan_options options = {.n_ctx = 1000, .context = 1000};
    hth_plan_division divisions[] = {
        {.attention = 0, .n_cluster = {1, 1, 2}},
        {.attention = 1, .n_cluster = {1, 3}},
        {.attention = 2, .n_cluster = {0, 0, 4}},
    };
    hth_plan plan;
    CHECK_OK(hth_plan_evaluate(&model, &machine, &options, divisions, false, &plan, err));
    /* 110 kB of attention; the host computes two MB in 0.2 ms, which is the latest. */
    const hth_plan_time *t = plan.layers;
    CHECK(near(t[0].home[0], 1.1e-6 + 2e-6 + 10e-6 + 3e-6) && near(t[0].home[1], 20e-6 + 3e-6));
    CHECK(near(t[0].home[2], 200e-6) && near(t[0].merge, 8e-6) && t[0].bound == 2);
    CHECK(near(t[0].sync, 50e-6 + 20e-6) && near(t[0].total, 3.1e-6 + 8e-6 + 20e-6 + 200e-6));
    /* Attention on the second device; the first one's cluster comes after 50 us, its own three after 63. */
    CHECK(near(t[1].home[1], 2.2e-6 + 2e-6 + 60e-6 + 3e-6) && near(t[1].home[0], 13e-6) && t[1].bound == 1);
    CHECK(near(t[1].total, t[1].home[1] + 4e-6));
    CHECK(near(t[2].total, 11e-6 + 400e-6) && t[2].sync == 0 && t[2].bound == 2);
    CHECK(plan.n_device == 2 && near(plan.transfer_seconds, 50e-6) && near(plan.head_seconds, 50e-6));
    CHECK(near(plan.seconds, t[0].total + t[1].total + t[2].total + 100e-6));
    CHECK_INT(plan.bytes[0].total, 7 + 17 * 65536 + 16 * 65536);
    CHECK_INT(plan.bytes[1].total, 7 + 16 * 65536 + 48 * 65536);
    CHECK_INT(plan.bytes[2].total, 6000000 + 110000 + 500000);
    hth_plan_free(&plan);
    CHECK_FAILS(hth_plan_greedy_baseline(&model, &machine, &options, &plan, err), HEARTH_ERROR_UNSUPPORTED,
                "2 devices");
}

/* ---- simulation ------------------------------------------------------------------------------ */

/* Tokens per second of one machine, model and way of firing; how far the simulation is from the
 * prediction. */
static double simulate_row(const hth_plan_card *card, const hth_plan_shape *shape,
                           const hth_plan_firing *firing)
{
    stated s;
    hth_plan plan, shares;
    hth_plan_simulated done, done_shares;
    make_stated(&s, card, shape, firing);
    CHECK_OK(hth_plan_solve(&s.model, &s.machine, &s.options, &plan, err));
    CHECK_OK(hth_plan_greedy_baseline(&s.model, &s.machine, &s.options, &shares, err));
    CHECK_OK(hth_plan_simulate(&s.model, &s.machine, &card->link, &s.options, &plan, &usual, &done, err));
    CHECK_OK(
        hth_plan_simulate(&s.model, &s.machine, &card->link, &s.options, &shares, &usual, &done_shares, err));
    CHECK(plan.bytes[0].total <= s.machine.homes[0].capacity);
    CHECK(done.min <= done.seconds && done.seconds <= done.max);
    /* Both sides work at once where layers are split, and never for longer than one of them. */
    CHECK(done.n_sync == 0 || (done.overlap > 0 && done.overlap <= 1 + 1e-9));
    CHECK(done.overlap == 0 || done.seconds < done.device_busy + done.cpu_busy + 2e-4);
    CHECK(done.seconds <= done_shares.seconds * 1.02);
    uint64_t network =
        s.model.layers[0].cluster_bytes[HTH_PLAN_DEVICE] * s.model.layers[0].n_cluster * s.model.n_layer;
    printf("| %s | %s | %s | %u of %u | %.2f | %.1f | %.1f | %.1f | %.2f | %.1f | %+.2f |\n", card->name,
           shape->name, firing->name, plan.n_device, plan.n_layer,
           (double)plan.bytes[0].clusters / (double)network, 1 / plan.seconds_cpu, 1 / plan.seconds,
           1 / done.seconds, done.overlap, 1 / done_shares.seconds, plan.tps_per_gib);
    double off = done.seconds / plan.seconds - 1;
    hth_plan_free(&plan), hth_plan_free(&shares);
    hth_plan_shape_free(&s.model);
    return off;
}

TEST(predictions_are_what_a_simulated_machine_does)
{
    double worst = 0;
    printf("tokens/s, simulated; stated shapes, firing and cards; context 4096, 1.5 GiB left to others\n"
           "| card | model | firing | layers there | network there | CPU alone | predicted | simulated | "
           "overlap "
           "| by share, simulated | 1 GiB more |\n|---|---|---|---|---|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < hth_plan_n_card * hth_plan_n_shape * N_FIRING; i++) {
        double off = simulate_row(&hth_plan_cards[i / N_FIRING / hth_plan_n_shape],
                                  &hth_plan_shapes[i / N_FIRING % hth_plan_n_shape], firings[i % N_FIRING]);
        if (!(fabs(off) <= 0.03)) test_fail(__FILE__, __LINE__, "row %zu: %+.1f %%", i, 100 * off);
        if (fabs(off) > fabs(worst)) worst = off;
    }
    printf("simulated against predicted: %+.1f %% at most\n", 100 * worst);
}

TEST(simulation_repeats_by_seed_and_moves_with_its_costs)
{
    const hth_plan_card *card = &hth_plan_cards[1];
    stated s;
    hth_plan plan;
    hth_plan_simulated a, b, c, d;
    make_stated(&s, card, &hth_plan_shapes[2], &hth_plan_sharp);
    CHECK_OK(hth_plan_solve(&s.model, &s.machine, &s.options, &plan, err));
    hth_plan_simulation other = usual;
    other.seed++;
    hth_plan_link slow = card->link;
    slow.submit += 1e-3;
    CHECK_OK(hth_plan_simulate(&s.model, &s.machine, &card->link, &s.options, &plan, &usual, &a, err));
    CHECK_OK(hth_plan_simulate(&s.model, &s.machine, &card->link, &s.options, &plan, &usual, &b, err));
    CHECK_OK(hth_plan_simulate(&s.model, &s.machine, &card->link, &s.options, &plan, &other, &c, err));
    CHECK_OK(hth_plan_simulate(&s.model, &s.machine, &slow, &s.options, &plan, &usual, &d, err));
    CHECK(memcmp(&a, &b, sizeof a) == 0 && memcmp(&a, &c, sizeof a) != 0);
    CHECK(a.deviation > 0 && a.max > a.min);
    /* A millisecond at each wait, and once to begin. */
    CHECK(fabs(d.seconds - a.seconds - (a.n_sync + 1) * 1e-3) < 0.1 * (a.n_sync + 1) * 1e-3);
    hth_plan_free(&plan);
    hth_plan_shape_free(&s.model);
}

/* ---- bounds and refusals --------------------------------------------------------------------- */

TEST(shares_have_their_mean_and_coverage)
{
    enum { N = 108 };
    double share[N];
    for (int i = 0; i < N_FIRING; i++) {
        double sum = 0, hot = 0;
        hth_plan_shares(firings[i], N, share);
        for (int k = 0; k < N; k++) {
            CHECK(share[k] >= 0 && share[k] <= 1);
            CHECK(k == 0 || share[k] <= share[k - 1] + 1e-9);
            sum += share[k];
            if (k < 28) hot += share[k]; /* 26 % */
        }
        CHECK(fabs(sum / N - firings[i]->mean) < 1e-3);
        if (firings[i] == &hth_plan_sharp) CHECK(fabs(hot / sum - 0.8) < 0.005);
    }
}

TEST(solver_takes_larger_units_for_models_beyond_its_bounds)
{
    stated s;
    hth_plan plan;
    make_stated(&s, &hth_plan_cards[2], &hth_plan_shapes[3], &hth_plan_dense);
    uint64_t began = hth_clock_ns();
    CHECK_OK(hth_plan_solve(&s.model, &s.machine, &s.options, &plan, err));
    printf("70B on 24 GB: %.2f s\n", (double)(hth_clock_ns() - began) * 1e-9);
    CHECK_INT(plan.unit, HTH_PLAN_UNIT);
    hth_plan_free(&plan);
    hth_plan_shape_free(&s.model);
    /* More than the bounds hold: units grow. */
    hth_plan_shape huge = {"huge", 200, 16384, 65536, 128, 8, 128256};
    hth_plan_card card = hth_plan_cards[2];
    card.machine.homes[0].capacity = (uint64_t)150 << 30;
    make_stated(&s, &card, &huge, &hth_plan_dense);
    CHECK_OK(hth_plan_solve(&s.model, &s.machine, &s.options, &plan, err));
    CHECK(plan.unit > HTH_PLAN_UNIT && plan.bytes[0].total <= s.machine.homes[0].capacity);
    hth_plan_free(&plan);
    hth_plan_shape_free(&s.model);
}

static void refuse(const small_case *c, const char *word, const char *file, int line)
{
    hearth_error err = {0};
    hth_plan plan;
    if (hth_plan_solve(&c->model, &c->machine, &c->options, &plan, &err) != HEARTH_ERROR_ARGUMENT ||
        !strstr(err.message, word))
        test_fail(file, line, "not refused by '%s': %s", word, err.message);
}
#define REFUSE(C, WORD) refuse(&(C), (WORD), __FILE__, __LINE__)

TEST(bad_numbers_are_refused_by_name)
{
    test_random r = {3};
    small_case good, c;
    hearth_error why;
    CLEANUP(hth_plan_free) hth_plan plan;
    make_small(&r, &good);
#define CHANGED(WHAT, WORD)                                                                                  \
    do {                                                                                                     \
        c = good, c.model.layers = c.layers;                                                                 \
        for (int l_ = 0; l_ < N_SMALL_LAYER; l_++) c.layers[l_].share = c.share[l_];                         \
        WHAT;                                                                                                \
        REFUSE(c, WORD);                                                                                     \
    } while (0)
    CHANGED(c.model.n_layer = 0, "layers");
    CHANGED(c.model.n_layer = 5000, "layers");
    CHANGED(c.share[2][1] = 1.5, "layer 2: cluster 1");
    CHANGED(c.layers[1].idle_bytes = c.layers[1].attention_bytes + 1, "layer 1: a token does not read");
    CHANGED(c.share[0][0] = (double)NAN, "layer 0: cluster 0");
    CHANGED(c.machine.homes[0].rates.at[1] = 0, "the rate of the device");
    CHANGED(c.machine.homes[1].rates.at[3] = (double)NAN, "the rate of the CPU");
    CHANGED(c.machine.homes[0].sync_latency = -1, "the sync latency of the device");
    CHANGED(c.machine.homes[0].merge = (double)INFINITY, "merge");
    CHANGED(c.machine.homes[0].dispatch = (double)NAN, "dispatch");
    CHANGED(c.machine.homes[0].min_active_share = 2, "min_active_share of the device");
    CHANGED(c.options.context = c.options.n_ctx + 1, "room for");
    CHANGED(c.machine.homes[0].fixed_bytes = UINT64_MAX, "fixed");
    CHANGED(c.model.head_bytes = UINT64_MAX, "head");
    CHANGED(c.layers[3].cluster_bytes[HTH_PLAN_HOST] = UINT64_MAX / 2, "layer 3");
    CHANGED(c.layers[1].kv_bytes = UINT64_MAX, "layer 1");
    CHANGED(c.layers[1].state_bytes = UINT64_MAX, "layer 1");
    CHANGED(c.layers[1].n_cluster = 1u << 20, "layer 1");
    CHANGED(c.layers[1].n_trip = 1u << 20, "layer 1");
    CHANGED(c.layers[1].trip_bytes = UINT64_MAX, "layer 1");
    CHANGED(c.layers[1].n_trip = 1, "the rate of values that cross of the device");
    CHANGED((c.layers[1].n_trip = 1, c.machine.homes[0].way_rate = 1e9), "the rate of keys and values of the device");
    CHANGED(c.machine.n_home = 0, "0 homes");
    CHANGED(c.machine.n_home = 1, "0 of its homes are hosts");
    CHANGED(c.machine.homes[0].kind = HTH_PLAN_HOST, "2 of its homes are hosts");
    CHANGED((c.machine.homes[0] = c.machine.homes[1], c.machine.homes[1] = good.machine.homes[0]),
            "the device comes after the CPU");
    CHANGED(c.machine.homes[1].name = NULL, "home 1");
    CHANGED((c.machine.homes[1].capacity = 7, c.machine.homes[1].fixed_bytes = 8),
            "the CPU: 8 bytes of its 7 bytes");
    CHANGED(c.machine.homes[1].capacity = 9, " of the CPU, but 9 bytes are given");
    hth_plan_division some[N_SMALL_LAYER];
    put_clusters_on_host(&good, some);
#define MISPLACED(WHAT, HEAD, WORD)                                                                          \
    do {                                                                                                     \
        hth_plan_division changed[N_SMALL_LAYER];                                                            \
        memcpy(changed, some, sizeof some);                                                                  \
        WHAT;                                                                                                \
        CHECK_FAILS(hth_plan_evaluate(&good.model, &good.machine, &good.options, changed, HEAD, &plan, err), \
                    HEARTH_ERROR_ARGUMENT, WORD);                                                            \
    } while (0)
    good.machine.homes[0].capacity = UINT64_MAX;
    MISPLACED(changed[1].attention = 1, false,
              "layer 2 has its attention on the device, after a layer on the CPU");
    MISPLACED(changed[0].n_cluster[0] += 99, false, "layer 0: ");
    MISPLACED(changed[2].attention = 2, false, "layer 2: attention has no home");
    MISPLACED(changed[3].attention = 1, true, "the head is on a device, but layer 3 is not");
    good.machine.homes[0].capacity = good.machine.homes[0].fixed_bytes;
    MISPLACED((void)0, false, " of the device, but ");
    good.machine.homes[0].capacity = UINT64_MAX, good.machine.homes[1].capacity = 10;
    MISPLACED((void)0, false, " of the CPU, but 10 bytes are given");
    good.machine.homes[1].capacity = UINT64_MAX;
    hth_plan_link link = hth_plan_cards[0].link;
    hth_plan_simulated done;
    hth_plan_simulation none = {0, 1, 0};
    CHECK_OK(hth_plan_solve(&good.model, &good.machine, &good.options, &plan, err));
    CHECK_INT(hth_plan_simulate(&good.model, &good.machine, &link, &good.options, &plan, &none, &done, &why),
              HEARTH_ERROR_ARGUMENT);
    link.submit = (double)NAN;
    CHECK_INT(hth_plan_simulate(&good.model, &good.machine, &link, &good.options, &plan, &usual, &done, &why),
              HEARTH_ERROR_ARGUMENT);
}
