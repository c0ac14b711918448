/* Devices: command lists in order, gates, memory within its budget and for as long as it is used, every call that
 * fails. The same on the null device, which is always there, on simulated ones with either clock, and on the first
 * that Vulkan knows, watched by its validation layer. */
#include "base/alloc.h"
#include "device/device.h"
#include "support/device/each_device.h"
#include "support/test.h"

enum { N = 1000 };

/* ---- a task ---------------------------------------------------------------------------------------- */

typedef struct task {
    hth_device *d;
    hth_buffer *a, *b, *sum;
    hth_cmdlist *first, *second;
} task;

/* y = a + b on the first command list, y = y + b on the second; the host fills a and b. */
static hearth_status record(task *t, hearth_error *err)
{
    static const uint32_t n = N, one[2] = {N, 0x3f800000};
    const hth_pipeline *p_fill, *p_add;
    hearth_status st = hth_buffer_new(t->d, HTH_MEMORY_DEVICE, N * sizeof(float), "a", &t->a, err);
    if (st == HEARTH_OK) st = hth_buffer_new(t->d, HTH_MEMORY_UPLOAD, N * sizeof(float), "b", &t->b, err);
    if (st == HEARTH_OK) st = hth_buffer_new(t->d, HTH_MEMORY_READBACK, N * sizeof(float), "sum", &t->sum, err);
    if (st == HEARTH_OK) st = hth_pipeline_get(t->d, HTH_SHADER_fill, NULL, &p_fill, err);
    if (st == HEARTH_OK) st = hth_pipeline_get(t->d, HTH_SHADER_add, NULL, &p_add, err);
    if (st == HEARTH_OK) st = hth_cmdlist_begin(t->d, &t->first, err);
    if (st != HEARTH_OK) return st;
    hth_cmdlist_dispatch(t->first, p_fill, (hth_buffer_range[]){{t->a, 0, 0}}, one, 1, 1, 1);
    hth_cmdlist_barrier(t->first, (hth_buffer_range[]){{t->a, 0, 0}}, 1);
    hth_cmdlist_dispatch(t->first, p_add, (hth_buffer_range[]){{t->a, 0, 0}, {t->b, 0, 0}, {t->sum, 0, 0}},
                         &n, 1, 1, 1);
    st = hth_cmdlist_end(t->first, err);
    if (st == HEARTH_OK) st = hth_cmdlist_begin(t->d, &t->second, err);
    if (st != HEARTH_OK) return st;
    hth_cmdlist_dispatch(t->second, p_add, (hth_buffer_range[]){{t->sum, 0, 0}, {t->b, 0, 0}, {t->sum, 0, 0}},
                         &n, 1, 1, 1);
    return hth_cmdlist_end(t->second, err);
}

static hearth_status run(task *t, float b, hearth_error *err)
{
    float numbers[N];
    hth_fence fences[2];
    for (int i = 0; i < N; i++) numbers[i] = b;
    hearth_status st = hth_device_upload((hth_buffer_range){t->b, 0, 0}, numbers, err);
    const hth_submit_info submits[] = {{.cmdlist = t->first}, {.cmdlist = t->second, .wait = 7}};
    if (st == HEARTH_OK) st = hth_queue_submit(t->d, submits, 2, fences, err);
    if (st == HEARTH_OK) st = hth_queue_wait(t->d, fences[0], 1000000000, err);
    if (st == HEARTH_OK && hth_queue_is_complete(t->d, fences[1]))
        test_fail(__FILE__, __LINE__, "it waits for the host");
    if (st == HEARTH_OK) st = hth_queue_signal(t->d, 7, err);
    return st == HEARTH_OK ? hth_queue_wait(t->d, fences[1], 1000000000, err) : st;
}

ON_EACH(command_lists_run_in_order_once_their_host_semaphore_is_signalled)
{
    task t = {0};
    CHECK_OK(each_device_open(0, &t.d, err));
    CHECK_OK(record(&t, err));
    CHECK(hth_buffer_map(t.a) == NULL);
    const float *sum = hth_buffer_map(t.sum);
    CHECK_OK(run(&t, 2.0f, err));
    if (CHECK(sum)) CHECK(sum[0] == 5.0f && sum[N - 1] == 5.0f);
    float back[N];
    CHECK_OK(hth_device_download((hth_buffer_range){t.a, 0, 0}, back, err));
    CHECK(back[0] == 1.0f && back[N - 1] == 1.0f);
    each_device_close(t.d);
}

