/* The check behind perplexity.h. Used by tests/golden. */
#include "support/models/perplexity.h"

#include "convert/quantize.h"
#include "measure/perplexity.h"
#include "support/test.h"

static void check_model(const char *path, const char *name, const perplexity_line *e)
{
    CLOSED(hearth_model) *model = NULL;
    CLOSED(hearth_session) *session = NULL;
    hearth_session_options o = {.n_ctx = e->n_ctx, .n_batch = 64, .kv = HEARTH_KV_F32};
    hth_perplexity p = {0};
    size_t n = 0;
    const char *text_path = test_data(e->text);
    FREED char *text = text_path ? test_read_file(text_path, &n) : NULL;
    if (path && text) {
        CHECK_OK(hearth_model_open(path, NULL, &model, err));
        if (model) CHECK_OK(hearth_session_open(model, &o, &session, err));
        if (session) CHECK_OK(hth_measure_perplexity(model, session, text, n, e->most_chunks, NULL, NULL, &p, err));
        printf("     %s, %s, N %u: %.4f (%+.4f)\n", name, e->text, e->n_ctx, p.perplexity,
               p.perplexity - e->perplexity);
        CHECK_INT(p.n_token, e->n_token);
        CHECK_INT(p.n_chunk, e->n_chunk);
        CHECK_INT(p.n_scored, e->n_scored);
        CHECK(fabs(p.perplexity - e->perplexity) < e->tolerance);
    }
}

void perplexity_check(const char *model, const perplexity_line *e)
{
    check_model(test_data(model), model, e);
}

void perplexity_check_quantised(hth_type type, const perplexity_line *e)
{
    const char *in = test_data(BABYLLAMA), *out = test_scratch("quantised.gguf");
    hth_quantize_options o = {.ftype = hth_ftype_find(hth_type_find(type)->name), .pure = true, .keep_output = true,
                              .output_type = HTH_TYPE_Q8_0};
    hth_quantize_result r;
    if (!in) return;
    CHECK_OK(hth_quantize(in, out, &o, &r, err));
    check_model(out, hth_type_find(type)->name, e);
    remove(out);
}
