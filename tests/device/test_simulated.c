/* The simulated device: times computed by hand for small command lists, links and host semaphores; both
 * sides at once; the same in every run; faults and budgets where the description puts them; and with a real clock,
 * no completion before its time. All rates are made up so that they can be computed by hand. */
#include "base/alloc.h"
#include "base/clock.h"
#include "device/simulated/simulated_int.h"
#include "support/device/sim_gpu.h"
#include "support/test.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

enum { N = 1000, BYTES = 4 * N };

static bool no_thread;
typedef void *thread_main(void *);
int __real_pthread_create(pthread_t *t, const pthread_attr_t *a, thread_main *f, void *arg);
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a, thread_main *f, void *arg);
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a, thread_main *f, void *arg)
{
    return no_thread ? EAGAIN : __real_pthread_create(t, a, f, arg);
}

/* ---- GPUs ------------------------------------------------------------------------------------- */

enum { LATENCY = 1000, DISPATCH = 2000, SUBMIT = 20000, WAKE = 10000, POLL = 100, SMALL = DISPATCH + BYTES };

static void fill(const hth_dispatch_args *c)
{
    uint32_t push[2], *y = c->bind[0];
    memcpy(push, c->push, sizeof push);
    for (uint32_t i = 0; i < push[0]; i++) y[i] = push[1];
}

static void copy(const hth_dispatch_args *c)
{
    uint32_t n;
    memcpy(&n, c->push, sizeof n);
    memcpy(c->bind[1], c->bind[0], n * sizeof n);
}

/* Goes on only when it is let go. */
static atomic_bool slow_began, slow_may_end, slow_ended;

static void slow(const hth_dispatch_args *c)
{
    atomic_store(&slow_began, true);
    while (!atomic_load(&slow_may_end)) sched_yield();
    memset(c->bind[2], 1, (size_t)c->size[2]);
    atomic_store(&slow_ended, true);
}

static hth_shader_ref_fn *const functions[HTH_N_SHADER] = {
    [HTH_SHADER_fill] = fill, [HTH_SHADER_copy] = copy, [HTH_SHADER_add] = slow};

static hearth_status open_sim_gpu(const char *text, uint64_t memory, hth_device **d, hearth_error *err)
{
    return sim_gpu_open(text, memory, functions, d, err);
}

/* A GPU with a buffer of each kind of memory, of BYTES. */
typedef struct bench {
    hth_device *d;
    hth_buffer *src, *dst, *upload, *readback;
    const hth_pipeline *fill, *copy;
} bench;

static hearth_status open_bench(const char *text, bench *b, hearth_error *err)
{
    *b = (bench){0};
    hearth_status st = open_sim_gpu(text, 0, &b->d, err);
    if (st == HEARTH_OK) st = hth_buffer_new(b->d, HTH_MEMORY_DEVICE, BYTES, "src", &b->src, err);
    if (st == HEARTH_OK) st = hth_buffer_new(b->d, HTH_MEMORY_DEVICE, BYTES, "dst", &b->dst, err);
    if (st == HEARTH_OK) st = hth_buffer_new(b->d, HTH_MEMORY_UPLOAD, BYTES, "upload", &b->upload, err);
    if (st == HEARTH_OK) st = hth_buffer_new(b->d, HTH_MEMORY_READBACK, BYTES, "readback", &b->readback, err);
    if (st == HEARTH_OK) st = hth_pipeline_get(b->d, HTH_SHADER_fill, NULL, &b->fill, err);
    return st == HEARTH_OK ? hth_pipeline_get(b->d, HTH_SHADER_copy, NULL, &b->copy, err) : st;
}

static bench bench_of(const char *text)
{
    bench b;
    CHECK_OK(open_bench(text, &b, err));
    return b;
}

static void close_bench(bench *b) { hth_device_close(b->d); }

static const uint32_t ones[2] = {N, 1};

static void run_fill(bench *b, hth_cmdlist *t, uint64_t reads)
{
    hth_cmdlist_dispatch(t, b->fill, (hth_buffer_range[]){{b->src, 0, 0}}, ones, 1, 1, 1);
    if (reads > 0) hth_cmdlist_hint_bytes(t, reads);
}

static void carry(hth_cmdlist *t, hth_buffer *from, hth_buffer *to)
{
    hth_cmdlist_copy(t, (hth_buffer_range){from, 0, 0}, (hth_buffer_range){to, 0, 0});
}

/* A command list of one run that reads so much; 0: not given. */
static hth_cmdlist *cmdlist_of(bench *b, uint64_t reads)
{
    hth_cmdlist *t = OPENED_BY(hth_cmdlist_begin, hth_cmdlist, b->d);
    run_fill(b, t, reads);
    CHECK_OK(hth_cmdlist_end(t, err));
    return t;
}

static const uint64_t second = 1000000000;

