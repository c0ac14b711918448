/* Collects a profile. hearth profile calls it. Counts and sums add tokens in the order of the text, so they
 * depend neither on threads nor on batches nor on interruptions. Loops over values use blocks of constant
 * length, which compilers vectorise. */
#define _POSIX_C_SOURCE 200809L
#include "measure/profile.h"

#include "base/bits.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "engine/engine.h"
#include "file/gguf_write.h"
#include "measure/chunks.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

enum {
    BLOCK = HTH_PROFILE_BLOCK,
    STRIPE = 4 * BLOCK, /* neurons of a unit of work */
    MANY_TOKENS = 256,  /* tokens of up to 2^20 neurons each: 32-bit counts do not overflow */
    BATCH = 256,        /* tokens between two calls of the progress function */
    TOP_SHARE = 10,     /* if no value is zero, one neuron in TOP_SHARE counts as active */
};

/* ---- the values of a step -------------------------------------------------------------------- */

/* Counts that are not per neuron, one set per thread. Consecutive increments of one bin would wait for each
 * other, so four tables alternate. */
typedef struct tally {
    int32_t largest[BLOCK]; /* bits of |hidden| */
    uint32_t bins[4][HTH_PROFILE_N_BIN];
    uint64_t gate, up; /* above zero */
    uint64_t n_pad;    /* zeros that pad partial rows; not values of the layer */
} tally;

/* The histogram bin of a value is the upper 12 bits of the float, from 2^-24 (127 - 24) up to 2^8. */
enum { BIN_SHIFT = 20, LOWEST = (127 - 24) * 8 - 1, HIGHEST = (127 + 8) * 8 };
_Static_assert(HIGHEST - LOWEST + 2 == HTH_PROFILE_N_BIN, "a bin for every size");

static void add_block(const float *restrict h, double *restrict sum, uint32_t *restrict n_fired,
                      tally *restrict t)
{
    int32_t x[BLOCK], bin[BLOCK];
    memcpy(x, h, sizeof x);
    for (int i = 0; i < BLOCK; i++) x[i] &= INT32_MAX;
    for (int i = 0; i < BLOCK; i++) n_fired[i] += x[i] != 0;
    for (int i = 0; i < BLOCK; i++) sum[i] += (double)__builtin_fabsf(h[i]);
    for (int i = 0; i < BLOCK; i++) t->largest[i] = x[i] > t->largest[i] ? x[i] : t->largest[i];
    for (int i = 0; i < BLOCK; i++) {
        int32_t s = x[i] >> BIN_SHIFT;
        s = s < LOWEST ? LOWEST : s;
        s = s > HIGHEST ? HIGHEST : s;
        bin[i] = s - LOWEST + (x[i] != 0);
    }
    for (int i = 0; i < BLOCK; i += 4) {
        t->bins[0][bin[i]]++;
        t->bins[1][bin[i + 1]]++;
        t->bins[2][bin[i + 2]]++;
        t->bins[3][bin[i + 3]]++;
    }
}

/* n values of a row, with a partial last block. */
static void add_hidden(const float *h, size_t n, double *sum, uint32_t *n_fired, tally *t)
{
    float rest[BLOCK] = {0};
    size_t i = 0;
    for (; i + BLOCK <= n; i += BLOCK) add_block(h + i, sum + i, n_fired + i, t);
    if (i == n) return;
    memcpy(rest, h + i, (n - i) * sizeof *h);
    add_block(rest, sum + i, n_fired + i, t);
    t->n_pad += BLOCK - (n - i);
}

static uint64_t count_positive(const float *x, size_t n)
{
    uint64_t count = 0;
    size_t i = 0;
    for (; i + BLOCK <= n; i += BLOCK) {
        int32_t some = 0;
        for (size_t k = 0; k < BLOCK; k++) some += x[i + k] > 0.0f;
        count += (uint64_t)some;
    }
    for (; i < n; i++) count += x[i] > 0.0f;
    return count;
}

