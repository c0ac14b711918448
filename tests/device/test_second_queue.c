/* The second queue of devices: its order, what the first one sees of it and waits for, memory for as long as it is
 * used, every call that fails, lost devices. On every back end. */
#include "device/device.h"
#include "support/device/each_device.h"
#include "support/test.h"

enum { N = 1000, BYTES = 4 * N };
static const uint64_t second = 1000000000;

/* ---- a task: what is loaded beside is read by the first queue ---------------------------------------- */

typedef struct task {
    hth_device *d;
    hth_buffer *up[2], *a[2], *out[2];
    hth_cmdlist *load[2], *read[2]; /* up to a, for the second queue; a to out */
} task;

static hearth_status record_copy(hth_device *d, hth_buffer *from, hth_buffer *to, hth_cmdlist **out, hearth_error *err)
{
    static const uint32_t n = N;
    const hth_pipeline *copy;
    hearth_status st = hth_pipeline_get(d, HTH_SHADER_copy, NULL, &copy, err);
    if (st == HEARTH_OK) st = hth_cmdlist_begin(d, out, err);
    if (st != HEARTH_OK) return st;
    hth_cmdlist_dispatch(*out, copy, (hth_buffer_range[]){{from, 0, 0}, {to, 0, 0}}, &n, 16, 1, 1);
    return hth_cmdlist_end(*out, err);
}

static hearth_status open_task(uint64_t memory, task *t, hearth_error *err)
{
    *t = (task){0};
    hearth_status st = each_device_open(memory, &t->d, err);
    for (int i = 0; i < 2; i++) {
        if (st == HEARTH_OK) st = hth_buffer_new(t->d, HTH_MEMORY_UPLOAD, BYTES, "what is loaded", &t->up[i], err);
        if (st == HEARTH_OK) st = hth_buffer_new(t->d, HTH_MEMORY_DEVICE, BYTES, "a", &t->a[i], err);
        if (st == HEARTH_OK) st = hth_buffer_new(t->d, HTH_MEMORY_READBACK, BYTES, "out", &t->out[i], err);
        if (st == HEARTH_OK) st = record_copy(t->d, t->up[i], t->a[i], &t->load[i], err);
        if (st == HEARTH_OK) st = record_copy(t->d, t->a[i], t->out[i], &t->read[i], err);
    }
    return st;
}

static void close_task(task *t) { each_device_close(t->d); }

static task task_of(void)
{
    task t;
    CHECK_OK(open_task(0, &t, err));
    return t;
}

static void write_numbers(hth_buffer *b, uint32_t first)
{
    uint32_t *words = hth_buffer_map(b);
    for (uint32_t i = 0; i < N; i++) words[i] = first + i;
}

static bool has_numbers(hth_buffer *b, uint32_t first)
{
    const uint32_t *words = hth_buffer_map(b);
    for (uint32_t i = 0; i < N; i++)
        if (words[i] != first + i) return false;
    return true;
}

static hearth_status submit(task *t, hth_cmdlist *list, uint64_t wait, hth_fence beside, hth_fence *fence,
                            hearth_error *err)
{
    const hth_submit_info info = {.cmdlist = list, .wait = wait, .beside = beside};
    return hth_queue_submit(t->d, &info, 1, fence, err);
}

/* ---- order and visibility ----------------------------------------------------------------------------- */

/* Two loads in turn, each while the first queue reads the other one. */
ON_EACH(command_lists_begin_behind_the_second_queue_and_see_what_it_wrote)
{
    enum { ROUNDS = 200 };
    CLEANUP(close_task) task t = task_of();
    hth_fence loads[2] = {0}, reads[2] = {0};
    uint32_t n_wrong = 0;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        uint32_t i = round % 2;
        CHECK_OK(hth_queue_wait(t.d, reads[i], second, err));
        if (round > 1) n_wrong += !has_numbers(t.out[i], (round - 2) * N);
        write_numbers(t.up[i], round * N);
        CHECK_OK(hth_beside_submit(t.d, (hth_cmdlist *[]){t.load[i]}, 1, &loads[i], err));
        CHECK_INT(loads[i], round + 1);
        CHECK_OK(submit(&t, t.read[i], 0, loads[i], &reads[i], err));
    }
    CHECK_OK(hth_queue_wait(t.d, reads[1], second, err));
    CHECK(n_wrong == 0 && has_numbers(t.out[0], (ROUNDS - 2) * N) && has_numbers(t.out[1], (ROUNDS - 1) * N));
    CHECK(hth_beside_is_complete(t.d, ROUNDS)); /* as the first queue waited for it */
    CHECK_OK(hth_beside_wait(t.d, ROUNDS, second, err));
}