static void submit(bench *b, hth_cmdlist *t, uint64_t wait, hth_fence *fence)
{
    CHECK_OK(hth_queue_submit(b->d, (hth_submit_info[]){{.cmdlist = t, .wait = wait}}, 1, fence, err));
}

/* What a command list takes on the device by itself. */
static uint64_t length_of(bench *b, hth_cmdlist *t)
{
    hth_fence fence;
    CHECK_OK(hth_cmdlist_end(t, err));
    uint64_t before = hth_device_time(b->d);
    submit(b, t, 0, &fence);
    CHECK_OK(hth_queue_wait(b->d, fence, second, err));
    return hth_device_time(b->d) - before - SUBMIT - WAKE;
}

static hth_cmdlist *begin(bench *b) { return OPENED_BY(hth_cmdlist_begin, hth_cmdlist, b->d); }

/* ---- what it is ------------------------------------------------------------------------------------- */

TEST(a_simulated_device_says_that_it_is_one)
{
    hth_device_info found[16];
    char note[200];
    size_t n;
    CLEANUP(close_bench) bench b = bench_of(SIM_GPU_EXACT);
    const hth_device_info *info = hth_device_get_info(b.d);
    CHECK_INT(info->kind, HTH_DEVICE_SIMULATED);
    CHECK_TEXT(info->name, "simulated hand");
    CHECK_TEXT(info->driver, "functions of C, a virtual clock");
    CHECK_INT(info->memory, 1 << 20);
    CHECK(hth_buffer_map(b.src) == NULL && hth_buffer_map(b.readback) != NULL);
    hth_device_list(found, 16, &n, note);
    for (size_t i = 0; i < n; i++) CHECK(found[i].kind != HTH_DEVICE_SIMULATED);
}

TEST(memory_is_limited_to_that_of_the_gpu)
{
    hth_buffer *all, *more;
    hearth_error why;
    hth_device *d = OPENED_BY(open_sim_gpu, hth_device, SIM_GPU_EXACT, 0);
    CHECK(hth_buffer_new(d, HTH_MEMORY_DEVICE, (1 << 20) + 1, "too much", &all, &why) == HEARTH_ERROR_MEMORY);
    CHECK(strstr(why.message, "simulated hand: too much") != NULL);
    CHECK_OK(hth_buffer_new(d, HTH_MEMORY_DEVICE, 1 << 20, "all", &all, err));
    CHECK(hth_buffer_new(d, HTH_MEMORY_READBACK, 1, "a byte", &more, &why) == HEARTH_ERROR_MEMORY);
    hth_buffer_free(all);
    CHECK_OK(hth_buffer_new(d, HTH_MEMORY_READBACK, 1, "a byte", &more, err));
    hth_device_close(d);
    CHECK_OK(open_sim_gpu(SIM_GPU_EXACT, 8192, &d, err));
    CHECK_INT(hth_device_state(d).limit, 8192);
    hth_device_close(d);
}

/* ---- the virtual clock -------------------------------------------------------------------------- */

TEST(a_run_takes_its_dispatch_and_its_bytes)
{
    static const uint32_t grids[] = {4, 3, 1, 0, 1, 1};
    CLEANUP(close_bench) bench b = bench_of(SIM_GPU_EXACT);
    CHECK_OK(hth_device_upload((hth_buffer_range){b.upload, 0, sizeof grids}, grids, err));
    CHECK_INT(hth_device_time(b.d), 0);

    hth_cmdlist *t = begin(&b);
    run_fill(&b, t, 0);
    CHECK_INT(length_of(&b, t), DISPATCH + BYTES);
    t = begin(&b);
    run_fill(&b, t, 100000);
    run_fill(&b, t, 1);
    CHECK_INT(length_of(&b, t), DISPATCH + 100000 + DISPATCH + 1);

    /* The smallest of what it is bound to. */
    t = begin(&b);
    hth_cmdlist_dispatch(t, b.copy, (hth_buffer_range[]){{b.src, 0, 0}, {b.dst, 0, 400}},
                         (const uint32_t[]){100}, 1, 1, 1);
    CHECK_INT(length_of(&b, t), DISPATCH + 400);

    /* Each workgroup reads what is said; a run of nothing reads nothing. */
    t = begin(&b);
    hth_cmdlist_dispatch_indirect(t, b.fill, (hth_buffer_range[]){{b.src, 0, 0}}, ones,
                                  (hth_buffer_range){b.upload, 0, 12});
    hth_cmdlist_hint_bytes(t, 500);
    CHECK_INT(length_of(&b, t), DISPATCH + 4 * 3 * 500);
    t = begin(&b);
    hth_cmdlist_dispatch_indirect(t, b.fill, (hth_buffer_range[]){{b.src, 0, 0}}, ones,
                                  (hth_buffer_range){b.upload, 12, 12});
    hth_cmdlist_hint_bytes(t, 500);
    CHECK_INT(length_of(&b, t), DISPATCH);
    t = begin(&b);
    hth_cmdlist_dispatch(t, b.fill, (hth_buffer_range[]){{b.src, 0, 0}}, ones, 1, 0, 1);
    hth_cmdlist_dispatch(t, b.fill, (hth_buffer_range[]){{b.src, 0, 0}}, ones, 1, 1, 0);
    CHECK_INT(length_of(&b, t), 2 * DISPATCH);
}

