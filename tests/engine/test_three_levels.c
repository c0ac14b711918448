/* Weights on three levels: the first layers, or the first neurons of layers, on a device, others in memory, and what is
 * left in the file. The bits are those of the model in memory: with each device, division and amount of memory, when the
 * device is lost, when reads fail while the device waits for the host, and when evaluations are cancelled. Limits hold
 * when weights come back from the device. The disk is a simulated one whose clock does not wait. */
#include "base/alloc.h"
#include "device/device_int.h"
#include "engine/engine.h"
#include "file/gguf.h"
#include "forward/forward_int.h"
#include "store/disk_faults.h"
#include "store/disk_simulated.h"
#include "support/device/hybrid.h"
#include "support/engine.h"
#include "support/test.h"

#include <errno.h>
#include <pthread.h>

#define SIM_GPU "sim:" HEARTH_SOURCE_DIR "/bench/devices/story.sim"
#define KIB ((uint64_t)1 << 10)

enum { N_ID = 30, N_CTX = 64, N_ROW = 8, MAX_CALLS = 4000 };

/* ---- the disk of a model ---------------------------------------------------------------------------- */

static const hth_disk_faults no_faults;
static hth_disk *faulty; /* of the model that was opened last */

hearth_status __wrap_hth_disk_open(const char *name, hth_disk **out, hearth_error *err);
hearth_status __wrap_hth_disk_open(const char *name, hth_disk **out, hearth_error *err)
{
    hearth_status st = hth_disk_open_simulated(hth_disk_model_find("nvme4"), 1, true, out, err);
    if (st == HEARTH_OK) st = hth_disk_open_faults(*out, &no_faults, out, err);
    faulty = *out;
    return st;
}

/* ---- models ------------------------------------------------------------------------------------------- */

typedef enum kind { OPT, STORY, WIDE, WHOLE } kind;

/* What lies on the device: of the first n_layer layers so many neurons each. */
typedef struct division {
    const char *name;
    kind kind;
    uint32_t n_layer, n_hot[HYBRID_MAX_LAYERS];
    bool head, on_demand;
    hearth_selector selector;
    hth_placement_stream stream;
} division;

/* What the store of OPT holds at least is nearly all. */
static const division divisions[] = {
    {"all layers, head", STORY, 6, {256, 512, 0, 256, 0, 512}, true, false, HEARTH_SELECTOR_PREDICTOR, {0}},
    {"nothing hot, submitted", STORY, 6, {0, 0, 0, 0, 0, 0}, false, true, HEARTH_SELECTOR_GATE, {0}},
    {"some layers whole", STORY, 5, {768, 256, 0, 512, 768}, false, false, HEARTH_SELECTOR_DENSE, {0}},
    {"whole layers", WHOLE, 2, {0}, false, false, HEARTH_SELECTOR_AUTO, {0}},
    {"all layers, streamed",
     STORY,
     6,
     {256, 256, 256, 256, 0, 512},
     true,
     true,
     HEARTH_SELECTOR_THRESHOLD,
     {2, 24}},
    {"a short cluster", WIDE, 2, {2304, 0}, true, false, HEARTH_SELECTOR_GATE, {0}},
    {"one layer", OPT, 1, {256}, false, false, HEARTH_SELECTOR_DENSE, {0}},
    {"thresholds, streamed", OPT, 2, {512, 0}, true, false, HEARTH_SELECTOR_THRESHOLD, {2, 0}},
};
enum { N_DIVISION = sizeof divisions / sizeof *divisions };

typedef struct subject {
    const division *is;
    const char *device;
    char path[512], placement[512];
    int32_t ids[N_ID];
    size_t n_vocab;
    float *expected; /* [N_ID][n_vocab], in memory */
    hearth_model *model;
    hearth_session *session;
    volatile int cancel;
} subject;

static bool make_model(subject *s)
{
    snprintf(s->path, sizeof s->path, "%s", test_scratch("three.gguf"));
    switch (s->is->kind) {
    case OPT: return hybrid_pack_powerinfer("opt", s->path);
    case STORY: return hybrid_pack_storyteller("Q4_0", s->path);
    case WIDE: return hybrid_pack_wide(s->path);
    default: break;
    }
    snprintf(s->path, sizeof s->path, "%s", HEARTH_SOURCE_DIR "/models/storyteller-q8_0.gguf");
    return true;
}

