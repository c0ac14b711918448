/* Models of which each layer's first neurons lie on a device, and the CPU computes the others: wherever they
 * are divided, with whatever selector, text in whatever pieces, quantised weights give the bits of the CPU.
 * Placements are drawn (seeded); layers where nothing is active are made. */
#include "engine/engine.h"
#include "support/device/hybrid.h"
#include "support/device/submissions.h"
#include "support/engine.h"
#include "support/test.h"

enum { N_ID = 40, N_PREFIX = 7, N_SELECTOR = 4 };

/* ---- files -------------------------------------------------------------------------------------- */

typedef struct packed {
    const char *name;
    char path[512];
    bool made;
    int32_t ids[N_ID];
    size_t n_vocab;
    float *expected[N_SELECTOR + 1]; /* [N_ID][n_vocab] of the CPU, by selector; NULL: not yet */
} packed;

/* All of one vocabulary: drawn ids are as good as others. */
static void draw_ids(packed *f, uint32_t n_vocab)
{
    test_random r = {n_vocab};
    for (int i = 0; i < N_ID; i++) f->ids[i] = (int32_t)test_random_below(&r, n_vocab);
}

static void close_packed(packed *f)
{
    for (int i = 0; i <= N_SELECTOR; i++) free(f->expected[i]);
    memset(f->expected, 0, sizeof f->expected);
    if (f->path[0]) remove(f->path);
}

static void open_storyteller(packed *f, const char *mix)
{
    char name[40];
    snprintf(name, sizeof name, "storyteller-%s.gguf", mix);
    *f = (packed){.name = mix};
    snprintf(f->path, sizeof f->path, "%s", test_scratch(name));
    f->made = hybrid_pack_storyteller(mix, f->path);
    draw_ids(f, 2048);
}

static void open_powerinfer(packed *f, const char *from)
{
    char name[40];
    snprintf(name, sizeof name, "%s.gguf", from);
    *f = (packed){.name = from};
    snprintf(f->path, sizeof f->path, "%s", test_scratch(name));
    f->made = hybrid_pack_powerinfer(from, f->path);
    draw_ids(f, 288);
}

/* thresholds: beside the file, or NULL. */
static const float *expected_of(packed *f, hearth_selector selector, const char *thresholds)
{
    const hearth_model_options o = {.n_thread = 2, .selector = selector, .thresholds = thresholds};
    const engine_setting s = {.n_thread = 2, .n_batch = N_ID, .kv = HEARTH_KV_F16};
    if (f->expected[selector]) return f->expected[selector];
    hearth_model *model = OPENED(hearth_model, f->path, &o);
    if (!model) return NULL;
    hearth_model_info info = test_model_info(model);
    f->n_vocab = info.n_vocab;
    f->expected[selector] = engine_model_logits(model, &s, f->ids, N_ID);
    hearth_model_close(model);
    return f->expected[selector];
}

/* ---- divided models ----------------------------------------------------------------------------- */

typedef struct divided {
    const char *device, *thresholds;
    hearth_selector selector;
    uint32_t n_hot[HYBRID_MAX_LAYERS], n_layer;
    bool head, submitted, host_kv;
    uint32_t n_thread, n_row;        /* tokens of a step on the device */
    hth_placement_stream streams[2]; /* from so many tokens of a step on; 0: never */
    uint64_t n_work;                 /* of a submission; 0: as a device of the kind should do */
} divided;

static void describe(const packed *f, const divided *d, char *text, size_t size)
{
    int n = snprintf(
        text, size,
        "%s on %s, %s, %u threads, pieces of %u, streamed from %u/%u, %u/%u, %s%s%s, work %llu:", f->name,
        d->device, hearth_selector_name(d->selector), d->n_thread, d->n_row, d->streams[0].n_tok,
        d->streams[0].cpu_share, d->streams[1].n_tok, d->streams[1].cpu_share, d->submitted ? "submitted" : "queued",
        d->head ? ", head" : "", d->host_kv ? ", host KV" : "", (unsigned long long)d->n_work);
    for (uint32_t i = 0; i < d->n_layer; i++) n += snprintf(text + n, size - (size_t)n, " %u", d->n_hot[i]);
}

