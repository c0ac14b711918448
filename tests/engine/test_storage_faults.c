/* Weights that are read when they are needed, by a disk whose n-th read has a fault, for every n of loading and of many
 * tokens: the bits of the model in memory, or one error that names the file, after which the same session gives these
 * bits. The disk is a simulated one whose clock does not wait. */
#include "base/alloc.h"
#include "convert/pack.h"
#include "engine/engine.h"
#include "store/disk_faults.h"
#include "store/disk_simulated.h"
#include "support/device/hybrid.h"
#include "support/engine.h"
#include "support/models/golden.h"
#include "support/test.h"

#include <errno.h>
#include <pthread.h>

enum { N_ID = 200, N_SHORT = 24 };

/* ---- the disk of a model ---------------------------------------------------------------------------- */

static const hth_disk_faults no_faults;
/* Of the model that was opened last: faults, and other ones below them. */
static hth_disk *faulty, *faulty_below;
/* Of the next one. */
static hth_disk_faults faults_at_opening;
static hth_disk_model disk_model;

hearth_status __wrap_hth_disk_open(const char *name, hth_disk **out, hearth_error *err);
hearth_status __wrap_hth_disk_open(const char *name, hth_disk **out, hearth_error *err)
{
    hearth_status st = hth_disk_open_simulated(&disk_model, 1, true, out, err);
    if (st == HEARTH_OK) st = hth_disk_open_faults(*out, &no_faults, out, err);
    faulty_below = *out;
    if (st == HEARTH_OK) st = hth_disk_open_faults(*out, &faults_at_opening, out, err);
    faulty = *out;
    return st;
}

static void reset_disk(void)
{
    disk_model = *hth_disk_model_find("nvme4");
    faults_at_opening = no_faults;
}

typedef struct fault_kind {
    const char *name;
    hth_disk_faults faults; /* first is set for each n */
    bool fails;             /* a step may fail by it */
    bool halved;            /* it is the fault of the second half of a read, the first of which is good */
} fault_kind;

static const fault_kind kinds[] = {
    {.name = "a read of one byte", .faults = {.n = 1, .fault = HTH_FAULT_ONE}},
    {.name = "half a read", .faults = {.n = 1, .fault = HTH_FAULT_HALF}},
    {.name = "a read without its last byte", .faults = {.n = 1, .fault = HTH_FAULT_BUT_ONE}},
    {.name = "EINTR", .faults = {.n = 1, .fault = HTH_FAULT_ERROR, .error = EINTR}},
    {.name = "EAGAIN, three times", .faults = {.n = 3, .fault = HTH_FAULT_ERROR, .error = EAGAIN}},
    {.name = "EIO", .faults = {.n = 1, .fault = HTH_FAULT_ERROR, .error = EIO}},
    {.name = "EIO, three times", .faults = {.n = 3, .fault = HTH_FAULT_ERROR, .error = EIO}},
    {.name = "a full queue", .faults = {.n = 5, .fault = HTH_FAULT_FULL}},
    {.name = "EIO for ever", .faults = {.n = UINT64_MAX, .fault = HTH_FAULT_ERROR, .error = EIO}, .fails = true},
    {.name = "the end of the file", .faults = {.n = 1, .fault = HTH_FAULT_END}, .fails = true},
    {.name = "ENODEV", .faults = {.n = 1, .fault = HTH_FAULT_ERROR, .error = ENODEV}, .fails = true},
    {.name = "ENXIO", .faults = {.n = 1, .fault = HTH_FAULT_ERROR, .error = ENXIO}, .fails = true},
    {.name = "ESTALE", .faults = {.n = 1, .fault = HTH_FAULT_ERROR, .error = ESTALE}, .fails = true},
};
enum { N_KIND = sizeof kinds / sizeof *kinds };

/* ---- a model under test ------------------------------------------------------------------------------- */

typedef struct subject {
    const char *path;
    hearth_selector selector;
    uint32_t n_thread; /* of its sessions */
    int32_t ids[N_ID];
    float *expected; /* [N_ID][n_vocab], in memory */
    size_t n_vocab;
    hearth_model *model;
    hearth_session *session;
    uint64_t n_fault, n_error;
} subject;

static void close_model(subject *s)
{
    hearth_session_close(s->session);
    hearth_model_close(s->model);
    s->session = NULL, s->model = NULL;
}