/* Bits of the CPU. */
static void find_expected(subject *s)
{
    const engine_setting setting = {
        .n_thread = 2, .n_batch = N_ROW, .kv = HEARTH_KV_F16, .selector = s->is->selector};
    test_random r = {7};
    for (int i = 0; i < N_ID; i++) s->ids[i] = (int32_t)test_random_below(&r, 250);
    s->expected = engine_logits(s->path, &setting, s->ids, N_ID, &s->n_vocab);
}

/* False: the device is missing (skipped), or a check failed. */
static bool begin(subject *s, const division *d, const char *device)
{
    uint32_t n_hot[HYBRID_MAX_LAYERS];
    memcpy(n_hot, d->n_hot, sizeof n_hot);
    hth_placement p = {
        .n_layer = d->n_layer, .n_hot = n_hot, .head = d->head, .devices = {{.submit_on_demand = d->on_demand}}};
    p.devices[0].streams[0] = d->stream;
    *s = (subject){.is = d, .device = device};
    snprintf(s->placement, sizeof s->placement, "layers:%u", d->n_layer);
    if (!make_model(s)) return false;
    if (d->kind != WHOLE) {
        snprintf(s->placement, sizeof s->placement, "%s", test_scratch("three-placement.gguf"));
        if (!hybrid_write_placement(s->path, device, &p, s->placement)) return false;
    } else {
        CLOSED(hth_device) *there = hybrid_open_device(device);
        if (!there) return false;
    }
    find_expected(s);
    return s->expected != NULL;
}

static hearth_model_options options_of(const subject *s, uint64_t ram)
{
    return (hearth_model_options){.ram = ram,
                                  .n_thread = 2,
                                  .selector = s->is->selector,
                                  .cancel = &s->cancel,
                                  .gpu = {.device = s->device,
                                          .n_ctx = 4 * N_CTX,
                                          .n_batch = N_ROW,
                                          .kv = HEARTH_KV_F16,
                                          .placement = s->placement}};
}

static hearth_session *open_session(const subject *s)
{
    const hearth_session_options o = {.n_ctx = N_CTX, .n_batch = N_ROW, .n_thread = 2, .kv = HEARTH_KV_F16};
    return OPENED(hearth_session, s->model, &o);
}

static void close_model(subject *s)
{
    hearth_session_close(s->session);
    hearth_model_close(s->model);
    s->session = NULL, s->model = NULL;
}

static void end(subject *s)
{
    close_model(s);
    free(s->expected);
}

/* more: memory of the store above the least; UINT64_MAX: what `ram` leaves. */
static bool open_model(subject *s, uint64_t ram, uint64_t more)
{
    const hearth_model_options o = options_of(s, ram);
    hth_engine_set_store_memory(more);
    CHECK_OK(hearth_model_open(s->path, &o, &s->model, err));
    hth_engine_set_store_memory(UINT64_MAX);
    s->session = s->model ? open_session(s) : NULL;
    if (s->model) CHECK(s->model->gpu && hth_gpu_get_params(s->model->gpu)->end_layer == s->is->n_layer);
    return s->session != NULL;
}

/* Evaluates tokens [first, first + n) again, after those before them. */
static hearth_status eval(subject *s, uint32_t first, uint32_t n, hearth_error *err)
{
    hearth_status st = hearth_session_truncate(s->session, first, err);
    return st == HEARTH_OK ? hearth_session_eval(s->session, &s->ids[first], n, err) : st;
}

static void check_bits(const subject *s, const char *when)
{
    uint32_t t = hearth_session_position(s->session) - 1;
    const float *logits = hearth_session_logits(s->session);
    if (!logits || memcmp(logits, s->expected + t * s->n_vocab, s->n_vocab * sizeof *logits) != 0)
        test_fail(__FILE__, __LINE__, "%s on %s: other logits after token %u, %s", s->is->name, s->device, t,
                  when);
}

