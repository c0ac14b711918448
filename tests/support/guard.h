/* Buffers between unreadable pages, and calls that survive a fault: for the proof
 * of kernels. A buffer lies against the page before it or against the page behind
 * it; the rest of its memory is filled with a pattern that must not change. */
#ifndef HEARTH_TESTS_SUPPORT_GUARD_H
#define HEARTH_TESTS_SUPPORT_GUARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* At which end of its memory a buffer lies. */
typedef enum guard_side { GUARD_BEFORE, GUARD_BEHIND } guard_side;

typedef struct guard {
    uint8_t *pages; /* whole pages, unreadable ones on both sides */
    size_t pages_size;
    uint8_t *p; /* the buffer */
    size_t size;
} guard;

/* Pages for buffers of up to max_size bytes; ends the program when there is none. */
void guard_open(guard *g, size_t max_size);
void guard_close(guard *g);

/* A buffer of size bytes, `shift` bytes from the page on that side. Memory and buffer are filled with the pattern. */
void *guard_place(guard *g, size_t size, guard_side side, size_t shift);

/* Whether the pages around the buffer are as guard_place left it. */
bool guard_is_whole(const guard *g);

/* Makes n bytes at p (whole pages) readable and writable, or neither. */
void guard_protect(void *p, size_t n, bool readable);

size_t guard_page_size(void);

/* Calls f(arg). False when it met a memory fault or an unknown instruction. */
bool guard_call(void (*f)(void *), void *arg);

#endif
