/* Experts that are drawn instead of those that routers choose: by the given frequencies, as many as a token uses, each
 * once; what stays from the token before and what is guessed have the stated shares; steps compute with them. */
#include "measure/route_trace.h"

#include "engine/engine.h"
#include "support/engine.h"
#include "support/models/golden.h"
#include "support/test.h"

enum { N_TOK = 400, MAX_EXPERT = 64 };

typedef struct opened {
    golden g;
    hth_gguf *file;
    hth_model *model;
    const hth_router *router; /* of layer 0 */
    size_t n_expert;          /* of all layers */
} opened;

static bool open_mixture(opened *o)
{
    *o = (opened){0};
    if (!golden_open_arch(&o->g, "qwen3moe")) return false;
    CHECK_OK(hth_gguf_open(o->g.model, &o->file, err));
    CHECK_OK(hth_model_open(o->file, &(hth_model_overrides){0}, &o->model, err));
    o->router = &o->model->layers[0].experts.router;
    o->n_expert = (size_t)o->router->n_expert * o->model->hparams.n_layer;
    return true;
}

static void close_mixture(opened *o)
{
    hth_model_close(o->model);
    hth_gguf_close(o->file);
    golden_close(&o->g);
}

/* Ascending, so each once. */
static void get(hth_route_trace *t, const opened *o, uint32_t i_tok, bool is_guess, uint32_t *chosen)
{
    hth_route_trace_get(t, 0, i_tok, is_guess, chosen);
    for (uint32_t i = 0; i < o->router->n_used; i++)
        CHECK(chosen[i] < o->router->n_expert && (i == 0 || chosen[i] > chosen[i - 1]));
}

static uint32_t n_common(const uint32_t *a, const uint32_t *b, uint32_t n)
{
    uint32_t common = 0;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < n; k++) common += a[i] == b[k];
    return common;
}

/* Shares of a token's experts that the token before has too, and that were guessed. */
static void measure(const opened *o, const hth_route_trace_spec *spec, double *sticky, double *foreseen)
{
    uint32_t n_used = o->router->n_used, now[MAX_EXPERT], before[MAX_EXPERT], guess[MAX_EXPERT], n_same = 0, n_right = 0;
    CLOSED(hth_route_trace) *t = OPENED_BY(hth_route_trace_open, hth_route_trace, o->model, spec, N_TOK);
    if (!t) return;
    for (uint32_t i = 0; i < N_TOK; i++) {
        get(t, o, i, false, now);
        get(t, o, i, true, guess);
        if (i > 0) n_same += n_common(now, before, n_used);
        n_right += n_common(now, guess, n_used);
        memcpy(before, now, sizeof now);
    }
    *sticky = n_same / (double)((N_TOK - 1) * n_used);
    *foreseen = n_right / (double)(N_TOK * n_used);
}

TEST(lists_have_the_stated_shares)
{
    CLEANUP(close_mixture) opened o;
    if (!open_mixture(&o)) return;
    double chance = o.router->n_used / (double)o.router->n_expert, sticky = 0.0, foreseen = 0.0;
    for (int k = 0; k <= 4; k++) {
        const hth_route_trace_spec spec = {.sticky = k / 4.0, .foreseen = 1.0 - k / 4.0, .seed = 5};
        measure(&o, &spec, &sticky, &foreseen);
        /* What is not kept is drawn, and drawn right by chance. */
        CHECK(sticky > spec.sticky - 0.05 && sticky < spec.sticky + (1.0 - spec.sticky) * chance + 0.05);
        CHECK(foreseen > spec.foreseen - 0.05 && foreseen < spec.foreseen + (1.0 - spec.foreseen) * chance + 0.05);
    }
    CHECK(sticky == 1.0);
}

TEST(experts_are_drawn_by_frequency)
{
    CLEANUP(close_mixture) opened o;
    if (!open_mixture(&o)) return;
    FREED double *frequency = calloc(o.n_expert, sizeof *frequency);
    uint32_t chosen[MAX_EXPERT], n_drawn[MAX_EXPERT] = {0}, n = o.router->n_expert;
    for (size_t i = 0; i < o.n_expert; i++) frequency[i] = i % n == 1 ? 0.0 : i % n == 2 ? 30.0 : 1.0;
    const hth_route_trace_spec spec = {.frequency = frequency, .n_frequency = o.n_expert, .seed = 7};
    CLOSED(hth_route_trace) *t = OPENED_BY(hth_route_trace_open, hth_route_trace, o.model, &spec, N_TOK);
    for (uint32_t i = 0; t && i < N_TOK; i++) {
        get(t, &o, i, false, chosen);
        for (uint32_t k = 0; k < o.router->n_used; k++) n_drawn[chosen[k]]++;
    }
    CHECK_INT(n_drawn[1], 0);
    for (uint32_t e = 0; e < n; e++) CHECK(e == 1 || e == 2 || (n_drawn[e] > 0 && 2 * n_drawn[e] < 3 * n_drawn[2]));

    hth_route_trace *none;
    hth_route_trace_spec wrong = spec;
    wrong.n_frequency--;
    CHECK_FAILS(hth_route_trace_open(o.model, &wrong, N_TOK, &none, err), HEARTH_ERROR_ARGUMENT, "frequenc");
    for (size_t i = 0; i < o.n_expert; i++) frequency[i] = i % n == 1;
    CHECK_FAILS(hth_route_trace_open(o.model, &spec, N_TOK, &none, err), HEARTH_ERROR_ARGUMENT, "frequenc");
}

