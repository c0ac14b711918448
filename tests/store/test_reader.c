/* Loads have the bytes of their extents, whatever the disk does, or fail with one line; the reader goes on. */
#include "base/alloc.h"
#include "store/disks.h"

#include <pthread.h>

enum { N_LOAD = 24 };

typedef struct batch {
    hth_load loads[N_LOAD];
    uint8_t *memory[N_LOAD];
    size_t sizes[N_LOAD];
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint32_t n_done;
    uint32_t done[N_LOAD]; /* [n_done] loads in the order of their ends */
} batch;

static void load_done(hth_load *load)
{
    batch *b = load->user;
    pthread_mutex_lock(&b->lock);
    b->done[b->n_done++] = (uint32_t)(load - b->loads);
    pthread_cond_signal(&b->changed);
    pthread_mutex_unlock(&b->lock);
}

/* Random extents: small and large ones, at the start and at the end of the file, some of them guesses. */
static void make_batch(batch *b, uint64_t seed)
{
    test_random random = {seed};
    pthread_mutex_init(&b->lock, NULL);
    pthread_cond_init(&b->changed, NULL);
    b->n_done = 0;
    for (uint32_t i = 0; i < N_LOAD; i++) {
        hth_load *l = &b->loads[i];
        *l = (hth_load){.n_extent = 1 + i % HTH_MAX_EXTENT, .guess_size = i % 5 == 4 ? 8 << 20 : 0, .done = load_done, .user = b};
        for (uint32_t k = 0; k < l->n_extent; k++) {
            uint64_t size = 1 + test_random_below(&random, i % 8 == 0 ? 3 << 20 : i % 4 == 1 ? 700 : 100000);
            uint64_t offset = i == 0   ? 0
                              : i == 1 ? FILE_SIZE - size
                                       : test_random_below(&random, (uint32_t)(FILE_SIZE - size + 1));
            l->extents[k] = (hth_extent){0, offset, size};
        }
        CHECK(hth_reader_buffer_size(l->extents, l->n_extent, &b->sizes[i]));
        /* Every byte of the buffer and none outside. */
        b->memory[i] = aligned_alloc(HTH_BUFFER_ALIGN, b->sizes[i] + HTH_BUFFER_ALIGN);
        memset(b->memory[i], 0xA5, b->sizes[i] + HTH_BUFFER_ALIGN);
        l->to = b->memory[i];
        if (i > 0) b->loads[i - 1].next = l;
    }
}

static void run_batch(batch *b, hth_reader *reader)
{
    hth_reader_start(reader, b->loads);
    pthread_mutex_lock(&b->lock);
    while (b->n_done < N_LOAD) pthread_cond_wait(&b->changed, &b->lock);
    pthread_mutex_unlock(&b->lock);
}

static void check_load(const batch *b, uint32_t i)
{
    const hth_load *l = &b->loads[i];
    if (!CHECK(!l->failed)) return;
    for (uint32_t k = 0; k < l->n_extent; k++)
        if (!bytes_are(l->data[k], l->extents[k].offset, l->extents[k].size))
            test_fail(__FILE__, __LINE__, "load %u, extent %u: other bytes than in the file", i, k);
    for (size_t k = 0; k < HTH_BUFFER_ALIGN; k++)
        if (b->memory[i][b->sizes[i] + k] != 0xA5) {
            test_fail(__FILE__, __LINE__, "load %u: wrote outside of its buffer", i);
            break;
        }
}

static void free_batch(batch *b)
{
    for (uint32_t i = 0; i < N_LOAD; i++) free(b->memory[i]);
    pthread_cond_destroy(&b->changed);
    pthread_mutex_destroy(&b->lock);
}

static void check_all(hth_reader *reader, uint64_t seed)
{
    batch b;
    make_batch(&b, seed);
    run_batch(&b, reader);
    for (uint32_t i = 0; i < N_LOAD; i++) check_load(&b, i);
    free_batch(&b);
}

