/* What is promised of plans: the solver finds what trying everything finds, is never beaten, keeps
 * budgets, and what it predicts is what a simulated machine does. With "table" as argument it prints the
 * table of docs/plan.md; every speed in it is simulated. */
#include "base/clock.h"
#include "support/planner/plan_reference.h"
#include "support/test.h"

/* ---- small cases ----------------------------------------------------------------------------- */

enum { N_SMALL_LAYER = 4, N_SMALL_CLUSTER = 6 };

typedef struct small_case {
    double share[N_SMALL_LAYER][N_SMALL_CLUSTER];
    hth_plan_layer layers[N_SMALL_LAYER];
    hth_plan_model model;
    hth_plan_machine machine;
    hth_plan_options options;
} small_case;

static double between(test_random *r, double from, double to)
{
    return from + (to - from) * (double)test_random_next(r) * 0x1p-64;
}

static hth_plan_rates some_rates(test_random *r, double max)
{
    hth_plan_rates rates;
    for (int i = 0; i < HTH_PLAN_N_KNOT; i++)
        rates.at[i] = max * (0.5 + 0.5 * i / (HTH_PLAN_N_KNOT - 1)) * between(r, 0.9, 1);
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
            double x = between(r, 0, 1);
            c->share[l][k] = dense ? 1 : test_random_below(r, 8) == 0 ? 0 : x * x * x;
        }
        if (sorted) qsort(c->share[l], N_SMALL_CLUSTER, sizeof(double), falling);
        layer->n_cluster = N_SMALL_CLUSTER - test_random_below(r, 3);
        layer->attention_bytes = 1 + test_random_below(r, 4u << 20);
        layer->kv_bytes = test_random_below(r, 4096);
        layer->device_bytes = 1 + test_random_below(r, 2u << 20);
        layer->cpu_bytes = layer->device_bytes - test_random_below(r, 2) * layer->device_bytes / 9;
        layer->n_dispatch = test_random_below(r, 8), layer->n_dispatch_hot = test_random_below(r, 4);
        layer->share = c->share[l];
    }
    c->model.head_bytes = test_random_below(r, 8u << 20);
    c->machine.device = some_rates(r, between(r, 5e9, 400e9)),
    c->machine.cpu = some_rates(r, between(r, 5e9, 80e9));
    c->machine.min_active_share = between(r, 0, 0.02);
    c->machine.sync_latency = between(r, 0, 1) < 0.5 ? between(r, 0, 100e-6) : between(r, 0, 2e-3);
    c->machine.dispatch = between(r, 0, 5e-6), c->machine.merge = between(r, 0, 10e-6);
    c->options.fixed_bytes = test_random_below(r, 1u << 20);
    c->options.n_ctx = test_random_below(r, 1000);
    c->options.context = test_random_below(r, c->options.n_ctx + 1);
    c->options.vram = (uint64_t)(between(r, 0, 1) * (64u << 20));
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

static double layer_seconds(const small_case *c, int l, int k)
{
    const hth_plan_layer *layer = &c->layers[l];
    const hth_plan_machine *m = &c->machine;
    double fixed = (double)layer->attention_bytes + (double)layer->kv_bytes * c->options.context, hot = 0,
           cold = 0, silent = 1;
    for (int i = 0; i < (int)layer->n_cluster; i++) {
        double p = layer->share[i], live = fmax(p, m->min_active_share);
        if (i < k) hot += (double)layer->device_bytes * live / rate_of(&m->device, live);
        else cold += (double)layer->cpu_bytes * p / rate_of(&m->cpu, p), silent *= pow(1 - p, 64);
    }
    if (k < 0) return fixed / m->cpu.at[3] + cold;
    if (k > 0) hot += layer->n_dispatch_hot * m->dispatch;
    double before = fixed / m->device.at[3] + layer->n_dispatch * m->dispatch, fires = 1 - silent;
    if (k == (int)layer->n_cluster) return before + hot;
    double waits = fires > 0 ? fmax(hot, m->sync_latency + cold / fires) : hot;
    return before + fires * waits + silent * hot + m->merge;
}

