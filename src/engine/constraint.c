/* Implements hearth_constraint_open: the trie of a model's vocabulary, made once, and a constraint over it; samples what a
 * constraint allows. The rest is constrain/constraint.c. */
#include "base/format_bytes.h"
#include "base/fp_state.h"
#include "constrain/constraint.h"
#include "engine/chat_int.h"
#include "engine/struct_size.h"
#include "sample/sampler.h"

#include <inttypes.h>
#include <string.h>

/* Counts memory within the limit of the model. */
static hearth_status take(hearth_model *m, uint64_t size, hearth_error *err)
{
    if (hth_engine_reserve(m, size, NULL) == HEARTH_OK) return HEARTH_OK;
    return hth_fail(
        err, HEARTH_ERROR_MEMORY, "%s: a constraint of %s (%" PRIu64 " bytes) exceeds the limit of %s",
        hth_gguf_path(m->file), hth_format_bytes(size).text, size, hth_format_bytes(m->budget.limit).text);
}

hearth_status hearth_constraint_prepare(const hearth_model *model, hearth_error *err)
{
    HTH_FP_SCOPE;
    hearth_model *m = hth_engine_mutable(model);
    if (!m) return hth_fail_null(err, "model");
    hearth_status st = hth_engine_need_tokenizer(m, err);
    if (st != HEARTH_OK) return st;
    pthread_mutex_lock(&m->trie_lock);
    if (!m->trie)
        st = hth_token_trie_open(m->tokenizer, (int32_t)hth_engine_hparams(m)->n_vocab, &m->trie, err);
    if (m->trie && st == HEARTH_OK && !m->trie_is_counted) {
        st = take(m, m->trie->size, err);
        m->trie_is_counted = st == HEARTH_OK;
    }
    pthread_mutex_unlock(&m->trie_lock);
    return st;
}

void hth_engine_close_trie(hearth_model *m)
{
    hth_token_trie_close(m->trie);
    m->trie = NULL;
}

static void give_back(void *model)
{
    hth_engine_release(model, HTH_CONSTRAINT_BYTES);
    hth_engine_release_model(model);
}

hearth_constraint_options hearth_constraint_defaults(void)
{
    return (hearth_constraint_options){.size = sizeof(hearth_constraint_options)};
}

hearth_status hearth_constraint_open(const hearth_model *m, const hearth_constraint_options *options,
                                     hearth_constraint **out, hearth_error *err)
{
    HTH_FP_SCOPE;
    hearth_model *model = hth_engine_mutable(m);
    hearth_constraint_options o;
    if (!out) return hth_fail_null(err, "out");
    *out = NULL;
    hearth_status st = hth_engine_read_options(&hth_size_of_hearth_constraint_options, options, &o, err);
    if (st == HEARTH_OK) st = hearth_constraint_prepare(m, err);
    if (st == HEARTH_OK) st = take(model, HTH_CONSTRAINT_BYTES, err);
    if (st != HEARTH_OK) return st;
    hth_engine_hold_model(m);
    const hth_constraint_context context = {give_back, model, o.chat ? o.chat->calls : NULL,
                                            o.chat ? o.chat->reasoning : NULL};
    st = hth_constraint_open(m->trie, &o, &context, out, err);
    if (st != HEARTH_OK) give_back(model);
    return st;
}

hearth_status hth_engine_sample(const hearth_model *m, hearth_sampler *sampler, hearth_constraint *constraint,
                                const float *logits, float *masked, int32_t *id, hearth_error *err)
{
    if (!constraint) return hearth_sampler_sample(sampler, logits, id, err);
    memcpy(masked, logits, m->model->hparams.n_vocab * sizeof *masked);
    hearth_status st = hearth_constraint_mask(constraint, masked, err);
    return st == HEARTH_OK ? hearth_sampler_sample(sampler, masked, id, err) : st;
}

hearth_status hth_engine_check_sampler(const hearth_model *m, const char *name, const hearth_sampler *sampler,
                                       hearth_error *err)
{
    const int32_t n_vocab = (int32_t)m->model->hparams.n_vocab, n = hth_sampler_n_vocab(sampler);
    if (!sampler || n == n_vocab) return HEARTH_OK;
    return hth_fail(err, HEARTH_ERROR_ARGUMENT, "%s is for %d tokens, and the model has %d", name, n, n_vocab);
}

hearth_status hth_engine_check_constraint(const hearth_model *model, const char *name,
                                          const hearth_constraint *constraint, hearth_error *err)
{
    hearth_model *m = hth_engine_mutable(model);
    pthread_mutex_lock(&m->trie_lock);
    const bool is_its = !constraint || hth_constraint_trie(constraint) == m->trie;
    pthread_mutex_unlock(&m->trie_lock);
    return is_its ? HEARTH_OK : hth_fail(err, HEARTH_ERROR_ARGUMENT, "%s was opened with another model", name);
}
