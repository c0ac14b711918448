/* Which values cross between host and device, where a part of the model has operations of both. */
#include "forward/gpu/gpu_int.h"

#include "base/alloc.h"

#include <assert.h>
#include <string.h>

uint32_t hth_gpu_end_op(const hth_model *m, const hth_offload_params *params)
{
    return params->head ? m->program->output_norm - 1 : m->program->first_of_layer[params->end_layer];
}

static bool uses(const hth_op *op, uint32_t value)
{
    return hth_op_reads(op, value) || hth_op_writes(op, value);
}
static bool reads(const hth_op *op, uint32_t value)
{
    return hth_op_reads(op, value) || (op->adds && op->out[0].value == value);
}

/* Whether a product writes some elements of a value alone: then the others must be there. */
static bool writes_part(const hth_program *p, const hth_op *op, uint32_t value)
{
    size_t n = op->kind == HTH_OP_BY_HEAD && op->out[0].value == value ? op->by_head.n_head * (size_t)op->by_head.d_out : 0;
    for (uint32_t i = 0; op->kind == HTH_OP_PRODUCT && i < op->product.n; i++)
        n += op->out[i].value == value ? op->product.matrix[i]->n_row : 0;
    return n > 0 && n < p->values[value].width;
}

typedef struct finder {
    const hth_gpu *g;
    const hth_program *p;
    uint32_t end;      /* hth_gpu_end_op */
    bool *is_stale;    /* [n_value] whether the device wrote it since the host had it */
    uint32_t n_listed; /* in crossings.values */
} finder;

/* Whether the device reads a value in an operation from `first` on. */
static bool device_reads(const finder *f, uint32_t first, uint32_t value)
{
    const hth_op *gather = &f->p->ops[f->p->output_norm - 1];
    for (uint32_t i = first; i < f->end; i++)
        if (f->g->ops[i].is_on_device &&
            (reads(&f->p->ops[i], value) || writes_part(f->p, &f->p->ops[i], value)))
            return true;
    return f->g->params.head && reads(gather, value);
}

/* Whether the step reads a value behind the part. */
static bool step_reads(const finder *f, uint32_t value)
{
    for (uint32_t i = f->end; i < f->p->n_op; i++)
        if (reads(&f->p->ops[i], value)) return true;
    return false;
}

static bool writes_any(const finder *f, const hth_gpu_host_run *run, uint32_t value)
{
    for (uint32_t i = run->first; i < run->end; i++)
        if (hth_op_writes(&f->p->ops[i], value)) return true;
    return false;
}

static bool uses_any(const finder *f, const hth_gpu_host_run *run, uint32_t value)
{
    for (uint32_t i = run->first; i < run->end; i++)
        if (uses(&f->p->ops[i], value)) return true;
    return false;
}

/* Whether the host needs a value that the device wrote. Behind the last operation it needs what is used later. */
static bool host_needs(const finder *f, const hth_gpu_host_run *run, uint32_t value)
{
    if (run->end < f->end) return uses_any(f, run, value);
    return uses_any(f, run, value) || (!f->g->params.head && step_reads(f, value));
}

/* Whether the device needs a value as the host has it: as a run wrote it, or the step before the first run. */
static bool device_needs(const finder *f, const hth_gpu_host_run *run, bool is_first, uint32_t value)
{
    const hth_value *v = &f->p->values[value];
    if (is_first ? v->first_op >= run->end : !writes_any(f, run, value)) return false;
    return device_reads(f, run->end, value);
}

static void list_values(finder *f, hth_gpu_crossings *c, hth_gpu_host_run *run)
{
    run->to_host = c->values + f->n_listed;
    for (uint32_t v = 0; v < f->p->n_value; v++)
        if (f->is_stale[v] && host_needs(f, run, v))
            run->to_host[run->n_to_host++] = v, f->is_stale[v] = false;
    run->to_device = run->to_host + run->n_to_host;
    for (uint32_t v = 0; v < f->p->n_value; v++)
        if (device_needs(f, run, run == c->runs, v)) run->to_device[run->n_to_device++] = v;
    f->n_listed += run->n_to_host + run->n_to_device;
    for (uint32_t v = 0; v < f->p->n_value; v++)
        if (writes_any(f, run, v)) f->is_stale[v] = false;
}

static void find_runs(finder *f, hth_gpu_crossings *c, uint32_t first)
{
    c->runs[0] = (hth_gpu_host_run){.first = first, .end = first};
    c->n_run = 1;
    list_values(f, c, &c->runs[0]);
    for (uint32_t i = first, end; i < f->end; i = end) {
        for (end = i; end < f->end && f->g->ops[end].is_on_device; end++)
            for (int k = 0; k < HTH_OP_OUT; k++)
                if (f->p->ops[end].out[k].value != HTH_NO_VALUE)
                    f->is_stale[f->p->ops[end].out[k].value] = true;
        hth_gpu_host_run run = {.first = end, .end = end};
        while (run.end < f->end && !f->g->ops[run.end].is_on_device) run.end++;
        end = run.end;
        c->runs[c->n_run++] = run;
        list_values(f, c, &c->runs[c->n_run - 1]);
    }
}

