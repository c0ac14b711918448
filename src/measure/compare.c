/* Runs two sessions over the same tokens, batch by batch: first the reference, whose probe asks the mode's
 * workspace which neurons its selector would keep, then the mode; then it scores the logits of the batch. Holds
 * the logits of one batch only. Sums add tokens in order, so no result depends on threads or on the batch size. */
#include "measure/compare.h"

#include "base/alloc.h"
#include "base/checked_math.h"
#include "base/pool.h"
#include "base/status.h"
#include "engine/engine.h"
#include "kernels/vector/math.h"
#include "measure/contribution.h"
#include "measure/chunks.h"

#include <string.h>

/* Tokens of a batch, after which progress is called. Bytes of its logits, per side. */
enum { BATCH = 256, LOGITS_SIZE = 64 << 20 };

typedef struct row_score {
    double kl, nll_reference, nll_mode;
    bool agrees, identical;
} row_score;

/* Totals, committed when all ids of a call are done. */
typedef struct tally {
    uint64_t n_token, n_agree, n_identical;
    hth_nll_sum reference, mode, change;
    double kl_sum;
    size_t n_kl;
} tally;

struct hth_compare {
    hth_compare_side reference, mode;
    hth_pool *pool; /* computes scores */
    size_t n_vocab, n_chunk;
    uint32_t n_layer; /* 0: layers are not compared */
    tally done, now;
    hth_compare_layer *layers, *layers_now; /* [n_layer] */
    double *kl;                             /* [kl_capacity] of the scored positions */
    size_t kl_capacity;
    row_score *scores;                           /* [n_chunk] */
    float *logits_of_reference, *logits_of_mode; /* [n_chunk][n_vocab] */
    uint8_t *marked;                             /* [n_chunk][d_ff] */
    float *lost;                                 /* [n_chunk][d_ff] */
    double *whole, *part;                        /* [n_chunk] squared norms of outputs, and of their lost parts */
    hth_arena arena; /* holds all arrays but kl */
};

/* ---- open ------------------------------------------------------------------------------------ */

/* Checks that ids mean the same in both models. Models with an unsupported vocabulary pass. */
static hearth_status check_tokens(const hearth_model *a, const hearth_model *b, hearth_error *err)
{
    uint32_t n_a = a->model->hparams.n_vocab, n_b = b->model->hparams.n_vocab;
    const char *path_a = hth_gguf_path(a->file), *path_b = hth_gguf_path(b->file);
    if (n_a != n_b)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT,
                        "%s has a vocabulary of %u, %s one of %u: their logits cannot be compared", path_a,
                        n_a, path_b, n_b);
    if (a == b || !a->tokenizer || !b->tokenizer) return HEARTH_OK;
    int32_t n_token = hth_tokenizer_n_vocab(a->tokenizer);
    bool same = n_token == hth_tokenizer_n_vocab(b->tokenizer) &&
                hth_tokenizer_bos(a->tokenizer) == hth_tokenizer_bos(b->tokenizer);
    for (int32_t i = 0; same && i < n_token; i++) {
        hth_str x = hth_tokenizer_entry(a->tokenizer, i), y = hth_tokenizer_entry(b->tokenizer, i);
        same = x.n == y.n && (x.n == 0 || memcmp(x.bytes, y.bytes, x.n) == 0);
    }
    if (same) return HEARTH_OK;
    return hth_fail(err, HEARTH_ERROR_ARGUMENT,
                    "%s and %s have other tokens: an id of one means something else to the other", path_a,
                    path_b);
}

static hearth_status check_sides(const hth_compare_side *reference, const hth_compare_side *mode,
                                 hearth_error *err)
{
    uint32_t n_reference = hth_session_n_row(reference->session), n_mode = hth_session_n_row(mode->session);
    if (n_reference != n_mode || n_mode == 0)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT,
                        "sessions of %u and %u rows cannot be compared: expected the same n_batch, above 0",
                        n_reference, n_mode);
    if (reference->session == mode->session)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "a session cannot be compared with itself");
    return check_tokens(reference->model, mode->model, err);
}

