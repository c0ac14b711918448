/* Guard pages by mmap and mprotect, faults by a signal handler that jumps back. */
#include "support/guard.h"

#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PATTERN = 0xa5 };

size_t guard_page_size(void) { return (size_t)sysconf(_SC_PAGESIZE); }

void guard_protect(void *p, size_t n, bool readable)
{
    if (mprotect(p, n, readable ? PROT_READ | PROT_WRITE : PROT_NONE) == 0) return;
    perror("mprotect");
    exit(1);
}

void guard_open(guard *g, size_t max_size)
{
    size_t page = guard_page_size();
    g->pages_size = (max_size + page - 1) / page * page + page;
    uint8_t *map = mmap(NULL, g->pages_size + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    g->pages = map + page;
    g->p = g->pages;
    g->size = 0;
    guard_protect(g->pages, g->pages_size, true);
}

void guard_close(guard *g)
{
    size_t page = guard_page_size();
    munmap(g->pages - page, g->pages_size + 2 * page);
}

void *guard_place(guard *g, size_t size, guard_side side, size_t shift)
{
    if (size + shift > g->pages_size) {
        fprintf(stderr, "a buffer of %zu bytes is larger than its pages\n", size);
        exit(1);
    }
    memset(g->pages, PATTERN, g->pages_size);
    g->size = size;
    g->p = side == GUARD_BEFORE ? g->pages + shift : g->pages + g->pages_size - size - shift;
    return g->p;
}

static bool is_pattern(const uint8_t *p, const uint8_t *end)
{
    while (p < end && *p == PATTERN) p++;
    return p == end;
}

bool guard_is_whole(const guard *g)
{
    return is_pattern(g->pages, g->p) && is_pattern(g->p + g->size, g->pages + g->pages_size);
}

static sigjmp_buf back;
static volatile sig_atomic_t inside;

static void on_fault(int signal_number)
{
    if (inside) siglongjmp(back, 1);
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

bool guard_call(void (*f)(void *), void *arg)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE};
    struct sigaction action = {.sa_handler = on_fault}, before[4];
    sigemptyset(&action.sa_mask);
    for (int i = 0; i < 4; i++) sigaction(faults[i], &action, &before[i]);
    bool ok = sigsetjmp(back, 1) == 0;
    if (ok) {
        inside = 1;
        f(arg);
    }
    inside = 0;
    for (int i = 0; i < 4; i++) sigaction(faults[i], &before[i], NULL);
    return ok;
}
