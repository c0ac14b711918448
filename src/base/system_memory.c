/* Reads /proc/self/statm: pages of the program, and of these those in memory. */
#define _GNU_SOURCE
#include "base/system_memory.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

uint64_t hth_memory_resident(void)
{
    char text[128];
    int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    if (n <= 0) return 0;
    text[n] = '\0';
    char *end;
    strtoull(text, &end, 10);
    return strtoull(end, NULL, 10) * (uint64_t)sysconf(_SC_PAGESIZE);
}