static bool alloc_buffers(hth_compare *c)
{
    hth_arena *a = &c->arena;
    const hth_hparams *h = &c->mode.model->model->hparams;
    size_t n_seen = c->n_layer > 0 ? c->n_chunk : 0, n_logit;
    if (!hth_mul_size(c->n_chunk, c->n_vocab, &n_logit)) return false;
    c->layers = hth_arena_alloc(a, c->n_layer, sizeof *c->layers, 64);
    c->layers_now = hth_arena_alloc(a, c->n_layer, sizeof *c->layers_now, 64);
    c->scores = hth_arena_alloc(a, c->n_chunk, sizeof *c->scores, 64);
    c->logits_of_reference = hth_arena_alloc(a, n_logit, sizeof(float), 64);
    c->logits_of_mode = hth_arena_alloc(a, n_logit, sizeof(float), 64);
    c->marked = hth_arena_alloc(a, n_seen, h->d_ff, 64);
    c->lost = hth_arena_alloc(a, n_seen, h->d_ff * sizeof *c->lost, 64);
    c->whole = hth_arena_alloc(a, n_seen, 2 * sizeof *c->whole, 64);
    if (c->whole) c->part = c->whole + n_seen;
    return !a->failed;
}

hearth_status hth_compare_open(const hth_compare_side *reference, const hth_compare_side *mode,
                               hth_compare **out, hearth_error *err)
{
    *out = NULL;
    hearth_status st = check_sides(reference, mode, err);
    if (st != HEARTH_OK) return st;
    hth_compare *c = hth_alloc(1, sizeof *c);
    if (!c) return hth_fail_memory(err, sizeof *c, "a comparison");
    c->reference = *reference;
    c->mode = *mode;
    c->n_vocab = mode->model->model->hparams.n_vocab;
    bool one_file = reference->model == mode->model, dense = hth_model_is_dense(mode->model->model);
    c->n_layer = one_file && dense ? mode->model->model->hparams.n_layer : 0;
    size_t n_row = hth_session_n_row(mode->session), n_fit = LOGITS_SIZE / (c->n_vocab * sizeof(float));
    c->n_chunk = n_row < BATCH ? n_row : BATCH;
    if (n_fit < c->n_chunk) c->n_chunk = n_fit > 0 ? n_fit : 1;
    if (!alloc_buffers(c)) st = hth_fail_memory(err, c->n_chunk * c->n_vocab * sizeof(float), "a comparison");
    if (st == HEARTH_OK) st = hth_pool_open(hearth_session_n_thread(mode->session), &c->pool, err);
    if (st == HEARTH_OK) {
        *out = c;
        return HEARTH_OK;
    }
    hth_compare_close(c);
    return st;
}

void hth_compare_close(hth_compare *c)
{
    if (!c) return;
    hth_pool_close(c->pool);
    hth_free(c->kl);
    hth_arena_free(&c->arena);
    hth_free(c);
}

/* ---- layers -------------------------------------------------------------------------------------- */

/* Counts neurons, and sets c->lost to the hidden values that the mode would drop. Returns how many of those are
 * not zero. */
static uint64_t count_neurons(hth_compare *c, const hth_ffn_probe *seen, hth_compare_layer *l)
{
    uint64_t n_live = 0, n_marked = 0, n_hit = 0;
    size_t n = seen->n_tok * seen->d_ff;
    for (size_t i = 0; i < n; i++) {
        unsigned live = seen->hidden[i] != 0.0f, marked = c->marked[i];
        n_live += live;
        n_marked += marked;
        n_hit += live & marked;
        c->lost[i] = marked ? 0.0f : seen->hidden[i];
    }
    l->n_neuron += n;
    l->n_token += seen->n_tok;
    l->n_live += n_live;
    l->n_marked += n_marked;
    l->n_hit += n_hit;
    return n_live - n_hit;
}