static uint64_t layer_bytes(const small_case *c, int l, int k)
{
    const hth_plan_layer *layer = &c->layers[l];
    if (k < 0) return 0;
    uint64_t bytes = layer->attention_bytes + layer->kv_bytes * c->options.n_ctx + (uint64_t)k * layer->device_bytes;
    return (bytes + 65535) / 65536 * 65536;
}

/* All placements of the layers from l on, behind some that took `capacity` bytes and `seconds`. n_there: the
 * first layers that must be on the device; the others are not. */
static void try_all(const small_case *c, int l, int n_there, uint64_t capacity, double seconds, double *least)
{
    if (capacity > c->options.vram) return;
    if (l == N_SMALL_LAYER) {
        if (seconds < *least) *least = seconds;
        return;
    }
    int from = l < n_there ? 0 : -1, to = l < n_there ? (int)c->layers[l].n_cluster : -1;
    for (int k = from; k <= to; k++)
        try_all(c, l + 1, n_there, capacity + layer_bytes(c, l, k), seconds + layer_seconds(c, l, k), least);
}

static double brute_force(const small_case *c)
{
    double here = (double)c->model.head_bytes / c->machine.cpu.at[3], min = 1e30;
    double there = (double)c->model.head_bytes / c->machine.device.at[3] + c->machine.dispatch;
    try_all(c, 0, 0, 0, here, &min);
    for (int n = 1; n <= N_SMALL_LAYER; n++)
        try_all(c, 0, n, c->options.fixed_bytes, here + c->machine.sync_latency, &min);
    try_all(c, 0, N_SMALL_LAYER, c->options.fixed_bytes + c->model.head_bytes, there + c->machine.sync_latency, &min);
    return min;
}

/* Quanta of 2^-29 of the slowest sum: so far may a solution be from the best. */
static bool near(double a, double b) { return fabs(a - b) <= 1e-6 * fabs(b); }