TEST(readers_load_extents)
{
    int fd = open(disk_file(), O_RDONLY);
    for (disk_kind k = 0; k < N_DISK_KIND; k++)
        for (int buffered = 0; buffered < 2; buffered++) {
            hth_reader *reader = open_reader(k, buffered, fd, NULL);
            if (!reader) continue;
            for (uint64_t seed = 1; seed <= 4; seed++) check_all(reader, seed);
            hth_reader_stats stats = hth_reader_get_stats(reader);
            CHECK(stats.n_read > 4 * N_LOAD);
            CHECK(stats.busy_ns > 0);
            CHECK_INT(stats.n_failed + stats.n_again, 0);
            CHECK(stats.n_buffered_file == 1 || !buffered); /* the file system may refuse direct reads */
            hth_reader_close(reader);
        }
    close(fd);
}

/* A fault of the n-th read, for every n, leaves all bytes right. */
static void check_recovers(hth_disk_fault fault, int error, uint64_t n_times)
{
    int fd = open(disk_file(), O_RDONLY);
    for (disk_kind k = 0; k < N_DISK_KIND; k++)
        for (uint64_t n = 1; n <= 60; n += 1 + n / 2) {
            hth_disk_faults faults = {.first = n, .n = n_times, .fault = fault, .error = error};
            hth_reader *reader = open_reader(k, false, fd, &faults);
            if (!reader) continue;
            check_all(reader, n);
            hth_reader_close(reader);
        }
    close(fd);
}

TEST(short_reads_are_completed)
{
    check_recovers(HTH_FAULT_ONE, 0, 1);
    check_recovers(HTH_FAULT_HALF, 0, 1);
    check_recovers(HTH_FAULT_BUT_ONE, 0, 3);
}

TEST(interrupted_reads_are_repeated)
{
    check_recovers(HTH_FAULT_ERROR, EINTR, 1);
    check_recovers(HTH_FAULT_ERROR, EAGAIN, 3);
    check_recovers(HTH_FAULT_ERROR, EBUSY, 200);
    check_recovers(HTH_FAULT_FULL, 0, 5);
}

/* As often as the disk says so: then the piece is read by pread. */
TEST(a_disk_that_always_says_again_is_read_otherwise)
{
    int fd = open(disk_file(), O_RDONLY);
    hth_disk_faults faults = {.first = 1, .n = UINT64_MAX, .fault = HTH_FAULT_ERROR, .error = EAGAIN};
    hth_reader *reader = open_reader(DISK_PREAD, false, fd, &faults);
    check_all(reader, 3);
    CHECK(hth_reader_get_stats(reader).n_again > 1000);
    hth_reader_close(reader);
    close(fd);
}

TEST(failures_are_tried_again)
{
    int fd = open(disk_file(), O_RDONLY);
    test_log_start();
    for (uint64_t n = 1; n <= 41; n += 8) {
        hth_disk_faults faults = {.first = n, .n = 2, .fault = HTH_FAULT_ERROR, .error = EIO};
        hth_reader *reader = open_reader(DISK_SIMULATED, false, fd, &faults); /* its clock does not wait 110 ms */
        check_all(reader, n);
        CHECK_INT(hth_reader_get_stats(reader).n_failed, 2);
        hth_reader_close(reader);
    }
    test_log_stop();
    close(fd);
}

TEST(refused_direct_reads_go_through_the_page_cache)
{
    int fd = open(disk_file(), O_RDONLY);
    hth_disk_faults faults = {.first = 5, .n = 3, .fault = HTH_FAULT_ERROR, .error = EINVAL};
    test_log_start();
    hth_reader *reader = open_reader(DISK_PREAD, false, fd, &faults);
    check_all(reader, 8);
    CHECK_INT(hth_reader_get_stats(reader).n_buffered_file, 1);
    CHECK_INT(test_n_warning("store.bin: direct reads are refused ("), 1);
    hth_reader_close(reader);
    test_log_stop();
    close(fd);
}

