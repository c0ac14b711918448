/* Mixtures whose experts are divided between a device and the CPU. Quantised ones keep the CPU's bits in any placement,
 * however a text is cut, and with weights that are read when they are needed; floats come near. Every convention of
 * architectures is among them. */
#include "base/checked_math.h"
#include "convert/quantize.h"
#include "engine/engine.h"
#include "forward/gpu/gpu_int.h"
#include "support/device/hybrid.h"
#include "support/models/golden.h"
#include "support/kernels/proof.h"

#include <pthread.h>
#include <unistd.h>

static const double NEAR = 2e-4;

/* ---- placements ------------------------------------------------------------------------------------------ */

typedef struct division {
    const char *device;
    uint32_t n_hot[HYBRID_MAX_LAYERS], n_layer, n_row;
    uint32_t n_first; /* of two devices, layers of the first */
    bool head, submitted, streamed, mapped, host_kv;
    uint32_t reads; /* of every so many-th layer, one token at a time; 0: none */
    uint32_t passes; /* steps of so many tokens or more let missing experts pass through the device; 0: none do */
    uint64_t store; /* bytes of the store beyond the least, if the experts are streamed */
    uint64_t n_fault; /* the call of the device, while the model is opened, that lacks memory; 0: none */
} division;

static hearth_model *open_divided(const golden *g, const division *d, hearth_kv_type kv)
{
    uint32_t n_hot[HYBRID_MAX_LAYERS];
    const char *path = test_scratch("experts-placement.gguf");
    hth_placement p = {.n_layer = d->n_layer,
                       .n_hot = n_hot,
                       .head = d->head,
                       .host_kv = d->host_kv,
                       .devices = {{.end_layer = d->n_first, .submit_on_demand = d->submitted}}};
    for (int i = 0; i < 2; i++) p.devices[i].streams[0].n_tok = d->passes;
    memcpy(n_hot, d->n_hot, sizeof n_hot);
    for (uint32_t i = 0; d->reads > 0 && i < d->n_layer; i += d->reads) hth_layer_set_add(&p.read_experts, i);
    if (!hybrid_write_placement(g->model, d->device, &p, path)) return NULL;
    const hearth_model_options o = {.n_thread = 2,
                                    .ram = d->streamed,
                                    .mmap = d->mapped,
                                    .selector = g->selector,
                                    .gpu = {.device = d->device,
                                            .n_ctx = (uint32_t)g->n,
                                            .n_batch = d->n_row,
                                            .kv = kv,
                                            .placement = path}};
    hth_engine_set_store_memory(d->streamed ? d->store : UINT64_MAX);
    hth_device_inject_fault_on_open(d->n_fault, d->n_fault > 0 ? HEARTH_ERROR_MEMORY : HEARTH_OK);
    hearth_model *model = OPENED(hearth_model, g->model, &o);
    hth_device_inject_fault_on_open(0, HEARTH_OK);
    hth_engine_set_store_memory(UINT64_MAX);
    remove(path);
    return model;
}

/* Layers of a file, and the units of each. */
typedef struct shape {
    uint32_t n_layer, n_unit[HYBRID_MAX_LAYERS], n_divided;
    bool has_experts[HYBRID_MAX_LAYERS];
} shape;

static bool shape_of(const golden *g, shape *s)
{
    CLOSED(hearth_model) *model = OPENED(hearth_model, g->model, NULL);
    *s = (shape){0};
    if (!model) return false;
    s->n_layer = model->model->hparams.n_layer;
    if (s->n_layer > HYBRID_MAX_LAYERS) return false;
    for (uint32_t i = 0; i < s->n_layer; i++) {
        const hth_layer *l = &model->model->layers[i];
        s->n_unit[i] = hth_layer_n_unit(l);
        s->n_divided += s->has_experts[i] = hth_layer_divides_experts(l);
    }
    return true;
}

/* Experts of each layer that has some: none, one, all, or any number. Other layers lie there whole. */
static division draw(test_random *r, const char *device, const shape *s, const golden *g)
{
    static const uint32_t rows[] = {1, 7, 64, 200}, passes[] = {0, 1, 9, 40};
    static const uint64_t stores[] = {0, 100 << 10, 64 << 20};
    uint32_t from = test_random_below(r, 4); /* memory, a map, or the file when it is needed */
    division d = {.device = device,
                  .n_layer = s->n_layer,
                  .submitted = test_random_below(r, 2),
                  .streamed = from > 1,
                  .mapped = from == 1,
                  .reads = test_random_below(r, 3),
                  .passes = passes[test_random_below(r, 4)],
                  .store = stores[test_random_below(r, 3)]};
    if (test_random_below(r, 3) == 0) d.n_layer = 1 + test_random_below(r, s->n_layer);
    d.n_first = test_random_below(r, d.n_layer + 1);
    d.head = d.n_layer == s->n_layer && test_random_below(r, 2);
    d.n_row = rows[test_random_below(r, 4)];
    if (d.n_row > g->n) d.n_row = (uint32_t)g->n;
    for (uint32_t i = 0; i < s->n_layer; i++) {
        uint32_t n = s->n_unit[i], pick = test_random_below(r, 6);
        d.n_hot[i] = !s->has_experts[i] ? n : pick == 0 ? 0 : pick == 1 ? 1 : pick == 2 ? n : test_random_below(r, n + 1);
    }
    d.host_kv = test_random_below(r, 3) == 0;
    return d;
}