static void close_subject(subject *s)
{
    close_model(s);
    free(s->expected);
    reset_disk();
}

static hearth_session *open_session(const subject *s)
{
    const hearth_session_options o = {.n_ctx = N_ID, .n_batch = 8, .n_thread = s->n_thread, .kv = HEARTH_KV_F32};
    return OPENED(hearth_session, s->model, &o);
}

/* more: memory of the store above the least. */
static bool open_model(subject *s, uint64_t more)
{
    s->model = engine_open_streamed(s->path, "auto", more, s->selector);
    s->session = s->model ? open_session(s) : NULL;
    return s->session != NULL;
}

/* Its logits in memory. */
static bool find_expected(subject *s, const char *path, hearth_selector selector)
{
    const engine_setting setting = {.n_thread = 1, .n_batch = 8, .kv = HEARTH_KV_F32, .selector = selector};
    test_random r = {7};
    *s = (subject){.path = path, .selector = selector, .n_thread = 1};
    reset_disk();
    for (int i = 0; i < N_ID; i++) s->ids[i] = (int32_t)test_random_below(&r, 250);
    s->expected = path ? engine_logits(path, &setting, s->ids, N_ID, &s->n_vocab) : NULL;
    return s->expected != NULL;
}

/* Evaluates token t again, after those before it. */
static hearth_status eval(subject *s, uint32_t t, hearth_error *err)
{
    hearth_status st = hearth_session_truncate(s->session, t, err);
    return st == HEARTH_OK ? hearth_session_eval(s->session, &s->ids[t], 1, err) : st;
}

static void check_bits(const subject *s, uint32_t t, const char *fault)
{
    const float *logits = hearth_session_logits(s->session);
    if (!logits || memcmp(logits, s->expected + t * s->n_vocab, s->n_vocab * sizeof *logits) != 0)
        test_fail(__FILE__, __LINE__, "%s: other logits after token %u, %s", s->path, t, fault);
}

/* An error names the file; without the fault the token has its bits. */
static void check_result(subject *s, uint32_t t, const fault_kind *kind, hearth_status st, const hearth_error *why)
{
    if (st != HEARTH_OK) {
        s->n_error++;
        if (!kind->fails || st != HEARTH_ERROR_IO || !strstr(why->message, s->path))
            test_fail(__FILE__, __LINE__, "token %u, %s: %s", t, kind->name, why->message);
        CHECK_INT(hearth_session_position(s->session), t);
        CHECK_OK(eval(s, t, err));
    }
    check_bits(s, t, kind->name);
}

/* The fault at every read of a step. */
static void fault_each_read(subject *s, uint32_t t, const fault_kind *kind)
{
    bool had_fault = true;
    for (uint64_t n = 1; had_fault && test_n_failed() == 0; n++) {
        hearth_error why = {0};
        hth_disk_faults faults = kind->faults, half = {.first = n, .n = 1, .fault = HTH_FAULT_HALF};
        faults.first = kind->halved ? n + 1 : n;
        hth_disk_set_faults(faulty_below, kind->halved ? &half : &no_faults);
        hth_disk_set_faults(faulty, &faults);
        hearth_status st = eval(s, t, &why);
        had_fault = hth_disk_n_fault(faulty) > 0;
        hth_disk_set_faults(faulty, &no_faults);
        s->n_fault += had_fault;
        check_result(s, t, kind, st, &why);
    }
}

/* n_kind of the kinds at each token, in turn. */
static void fault_tokens(subject *s, uint32_t n_id, uint32_t n_kind)
{
    for (uint32_t t = 0; t < n_id && test_n_failed() == 0; t++)
        for (uint32_t k = 0; k < n_kind; k++) fault_each_read(s, t, &kinds[(t + k) % N_KIND]);
    hearth_storage_stats stats = {0};
    CHECK(hearth_model_get_storage(s->model, &stats));
    CHECK(s->n_fault > n_id && s->n_error > 0);
    CHECK(stats.n_repeated > s->n_fault / N_KIND);
    printf("     %s: %llu faults, of these %llu errors\n", test_model_info(s->model).architecture,
           (unsigned long long)s->n_fault, (unsigned long long)s->n_error);
}