/* A prompt in pieces, then tokens one by one. */
static void tell(subject *s, const char *when)
{
    enum { N_PROMPT = 20 };
    CHECK_OK(eval(s, 0, N_PROMPT, err));
    check_bits(s, when);
    for (uint32_t t = N_PROMPT; t < N_ID; t++) {
        CHECK_OK(eval(s, t, 1, err));
        check_bits(s, when);
    }
}

/* ---- bits ---------------------------------------------------------------------------------------------- */

/* No item of the device's rows is asked for. */
static void check_levels(const subject *s)
{
    hearth_model_info info = test_model_info(s->model);
    hth_gpu_counts counts = hth_gpu_count(s->model->gpu);
    const hth_offload_params *there = hth_gpu_get_params(s->model->gpu);
    engine_check_bit_exact(s->model);
    CHECK(info.gpu && info.reader && info.n_streamed <= s->model->n_item);
    CHECK_INT(counts.n_streamed, 0);
    for (uint32_t i = 0; i < info.n_layer; i++) {
        hearth_storage_stats stats = {0};
        bool whole = i < there->end_layer && there->n_hot[i] == s->model->model->layers[i].ffn.d_ff;
        CHECK(hearth_model_get_layer_storage(s->model, i, &stats));
        CHECK((stats.n_hit + stats.n_miss == 0) == whole);
    }
}

static void check_divisions(const char *device, int stride)
{
    for (int i = 0; i < N_DIVISION; i += stride) {
        CLEANUP(end) subject s;
        if (!begin(&s, &divisions[i], device)) return;
        static const uint64_t more[] = {0, 100 << 10, 64 << 20};
        for (int k = 0; k < 3; k++) {
            if (open_model(&s, 1, more[k])) tell(&s, "with a store");
            if (s.session) check_levels(&s);
            close_model(&s);
        }
    }
}

TEST(three_levels_have_the_bits_of_one) { check_divisions("null", 1); }
TEST(three_levels_have_the_bits_of_one_on_a_simulated_gpu) { check_divisions(SIM_GPU, test_is_long() ? 1 : 3); }
TEST(three_levels_have_the_bits_of_one_on_vulkan) { check_divisions("vulkan:0", test_is_long() ? 1 : 3); }

/* Experts from the store behind dense layers on the device: the bits of the same placement with all else in memory. */
TEST(experts_are_streamed_behind_dense_layers_on_a_device)
{
    static const char *const models[] = {"dots1", "glm4moe", "deepseek", "ernie4_5-moe"};
    static const division one = {"one layer", WHOLE, 1, {0}, false, false, HEARTH_SELECTOR_AUTO, {0}};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        char name[60];
        snprintf(name, sizeof name, "golden/arch/%s.gguf", models[i]);
        CLEANUP(end) subject s = {.is = &one, .device = "null", .placement = "layers:1"};
        const char *path = test_data(name);
        if (!path) continue;
        snprintf(s.path, sizeof s.path, "%s", path);
        for (uint32_t t = 0; t < N_ID; t++) s.ids[t] = (int32_t)(t * 37 % 250);
        hearth_model_options o = options_of(&s, 0);
        CHECK_OK(hearth_model_open(path, &o, &s.model, err));
        const engine_setting setting = {.n_thread = 2, .n_batch = N_ROW, .kv = HEARTH_KV_F16};
        s.expected = s.model ? engine_model_logits(s.model, &setting, s.ids, N_ID) : NULL;
        s.n_vocab = s.model ? test_model_info(s.model).n_vocab : 0;
        close_model(&s);
        if (!s.expected || !open_model(&s, 1, 0)) continue;
        tell(&s, "with experts on storage");
        CHECK(test_model_info(s.model).n_streamed_max < test_model_info(s.model).n_streamed);
    }
}

/* ---- loss ---------------------------------------------------------------------------------------------- */

/* The n-th call of the device ends so. Returns whether the device was left. */
static bool tell_with_fault(subject *s, uint64_t n, uint64_t n_call, hearth_status with, uint64_t more)
{
    bool left = false;
    if (open_model(s, 1, more)) {
        test_log_start();
        hth_device_inject_faults(s->model->devices[0].device, n, n_call, with);
        tell(s, "with a device that fails");
        tell(s, "again");
        left = !hth_engine_has_gpu(s->model);
        if (left) CHECK_INT(test_model_info(s->model).n_streamed, s->model->n_item);
        test_log_stop();
        CHECK_INT(test_n_warning("continuing on the CPU"), left);
        CHECK_INT(test_n_warning(""), left);
    }
    close_model(s);
    return left;
}

