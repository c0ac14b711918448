/* The time of whole runs on the clock of a simulated GPU, which is charged with what the host computes too:
 * the same in every run, the bytes of what stays on the CPU by hand, and less than both sides one after the
 * other where a layer is divided. It proves how work is scheduled, never how fast a kernel is. */
#include "convert/pack.h"
#include "engine/engine.h"
#include "support/device/hybrid.h"
#include "support/test.h"

#define STORYTELLER HEARTH_SOURCE_DIR "/models/storyteller-q8_0.gguf"

enum { N_TOKEN = 12, N_CTX = 32 };

static const double rate = 1e9, at_once = 1e14;
static double way = 1e14; /* bytes a second to the GPU */
static int wake_us;       /* until a host that sleeps sees the end of what it waits for */

/* Bytes a second of the GPU's memory and of the host's; 0: not given. Dispatches and submissions take no
 * time. */
static void write_sim_gpu(const char *path, double sim_gpu, double host)
{
    FILE *f = fopen(path, "w");
    if (!f) abort();
    fprintf(f,
            "name = timed\nvram_bytes = 1G\nbandwidth = %.0f\npcie_up = %.0f\npcie_down = 1e14\n"
            "pcie_latency_us = 0\ndispatch_us = 0\nsubmit_us = 0\nwake_us = %d\nflops = 1e12\njitter = 0\n"
            "seed = 1\nclock = virtual\n",
            sim_gpu, way, wake_us);
    if (host > 0.0) fprintf(f, "host_bandwidth = %.0f\n", host);
    fclose(f);
}

static double clock_of(const hearth_model *model)
{
    hearth_model_info info = test_model_info(model);
    CHECK(info.gpu && info.gpu_simulated);
    return info.gpu_sim_seconds;
}

static char placement[512]; /* empty: none */
static bool host_kv;

static hearth_model *open_model(const char *path, const char *device, uint64_t vram)
{
    const hearth_model_options o = {.n_thread = 1,
                                    .selector = HEARTH_SELECTOR_DENSE,
                                    .gpu = {.device = device,
                                            .vram = vram,
                                            .n_ctx = N_CTX,
                                            .n_batch = 4,
                                            .kv = HEARTH_KV_F16,
                                            .placement = placement[0] ? placement : NULL,
                                            .host_kv = host_kv}};
    hearth_model *model = OPENED(hearth_model, path, &o);
    return model;
}

/* Seconds of the GPU's clock for N_TOKEN tokens, one by one; 0: it has none. */
static double run(const char *path, double sim_gpu, double host, uint64_t vram)
{
    char device[600];
    hearth_session *s = NULL;
    double seconds = -1.0;
    const char *file = test_scratch("timed.sim");
    snprintf(device, sizeof device, "sim:%s", file);
    write_sim_gpu(file, sim_gpu, host);
    hearth_model *model = open_model(path, device, vram);
    const hearth_session_options o = {.n_ctx = N_CTX, .n_batch = 4, .n_thread = 1, .kv = HEARTH_KV_F16};
    if (model) CHECK_OK(hearth_session_open(model, &o, &s, err));
    if (s) {
        double start = clock_of(model);
        for (int32_t i = 0; i < N_TOKEN; i++) CHECK_OK(hearth_session_eval(s, (const int32_t[]){1 + 13 * i}, 1, err));
        seconds = clock_of(model) - start;
    }
    hearth_session_close(s);
    hearth_model_close(model);
    unlink(file);
    return seconds;
}

static void pack_storyteller(char path[512])
{
    const hth_pack_options o = {.n_thread = 2};
    hth_pack_result r;
    snprintf(path, 512, "%s", test_scratch("timed.gguf"));
    CHECK_OK(hth_pack(STORYTELLER, path, &o, &r, err));
}

enum { DIVIDED = 5200000, SOME_LAYERS = 3000000 };

TEST(the_time_of_a_run_is_the_same_in_every_run)
{
    char path[512];
    pack_storyteller(path);
    double divided = run(path, rate, rate, DIVIDED), layers = run(STORYTELLER, rate, rate, SOME_LAYERS);
    CHECK(divided > 0.0 && layers > 0.0);
    for (int i = 0; i < 2; i++) {
        CHECK(run(path, rate, rate, DIVIDED) == divided);
        CHECK(run(STORYTELLER, rate, rate, SOME_LAYERS) == layers);
    }
    remove(path);
}

TEST(without_a_rate_for_the_host_there_is_no_such_time) { CHECK(run(STORYTELLER, rate, 0.0, SOME_LAYERS) == 0.0); }

static double bytes_of(const hth_matrix *m) { return (double)m->n_row * (double)m->row_size; }

/* What of the weights and of the keys and values of N_TOKEN tokens is not on the device, in bytes. */
static double bytes_left(uint64_t vram)
{
    CLOSED(hearth_model) *model = open_model(STORYTELLER, "null", vram);
    double bytes = 0.0;
    if (!model || !CHECK(model->gpu != NULL)) return 0.0;
    const hth_offload_params *params = hth_gpu_get_params(model->gpu);
    CHECK(params->end_layer > 0 && params->end_layer < model->model->hparams.n_layer);
    for (uint32_t i = params->end_layer; i < model->model->hparams.n_layer; i++) {
        const hth_layer *l = &model->model->layers[i];
        bytes += bytes_of(&l->attn.q) + bytes_of(&l->attn.k) + bytes_of(&l->attn.v) + bytes_of(&l->attn.o) + bytes_of(&l->ffn.gate) +
                 bytes_of(&l->ffn.up) + bytes_of(&l->ffn.down);
    }
    bytes += bytes_of(model->model->tied ? &model->model->token_embd : &model->model->output);
    bytes *= N_TOKEN;
    for (uint32_t i = host_kv ? 0 : params->end_layer; i < model->model->hparams.n_layer; i++) {
        const hth_attention *a = &model->model->layers[i].attn;
        bytes += 2.0 * 2.0 * a->n_head_kv * a->d_head * (N_TOKEN * (N_TOKEN + 1) / 2); /* each token sees those before it */
    }
    return bytes;
}

