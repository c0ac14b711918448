/* What hearth compare says: exact modes are identical, marks are those of PowerInfer's own files, and every
 * figure is what a plain recount gives, whatever threads and pieces. */
#include "measure/compare.h"

#include "base/bits.h"
#include "engine/engine.h"
#include "support/engine.h"
#include "support/test.h"
#include "support/models/tiny_model.h"

#define EMBEDDED HEARTH_SOURCE_DIR "/models/storyteller-q8_0.gguf"

/* One model, dense beside a mode. */
typedef struct pair {
    hearth_model *model;
    hearth_session *reference, *mode;
    hth_compare *compare;
} pair;

typedef struct setting {
    uint32_t n_ctx, n_batch, n_thread;
    hearth_selector selector;
    hearth_kv_type kv, kv_of_mode;
} setting;

static hearth_session *open_one(const hearth_model *model, const setting *s, hearth_selector selector,
                                hearth_kv_type kv)
{
    hearth_session_options o = {
        .n_ctx = s->n_ctx, .n_batch = s->n_batch, .n_thread = s->n_thread, .kv = kv, .selector = selector};
    hearth_session *session = OPENED(hearth_session, model, &o);
    return session;
}

static bool open_sessions(pair *p, const setting *s)
{
    p->reference = open_one(p->model, s, HEARTH_SELECTOR_DENSE, s->kv);
    p->mode = open_one(p->model, s, s->selector, s->kv_of_mode);
    if (!p->reference || !p->mode) return false;
    hth_compare_side reference = {p->model, p->reference}, mode = {p->model, p->mode};
    CHECK_OK(hth_compare_open(&reference, &mode, &p->compare, err));
    return p->compare != NULL;
}

static bool open_pair(pair *p, const char *path, const setting *s)
{
    hearth_model_options o = {.n_thread = 2, .selector = s->selector};
    *p = (pair){0};
    CHECK_OK(hearth_model_open(path, &o, &p->model, err));
    return p->model && open_sessions(p, s);
}

static void close_pair(pair *p)
{
    hth_compare_close(p->compare);
    hearth_session_close(p->mode);
    hearth_session_close(p->reference);
    hearth_model_close(p->model);
}

/* ---- exact modes ---------------------------------------------------------------------------- */

static char *make_text(size_t *n)
{
    static const char line[] = "Once upon a time there was a little dog who liked to play in the park. ";
    static const char more[] = "One day, Lily saw a big red ball. She was happy, and she ran to it. ";
    size_t n_repeat = 12, size = n_repeat * (sizeof line + sizeof more);
    char *text = malloc(size);
    if (!text) abort();
    text[0] = '\0';
    for (size_t i = 0; i < n_repeat; i++) strcat(strcat(text, i % 3 ? line : more), i % 2 ? more : line);
    *n = strlen(text);
    return text;
}

static void expect_identical(const hth_comparison *r)
{
    CHECK(r->n_scored > 100);
    CHECK_INT(r->n_identical, r->n_scored);
    CHECK_INT(r->n_agree, r->n_scored);
    CHECK(r->kl == 0.0 && r->kl_99 == 0.0 && r->kl_largest == 0.0);
    CHECK(r->ratio == 1.0 && r->ratio_error == 0.0 && r->reference.perplexity == r->mode.perplexity);
    CHECK_INT(r->n_layer, 6);
    for (uint32_t i = 0; i < r->n_layer; i++) {
        const hth_compare_layer *l = &r->layers[i];
        CHECK_INT(l->n_neuron, r->n_token * 768);
        CHECK_INT(l->n_token, r->n_token);
        CHECK_INT(l->n_hit, l->n_live); /* recall 1 */
        CHECK_INT(l->n_mode, l->n_live);
        CHECK(l->n_live > 0 && l->n_live < l->n_neuron / 4);
        CHECK(l->error_sum == 0.0 && l->error_max == 0.0);
    }
}