static void lose_everywhere(const char *device, int n_division, uint64_t stride)
{
    for (int i = 0; i < n_division; i++) {
        CLEANUP(end) subject s;
        uint64_t n = 1;
        if (!begin(&s, &divisions[i], device)) return;
        while (n < MAX_CALLS && tell_with_fault(&s, n, 1, HEARTH_ERROR_DEVICE, n % 2 * (100 << 10)) &&
               test_n_failed() == 0)
            n += stride;
        CHECK(n > 25 && n < MAX_CALLS);
        printf("     %s: %s: up to call %llu\n", device, s.is->name, (unsigned long long)n);
    }
}

TEST(a_text_goes_on_wherever_the_device_is_lost) { lose_everywhere("null", N_DIVISION, test_is_long() ? 1 : 47); }
TEST(a_text_goes_on_where_a_simulated_gpu_is_lost) { lose_everywhere(SIM_GPU, 1, test_is_long() ? 1 : 61); }
TEST(a_text_goes_on_where_vulkan_is_lost)
{
    lose_everywhere("vulkan:0", test_is_long() ? N_DIVISION : 1, test_is_long() ? 7 : 197);
}

TEST(a_device_that_refuses_repeatedly_is_left)
{
    CLEANUP(end) subject s;
    if (!begin(&s, &divisions[0], "null")) return;
    for (uint64_t n = 1; n < 60; n += 9) {
        CHECK(!tell_with_fault(&s, n, 2, HEARTH_ERROR_MEMORY, 0));
        CHECK(tell_with_fault(&s, n, 3, HEARTH_ERROR_MEMORY, 0));
    }
}

/* Memory of the device that is missing while the model is opened: less lies there, or nothing. */
TEST(less_on_the_device_means_more_in_the_store)
{
    int n_left = 0, n_less = 0;
    CLEANUP(end) subject s;
    if (!begin(&s, &divisions[4], "null")) return;
    for (uint64_t n = 2; n < 300 && test_n_failed() == 0; n += test_is_long() ? 1 : 23) {
        const hearth_model_options o = options_of(&s, 1);
        test_log_start();
        hth_engine_set_store_memory(0);
        hth_device_inject_fault_on_open(n, HEARTH_ERROR_MEMORY);
        CHECK_OK(hearth_model_open(s.path, &o, &s.model, err));
        hth_device_inject_fault_on_open(0, HEARTH_OK);
        hth_engine_set_store_memory(UINT64_MAX);
        test_log_stop();
        s.session = s.model ? open_session(&s) : NULL;
        if (!s.session) return;
        n_left += !s.model->gpu, n_less += test_n_warning("less is placed there") > 0;
        tell(&s, "with less on the device");
        close_model(&s);
    }
    CHECK(n_less > 5);
    printf("     less there: %d times, nothing: %d\n", n_less, n_left);
}

/* Others need the device's memory in mid-run, again and again, until nothing is left there. */
TEST(a_device_that_others_need_gives_rows_back)
{
    for (int i = 0; i < 5; i += 2) {
        CLEANUP(end) subject s;
        if (!begin(&s, &divisions[i], "null") || !open_model(&s, 1, i == 0 ? 0 : 200 << 10)) return;
        test_log_start();
        for (uint32_t round = 0; round < 5; round++) {
            for (int k = 0; k < 10; k++) tell(&s, "with less and less on the device"); /* 300 tokens: two looks */
            if (!hth_engine_has_gpu(s.model)) break;
            CHECK_INT(s.model->n_evicted, round);
            s.model->devices[0].device->limit = hth_device_state(s.model->devices[0].device).used * 8 / 10;
        }
        CHECK(!hth_engine_has_gpu(s.model) && s.model->n_evicted > 0);
        CHECK_INT(test_model_info(s.model).n_streamed, s.model->n_item);
        test_log_stop();
        CHECK(test_n_warning("continuing on the CPU") == 1);
    }
}

