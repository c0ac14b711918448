/* Mapped files that shrink: touching a page that is gone raises SIGBUS. The ranges
 * that this library has mapped are on a list; a handler that the program installs asks
 * hth_sigbus_guard_handle, which puts zeros where the file was and marks the range broken.
 * Whoever computes with the range looks at the mark afterwards (engine/session.c). */
#ifndef HTH_FILE_MAP_GUARD_H
#define HTH_FILE_MAP_GUARD_H

#include <stdbool.h>
#include <stddef.h>

enum { HTH_MAP_GUARD_MAX = 1024 }; /* files mapped at once: as many as a split model may have parts */

/* Puts size bytes at begin on the list. Its place, or -1 when the list is full. */
int hth_sigbus_guard_add(void *begin, size_t size);
void hth_sigbus_guard_remove(int place);
/* Whether a page of the range was found missing. */
bool hth_sigbus_guard_broken(int place);

/* For signal handlers: false when the address lies in no range of the list. */
bool hth_sigbus_guard_handle(const void *address);

#endif