static void describe(const golden *g, const division *d, char *text, size_t size)
{
    int n = snprintf(text, size, "%s on %s, %u on the first, steps of %u, %s%s%s%s%s, passes %u, store %lld:", g->model,
                     d->device, d->n_first, d->n_row, d->submitted ? "submitted" : "queued", d->head ? ", head" : "",
                     d->reads ? ", reads" : "", d->mapped ? ", mapped" : "", d->host_kv ? ", host KV" : "", d->passes,
                     d->streamed ? (long long)d->store : -1);
    for (uint32_t i = 0; i < d->n_layer; i++) n += snprintf(text + n, size - (size_t)n, " %u", d->n_hot[i]);
}

/* ---- bits ------------------------------------------------------------------------------------------------ */

static void check_bits(const golden *g, const division *d, const hearth_model *model, const float *expected,
                       uint32_t n_batch, size_t n)
{
    char text[400];
    const engine_setting s = {.n_thread = 2, .n_batch = n_batch, .kv = HEARTH_KV_F16, .selector = g->selector};
    FREED float *logits = engine_model_logits(model, &s, g->ids, n);
    describe(g, d, text, sizeof text);
    if (logits && memcmp(logits, expected, n * (g->n_truth / g->n) * sizeof *logits) != 0)
        test_fail(__FILE__, __LINE__, "%s: other bits with batch %u", text, n_batch);
    if (test_model_info(model).gpu_note[0]) test_fail(__FILE__, __LINE__, "%s: %s", text, test_model_info(model).gpu_note);
}

/* The store has the experts that the device lacks, and is asked for no others. */
static void check_store(const division *d, const hearth_model *model)
{
    uint32_t n_there = 0;
    for (uint32_t i = 0; i < model->model->hparams.n_layer; i++) {
        const hth_layer *l = &model->model->layers[i];
        uint32_t n_expert = l->experts.router.n_expert,
                 n = i < d->n_layer && hth_layer_divides_experts(l) ? d->n_hot[i] : 0;
        hearth_storage_stats stats = {0};
        n_there += n;
        CHECK(hearth_model_get_layer_storage(model, i, &stats));
        CHECK(n < n_expert || stats.n_hit + stats.n_miss == 0);
    }
    CHECK_INT(test_model_info(model).n_streamed, model->n_item - n_there);
}

/* Some pieces of a step, as the device's part of a batch is, and single tokens. */
static void check_division(const golden *g, const division *d, const float *expected, hth_gpu_counts *sum)
{
    enum { N_SINGLE = 9 };
    CLOSED(hearth_model) *model = open_divided(g, d, HEARTH_KV_F16);
    if (!model) return;
    engine_check_bit_exact(model);
    check_bits(g, d, model, expected, d->n_row, g->n);
    check_bits(g, d, model, expected, 1, g->n < N_SINGLE ? g->n : N_SINGLE);
    if (d->streamed) check_store(d, model);
    hth_gpu_counts c = hth_gpu_count(model->gpu);
    sum->n_split += c.n_split, sum->n_split_empty += c.n_split_empty, sum->n_moved += c.n_moved;
    sum->n_chosen += c.n_chosen, sum->n_chosen_there += c.n_chosen_there, sum->n_passed += c.n_passed;
}

/* Softmax and no more; biases; a shared expert with a gate of its own; groups, a bias of the choice, a shared expert. */
enum { N_FILE = 4 };
static bool open_file(golden *g, int i)
{
    static const char *const names[] = {"mixture-Q4_K_M", "gpt-oss-MXFP4", "qwen2moe", "bailingmoe2"},
                      *const types[] = {NULL, "q8_0", "q8_0", "q4_0"};
    if (!(i < 2 ? golden_open_quant_file(g, names[i]) : golden_open_arch(g, names[i]))) return false;
    if (!types[i]) return true;
    const hth_quantize_options o = {.ftype = hth_ftype_find(types[i]), .pure = true, .n_thread = 2};
    hth_quantize_result result;
    const char *to = test_scratch(names[i]);
    CHECK_OK(hth_quantize(g->model, to, &o, &result, err));
    g->model = to;
    return true;
}

