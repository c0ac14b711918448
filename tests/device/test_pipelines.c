/* Compiled shaders of Vulkan that are kept in the user's cache directory: an earlier run's are taken, and
 * what is damaged, cut, of another driver or cannot be written is silently done without. */
#include "base/alloc.h"
#include "base/disk_cache.h"
#include "device/device.h"
#include "support/test.h"

#include <dirent.h>
#include <sys/stat.h>

enum { HEAD = 32, UUID_AT = 16, DRIVER_HEAD = 32 }; /* of a kept file; in the driver's own head, which is so long */

static char folder[256];

/* Lavapipe of Mesa 26 gives fewer bytes than a header has, so that nothing is kept. */
static bool is_new_lavapipe;

static void open_folder(void)
{
    const char *base = test_scratch("cache");
    CHECK_INT(mkdir(base, 0700), 0);
    snprintf(folder, sizeof folder, "%s/cache", base);
    setenv("HEARTH_CACHE", folder, 1);
}

/* Opens the device and compiles a shader; the bytes that it took from an earlier run. False: no Vulkan
 * (skipped). */
static bool compile(bool validation, uint64_t *kept)
{
    CLOSED(hth_device) *d = NULL;
    hearth_error why = {0};
    const hth_pipeline *pipeline;
    const hth_device_spec spec = {.name = "vulkan:0", .validation = validation};
    hearth_status st = hth_device_open(&spec, &d, &why);
    if (st != HEARTH_OK) return test_skip("%s", why.message), false;
    CHECK_OK(hth_pipeline_get(d, HTH_SHADER_fill, NULL, &pipeline, err));
    *kept = hth_device_state(d).pipeline_cache_bytes;
    is_new_lavapipe = test_driver_flushes(hth_device_get_info(d)->driver);
    CHECK_INT(hth_device_state(d).n_validation_error, 0);
    return true;
}

/* The one file of the folder; its path in a buffer of this function's, its name behind the last '/'. */
static char *kept_file(void)
{
    static char path[600];
    int n = 0;
    DIR *d = opendir(folder);
    if (!d) return NULL;
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        if (e->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/%.300s", folder, e->d_name);
        n++;
    }
    closedir(d);
    return n == 1 && strstr(path, "/pipelines-") ? path : NULL;
}

/* What was kept, freed with free; it lies at *path. NULL: skipped, or a check failed. */
static char *first_run(char **path, size_t *n)
{
    uint64_t kept;
    open_folder();
    if (!compile(false, &kept)) return NULL;
    CHECK_INT(kept, 0);
    *path = kept_file();
    if (!*path && is_new_lavapipe) return test_skip("the driver has no pipelines to keep"), NULL;
    if (!CHECK(*path != NULL)) return NULL;
    char *bytes = test_read_file(*path, n);
    CHECK(*n >= HEAD + DRIVER_HEAD);
    return bytes;
}

TEST(pipelines_of_an_earlier_run_are_reused)
{
    char *path;
    size_t n;
    uint64_t kept = 0;
    FREED char *bytes = first_run(&path, &n);
    if (bytes) {
        CHECK(compile(true, &kept));
        CHECK_INT(kept, n - HEAD);
    }
}

/* Written in its place: not taken, but compiled again. */
static void expect_compiled(const char *path, const char *what, const char *bytes, size_t n)
{
    uint64_t kept = 1;
    CHECK(test_write_file(path, bytes, n));
    CHECK(compile(false, &kept));
    if (kept != 0) test_fail(__FILE__, __LINE__, "%s: %llu bytes were taken", what, (unsigned long long)kept);
    CHECK(compile(false, &kept));
    if (kept == 0) test_fail(__FILE__, __LINE__, "%s: it was not compiled again", what);
}

TEST(damaged_and_truncated_pipelines_are_compiled_again)
{
    char *path;
    size_t n;
    FREED char *bytes = first_run(&path, &n);
    for (size_t i = 0; bytes && i < n; i += n / 24 + 1) {
        bytes[i] ^= 1;
        expect_compiled(path, "damaged", bytes, n);
        bytes[i] ^= 1;
        expect_compiled(path, "truncated", bytes, i);
    }
    if (bytes) expect_compiled(path, "text", "no shaders\n", 11);
}

