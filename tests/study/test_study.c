/* Studies: the figures are those of a naive recount by their definitions, through the same observation
 * point, and depend neither on threads, nor on batches, nor on whether memory was enough. */
#include "study/study.h"
#include "engine/engine.h"
#include "kernels/vector/math.h"
#include "measure/chunks.h"
#include "sparse/neuron_order.h"
#include "support/models/small_model.h"
#include "support/test.h"

enum { N_CTX = 50, N_CHUNK = 12, MAX_LAYER = 8 };

typedef struct bench_model {
    hearth_model *model;
    gguf_bytes bytes;
    char text[6000];
    size_t n;
} bench_model;

/* Storyteller (dReLU), or a small one of SiLU whose 100 neurons fill no whole bytes. */
static bench_model open_bench(bool storyteller)
{
    bench_model made = {0}, *b = &made;
    static const char *const words[] = {"Once", "a dog", "was", "in the park", "and", "he", "said", "to Lily"};
    test_random r = {7};
    while (b->n < 5000) b->n += (size_t)snprintf(b->text + b->n, 50, "%s ", words[test_random_below(&r, 8)]);
    b->model = small_model_open(storyteller, &b->bytes);
    return made;
}

static void close_bench(bench_model *b)
{
    hearth_model_close(b->model);
    gguf_free(&b->bytes);
}

typedef struct setting {
    uint32_t n_thread, n_batch;
    uint64_t memory;
    int stop;          /* at the n-th look; 0: never */
    uint64_t n_chunk; /* 0: N_CHUNK */
} setting;

static bool stop_at(void *user, uint64_t done, uint64_t total)
{
    int *left = user;
    CHECK(done <= total);
    return *left == 0 || --*left > 0;
}

static hearth_session *open_session(const bench_model *b, const setting *s)
{
    return small_model_session(b->model, N_CTX, s->n_batch, s->n_thread);
}

static hearth_status run_study(const bench_model *b, const setting *s, hth_study *out, hearth_error *err)
{
    int stop = s->stop;
    hth_study_options o = hth_study_defaults();
    o.n_chunk = s->n_chunk ? s->n_chunk : N_CHUNK;
    o.n_sample = 40;
    o.n_step = 70;
    o.n_trained = 2;
    o.n_scored = 2;
    o.memory = s->memory;
    o.beside = test_scratch("study");
    o.progress = stop_at;
    o.progress_user = &stop;
    CLOSED(hearth_session) *session = open_session(b, s);
    hearth_status st = hth_study_run(b->model, session, b->text, b->n, &o, out, err);
    return st;
}

/* ---- the naive recount ------------------------------------------------------------------------- */

/* What every token made of every layer. */
typedef struct seen_all {
    hth_step *step;
    size_t d_ff, d_model, n_tok[MAX_LAYER];
    float *hidden[MAX_LAYER]; /* [N_CHUNK * N_CTX][d_ff] */
} seen_all;

static void remember(void *user, const hth_ffn_probe *seen)
{
    seen_all *a = user;
    uint32_t i = seen->i_layer;
    if (!a->hidden[i]) a->hidden[i] = calloc((size_t)N_CHUNK * N_CTX, seen->d_ff * sizeof(float));
    memcpy(a->hidden[i] + a->n_tok[i] * seen->d_ff, seen->hidden, seen->n_tok * seen->d_ff * sizeof(float));
    a->n_tok[i] += seen->n_tok;
    a->d_ff = seen->d_ff;
    a->d_model = seen->d_model;
}

static void look(const bench_model *b, hearth_session *session, seen_all *a)
{
    CLEANUP(hth_chunks_close) hth_chunks w;
    a->step = hth_session_step(session);
    hth_step_set_probe(a->step, remember, a);
    CHECK_OK(hth_chunks_open(&w, b->model, b->text, b->n, N_CTX, err));
    CHECK(w.n_chunk >= N_CHUNK);
    for (size_t i = 0; i < N_CHUNK; i++) {
        CHECK_OK(hearth_session_truncate(session, 0, err));
        CHECK_OK(hearth_session_eval(session, hth_chunks_at(&w, i), N_CTX, err));
    }
    hth_step_set_probe(a->step, NULL, NULL);
}