static void compare_exact(hearth_selector selector)
{
    CLEANUP(close_pair) pair p;
    size_t n;
    hth_comparison r;
    hth_perplexity alone;
    FREED char *text = make_text(&n);
    setting s = {.n_ctx = 64, .n_batch = 32, .n_thread = 2, .selector = selector};
    if (open_pair(&p, EMBEDDED, &s)) {
        CHECK_OK(hth_measure_compare(p.compare, text, n, 0, NULL, NULL, &r, err));
        expect_identical(&r);
        CHECK_INT(r.n_done, r.n_chunk);
        CHECK_INT(r.n_scored, r.n_chunk * 31);
        CHECK_INT(r.n_token, r.n_chunk * 64);
        for (uint32_t i = 0; i < r.n_layer; i++) {
            const hth_compare_layer *l = &r.layers[i];
            bool all = l->n_marked == l->n_neuron;
            CHECK(selector == HEARTH_SELECTOR_DENSE ? all : l->n_marked < l->n_neuron && l->n_marked > l->n_live);
        }
        CHECK_OK(hth_measure_perplexity(p.model, p.mode, text, n, 0, NULL, NULL, &alone, err));
        CHECK(memcmp(&alone, &r.mode, sizeof alone) == 0);
    }
}

TEST(gate_is_identical_to_dense) { compare_exact(HEARTH_SELECTOR_GATE); }
TEST(dense_is_identical_to_itself) { compare_exact(HEARTH_SELECTOR_DENSE); }

/* ---- logits, naively ------------------------------------------------------------------------ */

typedef struct naive {
    double kl, kl_99, kl_largest, ratio;
    size_t n, n_agree, n_identical;
} naive;

/* log softmax of x at i, in two plain passes. */
static double log_p(const float *x, size_t n, size_t i)
{
    double top = (double)-INFINITY, sum = 0.0;
    for (size_t k = 0; k < n; k++) top = fmax(top, (double)x[k]);
    for (size_t k = 0; k < n; k++) sum += exp((double)x[k] - top);
    return (double)x[i] - top - log(sum);
}

static size_t top_of(const float *x, size_t n)
{
    size_t best = 0;
    for (size_t i = 1; i < n; i++)
        if (x[i] > x[best]) best = i;
    return best;
}

static int ascending(const void *a, const void *b)
{
    double x, y;
    memcpy(&x, a, sizeof x), memcpy(&y, b, sizeof y);
    return (x > y) - (x < y);
}

/* Positions first .. n - 2 of logits [n][n_vocab]. */
static naive compare_naively(const float *p, const float *q, const int32_t *ids, size_t n, size_t first,
                             size_t n_vocab)
{
    naive out = {.n = n - 1 - first};
    double change = 0.0, *kl = calloc(out.n, sizeof *kl);
    if (!kl) abort();
    for (size_t t = first; t + 1 < n; t++) {
        const float *x = p + t * n_vocab, *y = q + t * n_vocab;
        double d = 0.0;
        /* the terms that are left out of exp's range weigh nothing */
        double zero_x = log_p(x, n_vocab, 0) - (double)x[0], zero_y = log_p(y, n_vocab, 0) - (double)y[0];
        for (size_t i = 0; i < n_vocab; i++) {
            double a = (double)x[i] + zero_x, b = (double)y[i] + zero_y;
            d += exp(a) * (a - b);
        }
        kl[t - first] = d;
        out.kl += d / (double)out.n;
        change += (log_p(x, n_vocab, (size_t)ids[t + 1]) - log_p(y, n_vocab, (size_t)ids[t + 1])) / (double)out.n;
        out.n_agree += top_of(x, n_vocab) == top_of(y, n_vocab);
        out.n_identical += memcmp(x, y, n_vocab * sizeof *x) == 0;
    }
    qsort(kl, out.n, sizeof *kl, ascending);
    out.kl_largest = kl[out.n - 1];
    out.kl_99 = kl[(size_t)ceil(0.99 * (double)out.n) - 1];
    out.ratio = exp(change);
    free(kl);
    return out;
}