TEST(a_mixture_survives_every_read_that_fails)
{
    CLEANUP(close_subject) subject s;
    if (find_expected(&s, test_data("golden/arch/mixtral.gguf"), HEARTH_SELECTOR_AUTO) && open_model(&s, 0))
        fault_tokens(&s, N_ID, test_is_long() ? N_KIND : 1);
}

TEST(a_dense_model_survives_every_read_that_fails)
{
    CLEANUP(close_subject) subject s;
    if (find_expected(&s, test_data("golden/arch/llama-gqa.gguf"), HEARTH_SELECTOR_AUTO) && open_model(&s, 0))
        fault_tokens(&s, test_is_long() ? N_ID : N_SHORT, 1);
}

TEST(a_packed_model_survives_every_read_that_fails)
{
    const char *path = test_scratch("packed.gguf");
    if (!hybrid_pack_powerinfer("opt", path)) return;
    for (hearth_selector k = HEARTH_SELECTOR_DENSE; k <= HEARTH_SELECTOR_PREDICTOR; k++) {
        CLEANUP(close_subject) subject s;
        if (find_expected(&s, path, k) && open_model(&s, 0)) fault_tokens(&s, test_is_long() ? N_ID : N_SHORT, 1);
    }
}

/* Bits that a disk turns over are found by the checksums of a file for storage, when an item is read for the first time:
 * once, and the bytes are read again; for ever, and the evaluation ends. */
TEST(wrong_bytes_of_a_file_for_storage_are_found)
{
    static const fault_kind once = {.name = "a wrong bit", .faults = {.n = 1, .fault = HTH_FAULT_FLIP}},
                            for_ever = {.name = "wrong bits",
                                        .faults = {.n = UINT64_MAX, .fault = HTH_FAULT_FLIP},
                                        .fails = true};
    const hth_pack_options o = {.n_thread = 2, .for_storage = true, .n_bundle_neuron = 16};
    const char *packed = test_scratch("packed.gguf");
    char path[1024];
    hth_pack_result r;
    snprintf(path, sizeof path, "%s", test_scratch("stored.gguf"));
    if (!hybrid_pack_storyteller("Q4_0", packed)) return;
    CHECK_OK(hth_pack(packed, path, &o, &r, err));
    for (int k = 0; k < 2; k++) {
        uint64_t n_again = 0;
        CLEANUP(close_subject) subject s;
        if (!find_expected(&s, path, HEARTH_SELECTOR_GATE)) return;
        for (uint64_t n = 1; n < 40 && test_n_failed() == 0; n++) {
            hearth_error why = {0};
            hearth_storage_stats stats = {0};
            if (!open_model(&s, 0)) return;
            hth_disk_faults faults = k ? for_ever.faults : once.faults;
            faults.first = n;
            hth_disk_set_faults(faulty, &faults);
            hearth_status st = eval(&s, 0, &why);
            CHECK(hth_disk_n_fault(faulty) > 0);
            hth_disk_set_faults(faulty, &no_faults);
            if (st != HEARTH_OK) CHECK(strstr(why.message, "have another checksum than the file says") != NULL);
            check_result(&s, 0, k ? &for_ever : &once, st, &why);
            if (CHECK(hearth_model_get_storage(s.model, &stats))) n_again += stats.n_repeated;
            close_model(&s);
        }
        CHECK(n_again > 0); /* in many reads the bit lies beside the bytes that are needed */
    }
}

/* ---- loading -------------------------------------------------------------------------------------------- */

/* Pinned pieces are read while the model is opened: one that failed is read again when it is needed. */
TEST(pinned_weights_that_could_not_be_read_are_read_again)
{
    CLEANUP(close_subject) subject s;
    if (!find_expected(&s, test_data("golden/arch/llama-gqa.gguf"), HEARTH_SELECTOR_AUTO)) return;
    for (int k = 0; k < N_KIND; k++) {
        bool had_fault = true;
        for (uint64_t n = 1; had_fault && test_n_failed() == 0; n++) {
            hearth_error why = {0};
            faults_at_opening = kinds[k].faults;
            faults_at_opening.first = n;
            if (!open_model(&s, 64 << 10)) return;
            hearth_status st = eval(&s, 0, &why);
            had_fault = hth_disk_n_fault(faulty) > 0;
            hth_disk_set_faults(faulty, &no_faults);
            s.n_fault += had_fault;
            check_result(&s, 0, &kinds[k], st, &why);
            close_model(&s);
        }
    }
    CHECK(s.n_fault > 10 * N_KIND && s.n_error > 0);
}