static void count_times(void *user, const hth_command_time *time)
{
    uint64_t *n_run = user;
    n_run[strcmp(time->name, "add") == 0 ? 0 : strcmp(time->name, "fill") == 0 ? 1 : 2] += time->n_run;
    CHECK((time->grid[0] == 1) == (time->consts != NULL) && time->ns < 1000000000);
}

/* Vulkan alone has timestamps. Times of a run that was followed by another one are kept. */
ON_EACH(commands_are_timed_if_asked_for)
{
    const uint64_t n = strcmp(each_device, "vulkan:0") == 0;
    uint64_t n_run[3] = {0}; /* add, fill, barrier */
    task t = {0};
    hth_fence fence;
    hth_device_time_commands_on_open(true);
    CHECK_OK(each_device_open(0, &t.d, err));
    hth_device_time_commands_on_open(false);
    CHECK_OK(record(&t, err));
    CHECK_OK(run(&t, 2.0f, err));
    CHECK_OK(hth_queue_submit(t.d, (hth_submit_info[]){{.cmdlist = t.first}}, 1, &fence, err));
    CHECK_OK(hth_queue_wait(t.d, fence, 1000000000, err));
    hth_device_command_times(t.d, count_times, n_run);
    CHECK(n_run[0] == 3 * n && n_run[1] == 2 * n && n_run[2] == 2 * n);
    hth_device_command_times(t.d, count_times, n_run);
    CHECK(n_run[0] == 3 * n);
    each_device_close(t.d);
}

ON_EACH(a_command_list_that_is_never_signalled_is_a_device_failure)
{
    task t = {0};
    hearth_error why;
    hth_fence fence[2];
    CHECK_OK(each_device_open(0, &t.d, err));
    CHECK_OK(record(&t, err));
    CHECK_OK(hth_queue_submit(t.d, (hth_submit_info[]){{.cmdlist = t.first, .wait = 3},
                                                       {.cmdlist = t.second}}, 2, fence, err));
    CHECK(!hth_queue_is_complete(t.d, fence[0]) && !hth_queue_is_complete(t.d, fence[1]));
    CHECK(hth_queue_wait(t.d, fence[1], 0, &why) == HEARTH_ERROR_DEVICE);
    CHECK(strstr(why.message, "command list ") != NULL);
    CHECK(hth_device_state(t.d).lost);
    CHECK(hth_queue_signal(t.d, 3, &why) == HEARTH_ERROR_DEVICE);
    CHECK(strstr(why.message, "lost") != NULL);
    CHECK(!hth_queue_is_complete(t.d, fence[0]));
    each_device_close(t.d);
}

