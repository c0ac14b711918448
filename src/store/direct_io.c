/* O_DIRECT and its alignment. In a file of its own: linux/stat.h and sys/stat.h exclude each other, and the statx of
 * Debian 12's C library lacks the alignment. */
#define _GNU_SOURCE
#include "store/direct_io.h"

#include <fcntl.h>
#include <linux/stat.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef AT_EMPTY_PATH
#define AT_EMPTY_PATH 0x1000
#endif

/* 0: the kernel does not say. */
static uint32_t alignment_of(int fd)
{
#ifdef STATX_DIOALIGN
    struct statx s = {0};
    if (syscall(SYS_statx, fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &s) != 0 || !(s.stx_mask & STATX_DIOALIGN)) return 0;
    return s.stx_dio_mem_align > s.stx_dio_offset_align ? s.stx_dio_mem_align : s.stx_dio_offset_align;
#else
    (void)fd;
    return 0;
#endif
}

int hth_direct_open(int fd, uint32_t *align)
{
    char path[40];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int direct = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
    uint32_t n = direct < 0 ? 0 : alignment_of(direct);
    *align = n == 0 || n > HTH_DIRECT_MAX_ALIGN ? HTH_DIRECT_MAX_ALIGN : n;
    return direct;
}