/* Within the queue, and between both behind a wait of the host. */
ON_EACH(the_second_queue_runs_in_its_order)
{
    CLEANUP(close_task) task t = task_of();
    hth_cmdlist *lists[3] = {0};
    hth_fence fences[3], fence;
    CHECK_OK(record_copy(t.d, t.a[0], t.a[1], &lists[1], err));
    CHECK_OK(record_copy(t.d, t.a[1], t.out[1], &lists[2], err));
    lists[0] = t.load[0];
    write_numbers(t.up[0], 5);
    for (int i = 0; i < 3; i++) CHECK_OK(hth_beside_submit(t.d, (hth_cmdlist *[]){lists[i]}, 1, &fences[i], err));
    CHECK_OK(hth_beside_wait(t.d, fences[2], second, err));
    CHECK(has_numbers(t.out[1], 5) && fences[0] == 1 && fences[2] == 3 && hth_beside_is_complete(t.d, fences[0]));

    CHECK_OK(submit(&t, t.read[0], 0, 0, &fence, err)); /* does not name what the host saw the end of */
    CHECK_OK(hth_queue_wait(t.d, fence, second, err));
    CHECK(has_numbers(t.out[0], 5));
    write_numbers(t.up[1], 77);
    CHECK_OK(submit(&t, t.load[1], 0, 0, &fence, err));
    CHECK_OK(hth_queue_wait(t.d, fence, second, err));
    CHECK_OK(hth_beside_submit(t.d, (hth_cmdlist *[]){t.read[1]}, 1, NULL, err));
    CHECK_OK(hth_beside_wait(t.d, 4, second, err));
    CHECK(has_numbers(t.out[1], 77));
    float back[N];
    CHECK_OK(hth_device_download((hth_buffer_range){t.a[1], 0, 0}, back, err));
    CHECK(memcmp(back, hth_buffer_map(t.out[1]), BYTES) == 0);
}

/* Both waits of a command list, in either order. */
ON_EACH(a_command_list_waits_for_the_host_and_for_the_second_queue)
{
    CLEANUP(close_task) task t = task_of();
    hth_fence load, read;
    for (uint64_t round = 1; round < 20; round++) {
        write_numbers(t.up[0], (uint32_t)round);
        CHECK_OK(hth_beside_submit(t.d, (hth_cmdlist *[]){t.load[0]}, 1, &load, err));
        CHECK_OK(submit(&t, t.read[0], round, load, &read, err));
        CHECK(!hth_queue_is_complete(t.d, read));
        if (round % 2) CHECK_OK(hth_beside_wait(t.d, load, second, err));
        CHECK_OK(hth_queue_signal(t.d, round, err));
        CHECK_OK(hth_queue_wait(t.d, read, second, err));
        CHECK(has_numbers(t.out[0], (uint32_t)round));
    }
}

/* A family of one queue: behind all that was submitted before. */
ON_EACH(the_second_queue_passes_a_first_one_that_waits_for_the_host)
{
    CLEANUP(close_task) task t = task_of();
    hth_fence load, read;
    bool passes = hth_device_get_info(t.d)->has_second_queue;
    CHECK(passes || strcmp(each_device, "vulkan:0") == 0);
    write_numbers(t.up[0], 1), write_numbers(t.up[1], 9);
    CHECK_OK(submit(&t, t.load[0], 3, 0, &read, err));
    CHECK_OK(hth_beside_submit(t.d, (hth_cmdlist *[]){t.load[1]}, 1, &load, err));
    if (passes) CHECK_OK(hth_beside_wait(t.d, load, second, err));
    else CHECK(!hth_beside_is_complete(t.d, load));
    CHECK(!hth_queue_is_complete(t.d, read));
    CHECK_OK(hth_queue_signal(t.d, 3, err));
    CHECK_OK(hth_beside_wait(t.d, load, second, err));
    CHECK_OK(hth_queue_wait(t.d, read, second, err));
    if (!passes) test_note("%s has one queue", hth_device_get_info(t.d)->name);
}