static void add_errors(hth_compare *c, const hth_ffn_probe *seen, hth_compare_layer *l)
{
    hth_step *step = hth_session_step(c->mode.session);
    const double *whole = c->whole, *part = c->part;
    hth_output_squares(step, seen->i_layer, seen->hidden, seen->n_tok, seen->d_model, c->whole);
    hth_output_squares(step, seen->i_layer, c->lost, seen->n_tok, seen->d_model, c->part);
    for (size_t t = 0; t < seen->n_tok; t++) {
        double error = whole[t] > 0.0 ? hth_sqrt_d(part[t] / whole[t]) : part[t] > 0.0 ? 1.0 : 0.0;
        l->error_sum += error;
        if (error > l->error_max) l->error_max = error;
    }
}

static void see_reference(void *user, const hth_ffn_probe *seen)
{
    hth_compare *c = user;
    hth_compare_layer *l = &c->layers_now[seen->i_layer];
    hth_step_selector_mask(hth_session_step(c->mode.session), seen, c->marked);
    if (count_neurons(c, seen, l) > 0) add_errors(c, seen, l);
}

static void see_mode(void *user, const hth_ffn_probe *seen)
{
    hth_compare *c = user;
    uint64_t n = 0;
    for (size_t i = 0; i < seen->n_tok * seen->d_ff; i++) n += seen->hidden[i] != 0.0f;
    c->layers_now[seen->i_layer].n_mode += n;
}

static void watch_layers(hth_compare *c, bool on)
{
    if (c->n_layer == 0) return;
    hth_step_set_probe(hth_session_step(c->reference.session), on ? see_reference : NULL, c);
    hth_step_set_probe(hth_session_step(c->mode.session), on ? see_mode : NULL, c);
}

/* ---- logits ---------------------------------------------------------------------------------------- */

/* Index of the first of the largest values. */
static size_t argmax(const float *x, size_t n)
{
    size_t best = 0;
    for (size_t i = 1; i < n; i++) best = x[i] > x[best] ? i : best;
    return best;
}

/* p and q: logits of the reference and of the mode. With e = exp(p - max p) and likewise for q,
 * sum P log(P / Q) = sum e ((p - max p) - (q - max q)) / sum e - log sum e + log sum e_q. */
static row_score score_row(const float *p, const float *q, size_t n, int32_t next)
{
    size_t best_p = argmax(p, n), best_q = argmax(q, n);
    double max_p = (double)p[best_p], max_q = (double)q[best_q], sum_p = 0.0, sum_q = 0.0, weighted = 0.0;
    for (size_t i = 0; i < n; i++) {
        double x = (double)p[i] - max_p, y = (double)q[i] - max_q, e = hth_exp_d(x);
        sum_p += e;
        sum_q += hth_exp_d(y);
        weighted += e * (x - y);
    }
    double log_p = hth_log_d(sum_p), log_q = hth_log_d(sum_q), kl = weighted / sum_p - log_p + log_q;
    return (row_score){.kl = kl > 0.0 ? kl : 0.0, /* a negative value is rounding error */
                       .nll_reference = -((double)p[next] - max_p - log_p),
                       .nll_mode = -((double)q[next] - max_q - log_q),
                       .agrees = best_p == best_q,
                       .identical = memcmp(p, q, n * sizeof *p) == 0};
}

typedef struct score_job {
    const hth_compare *c;
    const int32_t *next; /* next ids of the tokens */
} score_job;

static void score_unit(void *arg, size_t i, uint32_t i_thread)
{
    const score_job *job = arg;
    const hth_compare *c = job->c;
    size_t at = i * c->n_vocab;
    (void)i_thread;
    c->scores[i] = score_row(c->logits_of_reference + at, c->logits_of_mode + at, c->n_vocab, job->next[i]);
}

static void score_batch(hth_compare *c, const int32_t *next, size_t n)
{
    score_job job = {c, next};
    tally *t = &c->now;
    hth_pool_run(c->pool, score_unit, &job, n);
    for (size_t i = 0; i < n; i++) {
        const row_score *s = &c->scores[i];
        hth_measure_nll_add(&t->reference, s->nll_reference);
        hth_measure_nll_add(&t->mode, s->nll_mode);
        hth_measure_nll_add(&t->change, s->nll_mode - s->nll_reference);
        t->n_agree += s->agrees;
        t->n_identical += s->identical;
        t->kl_sum += s->kl;
        c->kl[t->n_kl++] = s->kl;
    }
}

