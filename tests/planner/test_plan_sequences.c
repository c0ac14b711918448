/* Plans for steps with a token of each of several sequences: their cost by hand, and how far the best divisions for 1, 4,
 * 16 and 64 of them differ (docs/plan.md). With HEARTH_LONG it prints the rows of all cards and shapes. */
#include "planner/plan_int.h"
#include "support/planner/plan_reference.h"
#include "support/test.h"

static bool near(double a, double b) { return a > b - 1e-12 && a < b + 1e-12; }

/* Seconds of one layer of a machine with a device of 100 GB/s and a host of 10 GB/s, divided at n. */
static double seconds_of(const hth_plan_layer *layer, uint32_t n_hot, uint32_t n_seq)
{
    const hth_plan_tier device = {.name = "the device",
                                  .kind = HTH_PLAN_DEVICE,
                                  .capacity = UINT64_MAX,
                                  .sync_latency = 10e-6,
                                  .sync_more = 1e-6,
                                  .rates = {{1e11, 1e11, 1e11, 1e11}},
                                  .product_rate = 4e11};
    const hth_plan_tier host = {.name = "the host",
                                .kind = HTH_PLAN_HOST,
                                .capacity = UINT64_MAX,
                                .rates = {{1e10, 1e10, 1e10, 1e10}},
                                .product_rate = 2e10};
    const hth_plan_machine machine = {.n_home = 2, .homes = {device, host}};
    hth_plan_layer layers[] = {*layer};
    const hth_plan_model model = {.n_layer = 1, .layers = layers, .head_bytes = 1000000};
    const hth_plan_options options = {.n_ctx = 100, .context = 100, .n_seq = n_seq};
    const hth_plan_division division = {.attention = 0, .n_cluster = {n_hot, layer->n_cluster - n_hot}};
    hth_plan plan;
    double seconds = 0;
    CHECK_OK(hth_plan_evaluate(&model, &machine, &options, &division, true, &plan, err));
    CHECK(near(plan.head_seconds, n_seq <= 4 ? 10e-6 : n_seq * 1e6 / 4e11));
    CHECK(near(plan.transfer_seconds, 10e-6 + (n_seq - 1) * 1e-6));
    seconds = plan.layers[0].total;
    hth_plan_free(&plan);
    return seconds;
}

/* Weights are read once, states and keys by each sequence; from 4 sequences on the device multiplies longer than it reads. */
TEST(attention_is_read_once_and_multiplied_for_each_sequence)
{
    const hth_plan_layer layer = {.attention_bytes = 3000000, .moved_bytes = 1000000, .kv_bytes = 10000};
    CHECK(near(seconds_of(&layer, 0, 1), 4e6 / 1e11));                          /* 2 MB, 1 MB of states, 1 MB of keys */
    CHECK(near(seconds_of(&layer, 0, 3), (2e6 + 3e6 + 1e6) / 1e11));
    const hth_plan_layer weights = {.attention_bytes = 2000000};
    CHECK(near(seconds_of(&weights, 0, 4), 2e6 / 1e11) && near(seconds_of(&weights, 0, 8), 8 * 2e6 / 4e11));
    /* A quarter of 4 MB of experts is used by a token, and 1 - 0.75^2 of them by two. */
    const hth_plan_layer experts = {.attention_bytes = 4000000, .idle_bytes = 3000000, .idle_share = 0.75};
    CHECK(near(seconds_of(&experts, 0, 1), 1e6 / 1e11) && near(seconds_of(&experts, 0, 2), 1.75e6 / 1e11));
}

/* Two clusters of 1 MB, the first on the device: a third of each is read whatever fires, and of the rest what fires for
 * any sequence. */
TEST(clusters_are_read_for_the_neurons_of_any_sequence)
{
    const double share[] = {2.0 / 3, 0.5}, third = 1.0 / 3;
    const hth_plan_layer layer = {
        .cluster_bytes = {1000000, 1000000}, .n_cluster = 2, .whole_share = third, .share = share};
    CHECK(near(seconds_of(&layer, 1, 1), 10e-6 + 0.5e6 / 1e10));
    CHECK(near(seconds_of(&layer, 2, 1), share[0] * 1e6 / 1e11 + 0.5e6 / 1e11));
    /* half of the rest fires for one, and 1 - 0.5^2 for two; a quarter, and 1 - 0.75^2 */
    double both = third + 2 * third * 0.75 + third + 2 * third * (1 - 0.75 * 0.75);
    CHECK(near(seconds_of(&layer, 2, 2), both * 1e6 / 1e11));
    double cold = third + 2 * third * (1 - 0.75 * 0.75);
    CHECK(near(seconds_of(&layer, 1, 2), 11e-6 + cold * 1e6 / 1e10));
    CHECK(near(seconds_of(&layer, 1, 4), 13e-6 + 4 * 0.5e6 / 2e10)); /* the host multiplies longer than it reads */
}