/* The norm of what down makes of h. */
static double norm_of(const seen_all *a, uint32_t i_layer, const float *h)
{
    const float *y = hth_step_down(a->step, i_layer, h, 1);
    double sum = 0.0;
    for (size_t o = 0; o < a->d_model; o++) sum += (double)y[o] * (double)y[o];
    return hth_sqrt_d(sum);
}

/* Contributions by asking down for each neuron alone; with rounded activations that is near, not equal. */
static void find_contributions(const bench_model *b, const seen_all *a, uint32_t i_layer, const float *h,
                               double *c)
{
    const hth_layer *l = &b->model->model->layers[i_layer];
    float *row = calloc(l->ffn.down.n_col, sizeof *row);
    uint8_t *scratch = calloc(1, l->ffn.down.row_size);
    double *squares = calloc(a->d_ff, sizeof *squares);
    for (size_t r = 0; r < l->ffn.down.n_row; r++) {
        b->model->kernels.unpack[l->ffn.down.type](hth_matrix_row(&l->ffn.down, r, scratch), l->ffn.down.n_col, row);
        for (size_t j = 0; j < a->d_ff; j++) squares[j] += (double)row[j] * (double)row[j];
    }
    for (size_t j = 0; j < a->d_ff; j++) c[j] = (h[j] < 0 ? -(double)h[j] : (double)h[j]) * hth_sqrt_d(squares[j]);
    free(row), free(scratch), free(squares);
}

/* CETT of a token that keeps its n_kept largest contributions. */
static double cett_of(const bench_model *b, const seen_all *a, uint32_t i_layer, const float *h,
                      size_t n_kept)
{
    double *c = calloc(a->d_ff, sizeof *c);
    float *lost = calloc(a->d_ff, sizeof *lost);
    find_contributions(b, a, i_layer, h, c);
    for (size_t j = 0; j < a->d_ff; j++) {
        size_t n_larger = 0;
        for (size_t k = 0; k < a->d_ff; k++) n_larger += c[k] > c[j];
        if (n_larger >= n_kept) lost[j] = h[j];
    }
    double whole = norm_of(a, i_layer, h), part = norm_of(a, i_layer, lost);
    free(c), free(lost);
    return whole > 0.0 ? part / whole : 0.0;
}

static void near(double x, double y, double within, const char *what)
{
    if (!CHECK(x >= y - within && x <= y + within)) printf("    %s: %.9g, not %.9g\n", what, x, y);
}

static bool is_active(const bench_model *b, const seen_all *a, const hth_study *s, uint32_t i_layer, size_t t,
                      size_t j)
{
    const float *h = a->hidden[i_layer] + t * a->d_ff;
    static double c[1024];
    static const float *of;
    if (!s->by_contribution) return h[j] != 0.0f;
    if (of != h) find_contributions(b, a, i_layer, h, c), of = h;
    return (float)c[j] >= (float)s->layers[i_layer].limit;
}

