/* Load of other processes on the cores: reads the kernel's counts of CPU time twice, with a sleep between.
 * hearth doctor calls it. */
#define _GNU_SOURCE
#include "base/alloc.h"
#include "base/clock.h"
#include "measure/machine/machine.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MAX_PROCESS = 32768, LINE_SIZE = 1024 };

typedef struct ticks {
    uint64_t busy, stolen;
} ticks;

typedef struct process {
    int pid;
    uint64_t ticks;
} process;

static bool read_line(const char *path, char line[LINE_SIZE])
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    ssize_t n = read(fd, line, LINE_SIZE - 1);
    close(fd);
    line[n > 0 ? n : 0] = '\0';
    return n > 0;
}

/* "cpu  user nice system idle iowait irq softirq steal ..." of all CPUs together. */
static bool read_ticks(ticks *t)
{
    char line[LINE_SIZE], *p = line;
    uint64_t v[8] = {0};
    if (!read_line("/proc/stat", line) || strncmp(line, "cpu ", 4) != 0) return false;
    p += 4;
    for (int i = 0; i < 8; i++) v[i] = strtoull(p, &p, 10);
    *t = (ticks){v[0] + v[1] + v[2] + v[5] + v[6], v[7]};
    return true;
}

/* User and system time of a process, and its name unless name is NULL. The name may contain anything; it ends
 * at the last bracket. */
static bool read_process(int pid, uint64_t *n_tick, char *name, size_t n_name)
{
    char path[32], line[LINE_SIZE];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    if (!read_line(path, line)) return false;
    char *begin = strchr(line, '('), *end = strrchr(line, ')');
    if (!begin || !end || end < begin) return false;
    if (name) hth_escape(name, n_name, begin + 1, (size_t)(end - begin - 1));
    char *p = end + 1;
    for (int field = 3; field < 14 && *p; field++) p += 1 + strcspn(p + 1, " ");
    *n_tick = strtoull(p, &p, 10);
    *n_tick += strtoull(p, &p, 10);
    return true;
}

static size_t list_processes(process *list)
{
    size_t n = 0;
    DIR *folder = opendir("/proc");
    if (!folder) return 0;
    for (const struct dirent *e; n < MAX_PROCESS && (e = readdir(folder)) != NULL;) {
        int pid = atoi(e->d_name);
        if (pid <= 0 || pid == (int)getpid() || !read_process(pid, &list[n].ticks, NULL, 0)) continue;
        list[n++].pid = pid;
    }
    closedir(folder);
    return n;
}

static void find_busiest(const process *before, size_t n, double tick_s, hth_cpu_load *out)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t now;
        if (!read_process(before[i].pid, &now, NULL, 0) || now < before[i].ticks) continue;
        double busy = (double)(now - before[i].ticks) * tick_s;
        if (busy < 0.1 || busy <= out->pid_busy) continue;
        out->pid_busy = busy;
        out->pid = before[i].pid;
    }
    uint64_t ignored;
    if (out->pid && !read_process(out->pid, &ignored, out->name, sizeof out->name)) out->pid = 0;
}

bool hth_cpu_load_sample(unsigned ms, hth_cpu_load *out)
{
    const struct timespec rest = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    ticks before, after;
    *out = (hth_cpu_load){0};
    process *list = hth_alloc(MAX_PROCESS, sizeof *list);
    size_t n = list ? list_processes(list) : 0;
    bool ok = read_ticks(&before);
    uint64_t start = hth_clock_ns();
    if (ok) nanosleep(&rest, NULL);
    double seconds = hth_clock_since(start), hz = (double)sysconf(_SC_CLK_TCK);
    if (ok && read_ticks(&after) && seconds > 0.0 && hz > 0.0) {
        double tick_s = 1.0 / (hz * seconds); /* CPUs per tick */
        out->busy = after.busy > before.busy ? (double)(after.busy - before.busy) * tick_s : 0.0;
        out->stolen = after.stolen > before.stolen ? (double)(after.stolen - before.stolen) * tick_s : 0.0;
        find_busiest(list, n, tick_s, out);
    } else {
        ok = false;
    }
    hth_free(list);
    return ok;
}