TEST(results_come_in_any_order)
{
    int fd = open(disk_file(), O_RDONLY);
    for (disk_kind k = 0; k < N_DISK_KIND; k++)
        for (hth_disk_order order = HTH_ORDER_REVERSED; order <= HTH_ORDER_SINGLE; order++) {
            hth_disk_faults faults = {.order = order, .delay_ns = order == HTH_ORDER_SINGLE ? 1000000 : 0};
            hth_reader *reader = open_reader(k, false, fd, &faults);
            if (!reader) continue;
            check_all(reader, 11);
            hth_reader_close(reader);
        }
    close(fd);
}

/* A read that takes 40 s, of a clock that does not wait, is mentioned once, and is no failure. */
TEST(a_read_that_takes_long_is_reported)
{
    hth_disk_model slow = *hth_disk_model_find("nvme4");
    hth_reader_file file = {open(disk_file(), O_RDONLY), disk_file()};
    hth_reader *reader;
    hth_disk *disk;
    slow.latency_ns = 50000000000; /* and up to a quarter less */
    test_log_start();
    CHECK_OK(hth_disk_open_simulated(&slow, 1, true, &disk, err));
    CHECK_OK(hth_reader_open(&(hth_reader_options){.files = &file, .n_file = 1, .disk = disk}, &reader, err));
    size_t size;
    batch b = {.n_done = N_LOAD - 1};
    b.loads[0] = (hth_load){.extents = {{0, 5000, 100}}, .n_extent = 1, .done = load_done, .user = &b};
    CHECK(hth_reader_buffer_size(b.loads[0].extents, 1, &size));
    pthread_mutex_init(&b.lock, NULL), pthread_cond_init(&b.changed, NULL);
    b.loads[0].to = aligned_alloc(HTH_BUFFER_ALIGN, size);
    run_batch(&b, reader);
    CHECK(!b.loads[0].failed && bytes_are(b.loads[0].data[0], 5000, 100));
    CHECK_INT(test_n_warning(" takes more than 30 s"), 1);
    CHECK_INT(hth_reader_get_stats(reader).n_again + hth_reader_get_stats(reader).n_failed, 0);
    hth_reader_close(reader);
    test_log_stop();
    free(b.loads[0].to);
    close(file.fd);
}

/* ---- failures ------------------------------------------------------------------------------------- */

/* All loads end, some of them failed with these words; after the fault the reader goes on. */
static void check_fails(hth_disk_fault fault, int error, const char *words)
{
    int fd = open(disk_file(), O_RDONLY);
    hth_disk_faults faults = {.first = 3, .n = UINT64_MAX, .fault = fault, .error = error};
    hth_reader *reader = open_reader(DISK_SIMULATED, true, fd, &faults);
    uint32_t n_failed = 0;
    batch b;
    make_batch(&b, 21);
    run_batch(&b, reader);
    for (uint32_t i = 0; i < N_LOAD; i++) {
        if (!b.loads[i].failed) continue;
        n_failed++;
        CHECK_FAILS(hth_reader_describe(reader, &b.loads[i].failure, err), HEARTH_ERROR_IO, words);
    }
    CHECK(n_failed >= N_LOAD - 3);
    free_batch(&b);
    hth_disk_set_faults(faulty_disk, &(hth_disk_faults){0});
    check_all(reader, 22);
    hth_reader_close(reader);
    close(fd);
}

TEST(a_disk_that_fails_for_ever_is_an_error)
{
    check_fails(HTH_FAULT_ERROR, EIO, "store.bin: cannot read at byte |Input/output error");
    check_fails(HTH_FAULT_ERROR, ENODEV, "store.bin: cannot read at byte |No such device");
    check_fails(HTH_FAULT_ERROR, ESTALE, "Stale file handle");
    check_fails(HTH_FAULT_END, 0, "store.bin: ends at or before byte |, but had 5244114 bytes|the file became shorter");
}