typedef struct gathering {
    float *logits;
    size_t n_vocab;
} gathering;

static hearth_status gather(void *user, size_t i, const float *logits, hearth_error *err)
{
    gathering *g = user;
    memcpy(g->logits + i * g->n_vocab, logits, g->n_vocab * sizeof *logits);
    return HEARTH_OK;
}

static float *logits_of(const hearth_model *model, const setting *s, hearth_selector selector,
                        hearth_kv_type kv, const int32_t *ids, size_t n, size_t n_vocab)
{
    CLOSED(hearth_session) *session = open_one(model, s, selector, kv);
    gathering g = {calloc(n * n_vocab, sizeof(float)), n_vocab};
    if (!session || !g.logits) abort();
    CHECK_OK(hearth_session_eval_each(session, ids, n, gather, &g, err));
    return g.logits;
}

static bool near(double a, double b, double tolerance) { return fabs(a - b) <= tolerance * (fabs(b) + 1e-6); }

/* The figures of logits, against two dumps of them. */
static void check_logits(const pair *p, const setting *s, const int32_t *ids, size_t n, size_t first,
                         const hth_comparison *r)
{
    hearth_model_info info = test_model_info(p->model);
    FREED float *x = logits_of(p->model, s, HEARTH_SELECTOR_DENSE, s->kv, ids, n, info.n_vocab);
    FREED float *y = logits_of(p->model, s, s->selector, s->kv_of_mode, ids, n, info.n_vocab);
    naive want = compare_naively(x, y, ids, n, first, info.n_vocab);
    printf(
        "     KL %.6g (naively %.6g), 99 %% %.6g (%.6g), largest %.6g (%.6g); agreement %llu (%zu) of %llu; "
        "ratio %.6f (%.6f)\n",
        r->kl, want.kl, r->kl_99, want.kl_99, r->kl_largest, want.kl_largest, (unsigned long long)r->n_agree,
        want.n_agree, (unsigned long long)r->n_scored, r->ratio, want.ratio);
    CHECK_INT(r->n_scored, want.n);
    CHECK_INT(r->n_agree, want.n_agree);
    CHECK_INT(r->n_identical, want.n_identical);
    CHECK(near(r->kl, want.kl, 1e-9) && near(r->kl_99, want.kl_99, 1e-9) &&
          near(r->kl_largest, want.kl_largest, 1e-9));
    CHECK(near(r->ratio, want.ratio, 1e-12));
    CHECK(near(r->mode.perplexity / r->reference.perplexity, r->ratio, 1e-12));
}

/* An approximation that is none of the FFN: some hundred positions, so that a percentile means something. */
TEST(divergence_is_what_two_dumps_of_logits_give)
{
    CLEANUP(close_pair) pair p;
    hth_comparison r;
    int32_t ids[400];
    setting s = {.n_ctx = 400, .n_batch = 64, .n_thread = 2, .selector = HEARTH_SELECTOR_GATE,
                 .kv_of_mode = HEARTH_KV_Q8_0};
    for (int32_t i = 0; i < 400; i++) ids[i] = (i * 389 + 7) % 2048;
    if (open_pair(&p, EMBEDDED, &s)) {
        CHECK_OK(hth_compare_ids(p.compare, ids, 400, 37, NULL, err));
        hth_compare_result(p.compare, &r);
        check_logits(&p, &s, ids, 400, 37, &r);
        CHECK(r.kl > 0.0 && r.kl_99 > r.kl && r.kl_largest > r.kl_99 && r.n_identical < r.n_scored);
    }
}

/* ---- layers, naively ------------------------------------------------------------------------ */

enum { MAX_SEEN_LAYER = 2 };

/* What a session saw, and what the marker's step would have done. */
typedef struct watching {
    hearth_session *marker;
    size_t n_tok[MAX_SEEN_LAYER], d_ff, d_model;
    float *hidden[MAX_SEEN_LAYER];
    uint8_t *marked[MAX_SEEN_LAYER];
} watching;

