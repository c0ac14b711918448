/* Checks the numbers of a plan's model, machine and options. Every function of plan.h begins with it. */
#include "planner/plan_int.h"

#include "base/format_bytes.h"
#include "base/checked_math.h"

enum { MAX_LAYERS = 4096, MAX_CLUSTERS = 1 << 16, MAX_SEQUENCES = 1 << 16 };
/* Sums of this many such values stay below 2^63, and as doubles below 2^53 units. */
static const uint64_t max_bytes = (uint64_t)1 << 44;
/* Rates below a byte per second and times above a day are mistakes; sums of the rest are finite. */
static const double min_rate = 1.0, max_rate = 1e18, max_seconds = 86400.0;

static hearth_status check_number(const hth_plan_tier *h, const char *name, double x, double min, double max,
                                  hearth_error *err)
{
    if (x >= min && x <= max) return HEARTH_OK; /* false for NaN */
    return hth_fail(err, HEARTH_ERROR_ARGUMENT, "plan: %s of %s is %g; %g to %g is allowed", name, h->name, x,
                    min, max);
}

static hearth_status check_home(const hth_plan_tier *h, hearth_error *err)
{
    hearth_status st = HEARTH_OK;
    for (int i = 0; st == HEARTH_OK && i < HTH_PLAN_N_KNOT; i++)
        st = check_number(h, "the rate", h->rates.at[i], min_rate, max_rate, err);
    if (st == HEARTH_OK) st = check_number(h, "min_active_share", h->min_active_share, 0, 1, err);
    if (st == HEARTH_OK) st = check_number(h, "the sync latency", h->sync_latency, 0, max_seconds, err);
    if (st == HEARTH_OK) st = check_number(h, "more of it", h->sync_more, 0, max_seconds, err);
    if (st == HEARTH_OK) st = check_number(h, "a dispatch", h->dispatch, 0, max_seconds, err);
    if (st == HEARTH_OK) st = check_number(h, "a merge", h->merge, 0, max_seconds, err);
    if (st == HEARTH_OK) st = check_number(h, "the rate of reads", h->read_rate, 0, max_rate, err);
    if (st == HEARTH_OK) st = check_number(h, "the rate of products", h->product_rate, 0, max_rate, err);
    if (st != HEARTH_OK) return st;
    if (h->fixed_bytes > max_bytes || (h->kind != HTH_PLAN_DEVICE && h->fixed_bytes > h->capacity))
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "plan: %s: %s of its %s are fixed", h->name,
                        hth_format_bytes(h->fixed_bytes).text, hth_format_bytes(h->capacity).text);
    return HEARTH_OK;
}

static hearth_status check_machine(const hth_plan_machine *m, hearth_error *err)
{
    uint32_t n_host = 0;
    hearth_status st = HEARTH_OK;
    if (m->n_home == 0 || m->n_home > HTH_PLAN_MAX_HOME)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "plan: %u homes; 1 to %d are allowed", m->n_home,
                        HTH_PLAN_MAX_HOME);
    for (uint32_t i = 0; st == HEARTH_OK && i < m->n_home; i++) {
        const hth_plan_tier *h = &m->homes[i];
        if (!h->name || h->kind >= HTH_PLAN_N_KIND)
            return hth_fail(err, HEARTH_ERROR_ARGUMENT, "plan: home %u has no name, or is of no known kind",
                            i);
        if (i > 0 && h->kind < m->homes[i - 1].kind)
            return hth_fail(err, HEARTH_ERROR_ARGUMENT, "plan: %s comes after %s: devices are first", h->name,
                            m->homes[i - 1].name);
        n_host += h->kind == HTH_PLAN_HOST;
        st = check_home(h, err);
    }
    if (st != HEARTH_OK || n_host == 1) return st;
    return hth_fail(err, HEARTH_ERROR_ARGUMENT, "plan: %u of its homes are hosts; one is needed", n_host);
}