/* The n-th allocation while the model is opened fails: an error, or no difference. False: there are fewer. */
static bool open_without_memory(subject *s, uint64_t n)
{
    const hearth_model_options o = options_of(s, 1);
    hearth_error why = {0};
    uint64_t before = hth_alloc_count();
    hth_engine_set_store_memory(0);
    hth_alloc_fail_at(n, 0);
    hearth_status st = hearth_model_open(s->path, &o, &s->model, &why);
    hth_alloc_fail_at(0, 0);
    hth_engine_set_store_memory(UINT64_MAX);
    bool reached = hth_alloc_count() - before >= n;
    if (st != HEARTH_OK && !CHECK_INT(st, HEARTH_ERROR_MEMORY)) printf("     allocation %d: %s\n", (int)n, why.message);
    s->session = s->model ? open_session(s) : NULL;
    if (s->session) tell(s, "after an allocation that failed");
    close_model(s);
    return reached;
}

/* The device is lost, and then the n-th allocation or read of what comes back fails: an error of the step, which can be
 * repeated. False: there are fewer. */
static bool come_back_without(subject *s, uint64_t n, bool read)
{
    hearth_error why = {0};
    if (!open_model(s, 1, 0)) return false;
    CHECK_OK(eval(s, 0, 9, err));
    test_log_start();
    hth_device_inject_fault(s->model->devices[0].device, 1, HEARTH_ERROR_DEVICE);
    if (read) hth_gguf_fail_read_at(n, HTH_READ_FAILS);
    else hth_alloc_fail_at(n, 0);
    hearth_status st = eval(s, 9, 1, &why);
    hth_gguf_fail_read_at(0, HTH_READ_FAILS);
    hth_alloc_fail_at(0, 0);
    test_log_stop();
    if (st != HEARTH_OK) CHECK_INT(st, read ? HEARTH_ERROR_IO : HEARTH_ERROR_MEMORY);
    CHECK(!hth_engine_has_gpu(s->model));
    tell(s, "after a failure while weights came back");
    close_model(s);
    return st != HEARTH_OK;
}

TEST(failures_while_levels_are_made_or_changed_are_errors_and_no_more)
{
    CLEANUP(end) subject s;
    if (!begin(&s, &divisions[0], "null")) return;
    uint64_t n = 1, held = hth_alloc_in_use(), n_back[2] = {1, 1};
    for (; n < MAX_CALLS && open_without_memory(&s, n) && test_n_failed() == 0;) {
        if (!CHECK_INT(hth_alloc_in_use(), held)) break;
        n += test_is_long() ? 1 : 83;
    }
    for (int read = 0; read < 2; read++)
        while (come_back_without(&s, n_back[read], read == 1) && test_n_failed() == 0) n_back[read]++;
    CHECK(n > 200 && n < MAX_CALLS && n_back[0] > 2 && n_back[1] > 2);
    CHECK_INT(hth_alloc_in_use(), held);
    printf("     %llu allocations; of what comes back %llu, and %llu reads\n", (unsigned long long)n,
           (unsigned long long)n_back[0] - 1, (unsigned long long)n_back[1] - 1);
}

/* Sessions in threads of their own leave a device, one in mid-step while the other has left already. */
static void *tell_in_thread(void *arg)
{
    tell(arg, "beside another session");
    return NULL;
}

TEST(sessions_share_three_levels_and_their_loss)
{
    for (uint64_t n = 1; n < 60; n += test_is_long() ? 1 : 23) {
        CLEANUP(end) subject s;
        pthread_t threads[2];
        if (!begin(&s, &divisions[n % 2 * 2], "null") || !open_model(&s, 1, 0)) return;
        subject other = s;
        other.session = open_session(&s);
        test_log_start();
        hth_device_inject_fault(s.model->devices[0].device, n, HEARTH_ERROR_DEVICE);
        pthread_create(&threads[0], NULL, tell_in_thread, &s);
        pthread_create(&threads[1], NULL, tell_in_thread, &other);
        for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
        test_log_stop();
        CHECK(!hth_engine_has_gpu(s.model));
        hearth_session_close(other.session);
    }
}

/* ---- reads that fail ------------------------------------------------------------------------------------- */