static void watch(void *user, const hth_ffn_probe *seen)
{
    watching *w = user;
    uint32_t l = seen->i_layer;
    size_t n = seen->n_tok * seen->d_ff, at = w->n_tok[l] * seen->d_ff;
    w->d_ff = seen->d_ff, w->d_model = seen->d_model;
    w->hidden[l] = realloc(w->hidden[l], (at + n) * sizeof(float));
    w->marked[l] = realloc(w->marked[l], at + n);
    if (!w->hidden[l] || !w->marked[l]) abort();
    memcpy(w->hidden[l] + at, seen->hidden, n * sizeof(float));
    hth_step_selector_mask(hth_session_step(w->marker), seen, w->marked[l] + at);
    w->n_tok[l] += seen->n_tok;
}

static void free_watching(watching *w)
{
    for (int l = 0; l < MAX_SEEN_LAYER; l++) {
        free(w->hidden[l]);
        free(w->marked[l]);
    }
}

/* Evaluates ids with a session of this selector, watched. */
static watching watch_run(const pair *p, const setting *s, hearth_selector selector, const int32_t *ids,
                          size_t n)
{
    watching w = {.marker = open_one(p->model, s, s->selector, s->kv)};
    hearth_session *session = open_one(p->model, s, selector, s->kv);
    hth_step_set_probe(hth_session_step(session), watch, &w);
    CHECK_OK(hearth_session_eval(session, ids, n, err));
    hearth_session_close(session);
    hearth_session_close(w.marker);
    return w;
}

/* Down of layer 0 as the file has it, widened, as [d_ff][d_model]. */
static double *read_down(const hearth_model *m, size_t d_ff, size_t d_model)
{
    const hth_gguf_tensor *t = hth_gguf_find_tensor(m->file, "blk.0.ffn_down_t.weight");
    bool down_transposed = t != NULL;
    if (!t) t = hth_gguf_find_tensor(m->file, "blk.0.ffn_down.weight");
    size_t n = d_ff * d_model;
    FREED uint8_t *raw = malloc(t->size);
    FREED float *x = malloc(n * sizeof *x);
    double *down = malloc(n * sizeof *down);
    if (!raw || !x || !down) abort();
    CHECK_OK(hth_gguf_read(m->file, t, 0, t->size, raw, err));
    m->kernels.unpack[t->type](raw, n, x);
    for (size_t j = 0; j < d_ff; j++)
        for (size_t o = 0; o < d_model; o++)
            down[j * d_model + o] = (double)x[down_transposed ? j * d_model + o : o * d_ff + j];
    return down;
}

static double norm_of(const double *down, const float *h, const uint8_t *skip, size_t d_ff, size_t d_model)
{
    double norm = 0.0;
    for (size_t o = 0; o < d_model; o++) {
        double sum = 0.0;
        for (size_t j = 0; j < d_ff; j++) sum += skip && skip[j] ? 0.0 : (double)h[j] * down[j * d_model + o];
        norm += sum * sum;
    }
    return sqrt(norm);
}