/* Bits as they are when the run begins: the command list itself sets them. */
TEST(a_masked_dispatch_costs_what_its_mask_selects)
{
    static const uint32_t from[] = {0xffffffffu, 0x0000fff0u, 0, 0x80000001u};
    CLEANUP(close_bench) bench b = bench_of(SIM_GPU_EXACT);
    const hth_buffer_range marks = {b.dst, 64, 16};
    CHECK_OK(hth_device_upload(marks, from, err));
    static const uint32_t ranges[][3] = {{0, 128, 32 + 12 + 2}, {0, 32, 32}, {36, 12, 12}, {35, 2, 1},
                                         {64, 32, 0},           {96, 1, 1},  {97, 30, 0},  {127, 1, 1}};
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
        hth_cmdlist *t = begin(&b);
        run_fill(&b, t, 0);
        hth_cmdlist_hint_bytes_masked(t, 300, marks, ranges[i][0], ranges[i][1]);
        CHECK_INT(length_of(&b, t), DISPATCH + 300 * ranges[i][2]);
    }
    hth_cmdlist *t = begin(&b);
    run_fill(&b, t, 1);
    carry(t, b.src, b.dst); /* ones: a bit of every word */
    hth_cmdlist_barrier(t, &marks, 1);
    uint64_t before = length_of(&b, t);
    CHECK_OK(hth_device_upload(marks, from, err));
    t = begin(&b);
    run_fill(&b, t, 1);
    carry(t, b.src, b.dst);
    hth_cmdlist_barrier(t, &marks, 1);
    run_fill(&b, t, 0);
    hth_cmdlist_hint_bytes_masked(t, 300, marks, 0, 128);
    CHECK_INT(length_of(&b, t) - before, DISPATCH + 300 * 4);
    t = begin(&b);
    run_fill(&b, t, 0);
    hth_cmdlist_hint_bytes_masked(t, UINT64_MAX / 2, (hth_buffer_range){b.dst, BYTES, 4}, 0,
                                  32); /* beside its buffer */
    hearth_error why;
    CHECK(hth_cmdlist_end(t, &why) == HEARTH_ERROR_ARGUMENT);
}

TEST(copies_take_the_time_of_their_link_and_overlap_with_dispatches)
{
    const uint64_t up = LATENCY + 2 * BYTES, down = LATENCY + 4 * BYTES;
    CLEANUP(close_bench) bench b = bench_of(SIM_GPU_EXACT);
    hth_cmdlist *t = begin(&b);
    carry(t, b.upload, b.src);
    CHECK_INT(length_of(&b, t), up);
    t = begin(&b);
    carry(t, b.src, b.readback);
    CHECK_INT(length_of(&b, t), down);
    t = begin(&b);
    carry(t, b.upload, b.readback); /* one after the other */
    CHECK_INT(length_of(&b, t), up + down);
    t = begin(&b);
    carry(t, b.src, b.dst);
    CHECK_INT(length_of(&b, t), DISPATCH + 2 * BYTES);

    /* Two queues: one way they wait for each other, both ways they do not. */
    t = begin(&b);
    carry(t, b.upload, b.src);
    carry(t, b.upload, b.dst);
    CHECK_INT(length_of(&b, t), 2 * up);
    t = begin(&b);
    carry(t, b.upload, b.src);
    carry(t, b.dst, b.readback);
    CHECK_INT(length_of(&b, t), down);

    /* Beside a run; behind an order the run waits. */
    t = begin(&b);
    carry(t, b.upload, b.dst);
    run_fill(&b, t, 5000);
    CHECK_INT(length_of(&b, t), up);
    t = begin(&b);
    carry(t, b.upload, b.dst);
    hth_cmdlist_barrier(t, (hth_buffer_range[]){{b.dst, 0, 0}}, 1);
    run_fill(&b, t, 5000);
    CHECK_INT(length_of(&b, t), up + DISPATCH + 5000);
}

