/* Which experts lie in the slots of a device? Plays the same drawn experts through the policy of src/store, with a limit
 * of uploads and without one, and through others: the least recently used expert leaves (LRU); one that was used more
 * often replaces the least used (LFU); the most used of the whole text stay (static); and the best one that knows the
 * future, which uploads an expert only if it is needed before another (Belady 1966).
 *
 *     expert_policies LAYERS,EXPERTS,USED STICKY SHARE HALF_LIFE MIN_GAIN FREQUENCIES...
 *
 * FREQUENCIES and STICKY as in hearth bench --route, or "uniform". With several files the subject changes every 1024
 * tokens, from one to the next. SHARE: slots, of a layer's experts. HALF_LIFE and MIN_GAIN: of the policy. One line, of
 * 4096 tokens after 512 that are not counted: hits of all uses in %, and in brackets uploads for a token and layer; behind
 * them the cost, misses for a token and layer, where an upload counts as HTH_EXPERT_MIN_GAIN of one. The policy has 1, 2, 4
 * and any number of uploads for a layer and token; then the share of layers and tokens without a miss. */
#define _GNU_SOURCE
#include "measure/route_trace.h"
#include "store/expert_replay.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_WARM = 512, N_COUNTED = 4096, N_TOK = N_WARM + N_COUNTED, SUBJECT_TOKENS = 1024, MAX_SUBJECT = 8 };

typedef struct shape {
    hth_model model; /* no more of it than drawing needs */
    uint32_t n_layer, n_expert, n_used, n_slot;
} shape;

typedef struct traces {
    hth_route_trace *of_subject[MAX_SUBJECT];
    uint32_t n;
} traces;

static void quit(const char *what)
{
    fprintf(stderr, "expert_policies: %s\n", what);
    exit(1);
}

static void *need(void *p)
{
    if (!p) quit("out of memory");
    return p;
}

static void check(hearth_status st, const hearth_error *err)
{
    if (st != HEARTH_OK) quit(err->message);
}

/* ---- what is played ------------------------------------------------------------------------------ */

static void make_shape(shape *s, const char *text, double share)
{
    if (sscanf(text, "%u,%u,%u", &s->n_layer, &s->n_expert, &s->n_used) != 3 || s->n_layer > HTH_MAX_LAYER ||
        s->n_expert > HTH_MAX_EXPERT || s->n_used == 0 || s->n_used > s->n_expert)
        quit("LAYERS,EXPERTS,USED: 52,64,6, for example");
    s->n_slot = (uint32_t)(share * s->n_expert + 0.5);
    s->model.hparams.n_layer = s->n_layer;
    s->model.hparams.experts.n_expert = s->n_expert;
    s->model.layers = need(calloc(s->n_layer, sizeof *s->model.layers));
    for (uint32_t i = 0; i < s->n_layer; i++) {
        s->model.layers[i].network = HTH_NETWORK_EXPERTS;
        s->model.layers[i].experts.router.n_expert = s->n_expert;
        s->model.layers[i].experts.router.n_used = s->n_used;
    }
}

static void draw(traces *t, const shape *s, const char *path, double sticky)
{
    hearth_error err;
    hth_route_trace_spec spec = {.sticky = sticky, .seed = t->n + 1};
    size_t n = (size_t)s->n_layer * s->n_expert;
    double *frequency = need(calloc(n, sizeof *frequency));
    if (t->n == MAX_SUBJECT) quit("too many files");
    if (strcmp(path, "uniform") != 0) {
        FILE *f = fopen(path, "r");
        if (!f) quit("cannot read the frequencies");
        while (spec.n_frequency < n && fscanf(f, "%lf", &frequency[spec.n_frequency]) == 1) spec.n_frequency++;
        spec.frequency = frequency;
        fclose(f);
    }
    check(hth_route_trace_open(&s->model, &spec, N_TOK, &t->of_subject[t->n++], &err), &err);
    free(frequency);
}

static void get(void *user, uint32_t i_layer, uint64_t i_tok, bool is_guess, uint32_t *chosen)
{
    const traces *t = user;
    hth_route_trace_get(t->of_subject[i_tok / SUBJECT_TOKENS % t->n], i_layer, i_tok, is_guess, chosen);
}

/* ---- the policy ------------------------------------------------------------------------------------ */

static hth_expert_counts replay(const shape *s, traces *t, uint32_t n_upload, uint32_t n_half_life, float min_gain)
{
    hearth_error err;
    hth_expert_counts all;
    hth_expert_replay_layer *layers = need(calloc(s->n_layer, sizeof *layers));
    for (uint32_t i = 0; i < s->n_layer; i++)
        layers[i] = (hth_expert_replay_layer){.i_layer = i, .n_expert = s->n_expert, .n_used = s->n_used, .n_slot = s->n_slot};
    const hth_expert_replay_options o = {.layers = layers,
                                         .n_layer = s->n_layer,
                                         .trace = get,
                                         .user = t,
                                         .n_warm_tok = N_WARM,
                                         .n_tok = N_COUNTED,
                                         .n_upload_layer = n_upload,
                                         .n_upload = UINT32_MAX,
                                         .min_gain = min_gain,
                                         .n_half_life = n_half_life};
    check(hth_expert_replay(&o, NULL, &all, &err), &err);
    free(layers);
    return all;
}

/* ---- the others ------------------------------------------------------------------------------------ */

typedef enum other { LRU, LFU, STATIC, BELADY, N_OTHER } other;

/* One layer: values by which experts stay, larger ones longer. */
typedef struct slots {
    other policy;
    uint32_t n_expert;
    double *value;
    bool *is_in;
} slots;