/* Four experts of 1 MB, of which a token uses two; two slots find three quarters of them. */
TEST(experts_are_read_that_any_sequence_chooses)
{
    const double share[] = {0.75, 0.75, 0.25, 0.25};
    const hth_plan_layer layer = {
        .cluster_bytes = {1000000, 1000000}, .n_cluster = 4, .has_experts = true, .n_used = 2, .share = share};
    CHECK(near(seconds_of(&layer, 2, 1), 10e-6 + 0.5e6 / 1e10));
    /* each of two experts without a slot is chosen by 0.25 of tokens */
    CHECK(near(seconds_of(&layer, 2, 2), 11e-6 + 2 * (1 - 0.75 * 0.75) * 1e6 / 1e10));
    CHECK(near(seconds_of(&layer, 4, 2), 4 * (1 - 0.5 * 0.5) * 1e6 / 1e11));
    CHECK(near(seconds_of(&layer, 4, 64), 64 * 2e6 / 4e11));
}

/* ---- divisions ------------------------------------------------------------------------------------------------ */

enum { N_COUNT = 4 };
static const uint32_t counts[N_COUNT] = {1, 4, 16, 64};
static const hth_plan_firing *const firings[] = {&hth_plan_dense, &hth_plan_sharp, &hth_plan_flat};
enum { N_FIRING = sizeof firings / sizeof *firings };

/* The preset cards, and two machines more that are stated: 16 GB at 288 GB/s, and 12 GB beside twice the memory channels. */
enum { N_CARD = 5 };
static hth_plan_card card_of(size_t i)
{
    hth_plan_card card = hth_plan_cards[i < hth_plan_n_card ? i : 1];
    for (int k = 0; k < HTH_PLAN_N_KNOT && i >= hth_plan_n_card; k++)
        if (i == hth_plan_n_card) card.machine.homes[0].rates.at[k] *= 288.0 / 504.0;
        else card.machine.homes[1].rates.at[k] *= 2.0;
    if (i == hth_plan_n_card) card.name = "16 GB", card.machine.homes[0].capacity = (uint64_t)16 << 30;
    if (i > hth_plan_n_card) card.name = "12 GB, 4 channels";
    return card;
}

typedef struct divisions {
    hth_plan_model model;
    hth_plan_machine machine;
    hth_plan_options options[N_COUNT];
    hth_plan best[N_COUNT];
} divisions;

/* Stated: many tokens are multiplied at 16 times the rate of reading on the device, and at 4 times on the host. */
static void solve_all(divisions *d, const hth_plan_card *card, const hth_plan_shape *shape, const hth_plan_firing *firing)
{
    CHECK_OK(hth_plan_shape_model(shape, firing, &d->model, err));
    d->machine = card->machine;
    hth_plan_tier *device = &d->machine.homes[0], *host = &d->machine.homes[1];
    double crosses = (double)(d->model.d2h_bytes + d->model.h2d_bytes);
    device->sync_latency = hth_plan_probe(&card->link, d->model.d2h_bytes, d->model.h2d_bytes, 1);
    device->sync_more = crosses / card->link.h2d_rate;
    device->capacity -= (uint64_t)3 << 29, device->fixed_bytes = (uint64_t)256 << 20;
    device->product_rate = 16 * device->rates.at[HTH_PLAN_N_KNOT - 1], host->product_rate = 4 * host->rates.at[HTH_PLAN_N_KNOT - 1];
    for (int i = 0; i < N_COUNT; i++) {
        d->options[i] = (hth_plan_options){.n_ctx = 4096, .context = 2048, .n_seq = counts[i]};
        CHECK_OK(hth_plan_solve(&d->model, &d->machine, &d->options[i], &d->best[i], err));
    }
}

static void close_all(divisions *d)
{
    for (int i = 0; i < N_COUNT; i++) hth_plan_free(&d->best[i]);
    hth_plan_shape_free(&d->model);
}

/* By how many percent the plan for counts[from] is slower with counts[at] sequences than the plan for these. */
static double loss_of(const divisions *d, int from, int at)
{
    hth_plan plan;
    CHECK_OK(hth_plan_evaluate(&d->model, &d->machine, &d->options[at], d->best[from].divisions, d->best[from].head, &plan, err));
    double loss = 100 * (plan.seconds / d->best[at].seconds - 1);
    hth_plan_free(&plan);
    return loss;
}

/* Seconds with counts[at] sequences of the placement for counts[from], if each layer's device may leave any number of its
 * clusters to the host, which has them too. */
static double nested_seconds(const divisions *d, int from, int at)
{
    const hth_plan_roles roles = hth_plan_find_roles(&d->machine);
    hth_plan_curve *curves = NULL;
    hth_plan plan;
    CHECK_OK(hth_plan_curves(&d->model, &roles, &d->options[at], &curves, err));
    CHECK_OK(hth_plan_evaluate(&d->model, &d->machine, &d->options[at], d->best[from].divisions, d->best[from].head, &plan, err));
    double seconds = plan.head_seconds + plan.transfer_seconds;
    for (uint32_t l = 0; l < d->model.n_layer; l++) {
        double least = plan.layers[l].total;
        for (uint32_t k = 0; plan.divisions[l].attention == 0 && k < plan.divisions[l].n_cluster[0]; k++)
            if (curves[l].seconds[k] < least) least = curves[l].seconds[k];
        seconds += least;
    }
    CHECK(seconds <= plan.seconds * (1 + 1e-9));
    hth_plan_free(&plan);
    hth_plan_curves_free(curves);
    return seconds;
}

