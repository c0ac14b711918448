/* A device of whose memory others want more and more in mid-run: the engine asks for its budget every 256
 * tokens, and leaves part of it, three times at most, then all of it, each time with one line; the text stays
 * that of the CPU. */
#include "base/alloc.h"
#include "convert/pack.h"
#include "device/device_int.h"
#include "engine/engine.h"
#include "file/gguf.h"
#include "support/engine.h"
#include "support/test.h"
#include "support/models/tiny_model.h"

#include <pthread.h>

#define STORYTELLER HEARTH_SOURCE_DIR "/models/storyteller-q8_0.gguf"

enum { N_CTX = 96, N_ROW = 32, N_PROMPT = 60, N_PREDICT = 8, N_ROUND = 18, MAX_VOCAB = 4096 };
enum { MAX_LOGITS = 2 * N_ROUND * (1 + N_PREDICT) };

/* One of 8 GB with these lines more. */
static void write_sim_gpu(const char *path, const char *lines)
{
    size_t n = 0;
    FREED char *sim_gpu = test_read_file(HEARTH_SOURCE_DIR "/bench/devices/8gb.sim", &n);
    if (!sim_gpu) abort();
    FILE *f = fopen(path, "w");
    if (!f) abort();
    fprintf(f, "%s\n%s", sim_gpu, lines);
    fclose(f);
}

/* ---- models ------------------------------------------------------------------------------------- */

typedef struct subject {
    const char *model;
    bool mapped;
    uint32_t n_thread;
} subject;

static hearth_status open_model(const subject *s, const char *device, hearth_model **model, hearth_error *err)
{
    const hearth_model_options o = {
        .n_thread = 1,
        .mmap = s->mapped,
        .gpu = {.device = device, .n_ctx = 4 * N_CTX, .n_batch = N_ROW, .kv = HEARTH_KV_F16}};
    return hearth_model_open(s->model, &o, model, err);
}

static hearth_session *open_session(const hearth_model *model, uint32_t n_thread)
{
    return OPENED(hearth_session, model,
        &(hearth_session_options){.n_ctx = N_CTX, .n_batch = N_ROW, .n_thread = n_thread, .kv = HEARTH_KV_F16});
}

/* ---- texts -------------------------------------------------------------------------------------- */

typedef struct logits {
    size_t n;
    float values[MAX_LOGITS][MAX_VOCAB];
} logits;

static uint32_t n_vocab;

static void keep(logits *to, const hearth_session *s)
{
    const float *at = hearth_session_logits(s);
    if (CHECK(at != NULL) && CHECK(to->n < MAX_LOGITS)) memcpy(to->values[to->n++], at, n_vocab * sizeof *at);
}

static int32_t likeliest(const hearth_session *s)
{
    const float *at = hearth_session_logits(s);
    int32_t best = 0;
    for (int32_t i = 1; at && (uint32_t)i < n_vocab; i++)
        if (at[i] > at[best]) best = i;
    return best;
}

/* What others do to the device before a round. */
typedef struct change {
    int round;
    uint64_t limit; /* bytes that they leave; 0: they lose it */
} change;

static void make_changes(const change *changes, int round, hth_device *device)
{
    for (; changes && changes->round > 0; changes++) {
        if (changes->round != round) continue;
        if (changes->limit == 0) hth_device_inject_fault(device, 1, HEARTH_ERROR_DEVICE);
        else device->limit = changes->limit;
    }
}

/* Round after round of a prompt and what is likeliest behind it; each begins behind some tokens of the last.
 */
static void tell(hearth_session *s, const change *changes, hth_device *device, logits *to)
{
    to->n = 0;
    for (int32_t round = 0; round < N_ROUND; round++) {
        int32_t prompt[N_PROMPT];
        for (int32_t i = 0; i < N_PROMPT; i++) prompt[i] = 1 + (i * 7 + round * 31) % 200;
        make_changes(changes, round, device);
        CHECK_OK(hearth_session_eval(s, prompt, N_PROMPT, err));
        keep(to, s);
        for (int i = 0; i < N_PREDICT; i++) {
            int32_t id = likeliest(s);
            CHECK_OK(hearth_session_eval(s, &id, 1, err));
            keep(to, s);
        }
        CHECK_OK(hearth_session_truncate(s, 8 + (uint32_t)round % 3, err));
    }
}

#define LESS "it goes on with less"