TEST(the_host_waits_for_what_it_uploads)
{
    static uint8_t bytes[BYTES];
    hth_fence fence;
    CLEANUP(close_bench) bench b = bench_of(SIM_GPU_EXACT);
    CHECK_OK(hth_device_upload((hth_buffer_range){b.upload, 0, 0}, bytes, err)); /* the host's own memory */
    CHECK_INT(hth_device_time(b.d), 0);
    CHECK_OK(hth_device_upload((hth_buffer_range){b.src, 0, 0}, bytes, err));
    CHECK_INT(hth_device_time(b.d), LATENCY + 2 * BYTES);
    CHECK_OK(hth_device_download((hth_buffer_range){b.src, 0, 0}, bytes, err));
    CHECK_INT(hth_device_time(b.d), LATENCY + 2 * BYTES + LATENCY + 4 * BYTES);

    /* Behind what the device does. */
    uint64_t before = hth_device_time(b.d);
    submit(&b, cmdlist_of(&b, 50000), 0, &fence);
    CHECK_OK(hth_device_upload((hth_buffer_range){b.dst, 0, 0}, bytes, err));
    CHECK_INT(hth_device_time(b.d) - before, SUBMIT + DISPATCH + 50000 + LATENCY + 2 * BYTES);
    CHECK(hth_queue_is_complete(b.d, fence));
}

TEST(both_clocks_meet_at_signals_and_waits)
{
    hth_fence fences[2], early;
    CLEANUP(close_bench) bench b = bench_of(SIM_GPU_EXACT);
    hth_cmdlist *t = cmdlist_of(&b, 0);
    CHECK_OK(hth_queue_submit(b.d, (hth_submit_info[]){{.cmdlist = t}, {.cmdlist = t, .wait = 5}}, 2, fences, err));
    CHECK_INT(hth_device_time(b.d), SUBMIT);
    CHECK_OK(hth_queue_wait(b.d, fences[0], second, err));
    uint64_t now = SUBMIT + SMALL + WAKE;
    CHECK_INT(hth_device_time(b.d), now);
    CHECK_OK(hth_queue_wait(b.d, fences[0], second, err)); /* it does not sleep again */
    CHECK_INT(hth_device_time(b.d), now);

    /* The second begins when the host lets it, not before. */
    hth_device_advance_clock(b.d, 50000);
    CHECK_OK(hth_queue_signal(b.d, 4, err));
    CHECK(!hth_queue_is_complete(b.d, fences[1]));
    CHECK_OK(hth_queue_signal(b.d, 5, err));
    CHECK_OK(hth_queue_wait(b.d, fences[1], second, err));
    now += 50000 + POLL + SMALL + WAKE;
    CHECK_INT(hth_device_time(b.d), now);

    /* A host semaphore that was signalled early costs nothing: the device goes on by itself. */
    CHECK_OK(hth_queue_submit(b.d, (hth_submit_info[]){{.cmdlist = t}, {.cmdlist = t, .wait = 6}}, 2, fences, err));
    CHECK_OK(hth_queue_signal(b.d, 6, err));
    CHECK_OK(hth_queue_wait(b.d, fences[1], second, err));
    now += SUBMIT + 2 * SMALL + WAKE;
    CHECK_INT(hth_device_time(b.d), now);

    /* What is open behind what is closed waits with it. */
    CHECK_OK(hth_queue_submit(b.d, (hth_submit_info[]){{.cmdlist = t, .wait = 8},
                                                       {.cmdlist = t, .wait = 7}}, 2, fences, err));
    CHECK_OK(hth_queue_signal(b.d, 7, err));
    hth_device_advance_clock(b.d, 30000);
    CHECK_OK(hth_queue_signal(b.d, 8, err));
    CHECK_OK(hth_queue_wait(b.d, fences[1], second, err));
    now += SUBMIT + 30000 + 2 * SMALL + WAKE;
    CHECK_INT(hth_device_time(b.d), now);

    /* A host that looks until it is there. */
    submit(&b, t, 0, &early);
    int n = 0;
    while (!hth_queue_is_complete(b.d, early)) n++;
    CHECK_INT(n, SMALL / POLL);
    CHECK_INT(hth_device_time(b.d), now + SUBMIT + SMALL);
}

TEST(timeouts_end_on_the_virtual_clock)
{
    bench b;
    hth_fence fence;
    hearth_error why;
    CHECK_OK(open_bench(SIM_GPU_EXACT, &b, err));
    submit(&b, cmdlist_of(&b, 1000000), 0, &fence);
    CHECK(hth_queue_wait(b.d, fence, DISPATCH + 1000000 - 1, &why) == HEARTH_ERROR_DEVICE);
    CHECK(strstr(why.message, "simulated hand: command list 1 is not done") && hth_device_state(b.d).lost);
    CHECK_INT(hth_device_time(b.d), SUBMIT + DISPATCH + 1000000 - 1);
    hth_device_close(b.d);
    CHECK_OK(open_bench(SIM_GPU_EXACT, &b, err));
    submit(&b, cmdlist_of(&b, 1000000), 0, &fence);
    CHECK_OK(hth_queue_wait(b.d, fence, DISPATCH + 1000000, err));
    hth_device_close(b.d);
}

