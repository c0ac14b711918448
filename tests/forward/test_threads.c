/* forward/step.c on pools of all kinds: the bits of the logits depend neither on the number of
 * threads, nor on who sleeps where, nor on units that are computed twice. */
#include "base/system/cpu.h"
#include "engine/engine.h"
#include "support/test.h"

#include <stdatomic.h>
#include <time.h>

enum { N_PROMPT = 40, N_TOK = 48, N_ROW = 16 };

static const hearth_model *model;

static hearth_status keep(void *user, uint32_t i_want, const float *logits, hearth_error *err)
{
    memcpy(user, logits, model->model->hparams.n_vocab * sizeof *logits);
    return HEARTH_OK;
}

/* A prompt in steps of N_ROW, then single tokens; logits of the last of each step. */
static void speak(hth_pool *pool, float *logits)
{
    hth_kv_pool *kv;
    hth_sequence seq;
    size_t n_vocab = model->model->hparams.n_vocab;
    hth_step *step = OPENED(hth_step, model->model, &model->kernels, pool, N_ROW, HEARTH_SELECTOR_DENSE);
    CHECK_OK(hth_kv_pool_open(model->model, HEARTH_KV_F16, &kv, err));
    CHECK_OK(hth_sequence_open(&seq, kv, &(hth_sequence_options){.n_ctx = N_TOK}, err));
    for (uint32_t at = 0, n; at < N_TOK; at += n) {
        hth_batch_token tokens[N_ROW];
        n = at >= N_PROMPT ? 1 : N_PROMPT - at < N_ROW ? N_PROMPT - at : N_ROW;
        for (uint32_t i = 0; i < n; i++)
            tokens[i] = (hth_batch_token){.seq = &seq,
                                          .token = (int32_t)((at + i) * 97 % n_vocab),
                                          .position = at + i,
                                          .want_logits = i + 1 == n};
        hth_sequence_prepare(&seq, n);
        CHECK_OK(hth_step_run(step, tokens, n, keep, logits, err));
        hth_sequence_commit(&seq, n);
        logits += n_vocab;
    }
    hth_step_close(step);
    hth_sequence_close(&seq);
    hth_kv_pool_close(kv);
}

/* How many logits speak writes. */
static size_t n_logits(void)
{
    size_t n_step = (N_PROMPT + N_ROW - 1) / N_ROW + N_TOK - N_PROMPT;
    return n_step * model->model->hparams.n_vocab;
}

static _Atomic uint64_t n_visit;
static hth_pool *_Atomic late_on; /* the pool whose threads must be late; NULL: none */

/* A nap of 100 us at every 700th point. Where threads must be late, it lasts until a first unit was done twice, at
 * most 100 ms: some units are never done twice, and on a busy machine other threads may not run for a while. */
static void nap_sometimes(hth_pool_point point, uint32_t i_thread)
{
    const struct timespec time = {.tv_nsec = 100000};
    if (atomic_fetch_add(&n_visit, 1) % 700 != 0) return;
    nanosleep(&time, NULL);
    hth_pool *pool = atomic_load(&late_on);
    for (int i = 0; pool && i < 1000 && hth_pool_n_backup(pool) == 0; i++) nanosleep(&time, NULL);
}

typedef struct setting {
    uint32_t n_thread;
    bool naps;
    uint64_t timeout_ns; /* 0: nothing is done twice */
} setting;

/* Logits with a setting; how many units were done twice. */
static uint64_t speak_with(const setting *s, float *logits)
{
    CLOSED(hth_pool) *pool = OPENED(hth_pool, s->n_thread);
    hth_pool_set_straggler_timeout(pool, s->timeout_ns);
    if (s->naps) hth_pool_set_hook(pool, nap_sometimes);
    atomic_store(&late_on, s->timeout_ns ? pool : NULL);
    speak(pool, logits);
    atomic_store(&late_on, NULL);
    hth_pool_quiesce(pool);
    return hth_pool_n_backup(pool);
}

/* The thread sanitizer must not see late threads (base/pool.h). */
static bool may_be_late(void)
{
    CLOSED(hth_pool) *pool = OPENED(hth_pool, 2);
    bool may = hth_pool_straggler_timeout(pool) > 0;
    return may;
}

TEST(logits_depend_on_no_thread)
{
    uint64_t n_backup = 0;
    bool late = may_be_late();
    CLOSED(hearth_model) *m = OPENED(hearth_model, HEARTH_SOURCE_DIR "/models/storyteller-q8_0.gguf", NULL);
    if (!(model = m)) return;
    float *alone = calloc(n_logits(), sizeof *alone), *logits = calloc(n_logits(), sizeof *logits);
    speak_with(&(setting){.n_thread = 1}, alone);
    for (uint32_t n_thread = 2; n_thread <= 5; n_thread++)
        for (int how = 0; how < 3; how++) {
            const setting s = {n_thread, how > 0, how < 2 || !late ? 0 : 1};
            memset(logits, 255, n_logits() * sizeof *logits);
            n_backup += speak_with(&s, logits);
            if (memcmp(logits, alone, n_logits() * sizeof *logits) != 0)
                test_fail(__FILE__, __LINE__, "%u threads, %s naps, patience of %d ns: other bits", n_thread,
                          s.naps ? "with" : "no", (int)s.timeout_ns);
        }
    CHECK((n_backup > 0) == late);
    free(alone), free(logits);
}