/* ---- shrinking ---------------------------------------------------------------------------------- */

static logits expected, got;

static void tell_on_cpu(const subject *s, logits *to)
{
    CLOSED(hearth_model) *model = OPENED_BY(open_model, hearth_model, s, NULL);
    if (!model) return;
    n_vocab = model->model->hparams.n_vocab;
    CHECK(n_vocab <= MAX_VOCAB);
    CLOSED(hearth_session) *session = open_session(model, s->n_thread);
    if (session) tell(session, NULL, NULL, to);
}

typedef struct schedule {
    const char *name;
    change changes[5];
    int n_less, n_lost; /* warnings that are due */
} schedule;

/* Each budget is asked for before the next one comes: four rounds are more than 256 tokens. */
static const schedule schedules[] = {
    {"never", {{0, 0}}, 0, 0},
    {"a little", {{2, 7000000}}, 1, 0},
    {"three times", {{2, 7000000}, {6, 4500000}, {10, 2600000}}, 3, 0},
    {"four times", {{2, 7000000}, {6, 4500000}, {10, 2600000}, {14, 1200000}}, 3, 1},
    {"to nothing", {{3, 1}}, 0, 1},
    {"and lost behind it", {{2, 3600000}, {9, 0}}, 1, 1},
};

/* Whether all are tried; a sanitizer is four times slower. */
static bool try_all(void)
{
#ifdef __SANITIZE_ADDRESS__
    return test_is_long();
#else
    return true;
#endif
}

/* The first that is tried in every run. */
enum { FOUR_TIMES = 3 };
static size_t first_schedule(void) { return try_all() ? 0 : FOUR_TIMES; }

static uint64_t last_limit(const schedule *plan)
{
    uint64_t limit = UINT64_MAX;
    for (const change *c = plan->changes; c->round > 0; c++) limit = c->limit;
    return limit;
}

/* Memory that others want is theirs; the memory of a lost device belongs to no user. */
static void check_end(const hearth_model *model, const schedule *plan)
{
    hth_device_usage usage = hth_device_state(model->devices[0].device);
    CHECK_INT(hth_engine_has_gpu(model), plan->n_lost == 0);
    if (plan->n_lost == 0) CHECK(usage.used > 0 && usage.used <= last_limit(plan));
    else if (!usage.lost) CHECK_INT(usage.used, 0);
}

/* A driver that loses subnormals is warned of too. */
static void check_warnings(bool flushes, const schedule *plan)
{
    int n = test_n_warning(""), n_less = test_n_warning(LESS), n_lost = test_n_warning("continuing on the CPU");
    if (n_less != plan->n_less || n_lost != plan->n_lost || (n != plan->n_less + plan->n_lost && !flushes))
        test_fail(__FILE__, __LINE__, "%s: %d warnings, %d of less, %d of the CPU", plan->name, n, n_less, n_lost);
}

static void check_text(const logits *said, const char *name)
{
    if (CHECK_INT(said->n, expected.n) && memcmp(said->values, expected.values, sizeof said->values) != 0)
        test_fail(__FILE__, __LINE__, "%s: other bits", name);
}

/* False: there is no such device (skipped). */
static bool shrink(const subject *s, const char *device, const schedule *plan)
{
    hearth_model *model = NULL;
    hearth_error why = {0};
    uint64_t held = hth_alloc_in_use();
    hearth_status st = open_model(s, device, &model, &why);
    if (st == HEARTH_ERROR_UNSUPPORTED) return test_skip("%s", why.message), false;
    CHECK_INT(st, HEARTH_OK);
    hearth_session *session = model ? open_session(model, s->n_thread) : NULL;
    test_log_start();
    if (session && CHECK(hth_engine_has_gpu(model))) {
        tell(session, plan->changes, model->devices[0].device, &got);
        check_end(model, plan);
    }
    test_log_stop();
    check_warnings(model && engine_flushes(model), plan);
    check_text(&got, plan->name);
    hearth_session_close(session);
    hearth_model_close(model);
    CHECK_INT(hth_alloc_in_use(), held);
    return true;
}

static void check_schedules(const subject *s, const char *device, size_t first)
{
    tell_on_cpu(s, &expected);
    for (size_t i = first; i < sizeof schedules / sizeof *schedules; i++)
        if (!shrink(s, device, &schedules[i])) return;
}