/* NULL: there is no such device, or a check failed. */
static hearth_model *open_divided(const packed *f, const divided *d)
{
    uint32_t n_hot[HYBRID_MAX_LAYERS];
    const char *path = test_scratch("placement.gguf");
    hth_placement p = {.n_layer = d->n_layer, .n_hot = n_hot, .head = d->head, .host_kv = d->host_kv, .devices = {{.submit_on_demand = d->submitted}}};
    memcpy(p.devices[0].streams, d->streams, sizeof d->streams);
    memcpy(n_hot, d->n_hot, sizeof n_hot);
    if (!hybrid_write_placement(f->path, d->device, &p, path)) return NULL;
    const hearth_model_options o = {.n_thread = 2,
                                    .selector = d->selector,
                                    .thresholds = d->thresholds,
                                    .gpu = {.device = d->device,
                                            .n_ctx = 2 * (d->n_row > N_ID ? d->n_row : N_ID),
                                            .n_batch = d->n_row,
                                            .kv = HEARTH_KV_F16,
                                            .placement = path}};
    if (d->n_work > 0 && !submissions_begin(d->device, 2, d->n_work)) return NULL;
    hearth_model *model = OPENED(hearth_model, f->path, &o);
    if (d->n_work > 0) submissions_end();
    remove(path);
    if (!model) return NULL;
    const hth_offload_params *params = model->gpu ? hth_gpu_get_params(model->gpu) : NULL;
    bool as_said = params && params->end_layer == d->n_layer && params->head == d->head &&
                   (params->submit_mode == HTH_SUBMIT_ON_DEMAND) == d->submitted && params->host_kv == d->host_kv &&
                   memcmp(params->n_hot, d->n_hot, d->n_layer * sizeof *d->n_hot) == 0;
    CHECK(as_said);
    if (as_said) {
        engine_check_bit_exact(model);
        CHECK(d->n_work == 0 || params->max_work == d->n_work);
        return model;
    }
    hearth_model_close(model);
    return NULL;
}

static bool has_bits(const packed *f, const divided *d, const hearth_model *model, uint32_t n_batch, size_t n)
{
    char text[400];
    const engine_setting s = {.n_thread = d->n_thread, .n_batch = n_batch, .kv = HEARTH_KV_F16};
    FREED float *logits = engine_model_logits(model, &s, f->ids, n);
    size_t size = n * f->n_vocab * sizeof *logits;
    bool same = logits && memcmp(logits, f->expected[d->selector], size) == 0;
    describe(f, d, text, sizeof text);
    if (logits && !same) test_fail(__FILE__, __LINE__, "%s: other bits with batch %u", text, n_batch);
    return same;
}

/* Without the device the case is skipped: there is nothing to count. */
static bool is_there(const char *name)
{
    hth_device *d = hybrid_open_device(name);
    hth_device_close(d);
    return d != NULL;
}

static uint32_t n_divided_layers(const hearth_model *model)
{
    const hth_offload_params *params = hth_gpu_get_params(model->gpu);
    uint32_t n = 0;
    for (uint32_t i = 0; i < params->end_layer; i++) n += params->n_hot[i] < model->model->layers[i].ffn.d_ff;
    return n;
}

/* Of check_divided. */
static uint64_t n_streamed_steps(const divided *d)
{
    uint32_t rest = N_ID % d->n_row, from = d->streams[0].n_tok;
    if (from == 0) return 0;
    uint64_t n = d->n_row >= from ? N_ID / d->n_row : 0;
    if (rest > 0 && rest >= from) n++;
    return from == 1 ? n + N_PREFIX : n;
}

/* As one prompt, which the device takes in pieces of its own, and a prefix token by token. What was
 * counted is added to *sum. */