/* Whole files by their hash, of another driver by their mark, or by the driver's own head. */
TEST(pipelines_of_another_driver_are_compiled_again)
{
    char *path;
    size_t n;
    uint64_t kept = 1, mark;
    FREED char *bytes = first_run(&path, &n);
    if (bytes) {
        const char *name = strrchr(path, '/') + 1;
        memcpy(&mark, bytes + 8, sizeof mark);
        CHECK(hth_diskcache_put(name, mark + 1, bytes + HEAD, n - HEAD));
        CHECK(compile(false, &kept) && kept == 0);
        CHECK(hth_diskcache_put(name, mark, bytes + HEAD, n - HEAD)); /* control */
        CHECK(compile(false, &kept) && kept == n - HEAD);
        for (size_t at = 0; at < DRIVER_HEAD; at += 4) {
            bytes[HEAD + at] ^= 0x40;
            CHECK(hth_diskcache_put(name, mark, bytes + HEAD, n - HEAD));
            bytes[HEAD + at] ^= 0x40;
            CHECK(compile(false, &kept));
            if (kept != 0) test_fail(__FILE__, __LINE__, "byte %zu of its head was taken", at);
        }
        CHECK(hth_diskcache_put(name, mark, bytes + HEAD, DRIVER_HEAD - 1));
        CHECK(compile(false, &kept) && kept == 0);
    }
}

TEST(without_a_folder_nothing_is_kept)
{
    static const char *const places[] = {"", "/proc/no/such/place", "/dev/null"};
    uint64_t kept = 1;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        setenv("HEARTH_CACHE", places[i], 1);
        for (int k = 0; k < 2; k++) {
            if (!compile(false, &kept)) return;
            CHECK_INT(kept, 0);
        }
    }
    setenv("HEARTH_CACHE", "", 1);
}

TEST(pipelines_are_kept_before_the_device_is_closed)
{
    CLOSED(hth_device) *d = NULL;
    hearth_error why = {0};
    const hth_pipeline *pipeline;
    open_folder();
    hearth_status st = hth_device_open(&(hth_device_spec){.name = "vulkan:0"}, &d, &why);
    if (st != HEARTH_OK) {
        test_skip("%s", why.message);
        return;
    }
    CHECK_OK(hth_pipeline_get(d, HTH_SHADER_fill, NULL, &pipeline, err));
    CHECK(kept_file() == NULL);
    hth_pipeline_save(d);
    CHECK((kept_file() != NULL) != test_driver_flushes(hth_device_get_info(d)->driver));
}

/* ---- many at once --------------------------------------------------------------------------------------- */

static size_t n_compiled(const hth_device *d)
{
    size_t n = 0;
    for (const hth_pipeline *p = hth_pipeline_next(d, NULL); p; p = hth_pipeline_next(d, p)) n++;
    return n;
}

/* Of soft_cap, whose constant is the size of a workgroup, and of fill and copy. */
static void note_pipelines(hth_device *d, uint32_t n, const hth_pipeline *out[])
{
    CHECK(hth_pipeline_defer(d, true) && hth_pipeline_is_deferred(d));
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t local = 8 + 8 * i;
        CHECK_OK(hth_pipeline_get(d, HTH_SHADER_soft_cap, &local, &out[i], err));
    }
    CHECK_OK(hth_pipeline_get(d, HTH_SHADER_fill, NULL, &out[n], err));
    CHECK_OK(hth_pipeline_get(d, HTH_SHADER_copy, NULL, &out[n + 1], err));
    hth_pipeline_defer(d, false);
}

