/* Uploads beside the first queue of a simulated device: times computed by hand, of the second queue, of what waits for
 * it, of its transfers and of a host that reads the same memory; and the same promises on a real clock. */
#include "base/alloc.h"
#include "base/clock.h"
#include "device/device.h"
#include "support/device/each_device.h"
#include "support/device/sim_gpu.h"
#include "support/test.h"

enum { N = 1000, BYTES = 4 * N };
/* SIM_GPU_EXACT */
enum { LATENCY = 1000, DISPATCH = 2000, SUBMIT = 20000, WAKE = 10000, POLL = 100 };
static const uint64_t second = 1000000000;

/* ---- a GPU with a buffer of each kind ----------------------------------------------------------------- */

typedef struct bench {
    hth_device *d;
    hth_buffer *a, *b, *upload, *readback;
    const hth_pipeline *fill;
} bench;

static hearth_status open_bench(const char *text, bench *b, hearth_error *err)
{
    *b = (bench){0};
    hearth_status st = sim_gpu_open(text, 0, each_device_shaders, &b->d, err);
    if (st == HEARTH_OK) st = hth_buffer_new(b->d, HTH_MEMORY_DEVICE, BYTES, "a", &b->a, err);
    if (st == HEARTH_OK) st = hth_buffer_new(b->d, HTH_MEMORY_DEVICE, BYTES, "b", &b->b, err);
    if (st == HEARTH_OK) st = hth_buffer_new(b->d, HTH_MEMORY_UPLOAD, BYTES, "upload", &b->upload, err);
    if (st == HEARTH_OK) st = hth_buffer_new(b->d, HTH_MEMORY_READBACK, BYTES, "readback", &b->readback, err);
    return st == HEARTH_OK ? hth_pipeline_get(b->d, HTH_SHADER_fill, NULL, &b->fill, err) : st;
}

static bench bench_of(const char *text)
{
    bench b;
    CHECK_OK(open_bench(text, &b, err));
    return b;
}

static void close_bench(bench *b) { hth_device_close(b->d); }

static hth_cmdlist *begin(bench *b) { return OPENED_BY(hth_cmdlist_begin, hth_cmdlist, b->d); }

/* Fills a buffer, reading so many bytes at the device's own rate. */
static void fill(bench *b, hth_cmdlist *t, hth_buffer *to, uint64_t reads)
{
    static const uint32_t ones[2] = {N, 1};
    hth_cmdlist_dispatch(t, b->fill, (hth_buffer_range[]){{to, 0, 0}}, ones, 1, 1, 1);
    if (reads > 0) hth_cmdlist_hint_bytes(t, reads);
}

static hth_cmdlist *fill_of(bench *b, hth_buffer *to, uint64_t reads)
{
    hth_cmdlist *t = begin(b);
    fill(b, t, to, reads);
    CHECK_OK(hth_cmdlist_end(t, err));
    return t;
}

static hth_cmdlist *copy_of(bench *b, hth_buffer *from, hth_buffer *to)
{
    hth_cmdlist *t = begin(b);
    hth_cmdlist_copy(t, (hth_buffer_range){from, 0, 0}, (hth_buffer_range){to, 0, 0});
    CHECK_OK(hth_cmdlist_end(t, err));
    return t;
}

static hth_fence submit(bench *b, hth_cmdlist *t, uint64_t wait, hth_fence beside)
{
    hth_fence fence = 0;
    CHECK_OK(hth_queue_submit(b->d, &(hth_submit_info){.cmdlist = t, .wait = wait, .beside = beside}, 1, &fence, err));
    return fence;
}

static hth_fence submit_beside(bench *b, hth_cmdlist *t)
{
    hth_fence fence = 0;
    CHECK_OK(hth_beside_submit(b->d, &t, 1, &fence, err));
    return fence;
}

/* The time at which a wait ends. */
static uint64_t end_of(bench *b, hth_fence fence)
{
    CHECK_OK(hth_queue_wait(b->d, fence, second, err));
    return hth_device_time(b->d);
}

static uint64_t end_beside(bench *b, hth_fence fence)
{
    CHECK_OK(hth_beside_wait(b->d, fence, second, err));
    return hth_device_time(b->d);
}

/* ---- the second queue --------------------------------------------------------------------------------- */