static void check_layer(const bench_model *b, const seen_all *a, const hth_study *s, uint32_t i_layer)
{
    const hth_study_layer *l = &s->layers[i_layer];
    size_t n_tok = a->n_tok[i_layer], n_active = 0, n_zero = 0, n_pair = 0;
    FREED bool *active = calloc(n_tok, a->d_ff);
    double reused = 0.0, cett = 0.0;
    for (size_t t = 0; t < n_tok; t++)
        for (size_t j = 0; j < a->d_ff; j++) {
            active[t * a->d_ff + j] = is_active(b, a, s, i_layer, t, j);
            n_active += active[t * a->d_ff + j];
        }
    /* the third of the points: one of the last three tokens */
    for (size_t t = 3; t < n_tok; t++) {
        size_t own = 0, again = 0;
        const bool *now = active + t * a->d_ff;
        if (t % N_CTX < 3) continue;
        for (size_t j = 0; j < a->d_ff; j++) {
            own += now[j];
            again += now[j] && (now[j - a->d_ff] || now[j - 2 * a->d_ff] || now[j - 3 * a->d_ff]);
        }
        if (own > 0) reused += (double)again / (double)own, n_pair++;
    }
    for (uint32_t i = 0; i < s->n_sample; i++) {
        const float *h = a->hidden[i_layer] + i * n_tok / s->n_sample * a->d_ff;
        cett += cett_of(b, a, i_layer, h, (size_t)(0.1 * (double)a->d_ff + 0.5)) / s->n_sample;
        for (size_t j = 0; j < a->d_ff; j++) n_zero += h[j] == 0.0f;
    }
    CHECK(hth_study_kept[3] == 0.1 && hth_study_before[2] == 3);
    near(l->active, (double)n_active / (double)(n_tok * a->d_ff), s->by_contribution ? 1e-4 : 1e-12, "active");
    near(l->zero, (double)n_zero / (double)(s->n_sample * a->d_ff), 1e-9, "zero");
    near(l->reused[2], n_pair ? reused / (double)n_pair : 0.0, s->by_contribution ? 1e-3 : 1e-9, "reused");
    near(l->cett[3], cett, 1e-6, "CETT of a tenth");
}

static void check_sums(const hth_study_layer *l)
{
    double sum = l->zero + l->below_sizes;
    for (size_t i = 0; i < HTH_STUDY_N_SIZE; i++) sum += l->sizes[i];
    near(sum, 1.0, 1e-9, "all sizes together");
    CHECK(l->cett[HTH_STUDY_N_KEPT - 1] == 0.0);
    for (size_t i = 1; i < HTH_STUDY_N_KEPT; i++) CHECK(l->cett[i] <= l->cett[i - 1]);
    near(l->covered[HTH_STUDY_N_HOTTEST - 1], 1.0, 1e-12, "all activity");
    for (size_t i = 1; i < HTH_STUDY_N_HOTTEST; i++) CHECK(l->covered[i] >= l->covered[i - 1]);
    for (size_t i = 1; i < HTH_STUDY_N_BEFORE; i++) CHECK(l->reused[i] > 0.0 && l->reused[i] <= 1.0);
    CHECK(l->run_in_file >= 1.0 && l->run_ordered >= l->run_in_file);
    CHECK(l->gap_by_chance > 0.0 && l->gap_by_chance < 1.0);
    CHECK(l->sparsity > 0.0 && l->sparsity < 1.0);
}

/* CETT, mean over the sampled tokens, without the contributions below a limit. */
static double cett_below(const bench_model *b, const seen_all *a, const hth_study *s, uint32_t i_layer,
                         double limit)
{
    double *c = calloc(a->d_ff, sizeof *c), sum = 0.0;
    float *lost = calloc(a->d_ff, sizeof *lost);
    for (uint32_t i = 0; i < s->n_sample; i++) {
        const float *h = a->hidden[i_layer] + i * a->n_tok[i_layer] / s->n_sample * a->d_ff;
        find_contributions(b, a, i_layer, h, c);
        for (size_t j = 0; j < a->d_ff; j++) lost[j] = (float)c[j] < (float)limit ? h[j] : 0.0f;
        double whole = norm_of(a, i_layer, h);
        sum += whole > 0.0 ? norm_of(a, i_layer, lost) / whole : 0.0;
    }
    free(c), free(lost);
    return sum / s->n_sample;
}

static int by_count(const void *x, const void *y) { return *(const int *)y - *(const int *)x; }