/* Some tokens of one layer. */
typedef struct layer_job {
    hth_profile_layer *l;
    const float *hidden, *gate, *up; /* [n_tok][d_ff]; gate may be NULL */
    size_t n_tok;
    tally *tallies; /* [n_thread] */
} layer_job;

/* Counts a stripe of neurons for all tokens of the job. The counts stay in the cache and belong to this unit
 * alone. */
static void add_stripe(void *arg, size_t i_unit, uint32_t i_thread)
{
    const layer_job *job = arg;
    hth_profile_layer *l = job->l;
    tally *t = &job->tallies[i_thread];
    size_t first = i_unit * STRIPE, left = l->d_ff - first, n = left < STRIPE ? left : STRIPE;
    for (size_t i_tok = 0; i_tok < job->n_tok; i_tok++) {
        size_t at = i_tok * l->d_ff + first;
        add_hidden(job->hidden + at, n, l->sum + first, l->n_fired + first, t);
        if (job->gate) t->gate += count_positive(job->gate + at, n);
        t->up += count_positive(job->up + at, n);
    }
}

/* Merges integers and a maximum: the result does not depend on which thread counted what. */
static void merge_tally(hth_profile_layer *l, const tally *t)
{
    int32_t largest = 0;
    for (int i = 0; i < BLOCK; i++) largest = t->largest[i] > largest ? t->largest[i] : largest;
    if ((uint32_t)largest > hth_bits_of(l->largest)) l->largest = hth_float_of((uint32_t)largest);
    for (int k = 0; k < 4; k++)
        for (int i = 0; i < HTH_PROFILE_N_BIN; i++) l->bins[i] += t->bins[k][i];
    l->bins[0] -= t->n_pad;
    l->gate_fired += t->gate;
    l->up_fired += t->up;
}

/* ---- probe ----------------------------------------------------------------------------------- */

typedef struct collector {
    hth_profile *p;
    uint64_t at;       /* first token of the step */
    uint32_t i_sample; /* first sample that is not yet passed */
    uint32_t *scratch;    /* [largest d_ff] scratch memory */
    uint32_t n_thread;
    tally *tallies; /* [n_thread] */
} collector;

/* Counts n_tok tokens of the step, from the i-th on. */
static void add_tokens(const collector *c, hth_profile_layer *l, const hth_ffn_probe *seen, size_t i,
                       size_t n_tok)
{
    const size_t at = i * seen->d_ff;
    layer_job job = {.l = l,
                     .hidden = seen->hidden + at,
                     .gate = seen->gate ? seen->gate + at : NULL,
                     .up = seen->up + at,
                     .n_tok = n_tok,
                     .tallies = c->tallies};
    memset(c->tallies, 0, c->n_thread * sizeof *c->tallies);
    hth_pool_run(seen->pool, add_stripe, &job, (seen->d_ff + STRIPE - 1) / STRIPE);
    for (uint32_t k = 0; k < c->n_thread; k++) merge_tally(l, &c->tallies[k]);
}

/* Marks the neurons that are active at sample i, or among the largest tenth; of equal values, the first ones. */
static void mark_sample(const collector *c, hth_profile_layer *l, uint32_t i_sample, const float *h)
{
    const size_t n_word = c->p->n_word, top = (l->d_ff + TOP_SHARE - 1) / TOP_SHARE;
    uint32_t above = 0, bit = 1u << i_sample % 32, *words = l->coact_bits + i_sample / 32;
    size_t n_equal = 0; /* how many values equal to `above` remain to be marked; zeros are never marked */
    for (size_t j = 0; j < l->d_ff; j++) c->scratch[j] = hth_bits_of(h[j]) & INT32_MAX;
    if (c->p->coact_is_top_decile && (above = hth_profile_kth(c->scratch, l->d_ff, top)) > 0) {
        n_equal = top;
        for (size_t j = 0; j < l->d_ff; j++) n_equal -= c->scratch[j] > above;
    }
    for (size_t j = 0; j < l->d_ff; j++) {
        bool equal = c->scratch[j] == above && n_equal > 0;
        n_equal -= equal;
        if (c->scratch[j] > above || equal) words[j * n_word] |= bit;
    }
}

