/* Memory of the host that a device reads where it lies: any address and size, what the host writes later, refusals,
 * and that nothing writes it. On every back end. */
#include "base/alloc.h"
#include "device/device.h"
#include "support/device/each_device.h"
#include "support/device/sim_gpu.h"
#include "support/test.h"

#include <fcntl.h>
#include <sys/mman.h>

enum { N = 4096, PAGE = 4096, HOST_BYTES = 16 * PAGE };
static const uint64_t second = 1000000000;

/* ---- a device, and memory of the host ------------------------------------------------------------------ */

typedef struct bench {
    hth_device *d;
    hth_buffer *a, *out; /* N words */
    const hth_pipeline *copy;
    uint8_t *host; /* HOST_BYTES */
} bench;

static bench bench_of(uint32_t without)
{
    bench b = {0};
    CHECK_OK(each_device_open_without(without, &b.d, err));
    CHECK_OK(hth_buffer_new(b.d, HTH_MEMORY_DEVICE, 4 * N, "a", &b.a, err));
    CHECK_OK(hth_buffer_new(b.d, HTH_MEMORY_READBACK, 4 * N, "out", &b.out, err));
    CHECK_OK(hth_pipeline_get(b.d, HTH_SHADER_copy, NULL, &b.copy, err));
    b.host = aligned_alloc(PAGE, HOST_BYTES);
    for (size_t i = 0; i < HOST_BYTES; i++) b.host[i] = (uint8_t)(i * 7 + i / 251);
    return b;
}

static void close_bench(bench *b)
{
    each_device_close(b->d);
    free(b->host);
}

static bool can_import(const bench *b)
{
    bool can = hth_device_get_info(b->d)->features & HTH_FEATURE_IMPORT;
    if (!can) test_note("%s does not import memory", hth_device_get_info(b->d)->name);
    return can;
}

static hth_buffer *import(bench *b, const void *data, uint64_t size, uint64_t *offset)
{
    hth_buffer *buffer = NULL;
    CHECK_OK(hth_buffer_import(b->d, data, size, "weights", &buffer, offset, err));
    if (!buffer) return NULL;
    CHECK((const uint8_t *)hth_buffer_map(buffer) + *offset == (const uint8_t *)data);
    CHECK(*offset + size <= hth_buffer_size(buffer));
    return buffer;
}

/* Copies n words to `to`, from the last offset that the device binds before `at`, which is a multiple of 4. */
static hth_cmdlist *copy_words(bench *b, hth_buffer *from, uint64_t at, uint32_t n, hth_buffer *to, uint32_t *before)
{
    uint64_t alignment = hth_device_get_info(b->d)->alignment, start = at / alignment * alignment;
    hth_cmdlist *t = OPENED_BY(hth_cmdlist_begin, hth_cmdlist, b->d);
    *before = (uint32_t)(at - start) / 4;
    n += *before;
    hth_cmdlist_dispatch(t, b->copy, (hth_buffer_range[]){{from, start, 4 * n}, {to, 0, 0}}, &n, (n + 63) / 64, 1, 1);
    hth_cmdlist_hint_link_bytes(t, 4 * n);
    CHECK_OK(hth_cmdlist_end(t, err));
    return t;
}

static void run(bench *b, hth_cmdlist *t)
{
    hth_fence fence;
    CHECK_OK(hth_queue_submit(b->d, &(hth_submit_info){.cmdlist = t}, 1, &fence, err));
    CHECK_OK(hth_queue_wait(b->d, fence, second, err));
}

/* ---- what is read ---------------------------------------------------------------------------------------- */