/* Counts of a layer, and in layer 0 the error, from what a dense session saw. */
static void check_layer(const pair *p, const watching *w, uint32_t i_layer, const uint8_t *marked,
                        double tolerance, const hth_compare_layer *l)
{
    uint64_t n_live = 0, n_marked = 0, n_hit = 0;
    size_t n_tok = w->n_tok[i_layer], n = n_tok * w->d_ff;
    const float *hidden = w->hidden[i_layer];
    for (size_t i = 0; i < n; i++) {
        if (hidden[i] != 0.0f) n_live++;
        if (marked[i]) n_marked++;
        if (marked[i] && hidden[i] != 0.0f) n_hit++;
    }
    CHECK_INT(l->n_neuron, n);
    CHECK_INT(l->n_live, n_live);
    CHECK_INT(l->n_marked, n_marked);
    CHECK_INT(l->n_hit, n_hit);
    CHECK(n_hit > 0 && n_hit < n_live && n_marked < n);
    if (i_layer > 0) return;
    FREED double *down = read_down(p->model, w->d_ff, w->d_model);
    double sum = 0.0, max = 0.0;
    for (size_t t = 0; t < n_tok; t++) {
        const float *h = hidden + t * w->d_ff;
        double whole = norm_of(down, h, NULL, w->d_ff, w->d_model);
        double lost = norm_of(down, h, marked + t * w->d_ff, w->d_ff, w->d_model);
        sum += lost / whole;
        max = fmax(max, lost / whole);
    }
    printf("     recall %.4f, precision %.4f, CETT %.6f (naively %.6f), largest %.6f (%.6f)\n",
           (double)n_hit / (double)n_live, (double)n_hit / (double)n_marked, l->error_sum / (double)n_tok,
           sum / (double)n_tok, l->error_max, max);
    CHECK(near(l->error_sum, sum, tolerance) && near(l->error_max, max, tolerance));
}

/* ---- predictors, on PowerInfer's files --------------------------------------------------------- */

static const char *const names[] = {"llama-relu.f16", "llama-relu.q4_0", "bamboo.f16", "bamboo.q4_0",
                                    "opt.f16",        "opt.q4_0",        "falcon.q4_0"};

typedef struct golden_pair {
    pair p;
    setting s;
    int32_t *ids;
    size_t n;
    uint8_t *live; /* rows of n_layer * d_ff bits: what the predictor marks, by another program */
    size_t n_live;
} golden_pair;

static const char *path_of(const char *name, const char *suffix)
{
    static char path[100];
    snprintf(path, sizeof path, "golden/powerinfer/%s%s", name, suffix);
    return test_data(path);
}

static bool open_golden(golden_pair *g, const char *name, setting s)
{
    char model[600] = "", family[40];
    snprintf(family, sizeof family, "%.*s", (int)strcspn(name, "."), name);
    *g = (golden_pair){.s = s};
    const char *path = path_of(name, ".powerinfer.gguf");
    if (!path) return false;
    snprintf(model, sizeof model, "%s", path);
    g->ids = engine_read_ids(path_of(family, ".ids"), &g->n);
    if (!g->ids || !(path = path_of(name, ".live.bin"))) return false;
    g->live = (uint8_t *)test_read_file(path, &g->n_live);
    return g->live && open_pair(&g->p, model, &s);
}

static void close_golden(golden_pair *g)
{
    close_pair(&g->p);
    free(g->ids);
    free(g->live);
}

static setting predictor_setting(uint32_t n_batch, uint32_t n_thread)
{
    return (setting){.n_ctx = 12, .n_batch = n_batch, .n_thread = n_thread, .selector = HEARTH_SELECTOR_PREDICTOR,
                     .kv = HEARTH_KV_F32, .kv_of_mode = HEARTH_KV_F32};
}

/* The bits of a layer, a byte each: [n_tok][d_ff]. */
static uint8_t *live_of(const golden_pair *g, uint32_t i_layer, uint32_t n_layer, size_t d_ff)
{
    uint8_t *out = malloc(g->n * d_ff);
    if (!out) abort();
    CHECK_INT(g->n_live, g->n * n_layer * d_ff / 8);
    for (size_t t = 0; t < g->n; t++)
        for (size_t j = 0; j < d_ff; j++) {
            size_t bit = i_layer * d_ff + j;
            out[t * d_ff + j] = g->live[t * n_layer * d_ff / 8 + bit / 8] >> (bit % 8) & 1;
        }
    return out;
}

