/* A model on two devices, each with layers of its own, divided with the CPU or whole: wherever the layers are, and
 * whichever of the devices is lost at whichever token, quantised weights give the bits of the CPU, and what is on the
 * other device stays in use. */
#include "base/alloc.h"
#include "engine/engine.h"
#include "support/device/hybrid.h"
#include "support/engine.h"
#include "support/test.h"

enum { N_PROMPT = 12, N_PREDICT = 20, N_TEXT = N_PREDICT + 1, N_CTX = 48, N_ROW = 5, MAX_VOCAB = 2048, N_PLACEMENT = 50 };

/* ---- files -------------------------------------------------------------------------------------- */

enum { STORYTELLER, BAMBOO, N_FILE, N_SELECTOR = 4 };
typedef struct text {
    float logits[N_TEXT][MAX_VOCAB]; /* behind the prompt, and behind each of the likeliest tokens */
} text;
typedef struct subject {
    char path[512];
    uint32_t n_layer, d_ff, n_vocab;
    text *expected[N_SELECTOR + 1]; /* of the CPU, by selector; NULL: not yet */
} subject;
static const hearth_selector selectors[N_SELECTOR] = {HEARTH_SELECTOR_DENSE, HEARTH_SELECTOR_GATE,
                                                      HEARTH_SELECTOR_PREDICTOR, HEARTH_SELECTOR_THRESHOLD};

typedef struct file_set {
    subject all[N_FILE];
} file_set;

static bool open_files(file_set *f)
{
    subject *files = f->all;
    files[STORYTELLER] = (subject){.n_layer = 6, .d_ff = 768, .n_vocab = 2048};
    files[BAMBOO] = (subject){.n_layer = 2, .d_ff = 1024, .n_vocab = 288};
    snprintf(files[STORYTELLER].path, sizeof files->path, "%s", test_scratch("storyteller.gguf"));
    snprintf(files[BAMBOO].path, sizeof files->path, "%s", test_scratch("bamboo.gguf"));
    return hybrid_pack_storyteller("q4_0", files[STORYTELLER].path) && hybrid_pack_powerinfer("bamboo", files[BAMBOO].path);
}

static void close_files(file_set *f)
{
    subject *files = f->all;
    for (int i = 0; i < N_FILE; i++) {
        for (int k = 0; k <= N_SELECTOR; k++) free(files[i].expected[k]);
        remove(files[i].path);
    }
}

/* ---- texts -------------------------------------------------------------------------------------- */

/* A device that is lost before a token; device below 0: none. */
typedef struct loss {
    int device, token;
} loss;

static void keep(const subject *f, const hearth_session *s, float *to)
{
    const float *at = hearth_session_logits(s);
    if (CHECK(at != NULL)) memcpy(to, at, f->n_vocab * sizeof *to);
}

static int32_t likeliest(const subject *f, const float *logits)
{
    int32_t best = 0;
    for (int32_t i = 1; i < (int32_t)f->n_vocab; i++)
        if (logits[i] > logits[best]) best = i;
    return best;
}

static void tell(const subject *f, hearth_model *model, loss at, text *to)
{
    static const int32_t prompt[N_PROMPT] = {1, 60, 70, 80, 90, 100, 61, 71, 81, 5, 17, 200};
    const hearth_session_options so = {.n_ctx = N_CTX, .n_batch = N_PROMPT, .n_thread = 1};
    CLOSED(hearth_session) *s = OPENED(hearth_session, model, &so);
    if (!s) return;
    CHECK_OK(hearth_session_eval(s, prompt, N_PROMPT, err));
    keep(f, s, to->logits[0]);
    for (int i = 0; i < N_PREDICT; i++) {
        int32_t id = likeliest(f, to->logits[i]);
        if (at.device >= 0 && at.token == i)
            hth_device_inject_fault(model->devices[at.device].device, 1, HEARTH_ERROR_DEVICE);
        CHECK_OK(hearth_session_eval(s, &id, 1, err));
        keep(f, s, to->logits[i + 1]);
    }
}

