/* Draws or copies experts before a timing starts, so that returning them costs nothing. hearth bench and plans call it. */
#include "measure/route_trace.h"

#include "base/status.h"
#include "sample/random.h"

#include <string.h>

/* Lists have the width of the layer that uses most experts. */
struct hth_route_trace {
    uint32_t n_layer, n_tok, width;
    uint32_t *n_used;           /* [n_layer]; 0: no experts */
    uint16_t *chosen, *guessed; /* [n_tok][n_layer][width], ascending */
};

static uint16_t *list_of(const hth_route_trace *t, uint16_t *lists, uint64_t i_tok, uint32_t i_layer)
{
    return lists + (i_tok * t->n_layer + i_layer) * t->width;
}

/* ---- lists --------------------------------------------------------------------------------------- */

/* The experts of one layer, from which lists are drawn. */
typedef struct urn {
    const hth_route_trace_spec *spec;
    const hth_router *router;
    double *frequency;       /* [n_expert] */
    bool *taken;             /* [n_expert] the token has drawn the expert */
    hth_sample_random random;
} urn;

/* An expert that is not taken, in proportion to its frequency. */
static uint32_t draw_one(urn *u)
{
    uint32_t n = u->router->n_expert, last = 0;
    double sum = 0.0, at;
    for (uint32_t e = 0; e < n; e++)
        if (!u->taken[e]) sum += u->frequency[e];
    at = hth_sample_random_unit(&u->random) * sum;
    for (uint32_t e = 0; e < n; e++) {
        if (u->taken[e] || u->frequency[e] <= 0.0) continue;
        last = e;
        if ((at -= u->frequency[e]) < 0.0) break;
    }
    return last;
}

/* Keeps each expert of `from`, or NULL, with a probability, and draws the others. */
static void draw_list(urn *u, const uint16_t *from, double keep, uint16_t *to)
{
    uint32_t n_used = u->router->n_used, n = 0;
    memset(u->taken, 0, u->router->n_expert * sizeof *u->taken);
    for (uint32_t i = 0; from && i < n_used; i++)
        if (hth_sample_random_unit(&u->random) < keep) u->taken[from[i]] = true, n++;
    for (; n < n_used; n++) u->taken[draw_one(u)] = true;
    for (uint32_t e = 0; e < u->router->n_expert; e++)
        if (u->taken[e]) *to++ = (uint16_t)e;
}

/* The experts of a recorded token. */
static void copy_list(const urn *u, uint32_t i_layer, uint64_t i_tok, uint16_t *to)
{
    const hth_expert_trace *from = u->spec->recorded;
    const hth_expert_trace_layer *l = &from->layers[i_layer];
    memcpy(to, l->chosen + (size_t)(i_tok % from->n_tok) * l->n_used, l->n_used * sizeof *to);
}

static void draw_layer(hth_route_trace *t, urn *u, uint32_t i_layer)
{
    const uint16_t *before = NULL;
    const hth_expert_trace *from = u->spec->recorded;
    uint64_t first = from ? hth_route_trace_first_token(from, u->spec->seed) : 0;
    for (uint32_t i = 0; i < t->n_tok; i++) {
        uint16_t *now = list_of(t, t->chosen, i, i_layer);
        if (from) copy_list(u, i_layer, first + i, now);
        else draw_list(u, before, u->spec->sticky, now);
        draw_list(u, now, u->spec->foreseen, list_of(t, t->guessed, i, i_layer));
        before = now;
    }
    t->n_used[i_layer] = u->router->n_used;
}

/* Copies each layer with experts. */
static hearth_status copy(hth_route_trace *t, const hth_model *m, urn *u, hearth_error *err)
{
    uint32_t n_use[HTH_MAX_EXPERT];
    hearth_status st = hth_expert_trace_check_shape(u->spec->recorded, m, err);
    if (st != HEARTH_OK) return st;
    hth_sample_random_seed(&u->random, u->spec->seed);
    for (uint32_t i = 0; i < t->n_layer; i++) {
        u->router = &m->layers[i].experts.router;
        if (!hth_has_experts(m->layers[i].network)) continue;
        hth_expert_trace_count(u->spec->recorded, i, n_use);
        for (uint32_t e = 0; e < u->router->n_expert; e++) u->frequency[e] = n_use[e];
        draw_layer(t, u, i);
    }
    return HEARTH_OK;
}