/* Every read of each token, while the device waits for the host or works: an error of that step alone. */
static void fail_reads(const division *d, const char *device, uint64_t stride)
{
    CLEANUP(end) subject s;
    uint64_t n_fault = 0, n_error = 0;
    if (!begin(&s, d, device) || !open_model(&s, 1, 0)) return;
    CHECK_OK(eval(&s, 0, 2, err));
    test_log_start();
    for (uint32_t t = 2, n_tok; t + 6 < N_ID && test_n_failed() == 0; t += n_tok) {
        bool had_fault = true;
        n_tok = 1 + t % 6;
        for (uint64_t n = 1; had_fault && test_n_failed() == 0; n += stride) {
            const hth_disk_faults faults = {
                .first = n, .n = UINT64_MAX, .fault = HTH_FAULT_ERROR, .error = ENODEV};
            hearth_error why = {0};
            hth_disk_set_faults(faulty, &faults);
            hearth_status st = eval(&s, t, n_tok, &why);
            had_fault = hth_disk_n_fault(faulty) > 0;
            hth_disk_set_faults(faulty, &no_faults);
            n_fault += had_fault, n_error += st != HEARTH_OK;
            if (st != HEARTH_OK)
                CHECK(st == HEARTH_ERROR_IO && strstr(why.message, ": cannot read at byte "));
            if (st != HEARTH_OK) CHECK_INT(hearth_session_position(s.session), t);
            if (st != HEARTH_OK) CHECK_OK(eval(&s, t, n_tok, err));
            check_bits(&s, "after reads that failed");
        }
    }
    test_log_stop();
    CHECK(n_error > 5 && hth_engine_has_gpu(s.model) && test_n_warning("CPU") == 0);
    printf("     %s: %s: %llu faults, of these %llu errors\n", device, d->name, (unsigned long long)n_fault,
           (unsigned long long)n_error);
}

TEST(reads_that_fail_while_the_device_waits_end_a_step_alone)
{
    for (int i = 0; i < 6; i++) fail_reads(&divisions[i], "null", test_is_long() ? 1 : 11);
}
TEST(reads_that_fail_while_vulkan_waits_end_a_step_alone)
{
    for (int i = 0; i < 2; i++) fail_reads(&divisions[i], "vulkan:0", test_is_long() ? 1 : 29);
}

/* A model that is closed behind such a step does not wait for ever. */
TEST(a_model_closes_after_a_step_that_failed)
{
    static const char *const devices[] = {"null", SIM_GPU, "vulkan:0"};
    const hth_disk_faults faults = {.first = 1, .n = UINT64_MAX, .fault = HTH_FAULT_ERROR, .error = ENODEV};
    for (int i = 0; i < 3; i++) {
        CLEANUP(end) subject s;
        if (!begin(&s, &divisions[i % 2], devices[i]) || !open_model(&s, 1, 0)) continue;
        hth_disk_set_faults(faulty, &faults);
        CHECK_FAILS(eval(&s, 0, 4, err), HEARTH_ERROR_IO, "cannot read at byte ");
    }
}

/* The copies of shared pages that a step queued do not outlive it, also where the rows of its tokens cannot be read. */
TEST(forks_whose_tokens_cannot_be_read_leave_no_copies)
{
    const hth_disk_faults faults = {.first = 1, .n = UINT64_MAX, .fault = HTH_FAULT_ERROR, .error = ENODEV};
    CLEANUP(end) subject s;
    if (!begin(&s, &divisions[5], "null") || !open_model(&s, 1, 0)) return;
    CHECK(s.model->streamed.tables[HTH_TABLE_EMBEDDING].row_size > 0);
    CHECK_OK(eval(&s, 0, 5, err));
    for (int i = 0; i < 50 && test_n_failed() == 0; i++) {
        CLOSED(hearth_session) *fork = NULL;
        hth_kv_copy copy;
        CHECK_OK(hearth_session_fork(s.session, &fork, err));
        hth_disk_set_faults(faulty, &faults);
        CHECK_FAILS(hearth_session_eval(fork, &s.ids[5], 1, err), HEARTH_ERROR_IO, "cannot read at byte ");
        hth_disk_set_faults(faulty, &no_faults);
        for (int class = 0; class < HTH_N_KV_POSITION_CLASS; class++)
            CHECK(!hth_kv_pool_next_copy(s.model->kv_pools[HEARTH_KV_F16], (hth_kv_class)class, &copy));
    }
    CHECK_OK(eval(&s, 5, 1, err));
    check_bits(&s, "after forks that failed");
}