static const text *expected_of(subject *f, hearth_selector selector)
{
    const hearth_model_options o = {.n_thread = 1, .selector = selector};
    if (f->expected[selector]) return f->expected[selector];
    CLOSED(hearth_model) *model = OPENED(hearth_model, f->path, &o);
    f->expected[selector] = calloc(1, sizeof(text));
    if (model && f->expected[selector]) tell(f, model, (loss){.device = -1}, f->expected[selector]);
    return f->expected[selector];
}

static bool is_same(const subject *f, const text *a, const text *b)
{
    for (int i = 0; i < N_TEXT; i++)
        if (memcmp(a->logits[i], b->logits[i], f->n_vocab * sizeof(float)) != 0) return false;
    return true;
}

/* ---- placements --------------------------------------------------------------------------------- */

typedef struct drawn {
    subject *file;
    hearth_selector selector;
    hth_placement p;
    uint32_t n_hot[HYBRID_MAX_LAYERS];
} drawn;

static void draw_stream(test_random *r, hth_placement_device *d)
{
    static const uint32_t from[] = {0, 2, 4}, shares[] = {0, 24, 40};
    d->streams[0].n_tok = from[test_random_below(r, 3)];
    if (d->streams[0].n_tok > 0) d->streams[0].cpu_share = shares[test_random_below(r, 3)];
    d->submit_on_demand = test_random_below(r, 2) == 1;
}

/* Layers on both devices, or, one time in four, any number on each; most of them divided. */
static void draw(test_random *r, subject *file, hearth_selector selector, drawn *to)
{
    *to = (drawn){.file = file, .selector = selector};
    hth_placement *p = &to->p;
    p->n_layer = file->n_layer - (test_random_below(r, 3) == 0 ? test_random_below(r, file->n_layer - 1) : 0);
    p->head = p->n_layer == file->n_layer && test_random_below(r, 4) > 0;
    p->n_hot = to->n_hot;
    for (uint32_t i = 0; i < p->n_layer; i++)
        to->n_hot[i] = test_random_below(r, 4) == 0 ? file->d_ff : 256 * test_random_below(r, file->d_ff / 256 + 1);
    p->devices[0].end_layer = test_random_below(r, 4) == 0 || p->n_layer == 1
                                  ? test_random_below(r, p->n_layer + 1)
                                  : 1 + test_random_below(r, p->n_layer - 1);
    for (int i = 0; i < 2; i++) draw_stream(r, &p->devices[i]);
    p->host_kv = test_random_below(r, 3) == 0;
}

static hearth_model *open_placed(drawn *d, const char *devices)
{
    const char *path = test_scratch("placement.gguf");
    if (!hybrid_write_placement(d->file->path, devices, &d->p, path)) return NULL;
    const hearth_model_options o = {
        .n_thread = 1,
        .selector = d->selector,
        .gpu = {.device = devices, .n_ctx = 2 * N_CTX, .n_batch = N_ROW, .placement = path}};
    hearth_model *model = OPENED(hearth_model, d->file->path, &o);
    remove(path);
    if (!model || !CHECK(model->gpu != NULL)) return model;
    CHECK_INT(hth_gpu_end_layer(model->gpu), d->p.n_layer);
    CHECK_INT(hth_gpu_has_head(model->gpu), d->p.head);
    engine_check_bit_exact(model);
    bool on_both = d->p.devices[0].end_layer > 0 && d->p.devices[0].end_layer < d->p.n_layer;
    CHECK_INT(hth_gpu_next(model->gpu) != NULL, on_both);
    return model;
}

/* Whether the device has layers. */
static bool has_layers(const drawn *d, int device)
{
    uint32_t end = d->p.devices[0].end_layer;
    return device == 0 ? end > 0 : end < d->p.n_layer;
}

/* Afterwards the other device has layers. */
static void check_stays(const hearth_model *model, const drawn *d, loss at, bool lost)
{
    hearth_model_info info = test_model_info(model);
    CHECK_INT(hth_device_state(model->devices[at.device].device).lost, lost);
    CHECK_INT(lost, has_layers(d, at.device));
    CHECK_INT(info.gpu_note[0] != '\0', lost);
    if (!CHECK(hth_engine_has_gpu(model))) return;
    for (const hth_gpu *g = model->gpu; g && lost; g = hth_gpu_next(g))
        CHECK(hth_gpu_get_device(g) == model->devices[1 - at.device].device);
}