static void check_placements(const char *device, int n_placement)
{
    test_random r = proof_random();
    uint64_t n_empty = 0, n_passed = 0;
    for (int f = 0; f < N_FILE; f++) {
        CLEANUP(golden_close) golden g = {0};
        hth_gpu_counts sum = {0};
        shape s;
        if (!open_file(&g, f) || !shape_of(&g, &s)) continue;
        FREED float *expected = golden_logits(&g, HEARTH_KV_F16);
        for (int i = 0; expected && i < n_placement; i++) {
            division d = draw(&r, device, &s, &g);
            check_division(&g, &d, expected, &sum);
        }
        hth_device *there = strstr(device, "null") ? NULL : hybrid_open_device(device);
        bool ran = there || strstr(device, "null");
        CHECK(!ran || sum.n_split > 0);
        n_empty += sum.n_split_empty;
        CHECK(!ran || n_placement < 10 || (sum.n_moved > 0 && sum.n_chosen_there > 0 && sum.n_chosen > sum.n_chosen_there));
        n_passed += sum.n_passed;
        hth_device_close(there);
        if (f > 0) remove(g.model);
    }
    CHECK(n_placement < 10 || (n_empty > 0 && n_passed > 0));
}

TEST(any_division_of_experts_on_the_null_device_gives_the_bits_of_the_cpu)
{
    check_placements("null", test_is_long() ? 60 : test_is_sanitized() ? 8 : 20);
}
TEST(any_division_of_experts_on_two_devices_gives_the_bits_of_the_cpu)
{
    check_placements("null,null", test_is_long() ? 60 : test_is_sanitized() ? 8 : 12);
}
TEST(any_division_of_experts_on_vulkan_gives_the_bits_of_the_cpu)
{
    check_placements("vulkan:0", test_is_long() ? 20 : 3);
}

/* ---- the file -------------------------------------------------------------------------------------------- */

static uint64_t asked_of(const hearth_model *model)
{
    hearth_storage_stats stats = {0};
    CHECK(hearth_model_get_storage(model, &stats));
    return stats.n_hit + stats.n_miss;
}

/* One token at a time on one device that has parts of all layers: each expert that is not there is asked of the store, once. */
static void check_shares(const golden *g, const shape *s, const char *device, uint64_t store, const float *expected,
                         hth_gpu_counts *sum)
{
    enum { N_TOK = 40 };
    division d = {.device = device, .n_layer = s->n_layer, .n_row = 8, .head = true, .streamed = true, .store = store};
    for (uint32_t i = 0; i < s->n_layer; i++) d.n_hot[i] = s->has_experts[i] ? (s->n_unit[i] + 1) / 2 : s->n_unit[i];
    CLOSED(hearth_model) *model = open_divided(g, &d, HEARTH_KV_F16);
    if (!model || !model->gpu) return;
    check_bits(g, &d, model, expected, 1, g->n < N_TOK ? g->n : N_TOK);
    hth_gpu_counts c = hth_gpu_count(model->gpu);
    CHECK_INT(c.n_chosen, c.n_chosen_there + asked_of(model));
    check_store(&d, model);
    check_bits(g, &d, model, expected, 8, g->n < N_TOK ? g->n : N_TOK);
    sum->n_moved += hth_gpu_count(model->gpu).n_moved, sum->n_split += c.n_split;
}

/* With room for all, for some, and for one expert of each size, which is gone before it could move. */
static void check_three_tiers(const char *device, int n_file)
{
    static const uint64_t stores[] = {64 << 20, 100 << 10, 0};
    for (int f = 0; f < n_file; f++) {
        CLEANUP(golden_close) golden g = {0};
        shape s;
        if (!open_file(&g, f) || !shape_of(&g, &s)) continue;
        FREED float *expected = golden_logits(&g, HEARTH_KV_F16);
        for (int i = 0; expected && i < 3; i++) {
            hth_gpu_counts sum = {0};
            check_shares(&g, &s, device, stores[i], expected, &sum);
            bool is_absent = strcmp(device, "null") != 0 && sum.n_split == 0; /* no driver here */
            CHECK(is_absent || (sum.n_split > 0 && (i > 0 || sum.n_moved > 4)));
        }
        if (f > 0) remove(g.model);
    }
}

TEST(experts_that_are_read_move_to_null) { check_three_tiers("null", N_FILE); }
TEST(experts_that_are_read_move_to_vulkan) { check_three_tiers("vulkan:0", test_is_long() ? N_FILE : 1); }

