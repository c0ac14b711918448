/* What the tests of src/store share: a file whose bytes follow from their offset, and every kind of disk. */
#ifndef HEARTH_TESTS_STORE_DISKS_H
#define HEARTH_TESTS_STORE_DISKS_H

#include "store/disk_faults.h"
#include "store/disk_simulated.h"
#include "store/reader.h"
#include "support/test.h"

#include <errno.h>
#include <fcntl.h>

enum { FILE_SIZE = (5 << 20) + 1234 }; /* no multiple of a sector */

typedef enum disk_kind { DISK_URING, DISK_PREAD, DISK_PREAD_ONE, DISK_SIMULATED, N_DISK_KIND } disk_kind;

static inline uint8_t byte_at(uint64_t offset)
{
    uint64_t z = (offset / 8 + 1) * 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z ^= z >> 27;
    return (uint8_t)(z >> (offset % 8 * 8));
}

static uint8_t disk_bytes[FILE_SIZE];
__attribute__((constructor)) static void make_disk_bytes(void)
{
    for (uint64_t i = 0; i < FILE_SIZE; i++) disk_bytes[i] = byte_at(i);
}

static inline bool bytes_are(const uint8_t *bytes, uint64_t offset, uint64_t size)
{
    return memcmp(bytes, disk_bytes + offset, size) == 0;
}

/* The file, made once. */
static inline const char *disk_file(void)
{
    static const char *path;
    if (path) return path;
    path = test_program_scratch("store.bin");
    test_write_file(path, disk_bytes, FILE_SIZE);
    return path;
}

/* Opens a kind of disk. False, and a note: this machine does not have it. */
static inline bool open_disk(disk_kind kind, hth_disk **disk)
{
    hearth_error err = {0};
    const hth_disk_model *model = hth_disk_model_find("nvme4");
    hearth_status st = kind == DISK_URING       ? hth_disk_open_uring(disk, &err)
                       : kind == DISK_SIMULATED ? hth_disk_open_simulated(model, 1, true, disk, &err)
                                                : hth_disk_open_pread(kind == DISK_PREAD ? 4 : 1, disk, &err);
    if (st == HEARTH_OK) return true;
    if (kind == DISK_URING && st == HEARTH_ERROR_UNSUPPORTED) test_note("%s", err.message);
    else test_fail(__FILE__, __LINE__, "%s", err.message);
    return false;
}

/* The disk with faults that was opened last. */
static hth_disk *faulty_disk;

/* A reader of disk_file() over a kind of disk, with faults if they are not NULL. */
static inline hth_reader *open_reader(disk_kind kind, bool buffered, int fd, const hth_disk_faults *faults)
{
    hth_disk *disk;
    hth_reader *reader = NULL;
    hth_reader_file file = {fd, disk_file()};
    if (!open_disk(kind, &disk)) return NULL;
    if (faults) CHECK_OK(hth_disk_open_faults(disk, faults, &disk, err));
    faulty_disk = faults ? disk : NULL;
    CHECK_OK(hth_reader_open(&(hth_reader_options){.files = &file, .n_file = 1, .disk = disk, .buffered = buffered}, &reader, err));
    return reader;
}

#endif
