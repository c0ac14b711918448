/* Traces of experts in memory, and statistics of them for reports. Files: expert_trace_file.c; the recorder:
 * measure/expert_trace.c. */
#include "sparse/expert_trace.h"

#include "base/alloc.h"
#include "sparse/profile.h"

#include <string.h>

/* Part of the tokens that fills the slots before hits are counted. */
enum { WARM_PART = 4 };

/* ---- a trace ----------------------------------------------------------------------------------------- */

hearth_status hth_expert_trace_new(const hth_model *model, uint32_t n_tok, hth_expert_trace **out, hearth_error *err)
{
    uint32_t n_layer = model->hparams.n_layer;
    size_t n_choice = 0;
    *out = NULL;
    if (model->hparams.experts.n_expert == 0)
        return hth_fail(err, HEARTH_ERROR_UNSUPPORTED, "%s: has no experts", hth_gguf_path(model->file));
    if (n_tok == 0 || n_tok > HTH_EXPERT_TRACE_MAX_TOK)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "%u tokens: a trace has 1 to %d", n_tok, HTH_EXPERT_TRACE_MAX_TOK);
    hth_expert_trace *t = hth_alloc(1, sizeof *t);
    if (!t) return hth_fail_memory(err, sizeof *t, "a trace");
    t->n_tok = n_tok, t->n_layer = n_layer;
    t->layers = hth_arena_alloc(&t->arena, n_layer, sizeof *t->layers, 16);
    for (uint32_t i = 0; t->layers && i < n_layer; i++) {
        const hth_router *r = &model->layers[i].experts.router;
        if (!hth_has_experts(model->layers[i].network)) continue;
        t->layers[i] = (hth_expert_trace_layer){r->n_expert, r->n_used, NULL};
        n_choice += (size_t)n_tok * r->n_used;
        t->layers[i].chosen = hth_arena_alloc(&t->arena, (size_t)n_tok * r->n_used, sizeof(uint16_t), 16);
    }
    if (!t->arena.failed) {
        *out = t;
        return HEARTH_OK;
    }
    hth_expert_trace_close(t);
    return hth_fail_memory(err, n_choice * sizeof(uint16_t), "a trace");
}

void hth_expert_trace_close(hth_expert_trace *t)
{
    if (!t) return;
    hth_arena_free(&t->arena);
    hth_free(t);
}

hearth_status hth_expert_trace_check_shape(const hth_expert_trace *t, const hth_model *m, hearth_error *err)
{
    const char *path = hth_gguf_path(m->file);
    if (t->n_layer != m->hparams.n_layer)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "the trace has %u layers, %s has %u", t->n_layer, path,
                        m->hparams.n_layer);
    for (uint32_t i = 0; i < t->n_layer; i++) {
        const hth_expert_trace_layer *l = &t->layers[i];
        bool has = hth_has_experts(m->layers[i].network);
        const hth_router *r = &m->layers[i].experts.router;
        uint32_t n_expert = has ? r->n_expert : 0, n_used = has ? r->n_used : 0;
        if (l->n_expert == n_expert && l->n_used == n_used) continue;
        return hth_fail(err, HEARTH_ERROR_ARGUMENT,
                        "layer %u of the trace uses %u of %u experts for a token, that of %s %u of %u", i, l->n_used,
                        l->n_expert, path, n_used, n_expert);
    }
    return HEARTH_OK;
}

static void get(const hth_expert_trace *t, uint32_t i_layer, uint64_t i_tok, uint32_t *chosen)
{
    const hth_expert_trace_layer *l = &t->layers[i_layer];
    const uint16_t *from = l->chosen + (size_t)(i_tok % t->n_tok) * l->n_used;
    for (uint32_t i = 0; i < l->n_used; i++) chosen[i] = from[i];
}

void hth_expert_trace_get(void *trace, uint32_t i_layer, uint64_t i_tok, bool is_guess, uint32_t *chosen)
{
    (void)is_guess;
    get(trace, i_layer, i_tok, chosen);
}

/* ---- statistics --------------------------------------------------------------------------------------- */

void hth_expert_trace_count(const hth_expert_trace *t, uint32_t i_layer, uint32_t *n_use)
{
    const hth_expert_trace_layer *l = &t->layers[i_layer];
    memset(n_use, 0, l->n_expert * sizeof *n_use);
    for (size_t i = 0; i < (size_t)t->n_tok * l->n_used; i++) n_use[l->chosen[i]]++;
}

/* The share of all uses that the most used experts have: at least one of them. */
static double cover(const uint32_t *n_use, uint32_t n, double share)
{
    size_t k = (size_t)(share * n + 0.5), n_above = 0;
    if (k < 1) k = 1;
    uint32_t kth = hth_profile_kth(n_use, n, k);
    double sum = 0.0, above = 0.0;
    for (uint32_t e = 0; e < n; e++) {
        sum += n_use[e];
        if (n_use[e] > kth) above += n_use[e], n_above++;
    }
    return sum > 0.0 ? (above + (double)(k - n_above) * kth) / sum : 0.0;
}