/* A timeout is for some command lists, not for all that may wait. */
TEST(many_command_lists_finish_with_a_timeout_for_some)
{
    enum { N_TAPE = 100, SOME = 16, EACH = DISPATCH + 1000000 };
    CLEANUP(close_bench) bench b = bench_of(SIM_GPU_EXACT);
    hth_cmdlist *t = cmdlist_of(&b, 1000000);
    for (int i = 0; i < N_TAPE; i++) submit(&b, t, i == N_TAPE / 2 ? 7 : 0, NULL);
    CHECK_OK(hth_queue_drain(b.d, (uint64_t)SOME * EACH, err));
    CHECK(hth_device_time(b.d) >= (uint64_t)N_TAPE * EACH && hth_queue_host_value(b.d) == 7);
}

/* Rounds of a device that computes for 102 us beside a host that does for host_ns. */
static uint64_t rounds_together(const char *card, uint64_t host_ns, int n)
{
    bench b;
    hth_fence fence;
    CHECK_OK(open_bench(card, &b, err));
    hth_cmdlist *t = cmdlist_of(&b, 100000);
    for (int i = 0; i < n; i++) {
        submit(&b, t, 0, &fence);
        hth_device_advance_clock(b.d, host_ns);
        CHECK_OK(hth_queue_wait(b.d, fence, second, err));
    }
    uint64_t time = hth_device_time(b.d);
    hth_device_close(b.d);
    return time;
}

TEST(device_and_host_compute_at_once)
{
    const uint64_t device = DISPATCH + 100000;
    CHECK_INT(rounds_together(SIM_GPU_EXACT, 90000, 1), SUBMIT + device + WAKE);
    CHECK(rounds_together(SIM_GPU_EXACT, 90000, 1) < SUBMIT + device + 90000 + WAKE);
    CHECK_INT(rounds_together(SIM_GPU_EXACT, 150000, 1), SUBMIT + 150000); /* it need not wait */
    CHECK_INT(rounds_together(SIM_GPU_EXACT, 90000, 7), 7 * (SUBMIT + device + WAKE));
}

TEST(jitter_is_the_same_in_every_run_of_a_seed)
{
    static const char seven[] = SIM_GPU_RATES "jitter = 0.25\nseed = 7\nclock = virtual\n",
                      eight[] = SIM_GPU_RATES "jitter = 0.25\nseed = 8\nclock = virtual\n";
    uint64_t time = rounds_together(seven, 90000, 20), exact = rounds_together(SIM_GPU_EXACT, 90000, 20);
    CHECK_INT(rounds_together(seven, 90000, 20), time);
    CHECK(rounds_together(eight, 90000, 20) != time && time != exact);
    CHECK(time > exact * 3 / 4 && time < exact * 5 / 4);

    /* Costs of the device and of the host differ by themselves. */
    bench b;
    uint64_t by_seed[2], submitted[2];
    for (int i = 0; i < 2; i++) {
        CHECK_OK(open_bench(i ? eight : seven, &b, err));
        hth_fence last;
        submit(&b, cmdlist_of(&b, 100000), 0, &last);
        uint64_t before = hth_device_time(b.d);
        submitted[i] = before;
        while (!hth_queue_is_complete(b.d, last)) {
        }
        by_seed[i] = hth_device_time(b.d) - before;
        hth_device_close(b.d);
    }
    CHECK(by_seed[0] != by_seed[1] && submitted[0] != submitted[1]);

    uint64_t min = UINT64_MAX, max = 0, sum = 0;
    hth_fence fence;
    CHECK_OK(open_bench(seven, &b, err));
    hth_cmdlist *t = cmdlist_of(&b, 100000 - DISPATCH);
    for (int i = 0; i < 400; i++) {
        hth_device_advance_clock(b.d, 200000); /* it is idle */
        submit(&b, t, 0, &fence);
        uint64_t before = hth_device_time(b.d);
        while (!hth_queue_is_complete(b.d, fence)) {
        }
        uint64_t took = hth_device_time(b.d) - before;
        min = took < min ? took : min, max = took > max ? took : max, sum += took;
    }
    CHECK(min >= 75000 && min < 76000);
    CHECK(max <= 125000 + POLL && max > 124000);
    CHECK(sum / 400 > 97000 && sum / 400 < 103000);
    hth_device_close(b.d);
}

/* ---- faults and budgets ------------------------------------------------------------------------- */