ON_EACH(a_device_reads_any_words_of_the_host_where_they_lie)
{
    static const uint64_t offsets[] = {0, 4, 64, 252, PAGE - 4, PAGE, PAGE + 300, 3 * PAGE - 8};
    static const uint32_t sizes[] = {4, 100, PAGE - 4, PAGE, PAGE + 4, 3 * PAGE};
    CLEANUP(close_bench) bench b = bench_of(0);
    const hth_device_usage before = hth_device_state(b.d);
    if (!can_import(&b)) return;
    for (size_t i = 0; i < sizeof offsets / sizeof *offsets; i++)
        for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
            uint64_t at;
            uint32_t n_before;
            hth_buffer *from = import(&b, b.host + offsets[i], sizes[k], &at);
            if (!from) return;
            run(&b, copy_words(&b, from, at, sizes[k] / 4, b.out, &n_before));
            CHECK_BYTES((const uint32_t *)hth_buffer_map(b.out) + n_before, b.host + offsets[i], sizes[k]);
            hth_buffer_free(from);
        }
    const hth_device_usage now = hth_device_state(b.d);
    CHECK(now.used == before.used && now.used_device == before.used_device && now.peak == before.peak);
}

ON_EACH(any_bytes_of_the_host_can_be_copied)
{
    CLEANUP(close_bench) bench b = bench_of(0);
    if (!can_import(&b)) return;
    for (uint64_t i = 0; i < 40; i++) {
        uint64_t at, start = i * 401, size = 1 + i * 97;
        uint8_t back[5000];
        hth_buffer *from = import(&b, b.host + start, size, &at);
        if (!from) return;
        hth_cmdlist *t = OPENED_BY(hth_cmdlist_begin, hth_cmdlist, b.d);
        hth_cmdlist_copy(t, (hth_buffer_range){from, at, size}, (hth_buffer_range){b.out, 0, 0});
        CHECK_OK(hth_cmdlist_end(t, err));
        run(&b, t);
        CHECK_BYTES(hth_buffer_map(b.out), b.host + start, size);
        CHECK_OK(hth_device_download((hth_buffer_range){from, at, size}, back, err));
        CHECK_BYTES(back, b.host + start, size);
        hth_buffer_free(from);
    }
}

/* A buffer of pages that another one has too, on the second queue, with what the host wrote last. */
ON_EACH(uploads_beside_read_what_the_host_wrote_before)
{
    CLEANUP(close_bench) bench b = bench_of(0);
    uint64_t at[2];
    uint32_t n_before[2];
    hth_cmdlist *load[2], *read;
    if (!can_import(&b)) return;
    for (int i = 0; i < 2; i++) {
        hth_buffer *from = import(&b, b.host + 1024 + 2048 * i, 2048, &at[i]);
        if (!from) return;
        load[i] = copy_words(&b, from, at[i], 512, b.a, &n_before[i]);
    }
    CHECK(n_before[0] == n_before[1]);
    read = OPENED_BY(hth_cmdlist_begin, hth_cmdlist, b.d);
    hth_cmdlist_copy(read, (hth_buffer_range){b.a, 0, 0}, (hth_buffer_range){b.out, 0, 0});
    CHECK_OK(hth_cmdlist_end(read, err));
    for (uint32_t round = 0; round < 50; round++) {
        uint8_t *data = b.host + 1024 + 2048 * (round % 2);
        hth_fence loaded, done;
        for (uint32_t i = 0; i < 2048; i++) data[i] = (uint8_t)(round * 3 + i);
        CHECK_OK(hth_beside_submit(b.d, (hth_cmdlist *[]){load[round % 2]}, 1, &loaded, err));
        CHECK_OK(hth_queue_submit(b.d, &(hth_submit_info){.cmdlist = read, .beside = loaded}, 1, &done, err));
        CHECK_OK(hth_queue_wait(b.d, done, second, err));
        CHECK_BYTES((const uint32_t *)hth_buffer_map(b.out) + n_before[0], data, 2048);
    }
}

