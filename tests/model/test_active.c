/* What of a model a token uses: counted again from the tensors of tiny models, and the refusal of mixtures. */
#include "model/model.h"

#include "support/models/tiny_model.h"
#include "support/test.h"

typedef struct counted {
    uint64_t n_weight, n_active, size, read_size;
    uint32_t n_layer;
} counted;

/* All weights are F32. Of four experts a token uses two, and of the table of embeddings one row unless it is tied. */
static counted count_again(const tiny_model *m, bool tied)
{
    enum { N_EXPERT = 4, N_USED = 2, N_BYTE = 4 };
    counted c = {0};
    for (uint32_t i = 0; i < m->n_tensor; i++) {
        const tiny_tensor *t = &m->tensors[i];
        if (t->gone) continue;
        uint64_t n = t->dim[0] * t->dim[1] * t->dim[2];
        bool routed = t->n_dim == 3 && strstr(t->name, "_exps.weight");
        bool table = strcmp(t->name, "token_embd.weight") == 0 || strcmp(t->name, "position_embd.weight") == 0;
        bool one_row = table && !(tied && strcmp(t->name, "token_embd.weight") == 0);
        uint64_t active = routed ? n / N_EXPERT * N_USED : n;
        c.n_weight += n, c.n_active += active;
        c.size += N_BYTE * n, c.read_size += N_BYTE * (one_row ? t->dim[0] : active);
        c.n_layer += strstr(t->name, "ffn_gate_exps.weight") != NULL;
    }
    return c;
}

static void check_model(const char *architecture, bool tied)
{
    tiny_model m = tiny_new();
    if (strcmp(architecture, "llama") != 0) tiny_become(&m, architecture);
    if (tied) tiny_find(&m, "output.weight")->gone = true;
    counted expected = count_again(&m, tied);
    CLEANUP(gguf_free) gguf_bytes bytes = tiny_take(&m);
    CLOSED(hth_gguf) *file = NULL;
    CHECK_OK(hth_gguf_open_memory(bytes.data, bytes.n, "tiny.gguf", &file, err));
    CLOSED(hth_model) *model = file ? OPENED(hth_model, file, &(hth_model_overrides){0}) : NULL;
    if (!model) return;
    hth_active_weights a = hth_model_count_active(model);
    if (a.n_weight != expected.n_weight || a.n_active != expected.n_active || a.size != expected.size ||
        a.read_size != expected.read_size || a.n_layer != expected.n_layer)
        test_fail(__FILE__, __LINE__, "%s: %llu weights, %llu active, %llu bytes, %llu read, %u layers", architecture,
                  (unsigned long long)a.n_weight, (unsigned long long)a.n_active, (unsigned long long)a.size,
                  (unsigned long long)a.read_size, a.n_layer);
    CHECK_INT(hth_model_is_dense(model), expected.n_layer == 0);
    if (expected.n_layer == 0) CHECK_OK(hth_model_check_dense(model, "a test", err));
    else
        CHECK_FAILS(hth_model_check_dense(model, "a test", err), HEARTH_ERROR_UNSUPPORTED,
                    "tiny.gguf: |mixtures of 4 experts|a test is for models of dense layers");
}

TEST(weights_that_a_token_uses_are_those_of_its_experts_and_rows)
{
    static const char *const architectures[] = {"llama", "gpt2", "qwen2moe", "qwen3moe", "dots1", "gpt-oss", "arctic", "grok",
                                                "falcon-h1", "jamba", "plamo2"};
    for (size_t i = 0; i < sizeof architectures / sizeof *architectures; i++)
        for (int tied = 0; tied < 2; tied++) check_model(architectures[i], tied);
}

/* Commands about neurons would find none in some layers. */
TEST(models_with_layers_without_a_network_are_not_dense)
{
    static const char *const architectures[] = {"mamba2", "nemotron_h"};
    for (int i = 0; i < 2; i++) {
        tiny_model m = tiny_new();
        tiny_become(&m, architectures[i]);
        CLEANUP(gguf_free) gguf_bytes bytes = tiny_take(&m);
        CLOSED(hth_gguf) *file = NULL;
        CHECK_OK(hth_gguf_open_memory(bytes.data, bytes.n, "tiny.gguf", &file, err));
        CLOSED(hth_model) *model = file ? OPENED(hth_model, file, &(hth_model_overrides){0}) : NULL;
        if (!model) return;
        CHECK(!hth_model_is_dense(model));
        CHECK_FAILS(hth_model_check_dense(model, "a test", err), HEARTH_ERROR_UNSUPPORTED,
                    "tiny.gguf: |layer 0 has no network|a test is for models of dense layers");
    }
}
