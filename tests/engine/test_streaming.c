/* A model whose experts, or pieces of dense networks, are read when they are needed has the bits of the model in
 * memory: with the least memory and more, with each way to read, any number of threads, as one prompt and token by
 * token, beside other sessions. */
#include "engine/engine.h"
#include "store/disk.h"
#include "support/device/hybrid.h"
#include "support/engine.h"
#include "support/models/golden.h"
#include "support/test.h"

#include <pthread.h>

/* Small models of every kind of router and layout: transposed down, joined gate and up, biases, shared experts, experts
 * beside a dense network, weights on inputs, hybrids. */
static const char *const models[] = {"mixtral",      "qwen3moe",        "smallthinker-4b", "smallthinker-4b-downt",
                                     "gpt-oss",      "deepseek2",       "llama4",          "qwen35moe",
                                     "gemma4-moe",   "arctic",          "lfm2moe",         "grok",
                                     "dbrx",         "nemotron_h_moe",  "deepseek4",       "jamba",
                                     /* dense ones, with and without gate, biases, post-norms, both blocks at once: */
                                     "llama-gqa",    "llama-relu",      "llama-bias",      "gemma2",
                                     "falcon",       "gpt2",            "phi2",            "qwen35",
                                     /* a table for each layer, whose rows are read: */
                                     "gemma4"};
enum { N_MODEL = sizeof models / sizeof *models, N_CTX = 64 };

/* The bytes of "(N bytes)" in a message; 0: there are none. */
static uint64_t least_of(const char *message)
{
    const char *end = strstr(message, " bytes)"), *p = end;
    while (p && p > message && p[-1] != '(') p--;
    return end ? strtoull(p, NULL, 10) : 0;
}

static void check_bits(const golden *g, const hearth_model *model, const float *expected, uint32_t n_thread,
                       uint32_t n_batch)
{
    engine_setting s = {.n_thread = n_thread, .n_batch = n_batch, .kv = HEARTH_KV_F32};
    FREED float *logits = engine_model_logits(model, &s, g->ids, g->n);
    if (logits && memcmp(logits, expected, g->n_truth * sizeof *logits) != 0)
        test_fail(__FILE__, __LINE__, "%s: other bits with %u threads, batch %u, %s", g->model, n_thread, n_batch,
                  test_model_info(model).reader);
}

/* "uring" by name, which has no other reader to fall back on; where the system refuses it, a line says so. */
static bool has_uring(void)
{
    hth_disk *disk;
    hearth_error why = {0};
    bool has = hth_disk_open_uring(&disk, &why) == HEARTH_OK;
    if (has) disk->ops->close(disk);
    else test_note("io_uring is not tested: %s", why.message);
    return has;
}

static const char *const io[] = {"auto", "pread", "sim:nvme4", "uring"};

/* By one reader, with the least memory; by pread with more. Counts models that keep less than all. */
static void check_streamed(const golden *g, const float *expected, int reader, int *n_evicting)
{
    uint64_t more = strcmp(io[reader], "pread") == 0 ? 16384 : 0;
    CLOSED(hearth_model) *model = engine_open_streamed(g->model, io[reader], more, g->selector);
    if (!model) return;
    hearth_model_info info = test_model_info(model);
    bool has_networks = strstr(g->model, "/mamba") == NULL;
    CHECK((info.n_streamed > 0) == has_networks && info.n_streamed_max <= info.n_streamed);
    CHECK(!has_networks || strcmp(io[reader], "uring") != 0 || strcmp(info.reader, "io_uring") == 0);
    *n_evicting += info.n_streamed_max < info.n_streamed;
    check_bits(g, model, expected, 1, 256);
    check_bits(g, model, expected, 2, 1);
    check_bits(g, model, expected, 3, 7);
    check_bits(g, model, expected, 7, 256);
}