/* ---- other faults --------------------------------------------------------------------------------------- */

/* After 1,000 attempts a piece is read by pread. */
TEST(a_disk_that_says_again_a_thousand_times_changes_nothing)
{
    const fault_kind again = {.name = "EAGAIN", .faults = {.n = 3000, .fault = HTH_FAULT_ERROR, .error = EAGAIN}};
    CLEANUP(close_subject) subject s;
    if (!find_expected(&s, test_data("golden/arch/mixtral.gguf"), HEARTH_SELECTOR_AUTO) || !open_model(&s, 0)) return;
    for (uint32_t t = 0; t < 3; t++) fault_each_read(&s, t, &again);
    CHECK(s.n_fault > 3);
}

TEST(refused_direct_reads_of_a_model_are_said_once)
{
    static const fault_kind refusals[] = {
        {.name = "EINVAL", .faults = {.n = 2, .fault = HTH_FAULT_ERROR, .error = EINVAL}},
        {.name = "EOPNOTSUPP", .faults = {.n = 2, .fault = HTH_FAULT_ERROR, .error = EOPNOTSUPP}}};
    for (int i = 0; i < 2; i++) {
        CLEANUP(close_subject) subject s;
        if (!find_expected(&s, test_data("golden/arch/mixtral.gguf"), HEARTH_SELECTOR_AUTO)) return;
        test_log_start();
        if (open_model(&s, 0))
            for (uint32_t t = 0; t < 20; t++) fault_each_read(&s, t, &refusals[i]);
        CHECK_INT(test_n_warning("mixtral.gguf: direct reads are refused ("), 1);
        test_log_stop();
    }
}

/* The rest of a short read fails; a failure while no memory is left. */
TEST(two_faults_at_once_are_one_error_or_none)
{
    static const fault_kind both[] = {
        {.name = "half a read, then EIO", .faults = {.n = 1, .fault = HTH_FAULT_ERROR, .error = EIO}, .halved = true},
        {.name = "half a read, then ENODEV",
         .faults = {.n = 1, .fault = HTH_FAULT_ERROR, .error = ENODEV},
         .fails = true,
         .halved = true}};
    const hth_disk_faults for_ever = {.first = 1, .n = UINT64_MAX, .fault = HTH_FAULT_ERROR, .error = EIO};
    CLEANUP(close_subject) subject s;
    if (!find_expected(&s, test_data("golden/arch/mixtral.gguf"), HEARTH_SELECTOR_AUTO) || !open_model(&s, 0)) return;
    for (uint32_t t = 0; t < N_SHORT; t++) {
        hearth_error why = {0};
        for (int k = 0; k < 2; k++) fault_each_read(&s, t, &both[k]);
        hth_disk_set_faults(faulty_below, &no_faults);
        hth_disk_set_faults(faulty, &for_ever);
        hth_alloc_fail_at(1, 1);
        hearth_status st = eval(&s, t, &why);
        hth_alloc_fail_at(0, 0);
        hth_disk_set_faults(faulty, &no_faults);
        check_result(&s, t, &both[1], st, &why);
    }
    CHECK(s.n_error > N_SHORT / 2);
}

static void read_in_order(subject *s, hth_disk_order order)
{
    hearth_storage_stats stats = {0};
    reset_disk();
    if (order == HTH_ORDER_ANY) disk_model.latency_ns = 10000000000;
    faults_at_opening.order = order;
    if (!open_model(s, 0)) return;
    for (uint32_t t = 0; t < N_SHORT; t++) {
        CHECK_OK(eval(s, t, err));
        check_bits(s, t, "late results");
    }
    CHECK(hearth_model_get_storage(s->model, &stats) && stats.n_stall > 0 && stats.n_repeated == 0);
    close_model(s);
}