ON_EACH(grids_can_be_read_from_memory)
{
    static const uint32_t n = N, grids[] = {4, 1, 1, 0, 1, 1};
    static const uint32_t two[2] = {N, 0x40000000};
    task t = {0};
    const hth_pipeline *p_fill, *p_add;
    hth_fence fence;
    CHECK_OK(each_device_open(0, &t.d, err));
    CHECK_OK(record(&t, err));
    hth_buffer *grid = OPENED_BY(hth_buffer_new, hth_buffer, t.d, HTH_MEMORY_UPLOAD, sizeof grids, "grids");
    CHECK_OK(hth_device_upload((hth_buffer_range){grid, 0, 0}, grids, err));
    CHECK_OK(hth_pipeline_get(t.d, HTH_SHADER_fill, NULL, &p_fill, err));
    CHECK_OK(hth_pipeline_get(t.d, HTH_SHADER_add, NULL, &p_add, err));
    hth_cmdlist *cmdlist = OPENED_BY(hth_cmdlist_begin, hth_cmdlist, t.d);
    hth_cmdlist_dispatch(cmdlist, p_fill, (hth_buffer_range[]){{t.b, 0, 0}}, two, 1, 1, 1);
    hth_cmdlist_barrier(cmdlist, (hth_buffer_range[]){{t.b, 0, 0}}, 1);
    hth_cmdlist_dispatch_indirect(cmdlist, p_add, (hth_buffer_range[]){{t.b, 0, 0}, {t.b, 0, 0}, {t.sum, 0, 0}}, &n,
                    (hth_buffer_range){grid, 0, 12});
    hth_cmdlist_dispatch_indirect(cmdlist, p_fill, (hth_buffer_range[]){{t.sum, 0, 0}}, two,
                    (hth_buffer_range){grid, 12, 12}); /* of nothing */
    hth_cmdlist_barrier(cmdlist, (hth_buffer_range[]){{t.sum, 0, 0}}, 1);
    hth_cmdlist_copy(cmdlist, (hth_buffer_range){t.sum, 0, 4}, (hth_buffer_range){t.sum, 8, 4});
    CHECK_OK(hth_cmdlist_end(cmdlist, err));
    CHECK_OK(hth_queue_submit(t.d, (hth_submit_info[]){{.cmdlist = cmdlist}}, 1, &fence, err));
    CHECK_OK(hth_queue_wait(t.d, fence, 1000000000, err));
    const float *sum = hth_buffer_map(t.sum);
    CHECK(sum[0] == 4.0f && sum[2] == 4.0f && sum[N - 1] == 4.0f);
    each_device_close(t.d);
}

/* ---- what is watched ---------------------------------------------------------------------------------- */

static void count_hazards(void *user, hearth_log_level level, const char *line)
{
    if (strstr(line, "SYNC-HAZARD-READ-AFTER-WRITE") || strstr(line, "SYNC-HAZARD-WRITE-AFTER-READ"))
        ++*(uint64_t *)user;
}

/* A driver that runs everything in turn gives the right numbers without any order: only the validation layer
 * sees that one is missing. This shows that it looks. */
static uint64_t hazards_of(bool order_first, bool order_second)
{
    static const uint32_t n = N, one[2] = {N, 0x3f800000};
    uint64_t n_hazard = 0;
    task t = {0};
    const hth_pipeline *p_fill, *p_add;
    hearth_log_set(count_hazards, &n_hazard);
    CHECK_OK(each_device_open(0, &t.d, err));
    CHECK_OK(record(&t, err));
    CHECK_OK(hth_pipeline_get(t.d, HTH_SHADER_fill, NULL, &p_fill, err));
    CHECK_OK(hth_pipeline_get(t.d, HTH_SHADER_add, NULL, &p_add, err));
    hth_cmdlist *cmdlist = OPENED_BY(hth_cmdlist_begin, hth_cmdlist, t.d);
    hth_buffer_range a = {t.a, 0, 0}, b = {t.b, 0, 0}, sum = {t.sum, 0, 0};
    hth_cmdlist_dispatch(cmdlist, p_fill, &a, one, 1, 1, 1);
    if (order_first) hth_cmdlist_barrier(cmdlist, &a, 1);
    hth_cmdlist_dispatch(cmdlist, p_add, (hth_buffer_range[]){a, b, sum}, &n, 1, 1, 1);
    if (order_second) hth_cmdlist_barrier(cmdlist, (hth_buffer_range[]){a, b, sum}, 3);
    hth_cmdlist_dispatch(cmdlist, p_fill, &b, one, 1, 1, 1);
    CHECK_OK(hth_cmdlist_end(cmdlist, err));
    CHECK_INT(hth_device_state(t.d).n_validation_error, n_hazard);
    hth_device_close(t.d);
    hearth_log_set(NULL, NULL);
    return n_hazard;
}

TEST(an_order_that_is_missing_is_reported)
{
    each_device = "vulkan:0";
    setenv("VK_KHRONOS_VALIDATION_SYNCVAL_SHADER_ACCESSES_HEURISTIC", "1", 1); /* layers of 2024 and later need it to see what shaders do */
    if (!each_device_has_vulkan()) return;
    CHECK_INT(hazards_of(true, true), 0);
    CHECK(hazards_of(false, true) > 0);
    CHECK(hazards_of(true, false) > 0);
}