/* Models by n readers each, another one first for each. Returns how many keep less than all. */
static int check_streamed_models(bool (*open)(golden *, const char *), const char *const *names, int n_name, int n)
{
    int n_io = has_uring() ? 4 : 3, n_evicting = 0;
    for (int i = 0; i < n_name; i++) {
        CLEANUP(golden_close) golden g;
        if (!open(&g, names[i])) continue;
        FREED float *expected = golden_logits(&g, HEARTH_KV_F32);
        for (int k = 0; expected && k < n && k < n_io; k++)
            check_streamed(&g, expected, (i + k) % n_io, &n_evicting);
    }
    return n_evicting;
}

TEST(streamed_weights_give_the_bits_of_those_in_memory)
{
    int n_evicting = check_streamed_models(golden_open_arch, models, N_MODEL, 4);
    CHECK(n_evicting >= 2 * N_MODEL); /* of three each, or four: more memory, or few parts, hold all */
}

TEST(every_architecture_streams_the_bits_of_those_in_memory)
{
    size_t n = golden_n_arch();
    FREED const char **names = calloc(n, sizeof *names);
    for (size_t i = 0; i < n; i++) names[i] = golden_arch(i);
    int n_evicting = check_streamed_models(golden_open_arch, names, (int)n, test_is_long() ? 4 : 1);
    CHECK(n_evicting >= (int)n / 2); /* not those without a network, or with one layer */
}

TEST(every_block_type_streams_the_bits_of_those_in_memory)
{
    static const char *const names[] = {
        "llama-F16", "llama-BF16", "llama-Q8_0", "llama-Q4_0", "llama-Q4_1", "llama-Q5_0", "llama-Q5_1",
        "llama-Q2_K", "llama-Q3_K", "llama-Q4_K", "llama-Q5_K", "llama-Q6_K", "llama-IQ4_NL", "llama-IQ4_XS",
        "llama-MXFP4", "llama-IQ2_XXS", "llama-IQ2_XS", "llama-IQ2_S", "llama-IQ3_S", "llama-IQ3_XXS", "llama-IQ1_S",
        "llama-IQ1_M", "llama-TQ1_0", "llama-TQ2_0", "llama-NVFP4", "mixtral-MXFP4", "gpt-oss-MXFP4",
        "mixture-Q4_K_M", "smallthinker-downt-Q4_0"};
    enum { N_NAME = sizeof names / sizeof *names };
    CHECK(check_streamed_models(golden_open_quant_file, names, N_NAME, test_is_long() ? 4 : 1) >= N_NAME / 2);
}

TEST(what_was_read_is_counted_by_layer)
{
    CLEANUP(golden_close) golden g;
    if (!golden_open_arch(&g, "qwen3moe")) return;
    FREED float *expected = golden_logits(&g, HEARTH_KV_F32);
    CLOSED(hearth_model) *model = engine_open_streamed(g.model, "pread", 0, HEARTH_SELECTOR_AUTO), *whole = NULL;
    hearth_storage_stats all = {0}, layer = {0}, sum = {0};
    if (!expected || !model) return;
    check_bits(&g, model, expected, 2, 1);
    CHECK(hearth_model_get_storage(model, &all));
    uint32_t n_layer = test_model_info(model).n_layer;
    for (uint32_t i = 0; i < n_layer; i++) {
        if (!CHECK(hearth_model_get_layer_storage(model, i, &layer))) continue;
        CHECK(layer.n_hit + layer.n_miss > 0 && layer.n_read == 0 && layer.read_bytes == 0);
        sum.n_hit += layer.n_hit, sum.n_miss += layer.n_miss, sum.weight_bytes += layer.weight_bytes;
        sum.n_stall += layer.n_stall;
    }
    CHECK_INT(sum.n_hit, all.n_hit);
    CHECK_INT(sum.n_miss, all.n_miss);
    CHECK(sum.weight_bytes >= all.weight_bytes); /* guesses may still come */
    CHECK_INT(sum.n_stall, all.n_stall);
    CHECK(!hearth_model_get_layer_storage(model, n_layer, &layer));
    CHECK_OK(hearth_model_open(g.model, NULL, &whole, err));
    CHECK(!hearth_model_get_layer_storage(whole, 0, &layer) && !hearth_model_get_storage(whole, &all));
}