/* As any_division_..., with experts in the file and one device. */
static void check_streamed(const char *device, int n_placement)
{
    test_random r = {11};
    CLEANUP(golden_close) golden g = {0};
    hth_gpu_counts sum = {0};
    shape s;
    if (!open_file(&g, 0) || !shape_of(&g, &s)) return;
    FREED float *expected = golden_logits(&g, HEARTH_KV_F16);
    for (int i = 0; expected && i < n_placement; i++) {
        division d = draw(&r, device, &s, &g);
        d.streamed = true, d.mapped = false, d.passes = 0;
        check_division(&g, &d, expected, &sum);
    }
    bool is_absent = strcmp(device, "null") != 0 && sum.n_split == 0;
    CHECK(is_absent || (sum.n_split > 0 && sum.n_moved > 0 && sum.n_passed == 0));
}

TEST(any_division_of_experts_that_are_read_gives_the_bits_of_the_cpu) { check_streamed("null", 20); }
TEST(any_division_of_experts_that_are_read_gives_the_bits_on_vulkan)
{
    check_streamed("vulkan:0", test_is_long() ? 20 : 4);
}

/* Two sessions, and a system that takes memory and gives it back. */
typedef struct teller {
    const golden *g;
    const hearth_model *model;
    const float *expected;
} teller;

static void *tell_in_thread(void *arg)
{
    enum { N_TOK = 30 };
    const teller *t = arg;
    const engine_setting s = {.n_thread = 1, .n_batch = 1, .kv = HEARTH_KV_F16, .selector = t->g->selector};
    FREED float *logits = engine_model_logits(t->model, &s, t->g->ids, N_TOK);
    CHECK(logits && memcmp(logits, t->expected, N_TOK * (t->g->n_truth / t->g->n) * sizeof *logits) == 0);
    return NULL;
}

TEST(sessions_share_experts_on_three_tiers_while_memory_changes)
{
    CLEANUP(golden_close) golden g = {0};
    shape s;
    if (!open_file(&g, 0) || !shape_of(&g, &s)) return;
    FREED float *expected = golden_logits(&g, HEARTH_KV_F16);
    division d = {.device = "null", .n_layer = s.n_layer, .n_row = 4, .head = true, .streamed = true, .store = 1 << 20};
    for (uint32_t i = 0; i < s.n_layer; i++) d.n_hot[i] = s.has_experts[i] ? 2 : s.n_unit[i];
    CLOSED(hearth_model) *model = expected ? open_divided(&g, &d, HEARTH_KV_F16) : NULL;
    if (!model) return;
    teller t = {&g, model, expected};
    pthread_t threads[2];
    uint64_t all = hth_store_memory(model->streamed.store);
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, tell_in_thread, &t);
    for (int i = 0; i < 100; i++) {
        hth_store_set_memory(model->streamed.store, all / 4 * (uint64_t)(1 + i % 4));
        usleep(1000);
    }
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    CHECK(hth_gpu_count(model->gpu).n_moved > 0);
}

/* Memory of the device that is missing while the model is opened: less lies there, or nothing moves; the bits are the same. */
TEST(experts_that_are_read_keep_their_bits_where_staging_memory_is_missing)
{
    enum { N_TOK = 8, MAX_CALL = 200 };
    uint32_t n_fault = 0;
    CLEANUP(golden_close) golden g = {0};
    shape s;
    if (!open_file(&g, 0) || !shape_of(&g, &s)) return;
    FREED float *expected = golden_logits(&g, HEARTH_KV_F16);
    division d = {.device = "null", .n_layer = s.n_layer, .n_row = 4, .head = true, .streamed = true, .store = 64 << 20};
    for (uint32_t i = 0; i < s.n_layer; i++) d.n_hot[i] = s.has_experts[i] ? 2 : s.n_unit[i];
    for (d.n_fault = 2; expected && d.n_fault < MAX_CALL && test_n_failed() == 0; d.n_fault += test_is_long() ? 1 : 7) {
        test_log_start();
        CLOSED(hearth_model) *model = open_divided(&g, &d, HEARTH_KV_F16);
        test_log_stop();
        if (!model) continue;
        n_fault += !model->gpu || model->gpu->params.n_hot[0] != d.n_hot[0];
        const engine_setting setting = {.n_thread = 2, .n_batch = 1, .kv = HEARTH_KV_F16, .selector = g.selector};
        FREED float *logits = engine_model_logits(model, &setting, g.ids, N_TOK);
        CHECK(logits && memcmp(logits, expected, N_TOK * (g.n_truth / g.n) * sizeof *logits) == 0);
    }
    CHECK(n_fault > 0);
}

/* ---- reads ----------------------------------------------------------------------------------------------- */