static void mark_samples(const collector *c, hth_profile_layer *l, const hth_ffn_probe *seen, uint64_t from)
{
    const hth_profile *p = c->p;
    for (uint32_t i = c->i_sample; i < p->n_sample; i++) {
        uint64_t at = hth_profile_sample_at(p, i);
        if (at >= c->at + seen->n_tok) return;
        if (at >= from) mark_sample(c, l, i, seen->hidden + (size_t)(at - c->at) * seen->d_ff);
    }
}

/* Tokens that an earlier run counted are skipped. They are evaluated only as context for later tokens. */
static void observe(void *user, const hth_ffn_probe *seen)
{
    collector *c = user;
    hth_profile *p = c->p;
    hth_profile_layer *l = &p->layers[seen->i_layer];
    const uint64_t end = c->at + seen->n_tok, from = p->n_done > c->at ? p->n_done : c->at;
    if (from < end) {
        size_t skip = (size_t)(from - c->at), n = (size_t)(end - from), some;
        for (size_t i = skip; i < skip + n; i += some) {
            some = skip + n - i < MANY_TOKENS ? skip + n - i : MANY_TOKENS;
            add_tokens(c, l, seen, i, some);
        }
        mark_samples(c, l, seen, from);
    }
    if (seen->i_layer + 1 < p->n_layer) return;
    c->at = end;
    if (end > p->n_done) p->n_done = end;
    while (c->i_sample < p->n_sample && hth_profile_sample_at(p, c->i_sample) < end) c->i_sample++;
}

/* ---- saved states ---------------------------------------------------------------------------- */

/* The name of the difference between a saved state and the run that would continue it. NULL: none. */
static const char *find_difference(const hth_profile *a, const hth_profile *b)
{
    if (a->text_hash != b->text_hash) return "text";
    if (a->n_ctx != b->n_ctx) return "context (n_ctx)";
    if (a->n_sample != b->n_sample) return "number of samples";
    if (strcmp(a->settings, b->settings) != 0) return "type of the KV cache, or another approximation";
    return a->n_tok == b->n_tok ? NULL : "number of tokens";
}

typedef struct job {
    const hth_profile_options *o;
    char *resume_path;
    hth_profile *p, *before; /* before: state before the current batch, which may be cancelled halfway */
    hth_chunks chunks;
    collector c;
    uint64_t saved_ns, n_saved; /* time of the last save; tokens in the saved state */
} job;

/* Replaces the empty profile by the state that an earlier run saved, if there is one. */
static hearth_status resume(job *j, const hth_model *model, hearth_error *err)
{
    hth_profile *state;
    hearth_error why;
    if (access(j->resume_path, F_OK) != 0) return HEARTH_OK;
    hearth_status st = hth_profile_open_state(j->resume_path, model, &state, &why);
    if (st == HEARTH_ERROR_MEMORY || st == HEARTH_ERROR_IO) {
        if (err) *err = why;
        return st;
    }
    if (st != HEARTH_OK)
        return hth_fail(err, st, "%s; remove it to start over, or write to another file", why.message);
    const char *differs = find_difference(state, j->p);
    if (differs) {
        hth_profile_close(state);
        return hth_fail(
            err, HEARTH_ERROR_ARGUMENT,
            "%s: the state of a run with another %s; remove it to start over, or write to another file",
            j->resume_path, differs);
    }
    hth_profile_close(j->p);
    j->p = state;
    j->n_saved = state->n_done;
    return HEARTH_OK;
}

static hearth_status save(job *j, hearth_error *err)
{
    hearth_status st = hth_profile_write(j->p, j->resume_path, err);
    j->saved_ns = hth_clock_ns();
    if (st == HEARTH_OK) j->n_saved = j->p->n_done;
    return st;
}

/* Checks at the start that the output can be written, not after hours of work. */
static hearth_status check_writable(const char *path, hearth_error *err)
{
    hth_gguf_writer *w;
    hearth_status st = hth_gguf_writer_open(path, &w, err);
    hth_gguf_writer_close(w);
    return st;
}