TEST(a_file_that_became_shorter_is_an_error)
{
    const char *path = test_scratch("short.bin");
    uint8_t bytes[100000] = {1};
    test_write_file(path, bytes, sizeof bytes);
    int fd = open(path, O_RDONLY);
    CHECK(truncate(path, 50000) == 0);
    for (disk_kind k = 0; k < N_DISK_KIND; k++) {
        hth_reader *reader = open_reader(k, false, fd, NULL);
        batch b;
        if (!reader) continue;
        make_batch(&b, 1);
        for (uint32_t i = 0; i < N_LOAD; i++) {
            b.loads[i].n_extent = 1, b.loads[i].extents[0] = (hth_extent){0, 3, i % 2 ? 10 : 99990};
            free(b.memory[i]);
            b.memory[i] = b.loads[i].to = aligned_alloc(HTH_BUFFER_ALIGN, 26 * HTH_BUFFER_ALIGN);
        }
        run_batch(&b, reader);
        for (uint32_t i = 0; i < N_LOAD; i++) CHECK_INT(b.loads[i].failed, i % 2 == 0);
        free_batch(&b);
        hth_reader_close(reader);
    }
    close(fd);
}

TEST(a_reader_that_closes_ends_all_loads)
{
    int fd = open(disk_file(), O_RDONLY);
    for (disk_kind k = 0; k < N_DISK_KIND; k++) {
        hth_disk_faults faults = {.delay_ns = 3000000, .order = HTH_ORDER_SINGLE};
        hth_reader *reader = open_reader(k, false, fd, &faults);
        batch b;
        if (!reader) continue;
        make_batch(&b, 5);
        hth_reader_start(reader, b.loads);
        usleep(5000);
        hth_reader_close(reader);
        CHECK_INT(b.n_done, N_LOAD);
        for (uint32_t i = 0; i < N_LOAD; i++)
            if (!b.loads[i].failed) check_load(&b, i);
        free_batch(&b);
    }
    close(fd);
}

/* With the lock held the first load cannot end before the last one is prioritized; few more have started by then. */
TEST(a_guess_that_is_needed_comes_first)
{
    int fd = open(disk_file(), O_RDONLY);
    hth_disk_faults faults = {.order = HTH_ORDER_SINGLE};
    hth_reader *reader = open_reader(DISK_PREAD_ONE, false, fd, &faults);
    batch b;
    uint32_t i_first = 0;
    make_batch(&b, 6);
    for (uint32_t i = 0; i < N_LOAD; i++) b.loads[i].guess_size = 1;
    pthread_mutex_lock(&b.lock);
    hth_reader_start(reader, b.loads);
    hth_reader_prioritize(reader, &b.loads[N_LOAD - 1]);
    while (b.n_done < N_LOAD) pthread_cond_wait(&b.changed, &b.lock);
    pthread_mutex_unlock(&b.lock);
    while (b.done[i_first] != N_LOAD - 1) i_first++;
    if (!CHECK(i_first < N_LOAD / 2)) printf("     it ended after %u others\n", i_first);
    for (uint32_t i = 0; i < N_LOAD; i++) check_load(&b, i);
    free_batch(&b);
    hth_reader_close(reader);
    close(fd);
}

TEST(buffer_sizes_do_not_overflow)
{
    size_t size;
    CHECK(hth_reader_buffer_size(&(hth_extent){0, 5, 10}, 1, &size));
    CHECK_INT(size, 4096);
    CHECK(hth_reader_buffer_size(&(hth_extent){0, 4090, 10}, 1, &size));
    CHECK_INT(size, 8192);
    CHECK(!hth_reader_buffer_size(&(hth_extent){0, 4095, UINT64_MAX}, 1, &size));
    CHECK(!hth_reader_buffer_size((hth_extent[]){{0, 0, (uint64_t)1 << 63}, {0, 0, (uint64_t)1 << 63}}, 2, &size));
}