typedef struct logits_sink {
    float *logits;
    size_t n_vocab;
} logits_sink;

static hearth_status keep_logits(void *user, size_t i_token, const float *logits, hearth_error *err)
{
    const logits_sink *sink = user;
    (void)err;
    memcpy(sink->logits + i_token * sink->n_vocab, logits, sink->n_vocab * sizeof *logits);
    return HEARTH_OK;
}

/* logits NULL: not needed. */
static hearth_status eval_batch(hth_compare *c, hearth_session *session, const int32_t *ids, size_t n,
                                float *logits, hearth_error *err)
{
    logits_sink sink = {logits, c->n_vocab};
    return logits ? hearth_session_eval_each(session, ids, n, keep_logits, &sink, err)
                  : hearth_session_eval(session, ids, n, err);
}

/* ---- one sequence of ids -------------------------------------------------------------------------- */

static hearth_status begin_sequence(hth_compare *c, size_t n, hearth_error *err)
{
    hearth_status st = hearth_session_truncate(c->reference.session, 0, err);
    if (st == HEARTH_OK) st = hearth_session_truncate(c->mode.session, 0, err);
    if (st != HEARTH_OK) return st;
    size_t max = c->done.n_kl + n; /* ids are in memory, so this cannot overflow */
    if (max > c->kl_capacity) {
        size_t capacity = max + max / 2;
        double *more = hth_realloc(c->kl, capacity, sizeof *more);
        if (!more) return hth_fail_memory(err, capacity * sizeof *more, "a comparison");
        c->kl = more;
        c->kl_capacity = capacity;
    }
    c->now = c->done;
    if (c->n_layer > 0) memcpy(c->layers_now, c->layers, c->n_layer * sizeof *c->layers);
    return HEARTH_OK;
}

static void keep(hth_compare *c, size_t n)
{
    hth_compare_layer *layers = c->layers;
    c->layers = c->layers_now;
    c->layers_now = layers;
    c->done = c->now;
    c->done.n_token += n;
}

/* n tokens from ids[at] on, of n_ids. Either all of them are scored or none is. */
static hearth_status compare_batch(hth_compare *c, const int32_t *ids, size_t at, size_t n, bool scored,
                                   size_t n_ids, hearth_error *err)
{
    hearth_status st =
        eval_batch(c, c->reference.session, ids + at, n, scored ? c->logits_of_reference : NULL, err);
    if (st == HEARTH_OK)
        st = eval_batch(c, c->mode.session, ids + at, n, scored ? c->logits_of_mode : NULL, err);
    if (st == HEARTH_OK && scored) score_batch(c, ids + at + 1, at + n < n_ids ? n : n - 1);
    return st;
}

hearth_status hth_compare_ids(hth_compare *c, const int32_t *ids, size_t n, size_t first,
                              const hth_compare_progress *watch, hearth_error *err)
{
    hearth_status st = begin_sequence(c, n, err);
    if (st != HEARTH_OK) return st;
    watch_layers(c, true);
    for (size_t at = 0, n_chunk; st == HEARTH_OK && at < n; at += n_chunk) {
        size_t end = at < first && first < n ? first : n;
        n_chunk = end - at < c->n_chunk ? end - at : c->n_chunk;
        if (watch && watch->progress && !watch->progress(watch->user, watch->done, watch->total))
            st = hth_fail(err, HEARTH_ERROR_CANCELLED, "the comparison was cancelled");
        else st = compare_batch(c, ids, at, n_chunk, at >= first, n, err);
    }
    watch_layers(c, false);
    if (st == HEARTH_OK) keep(c, n);
    return st;
}

/* ---- results ---------------------------------------------------------------------------------------- */

static void sift_down(double *heap, size_t i, size_t n)
{
    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && heap[child + 1] > heap[child]) child++;
        if (heap[child] <= heap[i]) return;
        double x = heap[i];
        heap[i] = heap[child];
        heap[child] = x;
    }
}