/* ---- features ------------------------------------------------------------------------------------------ */

TEST(features_can_be_withheld)
{
    hearth_error why;
    hth_device_info info;
    size_t n;
    char note[200];
    each_device = "vulkan:0";
    if (!each_device_has_vulkan()) return;
    hth_device_list(&info, 1, &n, note);
    CHECK(info.features & HTH_FEATURE_TIMELINE);
    CHECK(!(info.features & HTH_FEATURE_FAST_DOT) || info.features & HTH_FEATURE_INT_DOT);
    hth_device *d = OPENED_BY(each_device_open_without, hth_device, 0);
    CHECK_INT(hth_device_get_info(d)->features, info.features);
    each_device_close(d);
    CHECK_OK(each_device_open_without(HTH_FEATURE_INT_DOT, &d, err));
    CHECK_INT(hth_device_get_info(d)->features, info.features & ~(uint32_t)(HTH_FEATURE_INT_DOT | HTH_FEATURE_FAST_DOT));
    each_device_close(d);
    CHECK(each_device_open_without(HTH_FEATURE_TIMELINE, &d, &why) == HEARTH_ERROR_UNSUPPORTED);
    CHECK(d == NULL && strstr(why.message, info.name) && strstr(why.message, "timelineSemaphore"));
}

/* Where the driver lists matrix units; else that nothing is said of any. */
TEST(matrix_units_are_listed_with_their_shapes_and_can_be_withheld)
{
    hth_device_info info;
    size_t n;
    char note[200];
    each_device = "vulkan:0";
    if (!each_device_has_vulkan()) return;
    hth_device_list(&info, 1, &n, note);
    CHECK_INT(info.n_shape > 0, (info.features & HTH_FEATURE_COOPMAT) != 0);
    CHECK(!(info.features & HTH_FEATURE_COOPMAT2) || info.n_shape > 0);
    CHECK(!(info.unused_features & ~(uint32_t)HTH_FEATURE_COOPMAT2) && !(info.unused_features & info.features));
    CHECK(info.subgroup_size > 0 && info.subgroup_size <= 128);
    for (uint32_t i = 0; i < info.n_shape; i++)
        CHECK(info.shapes[i].m > 0 && info.shapes[i].n > 0 && info.shapes[i].k > 0);
    CHECK(info.max_shared_memory >= 16384 && info.max_workgroup_size >= 128); /* what Vulkan demands */
    /* Without the one there is no other. */
    const uint32_t both = HTH_FEATURE_COOPMAT | HTH_FEATURE_COOPMAT2;
    hth_device *d = OPENED_BY(each_device_open_without, hth_device, HTH_FEATURE_COOPMAT);
    CHECK_INT(hth_device_get_info(d)->features, info.features & ~both);
    CHECK(hth_device_get_info(d)->n_shape == 0 && hth_device_get_info(d)->unused_features == 0);
    each_device_close(d);
    CHECK_OK(each_device_open_without(HTH_FEATURE_COOPMAT2, &d, err));
    CHECK_INT(hth_device_get_info(d)->features, info.features & ~(uint32_t)HTH_FEATURE_COOPMAT2);
    CHECK(hth_device_get_info(d)->n_shape == info.n_shape && hth_device_get_info(d)->unused_features == 0);
    each_device_close(d);
    if (info.n_shape == 0) test_note("%s has no matrix units of bytes", info.name);
}

TEST(the_null_device_has_the_matrix_units_that_it_is_given)
{
    hth_device_spec spec = {.name = "null", .shader_refs = each_device_shaders, .coopmat = {16, 8, 32}};
    hth_device *d = OPENED(hth_device, &spec);
    const hth_device_info *info = hth_device_get_info(d);
    const uint32_t all = HTH_FEATURE_IMPORT | HTH_FEATURE_COOPMAT;
    CHECK_INT(info->features, all);
    CHECK(info->n_shape == 1 && info->shapes[0].m == 16 && info->shapes[0].n == 8 && info->shapes[0].k == 32);
    hth_device_close(d);
    spec.coopmat2 = true;
    CHECK_OK(hth_device_open(&spec, &d, err));
    CHECK_INT(hth_device_get_info(d)->features, all | HTH_FEATURE_COOPMAT2);
    hth_device_close(d);
    spec.disabled_features = HTH_FEATURE_COOPMAT2;
    CHECK_OK(hth_device_open(&spec, &d, err));
    CHECK_INT(hth_device_get_info(d)->features, all);
    hth_device_close(d);
    spec.disabled_features = HTH_FEATURE_COOPMAT;
    CHECK_OK(hth_device_open(&spec, &d, err));
    CHECK(hth_device_get_info(d)->features == HTH_FEATURE_IMPORT && hth_device_get_info(d)->n_shape == 0);
    hth_device_close(d);
}