static void run(drawn *d, const char *devices, loss at, text *got)
{
    const text *expected = expected_of(d->file, d->selector);
    CLOSED(hearth_model) *model = open_placed(d, devices);
    if (!model || !expected) return;
    test_log_start();
    memset(got, 0, sizeof *got);
    tell(d->file, model, at, got);
    test_log_stop();
    bool lost = at.device >= 0 && test_n_warning("it goes on") == 1;
    if (at.device >= 0) check_stays(model, d, at, lost);
    if (!is_same(d->file, got, expected))
        test_fail(__FILE__, __LINE__, "%s, %u of %u layers on the first, device %d lost at token %d: other bits", devices,
                  d->p.devices[0].end_layer, d->p.n_layer, at.device, at.token);
}

/* Each placement without a loss, and with the loss of either device at each token; not `all`: with one loss. */
static void check_placements(const char *devices, int n, bool all)
{
    static text got;
    CLEANUP(close_files) file_set files = {0};
    test_random r = {50};
    int n_on_both = 0, n_run = 0;
    if (!open_files(&files)) return;
    for (int i = 0; i < n; i++) {
        drawn d;
        uint64_t held;
        draw(&r, &files.all[i % N_FILE], selectors[i / N_FILE % N_SELECTOR], &d);
        n_on_both += has_layers(&d, 0) && has_layers(&d, 1);
        expected_of(d.file, d.selector);
        held = hth_alloc_in_use();
        run(&d, devices, (loss){.device = -1}, &got);
        loss one = {i / N_FILE % 2, (int)test_random_below(&r, N_PREDICT)};
        for (int k = 0; k < (all ? 2 * N_PREDICT : 1); k++, n_run++)
            run(&d, devices, all ? (loss){k % 2, k / 2} : one, &got);
        if (!CHECK_INT(hth_alloc_in_use(), held)) break;
    }
    printf("     %s: %d placements, %d of them on both, %d losses\n", devices, n, n_on_both, n_run);
    CHECK(n_on_both > n / 2);
}

TEST(placements_on_two_devices_keep_the_text_when_either_is_lost)
{
    check_placements("null,null", test_is_sanitized() && !test_is_long() ? 10 : N_PLACEMENT, test_is_long());
}

TEST(a_simulated_device_beside_another_keeps_the_text)
{
    char devices[600];
    snprintf(devices, sizeof devices, "sim:%s/bench/devices/story.sim,null", HEARTH_SOURCE_DIR);
    check_placements(devices, 8, test_is_long());
}

/* With several drivers the first two, else two devices of one. */
TEST_LONG_IF_SANITIZED(devices_of_vulkan_beside_each_other_keep_the_text)
{
    hth_device_info found[HTH_MAX_DEVICE];
    char note[200];
    size_t n;
    hth_device_list(found, HTH_MAX_DEVICE, &n, note);
    if (n == 0) test_skip("%s", note[0] ? note : "no Vulkan device");
    else check_placements(n > 1 ? "vulkan:0,vulkan:1" : "vulkan:0,vulkan:0", test_is_long() ? N_PLACEMENT : 3, false);
}

/* ---- evenly ------------------------------------------------------------------------------------- */

/* The layers of the first device are as many as fit; the second has the others, and the head. */
TEST(limits_of_memory_divide_layers_between_devices)
{
    static text got;
    CLEANUP(close_files) file_set files = {0};
    if (!open_files(&files)) return;
    subject *f = &files.all[STORYTELLER];
    for (uint64_t mib = 2; mib <= 4; mib++) {
        const hearth_model_options o = {
            .n_thread = 1,
            .selector = HEARTH_SELECTOR_GATE,
            .gpu = {.device = "null,null", .vrams = {mib << 20, UINT64_MAX}, .n_ctx = N_CTX, .n_batch = N_ROW}};
        CLOSED(hearth_model) *model = OPENED(hearth_model, f->path, &o);
        if (!model || !CHECK(model->gpu != NULL)) return;
        hearth_model_info info = test_model_info(model);
        CHECK(info.gpu_n_layer == f->n_layer && info.gpu_head && info.gpu_neuron_share >= 1.0);
        CHECK(hth_device_state(model->devices[0].device).used <= mib << 20);
        printf("     %llu MiB: %u layers on the first\n", (unsigned long long)mib,
               hth_gpu_get_params(model->gpu)->end_layer);
        CHECK_INT(hth_gpu_next(model->gpu) != NULL, mib < 4);
        tell(f, model, (loss){.device = -1}, &got);
        CHECK(is_same(f, &got, expected_of(f, HEARTH_SELECTOR_GATE)));
    }
}

