/* Generation speed of a model on this machine, from the cost model of plans: with the GPU (gpu.c), or with
 * every layer on the CPU. The CPU's rates are measured as calibrations of plans do, once per weight type, and
 * cached. */
#define _GNU_SOURCE
#include "hub/machine.h"

#include "base/alloc.h"
#include "base/disk_cache.h"
#include "model/program.h"
#include "placement/plan_model.h"
#include "sparse/selector.h"

#include <string.h>

/* ---- rates ----------------------------------------------------------------------------------------------- */

static const char keep_name[] = "cpu-rates";

void hub_speed_recall(hub_machine *m)
{
    size_t n;
    uint8_t *kept = hth_diskcache_get(keep_name, m->key, &n);
    if (kept && n % sizeof *m->rates == 0 && n <= sizeof m->rates) {
        memcpy(m->rates, kept, n);
        m->n_rate = n / sizeof *m->rates;
    }
    hth_free(kept);
}

/* Rates for rows of that type; NULL: they cannot be measured now. */
static const hth_calibration *rates_of(hub_machine *m, hth_type type)
{
    hearth_error ignored;
    for (size_t i = 0; i < m->n_rate; i++)
        if (m->rates[i].type == type) return &m->rates[i];
    if (m->n_rate == HTH_TYPE_LIMIT) return NULL;
    hth_calibration *c = &m->rates[m->n_rate];
    *c = (hth_calibration){.type = type};
    hearth_status st = hth_calibrate_cpu(&m->kernels, m->pool, type, HTH_CALIBRATION_SIZE, c, &ignored);
    if (st != HEARTH_OK || !(c->cpu_rate.median > 0.0)) return NULL;
    c->device_rate = c->cpu_rate; /* there is no device, but plans need a number */
    m->n_rate++;
    hth_diskcache_put(keep_name, m->key, m->rates, m->n_rate * sizeof *m->rates);
    return c;
}

/* ---- the plan ---------------------------------------------------------------------------------------------- */

static uint64_t bytes_of(const hth_matrix *m) { return (uint64_t)m->n_row * m->row_size; }

/* Returns the bytes that a token reads of a layer's network, or of all else of the layer. */
static uint64_t bytes_of_layer(const hth_model *model, uint32_t i, bool of_network)
{
    const hth_program *p = model->program;
    uint64_t size = 0;
    for (uint32_t k = p->first_of_layer[i]; k < p->first_of_layer[i + 1]; k++) {
        const hth_op *op = &p->ops[k];
        bool is_network = hth_op_is_network(op) || op->kind == HTH_OP_ROUTE;
        if (is_network == of_network) size += hth_op_cost_of(model, op).size;
    }
    return size;
}

/* The matrix whose type stands for the model: that of neurons, or the largest of the first layer. */
static const hth_matrix *typical_matrix(const hth_model *model)
{
    const hth_layer *first = &model->layers[0];
    const hth_program *p = model->program;
    const hth_matrix *gate = &first->experts.gate, *up = &first->experts.up;
    const hth_matrix *best = first->network != HTH_NETWORK_EXPERTS ? &first->ffn.up
                             : gate->n_row > 0                     ? gate
                                                                   : up;
    for (uint32_t k = p->first_of_layer[0]; first->network == HTH_NETWORK_NONE && k < p->first_of_layer[1];
         k++) {
        const hth_op_weights w = hth_op_weights_of(model, &p->ops[k]);
        for (uint32_t j = 0; j < w.n; j++)
            if (bytes_of(w.matrix[j]) > bytes_of(best)) best = w.matrix[j];
    }
    return best;
}