static hearth_status check_layer(const hth_plan_layer *l, uint32_t i, const hth_plan_options *options,
                                 hearth_error *err)
{
    uint64_t clusters, kv;
    if (l->n_cluster > MAX_CLUSTERS || l->n_dispatch > MAX_CLUSTERS || l->n_dispatch_hot > MAX_CLUSTERS ||
        l->n_spare > MAX_CLUSTERS || l->n_trip > MAX_CLUSTERS || l->n_dispatch_read > MAX_CLUSTERS)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT,
                        "plan: layer %u: %u clusters, %u and %u dispatches; at most %d are allowed", i,
                        l->n_cluster, l->n_dispatch, l->n_dispatch_hot, MAX_CLUSTERS);
    bool fits =
        hth_mul_u64(l->kv_bytes, options->n_ctx, &kv) && kv <= max_bytes && l->attention_bytes <= max_bytes &&
        l->state_bytes <= max_bytes && l->trip_bytes <= max_bytes;
    for (int kind = 0; kind < HTH_PLAN_N_KIND; kind++)
        fits = fits && hth_mul_u64(l->cluster_bytes[kind], l->n_cluster, &clusters) && clusters <= max_bytes;
    if (l->n_beyond > l->n_cluster)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "plan: layer %u: no slots for %u of %u experts", i, l->n_beyond,
                        l->n_cluster);
    if (!fits)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "plan: layer %u holds more than %s of one kind", i,
                        hth_format_bytes(max_bytes).text);
    if (l->idle_bytes > l->attention_bytes || l->moved_bytes > l->attention_bytes - l->idle_bytes)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "plan: layer %u: a token does not read %llu of its %llu bytes", i,
                        (unsigned long long)l->idle_bytes, (unsigned long long)l->attention_bytes);
    if (!(l->idle_share >= 0 && l->idle_share <= 1 && l->whole_share >= 0 && l->whole_share <= 1))
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "plan: layer %u: idle_share is %g and whole_share %g; 0 to 1 is allowed", i,
                        l->idle_share, l->whole_share);
    for (uint32_t k = 0; k < l->n_cluster; k++)
        if (!(l->share[k] >= 0 && l->share[k] <= 1))
            return hth_fail(err, HEARTH_ERROR_ARGUMENT,
                            "plan: layer %u: cluster %u has a share of %g; 0 to 1 is allowed", i, k,
                            l->share[k]);
    for (uint32_t k = 0; l->misses && k <= l->n_cluster; k++) {
        bool valid = true;
        for (uint32_t n = 0; n < HTH_PLAN_N_MOVE; n++) valid = valid && l->moves[k * HTH_PLAN_N_MOVE + n] >= 0;
        for (uint32_t m = 0; m <= l->n_used; m++) valid = valid && l->misses[k * (l->n_used + 1) + m] >= 0;
        if (!valid) return hth_fail(err, HEARTH_ERROR_ARGUMENT, "plan: layer %u: what %u slots find is no number", i, k);
    }
    return HEARTH_OK;
}

hearth_status hth_plan_validate(const hth_plan_model *model, const hth_plan_machine *machine,
                                const hth_plan_options *options, hearth_error *err)
{
    if (model->n_layer == 0 || model->n_layer > MAX_LAYERS)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "plan: %u layers; 1 to %d are allowed", model->n_layer,
                        MAX_LAYERS);
    if (model->head_bytes > max_bytes)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "plan: %llu bytes of the head; at most %llu are allowed",
                        (unsigned long long)model->head_bytes, (unsigned long long)max_bytes);
    if (options->n_seq > MAX_SEQUENCES)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "plan: %u sequences; up to %d are allowed", options->n_seq, MAX_SEQUENCES);
    if (options->context > options->n_ctx)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "plan: a token behind %u positions, but room for %u",
                        options->context, options->n_ctx);
    hearth_status st = check_machine(machine, err);
    for (uint32_t i = 0; st == HEARTH_OK && i < model->n_layer; i++)
        st = check_layer(&model->layers[i], i, options, err);
    bool crosses = false;
    for (uint32_t i = 0; i < model->n_layer; i++) crosses = crosses || model->layers[i].n_trip > 0;
    for (uint32_t i = 0; st == HEARTH_OK && crosses && machine->homes[i].kind == HTH_PLAN_DEVICE; i++) {
        st = check_number(&machine->homes[i], "the rate of values that cross", machine->homes[i].way_rate, min_rate, max_rate, err);
        if (st == HEARTH_OK)
            st = check_number(&machine->homes[i], "the rate of keys and values", machine->homes[i].kv_rate, min_rate, max_rate, err);
    }
    return st;
}