/* ---- clusters of neurons ---------------------------------------------------------------------- */

static void compare_selector(const char *path, hearth_selector selector)
{
    enum { N_ID = 40 };
    const hearth_model_options o = {.n_thread = 2, .selector = selector};
    CLOSED(hearth_model) *here = NULL;
    CLOSED(hearth_model) *there = engine_open_streamed(path, "auto", 0, selector);
    int32_t ids[N_ID];
    test_random r = {3};
    CHECK_OK(hearth_model_open(path, &o, &here, err));
    if (!here || !there) return;
    for (int i = 0; i < N_ID; i++) ids[i] = (int32_t)test_random_below(&r, 250);
    CHECK(test_model_info(there).n_streamed_max < test_model_info(there).n_streamed);
    for (uint32_t n_batch = 1; n_batch <= N_ID; n_batch = n_batch * 5 + 3) {
        engine_setting s = {.n_thread = n_batch % 3 + 1, .n_batch = n_batch, .kv = HEARTH_KV_F32};
        FREED float *a = engine_model_logits(here, &s, ids, N_ID), *b = engine_model_logits(there, &s, ids, N_ID);
        if (CHECK(a && b)) CHECK_BYTES(b, a, N_ID * test_model_info(here).n_vocab * sizeof *a);
    }
}

TEST(streamed_clusters_give_the_bits_of_those_in_memory)
{
    const char *path = test_scratch("packed.gguf");
    if (!hybrid_pack_powerinfer("opt", path)) return;
    for (int s = HEARTH_SELECTOR_DENSE; s <= HEARTH_SELECTOR_THRESHOLD; s++) compare_selector(path, (hearth_selector)s);
    if (hybrid_pack_floats("bamboo", path)) compare_selector(path, HEARTH_SELECTOR_GATE);
    if (hybrid_pack_storyteller("Q4_0", path)) compare_selector(path, HEARTH_SELECTOR_GATE);
}

/* ---- several sessions ------------------------------------------------------------------------ */

typedef struct reader_thread {
    const golden *g;
    const hearth_model *model;
    const float *expected;
    uint32_t n_batch;
} reader_thread;

static void *read_along(void *arg)
{
    const reader_thread *t = arg;
    for (int i = 0; i < 3; i++) check_bits(t->g, t->model, t->expected, 2, t->n_batch);
    return NULL;
}

TEST(sessions_share_streamed_experts)
{
    CLEANUP(golden_close) golden g;
    if (!golden_open_arch(&g, "qwen3moe")) return;
    FREED float *expected = golden_logits(&g, HEARTH_KV_F32);
    CLOSED(hearth_model) *model = engine_open_streamed(g.model, "pread", 0, HEARTH_SELECTOR_AUTO);
    pthread_t threads[3];
    reader_thread args[3];
    if (!model) return;
    for (uint32_t i = 0; i < 3; i++) {
        args[i] = (reader_thread){&g, model, expected, 1 + 5 * i};
        pthread_create(&threads[i], NULL, read_along, &args[i]);
    }
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
}

/* ---- refusals ----------------------------------------------------------------------------------- */

TEST(limits_of_memory_are_refused_before_loading)
{
    const char *moe = test_data("golden/arch/mixtral.gguf"), *dense = test_data("golden/arch/qwen3.gguf");
    hearth_model *model = NULL;
    hearth_model_options o = {.ram = 1000};
    CHECK_FAILS(hearth_model_open(moe, &o, &model, err), HEARTH_ERROR_ARGUMENT,
                "mixtral.gguf: needs at least | bytes)|the limit is ");
    CHECK_FAILS(hearth_model_open(dense, &o, &model, err), HEARTH_ERROR_ARGUMENT, "qwen3.gguf: needs at least ");
    o.mmap = true;
    CHECK_FAILS(hearth_model_open(moe, &o, &model, err), HEARTH_ERROR_UNSUPPORTED, "mapped weights");
    CHECK(model == NULL);
}