/* More than may be in flight at once, and more than there are proofs of. */
ON_EACH(thousands_of_command_lists_run_on_the_second_queue)
{
    enum { N_LIST = 16, ROUNDS = 5000 };
    static const uint32_t one = 1;
    CLEANUP(close_task) task t = task_of();
    hth_cmdlist *lists[N_LIST];
    const hth_pipeline *copy;
    CHECK_OK(hth_pipeline_get(t.d, HTH_SHADER_copy, NULL, &copy, err));
    for (int i = 0; i < N_LIST; i++) {
        lists[i] = OPENED_BY(hth_cmdlist_begin, hth_cmdlist, t.d);
        hth_cmdlist_dispatch(lists[i], copy, (hth_buffer_range[]){{t.up[0], 0, 0}, {t.a[0], 0, 0}}, &one, 1, 1, 1);
        CHECK_OK(hth_cmdlist_end(lists[i], err));
    }
    hth_fence fence = 0;
    for (uint32_t i = 0; i < ROUNDS; i++) {
        if (i >= N_LIST) CHECK_OK(hth_beside_wait(t.d, i + 1 - N_LIST, second, err));
        CHECK_OK(hth_beside_submit(t.d, (hth_cmdlist *[]){lists[i % N_LIST]}, 1, &fence, err));
    }
    CHECK_INT(fence, ROUNDS);
    CHECK_OK(hth_beside_wait(t.d, fence, second, err));
}

/* ---- memory and ends ------------------------------------------------------------------------------------ */

ON_EACH(memory_in_use_by_the_second_queue_stays)
{
    CLEANUP(close_task) task t;
    hth_buffer *more;
    hth_fence load, read;
    CHECK_OK(open_task(1 << 20, &t, err));
    write_numbers(t.up[0], 5);
    for (int i = 0; i < 2; i++) {
        uint64_t used = hth_device_state(t.d).used, wait = (uint64_t)i + 1;
        /* The first queue holds what is behind it, where there is one queue. */
        CHECK_OK(submit(&t, t.read[1], wait, 0, &read, err));
        CHECK_OK(hth_beside_submit(t.d, (hth_cmdlist *[]){t.load[i]}, 1, &load, err));
        hth_buffer_free(t.up[i]);
        hth_cmdlist_free(t.load[i]);
        bool freed = hth_device_state(t.d).used < used;
        CHECK(!freed || (hth_beside_is_complete(t.d, load) && hth_queue_is_complete(t.d, read)));
        CHECK_OK(hth_queue_signal(t.d, wait, err));
        CHECK_OK(hth_queue_wait(t.d, read, second, err));
        CHECK_OK(hth_beside_wait(t.d, load, second, err));
        CHECK_OK(hth_buffer_new(t.d, HTH_MEMORY_DEVICE, 256, "a little", &more, err));
        CHECK(hth_device_state(t.d).used < used);
    }
}

/* Alone: a first queue that has nothing to do does not free it. */
ON_EACH(what_the_second_queue_alone_uses_is_freed_behind_it)
{
    CLEANUP(close_task) task t = task_of();
    hth_fence load = 0;
    uint64_t used = hth_device_state(t.d).used;
    CHECK_OK(hth_beside_submit(t.d, (hth_cmdlist *[]){t.load[0]}, 1, &load, err));
    hth_buffer_free(t.up[0]);
    bool freed = hth_device_state(t.d).used < used;
    CHECK(!freed || hth_beside_is_complete(t.d, load));
    bool is_virtual = strstr(hth_device_get_info(t.d)->driver, "a virtual clock") != NULL;
    if (is_virtual) CHECK(!freed && !hth_beside_is_complete(t.d, load));
    CHECK_OK(hth_beside_wait(t.d, load, second, err));
    hth_buffer_free(t.up[1]);
    CHECK(hth_device_state(t.d).used <= used - 2 * BYTES);
}