TEST(predictors_select_what_powerinfer_computes)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (uint32_t n_batch = 1; n_batch <= 12; n_batch += 11) {
            CLEANUP(close_golden) golden_pair g;
            if (open_golden(&g, names[i], predictor_setting(n_batch, 2))) {
                uint32_t n_layer = g.p.model->model->hparams.n_layer;
                CLEANUP(free_watching) watching w = watch_run(&g.p, &g.s, HEARTH_SELECTOR_PREDICTOR, g.ids, g.n);
                for (uint32_t l = 0; l < n_layer; l++) {
                    FREED uint8_t *live = live_of(&g, l, n_layer, w.d_ff);
                    CHECK_INT(w.n_tok[l], g.n);
                    CHECK_BYTES(w.marked[l], live, g.n * w.d_ff);
                    for (size_t k = 0; k < g.n * w.d_ff; k++)
                        if (!w.marked[l][k] && w.hidden[l][k] != 0.0f) {
                            test_fail(__FILE__, __LINE__, "%s: neuron %zu of layer %u fires unmarked",
                                      names[i], k, l);
                            break;
                        }
                }
            }
        }
}

TEST(recall_precision_and_error_are_what_a_recount_gives)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        CLEANUP(close_golden) golden_pair g;
        hth_comparison r;
        if (open_golden(&g, names[i], predictor_setting(12, 2))) {
            uint32_t n_layer = g.p.model->model->hparams.n_layer;
            CHECK_OK(hth_compare_ids(g.p.compare, g.ids, g.n, 0, NULL, err));
            hth_compare_result(g.p.compare, &r);
            CHECK_INT(r.n_layer, n_layer);
            printf("     %s\n", names[i]);
            check_logits(&g.p, &g.s, g.ids, g.n, 0, &r);
            CLEANUP(free_watching) watching w = watch_run(&g.p, &g.s, HEARTH_SELECTOR_DENSE, g.ids, g.n);
            CLEANUP(free_watching) watching own = watch_run(&g.p, &g.s, HEARTH_SELECTOR_PREDICTOR, g.ids, g.n);
            /* Before layer 0 nothing differs: there another program knows what is marked. */
            FREED uint8_t *live = live_of(&g, 0, n_layer, w.d_ff);
            double tolerance = strstr(names[i], "f16") ? 1e-5 : 1e-4; /* coefficients of 16 bits */
            for (uint32_t l = 0; l < n_layer; l++) {
                uint64_t n_mode = 0;
                check_layer(&g.p, &w, l, l == 0 ? live : w.marked[l], tolerance, &r.layers[l]);
                for (size_t k = 0; k < g.n * own.d_ff; k++) n_mode += own.hidden[l][k] != 0.0f;
                CHECK_INT(r.layers[l].n_mode, n_mode);
            }
        }
    }
}

static void expect_same(const hth_comparison *a, const hth_compare_layer *layers, const hth_comparison *b)
{
    CHECK_INT(a->n_layer, b->n_layer);
    CHECK_BYTES(a, b, offsetof(hth_comparison, n_layer));
    CHECK_BYTES(layers, b->layers, b->n_layer * sizeof *layers);
}

TEST(figures_do_not_depend_on_threads_and_pieces)
{
    static const uint32_t settings[][2] = {{12, 1}, {12, 3}, {1, 2}, {5, 2}, {3, 1}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        hth_comparison first = {0}, r;
        hth_compare_layer layers[MAX_SEEN_LAYER];
        for (size_t k = 0; k < sizeof settings / sizeof *settings; k++) {
            CLEANUP(close_golden) golden_pair g;
            if (open_golden(&g, names[i], predictor_setting(settings[k][0], settings[k][1]))) {
                CHECK_OK(hth_compare_ids(g.p.compare, g.ids, g.n, 3, NULL, err));
                hth_compare_result(g.p.compare, &r);
                if (k == 0) {
                    first = r;
                    memcpy(layers, r.layers, r.n_layer * sizeof *layers);
                } else {
                    expect_same(&first, layers, &r);
                }
            }
        }
    }
}

