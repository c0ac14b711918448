/* Rows of a table in a file: those that were named, in their places, with every disk; one that cannot be read is an
 * error, and the next ones are read. */
#include "store/disks.h"
#include "store/table_rows.h"

#include <unistd.h>

enum { ROW_SIZE = 1364, TABLE_AT = 4711, N_ROW = 3000, N_MAX = 40 }; /* rows cross sectors */

static const hth_row_table table = {{0, TABLE_AT, (uint64_t)N_ROW * ROW_SIZE}, ROW_SIZE};

/* Starts n random rows; returns whether all have their bytes after a wait without an error. */
static bool read_rows(hth_table_rows *rows, uint32_t n, uint64_t seed, hearth_error *err)
{
    test_random random = {seed};
    uint32_t at[N_MAX];
    bool same = true;
    for (uint32_t i = 0; i < n; i++) {
        at[i] = i == 0 ? N_ROW - 1 : i == 1 ? 0 : test_random_below(&random, N_ROW);
        hth_table_rows_start(rows, i, at[i]);
    }
    if (hth_table_rows_wait(rows, err) != HEARTH_OK) return false;
    for (uint32_t i = 0; i < n; i++)
        same = same && bytes_are(hth_table_rows_get(rows, i), TABLE_AT + (uint64_t)at[i] * ROW_SIZE, ROW_SIZE);
    return same;
}

TEST(rows_are_those_of_the_file)
{
    for (int kind = 0; kind < N_DISK_KIND; kind++) {
        int fd = open(disk_file(), O_RDONLY);
        hth_reader *reader = open_reader((disk_kind)kind, false, fd, NULL);
        hth_table_rows *rows = NULL;
        hearth_error error = {0};
        if (reader) CHECK_OK(hth_table_rows_open(reader, &table, N_MAX, NULL, &rows, err));
        for (uint32_t n = 1; rows && n <= N_MAX; n += 13) CHECK(read_rows(rows, n, n, &error));
        if (rows) hth_table_rows_start(rows, 0, 7); /* closing waits for it */
        hth_table_rows_close(rows);
        hth_reader_close(reader);
        close(fd);
    }
}

TEST(a_row_that_cannot_be_read_is_an_error)
{
    hth_disk_faults faults = {.first = 1, .n = UINT64_MAX, .fault = HTH_FAULT_END};
    int fd = open(disk_file(), O_RDONLY);
    hth_reader *reader = open_reader(DISK_PREAD, false, fd, &faults);
    hth_table_rows *rows = NULL;
    hearth_error error = {0};
    CHECK_OK(hth_table_rows_open(reader, &table, N_MAX, NULL, &rows, err));
    CHECK(!read_rows(rows, 5, 1, &error) && error.status == HEARTH_ERROR_IO && strstr(error.message, "store.bin"));
    hth_disk_set_faults(faulty_disk, &(hth_disk_faults){0});
    CHECK(read_rows(rows, 5, 1, &error));
    hth_table_rows_close(rows);
    hth_reader_close(reader);
    close(fd);
}

TEST(a_wait_for_rows_ends_when_it_is_cancelled)
{
    const hth_disk_faults slow = {.delay_ns = 300000000};
    volatile int cancel = 1;
    int fd = open(disk_file(), O_RDONLY);
    hth_reader *reader = open_reader(DISK_PREAD, false, fd, &slow);
    hth_table_rows *rows = NULL;
    hearth_error error = {0};
    CHECK_OK(hth_table_rows_open(reader, &table, N_MAX, &cancel, &rows, err));
    CHECK(!read_rows(rows, 5, 1, &error) && error.status == HEARTH_ERROR_CANCELLED);
    cancel = 0;
    hth_disk_set_faults(faulty_disk, &(hth_disk_faults){0});
    CHECK(read_rows(rows, 5, 2, &error)); /* in the memory of those that ran on */
    hth_table_rows_close(rows);
    hth_reader_close(reader);
    close(fd);
}

TEST(too_many_rows_are_refused)
{
    const hth_row_table large = {{0, 0, UINT64_MAX}, UINT64_MAX / 2};
    size_t size;
    hth_table_rows *rows;
    CHECK(!hth_table_rows_size(&large, 1000, &size));
    CHECK_FAILS(hth_table_rows_open(NULL, &large, 1000, NULL, &rows, err), HEARTH_ERROR_MEMORY, "rows of tables");
    CHECK(hth_table_rows_size(&(hth_row_table){.row_size = 0}, 1000, &size) && size == 0);
}
