/* How fast a file is read as experts are: extents at random places, past the page cache, as many at once as the
 * reader keeps (src/store).
 *
 *     read_disk FILE [HOW [SIZE_KIB]...]
 *
 * HOW: auto, uring, pread or sim:DISK. Sizes: 64, 256, 1024, 4096 by default. For each, after a second: GB/s of
 * extents, reads at once, and the share of one core that the process used. */
#define _GNU_SOURCE
#include "base/clock.h"
#include "store/reader.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { N_LOAD = 48, SECONDS = 1 };

typedef struct loads {
    hth_load load[N_LOAD];
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool free[N_LOAD];
} loads;

static void done(hth_load *load)
{
    loads *l = load->user;
    pthread_mutex_lock(&l->lock);
    l->free[load - l->load] = true;
    pthread_cond_signal(&l->changed);
    pthread_mutex_unlock(&l->lock);
}

static int take_free(loads *l)
{
    int i = 0;
    pthread_mutex_lock(&l->lock);
    for (;; pthread_cond_wait(&l->changed, &l->lock)) {
        for (i = 0; i < N_LOAD && !l->free[i]; i++) {}
        if (i < N_LOAD) break;
    }
    l->free[i] = false;
    pthread_mutex_unlock(&l->lock);
    return i;
}

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static bool measure(hth_reader *reader, uint64_t file_size, uint64_t size)
{
    loads l = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    uint64_t n = 0, start = hth_clock_ns();
    double cpu = cpu_seconds();
    for (int i = 0; i < N_LOAD; i++) {
        l.free[i] = true;
        uint8_t *to = aligned_alloc(HTH_ROOM_ALIGN, (size / HTH_ROOM_ALIGN + 3) * HTH_ROOM_ALIGN);
        l.load[i] = (hth_load){.to = to, .done = done, .user = &l};
        if (!l.load[i].to) return false;
    }
    for (; hth_clock_since(start) < SECONDS; n++) {
        hth_load *load = &l.load[take_free(&l)];
        uint64_t at = (((uint64_t)rand() << 31) ^ (uint64_t)rand()) % (file_size - size);
        load->extents[0] = (hth_extent){0, at, size}, load->n_extent = 1, load->next = NULL;
        hth_reader_start(reader, load);
    }
    for (int i = 0; i < N_LOAD; i++) take_free(&l);
    double seconds = hth_clock_since(start);
    printf("| %llu KiB | %.2f | %u | %.2f |\n", (unsigned long long)(size >> 10), (double)(n * size) / seconds * 1e-9,
           hth_reader_get_stats(reader).depth, (cpu_seconds() - cpu) / seconds);
    for (int i = 0; i < N_LOAD; i++) free(l.load[i].to);
    return true;
}

int main(int argc, char **argv)
{
    static const uint64_t usual[] = {64, 256, 1024, 4096};
    hearth_error err;
    hth_disk *disk;
    hth_reader *reader;
    int fd = argc > 1 ? open(argv[1], O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0) {
        fprintf(stderr, "usage: read_disk FILE [HOW [SIZE_KIB]...]\n");
        return 2;
    }
    uint64_t file_size = (uint64_t)lseek(fd, 0, SEEK_END);
    hearth_status st = hth_disk_open(argc > 2 ? argv[2] : "auto", &disk, &err);
    hth_reader_file file = {fd, argv[1]};
    if (st == HEARTH_OK) st = hth_reader_open(&(hth_reader_options){&file, 1, disk, argc > 2 && strncmp(argv[2], "sim:", 4) == 0}, &reader, &err);
    if (st != HEARTH_OK) {
        fprintf(stderr, "read_disk: %s\n", err.message);
        return 1;
    }
    printf("%s%s\n| extents | GB/s | reads at once | cores |\n|---|---|---|---|\n", hth_reader_name(reader),
           hth_reader_get_stats(reader).n_buffered_file ? ", through the page cache" : "");
    for (int i = 0; i < (argc > 3 ? argc - 3 : 4); i++) {
        uint64_t size = (argc > 3 ? strtoull(argv[3 + i], NULL, 10) : usual[i]) << 10;
        if (size == 0 || size >= file_size || !measure(reader, file_size, size)) {
            fprintf(stderr, "read_disk: extents of %llu KiB do not suit the file\n", (unsigned long long)(size >> 10));
            return 1;
        }
    }
    hth_reader_close(reader);
    close(fd);
    return 0;
}