ON_EACH(devices_are_drained_and_closed_with_both_queues)
{
    const hearth_status refusals[] = {HEARTH_OK, HEARTH_ERROR_MEMORY, HEARTH_ERROR_UNSUPPORTED};
    task t;
    for (uint64_t i = 0; i < 3; i++) {
        CHECK_OK(open_task(0, &t, err));
        hth_fence load, read;
        write_numbers(t.up[0], 3);
        CHECK_OK(submit(&t, t.load[1], 2, 0, NULL, err));
        CHECK_OK(hth_beside_submit(t.d, (hth_cmdlist *[]){t.load[0]}, 1, &load, err));
        CHECK_OK(submit(&t, t.read[0], 0, load, &read, err));
        hth_device_inject_fault(t.d, i > 0, refusals[i]); /* the signal */
        CHECK_OK(hth_queue_drain(t.d, second, err));
        CHECK(hth_beside_is_complete(t.d, load) && hth_queue_is_complete(t.d, read) && has_numbers(t.out[0], 3));
        CHECK_OK(hth_beside_submit(t.d, (hth_cmdlist *[]){t.load[0]}, 1, &load, err));
        CHECK_OK(hth_queue_drain(t.d, second, err)); /* of the second queue alone */
        CHECK(hth_beside_is_complete(t.d, load));
        CHECK_OK(submit(&t, t.load[1], 5, 0, NULL, err));
        CHECK_OK(hth_beside_submit(t.d, (hth_cmdlist *[]){t.load[0]}, 1, &load, err));
        CHECK_OK(submit(&t, t.read[0], 0, load, &read, err));
        close_task(&t);
    }
}

static void count_runs(void *user, const hth_command_time *time)
{
    CHECK_TEXT(time->name, "copy");
    *(uint64_t *)user += time->n_run;
}

ON_EACH(commands_of_both_queues_are_timed)
{
    task t;
    uint64_t n_run = 0;
    hth_fence load, read;
    hth_device_time_commands_on_open(true);
    CHECK_OK(open_task(0, &t, err));
    hth_device_time_commands_on_open(false);
    for (int i = 0; i < 3; i++) {
        CHECK_OK(hth_beside_submit(t.d, (hth_cmdlist *[]){t.load[0]}, 1, &load, err));
        CHECK_OK(submit(&t, t.read[0], 0, load, &read, err));
        CHECK_OK(hth_queue_wait(t.d, read, second, err));
    }
    CHECK_OK(submit(&t, t.load[0], 0, 0, &read, err)); /* a list of the other queue */
    CHECK_OK(hth_queue_wait(t.d, read, second, err));
    hth_device_command_times(t.d, count_runs, &n_run);
    CHECK_INT(n_run, strcmp(each_device, "vulkan:0") == 0 ? 7 : 0);
    close_task(&t);
}

/* ---- faults ------------------------------------------------------------------------------------------- */

ON_EACH(a_call_of_the_second_queue_that_is_refused_changes_nothing)
{
    CLEANUP(close_task) task t = task_of();
    hearth_error why;
    hth_fence load = 0;
    write_numbers(t.up[0], 8);
    hth_device_inject_fault(t.d, 1, HEARTH_ERROR_MEMORY);
    CHECK(hth_beside_submit(t.d, (hth_cmdlist *[]){t.load[0]}, 1, &load, &why) == HEARTH_ERROR_MEMORY && load == 0);
    CHECK_OK(hth_beside_submit(t.d, (hth_cmdlist *[]){t.load[0]}, 1, &load, err));
    CHECK_INT(load, 1);
    hth_device_inject_fault(t.d, 1, HEARTH_ERROR_UNSUPPORTED);
    CHECK(hth_beside_wait(t.d, load, second, &why) == HEARTH_ERROR_UNSUPPORTED && !hth_device_state(t.d).lost);
    CHECK_OK(hth_beside_wait(t.d, load, second, err));
}

