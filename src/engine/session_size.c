/* Sizes of sessions and batches: of their contexts and steps, and in bytes, which a limit of memory counts before
 * they are allocated. Called by session.c, and by what announces a session. */
#include "base/checked_math.h"
#include "base/fp_state.h"
#include "engine/session_int.h"
#include "engine/struct_size.h"

hearth_status hth_engine_check_selector(const char *name, hearth_selector selector, hearth_error *err)
{
    if ((unsigned)selector <= HEARTH_SELECTOR_THRESHOLD) return HEARTH_OK;
    return hth_fail_enum(err, name, (int)selector, HEARTH_SELECTOR_THRESHOLD + 1);
}

hearth_status hth_engine_check_kv(const char *name, hearth_kv_type kv, hearth_error *err)
{
    return (unsigned)kv < HTH_N_KV_TYPE ? HEARTH_OK : hth_fail_enum(err, name, (int)kv, HTH_N_KV_TYPE);
}

hearth_status hth_engine_check_threads(const char *name, uint32_t n_thread, hearth_error *err)
{
    if (n_thread <= HTH_POOL_MAX_THREAD) return HEARTH_OK;
    return hth_fail(err, HEARTH_ERROR_ARGUMENT, "%s is %u; at most %d threads are possible", name, n_thread,
                    HTH_POOL_MAX_THREAD);
}

hearth_session_options hearth_session_defaults(void)
{
    return (hearth_session_options){.size = sizeof(hearth_session_options)};
}

hearth_status hth_session_read_options(const hearth_session_options *options, hearth_session_options *o,
                                       hearth_error *err)
{
    hearth_status st = hth_engine_read_options(&hth_size_of_hearth_session_options, options, o, err);
    if (st == HEARTH_OK) st = hth_engine_check_selector("hearth_session_options.selector", o->selector, err);
    if (st == HEARTH_OK) st = hth_engine_check_kv("hearth_session_options.kv", o->kv, err);
    return st == HEARTH_OK ? hth_engine_check_threads("hearth_session_options.n_thread", o->n_thread, err)
                           : st;
}

size_t hth_batch_size(const hearth_model *model, uint32_t n_tok, uint32_t n_thread, hearth_selector selector,
                      bool streams)
{
    size_t step, source = 0, size;
    n_thread = hth_pool_default_threads(n_thread);
    if (!hth_step_size(model->model, n_tok, selector, n_thread, &step)) return 0;
    if (streams && !hth_step_store_size(model->model, n_tok, model->streamed.tables,
                                        model->model->hparams.experts.n_expert == 0, &source))
        return 0;
    if ((step = hth_pages_size(step)) == 0 || !hth_add_size(step, source, &size)) return 0;
    return hth_add_size(size, hth_pool_size(n_thread), &size) ? size : 0;
}

uint32_t hth_session_context(const hearth_model *model, const hearth_session_options *o)
{
    return hth_context_for(&model->model->hparams, o->n_ctx);
}

uint32_t hth_session_batch(const hearth_model *model, const hearth_session_options *o)
{
    uint32_t n_ctx = hth_session_context(model, o),
             n_batch = o->n_batch == HEARTH_BATCH_AUTO ? model->n_batch : o->n_batch;
    if (n_batch == HEARTH_BATCH_NONE) return 0;
    n_batch = hth_min_u32(n_batch, model->max_tokens);
    return n_batch < n_ctx ? n_batch : n_ctx;
}

hth_sequence_options hth_session_sequence_options(const hearth_session_options *o, hth_kv_budget *budget,
                                                  uint32_t n_ctx, uint32_t n_tok)
{
    return (hth_sequence_options){.n_ctx = n_ctx,
                                  .release_window = o->release_window,
                                  .n_step = n_tok > 0 ? n_tok : HTH_DEFAULT_BATCH,
                                  .budget = budget};
}

uint64_t hth_session_size(const hearth_model *model, const hearth_session_options *options,
                          hth_kv_budget *budget, bool streams)
{
    size_t kv, total, part = 0;
    uint32_t n_ctx = hth_session_context(model, options), n_tok = hth_session_batch(model, options);
    const hth_sequence_options sequence = hth_session_sequence_options(options, budget, n_ctx, n_tok);
    if (!hth_sequence_size(model->model, options->kv, &sequence, &kv) || (total = hth_pages_size(kv)) == 0)
        return 0;
    hearth_selector selector =
        options->selector == HEARTH_SELECTOR_AUTO ? model->selector : options->selector;
    if (n_tok > 0 && (part = hth_batch_size(model, n_tok, options->n_thread, selector, streams)) == 0)
        return 0;
    size_t rest =
        HTH_N_LOGITS * (size_t)model->model->hparams.n_vocab * sizeof(float) + n_ctx * sizeof(int32_t);
    return hth_add_size(total, part, &total) && hth_add_size(total, rest, &total) ? total : 0;
}

uint64_t hth_engine_session_size(const hearth_model *model, const hearth_session_options *options,
                                 bool streams)
{
    return hth_session_size(model, options, NULL, streams);
}

uint64_t hearth_session_bytes(const hearth_model *model, const hearth_session_options *options)
{
    HTH_FP_SCOPE;
    hearth_session_options o;
    if (!model || !model->model || hth_session_read_options(options, &o, NULL) != HEARTH_OK) return 0;
    return hth_engine_session_size(model, &o, model->streamed.reader != NULL);
}