TEST(a_model_that_fits_is_not_streamed)
{
    const char *path = test_data("golden/arch/mixtral.gguf");
    CLOSED(hearth_model) *model = NULL;
    CHECK_OK(hearth_model_open(path, &(hearth_model_options){.ram = (uint64_t)1 << 40}, &model, err));
    CHECK_INT(test_model_info(model).n_streamed, 0);
    CHECK(test_model_info(model).reader == NULL);
}

TEST(unknown_ways_to_read_are_refused)
{
    hearth_model *model = NULL;
    hearth_model_options o = {.ram = 1, .io = "floppy", .gpu = {.n_ctx = N_CTX}};
    const char *path = test_data("golden/arch/mixtral.gguf");
    hth_engine_set_store_memory(0);
    CHECK_FAILS(hearth_model_open(path, &o, &model, err), HEARTH_ERROR_ARGUMENT, "no way to read is called 'floppy'");
    o.io = "sim:floppy";
    CHECK_FAILS(hearth_model_open(path, &o, &model, err), HEARTH_ERROR_ARGUMENT, "no simulated disk|floppy|ufs4");
    hth_engine_set_store_memory(UINT64_MAX);
}

/* The caller's word counts before the environment's; models that fit are mapped or read, and unknown words are refused
 * all the same. */
TEST(the_environment_says_how_weights_are_read)
{
    static const struct {
        const char *variable, *io;
        bool mmap, mapped, read_by_threads;
    } cases[] = {{"mmap", NULL, false, true, false},   {"mmap", "auto", false, false, false},
                 {"", NULL, false, false, false},      {NULL, "mmap", false, true, false},
                 {"floppy", NULL, true, true, false},  {"floppy", "mmap", false, true, false},
                 {"pread", NULL, false, false, true},  {"mmap", "pread", false, false, true}};
    const char *path = test_data("golden/arch/mixtral.gguf");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CLOSED(hearth_model) *model = NULL;
        hearth_model_options o = {.io = cases[i].io, .mmap = cases[i].mmap, .gpu = {.n_ctx = N_CTX}};
        if (cases[i].variable) setenv("HEARTH_IO", cases[i].variable, 1);
        if (cases[i].read_by_threads) o.ram = 1, hth_engine_set_store_memory(0);
        CHECK_OK(hearth_model_open(path, &o, &model, err));
        hth_engine_set_store_memory(UINT64_MAX);
        unsetenv("HEARTH_IO");
        if (!model) continue;
        hearth_model_info info = test_model_info(model);
        CHECK_INT(info.mapped, cases[i].mapped);
        if (cases[i].read_by_threads) CHECK(info.reader && strstr(info.reader, "pread") != NULL);
    }
    hearth_model *none = NULL;
    CHECK_FAILS(hearth_model_open(path, &(hearth_model_options){.io = "floppy"}, &none, err), HEARTH_ERROR_ARGUMENT,
                "no way to read is called 'floppy'|mmap");
    setenv("HEARTH_IO", "floppy", 1);
    CHECK_FAILS(hearth_model_open(path, NULL, &none, err), HEARTH_ERROR_ARGUMENT, "HEARTH_IO=floppy: no way to read");
    setenv("HEARTH_IO", "mmap", 1);
    CHECK_FAILS(hearth_model_open(path, &(hearth_model_options){.ram = 1 << 20}, &none, err), HEARTH_ERROR_UNSUPPORTED,
                "HEARTH_IO=mmap: a limit of memory");
    unsetenv("HEARTH_IO");
}

/* The least that a refusal names is enough. */
TEST(the_least_memory_that_a_refusal_names_is_enough)
{
    const char *path = test_data("golden/arch/mixtral.gguf");
    hearth_error error = {0};
    CLOSED(hearth_model) *model = NULL;
    hearth_model_options o = {.ram = 1, .gpu = {.n_ctx = N_CTX}};
    CHECK_INT(hearth_model_open(path, &o, &model, &error), HEARTH_ERROR_ARGUMENT);
    o.ram = least_of(error.message) + (8 << 20); /* the process may have grown meanwhile */
    CHECK_OK(hearth_model_open(path, &o, &model, err));
}