/* Whether a model's device reads missing experts: it can read the host's memory, and there are spare slots. */
static bool reads_experts(const hearth_model *model)
{
    bool can = hth_device_get_info(model->devices[0].device)->features & HTH_FEATURE_IMPORT;
    for (uint32_t i = 0; i < model->model->hparams.n_layer; i++) {
        const hth_router *r = &model->model->layers[i].experts.router;
        if (hth_layer_divides_experts(&model->model->layers[i])) can = can && r->n_expert - 1 >= 2 * r->n_used;
    }
    return can;
}

/* One token at a time: the device waits for no message, whatever it chooses. Returns whether it reads experts. */
static bool check_reads(const char *device, const golden *g, const shape *s, const float *expected)
{
    enum { N_TOK = 24 };
    division d = {.device = device, .n_layer = s->n_layer, .n_row = 8, .head = true, .reads = 1};
    for (uint32_t i = 0; i < s->n_layer; i++) d.n_hot[i] = s->n_unit[i] - s->has_experts[i];
    CLOSED(hearth_model) *model = open_divided(g, &d, HEARTH_KV_F16);
    if (!model || !model->gpu) return false;
    check_bits(g, &d, model, expected, 1, N_TOK);
    hth_gpu_counts c = hth_gpu_count(model->gpu);
    hearth_expert_stats stats = {.size = sizeof stats};
    if (reads_experts(model)) CHECK_INT(c.n_split, 0);
    CHECK(c.n_moved > (s->n_unit[s->n_layer - 1] > 6 ? N_TOK / 4 : 0) && c.moved_bytes > 0); /* of six few move */
    CHECK(hearth_model_get_expert_stats(model, &stats) && stats.n_wait == c.n_split && stats.n_upload == c.n_moved);
    CHECK(stats.n_chosen > stats.n_on_device && stats.n_on_device > 0 && stats.n_chosen == c.n_chosen);
    check_bits(g, &d, model, expected, 8, N_TOK); /* in pieces the CPU computes what is missing */
    CHECK(hth_gpu_count(model->gpu).n_split > 0);
    check_bits(g, &d, model, expected, 1, N_TOK);
    return reads_experts(model);
}

TEST(a_device_that_reads_missing_experts_waits_for_no_message)
{
    static const char *const devices[] = {"null", "vulkan:0"};
    uint32_t n_read = 0;
    for (int f = 0; f < N_FILE; f++) {
        CLEANUP(golden_close) golden g = {0};
        shape s;
        if (!open_file(&g, f) || !shape_of(&g, &s)) continue;
        FREED float *expected = golden_logits(&g, HEARTH_KV_F16);
        for (int i = 0; expected && i < 2 && (i == 0 || f == 0); i++)
            n_read += check_reads(devices[i], &g, &s, expected);
        if (f > 0) remove(g.model);
    }
    CHECK(n_read > 0);
}

/* ---- a slow second queue ---------------------------------------------------------------------------------- */

/* While it is on, what is submitted to the second queue of a device runs only when something waits for it, or also one
 * time in so many, by chance, when something asks whether it is complete. */
static struct {
    bool on;
    uint32_t one_in; /* 0: never */
    test_random random;
    hth_device *device;
    hth_cmdlist *lists[HTH_QUEUE_MAX_IN_FLIGHT];
    hth_fence n_submitted, n_done;
    hearth_session *cancels; /* with number n_cancel of them; NULL: none */
    uint32_t n_cancel;
} late;

hearth_status __real_hth_beside_submit(hth_device *d, hth_cmdlist *const *t, size_t n, hth_fence *fences, hearth_error *e);
hearth_status __wrap_hth_beside_submit(hth_device *d, hth_cmdlist *const *t, size_t n, hth_fence *fences, hearth_error *e);
bool __real_hth_beside_is_complete(hth_device *d, hth_fence fence);
bool __wrap_hth_beside_is_complete(hth_device *d, hth_fence fence);
hearth_status __real_hth_beside_wait(hth_device *d, hth_fence fence, uint64_t timeout_ns, hearth_error *e);
hearth_status __wrap_hth_beside_wait(hth_device *d, hth_fence fence, uint64_t timeout_ns, hearth_error *e);
hearth_status __real_hth_queue_submit(hth_device *d, const hth_submit_info *s, size_t n, hth_fence *fences, hearth_error *e);
hearth_status __wrap_hth_queue_submit(hth_device *d, const hth_submit_info *s, size_t n, hth_fence *fences, hearth_error *e);

static void run_late(hth_fence end)
{
    for (; late.n_done < end && late.n_done < late.n_submitted; late.n_done++)
        CHECK_OK(__real_hth_beside_submit(late.device, &late.lists[late.n_done % HTH_QUEUE_MAX_IN_FLIGHT], 1, NULL, err));
}