static hearth_status stop(job *j, hearth_error *err)
{
    hearth_status st = j->p->n_done > j->n_saved ? save(j, err) : HEARTH_OK;
    if (st != HEARTH_OK) return st;
    if (j->n_saved == 0) return hth_fail(err, HEARTH_ERROR_CANCELLED, "interrupted; nothing was kept");
    return hth_fail(err, HEARTH_ERROR_CANCELLED,
                    "interrupted; %llu of %llu tokens are kept in %s: the same command goes on from there",
                    (unsigned long long)j->n_saved, (unsigned long long)j->p->n_tok, j->resume_path);
}

/* ---- the run --------------------------------------------------------------------------------- */

static hearth_status begin_profile(job *j, const hearth_model *model, const hearth_session *session, const char *text,
                                   size_t n, hearth_error *err)
{
    const hth_profile_options *o = j->o;
    const size_t n_ctx = hearth_session_n_ctx(session);
    const hth_hparams *h = &model->model->hparams;
    hearth_status st = hth_chunks_open(&j->chunks, model, text, n, n_ctx, err);
    if (st != HEARTH_OK) return st;
    const uint64_t n_tok = (uint64_t)j->chunks.n_chunk * n_ctx;
    if (n_tok > INT32_MAX)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "the text has %zu tokens; a profile counts up to %d",
                        j->chunks.n_id, INT32_MAX);
    if ((st = check_writable(o->out, err)) != HEARTH_OK) return st;
    uint32_t n_sample = o->n_sample < n_tok ? o->n_sample : (uint32_t)n_tok;
    if ((st = hth_profile_new(model->model, n_sample, true, &j->p, err)) != HEARTH_OK) return st;
    j->p->n_tok = n_tok;
    j->p->n_ctx = (uint32_t)n_ctx;
    j->p->text_hash = hth_hash(j->chunks.ids, j->chunks.n_id * sizeof *j->chunks.ids);
    snprintf(j->p->activation, sizeof j->p->activation, "%s", hth_activation_name(h->activation));
    snprintf(j->p->settings, sizeof j->p->settings, "%s", o->settings ? o->settings : "");
    if ((st = hth_model_hash(model->file, &j->p->model_hash, err)) != HEARTH_OK) return st;
    j->c.scratch = hth_alloc(h->d_ff, sizeof *j->c.scratch);
    j->c.n_thread = hearth_session_n_thread(session);
    j->c.tallies = hth_alloc(j->c.n_thread, sizeof *j->c.tallies);
    if (!j->c.scratch || !j->c.tallies)
        return hth_fail_memory(err, h->d_ff * sizeof *j->c.scratch + j->c.n_thread * sizeof *j->c.tallies,
                               "a profile");
    if ((st = resume(j, model->model, err)) != HEARTH_OK) return st;
    j->c.p = j->p;
    while (j->c.i_sample < n_sample && hth_profile_sample_at(j->p, j->c.i_sample) < j->p->n_done)
        j->c.i_sample++;
    j->saved_ns = hth_clock_ns();
    return HEARTH_OK;
}

static hearth_status check_finite(const hth_profile *p, hearth_error *err)
{
    for (uint32_t i = 0; i < p->n_layer; i++)
        if (!(p->layers[i].largest <= 3e38f))
            return hth_fail(
                err, HEARTH_ERROR_NUMERIC,
                "layer %u: values that are not finite, or beyond 3e38, among the first %llu tokens; "
                "hearth inspect can verify the weights",
                i, (unsigned long long)p->n_done);
    return HEARTH_OK;
}

static void take_means(hth_profile *p)
{
    for (uint32_t i = 0; i < p->n_layer; i++)
        for (uint32_t k = 0; k < p->layers[i].d_ff; k++)
            p->layers[i].mean[k] = (float)(p->layers[i].sum[k] / (double)p->n_done);
}

