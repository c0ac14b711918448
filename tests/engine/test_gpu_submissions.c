/* How many submissions a prompt takes: few on a fast GPU, many on a slow one, and as many as the positions of its
 * tokens need, however long the context may become. The GPUs are described: their figures are not measured. */
#include "device/device_int.h"
#include "engine/engine.h"
#include "forward/gpu/recorder.h"
#include "support/engine.h"
#include "support/test.h"

#define STORYTELLER HEARTH_SOURCE_DIR "/models/storyteller-q8_0.gguf"

/* On a described GPU of so many operations per second. */
static hearth_model *open_on_gpu(double flops, uint32_t n_ctx, uint32_t n_batch)
{
    static const char text[] = "name = test\nvram_bytes = 1G\nbandwidth = 1e12\npcie_up = 25e9\npcie_down = 25e9\n"
                               "pcie_latency_us = 2\ndispatch_us = 3\nsubmit_us = 20\nwake_us = 10\njitter = 0\n"
                               "seed = 1\nclock = virtual\nflops = %.0f\n";
    char path[512], device[520];
    hearth_model_options o = hearth_model_defaults();
    snprintf(path, sizeof path, "%s", test_scratch("gpu.sim"));
    snprintf(device, sizeof device, "sim:%s", path);
    FILE *f = fopen(path, "w");
    if (!CHECK(f != NULL)) return NULL;
    fprintf(f, text, flops);
    fclose(f);
    o.n_thread = 2, o.selector = HEARTH_SELECTOR_DENSE;
    o.gpu = (hearth_gpu_options){.device = device, .n_ctx = n_ctx, .n_batch = n_batch};
    hearth_model *model = OPENED_BY(hearth_model_open, hearth_model, STORYTELLER, &o);
    return model;
}

TEST(a_prompt_takes_few_submissions_on_a_fast_gpu_and_many_on_a_slow_one)
{
    enum { N_TOK = 512 };
    static const double flops[] = {83e12, 1e10, 1e9}; /* a GeForce RTX 4090's; slower than any GPU still in use */
    uint32_t n[3] = {0};
    for (int i = 0; i < 3; i++) {
        CLOSED(hearth_model) *model = open_on_gpu(flops[i], N_TOK, N_TOK);
        if (!model || !CHECK(model->gpu != NULL)) return;
        n[i] = model->gpu->segments[HTH_GPU_MANY].n;
    }
    printf("     %u, %u and %u submissions\n", n[0], n[1], n[2]);
    CHECK_INT(n[0], 1);
    CHECK(n[1] > 4 && n[2] > 4 * n[1]);
}

TEST(a_short_prompt_has_no_workgroups_of_a_long_one)
{
    enum { MOST = 2048 };
    static const uint32_t n_tok[] = {9, 256, 257, MOST};
    hth_batch_token tokens[MOST] = {{0}};
    const hth_step step = {.tokens = tokens, .n_tok = MOST};
    CLOSED(hearth_model) *model = open_on_gpu(83e12, MOST, MOST);
    if (!model || !CHECK(model->gpu != NULL)) return;
    for (size_t i = 0; i < sizeof n_tok / sizeof *n_tok; i++) {
        int c = n_tok[i] <= 256 ? HTH_GPU_SOME : HTH_GPU_MANY;
        CHECK(hth_gpu_segments_for(model->gpu, &step, 0, n_tok[i]) == &model->gpu->segments[c]);
        CHECK_INT(hth_gpu_bucket_size(model->gpu, c), c == HTH_GPU_SOME ? 256 : MOST);
        CHECK(model->gpu->segments[c].n > 0);
    }
}

/* Command lists that a device ran since it was opened. */
static uint64_t n_run(const hearth_model *m) { return m->devices[0].device->last[HTH_QUEUE_MAIN]; }

