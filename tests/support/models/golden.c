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

/* ---- the names of golden/arch ---------------------------------------------------------------------------- */

enum { MAX_ARCH = 400, MAX_NAME = 64 };

const char *golden_arch(size_t i)
{
    static const char before[] = "\"golden/arch/", behind[] = ".gguf\"";
    static char names[MAX_ARCH][MAX_NAME];
    static size_t n;
    size_t size = 0;
    const char *path = n == 0 ? test_data("made.json") : NULL;
    FREED char *made = path ? test_read_file(path, &size) : NULL;
    for (const char *p = made; p && (p = strstr(p, before));) {
        p += sizeof before - 1;
        size_t length = strcspn(p, "\"");
        size_t n_name = length > sizeof behind - 2 ? length - (sizeof behind - 2) : 0;
        if (strncmp(p + n_name, behind, sizeof behind - 1) != 0) continue;
        if (!CHECK(n < MAX_ARCH && n_name < MAX_NAME)) break;
        snprintf(names[n++], MAX_NAME, "%.*s", (int)n_name, p);
    }
    CHECK(n > 0);
    return i < n ? names[i] : NULL;
}

size_t golden_n_arch(void)
{
    size_t n = 0;
    while (golden_arch(n)) n++;
    return n;
}

bool golden_is_on_device(const char *name)
{
    static const char *const others[] = {"deepseek2-joined", "deepseek4", "minicpm3", "plm"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(others[i], name) == 0) return false;
    return true;
}

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