TEST(the_null_device_needs_no_feature)
{
    each_device = "null";
    hth_device *d = OPENED_BY(each_device_open_without, hth_device, UINT32_MAX);
    CHECK_INT(hth_device_get_info(d)->features, 0);
    each_device_close(d);
}

/* ---- memory ----------------------------------------------------------------------------------------- */

ON_EACH(buffers_keep_within_the_budget_and_live_until_their_last_use)
{
    task t = {0};
    hearth_error why;
    hth_fence fences[2];
    hth_buffer *more;
    CHECK_OK(each_device_open(3 * 4096 + 100, &t.d, err));
    CHECK_OK(record(&t, err));
    uint64_t used = hth_device_state(t.d).used;
    CHECK(used >= 3 * N * sizeof(float) && used <= 3 * 4096 + 100);
    CHECK(hth_buffer_new(t.d, HTH_MEMORY_DEVICE, 8192, "one more", &more, &why) == HEARTH_ERROR_MEMORY);
    CHECK(strstr(why.message, "one more") && strstr(why.message, "8.00 KiB wanted") && more == NULL);
    CHECK(hth_buffer_new(t.d, HTH_MEMORY_DEVICE, UINT64_MAX - 1, "all", &more, &why) == HEARTH_ERROR_MEMORY);
    CHECK(!hth_device_state(t.d).lost && hth_device_state(t.d).used == used);

    /* Freed before the command lists that use it have run. */
    CHECK_OK(hth_queue_submit(t.d, (hth_submit_info[]){{.cmdlist = t.first, .wait = 1},
                                                       {.cmdlist = t.second, .wait = 2}}, 2, fences, err));
    hth_buffer_free(t.a);
    hth_cmdlist_free(t.first);
    CHECK(hth_device_state(t.d).used == used);
    CHECK_OK(hth_queue_signal(t.d, 2, err));
    CHECK_OK(hth_queue_wait(t.d, fences[1], 1000000000, err));
    CHECK_OK(hth_buffer_new(t.d, HTH_MEMORY_DEVICE, 4, "a word", &more, err));
    CHECK(hth_device_state(t.d).used < used);
    each_device_close(t.d);
}

/* Command lists whose host semaphore is never signalled, a call that is refused: all memory is there again. */
ON_EACH(submissions_can_be_drained)
{
    const hearth_status refusals[] = {HEARTH_OK, HEARTH_ERROR_MEMORY, HEARTH_ERROR_UNSUPPORTED};
    task t = {0};
    CHECK_OK(each_device_open(1 << 20, &t.d, err));
    CHECK_OK(hth_queue_drain(t.d, 1000000000, err)); /* nothing was */
    for (size_t i = 0; i < 3; i++) {
        uint64_t gate = hth_queue_host_value(t.d);
        CHECK_OK(record(&t, err));
        CHECK_OK(hth_queue_submit(t.d, (hth_submit_info[]){{.cmdlist = t.first, .wait = gate + 5},
                                                           {.cmdlist = t.second}}, 2, NULL, err));
        hth_device_inject_fault(t.d, 1, refusals[i]);
        CHECK_OK(hth_queue_drain(t.d, 1000000000, err));
        CHECK(hth_queue_host_value(t.d) == gate + 5);
        hth_cmdlist_free(t.first);
        hth_cmdlist_free(t.second);
        hth_buffer_free(t.a);
        hth_buffer_free(t.b);
        hth_buffer_free(t.sum);
        CHECK_INT(hth_device_state(t.d).used, 0);
    }
    CHECK_OK(record(&t, err));
    CHECK_OK(hth_queue_submit(t.d, (hth_submit_info[]){{.cmdlist = t.first, .wait = hth_queue_host_value(t.d) + 9}},
                              1, NULL, err));
    hth_device_inject_faults(t.d, 1, 3, HEARTH_ERROR_MEMORY);
    hearth_error why;
    CHECK_INT(hth_queue_drain(t.d, 1000000000, &why), HEARTH_ERROR_MEMORY);
    each_device_close(t.d);
}