/* The caller's memory is there for as long as the device reads it: the buffer may go before. */
ON_EACH(imported_memory_is_let_go_behind_its_last_use)
{
    CLEANUP(close_bench) bench b = bench_of(0);
    uint64_t at;
    uint32_t n_before;
    hth_fence fence;
    if (!can_import(&b)) return;
    hth_buffer *from = import(&b, b.host, PAGE, &at);
    if (!from) return;
    hth_cmdlist *t = copy_words(&b, from, at, PAGE / 4, b.out, &n_before);
    CHECK_OK(hth_queue_submit(b.d, &(hth_submit_info){.cmdlist = t, .wait = 1}, 1, &fence, err));
    hth_cmdlist_free(t);
    hth_buffer_free(from);
    CHECK_OK(hth_queue_signal(b.d, 1, err));
    CHECK_OK(hth_queue_wait(b.d, fence, second, err));
    CHECK_BYTES((const uint32_t *)hth_buffer_map(b.out) + n_before, b.host, PAGE);
    from = import(&b, b.host, PAGE, &at);
    hth_buffer_free(from);
}

/* Files of weights are mapped so. A driver may refuse them. */
ON_EACH(a_mapped_file_is_read_or_refused)
{
    CLEANUP(close_bench) bench b = bench_of(0);
    const char *path = test_scratch("weights");
    if (!can_import(&b)) return;
    CHECK(test_write_file(path, b.host, 3 * PAGE + 100));
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    uint8_t *map = mmap(NULL, 3 * PAGE + 100, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (!CHECK(map != MAP_FAILED)) return;
    hearth_error why;
    uint64_t at;
    uint32_t n_before;
    hth_buffer *from;
    hearth_status st = hth_buffer_import(b.d, map + 4, 3 * PAGE + 96, "weights", &from, &at, &why);
    CHECK(st == HEARTH_OK || (st == HEARTH_ERROR_UNSUPPORTED && from == NULL));
    if (st == HEARTH_OK) {
        run(&b, copy_words(&b, from, at, 3 * PAGE / 4 + 24, b.out, &n_before));
        CHECK_BYTES((const uint32_t *)hth_buffer_map(b.out) + n_before, map + 4, 3 * PAGE + 96);
    } else test_note("%s", why.message);
    CHECK(!hth_device_state(b.d).lost);
    hth_buffer_free(from);
    CHECK_OK(hth_queue_drain(b.d, second, err));
    munmap(map, 3 * PAGE + 100);
}

/* ---- refusals -------------------------------------------------------------------------------------------- */

static void expect_refused(bench *b, uint64_t size, const char *words)
{
    uint64_t at = 1;
    hth_buffer *from = b->a;
    CHECK_FAILS(hth_buffer_import(b->d, b->host, size, "all experts", &from, &at, err), HEARTH_ERROR_UNSUPPORTED,
                words);
    CHECK(from == NULL && at == 0 && !hth_device_state(b->d).lost);
}

ON_EACH(a_device_that_cannot_import_says_so_and_is_not_lost)
{
    CLEANUP(close_bench) bench b = bench_of(HTH_FEATURE_IMPORT);
    CHECK(!(hth_device_get_info(b.d)->features & HTH_FEATURE_IMPORT));
    expect_refused(&b, 4, "all experts: its driver does not read the host's memory in place");
}

ON_EACH(more_than_a_binding_is_not_imported)
{
    CLEANUP(close_bench) bench b = bench_of(0);
    if (!can_import(&b)) return;
    expect_refused(&b, hth_device_get_info(b.d)->max_binding_size + 1, "all experts: |binds at most");
}

ON_EACH(imported_memory_is_not_written)
{
    static const uint32_t n = 4;
    CLEANUP(close_bench) bench b = bench_of(0);
    uint64_t at;
    if (!can_import(&b)) return;
    hth_buffer *from = import(&b, b.host, PAGE, &at);
    if (!from) return;
    uint32_t words[4];
    memcpy(words, b.host, sizeof words);
    CHECK_FAILS(hth_device_upload((hth_buffer_range){from, 0, 4}, &n, err), HEARTH_ERROR_ARGUMENT, "not written");
    for (int i = 0; i < 2; i++) {
        hth_cmdlist *t = OPENED_BY(hth_cmdlist_begin, hth_cmdlist, b.d);
        if (i == 0) hth_cmdlist_dispatch(t, b.copy, (hth_buffer_range[]){{b.a, 0, 0}, {from, 0, 0}}, &n, 1, 1, 1);
        else hth_cmdlist_copy(t, (hth_buffer_range){b.a, 0, 4}, (hth_buffer_range){from, 0, 4});
        CHECK_FAILS(hth_cmdlist_end(t, err), HEARTH_ERROR_ARGUMENT, "imported memory of the host is not written");
    }
    CHECK(!hth_device_state(b.d).lost);
    CHECK_BYTES(words, b.host, sizeof words);
}

ON_EACH(every_fault_of_an_import_is_an_error_and_keeps_nothing)
{
    static const hearth_status with[] = {HEARTH_ERROR_MEMORY, HEARTH_ERROR_UNSUPPORTED, HEARTH_ERROR_DEVICE};
    CLEANUP(close_bench) bench b = bench_of(0);
    hth_buffer *from;
    uint64_t at, n = 1;
    hearth_status st;
    if (!can_import(&b)) return;
    uint64_t held = hth_alloc_in_use();
    do {
        hearth_error why = {0};
        hth_alloc_fail_at(n++, 0);
        st = hth_buffer_import(b.d, b.host, PAGE, "weights", &from, &at, &why);
        hth_alloc_fail_at(0, 0);
        CHECK(st == HEARTH_OK || (st == HEARTH_ERROR_MEMORY && why.message[0] && from == NULL));
        hth_buffer_free(from);
        CHECK_INT(hth_alloc_in_use(), held);
    } while (st != HEARTH_OK && n < 10);
    CHECK(n > 2 && n < 10);
    for (size_t i = 0; i < sizeof with / sizeof *with; i++) {
        hth_device_inject_fault(b.d, 1, with[i]);
        CHECK_FAILS(hth_buffer_import(b.d, b.host, PAGE, "weights", &from, &at, err), with[i], "a test made call");
        CHECK_INT(hth_device_state(b.d).lost, with[i] == HEARTH_ERROR_DEVICE);
    }
    CHECK_FAILS(hth_buffer_import(b.d, b.host, PAGE, "weights", &from, &at, err), HEARTH_ERROR_DEVICE, "was lost");
    CHECK_INT(hth_alloc_in_use(), held);
}

/* ---- what a simulated device imports in all ------------------------------------------------------------ */

TEST(a_description_limits_what_is_imported)
{
    static uint32_t words[2000];
    hth_buffer *first, *more;
    uint64_t at;
    hth_device *d = NULL;
    CHECK_OK(sim_gpu_open(SIM_GPU_EXACT "pinned_bytes = 6000\n", 0, each_device_shaders, &d, err));
    CHECK(hth_device_get_info(d)->features & HTH_FEATURE_IMPORT);
    CHECK_OK(hth_buffer_import(d, words, 4000, "some", &first, &at, err));
    CHECK_FAILS(hth_buffer_import(d, words, 2004, "more", &more, &at, err), HEARTH_ERROR_UNSUPPORTED,
                "simulated hand: more: |1.96 KiB of the host wanted, 3.91 KiB of 5.86 KiB are imported");
    CHECK(!hth_device_state(d).lost && more == NULL);
    CHECK_OK(hth_buffer_import(d, words, 2000, "more", &more, &at, err));
    hth_buffer_free(first);
    CHECK_OK(hth_buffer_import(d, words, 4000, "some again", &first, &at, err));
    CHECK_INT(hth_device_state(d).used, 0);
    hth_device_close(d);

    CHECK_OK(sim_gpu_open(SIM_GPU_EXACT "pinned_bytes = 0\n", 0, each_device_shaders, &d, err));
    CHECK(!(hth_device_get_info(d)->features & HTH_FEATURE_IMPORT));
    CHECK_FAILS(hth_buffer_import(d, words, 4, "some", &first, &at, err), HEARTH_ERROR_UNSUPPORTED, "in place");
    hth_device_close(d);

    CHECK_OK(sim_gpu_open(SIM_GPU_EXACT "# any number\n", 0, each_device_shaders, &d, err));
    for (int i = 0; i < 100; i++) CHECK_OK(hth_buffer_import(d, words, sizeof words, "all", &first, &at, err));
    hth_device_close(d);
}