/* Who is hot, and who goes with whom, of a layer whose 600 tokens are all marked. */
static void check_firings(const bench_model *b, const seen_all *a, const hth_study *s, uint32_t i_layer)
{
    const hth_study_layer *l = &s->layers[i_layer];
    size_t n_tok = a->n_tok[i_layer], d_ff = a->d_ff, n_run = 0, n_all = 0, n_asked = 0;
    bool *active = calloc(n_tok, d_ff);
    int *fired = calloc(d_ff, sizeof *fired);
    double gap = 0.0, covered = 0.0;
    for (size_t t = 0; t < n_tok; t++)
        for (size_t j = 0; j < d_ff; j++) {
            bool is = active[t * d_ff + j] = is_active(b, a, s, i_layer, t, j);
            n_run += is && (j == 0 || !active[t * d_ff + j - 1]);
            n_all += is;
            fired[j] += is;
        }
    for (size_t i = 0; i < d_ff; i++) {
        double sum = 0.0, max = 0.0;
        for (size_t j = 0; fired[i] >= 10 && j < d_ff; j++) {
            int both = 0;
            for (size_t t = 0; j != i && t < n_tok; t++) both += active[t * d_ff + i] && active[t * d_ff + j];
            double share = (double)both / fired[i];
            sum += share;
            max = share > max ? share : max;
        }
        if (fired[i] >= 10) gap += max - sum / (double)d_ff, n_asked++;
    }
    qsort(fired, d_ff, sizeof *fired, by_count);
    for (size_t j = 0; (double)j < 0.2 * (double)d_ff; j++) covered += fired[j] / (double)n_all;
    double within = s->by_contribution ? 2e-3 : 1e-9;
    CHECK(hth_study_hottest[5] == 0.2);
    near(l->covered[5], covered, within, "what the hottest fifth covers");
    near(l->co_firing_gap, gap / (double)n_asked, within, "gap");
    near(l->run_in_file, (double)n_all / (double)n_run, within, "mean run");
    free(active), free(fired);
}

static void check_limit(const bench_model *b, const seen_all *a, const hth_study *s, uint32_t i_layer)
{
    const hth_study_layer *l = &s->layers[i_layer];
    double at = cett_below(b, a, s, i_layer, l->limit), above = cett_below(b, a, s, i_layer, 1.1 * l->limit);
    if (!CHECK(at <= 1.005 * s->bound && above > s->bound)) printf("    CETT %g, %g\n", at, above);
}

static void recount(bool storyteller)
{
    seen_all a = {0};
    CLEANUP(hth_study_close) hth_study s;
    setting one = {.n_thread = 2, .n_batch = 64, .memory = 1 << 30};
    CLEANUP(close_bench) bench_model b = open_bench(storyteller);
    CLOSED(hearth_session) *session = open_session(&b, &one);
    look(&b, session, &a);
    CHECK_OK(run_study(&b, &one, &s, err));
    CHECK_INT(s.by_contribution, !storyteller);
    CHECK_INT(s.n_tok, N_CHUNK * N_CTX);
    CHECK_INT(s.n_layer, b.model->model->hparams.n_layer);
    for (uint32_t i = 0; i < s.n_layer; i++) {
        check_layer(&b, &a, &s, i);
        check_sums(&s.layers[i]);
        check_limit(&b, &a, &s, i);
        if (i == 0 || !storyteller) check_firings(&b, &a, &s, i);
        CHECK((s.layers[i].n_predictor > 0) == (i == 0 || i + 1 == s.n_layer));
    }
    for (size_t i = 0; i < MAX_LAYER; i++) free(a.hidden[i]);
}

TEST(figures_are_those_of_a_naive_recount) { recount(true); }
TEST(figures_of_ragged_layers_without_zeros_are_those_of_a_recount) { recount(false); }