hearth_status __wrap_hth_beside_submit(hth_device *d, hth_cmdlist *const *t, size_t n, hth_fence *fences, hearth_error *e)
{
    if (!late.on) return __real_hth_beside_submit(d, t, n, fences, e);
    late.device = d;
    if (late.cancels && --late.n_cancel == 0) hearth_session_cancel(late.cancels);
    for (size_t i = 0; i < n; i++) {
        late.lists[late.n_submitted % HTH_QUEUE_MAX_IN_FLIGHT] = t[i];
        fences[i] = ++late.n_submitted;
        CHECK(late.n_submitted - late.n_done <= HTH_QUEUE_MAX_IN_FLIGHT);
    }
    return HEARTH_OK;
}

bool __wrap_hth_beside_is_complete(hth_device *d, hth_fence fence)
{
    if (late.on && late.one_in > 0 && test_random_below(&late.random, late.one_in) == 0) run_late(fence);
    return late.on ? fence <= late.n_done : __real_hth_beside_is_complete(d, fence);
}

hearth_status __wrap_hth_beside_wait(hth_device *d, hth_fence fence, uint64_t timeout_ns, hearth_error *e)
{
    if (late.on) run_late(fence);
    return __real_hth_beside_wait(d, fence, timeout_ns, e);
}

hearth_status __wrap_hth_queue_submit(hth_device *d, const hth_submit_info *s, size_t n, hth_fence *fences, hearth_error *e)
{
    for (size_t i = 0; late.on && i < n; i++) run_late(s[i].beside);
    return __real_hth_queue_submit(d, s, n, fences, e);
}

/* Of each layer two experts are there. */
TEST(products_wait_for_experts_that_pass_through_late)
{
    for (int f = 0; f < N_FILE; f++) {
        CLEANUP(golden_close) golden g = {0};
        shape s;
        if (!open_file(&g, f) || !shape_of(&g, &s)) continue;
        FREED float *expected = golden_logits(&g, HEARTH_KV_F16);
        division d = {.device = "null", .n_layer = s.n_layer, .n_row = 64, .head = true, .passes = 1};
        for (uint32_t i = 0; i < s.n_layer; i++) d.n_hot[i] = s.has_experts[i] ? 2 : s.n_unit[i];
        CLOSED(hearth_model) *model = expected ? open_divided(&g, &d, HEARTH_KV_F16) : NULL;
        if (!model) continue;
        late.n_submitted = late.n_done = 0, late.on = true;
        check_bits(&g, &d, model, expected, 64, g.n);
        CHECK(late.n_done > 4 && late.n_done == late.n_submitted);
        hth_gpu_counts c = hth_gpu_count(model->gpu);
        CHECK(c.n_passed > 0 && c.n_chosen_there > 0 && c.n_chosen > c.n_chosen_there); /* of the first tokens of steps */
        late.on = false;
        if (f > 0) remove(g.model);
    }
}

TEST(a_step_is_cancelled_at_any_chunk_and_can_be_repeated)
{
    enum { N_TOK = 48, N_CHUNK = 6 };
    CLEANUP(golden_close) golden g = {0};
    shape s;
    if (!golden_open_quant_file(&g, "mixture-Q4_K_M") || !shape_of(&g, &s)) return;
    FREED float *expected = golden_logits(&g, HEARTH_KV_F16);
    division d = {.device = "null", .n_layer = s.n_layer, .n_row = N_TOK, .head = true, .passes = 1};
    for (uint32_t i = 0; i < s.n_layer; i++) d.n_hot[i] = s.has_experts[i] ? 2 : s.n_unit[i];
    CLOSED(hearth_model) *model = expected ? open_divided(&g, &d, HEARTH_KV_F16) : NULL;
    const hearth_session_options o = {.n_ctx = N_TOK, .n_batch = N_TOK, .n_thread = 2};
    size_t n_vocab = g.n_truth / g.n;
    late.n_submitted = late.n_done = 0, late.on = true;
    for (uint32_t i = 1; model && i <= N_CHUNK; i++) {
        CLOSED(hearth_session) *session = OPENED(hearth_session, model, &o);
        late.cancels = session, late.n_cancel = i;
        CHECK_INT(hearth_session_eval(session, g.ids, N_TOK, NULL), HEARTH_ERROR_CANCELLED);
        late.cancels = NULL;
        CHECK_OK(hearth_session_eval(session, g.ids, N_TOK, err));
        CHECK_BYTES(hearth_session_logits(session), expected + (N_TOK - 1) * n_vocab, n_vocab * sizeof *expected);
    }
    late.on = false;
}