TEST(the_second_queue_has_a_time_of_its_own)
{
    CLEANUP(close_bench) bench b = bench_of(SIM_GPU_EXACT);
    hth_cmdlist *slow = fill_of(&b, b.a, 500000), *fast = fill_of(&b, b.b, 100000);
    CHECK(hth_device_get_info(b.d)->has_second_queue);

    /* Submitted at 20 and 40 microseconds: each takes as long as alone. */
    hth_fence load = submit_beside(&b, slow), work = submit(&b, fast, 0, 0);
    CHECK_INT(hth_device_time(b.d), 2 * SUBMIT);
    CHECK_INT(end_of(&b, work), 2 * SUBMIT + DISPATCH + 100000 + WAKE);
    CHECK(!hth_beside_is_complete(b.d, load));
    uint64_t now = SUBMIT + DISPATCH + 500000 + WAKE;
    CHECK_INT(end_beside(&b, load), now);
    CHECK_INT(end_beside(&b, load), now); /* it does not sleep again */

    /* One behind the other, in its order. */
    load = submit_beside(&b, slow);
    hth_fence next = submit_beside(&b, fast);
    CHECK_INT(end_beside(&b, next), now + SUBMIT + 2 * DISPATCH + 500000 + 100000 + WAKE);
    CHECK(hth_beside_is_complete(b.d, load));
    CHECK_INT(hth_device_time(b.d), now + SUBMIT + 2 * DISPATCH + 500000 + 100000 + WAKE);

    /* A poll costs what it does on the first one. */
    now = hth_device_time(b.d);
    load = submit_beside(&b, fast);
    int n = 0;
    while (!hth_beside_is_complete(b.d, load)) n++;
    CHECK_INT(n, (DISPATCH + 100000) / POLL);
    CHECK_INT(hth_device_time(b.d), now + SUBMIT + DISPATCH + 100000);
}

TEST(a_command_list_begins_when_the_second_queue_has_ended_what_it_waits_for)
{
    CLEANUP(close_bench) bench b = bench_of(SIM_GPU_EXACT);
    hth_cmdlist *slow = fill_of(&b, b.a, 500000), *fast = fill_of(&b, b.b, 100000);
    hth_fence load = submit_beside(&b, slow), work = submit(&b, fast, 0, load);
    uint64_t now = SUBMIT + DISPATCH + 500000 + DISPATCH + 100000 + WAKE;
    CHECK_INT(end_of(&b, work), now);

    /* A fence that is complete costs nothing. */
    work = submit(&b, fast, 0, load);
    CHECK_INT(end_of(&b, work), now += SUBMIT + DISPATCH + 100000 + WAKE);

    /* The later one of host and second queue: the queue ends at 502 behind its submission. */
    for (uint64_t late = 100000; late <= 700000; late += 600000) {
        load = submit_beside(&b, slow), work = submit(&b, fast, hth_queue_host_value(b.d) + 1, load);
        hth_device_advance_clock(b.d, late);
        CHECK_OK(hth_queue_signal(b.d, hth_queue_host_value(b.d) + 1, err));
        uint64_t start = SUBMIT + late > DISPATCH + 500000 ? SUBMIT + late : DISPATCH + 500000;
        CHECK_INT(end_of(&b, work), now += SUBMIT + start + DISPATCH + 100000 + WAKE);
    }

    /* What is behind it waits with it; another fence is not waited for. */
    load = submit_beside(&b, fast), submit_beside(&b, slow);
    submit(&b, fast, 0, load), work = submit(&b, fast, 0, 0);
    CHECK_INT(end_of(&b, work), now + SUBMIT + 3 * (DISPATCH + 100000) + WAKE);
}

TEST(timeouts_of_the_second_queue_end_on_the_virtual_clock)
{
    bench b = bench_of(SIM_GPU_EXACT);
    hth_fence load = submit_beside(&b, fill_of(&b, b.a, 1000000));
    CHECK_FAILS(hth_beside_wait(b.d, load, DISPATCH + 1000000 - 1, err), HEARTH_ERROR_DEVICE,
                "simulated hand: command list 1 of the second queue is not done after 0.001002 s");
    CHECK_INT(hth_device_time(b.d), SUBMIT + DISPATCH + 1000000 - 1);
    CHECK(hth_device_state(b.d).lost);
    close_bench(&b);
    b = bench_of(SIM_GPU_EXACT);
    load = submit_beside(&b, fill_of(&b, b.a, 1000000));
    CHECK_OK(hth_beside_wait(b.d, load, DISPATCH + 1000000, err));
    close_bench(&b);
}