/* A step that the device refuses is run again at once: none of its rows is being read then. */
TEST(forks_whose_copies_are_refused_are_evaluated_again)
{
    CLEANUP(end) subject s;
    if (!begin(&s, &divisions[5], "null") || !open_model(&s, 1, 0)) return;
    CHECK_OK(eval(&s, 0, 5, err));
    hth_disk_set_faults(faulty, &(hth_disk_faults){.delay_ns = 20000000});
    for (int i = 0; i < 3 && test_n_failed() == 0; i++) {
        CLOSED(hearth_session) *fork = NULL;
        CHECK_OK(hearth_session_fork(s.session, &fork, err));
        hth_device_inject_faults(s.model->devices[0].device, 1, 1, HEARTH_ERROR_MEMORY);
        CHECK_OK(hearth_session_eval(fork, &s.ids[5], 1, err));
        CHECK(memcmp(hearth_session_logits(fork), s.expected + 5 * s.n_vocab, s.n_vocab * sizeof(float)) == 0);
    }
    CHECK(hth_engine_has_gpu(s.model));
}

/* ---- cancelling ---------------------------------------------------------------------------------------------- */

/* Sets the flag after a while. */
static void *cancel_soon(void *arg)
{
    subject *s = arg;
    usleep(3000);
    s->cancel = 1;
    return NULL;
}

/* While the host waits for the disk, whose results take longer. */
TEST(a_step_that_waits_for_the_disk_is_cancelled)
{
    static const char *const devices[] = {"null", "vulkan:0"};
    for (int i = 0; i < 2; i++) {
        CLEANUP(end) subject s;
        if (!begin(&s, &divisions[0], devices[i]) || !open_model(&s, 1, 0)) continue;
        CHECK_OK(eval(&s, 0, 5, err));
        for (int k = 0; k < 5; k++) {
            pthread_t thread;
            hearth_error why = {0};
            hth_disk_set_faults(faulty, &(hth_disk_faults){.delay_ns = 30000000});
            pthread_create(&thread, NULL, cancel_soon, &s);
            CHECK_INT(eval(&s, 5, 4, &why), HEARTH_ERROR_CANCELLED);
            pthread_join(thread, NULL);
            CHECK_INT(hearth_session_position(s.session), 5);
            hth_disk_set_faults(faulty, &no_faults);
            s.cancel = 0;
            CHECK_OK(eval(&s, 5, 4, err));
            check_bits(&s, "after a cancelled step");
        }
        CHECK(hth_engine_has_gpu(s.model));
    }
}

/* ---- limits -------------------------------------------------------------------------------------------------- */

/* The least that a refusal names, in bytes. */
static uint64_t least_of(const subject *s, const char *words)
{
    hearth_error error = {0};
    hearth_model *model = NULL;
    const hearth_model_options o = options_of(s, 1);
    CHECK_INT(hearth_model_open(s->path, &o, &model, &error), HEARTH_ERROR_ARGUMENT);
    if (!strstr(error.message, words)) test_fail(__FILE__, __LINE__, "'%s' lacks '%s'", error.message, words);
    const char *end_of = strstr(error.message, " bytes)"), *p = end_of;
    while (p && p > error.message && p[-1] != '(') p--;
    return end_of ? strtoull(p, NULL, 10) : 0;
}

/* What is counted, in bytes. */
static uint64_t counted(const hearth_model *m)
{
    const hth_budget *b = &m->budget;
    uint64_t sessions = b->announced > b->sessions ? b->announced : b->sessions;
    return b->fixed + sessions + (m->streamed.store ? hth_store_memory(m->streamed.store) : 0);
}

/* Bytes of matrices in memory that no store has. */
static uint64_t loaded(const hearth_model *m)
{
    uint64_t size = m->weights_size;
    for (uint32_t i = 0; i < m->n_reloaded; i++) size += m->reloaded[i].size;
    return size;
}

