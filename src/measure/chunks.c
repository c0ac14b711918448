/* Divides a text into chunks for perplexity, profiles and comparisons. */
#include "measure/chunks.h"

#include "base/status.h"
#include "engine/engine.h"

uint32_t hth_chunks_default(const hearth_model *model)
{
    enum { CHUNK = 512 };
    hearth_model_info info = {0};
    hearth_model_get_info(model, &info);
    return info.n_ctx_train > 0 && info.n_ctx_train < CHUNK ? info.n_ctx_train : CHUNK;
}

hearth_status hth_chunks_open(hth_chunks *w, const hearth_model *model, const char *text, size_t n,
                               size_t n_ctx, hearth_error *err)
{
    bool adds_bos = model->tokenizer && hth_tokenizer_adds_bos(model->tokenizer);
    *w = (hth_chunks){.n_ctx = n_ctx, .bos = adds_bos ? hearth_token_bos(model) : -1};
    if (n > 0 && text[n - 1] == '\n') n--;
    hearth_status st = hearth_tokenize(model, text, n, HEARTH_ADD_SPECIAL, &w->ids, &w->n_id, err);
    if (st != HEARTH_OK) return st;
    w->n_chunk = w->n_id / n_ctx;
    if (w->n_chunk > 0) return HEARTH_OK;
    hth_chunks_close(w);
    return hth_fail(err, HEARTH_ERROR_ARGUMENT,
                    "the text has %zu tokens, but a chunk needs %zu; take a longer text or a smaller n_ctx",
                    w->n_id, n_ctx);
}

void hth_chunks_close(hth_chunks *w)
{
    hearth_free(w->ids);
    w->ids = NULL;
}

const int32_t *hth_chunks_at(hth_chunks *w, size_t i)
{
    int32_t *chunk = w->ids + i * w->n_ctx;
    if (w->bos >= 0) chunk[0] = w->bos;
    return chunk;
}