ON_EACH(ranges_outside_their_buffer_are_refused)
{
    static const uint32_t push[2] = {1, 1};
    static const hth_buffer_range wrong[] = {
        {NULL, 4000, 4}, {NULL, 4004, 0}, {NULL, 0, 4004}, {NULL, 8, UINT64_MAX - 4}, {NULL, 2, 4}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        task t = {0};
        hearth_error why;
        const hth_pipeline *p;
        hth_buffer_range s = wrong[i];
        float x[N];
        CHECK_OK(each_device_open(0, &t.d, err));
        CHECK_OK(record(&t, err));
        s.buffer = t.b;
        CHECK_OK(hth_pipeline_get(t.d, HTH_SHADER_fill, NULL, &p, err));
        hth_cmdlist *cmdlist = OPENED_BY(hth_cmdlist_begin, hth_cmdlist, t.d);
        hth_cmdlist_dispatch(cmdlist, p, &s, push, 1, 1, 1);
        hth_cmdlist_dispatch(cmdlist, p, (hth_buffer_range[]){{t.b, 0, 0}}, push, 1, 1, 1); /* does not make it right */
        CHECK(hth_cmdlist_end(cmdlist, &why) != HEARTH_OK);
        CHECK(why.message[0] != '\0');
        if (i < 4) CHECK(hth_device_upload(s, x, &why) == HEARTH_ERROR_ARGUMENT);
        if (i < 4) CHECK(hth_device_download(s, x, &why) == HEARTH_ERROR_ARGUMENT);
        each_device_close(t.d);
    }
}

/* ---- faults ------------------------------------------------------------------------------------------- */

static hearth_status whole_task(uint64_t fail_at, hearth_status with, hearth_error *err)
{
    task t = {0};
    hearth_status st = each_device_open(0, &t.d, err);
    if (st != HEARTH_OK) return st;
    hth_device_inject_fault(t.d, fail_at, with);
    st = record(&t, err);
    for (int i = 0; st == HEARTH_OK && i < 1; i++) st = run(&t, 1.0f, err);
    each_device_close(t.d);
    return st;
}

ON_EACH(every_call_that_fails_is_an_error_and_keeps_nothing)
{
    static const hearth_status with[] = {HEARTH_ERROR_MEMORY, HEARTH_ERROR_DEVICE, HEARTH_ERROR_UNSUPPORTED};
    for (size_t s = 0; s < sizeof with / sizeof *with; s++) {
        uint64_t n = each_device_fail_calls(whole_task, with[s], 1000);
        CHECK(n > 11 && n < 999);
    }
}

ON_EACH(every_allocation_that_fails_is_an_error_and_keeps_nothing)
{
    uint64_t n = 1, held = hth_alloc_in_use();
    hearth_status st;
    do {
        hearth_error err = {0};
        hth_alloc_fail_at(n, 0);
        st = whole_task(0, HEARTH_OK, &err);
        hth_alloc_fail_at(0, 0);
        CHECK(st == HEARTH_OK || (st == HEARTH_ERROR_MEMORY && err.message[0] != '\0'));
        CHECK(hth_alloc_in_use() == held);
        n++;
    } while (st != HEARTH_OK && n < 1000);
    CHECK(n > 10 && n < 1000);
}

TEST(unknown_devices_are_refused)
{
    hearth_error why;
    hth_device *d;
    CHECK(hth_device_open(&(hth_device_spec){.name = "vulkan:99"}, &d, &why) == HEARTH_ERROR_UNSUPPORTED);
    CHECK(d == NULL && strstr(why.message, "vulkan:99") != NULL);
}
