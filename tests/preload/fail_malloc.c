/* Preloaded into the program by tests/cli/test_faults.py: the allocation number $FAIL_ALLOCATION of the process
 * fails, with $FAIL_STICKY all from there on. The number of allocations is written to $FAIL_REPORT at the end.
 * malloc and its kin go to glibc's own names; of maps only anonymous ones count. Not part of any test program. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);

static _Atomic unsigned long n_call, fail_at;
static _Atomic int sticky;
static int report_fd = -1; /* opened at the start: the server's sandbox allows no file at the end */

static int fails(void)
{
    unsigned long n = atomic_fetch_add(&n_call, 1) + 1, at = atomic_load(&fail_at);
    if (at == 0 || n < at || (n > at && !atomic_load(&sticky))) return 0;
    errno = ENOMEM;
    return 1;
}

__attribute__((visibility("default"))) void *malloc(size_t n) { return fails() ? NULL : __libc_malloc(n); }

__attribute__((visibility("default"))) void *calloc(size_t n, size_t size)
{
    return fails() ? NULL : __libc_calloc(n, size);
}

__attribute__((visibility("default"))) void *realloc(void *p, size_t n)
{
    return fails() ? NULL : __libc_realloc(p, n);
}

__attribute__((visibility("default"))) void *mmap(void *at, size_t n, int protection, int flags, int fd, off_t from)
{
    if (flags & MAP_ANONYMOUS && fails()) return MAP_FAILED;
    long address = syscall(SYS_mmap, at, n, protection, flags, fd, from);
    return (void *)address; /* -1 is MAP_FAILED */
}

/* The count begins here: what the loader and libc needed before is theirs. */
__attribute__((constructor)) static void begin(void)
{
    const char *at = getenv("FAIL_ALLOCATION"), *path = getenv("FAIL_REPORT");
    report_fd = path ? open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600) : -1;
    atomic_store(&sticky, getenv("FAIL_STICKY") != NULL);
    atomic_store(&n_call, 0);
    atomic_store(&fail_at, at ? strtoul(at, NULL, 10) : 0);
}

__attribute__((destructor)) static void report(void)
{
    char line[40];
    if (report_fd < 0) return;
    int n = snprintf(line, sizeof line, "%lu\n", atomic_load(&n_call));
    if (write(report_fd, line, (size_t)n) != n) _exit(99);
    close(report_fd);
}