/* Of 512 tokens none can be held out; of 513 some can. Chunks of 50: 500 and 550 tokens. */
TEST(predictors_are_judged_where_tokens_can_be_held_out)
{
    static const uint64_t n_chunks[] = {10, 11};
    for (int i = 0; i < 2; i++) {
        CLEANUP(hth_study_close) hth_study s;
        setting one = {.n_thread = 1, .n_batch = 64, .memory = 1 << 30, .n_chunk = n_chunks[i]};
        CLEANUP(close_bench) bench_model b = open_bench(false);
        CHECK_OK(run_study(&b, &one, &s, err));
        CHECK_INT(s.n_held, i * 64);
        CHECK_INT(s.layers[0].n_predictor > 0, i);
    }
}

TEST(the_first_row_of_perplexities_is_that_of_the_model)
{
    CLEANUP(hth_study_close) hth_study s;
    hth_perplexity p;
    setting one = {.n_thread = 1, .n_batch = 64, .memory = 1 << 30};
    CLEANUP(close_bench) bench_model b = open_bench(true);
    CHECK_OK(run_study(&b, &one, &s, err));
    CLOSED(hearth_session) *session = open_session(&b, &one);
    CHECK_OK(hth_measure_perplexity(b.model, session, b.text, b.n, 2, NULL, NULL, &p, err));
    CHECK_INT(s.n_row, HTH_STUDY_N_ROW);
    CHECK(s.rows[0].perplexity == p.perplexity && s.rows[0].error == p.error);
    /* 88 to 95 % of storyteller's values are zero: keeping half keeps all that is not, a twentieth does not */
    CHECK(s.rows[1].perplexity == p.perplexity);
    CHECK(s.rows[HTH_STUDY_N_ROW - 1].perplexity != p.perplexity);
}

/* ---- the same figures --------------------------------------------------------------------------------- */

TEST(studies_do_not_depend_on_threads_batches_or_memory)
{
    static const setting settings[] = {{.n_thread = 1, .n_batch = 64, .memory = 1 << 30},
                                       {.n_thread = 2, .n_batch = 7, .memory = 1 << 30},
                                       {.n_thread = 3, .n_batch = 64, .memory = 1000}}; /* all in files */
    for (int storyteller = 0; storyteller < 2; storyteller++) {
        hth_study first, other;
        CLEANUP(close_bench) bench_model b = open_bench(storyteller);
        CHECK_OK(run_study(&b, &settings[0], &first, err));
        for (size_t i = 1; i < 3; i++) {
            CHECK_OK(run_study(&b, &settings[i], &other, err));
            CHECK_BYTES(first.layers, other.layers, first.n_layer * sizeof *first.layers);
            CHECK_BYTES(first.rows, other.rows, sizeof first.rows);
            hth_study_close(&other);
        }
        hth_study_close(&first);
    }
}

TEST(a_study_can_be_cancelled_at_any_look)
{
    hearth_status st = HEARTH_ERROR_CANCELLED;
    int n_stop = 0;
    CLEANUP(close_bench) bench_model b = open_bench(false);
    for (; st == HEARTH_ERROR_CANCELLED && n_stop < 200; n_stop++) {
        CLEANUP(hth_study_close) hth_study s;
        setting one = {.n_thread = 1, .n_batch = 64, .memory = 1 << 30, .stop = n_stop + 1};
        hearth_error why = {0};
        st = run_study(&b, &one, &s, &why);
        if (st == HEARTH_ERROR_CANCELLED) CHECK(strstr(why.message, "nothing was written") && !s.layers);
    }
    CHECK_INT(st, HEARTH_OK);
    CHECK(n_stop > 30);
}

TEST(texts_shorter_than_a_chunk_are_refused)
{
    hth_study s;
    setting one = {.n_thread = 1, .n_batch = 64, .memory = 1 << 30};
    CLEANUP(close_bench) bench_model b = open_bench(true);
    b.n = 20;
    hearth_error why = {0};
    CHECK_INT(run_study(&b, &one, &s, &why), HEARTH_ERROR_ARGUMENT);
    CHECK(strstr(why.message, "a chunk needs 50") && !s.layers);
}