/* Of counts[d] uses d tokens apart. */
static double median(const uint64_t *counts, uint32_t n)
{
    uint64_t all = 0, below = 0;
    for (uint32_t d = 1; d < n; d++) all += counts[d];
    for (uint32_t d = 1; d < n; d++)
        if (2 * (below += counts[d]) >= all && all > 0) return d;
    return 0.0;
}

/* last[e]: the last token that used an expert, counted from 1; distances[d]: uses d tokens after another. */
static void walk(const hth_expert_trace *t, const hth_expert_trace_layer *l, uint32_t *last, uint64_t *distances,
                 hth_expert_habits *out)
{
    uint64_t n_same = 0, n_next = 0;
    for (uint32_t i = 1; i <= t->n_tok; i++) {
        bool follows = (i - 1) % t->n_ctx != 0;
        const uint16_t *chosen = l->chosen + (size_t)(i - 1) * l->n_used;
        for (uint32_t k = 0; k < l->n_used; k++) {
            uint32_t *before = &last[chosen[k]];
            if (*before > 0) distances[i - *before]++;
            n_same += follows && *before == i - 1;
            *before = i;
        }
        n_next += follows ? l->n_used : 0;
    }
    out->sticky = n_next > 0 ? (double)n_same / (double)n_next : 0.0;
    out->reuse_distance = median(distances, t->n_tok);
}

hearth_status hth_expert_trace_habits(const hth_expert_trace *t, uint32_t i_layer, hth_expert_habits *out,
                                      hearth_error *err)
{
    const hth_expert_trace_layer *l = &t->layers[i_layer];
    uint32_t *n_use = hth_alloc(l->n_expert, sizeof *n_use), *last = hth_alloc(l->n_expert, sizeof *last);
    uint64_t *distances = hth_alloc(t->n_tok, sizeof *distances);
    bool ok = n_use && last && distances;
    *out = (hth_expert_habits){0};
    if (ok) {
        hth_expert_trace_count(t, i_layer, n_use);
        out->cover_10 = cover(n_use, l->n_expert, 0.1);
        out->cover_20 = cover(n_use, l->n_expert, 0.2);
        out->cover_40 = cover(n_use, l->n_expert, 0.4);
        walk(t, l, last, distances, out);
    }
    hth_free(n_use);
    hth_free(last);
    hth_free(distances);
    return ok ? HEARTH_OK : hth_fail_memory(err, t->n_tok * sizeof *distances, "figures of a trace");
}

/* A hth_expert_replay_fn whose user points to the trace, which is not changed. */
static void get_constant(void *user, uint32_t i_layer, uint64_t i_tok, bool is_guess, uint32_t *chosen)
{
    const hth_expert_trace *const *t = user;
    (void)is_guess;
    get(*t, i_layer, i_tok, chosen);
}

/* Moves the counts of the layers with experts, which come first, to the places of their layers. */
static void spread_counts(const hth_expert_trace *t, uint32_t n, hth_expert_counts *by_layer)
{
    for (uint32_t i = t->n_layer; i-- > 0;)
        by_layer[i] = t->layers[i].n_used > 0 ? by_layer[--n] : (hth_expert_counts){0};
}

hearth_status hth_expert_trace_replay(const hth_expert_trace *t, double share, hth_expert_counts *by_layer,
                                      hth_expert_counts *all, hearth_error *err)
{
    hth_expert_replay_layer *layers = hth_alloc(t->n_layer, sizeof *layers);
    hth_expert_replay_options o = {.layers = layers,
                                   .trace = get_constant,
                                   .user = &t,
                                   .n_warm_tok = t->n_tok / WARM_PART,
                                   .n_tok = t->n_tok - t->n_tok / WARM_PART,
                                   .n_upload_layer = UINT32_MAX,
                                   .n_upload = UINT32_MAX,
                                   .min_gain = HTH_EXPERT_MIN_GAIN};
    if (!layers) return hth_fail_memory(err, t->n_layer * sizeof *layers, "figures of a trace");
    for (uint32_t i = 0; i < t->n_layer; i++) {
        const hth_expert_trace_layer *l = &t->layers[i];
        if (l->n_used == 0) continue;
        uint32_t n_slot = (uint32_t)(share * l->n_expert + 0.5);
        layers[o.n_layer++] = (hth_expert_replay_layer){
            .i_layer = i, .n_expert = l->n_expert, .n_used = l->n_used, .n_slot = n_slot};
    }
    hearth_status st = hth_expert_replay(&o, by_layer, all, err);
    if (st == HEARTH_OK) spread_counts(t, o.n_layer, by_layer);
    hth_free(layers);
    return st;
}