static void check_limit(const division *d, const char *device, const char *words)
{
    enum { ROOM = 8 << 20 };
    CLEANUP(end) subject s;
    if (!begin(&s, d, device)) return;
    uint64_t limit = least_of(&s, words) + ROOM;
    if (!open_model(&s, limit, UINT64_MAX)) return;
    const hth_budget *b = &s.model->budget;
    tell(&s, "within a limit");
    CHECK(counted(s.model) <= limit && b->fixed >= loaded(s.model) + hth_engine_device_size(s.model));
    uint64_t fixed = b->fixed, before = loaded(s.model);
    test_log_start();
    hth_device_inject_fault(s.model->devices[0].device, 1, HEARTH_ERROR_DEVICE);
    tell(&s, "within a limit, after a loss");
    test_log_stop();
    CHECK(!hth_engine_has_gpu(s.model) && counted(s.model) <= limit);
    CHECK(loaded(s.model) > before && b->fixed - fixed == loaded(s.model) - before);
}

TEST(a_limit_holds_beside_a_device_and_after_its_loss)
{
    static const division *const some[] = {&divisions[0], &divisions[2], &divisions[3], &divisions[6]};
    for (int i = 0; i < 4; i++) {
        check_limit(some[i], "null", "; gpu.vram, n_ctx and n_batch make it less");
        check_limit(some[i], SIM_GPU, "; n_ctx and n_batch make it less");
    }
    check_limit(&divisions[0], "vulkan:0", "; gpu.vram, n_ctx and n_batch make it less");
}

/* Memory of a GPU of its own is not counted, that of a device on this machine is. */
TEST(a_devices_memory_is_counted_where_it_is_this_machines)
{
    static const char *const devices[] = {"null", SIM_GPU, "vulkan:0"};
    for (int i = 0; i < 3; i++) {
        CLEANUP(end) subject s;
        if (!begin(&s, &divisions[2], devices[i]) || !open_model(&s, 1, 0)) continue;
        uint64_t used = hth_device_state(s.model->devices[0].device).used, here = hth_engine_device_size(s.model);
        CHECK(used > KIB && here == (i == 1 ? 0 : used));
        if (i != 1) CHECK(s.model->budget.base > used && s.model->budget.device == used);
    }
}

/* A model that fits, also once all of it has come back, needs no store. */
TEST(a_model_that_fits_beside_a_device_is_not_streamed)
{
    CLEANUP(end) subject s;
    if (!begin(&s, &divisions[2], SIM_GPU) || !open_model(&s, (uint64_t)1 << 33, UINT64_MAX)) return;
    CHECK(s.model->streamed.store == NULL && s.model->streamed.reader == NULL);
    test_log_start();
    tell(&s, "in memory");
    hth_device_inject_fault(s.model->devices[0].device, 3, HEARTH_ERROR_DEVICE);
    tell(&s, "in memory, after a loss");
    test_log_stop();
    CHECK(s.model->streamed.store == NULL && counted(s.model) <= s.model->budget.limit);
}

/* What comes back may not fit: an error of each step, until it does. */
TEST(weights_that_do_not_fit_when_they_come_back_are_an_error)
{
    for (int i = 0; i < 2; i++) {
        CLEANUP(end) subject s;
        if (!begin(&s, &divisions[i == 0 ? 0 : 3], SIM_GPU)) return;
        if (!open_model(&s, least_of(&s, "") + (8 << 20), UINT64_MAX)) return;
        hth_budget *b = &s.model->budget;
        uint64_t limit = b->limit;
        CHECK_OK(eval(&s, 0, 4, err));
        b->limit = b->fixed + b->announced + b->cap.min + KIB;
        test_log_start();
        hth_device_inject_fault(s.model->devices[0].device, 1, HEARTH_ERROR_DEVICE);
        for (int k = 0; k < 3; k++)
            CHECK_FAILS(eval(&s, 4, 2, err), HEARTH_ERROR_MEMORY,
                        "with what comes back from the device it needs |the limit is ");
        test_log_stop();
        CHECK_INT(test_n_warning("continuing on the CPU"), 1);
        CHECK_INT(hearth_session_position(s.session), 4);
        b->limit = limit;
        CHECK_OK(eval(&s, 4, 2, err));
        check_bits(&s, "after there was memory");
    }
}