TEST(faults_come_at_their_calls)
{
    static const char text[] = SIM_GPU_EXACT "fault = 2:memory\nfault = 4:unsupported\nfault = 6:timeout\n";
    hearth_error why;
    hth_device *d = OPENED_BY(open_sim_gpu, hth_device, text, 0);
    hth_buffer *b = OPENED_BY(hth_buffer_new, hth_buffer, d, HTH_MEMORY_DEVICE, 4, "first");
    CHECK(hth_buffer_new(d, HTH_MEMORY_DEVICE, 4, "second", &b, &why) == HEARTH_ERROR_MEMORY);
    CHECK(strstr(why.message, "simulated hand: its description makes call 2 fail: memory") && b == NULL);
    CHECK(!hth_device_state(d).lost);
    hth_cmdlist *t = OPENED_BY(hth_cmdlist_begin, hth_cmdlist, d);
    CHECK(hth_cmdlist_end(t, &why) == HEARTH_ERROR_UNSUPPORTED && !hth_device_state(d).lost);
    CHECK_OK(hth_queue_signal(d, 1, err));
    CHECK(hth_queue_signal(d, 2, &why) == HEARTH_ERROR_DEVICE && strstr(why.message, "call 6 fail: timeout"));
    CHECK(hth_device_state(d).lost);
    CHECK(hth_queue_signal(d, 3, &why) == HEARTH_ERROR_DEVICE && strstr(why.message, "was lost"));
    hth_device_close(d);
    CHECK_OK(open_sim_gpu(SIM_GPU_EXACT "fault = 1:device\n", 0, &d, err));
    CHECK(hth_cmdlist_begin(d, &t, &why) == HEARTH_ERROR_DEVICE && hth_device_state(d).lost);
    hth_device_close(d);
}

TEST(budgets_shrink_and_what_is_there_stays)
{
    hearth_error why;
    hth_fence fence;
    CLEANUP(close_bench) bench b = bench_of(SIM_GPU_EXACT "budget_bytes_at = 2:20000\nbudget_bytes_at = 3:8192\n");
    hth_cmdlist *t = cmdlist_of(&b, 0);
    uint64_t used = hth_device_state(b.d).used;
    submit(&b, t, 0, &fence);
    CHECK_INT(hth_device_state(b.d).limit, 1 << 20);
    submit(&b, t, 0, &fence);
    CHECK_INT(hth_device_state(b.d).limit, 20000);
    CHECK_INT(hth_device_get_info(b.d)->budget, 20000);
    hth_buffer *more = OPENED_BY(hth_buffer_new, hth_buffer, b.d, HTH_MEMORY_DEVICE, 256, "a little");
    submit(&b, t, 0, &fence);
    CHECK_INT(hth_device_state(b.d).limit, 8192);
    CHECK(hth_device_state(b.d).used > 8192);
    CHECK(hth_buffer_new(b.d, HTH_MEMORY_DEVICE, 4, "more", &more, &why) == HEARTH_ERROR_MEMORY);
    CHECK_OK(hth_queue_wait(b.d, fence, second, err)); /* what is there runs on */
    hth_buffer_free(b.dst), hth_buffer_free(b.upload), hth_buffer_free(b.readback);
    CHECK(hth_device_state(b.d).used < used);
    CHECK_OK(hth_buffer_new(b.d, HTH_MEMORY_DEVICE, 256, "more", &more, err));
}

/* A host that sleeps is woken late; one that knows how long the work takes sees its end. */
TEST(a_host_does_not_sleep_before_work_that_took_as_long_ends)
{
    enum { WORK = 200000, LONG = 2000000, EXACT = 2 * POLL };
    CLEANUP(close_bench) bench b = bench_of(SIM_GPU_EXACT);
    const struct {
        uint64_t reads, last_ns;
        bool sleeps;
    } waits[] = {{WORK, 0, true}, {WORK, WORK, false}, {WORK, WORK / 2, true}, {LONG, LONG, true}, {WORK, LONG, true}};
    for (size_t i = 0; i < sizeof waits / sizeof *waits; i++) {
        hth_fence fence;
        hth_cmdlist *t = cmdlist_of(&b, waits[i].reads);
        submit(&b, t, 0, &fence);
        uint64_t start = hth_device_time(b.d), due = DISPATCH + waits[i].reads + (waits[i].sleeps ? WAKE : 0);
        CHECK_OK(hth_queue_wait_spin(b.d, fence, hth_queue_spin_ns(b.d, waits[i].last_ns), 60 * second, err));
        uint64_t took = hth_device_time(b.d) - start;
        if (took < due - EXACT || took > due + EXACT)
            test_fail(__FILE__, __LINE__, "wait %zu: %llu ns, %llu are due", i, (unsigned long long)took,
                      (unsigned long long)due);
        hth_cmdlist_free(t);
    }
    const hth_device_spec null = {.name = "null"};
    hth_device *cpu = OPENED(hth_device, &null); /* needs its cores to compute */
    if (cpu) CHECK_INT(hth_queue_spin_ns(cpu, WORK), hth_queue_spin_ns(cpu, 0));
    hth_device_close(cpu);
}

/* ---- the real clock ----------------------------------------------------------------------------- */

/* A byte a microsecond. */
#define REAL                                                                                                 \
    "name = slow\nvram_bytes = 1M\nbandwidth = 1e6\npcie_up = 1e9\npcie_down = 1e9\n"                        \
    "pcie_latency_us = 1\ndispatch_us = 2\nsubmit_us = 20\nwake_us = 2000\nflops = 1e12\n"                   \
    "jitter = 0\nseed = 1\nclock = real\n"

enum { REAL_WAKE = 2000000 };