TEST(lists_are_those_of_a_recorded_trace)
{
    CLEANUP(close_mixture) opened o = {0}, other = {0};
    if (!open_mixture(&o)) return;
    CLOSED(hth_expert_trace) *from = OPENED_BY(hth_expert_trace_new, hth_expert_trace, o.model, 50);
    uint32_t n_used = o.router->n_used, chosen[MAX_EXPERT], guess[MAX_EXPERT], n_right = 0, n_first[3] = {0};
    if (!from) return;
    /* Experts 5 to 7 are never used, so never guessed. */
    for (uint32_t l = 0; l < from->n_layer; l++)
        for (uint32_t i = 0; i < 50 * n_used; i++)
            from->layers[l].chosen[i] = (uint16_t)(i % n_used + (i % n_used == n_used - 1 ? i / n_used % 3 : 0));
    for (uint64_t seed = 0; seed < 3; seed++) {
        const hth_route_trace_spec spec = {.foreseen = 0.5, .seed = seed, .recorded = from};
        uint32_t first = n_first[seed] = hth_route_trace_first_token(from, seed);
        CLOSED(hth_route_trace) *t = OPENED_BY(hth_route_trace_open, hth_route_trace, o.model, &spec, N_TOK);
        for (uint32_t i = 0; t && i < N_TOK; i++) {
            get(t, &o, i, false, chosen);
            get(t, &o, i, true, guess);
            for (uint32_t k = 0; k < n_used; k++)
                CHECK_INT(chosen[k], from->layers[0].chosen[(first + i) % 50 * n_used + k]);
            CHECK(guess[n_used - 1] < 5);
            n_right += n_common(chosen, guess, n_used);
        }
    }
    CHECK(n_first[0] < 50 && (n_first[0] != n_first[1] || n_first[1] != n_first[2]));
    CHECK(n_right > 3 * N_TOK * n_used / 2 && n_right < 3 * N_TOK * n_used);

    hth_route_trace *none;
    const hth_route_trace_spec spec = {.recorded = from};
    if (!golden_open_arch(&other.g, "dots1")) return;
    CHECK_OK(hth_gguf_open(other.g.model, &other.file, err));
    CHECK_OK(hth_model_open(other.file, &(hth_model_overrides){0}, &other.model, err));
    CHECK_FAILS(hth_route_trace_open(other.model, &spec, N_TOK, &none, err), HEARTH_ERROR_ARGUMENT, "2 layers|has 3");
}

TEST(steps_compute_with_the_experts_of_a_trace)
{
    CLEANUP(close_mixture) opened o;
    if (!open_mixture(&o)) return;
    uint32_t n_vocab = o.model->hparams.n_vocab;
    FREED float *logits = calloc(3 * (size_t)n_vocab, sizeof *logits);
    hearth_model_options options = {.n_thread = 1};
    CLOSED(hearth_model) *m = OPENED_BY(hearth_model_open, hearth_model, o.g.model, &options);
    for (uint64_t seed = 0; m && seed < 3; seed++) { /* the routers, then two traces */
        const hth_route_trace_spec spec = {.seed = seed};
        hearth_session_options s = hearth_session_defaults();
        s.n_thread = 1;
        CLOSED(hearth_session) *session = OPENED_BY(hearth_session_open, hearth_session, m, &s);
        CLOSED(hth_route_trace) *t = OPENED_BY(hth_route_trace_open, hth_route_trace, m->model, &spec, N_TOK);
        if (seed > 0) hth_step_set_route(hth_session_step(session), hth_route_trace_get, t);
        CHECK_OK(hearth_session_eval(session, o.g.ids, o.g.n, err));
        memcpy(logits + seed * n_vocab, hearth_session_logits(session), n_vocab * sizeof *logits);
    }
    CHECK(memcmp(logits, logits + n_vocab, n_vocab * sizeof *logits) != 0);
    CHECK(memcmp(logits + n_vocab, logits + 2 * (size_t)n_vocab, n_vocab * sizeof *logits) != 0);
}