/* A layer for the planner: bytes that every token reads, and neurons of which a share is read. */
static bool describe_layer(const hth_model *model, uint32_t i, hearth_selector selector, hth_plan_layer *out)
{
    const hth_layer *l = &model->layers[i];
    uint64_t ffn = bytes_of_layer(model, i, true);
    bool divides = l->ffn.down_t.rows.n_row > 0 && selector != HEARTH_SELECTOR_DENSE;
    uint32_t n = divides ? (uint32_t)hth_n_cluster(l->ffn.d_ff) : 0;
    double *share = hth_alloc(n, sizeof *share);
    for (uint32_t k = 0; share && k < n; k++)
        share[k] =
            hth_calibration_share(selector, l->ffn.gate.n_row > 0, hth_plan_active_share(l, k, selector));
    *out = (hth_plan_layer){.attention_bytes = bytes_of_layer(model, i, false) + (divides ? 0 : ffn),
                            .cluster_bytes = {[HTH_PLAN_HOST] = divides ? (ffn + n - 1) / n : 0},
                            .n_cluster = n,
                            .share = share};
    if (selector == HEARTH_SELECTOR_PREDICTOR)
        out->attention_bytes += bytes_of(&l->ffn.predictor.in) + bytes_of(&l->ffn.predictor.out);
    return share != NULL;
}

static double cpu_seconds(const hth_model *model, const hth_plan_model *plan_model, hearth_selector selector,
                          const hth_calibration *rates)
{
    hth_plan_machine machine;
    hth_plan plan;
    hth_plan_options options = {.n_ctx = 1};
    hth_plan_division *divisions = hth_alloc(plan_model->n_layer, sizeof *divisions);
    double seconds = 0.0;
    hearth_error ignored;
    for (uint32_t i = 0; divisions && i < plan_model->n_layer; i++) {
        divisions[i] = (hth_plan_division){.attention = HTH_HOME_HOST};
        divisions[i].n_cluster[HTH_HOME_HOST] = plan_model->layers[i].n_cluster;
    }
    hth_calibration_machine(rates, selector, model->layers[0].ffn.gate.n_row > 0, HTH_ESTIMATE_MEDIAN,
                            &machine);
    if (divisions &&
        hth_plan_evaluate(plan_model, &machine, &options, divisions, false, &plan, &ignored) == HEARTH_OK) {
        seconds = plan.seconds;
        hth_plan_free(&plan);
    }
    hth_free(divisions);
    return seconds;
}

static double cpu_speed(hub_machine *machine, const hth_model *model, hearth_selector selector)
{
    const hth_calibration *rates = rates_of(machine, typical_matrix(model)->type);
    uint32_t n = model->hparams.n_layer;
    hth_plan_model plan_model = {.n_layer = n, .layers = hth_alloc(n, sizeof *plan_model.layers)};
    plan_model.head_bytes = bytes_of(model->tied ? &model->token_embd : &model->output);
    bool good = rates && plan_model.layers;
    for (uint32_t i = 0; good && i < n; i++) good = describe_layer(model, i, selector, &plan_model.layers[i]);
    double seconds = good ? cpu_seconds(model, &plan_model, selector, rates) : 0.0;
    for (uint32_t i = 0; plan_model.layers && i < n; i++)
        hth_free((void *)(uintptr_t)plan_model.layers[i].share);
    hth_free(plan_model.layers);
    return seconds > 0.0 ? 1.0 / seconds : 0.0;
}

void hub_speed_of(hub_machine *machine, const hth_model *model, hub_facts *facts)
{
    hearth_selector selector;
    hearth_error ignored;
    const char *why;
    uint64_t there = 0;
    if (hth_selector_choose(model, HEARTH_SELECTOR_AUTO, &selector, &why, NULL) != HEARTH_OK)
        selector = HEARTH_SELECTOR_DENSE;
    if (!machine->pool && hth_pool_open(machine->n_thread, &machine->pool, &ignored) != HEARTH_OK) {
        machine->pool = NULL;
        return;
    }
    if (machine->device) facts->speed = hub_gpu_speed(machine, model, selector, &there);
    facts->on_gpu = facts->speed > 0.0;
    facts->memory = there < facts->memory ? facts->memory - there : 1; /* 0 would mean unknown */
    if (!facts->on_gpu) facts->speed = cpu_speed(machine, model, selector);
}
