/* How fast a file is read as experts are: extents at random places, past the page cache, as many at once as the
 * reader keeps (src/measure/machine/read_rate.h).
 *
 *     read_disk FILE [HOW [SIZE_KIB]...]
 *
 * HOW: auto, uring, pread or sim:DISK. Sizes: 64, 256, 1024, 4096 by default. For each, after a second: GB/s of
 * extents, reads at once, and the share of one core that the process used. */
#define _GNU_SOURCE
#include "measure/machine/read_rate.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static hearth_status open_reader(const char *path, int fd, const char *how, hth_reader **reader,
                                 hearth_error *err)
{
    hth_disk *disk;
    const hth_reader_file file = {fd, path};
    hearth_status st = hth_disk_open(how, &disk, err);
    const hth_reader_options o = {.files = &file,
                                  .n_file = 1,
                                  .disk = disk,
                                  .buffered = hth_disk_is_simulated(how)}; /* as models do */
    return st == HEARTH_OK ? hth_reader_open(&o, reader, err) : st;
}

static hearth_status measure(hth_reader *reader, uint64_t file_size, uint64_t size, hearth_error *err)
{
    hth_read_rate r;
    const hth_read_rate_options o = {.reader = reader,
                                     .file_size = &file_size,
                                     .n_file = 1,
                                     .size = size,
                                     .memory = 256 << 20,
                                     .seconds = 1.0 / HTH_READ_ROUNDS};
    hearth_status st = hth_read_rate_measure(&o, &r, err);
    if (st == HEARTH_OK)
        printf("| %llu KiB | %.2f | %u | %.2f |\n", (unsigned long long)(size >> 10), r.rate.median * 1e-9,
               r.depth, r.cores);
    return st;
}

int main(int argc, char **argv)
{
    static const uint64_t usual[] = {64, 256, 1024, 4096};
    hearth_error err;
    hth_reader *reader;
    int fd = argc > 1 ? open(argv[1], O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0) {
        fprintf(stderr, "usage: read_disk FILE [HOW [SIZE_KIB]...]\n");
        return 2;
    }
    uint64_t file_size = (uint64_t)lseek(fd, 0, SEEK_END);
    hearth_status st = open_reader(argv[1], fd, argc > 2 ? argv[2] : "auto", &reader, &err);
    if (st == HEARTH_OK)
        printf("%s%s\n| extents | GB/s | reads at once | cores |\n|---|---|---|---|\n",
               hth_reader_name(reader),
               hth_reader_get_stats(reader).n_buffered_file ? ", through the page cache" : "");
    for (int i = 0; st == HEARTH_OK && i < (argc > 3 ? argc - 3 : 4); i++)
        st = measure(reader, file_size, (argc > 3 ? strtoull(argv[3 + i], NULL, 10) : usual[i]) << 10, &err);
    if (st != HEARTH_OK) {
        fprintf(stderr, "read_disk: %s\n", err.message);
        return 1;
    }
    hth_reader_close(reader);
    close(fd);
    return 0;
}