TEST(lines_of_ids_add_up)
{
    CLEANUP(close_golden) golden_pair g;
    hth_comparison once, twice;
    if (open_golden(&g, names[0], predictor_setting(12, 2))) {
        CHECK_OK(hth_compare_ids(g.p.compare, g.ids, g.n, 0, NULL, err));
        hth_compare_result(g.p.compare, &once);
        hth_compare_layer layer = once.layers[1];
        CHECK_OK(hth_compare_ids(g.p.compare, g.ids, g.n, 0, NULL, err));
        hth_compare_result(g.p.compare, &twice);
        CHECK_INT(twice.n_scored, 2 * once.n_scored);
        CHECK_INT(twice.n_agree, 2 * once.n_agree);
        CHECK_INT(twice.layers[1].n_hit, 2 * layer.n_hit);
        CHECK_INT(twice.layers[1].n_mode, 2 * layer.n_mode);
        CHECK(near(twice.kl, once.kl, 1e-12) && near(twice.ratio, once.ratio, 1e-12));
        CHECK(near(twice.layers[1].error_sum, 2 * layer.error_sum, 1e-12));
    }
}

/* ---- thresholds ----------------------------------------------------------------------------------- */

/* A SwiGLU model with a floor for each neuron. */
static const char *make_floors(void)
{
    CLEANUP(tiny_free) tiny_model m;
    test_random random = {7};
    const char *path = test_scratch("floors.gguf");
    tiny_begin(&m);
    for (int i = 0; i < TINY_LAYERS; i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%d.ffn_floor.weight", i);
        tiny_add_tensor(&m, name, HTH_TYPE_F32, 1, TINY_D_FF, 1);
    }
    CLEANUP(gguf_free) gguf_bytes b = tiny_write(&m);
    for (int i = 0; i < TINY_LAYERS; i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%d.ffn_floor.weight", i);
        uint8_t *data = (uint8_t *)b.data + tiny_data_at(&m, name);
        for (int j = 0; j < TINY_D_FF; j++)
            hth_store_f32(data + 4 * j, 0.02f + 0.2f * fabsf(test_random_float(&random)));
    }
    CHECK(test_write_file(path, b.data, b.n));
    return path;
}

TEST(thresholds_select_what_their_own_run_computes)
{
    const char *path = make_floors();
    int32_t ids[40];
    for (int32_t i = 0; i < 40; i++) ids[i] = (i * 53 + 1) % TINY_VOCAB;
    for (uint32_t n_batch = 1; n_batch <= 40; n_batch += 39) {
        CLEANUP(close_pair) pair p;
        hth_comparison r;
        setting s = {.n_ctx = 40, .n_batch = n_batch, .n_thread = 2, .selector = HEARTH_SELECTOR_THRESHOLD};
        if (open_pair(&p, path, &s)) {
            CLEANUP(free_watching) watching own = watch_run(&p, &s, HEARTH_SELECTOR_THRESHOLD, ids, 40);
            for (int l = 0; l < TINY_LAYERS; l++)
                for (size_t i = 0; i < 40 * TINY_D_FF; i++)
                    if (own.marked[l][i] != (own.hidden[l][i] != 0.0f)) {
                        test_fail(__FILE__, __LINE__, "layer %d, entry %zu: marked %d", l, i, own.marked[l][i]);
                        break;
                    }
            CLEANUP(free_watching) watching w = watch_run(&p, &s, HEARTH_SELECTOR_DENSE, ids, 40);
            CHECK_OK(hth_compare_ids(p.compare, ids, 40, 0, NULL, err));
            hth_compare_result(p.compare, &r);
            check_logits(&p, &s, ids, 40, 0, &r);
            for (uint32_t l = 0; l < TINY_LAYERS; l++) check_layer(&p, &w, l, w.marked[l], 1e-5, &r.layers[l]);
        }
    }
    remove(path);
}

/* ---- what ends it, and what is refused ------------------------------------------------------------- */

static bool count_down(void *user, uint64_t done, uint64_t total)
{
    int *left = user;
    return --*left > 0;
}