static void fill_and_check(hth_device *d, const hth_pipeline *fill)
{
    enum { N = 64 };
    uint32_t words[N] = {0}, push[2] = {N, 7};
    hth_buffer *b = NULL;
    hth_cmdlist *t = NULL;
    hth_fence fence;
    CHECK_OK(hth_buffer_new(d, HTH_MEMORY_DEVICE, sizeof words, "words", &b, err));
    CHECK_OK(hth_cmdlist_begin(d, &t, err));
    hth_cmdlist_dispatch(t, fill, &(hth_buffer_range){b, 0, 0}, push, 1, 1, 1);
    CHECK_OK(hth_cmdlist_end(t, err));
    CHECK_OK(hth_queue_submit(d, (hth_submit_info[]){{.cmdlist = t}}, 1, &fence, err));
    CHECK_OK(hth_queue_wait(d, fence, (uint64_t)60000000000, err));
    CHECK_OK(hth_device_download((hth_buffer_range){b, 0, 0}, words, err));
    CHECK(words[0] == 7 && words[N - 1] == 7);
    hth_cmdlist_free(t);
    hth_buffer_free(b);
}

TEST(pipelines_that_threads_compile_are_those_that_one_would)
{
    enum { N = 12 };
    const hth_pipeline *noted[N + 2], *again;
    const uint32_t local = 16;
    setenv("HEARTH_CACHE", "", 1);
    CLOSED(hth_device) *d = NULL;
    hearth_error why = {0};
    hearth_status st = hth_device_open(&(hth_device_spec){.name = "vulkan:0", .validation = true}, &d, &why);
    if (st != HEARTH_OK) {
        test_skip("%s", why.message);
        return;
    }
    note_pipelines(d, N, noted);
    CHECK_INT(n_compiled(d), 0);
    CHECK_OK(hth_pipeline_get(d, HTH_SHADER_soft_cap, &local, &again, err)); /* by itself */
    CHECK(again == noted[1]);
    CHECK_INT(n_compiled(d), 1);
    CHECK_OK(hth_pipeline_compile(d, 4, err));
    CHECK_INT(n_compiled(d), N + 2);
    fill_and_check(d, noted[N]);
    uint64_t n_call = hth_device_n_call(d);
    CHECK_OK(hth_pipeline_compile(d, 4, err));
    CHECK_INT(hth_device_n_call(d), n_call);
    CHECK_INT(hth_device_state(d).n_validation_error, 0);
}

/* One that is refused is not there afterwards; the others are compiled, and are those that were noted. */
TEST(a_pipeline_that_cannot_be_compiled_leaves_the_others)
{
    enum { N = 4, FILL = 2, MAX_ALLOCATIONS = 50 };
    const hth_pipeline *noted[N];
    const uint32_t local = 8; /* of the first one */
    CLOSED(hth_device) *d = NULL;
    hearth_error why = {0};
    hearth_status st = hth_device_open(&(hth_device_spec){.name = "vulkan:0"}, &d, &why);
    if (st != HEARTH_OK) {
        test_skip("%s", why.message);
        return;
    }
    note_pipelines(d, N - 2, noted);
    hth_device_inject_fault(d, 1, HEARTH_ERROR_MEMORY);
    CHECK(hth_pipeline_compile(d, 2, &why) == HEARTH_ERROR_MEMORY && n_compiled(d) == 0);
    /* The first allocations are those of its lists and of the threads; nothing is compiled without them. */
    for (uint64_t n = 1; n < MAX_ALLOCATIONS && n_compiled(d) == 0; n++) {
        hth_alloc_fail_at(n, false);
        st = hth_pipeline_compile(d, 1, &why);
        hth_alloc_fail_at(0, false);
        if (!CHECK_INT(st, HEARTH_ERROR_MEMORY)) return;
    }
    CHECK_INT(n_compiled(d), N - 1);
    for (const hth_pipeline *p = hth_pipeline_next(d, NULL); p; p = hth_pipeline_next(d, p))
        CHECK(p == noted[1] || p == noted[FILL] || p == noted[FILL + 1]);
    fill_and_check(d, noted[FILL]);
    CHECK_OK(hth_pipeline_get(d, HTH_SHADER_soft_cap, &local, &noted[0], err));
    CHECK_INT(n_compiled(d), N);
}
