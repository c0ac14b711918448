/* Every kind of disk reads the same bytes, in any number at once, and lets other threads end a wait. The times of
 * simulated disks are those of their models. */
#include "base/clock.h"
#include "store/disks.h"

#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>

enum { N_READ = 40, SIZE = 24 << 10 };

static void read_all(hth_disk *disk, int fd)
{
    static _Alignas(4096) uint8_t to[N_READ][SIZE];
    uint32_t n_started = 0, n_done = 0;
    while (n_done < N_READ) {
        hth_disk_result results[7];
        for (; n_started < N_READ; n_started++) {
            hth_disk_read r = {n_started, fd, SIZE, (uint64_t)(n_started * 37 % N_READ) * SIZE, to[n_started]};
            if (!disk->ops->start(disk, &r)) break;
        }
        uint32_t n = disk->ops->wait(disk, UINT64_MAX, results, 7);
        for (uint32_t i = 0; i < n; i++) {
            CHECK_INT(results[i].n, SIZE);
            CHECK(bytes_are(to[results[i].id], (results[i].id * 37 % N_READ) * SIZE, SIZE));
        }
        n_done += n;
    }
}

TEST(disks_read_the_bytes_of_a_file)
{
    int fd = open(disk_file(), O_RDONLY);
    for (disk_kind k = 0; k < N_DISK_KIND; k++) {
        hth_disk *disk;
        if (!open_disk(k, &disk)) continue;
        read_all(disk, fd);
        disk->ops->close(disk);
    }
    close(fd);
}

TEST(disks_say_how_a_read_failed)
{
    uint8_t to[16];
    for (disk_kind k = 0; k < N_DISK_KIND; k++) {
        hth_disk *disk;
        hth_disk_result result = {0};
        if (!open_disk(k, &disk)) continue;
        CHECK(disk->ops->start(disk, &(hth_disk_read){7, 999999, 16, 0, to}));
        while (disk->ops->wait(disk, UINT64_MAX, &result, 1) == 0) {}
        CHECK_INT(result.id, 7);
        CHECK_INT(result.n, -EBADF);
        disk->ops->close(disk);
    }
}

TEST(disks_read_nothing_behind_the_end)
{
    uint8_t to[64];
    int fd = open(disk_file(), O_RDONLY);
    for (disk_kind k = 0; k < N_DISK_KIND; k++) {
        hth_disk *disk;
        hth_disk_result result = {0};
        if (!open_disk(k, &disk)) continue;
        disk->ops->start(disk, &(hth_disk_read){0, fd, 64, FILE_SIZE - 10, to});
        while (disk->ops->wait(disk, UINT64_MAX, &result, 1) == 0) {}
        CHECK_INT(result.n, 10);
        disk->ops->start(disk, &(hth_disk_read){1, fd, 64, FILE_SIZE, to});
        while (disk->ops->wait(disk, UINT64_MAX, &result, 1) == 0) {}
        CHECK_INT(result.n, 0);
        disk->ops->close(disk);
    }
    close(fd);
}

/* The descriptor of the only ring of this process; -1: there is none. */
static int find_ring(void)
{
    for (int fd = 0; fd < 1024; fd++) {
        char link[64], to[64] = "";
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        if (readlink(link, to, sizeof to - 1) > 0 && strcmp(to, "anon_inode:[io_uring]") == 0) return fd;
    }
    return -1;
}

TEST(rings_take_no_other_operations)
{
    enum { REGISTER = 427, REGISTER_EVENTFD = 4 }; /* of all architectures */
    uint8_t to[16];
    hth_disk *disk;
    hth_disk_result result = {0};
    if (!open_disk(DISK_URING, &disk)) return;
    int fd = open(disk_file(), O_RDONLY), event = eventfd(0, EFD_CLOEXEC), ring = find_ring();
    disk->ops->start(disk, &(hth_disk_read){0, fd, 16, 0, to});
    while (disk->ops->wait(disk, UINT64_MAX, &result, 1) == 0) {} /* the ring is enabled by that */
    CHECK_INT(result.n, 16);
    CHECK(ring >= 0 && syscall(REGISTER, ring, REGISTER_EVENTFD, &event, 1) == -1 && errno == EACCES);
    close(event);
    close(fd);
    disk->ops->close(disk);
}