static uint32_t find_least(const slots *s)
{
    uint32_t least = UINT32_MAX;
    for (uint32_t e = 0; e < s->n_expert; e++)
        if (s->is_in[e] && (least == UINT32_MAX || s->value[e] < s->value[least])) least = e;
    return least;
}

/* An absent expert was used: whether it is uploaded. */
static bool upload(slots *s, uint32_t e)
{
    uint32_t least = find_least(s);
    bool swaps = s->policy == LRU || (s->policy != STATIC && s->value[e] > s->value[least]);
    if (swaps) s->is_in[least] = false, s->is_in[e] = true;
    return swaps;
}

/* next[i]: for each token and expert, minus the next token behind it that uses the expert. */
static void look_ahead(const shape *s, const uint32_t *chosen, float *next)
{
    float *soon = need(calloc(s->n_expert, sizeof *soon));
    for (uint32_t e = 0; e < s->n_expert; e++) soon[e] = -2.0f * N_TOK;
    for (uint32_t i = N_TOK; i-- > 0;) {
        memcpy(next + (size_t)i * s->n_expert, soon, s->n_expert * sizeof *soon);
        for (uint32_t k = 0; k < s->n_used; k++) soon[chosen[i * s->n_used + k]] = -(float)i;
    }
    free(soon);
}

static void play_layer(const shape *s, slots *l, const uint32_t *chosen, const float *next, hth_expert_counts *c)
{
    for (uint32_t i = 0; i < N_TOK; i++) {
        const uint32_t *now = chosen + i * s->n_used;
        bool counts = i >= N_WARM;
        for (uint32_t k = 0; k < s->n_used; k++) {
            c->n_pair += counts, c->n_hit += counts && l->is_in[now[k]];
            if (l->policy == LRU) l->value[now[k]] = i + 1;
            if (l->policy == LFU) l->value[now[k]]++;
        }
        for (uint32_t e = 0; l->policy == BELADY && e < s->n_expert; e++)
            l->value[e] = (double)next[(size_t)i * s->n_expert + e];
        for (uint32_t k = 0; k < s->n_used; k++)
            if (!l->is_in[now[k]] && upload(l, now[k])) c->n_upload += counts;
    }
    c->n_step += N_COUNTED;
}

static void begin(const shape *s, slots *l, const uint32_t *chosen)
{
    for (uint32_t e = 0; e < s->n_expert; e++) l->value[e] = 0.0, l->is_in[e] = e < s->n_slot;
    if (l->policy != STATIC) return;
    for (uint32_t i = N_WARM * s->n_used; i < N_TOK * s->n_used; i++) l->value[chosen[i]]++;
    for (uint32_t e = s->n_slot; e < s->n_expert; e++) {
        uint32_t least = find_least(l);
        if (l->value[e] > l->value[least]) l->is_in[least] = false, l->is_in[e] = true;
    }
}

static void play_others(const shape *s, traces *t, hth_expert_counts c[N_OTHER])
{
    uint32_t *chosen = need(calloc((size_t)N_TOK * s->n_used, sizeof *chosen));
    float *next = need(calloc((size_t)N_TOK * s->n_expert, sizeof *next));
    slots l = {0, s->n_expert, need(calloc(s->n_expert, sizeof *l.value)), need(calloc(s->n_expert, sizeof *l.is_in))};
    memset(c, 0, N_OTHER * sizeof *c);
    for (uint32_t i_layer = 0; i_layer < s->n_layer; i_layer++) {
        for (uint32_t i = 0; i < N_TOK; i++) get(t, i_layer, i, false, chosen + i * s->n_used);
        look_ahead(s, chosen, next);
        for (l.policy = LRU; l.policy < N_OTHER; l.policy++) {
            begin(s, &l, chosen);
            play_layer(s, &l, chosen, next, &c[l.policy]);
        }
    }
    free(chosen), free(next), free(l.value), free(l.is_in);
}

/* ---- the line -------------------------------------------------------------------------------------- */

static void print_cell(const hth_expert_counts *c, bool with_uploads)
{
    printf(" %.1f", 100.0 * (double)c->n_hit / (double)c->n_pair);
    if (with_uploads) printf(" (%.2f)", (double)c->n_upload / (double)c->n_step);
    double cost = (double)(c->n_pair - c->n_hit) + (double)HTH_EXPERT_MIN_GAIN * (double)c->n_upload;
    printf(" %.2f |", cost / (double)c->n_step);
}

int main(int argc, char **argv)
{
    static const uint32_t n_uploads[] = {1, 2, 4, UINT32_MAX};
    shape s = {0};
    traces t = {0};
    hth_expert_counts c, others[N_OTHER];
    if (argc < 7) quit("usage: expert_policies LAYERS,EXPERTS,USED STICKY SHARE HALF_LIFE MIN_GAIN FREQUENCIES...");
    make_shape(&s, argv[1], strtod(argv[3], NULL));
    for (int i = 6; i < argc; i++) draw(&t, &s, argv[i], strtod(argv[2], NULL));
    printf("|");
    for (int i = 0; i < 4; i++) {
        c = replay(&s, &t, n_uploads[i], (uint32_t)atoi(argv[4]), strtof(argv[5], NULL));
        print_cell(&c, true);
    }
    printf(" %.1f |", 100.0 * (double)c.misses[0] / (double)c.n_step);
    play_others(&s, &t, others);
    for (int i = 0; i < N_OTHER; i++) print_cell(&others[i], i != STATIC);
    printf("\n");
    for (uint32_t i = 0; i < t.n; i++) hth_route_trace_close(t.of_subject[i]);
    free(s.model.layers);
    return 0;
}