static void check_divided(packed *f, const divided *d, hth_gpu_counts *sum)
{
    if (!f->made || !expected_of(f, d->selector, d->thresholds)) return;
    uint64_t work;
    CLOSED(hearth_model) *model = open_divided(f, d);
    if (!model) return;
    submissions_check(model->gpu, &work);
    has_bits(f, d, model, N_ID, N_ID);
    has_bits(f, d, model, 1, N_PREFIX);
    hth_gpu_counts c = hth_gpu_count(model->gpu);
    CHECK_INT(c.n_step, (N_ID + d->n_row - 1) / d->n_row + N_PREFIX);
    if (n_divided_layers(model) == 0) CHECK_INT(c.n_split + c.n_split_empty, 0);
    else CHECK_INT(c.n_split, n_divided_layers(model) * (c.n_step - c.n_streamed));
    CHECK_INT(c.n_streamed, n_divided_layers(model) > 0 ? n_streamed_steps(d) : 0);
    CHECK(!hth_device_state(model->devices[0].device).lost);
    sum->n_step += c.n_step, sum->n_split += c.n_split;
    sum->n_split_empty += c.n_split_empty;
    sum->n_streamed += c.n_streamed, sum->n_streamed_shared += c.n_streamed_shared;
}

/* ---- any placement ------------------------------------------------------------------------------ */

enum { N_FILE = 4, N_PLACE = 50, N_FIXED = 3, SEED = 20, GRANULARITY = HTH_CLUSTER_NEURONS };

static uint32_t n_layer_of(int i_file) { return i_file < 2 ? 6 : 2; }
static uint32_t d_ff_of(int i_file) { return i_file < 2 ? 768 : 1024; }

static uint32_t draw_hot(test_random *r, uint32_t d_ff)
{
    switch (test_random_below(r, 8)) {
    case 0: return 0;
    case 1: return GRANULARITY;
    case 2: return d_ff - GRANULARITY;
    case 3: return d_ff;
    default: return GRANULARITY * test_random_below(r, d_ff / GRANULARITY + 1);
    }
}

/* Every file meets every selector, some three times each. */
static divided draw_divided(test_random *r, const char *device, int i_file, hearth_selector selector)
{
    static const uint32_t threads[] = {1, 2, 4}, rows[] = {3, 8, 11, 16, N_ID}, streams[] = {0, 1, 9, N_ID},
                          parts[] = {0, 16, 40, 63};
    divided d = {.device = device, .selector = selector};
    uint32_t n_layer = n_layer_of(i_file);
    d.n_layer = test_random_below(r, 3) == 0 ? 1 + test_random_below(r, n_layer) : n_layer;
    for (uint32_t i = 0; i < d.n_layer; i++) d.n_hot[i] = draw_hot(r, d_ff_of(i_file));
    d.head = d.n_layer == n_layer && test_random_below(r, 3) > 0;
    d.submitted = test_random_below(r, 2) == 1;
    d.n_thread = threads[test_random_below(r, 3)];
    d.n_row = rows[test_random_below(r, 5)];
    d.streams[0].n_tok = streams[test_random_below(r, 4)];
    d.streams[0].cpu_share = parts[test_random_below(r, 4)];
    if (d.streams[0].n_tok > 0 && d.streams[0].n_tok < N_ID)
        d.streams[1] = (hth_placement_stream){d.streams[0].n_tok + 3, parts[test_random_below(r, 4)]};
    return d;
}

/* All neurons there, none, one cluster. */
static divided fixed_divided(const char *device, int i_file, int i)
{
    const uint32_t n_hot[N_FIXED] = {d_ff_of(i_file), 0, GRANULARITY};
    divided d = {.device = device, .selector = (hearth_selector)(1 + (i_file + i) % N_SELECTOR),
                 .n_layer = n_layer_of(i_file), .head = true, .submitted = i_file % 2 == 1, .n_thread = 2,
                 .n_row = 16, .streams = {{i_file % 2 ? 9 : 0, i_file == 3 ? 32 : 0}}};
    for (uint32_t k = 0; k < d.n_layer; k++) d.n_hot[k] = n_hot[i];
    return d;
}