TEST(an_early_end_keeps_whole_chunks)
{
    size_t n;
    FREED char *text = make_text(&n);
    for (int left = 1; left < 12; left++) {
        CLEANUP(close_pair) pair p;
        hth_comparison r;
        int calls = left;
        /* two pieces of 32 to a chunk, and a look behind it */
        setting s = {.n_ctx = 64, .n_batch = 32, .n_thread = 1, .selector = HEARTH_SELECTOR_GATE};
        if (open_pair(&p, EMBEDDED, &s)) {
            CHECK_OK(hth_measure_compare(p.compare, text, n, 3, count_down, &calls, &r, err));
            uint64_t want = left / 3 < 3 ? (uint64_t)left / 3 : 3;
            CHECK_INT(r.n_done, want);
            CHECK_INT(r.n_scored, want * 31);
            CHECK_INT(r.n_token, want * 64);
            CHECK_INT(r.layers[5].n_neuron, want * 64 * 768);
            CHECK_INT(r.layers[5].n_mode, r.layers[5].n_live);
        }
    }
}

static hearth_status compare_files(const char *a, const char *b, uint32_t n_batch, hth_comparison *r,
                                   hearth_error *why)
{
    hearth_model *x = NULL, *y = NULL;
    setting s = {.n_ctx = 8, .n_batch = 8, .n_thread = 1}, other = s;
    hth_compare *c = NULL;
    other.n_batch = n_batch;
    CHECK_OK(hearth_model_open(a, NULL, &x, err));
    CHECK_OK(hearth_model_open(b, NULL, &y, err));
    hth_compare_side reference = {x, open_one(x, &s, HEARTH_SELECTOR_DENSE, HEARTH_KV_F32)};
    hth_compare_side mode = {y, open_one(y, &other, HEARTH_SELECTOR_AUTO, HEARTH_KV_F32)};
    hearth_status st = hth_compare_open(&reference, &mode, &c, why);
    if (st == HEARTH_OK) st = hth_measure_compare(c, "abc ab c abc abc ab c ab ab c", 29, 0, NULL, NULL, r, why);
    hth_compare_close(c);
    hearth_session_close(reference.session);
    hearth_session_close(mode.session);
    hearth_model_close(x);
    hearth_model_close(y);
    return st;
}

/* The tiny model in a file, its word "▁a" as "▁b" if asked for. */
static void write_tiny(const char *path, uint32_t bos, bool other_word)
{
    CLEANUP(tiny_free) tiny_model m = tiny_new();
    tiny_set_u32(&m, "tokenizer.ggml.bos_token_id", bos);
    CLEANUP(gguf_free) gguf_bytes file = tiny_write(&m);
    uint8_t *word = memmem(file.data, file.n, "\xe2\x96\x81\x61", 4);
    if (CHECK(word != NULL) && other_word) word[3] = 'b';
    CHECK(test_write_file(path, file.data, file.n));
}

TEST(other_vocabularies_are_refused)
{
    const char *a = test_scratch("a.gguf"), *b = test_scratch("b.gguf");
    hth_comparison r;
    write_tiny(a, 1, false);
    CHECK_FAILS(compare_files(a, EMBEDDED, 8, &r, err), HEARTH_ERROR_ARGUMENT, "a vocabulary of 267|2048");
    write_tiny(b, 2, false);
    CHECK_FAILS(compare_files(a, b, 8, &r, err), HEARTH_ERROR_ARGUMENT, "other tokens");
    write_tiny(b, 1, false);
    CHECK_OK(compare_files(a, b, 8, &r, err));
    CHECK(r.n_layer == 0 && r.n_scored > 0 && r.n_identical == r.n_scored);
    write_tiny(b, 1, true);
    CHECK_FAILS(compare_files(a, b, 8, &r, err), HEARTH_ERROR_ARGUMENT, "other tokens");
    CHECK_FAILS(compare_files(a, a, 4, &r, err), HEARTH_ERROR_ARGUMENT, "the same n_batch");
}