/* *part: less than all is on the devices, but not nothing. */
static bool check_less(const hearth_model *model, bool failed, bool *part)
{
    hearth_model_info info = test_model_info(model);
    bool whole = info.gpu_n_layer == info.n_layer && info.gpu_head && info.gpu_neuron_share >= 1.0;
    *part = hth_engine_has_gpu(model) && !whole;
    if (!failed) return CHECK(whole);
    return CHECK(hth_engine_has_gpu(model) || strstr(info.gpu_note, "a test made call") != NULL);
}

/* While a model is opened, call n of each of two devices has no memory: less is there, or all where that call is
 * repeated, or nothing with that reason. The text is the same. */
TEST(devices_without_memory_get_less)
{
    static text got;
    CLEANUP(close_files) file_set files = {0};
    if (!open_files(&files)) return;
    subject *f = &files.all[BAMBOO];
    const text *expected = expected_of(f, HEARTH_SELECTOR_GATE);
    const hearth_model_options o = {
        .n_thread = 1,
        .selector = HEARTH_SELECTOR_GATE,
        .gpu = {.device = "null,null", .vrams = {1200 << 10, UINT64_MAX}, .n_ctx = N_CTX, .n_batch = N_ROW}};
    uint64_t held = hth_alloc_in_use(), n = 2;
    int n_part = 0;
    for (bool failed = true; failed && n < 400; n += 3) {
        hth_device_inject_fault_on_open(n, HEARTH_ERROR_MEMORY);
        hearth_model *model = OPENED(hearth_model, f->path, &o);
        failed = hth_device_open_fault_was_hit();
        hth_device_inject_fault_on_open(0, HEARTH_OK);
        if (!model) return;
        bool part;
        memset(&got, 0, sizeof got);
        tell(f, model, (loss){.device = -1}, &got);
        if (!check_less(model, failed, &part) || !CHECK(is_same(f, &got, expected)))
            printf("     call %llu\n", (unsigned long long)n);
        n_part += part;
        hearth_model_close(model);
        if (!CHECK_INT(hth_alloc_in_use(), held)) break;
    }
    CHECK(n > 50 && n < 400);
    CHECK(n_part > 0);
}

/* ---- names -------------------------------------------------------------------------------------- */

TEST(lists_of_devices_that_name_none_or_too_many_are_refused)
{
    static const struct {
        const char *devices;
        uint64_t vram;
        hearth_status status;
        const char *words;
    } cases[] = {
        {"null,", 0, HEARTH_ERROR_UNSUPPORTED, "names of several devices are wanted"},
        {",null", 0, HEARTH_ERROR_UNSUPPORTED, "names of several devices are wanted"},
        {"null,auto", 0, HEARTH_ERROR_UNSUPPORTED, "not 'auto'"},
        {"null,none", 0, HEARTH_ERROR_UNSUPPORTED, "not 'none'"},
        {"null,null,null,null,null", 0, HEARTH_ERROR_UNSUPPORTED, "more than 4 devices"},
        {"null,nil", 0, HEARTH_ERROR_UNSUPPORTED, "nil: there is no such device"},
        {"null", 1 << 20, HEARTH_ERROR_ARGUMENT, "2 limits of memory, and null names 1 device"},
    };
    subject f;
    snprintf(f.path, sizeof f.path, "%s", test_scratch("bamboo.gguf"));
    if (!hybrid_pack_powerinfer("bamboo", f.path)) return;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const hearth_model_options o = {.gpu = {.device = cases[i].devices, .vrams = {0, cases[i].vram}}};
        hearth_model *model = NULL;
        CHECK_FAILS(hearth_model_open(f.path, &o, &model, err), (int)cases[i].status, cases[i].words);
        hearth_model_close(model);
    }
    remove(f.path);
}