TEST(solver_finds_what_trying_everything_finds)
{
    enum { N_CASE = 600 };
    test_random r = {2026};
    int n_better = 0, n_much = 0, n_split = 0, n_cpu = 0, n_head = 0, n_none = 0, n_whole = 0;
    for (int i = 0; i < N_CASE; i++) {
        small_case c;
        hth_plan plan, prices, shares;
        make_small(&r, &c);
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
        CHECK(plan.vram <= c.options.vram);
        n_head += plan.head, n_none += plan.n_device == 0;
        for (int l = 0; l < N_SMALL_LAYER; l++) {
            n_cpu += plan.n_device > 0 && plan.n_hot[l] < 0;
            n_whole += plan.n_hot[l] == (int)c.layers[l].n_cluster;
            n_split += plan.n_hot[l] > 0 && plan.n_hot[l] < (int)c.layers[l].n_cluster;
        }
        hth_plan_free(&plan);
    }
    /* Cases of every kind were among them. */
    printf("faster than by prices in %d, by a tenth than by shares in %d\n", n_better, n_much);
    CHECK(n_better > 10 && n_much > 50);
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
        hth_plan_options changed = c.options;
        changed.vram += (uint64_t)1 << 30;
        CHECK_OK(hth_plan_solve(&c.model, &c.machine, &changed, &other, err));
        CHECK(fabs(1 / other.seconds - 1 / plan.seconds - plan.tps_per_gib) <= 2e-6 / other.seconds);
        n_never += plan.min_vram == 0;
        CHECK(plan.min_vram > 0 || other.n_device == 0);
        hth_plan_free(&other);
        if (plan.min_vram > 0) {
            changed.vram = plan.min_vram;
            CHECK_OK(hth_plan_solve(&c.model, &c.machine, &changed, &other, err));
            CHECK(other.n_device > 0 && other.seconds < other.seconds_cpu);
            hth_plan_free(&other);
            changed.vram -= HTH_PLAN_UNIT;
            CHECK_OK(hth_plan_solve(&c.model, &c.machine, &changed, &other, err));
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
    s->machine.sync_latency = hth_plan_probe(&card->link, s->model.d2h_bytes, s->model.h2d_bytes, 1);
    /* 1.5 GiB are left to others; 256 MiB for a step. */
    s->options = (hth_plan_options){card->vram - ((uint64_t)3 << 29), (uint64_t)256 << 20, 4096, 4096};
}

static uint64_t whole_bytes(const stated *s)
{
    uint64_t bytes = s->model.head_bytes + s->options.fixed_bytes;
    for (uint32_t l = 0; l < s->model.n_layer; l++) {
        const hth_plan_layer *layer = &s->model.layers[l];
        bytes += layer->attention_bytes + layer->kv_bytes * s->options.n_ctx +
                 layer->device_bytes * layer->n_cluster + 65535;
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
            s.options.vram = whole * b / (N_BUDGET - 1);
            CHECK_OK(hth_plan_solve(&s.model, &s.machine, &s.options, &plan, err));
            CHECK_OK(hth_plan_lagrangian(&s.model, &s.machine, &s.options, &prices, err));
            CHECK_OK(hth_plan_greedy_baseline(&s.model, &s.machine, &s.options, &shares, err));
            CHECK(plan.vram <= s.options.vram && prices.vram <= s.options.vram && shares.vram <= s.options.vram);
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
        layers[l] = (hth_plan_layer){.attention_bytes = 40 * 65536, .device_bytes = 65536, .cpu_bytes = 65536,
                                     .n_cluster = 2, .share = share[l]};
    hth_plan_model model = {.n_layer = 2, .layers = layers};
    hth_plan_machine machine = {
        .device = {{100e9, 100e9, 100e9, 100e9}}, .cpu = {{10e9, 10e9, 10e9, 10e9}}, .sync_latency = 100e-6};
    hth_plan_options options = {.vram = 82 * 65536};
    hth_plan plan, shares;
    CHECK_OK(hth_plan_solve(&model, &machine, &options, &plan, err));
    CHECK_OK(hth_plan_greedy_baseline(&model, &machine, &options, &shares, err));
    CHECK(shares.n_hot[0] == 1 && shares.n_hot[1] == 1);
    CHECK(plan.n_hot[0] + plan.n_hot[1] == 2 && plan.n_hot[0] * plan.n_hot[1] == 0);
    CHECK(shares.seconds - plan.seconds > 80e-6);
    hth_plan_free(&plan), hth_plan_free(&shares);
    /* The first cold cluster costs the way: with one more unit than a whole layer wants, the second stays
     * empty rather than the first being opened. */
    options.vram = 83 * 65536;
    CHECK_OK(hth_plan_solve(&model, &machine, &options, &plan, err));
    CHECK(plan.n_hot[0] == 2 || plan.n_hot[1] == 2);
    hth_plan_free(&plan);
}

/* ---- simulation ------------------------------------------------------------------------------ */

static const hth_plan_simulation usual = {N_TOKEN, 42, 0.15};

/* Tokens per second of one machine, model and way of firing; how far the simulation is from the prediction. */
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
    CHECK_OK(hth_plan_simulate(&s.model, &s.machine, &card->link, &s.options, &shares, &usual, &done_shares, err));
    CHECK(plan.vram <= s.options.vram);
    CHECK(done.min <= done.seconds && done.seconds <= done.max);
    /* Both sides work at once where layers are split, and never for longer than one of them. */
    CHECK(done.n_sync == 0 || (done.overlap > 0 && done.overlap <= 1 + 1e-9));
    CHECK(done.overlap == 0 || done.seconds < done.device_busy + done.cpu_busy + 2e-4);
    CHECK(done.seconds <= done_shares.seconds * 1.02);
    uint64_t network = s.model.layers[0].device_bytes * s.model.layers[0].n_cluster * s.model.n_layer;
    printf("| %s | %s | %s | %u of %u | %.2f | %.1f | %.1f | %.1f | %.2f | %.1f | %+.2f |\n", card->name,
           shape->name, firing->name, plan.n_device, plan.n_layer,
           (double)plan.cluster_bytes / (double)network, 1 / plan.seconds_cpu, 1 / plan.seconds,
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
        if (!(fabs(off) <= 0.05)) test_fail(__FILE__, __LINE__, "row %zu: %+.1f %%", i, 100 * off);
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
    double share[432];
    for (int i = 0; i < N_FIRING; i++) {
        double sum = 0, hot = 0;
        hth_plan_shares(firings[i], 432, share);
        for (int k = 0; k < 432; k++) {
            CHECK(share[k] >= 0 && share[k] <= 1);
            CHECK(k == 0 || share[k] <= share[k - 1] + 1e-9);
            sum += share[k];
            if (k < 112) hot += share[k]; /* 26 % */
        }
        CHECK(fabs(sum / 432 - firings[i]->mean) < 1e-3);
        if (firings[i] == &hth_plan_sharp) CHECK(fabs(hot / sum - 0.8) < 0.005);
    }
}

TEST(solver_takes_bounded_time_on_large_models)
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
    card.vram = (uint64_t)150 << 30;
    make_stated(&s, &card, &huge, &hth_plan_dense);
    CHECK_OK(hth_plan_solve(&s.model, &s.machine, &s.options, &plan, err));
    CHECK(plan.unit > HTH_PLAN_UNIT && plan.vram <= s.options.vram);
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
    CHANGED(c.share[0][0] = (double)NAN, "layer 0: cluster 0");
    CHANGED(c.machine.device.at[1] = 0, "device's rate");
    CHANGED(c.machine.cpu.at[3] = (double)NAN, "CPU's rate");
    CHANGED(c.machine.sync_latency = -1, "way between");
    CHANGED(c.machine.merge = (double)INFINITY, "merge");
    CHANGED(c.machine.dispatch = (double)NAN, "dispatch");
    CHANGED(c.machine.min_active_share = 2, "floor");
    CHANGED(c.options.context = c.options.n_ctx + 1, "room for");
    CHANGED(c.options.fixed_bytes = UINT64_MAX, "fixed");
    CHANGED(c.model.head_bytes = UINT64_MAX, "head");
    CHANGED(c.layers[3].device_bytes = UINT64_MAX / 2, "layer 3");
    CHANGED(c.layers[1].kv_bytes = UINT64_MAX, "layer 1");
    CHANGED(c.layers[1].n_cluster = 1u << 20, "layer 1");
    int32_t behind[N_SMALL_LAYER] = {0, HTH_PLAN_CPU, 0, 0}, many[N_SMALL_LAYER] = {99},
            some[N_SMALL_LAYER] = {0};
    good.options.vram = UINT64_MAX;
    CHECK_INT(hth_plan_evaluate(&good.model, &good.machine, &good.options, behind, false, &plan, &why),
              HEARTH_ERROR_ARGUMENT);
    CHECK_INT(hth_plan_evaluate(&good.model, &good.machine, &good.options, many, false, &plan, &why),
              HEARTH_ERROR_ARGUMENT);
    some[3] = HTH_PLAN_CPU;
    CHECK_INT(hth_plan_evaluate(&good.model, &good.machine, &good.options, some, true, &plan, &why),
              HEARTH_ERROR_ARGUMENT);
    good.options.vram = good.options.fixed_bytes;
    CHECK_FAILS(hth_plan_evaluate(&good.model, &good.machine, &good.options, some, false, &plan, err),
                HEARTH_ERROR_ARGUMENT,
                " of the device, but ");
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