/* After a batch: checks whether to stop and whether to save. */
static hearth_status after_batch(job *j, hearth_error *err)
{
    const hth_profile_options *o = j->o;
    hearth_status st = check_finite(j->p, err);
    if (st != HEARTH_OK || j->p->n_done == j->p->n_tok) return st;
    bool goes_on = !o->progress || o->progress(o->progress_user, j->p->n_done, j->p->n_tok);
    bool saves = j->p->n_done > j->n_saved && hth_clock_ns() - j->saved_ns >= o->save_ns;
    if (goes_on && !saves) return HEARTH_OK;
    take_means(j->p);
    return goes_on ? save(j, err) : stop(j, err);
}

/* Restores the state before the cancelled batch, some of whose layers were counted already. */
static hearth_status discard_batch(job *j, hearth_error *err)
{
    hth_profile_copy(j->p, j->before);
    take_means(j->p);
    return stop(j, err);
}

static hearth_status run_chunk(job *j, hearth_session *session, size_t i_chunk, hearth_error *err)
{
    const int32_t *ids = hth_chunks_at(&j->chunks, i_chunk);
    const size_t n_ctx = j->chunks.n_ctx;
    hearth_status st = hearth_session_truncate(session, 0, err);
    for (size_t at = 0, n; st == HEARTH_OK && at < n_ctx; at += n) {
        n = n_ctx - at < BATCH ? n_ctx - at : BATCH;
        j->c.at = (uint64_t)i_chunk * n_ctx + at;
        hth_profile_copy(j->before, j->p);
        st = hearth_session_eval(session, ids + at, n, err);
        if (st == HEARTH_OK) st = after_batch(j, err);
        else if (st == HEARTH_ERROR_CANCELLED) st = discard_batch(j, err);
    }
    return st;
}

static hearth_status run_all(job *j, hearth_session *session, hearth_error *err)
{
    const hth_profile_options *o = j->o;
    hearth_status st = HEARTH_OK;
    if (o->progress && !o->progress(o->progress_user, j->p->n_done, j->p->n_tok)) return stop(j, err);
    hth_step_set_probe(hth_session_step(session), observe, &j->c);
    for (size_t i = (size_t)(j->p->n_done / j->p->n_ctx); st == HEARTH_OK && i < j->chunks.n_chunk; i++)
        st = run_chunk(j, session, i, err);
    hth_step_set_probe(hth_session_step(session), NULL, NULL);
    return st;
}

hearth_status hth_measure_profile(const hearth_model *model, hearth_session *session, const char *text,
                                  size_t n, const hth_profile_options *o, hth_profile **out,
                                  hearth_error *err)
{
    job j = {.o = o};
    const size_t n_path = strlen(o->out);
    hearth_status st = hth_model_check_dense(model->model, "hearth profile", err);
    *out = NULL;
    if (st != HEARTH_OK) return st;
    j.resume_path = hth_alloc(n_path + sizeof ".resume", 1);
    if (!j.resume_path) return hth_fail_memory(err, n_path, "a profile");
    memcpy(j.resume_path, o->out, n_path);
    memcpy(j.resume_path + n_path, ".resume", sizeof ".resume");
    if ((st = begin_profile(&j, model, session, text, n, err)) != HEARTH_OK) goto done;
    if ((st = hth_profile_new(model->model, j.p->n_sample, true, &j.before, err)) != HEARTH_OK) goto done;
    if ((st = run_all(&j, session, err)) != HEARTH_OK) goto done;
    take_means(j.p);
    if ((st = hth_profile_write(j.p, o->out, err)) != HEARTH_OK) goto done;
    if (unlink(j.resume_path) != 0 && errno != ENOENT)
        hth_log(HEARTH_LOG_WARN, "%s: no longer needed, but cannot be removed", j.resume_path);
    *out = j.p;
    j.p = NULL;
done:
    hth_profile_close(j.p);
    hth_profile_close(j.before);
    hth_chunks_close(&j.chunks);
    hth_free(j.c.tallies);
    hth_free(j.c.scratch);
    hth_free(j.resume_path);
    return st;
}