/* Draws for each layer with experts. */
static hearth_status draw(hth_route_trace *t, const hth_model *m, urn *u, hearth_error *err)
{
    const hth_route_trace_spec *spec = u->spec;
    size_t at = 0;
    hth_sample_random_seed(&u->random, spec->seed);
    for (uint32_t i = 0; i < t->n_layer; i++) {
        const hth_router *r = u->router = &m->layers[i].experts.router;
        uint32_t n_positive = 0;
        if (!hth_has_experts(m->layers[i].network)) continue;
        for (uint32_t e = 0; e < r->n_expert; e++, at++) {
            u->frequency[e] = !spec->frequency ? 1.0 : at < spec->n_frequency ? spec->frequency[at] : 0.0;
            n_positive += u->frequency[e] > 0.0;
        }
        if (n_positive < r->n_used)
            return hth_fail(err, HEARTH_ERROR_ARGUMENT, "layer %u uses %u experts, only %u have a frequency", i,
                            r->n_used, n_positive);
        draw_layer(t, u, i);
    }
    if (!spec->frequency || at == spec->n_frequency) return HEARTH_OK;
    return hth_fail(err, HEARTH_ERROR_ARGUMENT, "%zu frequencies, the model has %zu experts in all its layers",
                    spec->n_frequency, at);
}

/* Experts of a token in the layer that uses most. */
static uint32_t width_of(const hth_model *m)
{
    uint32_t width = 0;
    for (uint32_t i = 0; i < m->hparams.n_layer; i++)
        if (hth_has_experts(m->layers[i].network) && m->layers[i].experts.router.n_used > width)
            width = m->layers[i].experts.router.n_used;
    return width;
}

hearth_status hth_route_trace_open(const hth_model *model, const hth_route_trace_spec *spec, uint32_t n_tok,
                                   hth_route_trace **out, hearth_error *err)
{
    uint32_t n_layer = model->hparams.n_layer, width = width_of(model);
    size_t n = (size_t)n_tok * n_layer;
    *out = NULL;
    if (width == 0)
        return hth_fail(err, HEARTH_ERROR_UNSUPPORTED, "%s: has no experts", hth_gguf_path(model->file));
    hth_route_trace *t = hth_alloc(1, sizeof *t);
    urn u = {.spec = spec,
             .frequency = hth_alloc(model->hparams.experts.n_expert, sizeof *u.frequency),
             .taken = hth_alloc(model->hparams.experts.n_expert, sizeof *u.taken)};
    if (t) {
        *t = (hth_route_trace){.n_layer = n_layer, .n_tok = n_tok, .width = width};
        t->n_used = hth_alloc(n_layer, sizeof *t->n_used);
        t->chosen = hth_alloc(n, width * sizeof *t->chosen);
        t->guessed = hth_alloc(n, width * sizeof *t->guessed);
    }
    bool ok = t && t->n_used && t->chosen && t->guessed && u.frequency && u.taken;
    hearth_status st = ok ? (spec->recorded ? copy : draw)(t, model, &u, err)
                          : hth_fail_memory(err, 4 * n * width, "lists of experts");
    hth_free(u.frequency);
    hth_free(u.taken);
    if (st == HEARTH_OK) *out = t;
    else hth_route_trace_close(t);
    return st;
}

void hth_route_trace_close(hth_route_trace *trace)
{
    if (!trace) return;
    hth_free(trace->n_used);
    hth_free(trace->chosen);
    hth_free(trace->guessed);
    hth_free(trace);
}

void hth_route_trace_get(void *trace, uint32_t i_layer, uint64_t i_tok, bool is_guess, uint32_t *chosen)
{
    const hth_route_trace *t = trace;
    const uint16_t *list = list_of(t, is_guess ? t->guessed : t->chosen, i_tok % t->n_tok, i_layer);
    for (uint32_t i = 0; i < t->n_used[i_layer]; i++) chosen[i] = list[i];
}

uint32_t hth_route_trace_first_token(const hth_expert_trace *recorded, uint64_t seed)
{
    hth_sample_random random;
    hth_sample_random_seed(&random, seed);
    return (uint32_t)(hth_sample_random_unit(&random) * (double)recorded->n_tok);
}