/* Sorts ascending, in place. The C library's sort may allocate. */
static void sort(double *x, size_t n)
{
    for (size_t i = n / 2; i-- > 0;) sift_down(x, i, n);
    for (size_t end = n; end-- > 1;) {
        double largest = x[0];
        x[0] = x[end];
        x[end] = largest;
        sift_down(x, 0, end);
    }
}

void hth_compare_result(hth_compare *c, hth_comparison *out)
{
    const tally *t = &c->done;
    hth_perplexity change = {0};
    *out = (hth_comparison){.n_token = t->n_token,
                            .n_scored = t->n_kl,
                            .n_agree = t->n_agree,
                            .n_identical = t->n_identical,
                            .n_layer = c->n_layer,
                            .layers = c->layers};
    if (t->n_kl == 0) return;
    hth_measure_nll_result(&t->reference, &out->reference);
    hth_measure_nll_result(&t->mode, &out->mode);
    hth_measure_nll_result(&t->change, &change);
    out->ratio = change.perplexity;
    out->ratio_error = change.error;
    sort(c->kl, t->n_kl);
    out->kl = t->kl_sum / (double)t->n_kl;
    out->kl_99 = c->kl[(t->n_kl * 99 + 99) / 100 - 1]; /* 99 % are not larger */
    out->kl_largest = c->kl[t->n_kl - 1];
}

hth_compare_layer hth_compare_all_layers(const hth_comparison *r)
{
    hth_compare_layer sum = {0};
    for (uint32_t i = 0; i < r->n_layer; i++) {
        const hth_compare_layer *l = &r->layers[i];
        sum.n_neuron += l->n_neuron;
        sum.n_live += l->n_live;
        sum.n_mode += l->n_mode;
        sum.n_marked += l->n_marked;
        sum.n_hit += l->n_hit;
        sum.error_sum += l->error_sum;
        sum.n_token += l->n_token;
        if (l->error_max > sum.error_max) sum.error_max = l->error_max;
    }
    return sum;
}

static void result_of_text(hth_compare *c, const hth_chunks *w, uint64_t n_done, hth_comparison *out)
{
    hth_compare_result(c, out);
    out->n_chunk = w->n_chunk;
    out->n_done = n_done;
    out->reference.n_token = out->mode.n_token = w->n_id;
    out->reference.n_chunk = out->mode.n_chunk = w->n_chunk;
    out->reference.n_done = out->mode.n_done = n_done;
}

hearth_status hth_measure_compare(hth_compare *c, const char *text, size_t n, uint64_t n_chunk_max,
                                  hearth_progress_fn *progress, void *progress_user, hth_comparison *out,
                                  hearth_error *err)
{
    hth_chunks chunks;
    size_t n_ctx = hearth_session_n_ctx(c->mode.session);
    *out = (hth_comparison){0};
    if (n_ctx < 3)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "chunks of %zu tokens score nothing; 3 is the least",
                        n_ctx);
    hearth_status st = hth_chunks_open(&chunks, c->mode.model, text, n, n_ctx, err);
    if (st != HEARTH_OK) return st;
    uint64_t n_chunk = chunks.n_chunk, n_done = 0;
    if (n_chunk_max && n_chunk_max < n_chunk) n_chunk = n_chunk_max;
    hth_compare_progress watch = {progress, progress_user, 0, n_chunk};
    while (st == HEARTH_OK && n_done < n_chunk) {
        st = hth_compare_ids(c, hth_chunks_at(&chunks, n_done), n_ctx, n_ctx / 2, &watch, err);
        if (st != HEARTH_OK) break;
        watch.done = ++n_done;
        if (progress && !progress(progress_user, n_done, n_chunk)) break;
    }
    if (st == HEARTH_ERROR_CANCELLED) st = HEARTH_OK; /* with the results so far */
    if (st == HEARTH_OK) result_of_text(c, &chunks, n_done, out);
    hth_chunks_close(&chunks);
    return st;
}