/* Runs tokens one by one with slots for half of the experts; moves are complete one time in so many that something asks.
 * alone: one expert fits on the way at a time. Returns the most layers to which experts left in a token; *gain: the least of
 * moves over an idle link, at the end. */
static uint64_t run_moving(const golden *g, const shape *s, const float *expected, uint32_t one_in, bool alone, float *gain)
{
    enum { N_TOK = 48 };
    division d = {.device = "null", .n_layer = s->n_layer, .n_row = 8, .head = true};
    for (uint32_t i = 0; i < s->n_layer; i++) d.n_hot[i] = s->n_unit[i] / 2;
    CLOSED(hearth_model) *model = open_divided(g, &d, HEARTH_KV_F16);
    const hearth_session_options o = {.n_ctx = N_TOK, .n_batch = 8, .n_thread = 2};
    CLOSED(hearth_session) *session = model ? OPENED(hearth_session, model, &o) : NULL;
    if (!session) return 0;
    hth_gpu_moves *moves = &model->gpu->moves;
    size_t n_vocab = g->n_truth / g->n;
    uint64_t largest = 0, most = 0;
    for (uint32_t i = 0; i < s->n_layer; i++) largest = hth_max_u64(largest, model->gpu->layers[i].slots->expert_bytes);
    uint64_t others = moves->under_way = alone ? HTH_EXPERT_UNDER_WAY - largest : 0;
    late.n_submitted = late.n_done = 0, late.on = true, late.one_in = one_in, late.random = (test_random){5};
    for (uint32_t i = 0; i < N_TOK; i++) {
        uint64_t before = late.n_submitted;
        CHECK_OK(hearth_session_eval(session, g->ids + i, 1, err));
        const float *logits = hearth_session_logits(session);
        CHECK(logits && memcmp(logits, expected + i * n_vocab, n_vocab * sizeof *logits) == 0);
        CHECK(!alone || (moves->under_way >= others && moves->under_way <= others + largest));
        most = hth_max_u64(most, late.n_submitted - before);
    }
    late.on = false, late.one_in = 0;
    *gain = moves->lone_gain;
    return most;
}

TEST(a_layer_takes_the_room_of_moves_to_another_that_are_complete)
{
    CLEANUP(golden_close) golden g = {0};
    shape s;
    float gain;
    if (!golden_open_quant_file(&g, "mixture-Q4_K_M") || !shape_of(&g, &s)) return;
    FREED float *expected = golden_logits(&g, HEARTH_KV_F16);
    if (expected) CHECK_INT(run_moving(&g, &s, expected, 2, true, &gain), s.n_divided);
}

TEST(moves_that_end_before_the_host_computes_need_less_gain)
{
    CLEANUP(golden_close) golden g = {0};
    shape s;
    float gain;
    if (!golden_open_quant_file(&g, "mixture-Q4_K_M") || !shape_of(&g, &s)) return;
    FREED float *expected = golden_logits(&g, HEARTH_KV_F16);
    if (!expected) return;
    CHECK(run_moving(&g, &s, expected, 0, false, &gain) > 0 && gain == HTH_EXPERT_MIN_GAIN);
    CHECK(run_moving(&g, &s, expected, 1, false, &gain) > 0 && gain > 0.0f && gain < 0.9f * HTH_EXPERT_MIN_GAIN);
}

/* A host so slow that its calibration lets all pass. */
TEST(experts_that_an_option_keeps_on_the_host_pass_through_in_prompts)
{
    static const char text[] = "name = test\nvram_bytes = 1G\nbandwidth = 1e12\npcie_up = 25e9\npcie_down = 25e9\n"
                               "pcie_latency_us = 2\ndispatch_us = 3\nsubmit_us = 20\nwake_us = 10\njitter = 0\nseed = 1\n"
                               "clock = virtual\nflops = 1e12\nhost_bandwidth = 1e6\n";
    static const char *const placements[] = {"layers:99,cpu-experts:99", "layers:99"};
    CLEANUP(golden_close) golden g = {0};
    char device[520];
    const char *path = test_scratch("slow-host.sim");
    snprintf(device, sizeof device, "sim:%s", path);
    if (!golden_open_quant_file(&g, "mixture-Q4_K_M") || !CHECK(test_write_file(path, text, sizeof text - 1))) return;
    FREED float *expected = golden_logits(&g, HEARTH_KV_F16);
    for (int i = 0; expected && i < 2; i++) {
        division d = {.device = device, .n_row = 64};
        const hearth_model_options o = {
            .n_thread = 2, .gpu = {.device = device, .n_ctx = 2048, .n_batch = 1024, .placement = placements[i]}};
        CLOSED(hearth_model) *model = OPENED(hearth_model, g.model, &o);
        if (!model || !CHECK(model->gpu != NULL)) continue;
        check_bits(&g, &d, model, expected, 64, g.n);
        CHECK((hth_gpu_count(model->gpu).n_passed > 0) == (i == 0));
        if (i == 0) CHECK(model->gpu->n_stream > 1 && model->gpu->streams[model->gpu->n_stream - 2].n_row == 256);
    }
}