TEST(with_a_real_clock_no_fence_completes_before_its_time)
{
    hth_fence fence;
    CLEANUP(close_bench) bench b = bench_of(REAL);
    CHECK_TEXT(hth_device_get_info(b.d)->driver, "functions of C, a real clock");
    hth_cmdlist *t = cmdlist_of(&b, 30000);
    for (int polls = 0; polls < 2; polls++) {
        uint64_t before = hth_clock_ns();
        submit(&b, t, 0, &fence);
        CHECK(hth_clock_ns() - before >= SUBMIT);
        bool there = hth_queue_is_complete(b.d, fence);
        CHECK(!there || hth_clock_ns() - before >= SUBMIT + DISPATCH + 30000000);
        if (polls)
            while (!hth_queue_is_complete(b.d, fence)) sched_yield();
        else CHECK_OK(hth_queue_wait(b.d, fence, 60 * second, err));
        CHECK(hth_clock_ns() - before >= SUBMIT + DISPATCH + 30000000 + (polls ? 0 : REAL_WAKE));
    }

    /* After a host semaphore: from the signal on. Two submissions: one after the other. */
    hth_fence fences[2];
    CHECK_OK(hth_queue_submit(b.d, (hth_submit_info[]){{.cmdlist = t, .wait = 3},
                                                       {.cmdlist = t, .wait = 3}}, 2, fences, err));
    usleep(5000);
    uint64_t before = hth_clock_ns();
    CHECK_OK(hth_queue_signal(b.d, 3, err));
    CHECK_OK(hth_queue_wait(b.d, fences[0], 60 * second, err));
    CHECK(hth_clock_ns() - before >= 30000000);
    bool both = hth_queue_is_complete(b.d, fences[1]);
    CHECK(!both || hth_clock_ns() - before >= 2 * (DISPATCH + 30000000));
    CHECK_OK(hth_queue_wait(b.d, fences[1], 60 * second, err));
    CHECK(hth_clock_ns() - before >= 2 * (DISPATCH + 30000000));
    CHECK(hth_device_time(b.d) >= 120000000);

    /* Uploads: as long as their link takes them. */
    static uint8_t bytes[BYTES];
    before = hth_clock_ns();
    for (int i = 0; i < 100; i++) CHECK_OK(hth_device_upload((hth_buffer_range){b.dst, 0, 0}, bytes, err));
    CHECK(hth_clock_ns() - before >= 100 * (1000 + 4000));
}

/* The host writes, signals and computes while the device reads; both see what the other wrote. */
TEST(with_a_real_clock_both_sides_meet_at_signals)
{
    enum { ROUNDS = 300 };
    CLEANUP(close_bench) bench b = bench_of(REAL);
    hth_cmdlist *t = begin(&b);
    carry(t, b.upload, b.src);
    hth_cmdlist_barrier(t, (hth_buffer_range[]){{b.src, 0, 0}}, 1);
    hth_cmdlist_dispatch(t, b.copy, (hth_buffer_range[]){{b.src, 0, 40}, {b.dst, 0, 40}},
                         (const uint32_t[]){10}, 1, 1, 1);
    hth_cmdlist_barrier(t, (hth_buffer_range[]){{b.dst, 0, 0}}, 1);
    carry(t, b.dst, b.readback);
    CHECK_OK(hth_cmdlist_end(t, err));
    uint32_t *up = hth_buffer_map(b.upload);
    const uint32_t *down = hth_buffer_map(b.readback);
    hth_fence fences[ROUNDS];
    hth_submit_info submits[ROUNDS];
    for (uint32_t i = 0; i < ROUNDS; i++) submits[i] = (hth_submit_info){.cmdlist = t, .wait = i + 1};
    CHECK_OK(hth_queue_submit(b.d, submits, ROUNDS, fences, err));
    uint32_t wrong = 0;
    for (uint32_t i = 0; i < ROUNDS; i++) {
        for (uint32_t k = 0; k < 10; k++) up[k] = i * 10 + k;
        CHECK_OK(hth_queue_signal(b.d, i + 1, err));
        if (i % 3 == 0) CHECK_OK(hth_queue_wait(b.d, fences[i], 60 * second, err));
        else
            while (!hth_queue_is_complete(b.d, fences[i])) sched_yield();
        for (uint32_t k = 0; k < 10; k++) wrong += down[k] != i * 10 + k;
    }
    CHECK_INT(wrong, 0);
}

static void *let_go(void *user)
{
    usleep(20000);
    atomic_store(&slow_may_end, true);
    return NULL;
}