TEST(more_than_may_be_in_flight_on_the_second_queue_is_a_device_failure)
{
    CLEANUP(close_bench) bench b = bench_of(SIM_GPU_EXACT);
    hth_cmdlist *t = fill_of(&b, b.a, 1000000);
    for (int i = 0; i < HTH_QUEUE_MAX_IN_FLIGHT; i++) submit_beside(&b, t);
    /* 21 of them have ended: a submission takes 20 microseconds, a run 1002. */
    while (!hth_beside_is_complete(b.d, 1)) {
    }
    CHECK(hth_device_time(b.d) < 90 * second / 1000);
    hth_fence n = HTH_QUEUE_MAX_IN_FLIGHT;
    while (!hth_device_state(b.d).lost && n < 2 * HTH_QUEUE_MAX_IN_FLIGHT) {
        hearth_error why;
        if (hth_beside_submit(b.d, &t, 1, &n, &why) == HEARTH_ERROR_DEVICE)
            CHECK(strstr(why.message, "4097 command lists of the second queue are not done") != NULL);
    }
    CHECK(n > HTH_QUEUE_MAX_IN_FLIGHT && hth_device_state(b.d).lost);
}

TEST(jitter_of_the_second_queue_is_its_own)
{
    static const char text[] = SIM_GPU_RATES "jitter = 0.25\nseed = 7\nclock = virtual\n";
    uint64_t ends[2], beside[2];
    for (int i = 0; i < 2; i++) {
        CLEANUP(close_bench) bench b = bench_of(text);
        hth_cmdlist *t = fill_of(&b, b.b, 100000), *u = fill_of(&b, b.a, 100000);
        hth_fence load = 0;
        for (int k = 0; k < 10; k++) load = submit_beside(&b, u);
        beside[i] = end_beside(&b, load);
        ends[i] = end_of(&b, submit(&b, t, 0, 0));
    }
    CHECK(ends[0] == ends[1] && beside[0] == beside[1]);
    CHECK(beside[0] != SUBMIT + 10 * (DISPATCH + 100000) + WAKE);
}

/* ---- what dispatches read of the host's memory -------------------------------------------------------- */

/* A fill that reads so much over the link, and of the device's memory (0: not given). */
static hth_cmdlist *load_of(bench *b, hth_buffer *to, uint64_t link, uint64_t reads)
{
    hth_cmdlist *t = begin(b);
    fill(b, t, to, reads);
    hth_cmdlist_hint_link_bytes(t, link);
    CHECK_OK(hth_cmdlist_end(t, err));
    return t;
}

/* Submission to end of a command list on an idle device, on either queue. */
static uint64_t length_of(bench *b, hth_cmdlist *t)
{
    uint64_t before = hth_device_time(b->d), took = end_beside(b, submit_beside(b, t)) - before;
    before = hth_device_time(b->d);
    CHECK_INT(end_of(b, submit(b, t, 0, 0)) - before, took);
    return took - SUBMIT - WAKE;
}

TEST(a_dispatch_that_reads_the_host_takes_the_time_of_its_transfer)
{
    static const uint32_t grids[] = {4, 3, 1, 0, 1, 1}, ones[2] = {N, 1};
    CLEANUP(close_bench) bench b = bench_of(SIM_GPU_EXACT);
    CHECK_INT(length_of(&b, load_of(&b, b.a, 10000, 0)), LATENCY + 2 * 10000);
    CHECK_INT(length_of(&b, load_of(&b, b.a, 10000, 500)), LATENCY + 2 * 10000);
    CHECK_INT(length_of(&b, load_of(&b, b.a, 100, 0)), DISPATCH); /* no earlier than its own end */
    CHECK_INT(length_of(&b, load_of(&b, b.a, 10000, 50000)), DISPATCH + 50000);
    CHECK_INT(length_of(&b, load_of(&b, b.a, 0, 0)), DISPATCH + BYTES);

    /* One after the other, and a barrier changes nothing. */
    hth_cmdlist *t = begin(&b);
    for (int i = 0; i < 3; i++) {
        fill(&b, t, b.a, 0);
        hth_cmdlist_hint_link_bytes(t, 10000);
        hth_cmdlist_barrier(t, (hth_buffer_range[]){{b.a, 0, 0}}, 1);
    }
    fill(&b, t, b.b, 7000);
    CHECK_OK(hth_cmdlist_end(t, err));
    CHECK_INT(length_of(&b, t), 3 * (LATENCY + 20000) + DISPATCH + 7000);

    /* Each workgroup of an indirect one; an empty grid transfers nothing and has no latency. */
    CHECK_OK(hth_device_upload((hth_buffer_range){b.upload, 0, sizeof grids}, grids, err));
    for (uint64_t i = 0; i < 2; i++) {
        t = begin(&b);
        hth_cmdlist_dispatch_indirect(t, b.fill, (hth_buffer_range[]){{b.a, 0, 0}}, ones,
                                      (hth_buffer_range){b.upload, 12 * i, 12});
        hth_cmdlist_hint_link_bytes(t, 500);
        CHECK_OK(hth_cmdlist_end(t, err));
        CHECK_INT(length_of(&b, t), i == 0 ? LATENCY + 2 * 12 * 500 : DISPATCH);
    }
    t = begin(&b);
    hth_cmdlist_dispatch(t, b.fill, (hth_buffer_range[]){{b.a, 0, 0}}, ones, 1, 0, 1);
    hth_cmdlist_hint_link_bytes(t, 100000);
    CHECK_OK(hth_cmdlist_end(t, err));
    CHECK_INT(length_of(&b, t), DISPATCH);
}