/* ---- loss ------------------------------------------------------------------------------------------------ */

/* Logits token by token behind a beginning, the device being lost at the n-th call from there on. False: it was not. */
static bool lose(const golden *g, const division *d, const float *expected, uint64_t n)
{
    enum { N_FIRST = 5, N_ALL = 14 };
    CLOSED(hearth_model) *model = open_divided(g, d, HEARTH_KV_F16);
    const hearth_session_options o = {.n_ctx = (uint32_t)g->n, .n_batch = N_FIRST, .n_thread = 2};
    CLOSED(hearth_session) *s = model ? OPENED(hearth_session, model, &o) : NULL;
    if (!s) return false;
    size_t n_vocab = g->n_truth / g->n;
    CHECK_OK(hearth_session_eval(s, g->ids, N_FIRST, err));
    test_log_start();
    hth_device_inject_fault(model->devices[0].device, n, HEARTH_ERROR_DEVICE);
    for (uint32_t i = N_FIRST; i < N_ALL; i++) {
        CHECK_OK(hearth_session_eval(s, g->ids + i, 1, err));
        const float *logits = hearth_session_logits(s);
        if (!CHECK(logits && memcmp(logits, expected + i * n_vocab, n_vocab * sizeof *logits) == 0)) break;
    }
    test_log_stop();
    bool lost = hth_device_state(model->devices[0].device).lost;
    if (lost && d->streamed) CHECK_INT(test_model_info(model).n_streamed, model->n_item);
    return lost;
}

TEST(a_divided_mixture_keeps_its_text_wherever_its_device_is_lost)
{
    CLEANUP(golden_close) golden g = {0};
    shape s;
    if (!golden_open_quant_file(&g, "mixture-Q4_K_M") || !shape_of(&g, &s)) return;
    FREED float *expected = golden_logits(&g, HEARTH_KV_F16);
    division d = {.device = "null", .n_layer = s.n_layer, .n_row = 4, .head = true};
    for (uint32_t i = 0; i < s.n_layer; i++) d.n_hot[i] = 1 + i;
    for (int i = 0; expected && i < 4; i++) {
        uint64_t n = 1;
        d.streamed = i % 2 == 1, d.passes = d.host_kv = i == 2;
        d.store = i == 3 ? 64 << 20 : 0; /* experts move */
        while (n < 2000 && lose(&g, &d, expected, n)) n += n < 20 ? 1 : 7;
        CHECK(n > 20 && n < 2000);
    }
}

/* ---- conventions ----------------------------------------------------------------------------------------- */

/* Half of each layer's experts on null. */
static void check_near(const golden *g, const shape *s, uint32_t n_batch)
{
    division d = {.device = "null", .n_layer = s->n_layer, .n_row = n_batch, .head = true};
    for (uint32_t i = 0; i < s->n_layer; i++) d.n_hot[i] = s->n_unit[i] / (s->has_experts[i] ? 2 : 1);
    CLOSED(hearth_model) *model = open_divided(g, &d, HEARTH_KV_F32);
    if (!model) return;
    const engine_setting setting = {.n_thread = 2, .n_batch = n_batch, .kv = HEARTH_KV_F32, .selector = g->selector};
    FREED float *logits = engine_model_logits(model, &setting, g->ids, g->n);
    double error = logits ? engine_max_error(logits, g->truth, g->n_truth) : 0.0;
    if (!(error <= NEAR)) test_fail(__FILE__, __LINE__, "%s, batch %u: error %g", g->model, n_batch, error);
    CHECK(hth_gpu_count(model->gpu).n_split > 0);
}

TEST(divided_experts_of_all_conventions_are_near_the_truth)
{
    uint32_t n = 0;
    for (size_t i = 0; golden_arch(i); i++) {
        CLEANUP(golden_close) golden g = {0};
        shape s;
        if (!golden_is_on_device(golden_arch(i)) || !golden_open_arch(&g, golden_arch(i)) || !shape_of(&g, &s) ||
            s.n_divided == 0)
            continue;
        n++;
        check_near(&g, &s, g.n < 256 ? (uint32_t)g.n : 256);
        check_near(&g, &s, 1);
        check_near(&g, &s, 7);
    }
    CHECK(n >= 16);
}
