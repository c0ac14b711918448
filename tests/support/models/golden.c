/* Helpers behind golden.h. Used by tests/golden. */
#include "support/models/golden.h"

#include "support/test.h"

bool golden_open(golden *g, const char *model, const char *ids, const char *truth)
{
    *g = (golden){.model = test_data(model)};
    g->ids = engine_read_ids(test_data(ids), &g->n);
    g->truth = engine_read_floats(test_data(truth), &g->n_truth);
    return g->model && g->ids && g->truth;
}

void golden_close(golden *g)
{
    free(g->ids);
    free(g->truth);
}

const char *const golden_archs[GOLDEN_N_ARCH] = {
    "llama-gqa", "llama-mha-tied", "llama-rope-linear", "llama-yarn", "llama3-rope_freqs", "llama-bias",
    "llama-drelu", "llama-reglu", "llama-relu", "llama-relu2", "llama-relu2-plain", "llama-geglu", "bamboo",
    "qwen2", "qwen3", "gemma2", "falcon", "falcon-two-norms", "falcon-relu", "opt", "arcee", "glm4",
    "glm4-sections", "qwen", "qwen3vl", "gemma3", "phi2", "plamo3", "stablelm-parallel", "cogvlm", "gptneox",
    "gptneox-sequential", "gpt2", "olmo-unlimited", "exaone4-shallow", "granite", "minicpm",
    /* devices lack something: */
    "mixtral", "mixtral-drelu", "qwen2moe", "qwen3moe", "olmoe", "smallthinker-4b", "smallthinker-4b-downt", "smallthinker-21b",
    "smallthinker-window", "gpt-oss", "smollm3", "olmo", "olmo2", "exaone4",
    "hunyuan-dense", "command-r", "cohere2", "stablelm", "refact", "jais", "bloom",
    "ernie4_5-moe", "granitemoe", "dots1", "bailingmoe", "bailingmoe2", "glm4moe", "minimax-m2", "deepseek",
    "hunyuan-moe", "phimoe", "dbrx", "qwen35", "qwen35moe", "qwen3next", "lfm2", "lfm2moe",
    "deepseek2", "deepseek2-lite", "mistral4", "mistral3", "gemma4", "gemma4-moe",
    "glm-dsa", "llama4", "kimi-linear", "deepseek4",
    "mamba", "mamba-normed", "mamba2", "falcon-h1", "granitehybrid", "nemotron_h", "nemotron_h_moe", "jamba", "plamo2",
    "cohere2moe", "laguna", "arctic", "grok", "talkie", "mimo2",
};

bool golden_open_arch(golden *g, const char *name)
{
    char model[80], ids[80], truth[80];
    snprintf(model, sizeof model, "golden/arch/%s.gguf", name);
    snprintf(ids, sizeof ids, "golden/arch/%s.ids", name);
    snprintf(truth, sizeof truth, "golden/arch/%s.f32", name);
    return golden_open(g, model, ids, truth);
}

bool golden_open_quant_file(golden *g, const char *name)
{
    char model[80], ids[80], truth[80];
    snprintf(model, sizeof model, "golden/quant/%s.gguf", name);
    snprintf(ids, sizeof ids, "golden/quant/%s.ids", name);
    snprintf(truth, sizeof truth, "golden/quant/%s.logits.f32", name);
    return golden_open(g, model, ids, truth);
}

bool golden_open_quant(golden *g, const char *type)
{
    char name[40];
    snprintf(name, sizeof name, "llama-%s", type);
    return golden_open_quant_file(g, name);
}

float *golden_logits(const golden *g, hearth_kv_type kv)
{
    size_t n_vocab = 0;
    engine_setting plain = {.n_thread = 1, .n_batch = 256, .kv = kv, .selector = g->selector};
    float *logits = engine_logits(g->model, &plain, g->ids, g->n, &n_vocab);
    if (logits && CHECK_INT(g->n * n_vocab, g->n_truth)) return logits;
    free(logits);
    return NULL;
}

static void expect_bits(const golden *g, const engine_setting *s, const float *expected)
{
    size_t n_vocab = 0;
    FREED float *logits = engine_logits(g->model, s, g->ids, g->n, &n_vocab);
    if (logits && memcmp(logits, expected, g->n_truth * sizeof *logits) != 0)
        test_fail(__FILE__, __LINE__, "%s: other bits with %s, %u threads, batch %u, %s", g->model, s->cpu,
                  s->n_thread, s->n_batch, s->mmap ? "mmap" : "read");
}

void golden_same_everywhere(const golden *g, hearth_kv_type kv, const float *expected)
{
    static const uint32_t threads[] = {1, 2, 3, 4, 7}, batches[] = {256, 1, 7};
    const char *levels[ENGINE_MAX_LEVELS];
    size_t n_level = engine_levels(levels);
    for (size_t l = 0; l < n_level; l++)
        for (size_t t = 0; t < sizeof threads / sizeof *threads; t++)
            for (size_t b = 0; b < sizeof batches / sizeof *batches; b++)
                for (int mmap = 0; mmap < 2; mmap++)
                    expect_bits(g, &(engine_setting){levels[l], threads[t], batches[b], mmap != 0, kv, g->selector},
                                expected);
}

void golden_same_sampled(const golden *g, hearth_kv_type kv, const float *expected)
{
    static const struct {
        uint32_t n_thread, n_batch;
        bool mmap;
    } sample[] = {{1, 256, false}, {2, 7, true}, {3, 1, false}, {4, 256, true}, {7, 7, false}};
    const char *levels[ENGINE_MAX_LEVELS];
    size_t n_level = engine_levels(levels);
    if (test_is_long()) {
        golden_same_everywhere(g, kv, expected);
        return;
    }
    for (size_t l = 0; l < n_level; l++)
        for (size_t i = 0; i < sizeof sample / sizeof *sample; i++)
            expect_bits(g, &(engine_setting){levels[l], sample[i].n_thread, sample[i].n_batch, sample[i].mmap, kv,
                                          g->selector},
                        expected);
}

void golden_same_on_levels(const golden *g, hearth_kv_type kv, const float *expected)
{
    const char *levels[ENGINE_MAX_LEVELS];
    size_t n_level = engine_levels(levels);
    for (size_t l = 0; l < n_level; l++) {
        expect_bits(g, &(engine_setting){levels[l], 1, 1, false, kv, g->selector}, expected);
        expect_bits(g, &(engine_setting){levels[l], 4, 7, true, kv, g->selector}, expected);
    }
}