/* A command list is running, and will end in 20 ms. */
static hth_cmdlist *begin_slow(bench *b, hth_fence *fence, pthread_t *helper)
{
    const hth_pipeline *add;
    hth_buffer_range all[] = {{b->src, 0, 0}, {b->src, 0, 0}, {b->src, 0, 0}};
    atomic_store(&slow_began, false), atomic_store(&slow_may_end, false), atomic_store(&slow_ended, false);
    CHECK_OK(hth_pipeline_get(b->d, HTH_SHADER_add, NULL, &add, err));
    hth_cmdlist *t = begin(b);
    hth_cmdlist_dispatch(t, add, all, ones, 1, 1, 1);
    hth_cmdlist_hint_bytes(t, 1);
    CHECK_OK(hth_cmdlist_end(t, err));
    submit(b, t, 0, fence);
    while (!atomic_load(&slow_began)) sched_yield();
    CHECK_INT(pthread_create(helper, NULL, let_go, NULL), 0);
    return t;
}

TEST(with_a_real_clock_buffers_in_use_are_neither_changed_nor_freed)
{
    static const uint8_t zeros[BYTES];
    uint8_t back[BYTES];
    bench b;
    hth_fence fence;
    pthread_t helper;
    hearth_error why;
    uint64_t held;
    CHECK_OK(open_bench(REAL, &b, err));
    begin_slow(&b, &fence, &helper);
    bool over = hth_queue_is_complete(b.d, fence); /* its time is, its work is not */
    CHECK(!over || atomic_load(&slow_ended));
    CHECK_OK(hth_device_upload((hth_buffer_range){b.src, 0, 0}, zeros, err));
    CHECK(atomic_load(&slow_ended));
    CHECK_OK(hth_device_download((hth_buffer_range){b.src, 0, 0}, back, err));
    CHECK_BYTES(back, zeros, BYTES);
    pthread_join(helper, NULL);
    begin_slow(&b, &fence, &helper);
    CHECK_OK(hth_device_download((hth_buffer_range){b.src, 0, 0}, back, err));
    CHECK(atomic_load(&slow_ended) && back[0] == 1);
    pthread_join(helper, NULL);

    /* What took longer here than on the GPU delays what follows. */
    uint64_t before = hth_clock_ns();
    hth_cmdlist *behind = cmdlist_of(&b, 30000);
    begin_slow(&b, &fence, &helper);
    submit(&b, behind, 0, &fence);
    CHECK_OK(hth_queue_wait(b.d, fence, 60 * second, err));
    CHECK(hth_clock_ns() - before >= 20000000 + 30000000);
    pthread_join(helper, NULL);

    hth_cmdlist *t = begin_slow(&b, &fence, &helper);
    hth_device_inject_fault(b.d, 1, HEARTH_ERROR_DEVICE);
    CHECK(hth_queue_wait(b.d, fence, second, &why) == HEARTH_ERROR_DEVICE);
    held = hth_alloc_in_use();
    hth_cmdlist_free(t);
    CHECK(atomic_load(&slow_ended) || hth_alloc_in_use() == held);
    pthread_join(helper, NULL);
    hth_device_close(b.d);

    CHECK_OK(open_bench(REAL, &b, err));
    begin_slow(&b, &fence, &helper);
    hth_device_inject_fault(b.d, 1, HEARTH_ERROR_DEVICE);
    CHECK(hth_queue_wait(b.d, fence, second, &why) == HEARTH_ERROR_DEVICE);
    held = hth_alloc_in_use();
    hth_buffer_free(b.src);
    CHECK(atomic_load(&slow_ended) || hth_alloc_in_use() == held);
    pthread_join(helper, NULL);
    hth_device_close(b.d);
}

TEST(a_clock_without_a_thread_is_refused)
{
    bench b;
    hearth_error why;
    uint64_t held = hth_alloc_in_use();
    no_thread = true;
    CHECK(open_bench(REAL, &b, &why) == HEARTH_ERROR_MEMORY && strstr(why.message, "simulated slow"));
    CHECK_INT(hth_alloc_in_use(), held);
    CHECK_OK(open_bench(SIM_GPU_EXACT, &b, err)); /* a virtual one wants none */
    no_thread = false;
    hth_device_close(b.d);
}

TEST(a_real_clock_ends_at_once_when_it_is_closed_or_lost)
{
    bench b;
    hth_fence fence;
    hearth_error why;
    uint64_t before = hth_clock_ns();
    CHECK_OK(open_bench(REAL, &b, err)); /* a command list of 100 s, and one behind it */
    hth_cmdlist *t = cmdlist_of(&b, 100000000);
    submit(&b, t, 0, &fence);
    submit(&b, t, 0, &fence);
    usleep(2000);
    hth_device_close(b.d);

    CHECK_OK(open_bench(REAL, &b, err));
    t = cmdlist_of(&b, 100000000);
    submit(&b, t, 0, &fence);
    CHECK(hth_queue_wait(b.d, fence, 1000000, &why) == HEARTH_ERROR_DEVICE);
    CHECK(strstr(why.message, "is not done after 0.001") && hth_device_state(b.d).lost);
    hth_cmdlist_free(t); /* what was in use is given back behind the run under way */
    hth_buffer_free(b.src);
    hth_device_close(b.d);
    CHECK(hth_clock_ns() - before < 30 * second);
}
