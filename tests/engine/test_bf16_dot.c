/* Sessions that compute prompts by products of bf16: they are used only on request, they change BF16
 * matrices in prompts alone, and a CPU that has none says so. */
#include "base/system/cpu.h"
#include "kernels/kernels.h"
#include "support/engine.h"
#include "support/kernels/proof.h"
#include "support/test.h"
#include "support/models/tiny_model.h"

enum { N = 24, BF16 = 30 };

static int32_t ids[N];

static hearth_model *open_tiny(uint32_t type, gguf_bytes *file)
{
    tiny_model m;
    test_random r = {7};
    tiny_begin(&m);
    for (uint32_t i = 0; i < m.n_tensor; i++)
        if (m.tensors[i].n_dim == 2) m.tensors[i].type = type;
    *file = tiny_write(&m);
    for (uint32_t i = 0; type == BF16 && i < m.n_tensor; i++) {
        const tiny_tensor *t = &m.tensors[i];
        uint8_t *at = file->data + tiny_data_at(&m, t->name);
        for (uint64_t k = 0; t->n_dim == 2 && k < t->dim[0] * t->dim[1]; k++, at += 2) {
            float x = 0.3f * test_random_float(&r);
            memcpy(at, (const uint8_t *)&x + 2, 2); /* a float's upper half is a bf16 */
        }
    }
    tiny_free(&m);
    for (int i = 0; i < N; i++) ids[i] = (int32_t)test_random_below(&r, TINY_VOCAB);
    hearth_model *model = OPENED_BY(hearth_model_open_memory, hearth_model, file->data, file->n, "tiny", NULL);
    return model;
}

/* The logits behind all ids, fed n_batch at a time. */
static void last_logits(const hearth_model *model, bool bf16_dot, uint32_t n_batch, float *logits)
{
    hearth_session_options o = {.n_ctx = N, .n_batch = n_batch, .n_thread = 2, .bf16_dot = bf16_dot};
    CLOSED(hearth_session) *s = OPENED(hearth_session, model, &o);
    if (!s) return;
    CHECK_OK(hearth_session_eval(s, ids, N, err));
    memcpy(logits, hearth_session_logits(s), TINY_VOCAB * sizeof *logits);
}

/* At a level without such products. */
static void expect_refused(void)
{
    CLEANUP(gguf_free) gguf_bytes file;
    CLOSED(hearth_model) *model = open_tiny(BF16, &file);
    hearth_session_options o = {.n_ctx = 16, .n_batch = 8, .n_thread = 1, .bf16_dot = true};
    hearth_session *session = NULL;
    hearth_error why = {0};
    if (model) CHECK_INT(hearth_session_open(model, &o, &session, &why), HEARTH_ERROR_UNSUPPORTED);
    CHECK(!session && strstr(why.message, "products of bf16 are wanted") != NULL);
}

TEST(prompts_of_bf16_change_a_little_and_nothing_else_does)
{
    float plain[TINY_VOCAB], fast[TINY_VOCAB];
    hth_cpu level;
    CHECK_OK(hth_cpu_choose(NULL, &level, err));
    hth_kernels k = proof_kernels(level);
    bool has = hth_kernels_use_bf16_dot(&k);
#if defined(__x86_64__)
    if (level == HTH_CPU_AVX512) CHECK_INT(has, hth_cpu_has_bf16_dot());
    else CHECK(!has);
#endif
    if (!has) {
        expect_refused();
        return;
    }
    for (uint32_t type = 0; type <= BF16; type += BF16) {
        CLEANUP(gguf_free) gguf_bytes file;
        CLOSED(hearth_model) *model = open_tiny(type, &file);
        last_logits(model, false, N, plain);
        last_logits(model, true, 1, fast); /* token by token */
        CHECK_BYTES(fast, plain, sizeof plain);
        last_logits(model, true, N, fast);
        if (type == 0) CHECK_BYTES(fast, plain, sizeof plain);
        double error = engine_rms_error(fast, plain, TINY_VOCAB);
        if (type == BF16 && !(error > 0.0 && error < 0.03))
            test_fail(__FILE__, __LINE__, "the logits are off by %g", error);
    }
}

TEST(a_cpu_without_bf16_products_is_reported)
{
    CLEANUP(gguf_free) gguf_bytes file;
    engine_set_cpu("generic");
    CLOSED(hearth_model) *model = open_tiny(BF16, &file);
    hearth_session *s = NULL;
    hearth_error err;
    hearth_session_options o = {.n_ctx = N, .n_batch = N, .n_thread = 1, .bf16_dot = true};
    CHECK_INT(hearth_session_open(model, &o, &s, &err), HEARTH_ERROR_UNSUPPORTED);
    CHECK(strstr(err.message, "bf16") != NULL && strstr(err.message, "generic") != NULL);
    engine_set_cpu(NULL);
}