/* The most by which one placement is slower than the plans for each number, in percent: of the placement that is least so. */
static double worst_of(const divisions *d, bool nested)
{
    double best = 1e9;
    for (int from = 0; from < N_COUNT; from++) {
        double worst = 0;
        for (int at = 0; at < N_COUNT; at++) {
            double loss = nested ? 100 * (nested_seconds(d, from, at) / d->best[at].seconds - 1) : loss_of(d, from, at);
            if (loss > worst) worst = loss;
        }
        if (worst < best) best = worst;
    }
    return best;
}

static void print_row(const divisions *d, const char *card, const char *shape, const char *firing)
{
    const hth_plan_layer *l = &d->model.layers[0];
    double all = (double)(l->cluster_bytes[HTH_PLAN_DEVICE] * l->n_cluster * d->model.n_layer);
    printf("| %s | %s | %s |", card, shape, firing);
    for (int i = 0; i < N_COUNT; i++) printf("%s %.2f", i > 0 ? "," : "", (double)d->best[i].bytes[0].clusters / all);
    printf(" | %+.0f, %+.0f | %+.0f, %+.0f | %.1f | %.1f |\n", loss_of(d, 0, 2), loss_of(d, 0, 3), loss_of(d, 2, 0), loss_of(d, 3, 0),
           worst_of(d, false), worst_of(d, true));
}

TEST(a_plan_for_so_many_sequences_is_the_fastest_for_them)
{
    bool all = test_is_long(); /* each row takes up to a second */
    printf("| card | model | firing | network there, best for 1, 4, 16, 64 | plan for 1 with 16, 64 | plans for 16, 64 with 1 | "
           "best single | nested |\n|---|---|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < N_CARD * hth_plan_n_shape * N_FIRING; i++) {
        const hth_plan_card card = card_of(i / N_FIRING / hth_plan_n_shape);
        const hth_plan_shape *shape = &hth_plan_shapes[i / N_FIRING % hth_plan_n_shape];
        divisions d;
        if (!all && i % 11 != 0) continue;
        solve_all(&d, &card, shape, firings[i % N_FIRING]);
        print_row(&d, card.name, shape->name, firings[i % N_FIRING]->name);
        for (int from = 0; from < N_COUNT; from++)
            for (int at = 0; at < N_COUNT; at++)
                if (loss_of(&d, from, at) < -1e-4)
                    test_fail(__FILE__, __LINE__, "row %zu: the plan for %u is faster with %u", i, counts[from], counts[at]);
        for (int k = 0; k < N_COUNT; k++) {
            hth_plan prices;
            CHECK_OK(hth_plan_lagrangian(&d.model, &d.machine, &d.options[k], &prices, err));
            CHECK(d.best[k].seconds <= prices.seconds * (1 + 1e-6));
            hth_plan_free(&prices);
        }
        close_all(&d);
    }
}

TEST(numbers_of_sequences_are_checked)
{
    const hth_plan_layer layer = {.attention_bytes = 10, .idle_bytes = 4, .moved_bytes = 7};
    hth_plan_model model = {.n_layer = 1, .layers = &(hth_plan_layer){.attention_bytes = 10}};
    hth_plan_machine machine = {
        .n_home = 1,
        .homes = {{.name = "the host", .kind = HTH_PLAN_HOST, .capacity = UINT64_MAX, .rates = {{1e9, 1e9, 1e9, 1e9}}}}};
    hth_plan_options options = {.n_ctx = 1, .n_seq = 1 << 16};
    CHECK_OK(hth_plan_validate(&model, &machine, &options, err));
    options.n_seq++;
    CHECK_FAILS(hth_plan_validate(&model, &machine, &options, err), HEARTH_ERROR_ARGUMENT, "65537 sequences");
    options.n_seq = 2, machine.homes[0].product_rate = -1;
    CHECK_FAILS(hth_plan_validate(&model, &machine, &options, err), HEARTH_ERROR_ARGUMENT, "the rate of products");
    machine.homes[0].product_rate = 0, machine.homes[0].sync_more = -1;
    CHECK_FAILS(hth_plan_validate(&model, &machine, &options, err), HEARTH_ERROR_ARGUMENT, "more of it");
    machine.homes[0].sync_more = 0, model.layers[0].whole_share = 2;
    CHECK_FAILS(hth_plan_validate(&model, &machine, &options, err), HEARTH_ERROR_ARGUMENT, "whole_share");
    model.layers[0] = layer;
    CHECK_FAILS(hth_plan_validate(&model, &machine, &options, err), HEARTH_ERROR_ARGUMENT, "does not read");
}