static void *wake_later(void *disk)
{
    hth_disk *d = disk;
    usleep(20000);
    d->ops->wake(d);
    return NULL;
}

TEST(disks_wake_from_another_thread)
{
    for (disk_kind k = 0; k < N_DISK_KIND; k++) {
        hth_disk *disk;
        hth_disk_result result;
        pthread_t thread;
        if (!open_disk(k, &disk)) continue;
        pthread_create(&thread, NULL, wake_later, disk);
        CHECK_INT(disk->ops->wait(disk, UINT64_MAX, &result, 1), 0);
        pthread_join(thread, NULL);
        disk->ops->wake(disk); /* no thread waits: the next wait ends */
        CHECK_INT(disk->ops->wait(disk, UINT64_MAX, &result, 1), 0);
        disk->ops->close(disk);
    }
}

TEST(disks_wait_no_longer_than_asked)
{
    for (disk_kind k = 0; k < N_DISK_KIND; k++) {
        hth_disk *disk;
        hth_disk_result result;
        if (!open_disk(k, &disk)) continue;
        uint64_t start = disk->ops->now(disk);
        CHECK_INT(disk->ops->wait(disk, 3000000, &result, 1), 0);
        uint64_t waited = disk->ops->now(disk) - start;
        CHECK(waited >= 3000000 && waited < 10000000000); /* ns; other programs may delay it */
        CHECK_INT(disk->ops->wait(disk, 0, &result, 1), 0);
        disk->ops->close(disk);
    }
}

/* ---- simulated disks ---------------------------------------------------------------------------- */

/* GB/s of n reads of `size` bytes, `depth` at once, at random in `range` bytes or in order. */
static double rate_of(const char *name, uint64_t size, uint32_t depth, uint64_t range)
{
    enum { N = 4000 };
    hth_disk_timing t = {.model = hth_disk_model_find(name), .seed = 5};
    test_random random = {9};
    uint64_t ends[64] = {0}, end = 0;
    for (uint32_t i = 0; i < N; i++) {
        uint64_t at = range ? test_random_next(&random) % (range / size) * size : i * size;
        end = ends[i % depth] = hth_disk_timing_end(&t, ends[i % depth], at, size);
    }
    return (double)(N * size) / (double)end;
}

static bool is_near(double a, double b) { return a > b * 0.9 && a < b * 1.1; }

TEST(simulated_disks_have_the_rates_of_their_models)
{
    const uint64_t mib = 1 << 20, gib = 1 << 30;
    CHECK(is_near(rate_of("ufs4", 512 << 10, 32, 0), 4.2));
    CHECK(is_near(rate_of("ufs4", 512 << 10, 32, 8 * gib), 3.5));
    CHECK(is_near(rate_of("ufs4", 4 << 10, 32, 128 * mib), 1.08));
    CHECK(is_near(rate_of("ufs4", 4 << 10, 32, 64 * gib), 0.41)); /* 100,000 reads a second */
    CHECK(is_near(rate_of("sata", 1 << 20, 8, 8 * gib), 0.55));
    CHECK(is_near(rate_of("nvme3", 1 << 20, 8, 8 * gib), 3.4));
    CHECK(is_near(rate_of("nvme4", 1 << 20, 8, 8 * gib), 6.8));
    CHECK(is_near(rate_of("nvme4", 4 << 10, 1, 8 * gib), 0.067)); /* 60 us each */
    CHECK(is_near(rate_of("sd", 4 << 10, 8, gib), 0.0063));
    CHECK(hth_disk_model_find("floppy") == NULL);
}

TEST(a_simulated_disk_takes_its_time)
{
    static uint8_t to[1 << 20];
    hth_disk *disk;
    hth_disk_result result;
    int fd = open(disk_file(), O_RDONLY);
    CHECK_OK(hth_disk_open_simulated(hth_disk_model_find("sd"), 1, false, &disk, err));
    uint64_t start = hth_clock_ns();
    disk->ops->start(disk, &(hth_disk_read){0, fd, sizeof to, 0, to});
    while (disk->ops->wait(disk, UINT64_MAX, &result, 1) == 0) {}
    CHECK(hth_clock_ns() - start >= 11000000); /* 1 MiB at 90 to 95 MB/s */
    CHECK(bytes_are(to, 0, sizeof to));
    disk->ops->close(disk);
    close(fd);
}