TEST(transfers_beside_those_of_the_second_queue_have_half_the_rate)
{
    static uint8_t bytes[BYTES];
    const uint64_t up = LATENCY + 2 * BYTES, slow = LATENCY + 4 * BYTES, load = LATENCY + 2 * 10000;
    CLEANUP(close_bench) bench b = bench_of(SIM_GPU_EXACT);
    hth_cmdlist *copy = copy_of(&b, b.upload, b.b), *down = copy_of(&b, b.b, b.readback),
                *beside = load_of(&b, b.a, 10000, 0);

    /* A copy of the first queue, submitted 20 microseconds later, and the host's upload. */
    hth_fence l = submit_beside(&b, beside), c = submit(&b, copy, 0, 0);
    uint64_t now = 2 * SUBMIT + slow + WAKE;
    CHECK_INT(end_of(&b, c), now);
    CHECK(hth_beside_is_complete(b.d, l));
    submit_beside(&b, beside);
    CHECK_OK(hth_device_upload((hth_buffer_range){b.b, 0, 0}, bytes, err));
    CHECK_INT(hth_device_time(b.d), now += SUBMIT + slow);

    /* The other way round: six copies take 54 microseconds, and delay nothing. */
    hth_cmdlist *six = begin(&b);
    for (int i = 0; i < 6; i++)
        hth_cmdlist_copy(six, (hth_buffer_range){b.upload, 0, 0}, (hth_buffer_range){b.b, 0, 0});
    CHECK_OK(hth_cmdlist_end(six, err));
    submit(&b, six, 0, 0), l = submit_beside(&b, beside);
    CHECK_INT(end_beside(&b, l), now + 2 * SUBMIT + load + WAKE);
    CHECK_OK(hth_queue_drain(b.d, second, err));
    CHECK_INT(hth_device_time(b.d), now += SUBMIT + 6 * up + WAKE);

    /* Two of the second queue; a copy back has the other direction for itself. */
    l = submit_beside(&b, load_of(&b, b.a, 30000, 0)), l = submit_beside(&b, beside), c = submit(&b, down, 0, 0);
    CHECK_INT(end_of(&b, c), now + 3 * SUBMIT + LATENCY + 4 * BYTES + WAKE);
    CHECK_INT(end_beside(&b, l), now + SUBMIT + LATENCY + 2 * 30000 + load + WAKE);
}

/* ---- what the host reads meanwhile ---------------------------------------------------------------------- */

static uint64_t charge_products(bench *b, uint64_t bytes, double products)
{
    uint64_t before = hth_device_time(b->d);
    hth_device_charge_host(b->d, bytes, products);
    return hth_device_time(b->d) - before;
}
static uint64_t charge(bench *b, uint64_t bytes) { return charge_products(b, bytes, 1e12); }

