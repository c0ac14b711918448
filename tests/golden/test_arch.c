/* The files of golden/arch: the forward pass against double precision, and
 * one answer on every level, thread count, batch and reader. */
#include "support/models/golden.h"
#include "support/test.h"
#include "text/pretokenizer.h"

static void check_file(const char *name, hearth_kv_type kv, double bound)
{
    CLEANUP(golden_close) golden g;
    if (golden_open_arch(&g, name)) {
        FREED float *logits = golden_logits(&g, kv);
        double error = logits ? engine_max_error(logits, g.truth, g.n_truth) : 1.0;
        printf("     %-20s kv %s: %.2e\n", name, kv == HEARTH_KV_F32 ? "f32" : "f16", error);
        if (!(error <= bound)) test_fail(__FILE__, __LINE__, "%s: error %g, allowed %g", name, error, bound);
        if (logits && kv == HEARTH_KV_F32) golden_same_sampled(&g, kv, logits);
        else if (logits) golden_same_on_levels(&g, kv, logits);
    }
}

TEST(logits_are_right_and_the_same_everywhere_with_f32_kv)
{
    for (size_t i = 0; golden_arch(i); i++) check_file(golden_arch(i), HEARTH_KV_F32, 2e-5);
}

TEST(logits_are_close_and_the_same_everywhere_with_f16_kv)
{
    for (size_t i = 0; golden_arch(i); i++) check_file(golden_arch(i), HEARTH_KV_F16, 5e-3);
}

/* Of the files whose activation gives zeros, whichever form their weights have. */
TEST(gate_gives_the_bits_of_dense)
{
    static const char *const sparse[] = {"llama-drelu",       "llama-reglu", "llama-relu",  "llama-relu2",
                                         "llama-relu2-plain", "bamboo",      "falcon-relu", "opt"};
    for (size_t i = 0; i < sizeof sparse / sizeof *sparse; i++) {
        CLEANUP(golden_close) golden g;
        if (golden_open_arch(&g, sparse[i])) {
            g.selector = HEARTH_SELECTOR_DENSE;
            FREED float *dense = golden_logits(&g, HEARTH_KV_F16);
            g.selector = HEARTH_SELECTOR_GATE;
            if (dense) golden_same_on_levels(&g, HEARTH_KV_F16, dense);
        }
    }
}

TEST(logits_of_the_last_token_are_those_of_all)
{
    for (size_t i = 0; golden_arch(i); i++) {
        CLEANUP(golden_close) golden g;
        if (golden_open_arch(&g, golden_arch(i))) {
            engine_setting s = {.n_thread = 2, .n_batch = 64, .kv = HEARTH_KV_F32};
            FREED float *all = golden_logits(&g, HEARTH_KV_F32);
            CLOSED(hearth_model) *model = OPENED(hearth_model, g.model, NULL);
            FREED float *last = model ? engine_last_logits(model, &s, g.ids, g.n) : NULL;
            size_t n_vocab = g.n_truth / g.n;
            if (CHECK(all && last)) CHECK_BYTES(all + g.n_truth - n_vocab, last, n_vocab * sizeof *last);
        }
    }
}

/* The file with another kind of tokenizer of as many characters; NULL after a failed check. */
static char *with_kind(const char *kind, size_t *n)
{
    static const char key[] = "tokenizer.ggml.model";
    const char *path = test_data("golden/arch/llama3-rope_freqs.gguf");
    char *bytes = path ? test_read_file(path, n) : NULL;
    for (size_t i = 0; bytes && i + 100 < *n; i++)
        if (memcmp(bytes + i, key, sizeof key - 1) == 0) /* a type and a length lie between */
            memcpy(bytes + i + sizeof key - 1 + 12, kind, 4);
    return bytes;
}

static hearth_status tokenize_a(const char *kind, hearth_error *why)
{
    size_t n = 0, n_ids = 0;
    int32_t *ids = NULL;
    CLOSED(hearth_model) *model = NULL;
    FREED char *bytes = with_kind(kind, &n);
    hearth_status status = HEARTH_OK;
    if (bytes) CHECK_OK(hearth_model_open_memory(bytes, n, "model.gguf", NULL, &model, err));
    if (model) status = hearth_tokenize(model, "a", 1, 0, &ids, &n_ids, why);
    if (model && status != HEARTH_OK) CHECK_INT(hearth_token_bos(model), -1);
    if (model && status == HEARTH_OK) CHECK(n_ids == 1 && hearth_token_bos(model) >= 0);
    hearth_free(ids);
    return status;
}

TEST(a_vocabulary_that_is_not_supported_hinders_text_only)
{
    char engine[100];
    hearth_error why = {0};
    size_t n;
    char *bytes = with_kind("rwkv", &n);
    if (!bytes) return;
    free(bytes);
    CHECK_FAILS(tokenize_a("rwkv", err), HEARTH_ERROR_UNSUPPORTED, "model.gguf|tokenizer.ggml.model|llama");
    bool cuts = hth_pretokenizer_engine(engine, sizeof engine);
    CHECK_INT(tokenize_a("gpt2", &why), cuts ? HEARTH_OK : HEARTH_ERROR_UNSUPPORTED);
    if (!cuts) CHECK(strstr(why.message, "model.gguf") && strstr(why.message, "built without"));
}