/* Between two rates nothing changes but the host's part. */
TEST(layers_that_stay_on_the_cpu_take_their_bytes)
{
    for (int i = 0; i < 2; i++) {
        host_kv = i > 0;
        double slow = run(STORYTELLER, rate, rate, SOME_LAYERS),
               fast = run(STORYTELLER, rate, 4 * rate, SOME_LAYERS);
        double expected = bytes_left(SOME_LAYERS) * (1.0 / rate - 0.25 / rate);
        if (!(slow - fast > 0.999 * expected && slow - fast < 1.001 * expected))
            test_fail(__FILE__, __LINE__, "%g seconds, %g are due", slow - fast, expected);
    }
    host_kv = false;
}

/* Half of the neurons of a file that says how large its values are: only such layers need not agree first. */
TEST(both_sides_of_a_divided_layer_work_at_once)
{
    const double rates[][2] = {{rate, rate}, {rate, at_once}, {at_once, rate}};
    char device[600];
    uint32_t n_hot[2] = {512, 512};
    double took[3];
    hth_placement p = {.n_layer = 2, .n_hot = n_hot, .head = true};
    const char *path = test_scratch("timed.gguf");
    snprintf(placement, sizeof placement, "%s", test_scratch("timed-placement.gguf"));
    const char *sim_gpu = test_scratch("timed-card.sim");
    snprintf(device, sizeof device, "sim:%s", sim_gpu);
    write_sim_gpu(sim_gpu, rate, rate);
    if (hybrid_pack_powerinfer("bamboo", path) && hybrid_write_placement(path, device, &p, placement)) {
        for (int i = 0; i < 3; i++) took[i] = run(path, rates[i][0], rates[i][1], 0);
        printf("     both %.6f s, the card alone %.6f s, the host alone %.6f s\n", took[0], took[1], took[2]);
        CHECK(took[1] > 0.0 && took[2] > 0.0 && took[0] > 0.99 * took[1] && took[0] >= took[2]);
        /* What the host does is hidden, nearly all of it. */
        CHECK(took[0] < took[1] + 0.2 * took[2]);
        /* A slow host is waited for. */
        CHECK(run(path, rate, rate / 20, 0) > 5 * took[0]);
    }
    placement[0] = '\0';
}

/* The waits of a divided layer last longer than the host spins at first. */
TEST(a_step_sleeps_only_where_it_does_not_know_how_long_the_device_works)
{
    enum { WAKE_US = 400 };
    char device[600];
    uint32_t n_hot[2] = {512, 512};
    double took[2];
    hth_placement p = {.n_layer = 2, .n_hot = n_hot, .head = true};
    const char *path = test_scratch("timed.gguf");
    snprintf(placement, sizeof placement, "%s", test_scratch("timed-placement.gguf"));
    const char *sim_gpu = test_scratch("timed-card.sim");
    snprintf(device, sizeof device, "sim:%s", sim_gpu);
    write_sim_gpu(sim_gpu, rate / 2, at_once);
    if (hybrid_pack_powerinfer("bamboo", path) && hybrid_write_placement(path, device, &p, placement)) {
        for (int i = 0; i < 2; i++, wake_us += WAKE_US) took[i] = run(path, rate / 2, at_once, 0);
        double slept = (took[1] - took[0]) / (WAKE_US * 1e-6);
        printf("     %.2f times in %d tokens\n", slept, N_TOKEN);
        CHECK(slept > 0.9 && slept < 5.0); /* in the first token, or two: four waits each */
    }
    wake_us = 0, placement[0] = '\0';
}

/* All neurons are the host's; their way is four times what the host takes to stage or to compute them. With a
 * quarter on the way each is busy all the time; one after the other they would take twice as long. */
TEST(the_host_computes_its_share_while_weights_pass)
{
    enum { N_LAYER = 2, HERE = 48 };
    char device[600];
    uint32_t n_hot[N_LAYER] = {0, 0};
    double whole, both;
    hth_placement p = {.n_layer = N_LAYER, .n_hot = n_hot, .head = true, .devices = {{.streams = {{1, 0}}}}};
    const char *path = test_scratch("timed.gguf");
    snprintf(placement, sizeof placement, "%s", test_scratch("timed-placement.gguf"));
    const char *sim_gpu = test_scratch("timed-card.sim");
    snprintf(device, sizeof device, "sim:%s", sim_gpu);
    way = rate / 4;
    write_sim_gpu(sim_gpu, at_once, rate);
    if (hybrid_pack_powerinfer("bamboo", path) && hybrid_write_placement(path, device, &p, placement)) {
        whole = run(path, at_once, rate, 0);
        p.devices[0].streams[0].cpu_share = HERE;
        CHECK(hybrid_write_placement(path, device, &p, placement));
        both = run(path, at_once, rate, 0);
        printf("     all pass %.6f s, a quarter %.6f s\n", whole, both);
        CHECK(both > 0.24 * whole && both < 0.36 * whole);
    }
    way = at_once;
    placement[0] = '\0';
}