ON_EACH(a_device_is_lost_by_a_fault_of_its_second_queue)
{
    for (int in_wait = 0; in_wait < 2; in_wait++) {
        CLEANUP(close_task) task t = task_of();
        hearth_error why;
        hth_fence load = 1;
        if (in_wait) CHECK_OK(hth_beside_submit(t.d, (hth_cmdlist *[]){t.load[0]}, 1, &load, err));
        hth_device_inject_fault(t.d, 1, HEARTH_ERROR_DEVICE);
        if (in_wait) CHECK(hth_beside_wait(t.d, load, second, &why) == HEARTH_ERROR_DEVICE);
        else CHECK(hth_beside_submit(t.d, (hth_cmdlist *[]){t.load[0]}, 1, &load, &why) == HEARTH_ERROR_DEVICE);
        CHECK(hth_device_state(t.d).lost && !hth_beside_is_complete(t.d, load));
        CHECK_FAILS(hth_beside_wait(t.d, load, second, err), HEARTH_ERROR_DEVICE, "lost");
        CHECK_FAILS(hth_beside_submit(t.d, (hth_cmdlist *[]){t.load[1]}, 1, &load, err), HEARTH_ERROR_DEVICE, "lost");
        CHECK_FAILS(submit(&t, t.read[1], 0, 0, NULL, err), HEARTH_ERROR_DEVICE, "lost");
        CHECK_FAILS(hth_queue_drain(t.d, second, err), HEARTH_ERROR_DEVICE, "lost");
        hth_buffer_free(t.up[0]);
        hth_cmdlist_free(t.load[0]);
    }
}

/* A second queue that is held by the first one. */
TEST(a_second_queue_that_does_not_end_is_a_device_failure)
{
    each_device = "vulkan:0";
    if (!each_device_has_vulkan()) return;
    CLEANUP(close_task) task t = task_of();
    hth_fence load;
    if (hth_device_get_info(t.d)->has_second_queue) {
        test_skip("%s does not wait for its first queue", hth_device_get_info(t.d)->name);
        return;
    }
    CHECK_OK(submit(&t, t.load[1], 3, 0, NULL, err));
    CHECK_OK(hth_beside_submit(t.d, (hth_cmdlist *[]){t.load[0]}, 1, &load, err));
    CHECK_FAILS(hth_beside_wait(t.d, load, 1000000, err), HEARTH_ERROR_DEVICE,
                "command list 1 of the second queue is not done after 0.0 s");
    CHECK(hth_device_state(t.d).lost);
}

static hearth_status whole_task(uint64_t fail_at, hearth_status with, hearth_error *err)
{
    task t = {0};
    hth_fence load, read;
    hearth_status st = open_task(0, &t, err);
    if (st == HEARTH_OK) {
        hth_device_inject_fault(t.d, fail_at, with);
        st = hth_beside_submit(t.d, (hth_cmdlist *[]){t.load[0]}, 1, &load, err);
    }
    if (st == HEARTH_OK) st = submit(&t, t.read[0], 0, load, &read, err);
    if (st == HEARTH_OK) st = hth_beside_submit(t.d, (hth_cmdlist *[]){t.load[1]}, 1, &load, err);
    if (st == HEARTH_OK) st = hth_queue_wait(t.d, read, second, err);
    if (st == HEARTH_OK) st = hth_beside_wait(t.d, load, second, err);
    if (st == HEARTH_OK) st = hth_queue_drain(t.d, second, err);
    each_device_close(t.d);
    return st;
}

ON_EACH(every_call_that_fails_is_an_error_and_keeps_nothing)
{
    static const hearth_status with[] = {HEARTH_ERROR_MEMORY, HEARTH_ERROR_DEVICE, HEARTH_ERROR_UNSUPPORTED};
    for (size_t s = 0; s < sizeof with / sizeof *with; s++) {
        CHECK_INT(each_device_fail_calls(whole_task, with[s], 100), 6); /* five calls, and a run without a fault */
    }
}