TEST(attention_counts_by_the_positions_that_there_are)
{
    enum { N_CTX = 16384, N_TOK = 64, N_VOCAB = 2048 };
    int32_t ids[N_TOK];
    engine_setting setting = {.n_batch = N_TOK, .kv = HEARTH_KV_F16};
    for (int32_t i = 0; i < N_TOK; i++) ids[i] = 1 + 7 * i;
    hearth_model_options none = hearth_model_defaults();
    none.gpu.device = "none", none.selector = HEARTH_SELECTOR_DENSE;
    CLOSED(hearth_model) *cpu = OPENED_BY(hearth_model_open, hearth_model, STORYTELLER, &none);
    CLOSED(hearth_model) *model = open_on_gpu(4e10, N_CTX, N_TOK);
    if (!cpu || !model || !CHECK(model->gpu != NULL)) return;
    const hth_gpu *g = model->gpu;
    const hth_gpu_segments *usual = &g->segments[HTH_GPU_MANY], *few = &g->short_segments[0];
    CHECK(few->n > 0 && usual->n > few->n);
    CHECK_INT(g->short_segments[1].n, 0);
    uint64_t before = n_run(model);
    FREED float *logits = engine_last_logits(model, &setting, ids, N_TOK);
    CHECK_INT(n_run(model) - before, few->n + g->head_segments[0].n);
    FREED float *expected = engine_last_logits(cpu, &setting, ids, N_TOK);
    if (logits && expected) CHECK_BYTES(logits, expected, N_VOCAB * sizeof *logits);

    hth_batch_token tokens[N_TOK] = {{0}};
    const hth_step step = {.tokens = tokens, .n_tok = N_TOK};
    CHECK(hth_gpu_segments_for(g, &step, 0, N_TOK) == few);
    tokens[3].position = HTH_GPU_SHORT_FIRST - 1;
    CHECK(hth_gpu_segments_for(g, &step, 0, N_TOK) == few);
    tokens[3].position = HTH_GPU_SHORT_FIRST;
    CHECK(hth_gpu_segments_for(g, &step, 0, N_TOK) == usual);
    CHECK(hth_gpu_segments_for(g, &step, 0, 1) == &g->segments[HTH_GPU_ONE]);
}

/* Command lists of 1, 2, 4 and 8 tokens, and of more. */
TEST(a_step_of_a_few_tokens_is_computed_for_no_more_than_twice_as_many)
{
    enum { N_TOK = 23, N_VOCAB = 2048, N_BATCH = 5 };
    static const uint32_t batches[N_BATCH] = {2, 3, 4, 7, 11};
    int32_t ids[N_TOK];
    for (int32_t i = 0; i < N_TOK; i++) ids[i] = 5 + 11 * i;
    engine_setting setting = {.n_batch = N_TOK, .kv = HEARTH_KV_F16};
    hearth_model_options none = hearth_model_defaults();
    none.gpu.device = "none", none.selector = HEARTH_SELECTOR_DENSE;
    CLOSED(hearth_model) *cpu = OPENED_BY(hearth_model_open, hearth_model, STORYTELLER, &none);
    CLOSED(hearth_model) *model = open_on_gpu(83e12, 64, 16);
    if (!cpu || !model || !CHECK(model->gpu != NULL)) return;
    hth_batch_token tokens[16] = {{0}};
    const hth_step step = {.tokens = tokens, .n_tok = 16};
    for (uint32_t n = 1; n <= 16; n++) {
        int c = n == 1   ? HTH_GPU_ONE
                : n == 2 ? HTH_GPU_TWO
                : n <= 4 ? HTH_GPU_FOUR
                : n <= 8 ? HTH_GPU_FEW
                         : HTH_GPU_MANY;
        CHECK(hth_gpu_segments_for(model->gpu, &step, 0, n) == &model->gpu->segments[c]);
        CHECK(model->gpu->segments[c].n > 0);
    }
    FREED float *expected = engine_model_logits(cpu, &setting, ids, N_TOK);
    for (int i = 0; expected && i < N_BATCH; i++) {
        setting.n_batch = batches[i];
        FREED float *logits = engine_model_logits(model, &setting, ids, N_TOK);
        if (logits) CHECK_BYTES(logits, expected, (size_t)N_TOK * N_VOCAB * sizeof *logits);
    }
}

/* Attention of 512 tokens over 65,536 positions, each of which is long for a submission. */
TEST(attention_is_not_divided_into_parts_that_leave_a_gpu_idle)
{
    hth_gpu g = {.params = {.max_work = 1000000}};
    const hth_recorder r = {.g = &g};
    CHECK_INT(hth_rec_tokens_per_dispatch(&r, 512, 1, 4, 8), 512);
    CHECK_INT(hth_rec_tokens_per_dispatch(&r, 4096, 1000, 1, 8), 820);   /* by work, in equal parts */
    CHECK_INT(hth_rec_tokens_per_dispatch(&r, 4096, 10000, 1, 8), 256);  /* 2048 workgroups, not 98 tokens */
    CHECK_INT(hth_rec_tokens_per_dispatch(&r, 4096, 10000, 4, 8), 400);  /* four times the work, not 1024 tokens */
    CHECK_INT(hth_rec_tokens_per_dispatch(&r, 4096, 2000000, 4, 8), 4);  /* the least */
}
