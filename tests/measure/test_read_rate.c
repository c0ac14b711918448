/* Rates of reads of a file by the model's reader. */
#define _GNU_SOURCE
#include "measure/machine/read_rate.h"
#include "store/disk_faults.h"
#include "support/test.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

enum { FILE_SIZE = 3 << 20 };

static hth_reader *open_reader_of(hth_disk *disk, int *fd)
{
    static const uint8_t zeros[FILE_SIZE];
    const char *path = test_scratch("file");
    hth_reader *reader = NULL;
    test_write_file(path, zeros, FILE_SIZE);
    *fd = open(path, O_RDONLY | O_CLOEXEC);
    const hth_reader_file file = {*fd, path};
    CHECK_OK(hth_reader_open(
        &(hth_reader_options){.files = &file, .n_file = 1, .disk = disk, .buffered = true}, &reader, err));
    return reader;
}

static hth_reader *open_reader(const char *how, int *fd)
{
    hth_disk *disk;
    CHECK_OK(hth_disk_open(how, &disk, err));
    return open_reader_of(disk, fd);
}

static hth_read_rate_options options_of(hth_reader *reader, const uint64_t *size)
{
    return (hth_read_rate_options){.reader = reader,
                                   .file_size = size,
                                   .n_file = 1,
                                   .size = 64 << 10,
                                   .memory = 4 << 20,
                                   .seconds = 0.03};
}

TEST(a_simulated_disk_is_as_fast_as_described)
{
    int fd;
    const uint64_t size = FILE_SIZE;
    hth_reader *reader = open_reader("sim:sata", &fd);
    hth_read_rate random, alone;
    hth_read_rate_options o = options_of(reader, &size);
    CHECK_OK(hth_read_rate_measure(&o, &random, err));
    o.alone = true;
    CHECK_OK(hth_read_rate_measure(&o, &alone, err));
    test_note("%.0f MB/s, one at a time %.0f MB/s", random.rate.median * 1e-6, alone.rate.median * 1e-6);
    CHECK(random.rate.median > 0.0 && random.rate.median < 0.65e9); /* 0.55 GB/s; a busy machine is slower */
    CHECK(alone.rate.median < random.rate.max &&
          alone.rate.median <= 64e3 / 160e-6); /* 68 us beside its bytes at least */
    CHECK(random.depth >= 1 && random.cores >= 0.0);
    hth_reader_close(reader);
    close(fd);
}

typedef struct stalls {
    hth_disk *disk;
    _Atomic bool end;
} stalls;

/* Now and then a read takes 60 ms. */
static void *stall(void *user)
{
    stalls *s = user;
    while (!atomic_load(&s->end)) {
        hth_disk_set_faults(s->disk, &(hth_disk_faults){.delay_ns = 60000000});
        usleep(1000);
        hth_disk_set_faults(s->disk, &(hth_disk_faults){0});
        usleep(15000);
    }
    return NULL;
}

TEST(a_disk_that_stalls_has_the_latency_of_its_other_reads)
{
    int fd;
    pthread_t thread;
    const uint64_t size = FILE_SIZE;
    hth_disk *inner;
    stalls s = {0};
    hth_read_rate r = {0};
    CHECK_OK(hth_disk_open("pread", &inner, err));
    CHECK_OK(hth_disk_open_faults(inner, &(hth_disk_faults){0}, &s.disk, err));
    hth_reader *reader = open_reader_of(s.disk, &fd);
    hth_read_rate_options o = options_of(reader, &size);
    o.alone = true, o.seconds = 0.1;
    CHECK_INT(pthread_create(&thread, NULL, stall, &s), 0);
    CHECK_OK(hth_read_rate_measure(&o, &r, err));
    atomic_store(&s.end, true);
    pthread_join(thread, NULL);
    test_note("a quarter within %.0f us, half within %.0f us, mean %.0f us", r.seconds_least * 1e6,
              r.seconds_median * 1e6, r.seconds_mean * 1e6);
    CHECK(r.seconds_least > 0.0 && r.seconds_least <= r.seconds_median && r.seconds_median < 0.02);
    CHECK(r.seconds_mean > r.seconds_median);
    hth_reader_close(reader);
    close(fd);
}

TEST(extents_that_no_file_has_are_refused)
{
    int fd;
    const uint64_t size = 1000;
    hth_reader *reader = open_reader("pread", &fd);
    hth_read_rate r;
    hearth_error error = {0};
    hth_read_rate_options o = options_of(reader, &size);
    CHECK_INT(hth_read_rate_measure(&o, &r, &error), HEARTH_ERROR_ARGUMENT);
    o.size = 0;
    CHECK_INT(hth_read_rate_measure(&o, &r, &error), HEARTH_ERROR_ARGUMENT);
    o.size = 1000, o.sequential = true; /* one place */
    CHECK_OK(hth_read_rate_measure(&o, &r, err));
    hth_reader_close(reader);
    close(fd);
}

TEST(reads_that_fail_are_an_error)
{
    int fd;
    const uint64_t size = 16ull * FILE_SIZE; /* longer than it is */
    hth_reader *reader = open_reader("pread", &fd);
    hth_read_rate r;
    hearth_error error = {0};
    hth_read_rate_options o = options_of(reader, &size);
    CHECK_INT(hth_read_rate_measure(&o, &r, &error), HEARTH_ERROR_IO);
    CHECK(strstr(error.message, "ends at or before byte") != NULL);
    hth_reader_close(reader);
    close(fd);
}