/* A packed storyteller; the caller removes it. */
static void pack_storyteller(char path[512])
{
    const hth_pack_options o = {.n_thread = 2};
    hth_pack_result r;
    snprintf(path, 512, "%s", test_scratch("shrinking.gguf"));
    CHECK_OK(hth_pack(STORYTELLER, path, &o, &r, err));
}

/* What a caller was told stays readable while it grows old. */
TEST(a_note_that_was_handed_out_stays_as_it_was)
{
    const subject s = {STORYTELLER, false, 1};
    hearth_model_info before[HTH_MAX_EVICT + 2] = {{0}};
    char was[HTH_MAX_EVICT + 2][400];
    CLOSED(hearth_model) *model = OPENED_BY(open_model, hearth_model, &s, "null");
    for (int i = 0; model && i < HTH_MAX_EVICT + 2; i++) {
        hearth_model_get_info(model, &before[i]);
        snprintf(was[i], sizeof was[i], "%s", before[i].gpu_note);
        CHECK_INT(was[i][0] != 0, i > 0);
        hth_device *device = model->devices[0].device;
        if (i <= HTH_MAX_EVICT) device->limit = hth_device_state(device).used_device / 20 * 19;
        for (int k = 0; k < 2; k++) hth_engine_enforce_vram_budget(model);
    }
    for (int i = 0; model && i < HTH_MAX_EVICT + 2; i++) {
        CHECK_TEXT(before[i].gpu_note, was[i]);
        for (int k = 0; k < i; k++) CHECK(before[k].gpu_note != before[i].gpu_note);
    }
    if (model) CHECK(before[HTH_MAX_EVICT].gpu != NULL && before[HTH_MAX_EVICT + 1].gpu == NULL);
}

/* What other programs take for a moment, or what is little, moves no weights; nor does memory of the host. */
TEST(a_budget_must_be_short_twice_and_by_much)
{
    const subject s = {STORYTELLER, false, 1};
    CLOSED(hearth_model) *model = OPENED_BY(open_model, hearth_model, &s, "null");
    if (!model) return;
    hth_device *d = model->devices[0].device;
    uint32_t before = hth_engine_generation(model);
    const hth_device_usage usage = hth_device_state(d);
    CHECK(usage.used_device > 0 && usage.used_device < usage.used);
    const uint64_t much = usage.used_device / 20 * 19, little = usage.used_device / 100 * 98;
    const struct {
        uint64_t limit;
        bool again;
    } looks[] = {{usage.used_device, false}, {little, false}, {little, false}, {much, true}, {little, false},
                 {much, true},               {usage.limit, false}, {much, true}};
    for (size_t i = 0; i < sizeof looks / sizeof *looks; i++) {
        d->limit = looks[i].limit;
        CHECK_INT(hth_engine_enforce_vram_budget(model), looks[i].again);
        CHECK_INT(hth_engine_generation(model), before);
    }
    CHECK(!hth_engine_enforce_vram_budget(model));
    CHECK_INT(hth_engine_generation(model), before + 1);
    CHECK(hth_engine_has_gpu(model) && hth_device_state(d).used_device < much);
}

TEST(a_plain_model_keeps_its_text_while_the_budget_shrinks)
{
    const subject s = {STORYTELLER, false, 1}, mapped = {STORYTELLER, true, 2};
    check_schedules(&s, "null", first_schedule());
    if (test_is_long()) check_schedules(&mapped, "null", FOUR_TIMES);
}

TEST(a_packed_model_keeps_its_text_while_the_budget_shrinks)
{
    char path[512];
    pack_storyteller(path);
    const subject s = {path, false, 2}, mapped = {path, true, 1};
    check_schedules(&s, "null", test_is_long() ? 0 : FOUR_TIMES + 1);
    if (try_all()) check_schedules(&mapped, "null", FOUR_TIMES);
}

TEST(a_packed_model_keeps_its_text_while_the_budget_of_vulkan_shrinks)
{
    char path[512];
    pack_storyteller(path);
    const subject s = {path, false, 1};
    check_schedules(&s, "vulkan:0", test_is_long() ? FOUR_TIMES : FOUR_TIMES + 2);
}