/* 1.5 bytes a nanosecond alone, one beside the link. */
TEST(the_host_has_what_the_link_leaves_of_its_memory)
{
    CLEANUP(close_bench) bench b = bench_of(SIM_GPU_EXACT "host_bandwidth = 1.5e9\n");
    hth_cmdlist *load = load_of(&b, b.a, 10000, 0), *copy = copy_of(&b, b.upload, b.b);
    CHECK_INT(charge(&b, 15000), 10000);
    CHECK_INT(charge(&b, 0), 0);

    /* Under way for 21 microseconds: within it, across its end, and behind it. */
    submit_beside(&b, load);
    CHECK_INT(charge(&b, 15000), 15000);
    CHECK_INT(charge(&b, 15000), 6000 + (15000 - 6000) * 2 / 3);
    CHECK_INT(charge(&b, 15000), 10000);
    submit_beside(&b, load);
    CHECK_INT(charge(&b, 21000), 21000);
    CHECK_INT(charge(&b, 15000), 10000);

    /* All transfers that were started; those of the first queue do not count, nor what reads no host memory. */
    hth_fence last = submit_beside(&b, load);
    last = submit_beside(&b, load);
    CHECK_INT(charge(&b, 30000), 22000 + (30000 - 22000) * 2 / 3);
    CHECK(hth_beside_is_complete(b.d, last));
    submit(&b, copy, 0, 0), submit(&b, load, 0, 0), submit_beside(&b, fill_of(&b, b.a, 500000));
    CHECK_INT(charge(&b, 15000), 10000);
    CHECK_OK(hth_queue_drain(b.d, second, err));
    submit_beside(&b, copy); /* a copy is a transfer too */
    CHECK_INT(charge(&b, 9000), 9000);
}

TEST(the_host_takes_as_long_as_its_products_if_that_is_longer)
{
    CLEANUP(close_bench) bench b = bench_of(SIM_GPU_EXACT "host_bandwidth = 1e9\nhost_products = 4e9\n");
    CHECK_INT(charge_products(&b, 1000, 4000.0), 1000);
    CHECK_INT(charge_products(&b, 1000, 10000.0), 2500);
    CHECK_INT(charge_products(&b, 0, 400.0), 100);
    submit_beside(&b, load_of(&b, b.a, 10000, 0)); /* the link takes memory, and no products */
    CHECK_INT(charge_products(&b, 0, 4000.0), 1000);
}

TEST(the_host_keeps_a_quarter_of_its_rate_beside_a_fast_link)
{
    static const struct {
        const char *line;
        uint64_t bytes, ns, more_bytes, more_ns;
    } cases[] = {{"host_bandwidth = 0.4e9\n", 1000, 10000, 2000, 11000 + 900 * 5 / 2},
                 {"host_bandwidth = 0.5e9\n", 1000, 8000, 2000, 13000 + (2000 - 1625) * 2},
                 {"host_bandwidth = 0.64e9\n", 1600, 10000, 1760, 11000},
                 {"host_bandwidth = 1e9\n", 10000, 20000, 1500, 1000 + 1000}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[1000];
        snprintf(text, sizeof text, "%s%s", SIM_GPU_EXACT, cases[i].line);
        CLEANUP(close_bench) bench b = bench_of(text);
        submit_beside(&b, load_of(&b, b.a, 10000, 0));
        CHECK_INT(charge(&b, cases[i].bytes), cases[i].ns);
        CHECK_INT(charge(&b, cases[i].more_bytes), cases[i].more_ns);
    }
}

TEST(a_host_whose_time_is_not_modelled_is_charged_nothing)
{
    static const char real[] = SIM_GPU_RATES "jitter = 0\nseed = 1\nclock = real\nhost_bandwidth = 1e6\n";
    CLEANUP(close_bench) bench b = bench_of(SIM_GPU_EXACT);
    submit_beside(&b, load_of(&b, b.a, 10000, 0));
    CHECK_INT(charge(&b, 1 << 30), 0);
    const hth_device_spec null = {.name = "null"};
    hth_device *others[2] = {OPENED(hth_device, &null), NULL};
    CHECK_OK(sim_gpu_open(real, 0, each_device_shaders, &others[1], err));
    for (int i = 0; i < 2; i++) {
        uint64_t before = hth_clock_ns();
        hth_device_charge_host(others[i], (uint64_t)1 << 40, 1e12);
        CHECK(hth_clock_ns() - before < second && hth_device_time(others[i]) < 600 * second);
        hth_device_close(others[i]);
    }
}