/* One of `stride` of them, with submissions of so much work. */
static void check_placements(const char *device, int stride, uint64_t n_work)
{
    packed files[N_FILE];
    hth_gpu_counts sum = {0};
    test_random r = {SEED};
    int n = 0;
    if (!is_there(device)) return;
    open_storyteller(&files[0], "Q8_0");
    open_storyteller(&files[1], "Q4_0");
    open_powerinfer(&files[2], "bamboo");
    open_powerinfer(&files[3], "opt");
    for (int i = 0; i < N_PLACE; i++) {
        hearth_selector selector = (hearth_selector)(1 + i / N_FILE % N_SELECTOR);
        divided d = draw_divided(&r, device, i % N_FILE, selector);
        d.n_work = n_work, d.host_kv = i % 3 == 1;
        if (i % stride == 0) check_divided(&files[i % N_FILE], &d, &sum), n++;
    }
    for (int i = 0; i < N_FILE * N_FIXED && stride == 1; i++, n++) {
        divided d = fixed_divided(device, i / N_FIXED, i % N_FIXED);
        d.host_kv = (i / N_FIXED + i) % 2;
        check_divided(&files[i / N_FIXED], &d, &sum);
    }
    if (stride > 1) {
        divided d = fixed_divided(device, N_FILE - 1, N_FIXED - 1);
        check_divided(&files[N_FILE - 1], &d, &sum), n++;
    }
    if (n_work == 0) CHECK(sum.n_streamed_shared > 0 && sum.n_streamed_shared < sum.n_streamed);
    printf(
        "     %s, seed %d: %d placements, %llu steps, %llu of them streamed, %llu shared, %llu layers handed "
        "over, %llu idle\n",
        device, SEED, n, (unsigned long long)sum.n_step, (unsigned long long)sum.n_streamed,
        (unsigned long long)sum.n_streamed_shared, (unsigned long long)sum.n_split,
        (unsigned long long)sum.n_split_empty);
    for (int i = 0; i < N_FILE; i++) close_packed(&files[i]);
}

/* All of them but under a sanitizer, which is four times slower. */
#ifdef __SANITIZE_ADDRESS__
enum { ONE_OF = 4 };
#else
enum { ONE_OF = 1 };
#endif

TEST(any_placement_on_the_null_device_gives_the_bits_of_the_cpu)
{
    check_placements("null", test_is_long() ? 1 : ONE_OF, 0);
}
TEST(any_placement_on_vulkan_gives_the_bits_of_the_cpu) { check_placements("vulkan:0", test_is_long() ? 1 : 9, 0); }

/* Each run by itself, then some together: steps of both ways to submit, and streamed ones. */
TEST(placements_whose_work_is_divided_among_submissions_give_the_bits_of_the_cpu)
{
    check_placements("null", test_is_long() ? 1 : 5, 1);
    check_placements("null", test_is_long() ? 1 : 7, 300000);
}
TEST(placements_whose_work_is_divided_among_submissions_give_the_bits_of_the_cpu_on_vulkan)
{
    check_placements("vulkan:0", test_is_long() ? 1 : 13, 1);
}

static divided divide_at(uint32_t n_hot, const char *device, hearth_selector selector)
{
    return (divided){.device = device, .selector = selector, .n_hot = {n_hot, n_hot}, .n_layer = 2, .head = true,
                     .n_thread = 2, .n_row = 16};
}

/* Attention of each token by itself: more command lists than wait in a queue, so that each is submitted when
 * the host is ready, whatever the placement says. */
static void check_many_command_lists(packed *f, hth_placement_stream stream)
{
    enum { N_MANY = 1100, MAX_QUEUED = HTH_QUEUE_MAX_IN_FLIGHT / 2 };
    static int32_t ids[N_MANY];
    uint64_t work;
    divided d = divide_at(512, "null", HEARTH_SELECTOR_DENSE);
    const engine_setting s = {.n_thread = 2, .n_batch = N_MANY, .kv = HEARTH_KV_F16};
    const hearth_model_options o = {.n_thread = 2, .selector = d.selector};
    d.n_row = N_MANY, d.streams[0] = stream, d.n_work = 1;
    for (int i = 0; i < N_MANY; i++) ids[i] = f->ids[i % N_ID];
    CLOSED(hearth_model) *cpu = OPENED(hearth_model, f->path, &o);
    CLOSED(hearth_model) *model = cpu ? open_divided(f, &d) : NULL;
    if (model && CHECK(submissions_check(model->gpu, &work) > MAX_QUEUED)) {
        float *expected = engine_last_logits(cpu, &s, ids, N_MANY),
              *logits = engine_last_logits(model, &s, ids, N_MANY);
        if (expected && logits) CHECK_BYTES(logits, expected, 288 * sizeof *logits);
        CHECK_INT(hth_gpu_count(model->gpu).n_streamed, stream.n_tok > 0);
        free(expected), free(logits);
    }
}