/* A tied head: the host has the table too, as its kernels like it, which is not as the file has it. */
static void make_tied(char path[512])
{
    enum { WIDE = 1024 };
    CLEANUP(tiny_free) tiny_model m;
    const hth_pack_options o = {.ftype = hth_ftype_find("q8_0"), .pure = true, .n_thread = 1};
    hth_pack_result r;
    tiny_begin(&m);
    tiny_find(&m, "output.weight")->gone = true;
    tiny_set_u32(&m, "llama.feed_forward_length", WIDE);
    for (uint32_t i = 0; i < m.n_tensor; i++)
        for (uint32_t k = 0; k < 2; k++)
            if (strstr(m.tensors[i].name, "ffn_") && m.tensors[i].dim[k] == TINY_D_FF) m.tensors[i].dim[k] = WIDE;
    CLEANUP(gguf_free) gguf_bytes b = tiny_write(&m);
    const char *plain = test_scratch("tied.gguf");
    snprintf(path, 512, "%s", test_scratch("tied-packed.gguf"));
    CHECK(test_write_file(plain, b.data, b.n));
    CHECK_OK(hth_pack(plain, path, &o, &r, err));
}

TEST(a_tied_head_stays_where_neurons_leave)
{
    char path[512];
    make_tied(path);
    const subject s = {path, false, 1};
    tell_on_cpu(&s, &expected);
    CLOSED(hearth_model) *model = OPENED_BY(open_model, hearth_model, &s, "null");
    CLOSED(hearth_session) *session = model ? open_session(model, 1) : NULL;
    if (session) {
        const change changes[] = {{2, hth_device_state(model->devices[0].device).used_device / 20 * 19}, {0, 0}};
        tell(session, changes, model->devices[0].device, &got);
        check_text(&got, "tied");
        CHECK(hth_engine_has_gpu(model) && hth_gpu_get_params(model->gpu)->head && model->n_evicted == 1);
    }
}

/* ---- faults on the way -------------------------------------------------------------------------- */

typedef enum fault { NONE, ALLOCATION, ALL_ALLOCATIONS, READ, CALL_MEMORY, CALL_DEVICE, N_FAULT } fault;
static const char *const fault_names[] = {"none",  "allocations",    "allocations from there on",
                                          "reads", "calls (memory)", "calls (device)"};

static void inject(hearth_model *m, fault f, uint64_t n)
{
    if (f == ALLOCATION || f == ALL_ALLOCATIONS) hth_alloc_fail_at(n, f == ALL_ALLOCATIONS);
    if (f == READ) hth_gguf_fail_read_at(n, HTH_READ_FAILS);
    if (f == CALL_MEMORY) hth_device_inject_fault(m->devices[0].device, n, HEARTH_ERROR_MEMORY);
    if (f == CALL_DEVICE) hth_device_inject_fault(m->devices[0].device, n, HEARTH_ERROR_DEVICE);
}

/* The n-th of these fails in the step in which the model leaves part of its device. Returns how many
 * allocations and calls there are in that step; the text is the CPU's then, or when the step is done again.
 */
static uint64_t fault_while_shrinking(const subject *s, fault f, uint64_t n)
{
    static float whole[MAX_VOCAB];
    hearth_error why = {0};
    int32_t prompt[N_PROMPT];
    uint64_t held = hth_alloc_in_use(), n_done = 0;
    for (int32_t i = 0; i < N_PROMPT; i++) prompt[i] = 1 + i * 3;
    hearth_model *model = OPENED_BY(open_model, hearth_model, s, f == NONE && n == 0 ? NULL : "null");
    hearth_session *session = model ? open_session(model, 1) : NULL;
    for (int i = 0; session && i < 4; i++) {
        CHECK_OK(hearth_session_eval(session, prompt, N_PROMPT, err));
        CHECK_OK(hearth_session_truncate(session, 5, err));
    }
    if (session) {
        hth_device *device = model->devices[0].device;
        uint64_t n_alloc = hth_alloc_count(), n_call = device ? hth_device_n_call(device) : 0;
        if (device) { /* as at the look before */
            device->limit = hth_device_state(device).used_device / 20 * 19;
            model->vram_is_short[0] = true;
        }
        inject(model, f, n);
        hearth_status st = hearth_session_eval(session, prompt, N_PROMPT, &why);
        inject(model, f, 0);
        if (st != HEARTH_OK) {
            CHECK(f != CALL_MEMORY && f != CALL_DEVICE); /* the CPU can do without */
            CHECK(why.message[0] != '\0' && hearth_session_position(session) == 5);
            CHECK_OK(hearth_session_eval(session, prompt, N_PROMPT, err));
        }
        device = model->devices[0].device; /* may be closed by now */
        if (device) n_done = hth_alloc_count() - n_alloc + hth_device_n_call(device) - n_call;
        const float *at = hearth_session_logits(session);
        if (f == NONE && n == 0) memcpy(whole, at, n_vocab * sizeof *at);
        else if (at && memcmp(whole, at, n_vocab * sizeof *at) != 0)
            test_fail(__FILE__, __LINE__, "%s, %llu: other bits", fault_names[f], (unsigned long long)n);
        if (f == NONE && n == 1) CHECK_INT(model->n_evicted, 1);
    }
    hearth_session_close(session);
    hearth_model_close(model);
    CHECK_INT(hth_alloc_in_use(), held);
    return n_done;
}