/* 10 s late, or the last one first, or one at a time; with each number of threads. */
static void read_in_all_orders(const char *path, hearth_selector selector)
{
    static const uint32_t n_threads[] = {1, 2, 3, 7};
    CLEANUP(close_subject) subject s;
    if (!find_expected(&s, path, selector)) return;
    for (hth_disk_order order = HTH_ORDER_ANY; order <= HTH_ORDER_SINGLE; order++)
        for (int k = 0; k < 4; k++) {
            s.n_thread = n_threads[k];
            read_in_order(&s, order);
        }
}

TEST(late_results_in_any_order_change_nothing)
{
    const char *packed = test_scratch("packed.gguf");
    read_in_all_orders(test_data("golden/arch/mixtral.gguf"), HEARTH_SELECTOR_AUTO);
    read_in_all_orders(test_data("golden/arch/llama-gqa.gguf"), HEARTH_SELECTOR_AUTO);
    if (!hybrid_pack_powerinfer("opt", packed)) return;
    read_in_all_orders(packed, HEARTH_SELECTOR_DENSE);
    read_in_all_orders(packed, HEARTH_SELECTOR_PREDICTOR);
}

/* ---- other sessions --------------------------------------------------------------------------------------- */

typedef struct other_session {
    subject s;       /* with a session of its own */
    bool fails;      /* each evaluation of the token does; else none */
    uint64_t n_done;
} other_session;

/* Evaluates one token again and again. */
static void *evaluate_again(void *arg)
{
    other_session *o = arg;
    for (int i = 0; i < 40; i++, o->n_done++) {
        hearth_error why = {0};
        hearth_status st = eval(&o->s, 0, &why);
        if ((st != HEARTH_OK) != o->fails) test_fail(__FILE__, __LINE__, "%s", st ? why.message : "no error");
        if (st == HEARTH_OK) check_bits(&o->s, 0, "beside a session that fails");
    }
    return NULL;
}

/* Bytes of the first expert of a layer that cannot be read. */
static hth_disk_faults damage_expert(const hearth_model *m, uint32_t i_layer)
{
    const hth_experts *e = &m->model->layers[i_layer].experts;
    const hth_binding *b = hth_engine_binding_of(m, &e->up);
    uint64_t at = b->tensor->offset + b->offset;
    return (hth_disk_faults){.first = 1,
                             .n = UINT64_MAX,
                             .begin = at,
                             .end = at + e->up.n_row / e->router.n_expert * e->up.row_size,
                             .fault = HTH_FAULT_ERROR,
                             .error = EIO};
}

/* Tokens that need the range fail, others do not: one after the other, and sessions of both beside one another. */
TEST(sessions_that_do_not_need_a_damaged_range_go_on)
{
    CLEANUP(close_subject) subject s;
    other_session others[4] = {0};
    uint32_t n_of[2] = {0};
    pthread_t threads[4];
    if (!find_expected(&s, test_data("golden/arch/qwen3moe.gguf"), HEARTH_SELECTOR_AUTO) || !open_model(&s, 0)) return;
    const hth_disk_faults damage = damage_expert(s.model, s.model->model->hparams.n_layer - 1);
    for (int32_t id = 0; id < 250 && (n_of[0] < 2 || n_of[1] < 2); id++) {
        hearth_error why = {0};
        FREED float *expected = malloc(s.n_vocab * sizeof *expected);
        subject one = s;
        one.ids[0] = id, one.expected = expected;
        CHECK_OK(eval(&one, 0, err));
        memcpy(expected, hearth_session_logits(s.session), s.n_vocab * sizeof *expected);
        hth_disk_set_faults(faulty, &damage);
        bool fails = eval(&one, 0, &why) != HEARTH_OK;
        hth_disk_set_faults(faulty, &no_faults);
        if (fails) CHECK(strstr(why.message, "qwen3moe.gguf: cannot read at byte ") != NULL);
        if (n_of[fails] < 2) {
            other_session *o = &others[2 * fails + n_of[fails]++];
            *o = (other_session){.s = one, .fails = fails};
            o->s.session = open_session(&s);
            o->s.expected = expected, expected = NULL;
        }
    }
    if (!CHECK(n_of[0] == 2 && n_of[1] == 2)) return;
    hth_disk_set_faults(faulty, &damage);
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, evaluate_again, &others[i]);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < 4; i++) {
        CHECK_INT(others[i].n_done, 40);
        hearth_session_close(others[i].s.session);
        free(others[i].s.expected);
    }
}