TEST(divided_steps_of_more_command_lists_than_are_queued_at_once_keep_the_bits)
{
    CLEANUP(close_packed) packed f;
    open_powerinfer(&f, "bamboo");
    if (f.made) check_many_command_lists(&f, (hth_placement_stream){0, 0});
    if (f.made) check_many_command_lists(&f, (hth_placement_stream){1, 0});
    if (f.made) check_many_command_lists(&f, (hth_placement_stream){1, 32});
}

/* ---- layers where nothing is active ----------------------------------------------------------------- */

static float first_layer_sleeps(uint32_t i_layer, uint32_t i) { return i_layer == 0 && i >= 512 ? 1e30f : 0.0f; }

/* Whole clusters, to the nearest; one at least is streamed. */
static void check_shares(const char *device, size_t every)
{
    static const struct {
        uint32_t n_hot[2], cpu_share;
        bool is_shared;
    } cases[] = {
        {{0, 0}, 3, false},      {{0, 0}, 4, true},           {{256, 1024}, 24, true},
        {{512, 0}, 40, true},    {{0, HYBRID_WIDE}, 63, true}, {{2304, 2048}, 15, false},
        {{2304, 2048}, 16, true}, {{2304, 2304}, 63, false},
    };
    packed f = {.name = "wide"};
    if (!is_there(device)) return;
    snprintf(f.path, sizeof f.path, "%s", test_scratch("wide.gguf"));
    f.made = hybrid_pack_wide(f.path);
    draw_ids(&f, 267);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i += every) {
        hth_gpu_counts c = {0};
        divided d = divide_at(0, device, i / every % 2 ? HEARTH_SELECTOR_GATE : HEARTH_SELECTOR_DENSE);
        memcpy(d.n_hot, cases[i].n_hot, sizeof cases[i].n_hot);
        d.streams[0] = (hth_placement_stream){1, cases[i].cpu_share};
        check_divided(&f, &d, &c);
        CHECK_INT(c.n_streamed_shared, cases[i].is_shared ? c.n_streamed : 0);
        CHECK(c.n_streamed > 0);
    }
    close_packed(&f);
}

TEST(shares_of_many_clusters_are_rounded_and_keep_the_bits) { check_shares("null", 1); }
TEST(shares_of_many_clusters_are_rounded_and_keep_the_bits_on_vulkan) { check_shares("vulkan:0", test_is_long() ? 1 : 3); }

/* The neurons of the host of the first of two layers: all of them stay silent, of the second none of them
 * has to. */
static void check_idle(const char *device)
{
    CLEANUP(close_packed) packed f;
    const char *thresholds = test_scratch("sleep.gguf");
    open_powerinfer(&f, "bamboo");
    if (f.made && hybrid_write_thresholds(f.path, first_layer_sleeps, thresholds)) {
        divided d = divide_at(512, device, HEARTH_SELECTOR_THRESHOLD);
        d.thresholds = thresholds;
        hearth_model *model = expected_of(&f, d.selector, thresholds) ? open_divided(&f, &d) : NULL;
        if (model) {
            has_bits(&f, &d, model, 1, N_ID);
            hth_gpu_counts c = hth_gpu_count(model->gpu);
            CHECK_INT(c.n_split, 2 * N_ID);
            CHECK_INT(c.n_split_empty, N_ID);
            has_bits(&f, &d, model, N_ID, N_ID);
            CHECK_INT(hth_gpu_count(model->gpu).n_split_empty, N_ID + 3);
        }
        hearth_model_close(model);
        d.streams[0] = (hth_placement_stream){1, 40};
        model = open_divided(&f, &d);
        if (model) has_bits(&f, &d, model, 1, N_PREFIX), has_bits(&f, &d, model, N_ID, N_ID);
        if (model) CHECK_INT(hth_gpu_count(model->gpu).n_streamed_shared, N_PREFIX + 3);
        hearth_model_close(model);
    }
}

TEST(a_layer_without_active_neurons_on_the_host_is_counted_and_keeps_the_bits) { check_idle("null"); }
TEST(a_layer_without_active_neurons_on_the_host_keeps_the_bits_on_vulkan) { check_idle("vulkan:0"); }