TEST(faults_while_part_of_a_device_is_left_are_errors_or_change_nothing)
{
    char path[512];
    make_tied(path);
    const subject s = {path, false, 1};
    const uint64_t stride = test_is_long() ? 1 : 61;
    n_vocab = TINY_VOCAB;
    fault_while_shrinking(&s, NONE, 0);
    uint64_t n_all = fault_while_shrinking(&s, NONE, 1);
    CHECK(n_all > 60);
    for (fault f = ALLOCATION; f < N_FAULT; f++)
        for (uint64_t n = 1; n <= n_all; n += stride) fault_while_shrinking(&s, f, n);
    printf("     %llu allocations and calls, one of %llu failed in %d ways\n", (unsigned long long)n_all,
           (unsigned long long)stride, N_FAULT - 1);
}

/* ---- sessions that share it --------------------------------------------------------------------- */

typedef struct teller {
    pthread_t thread;
    hearth_session *session;
    logits said;
} teller;

static void *tell_in_thread(void *arg)
{
    teller *t = arg;
    tell(t->session, NULL, NULL, &t->said);
    return NULL;
}

/* A session that is opened now has positions of its own: those that were there go on alike. */
static void check_late(const hearth_model *model, teller tellers[2])
{
    static const int32_t other[] = {3, 44, 55, 66, 77, 88, 99, 110, 121, 132, 143, 154}, next = 9;
    CLOSED(hearth_session) *late = open_session(model, 1);
    if (late) CHECK_OK(hearth_session_eval(late, other, sizeof other / sizeof *other, err));
    for (int i = 0; i < 2; i++) CHECK_OK(hearth_session_eval(tellers[i].session, &next, 1, err));
    const float *a = hearth_session_logits(tellers[0].session),
                *b = hearth_session_logits(tellers[1].session);
    if (a && b) CHECK_BYTES(a, b, n_vocab * sizeof *a);
}

/* The GPU's own description makes it shrink, under both. */
TEST(threads_with_a_session_each_keep_their_texts_while_a_gpu_budget_shrinks)
{
    static teller tellers[2];
    char path[512], device[600];
    const char *sim_gpu = test_scratch("shrinking.sim");
    snprintf(device, sizeof device, "sim:%s", sim_gpu);
    write_sim_gpu(sim_gpu, "budget_bytes_at = 30:7M\nbudget_bytes_at = 150:3600000\nbudget_bytes_at = 300:2600000\n");
    pack_storyteller(path);
    const subject s = {path, false, 1};
    tell_on_cpu(&s, &expected);
    CLOSED(hearth_model) *model = OPENED_BY(open_model, hearth_model, &s, device);
    test_log_start();
    for (int i = 0; model && i < 2; i++) tellers[i].session = open_session(model, 1);
    if (tellers[0].session && tellers[1].session) {
        for (int i = 0; i < 2; i++) CHECK(pthread_create(&tellers[i].thread, NULL, tell_in_thread, &tellers[i]) == 0);
        for (int i = 0; i < 2; i++) pthread_join(tellers[i].thread, NULL);
        for (int i = 0; i < 2; i++) check_text(&tellers[i].said, "threads");
        CHECK(test_n_warning(LESS) >= 2 && test_n_warning("") == test_n_warning(LESS));
        CHECK(hth_device_state(model->devices[0].device).used <= 3600000);
        check_late(model, tellers);
    }
    test_log_stop();
    for (int i = 0; i < 2; i++) hearth_session_close(tellers[i].session);
}