hearth_status hth_gpu_crossings_open(hth_gpu *g, hearth_error *err)
{
    const hth_program *p = g->model->program;
    hth_gpu_crossings *c = &g->crossings;
    uint32_t first = p->first_of_layer[g->params.first_layer], n_run = 2, n_value;
    finder f = {.g = g, .p = p, .end = hth_gpu_end_op(g->model, &g->params)};
    for (uint32_t i = 0; i < p->n_op; i++) {
        g->ops[i].is_on_device = hth_gpu_op_is_on_device(g->model, &g->params, i);
        n_run += !g->ops[i].is_on_device && i >= first && i < f.end;
    }
    n_value = 2 * n_run * (HTH_OP_IN + HTH_OP_OUT) + 2 * p->n_value;
    c->runs = hth_alloc(n_run, sizeof *c->runs);
    c->values = hth_alloc(n_value, sizeof *c->values);
    f.is_stale = hth_alloc(p->n_value, sizeof *f.is_stale);
    if (c->runs && c->values && f.is_stale) find_runs(&f, c, first);
    assert(f.n_listed <= n_value);
    bool ok = c->n_run > 0;
    hth_free(f.is_stale);
    return ok ? HEARTH_OK : hth_fail_memory(err, n_value * sizeof *c->values, "a model on a device");
}

void hth_gpu_crossings_close(hth_gpu *g)
{
    hth_free(g->crossings.runs);
    hth_free(g->crossings.values);
}

/* Whether operations before a layer, or before the head, write a value that is read behind them. */
static bool crosses_layers(const hth_model *m, const hth_value *v)
{
    bool crosses = false;
    for (uint32_t i = 0; v->domain == HTH_ROWS_TOKENS && i <= m->hparams.n_layer; i++) {
        uint32_t first = m->program->first_of_layer[i];
        crosses = crosses || (v->first_op < first && v->last_op >= first);
    }
    return crosses;
}

/* Whether an operation of attention that is the host's uses a value. */
static bool host_attention_uses(const hth_model *m, const hth_offload_params *params, uint32_t value)
{
    for (uint32_t i = 0; params->host_kv && i < m->program->n_op; i++)
        if (hth_gpu_host_attends(m, params, &m->program->ops[i]) && uses(&m->program->ops[i], value)) return true;
    return false;
}

/* Whole layers exchange the residual stream, and in some architectures the embedding. */
uint32_t hth_gpu_crossing_words(const hth_model *m, const hth_offload_params *params)
{
    const hth_program *p = m->program;
    uint32_t n_word = 0;
    if (params->crosses) return p->width[HTH_ROWS_TOKENS];
    for (uint32_t i = 0; i < p->n_value; i++) {
        const hth_value *v = &p->values[i];
        uint32_t end = v->at + (uint32_t)(hth_gpu_value_row(v) / sizeof(float));
        if (end > n_word && (crosses_layers(m, v) || host_attention_uses(m, params, i))) n_word = end;
    }
    return n_word;
}

/* Whether operations [first, end) read a value, or write it. */
static bool any_reads(const hth_program *p, uint32_t first, uint32_t end, uint32_t value)
{
    while (first < end && !reads(&p->ops[first], value)) first++;
    return first < end;
}
static bool any_writes(const hth_program *p, uint32_t first, uint32_t end, uint32_t value)
{
    while (first < end && !hth_op_writes(&p->ops[first], value)) first++;
    return first < end;
}

/* Bytes that a run of the host's operations gets from the device in layer [first, end), and gives back. */
static uint64_t trip_bytes(const hth_program *p, const hth_gpu_host_run *run, uint32_t first, uint32_t end)
{
    uint64_t bytes = 0;
    for (uint32_t v = 0; v < p->n_value; v++) {
        uint64_t row = hth_gpu_value_row(&p->values[v]);
        if (any_writes(p, first, run->first, v) && any_reads(p, run->first, run->end, v)) bytes += row;
        if (any_writes(p, run->first, run->end, v) && any_reads(p, run->end, end, v)) bytes += row;
    }
    return bytes;
}

hth_gpu_kv_trips hth_gpu_kv_trips_of(const hth_model *m, const hth_offload_params *params, uint32_t i_layer)
{
    const hth_program *p = m->program;
    uint32_t first = p->first_of_layer[i_layer], end = p->first_of_layer[i_layer + 1];
    hth_gpu_kv_trips all = {0};
    for (uint32_t i = first; i < end; i++) {
        if (!hth_gpu_host_attends(m, params, &p->ops[i])) continue;
        hth_gpu_host_run run = {.first = i, .end = i};
        while (run.end < end && hth_gpu_host_attends(m, params, &p->ops[run.end])) run.end++;
        all.n++, all.bytes += trip_bytes(p, &run, first, end);
        i = run.end - 1;
    }
    return all;
}

/* Copies rows between the step and mapped memory. */
static void copy_value(const hth_gpu *g, const hth_step *s, hth_buffer_range mapped, uint32_t value,
                       uint32_t first, uint32_t n, bool to_step)
{
    uint64_t row = hth_gpu_value_row(&g->model->program->values[value]);
    uint8_t *there = hth_gpu_mapped(hth_gpu_value_range(g, mapped, value)),
            *here = (uint8_t *)hth_fwd_value(s, (hth_view){value, 0}) + first * row;
    memcpy(to_step ? here : there, to_step ? there : here, n * row);
}

void hth_gpu_read_values(const hth_gpu *g, hth_step *s, const hth_gpu_host_run *run, uint32_t first,
                         uint32_t n)
{
    for (uint32_t i = 0; i < run->n_to_host; i++)
        copy_value(g, s, g->workspace.values_to_host, run->to_host[i], first, n, true);
}

void hth_gpu_write_values(const hth_gpu *g, const hth_step *s, const hth_gpu_host_run *run, uint32_t first,
                          uint32_t n)
{
    for (uint32_t i = 0; i < run->n_to_device; i++)
        copy_value(g, s, g->workspace.values_from_host, run->to_device[i], first, n, false);
}