TEST(a_description_may_give_the_largest_binding)
{
    static const uint32_t ones[2] = {1, 1};
    for (int given = 0; given < 2; given++) {
        CLEANUP(close_bench) bench b =
            bench_of(given ? SIM_GPU_EXACT "max_binding_bytes = 2000\n" : SIM_GPU_EXACT "# of null\n");
        CHECK_INT(hth_device_get_info(b.d)->max_binding_size, given ? 2000 : 128 << 20);
        hth_cmdlist *t = begin(&b);
        hth_cmdlist_dispatch(t, b.fill, (hth_buffer_range[]){{b.a, 4, 2000}}, ones, 1, 1, 1);
        CHECK_OK(hth_cmdlist_end(t, err));
        t = begin(&b);
        hth_cmdlist_dispatch(t, b.fill, (hth_buffer_range[]){{b.a, 4, 2004}}, ones, 1, 1, 1);
        hearth_error why;
        CHECK_INT(hth_cmdlist_end(t, &why), given ? HEARTH_ERROR_UNSUPPORTED : HEARTH_OK);
    }
}

/* ---- the real clock ----------------------------------------------------------------------------------- */

#define REAL                                                                                                 \
    "name = slow\nvram_bytes = 1M\nbandwidth = 1e6\npcie_up = 1e6\npcie_down = 1e9\n"                        \
    "pcie_latency_us = 1\ndispatch_us = 2\nsubmit_us = 20\nwake_us = 2000\nflops = 1e12\n"                   \
    "jitter = 0\nseed = 1\nclock = real\n"

enum { MS = 1000000 };

TEST(with_a_real_clock_no_fence_of_the_second_queue_completes_before_its_time)
{
    CLEANUP(close_bench) bench b = bench_of(REAL);
    hth_cmdlist *slow = fill_of(&b, b.a, 30000), *fast = fill_of(&b, b.b, 1000);
    uint64_t before = hth_clock_ns();
    hth_fence load = submit_beside(&b, slow);
    CHECK(hth_clock_ns() - before >= SUBMIT);
    hth_fence work = submit(&b, fast, 0, load), other = submit(&b, fast, 0, 0);
    bool there = hth_beside_is_complete(b.d, load) || hth_queue_is_complete(b.d, work);
    CHECK(!there || hth_clock_ns() - before >= 30 * MS);
    CHECK_OK(hth_queue_wait(b.d, work, 60 * second, err));
    CHECK(hth_clock_ns() - before >= 31 * MS);
    CHECK(hth_beside_is_complete(b.d, load));
    CHECK_OK(hth_queue_wait(b.d, other, 60 * second, err));

    before = hth_clock_ns();
    load = submit_beside(&b, slow);
    work = submit(&b, fast, 0, 0);
    CHECK_OK(hth_queue_wait(b.d, work, 60 * second, err));
    CHECK_OK(hth_beside_wait(b.d, load, 60 * second, err));
    CHECK(hth_clock_ns() - before >= 30 * MS + 2 * MS);
    load = submit_beside(&b, fill_of(&b, b.a, 30000000)); /* half a minute: too long for any machine to oversleep */
    CHECK_FAILS(hth_beside_wait(b.d, load, MS, err), HEARTH_ERROR_DEVICE,
                "of the second queue is not done after 0.001");
    CHECK(hth_device_state(b.d).lost);
}

/* Both threads compute, and use the links at once. */
TEST(with_a_real_clock_both_queues_run_at_once)
{
    enum { ROUNDS = 200 };
    static const char text[] = SIM_GPU_RATES "jitter = 0\nseed = 1\nclock = real\n";
    CLEANUP(close_bench) bench b = bench_of(text);
    hth_cmdlist *up = copy_of(&b, b.upload, b.a), *down = copy_of(&b, b.a, b.readback),
                *other = copy_of(&b, b.upload, b.b);
    uint32_t *words = hth_buffer_map(b.upload), n_wrong = 0;
    const uint32_t *back = hth_buffer_map(b.readback);
    hth_fence read = 0;
    for (uint32_t i = 0; i < ROUNDS; i++) {
        CHECK_OK(hth_queue_wait(b.d, read, 60 * second, err));
        n_wrong += i > 0 && (back[0] != i - 1 || back[N - 1] != i - 1);
        for (int k = 0; k < N; k++) words[k] = i;
        hth_fence load = submit_beside(&b, up);
        submit(&b, other, 0, 0);
        read = submit(&b, down, 0, load);
    }
    CHECK_OK(hth_queue_wait(b.d, read, 60 * second, err));
    CHECK(n_wrong == 0 && back[0] == ROUNDS - 1);
}
