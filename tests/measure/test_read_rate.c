/* Rates of reads of a file by the model's reader. */
#define _GNU_SOURCE
#include "measure/read_rate.h"
#include "support/test.h"

#include <fcntl.h>
#include <unistd.h>

enum { FILE_SIZE = 3 << 20 };

static hth_reader *open_reader(const char *how, int *fd)
{
    static const uint8_t zeros[FILE_SIZE];
    const char *path = test_scratch("file");
    hth_disk *disk;
    hth_reader *reader = NULL;
    test_write_file(path, zeros, FILE_SIZE);
    *fd = open(path, O_RDONLY | O_CLOEXEC);
    const hth_reader_file file = {*fd, path};
    CHECK_OK(hth_disk_open(how, &disk, err));
    CHECK_OK(hth_reader_open(
        &(hth_reader_options){.files = &file, .n_file = 1, .disk = disk, .buffered = true}, &reader, err));
    return reader;
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
