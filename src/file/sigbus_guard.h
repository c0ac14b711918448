/* The SIGBUS guard for mapped files that shrink: access to a page that is gone raises SIGBUS. This library lists
 * the ranges that it has mapped. A handler installed by the program calls hth_sigbus_guard_handle, which maps
 * zeros over the missing pages and marks the range as broken. Callers that compute with the range check the mark
 * afterwards (engine/session.c). */
#ifndef HTH_FILE_SIGBUS_GUARD_H
#define HTH_FILE_SIGBUS_GUARD_H

#include <stdbool.h>
#include <stddef.h>

enum { HTH_MAP_GUARD_MAX = 1024 }; /* files mapped at once: as many as a split model may have parts */

/* Adds size bytes at begin to the list. Returns its index, or -1 if the list is full. */
int hth_sigbus_guard_add(void *begin, size_t size);
void hth_sigbus_guard_remove(int index);
/* True if a page of the range was found missing. */
bool hth_sigbus_guard_broken(int index);

/* Handles a fault at the address; a signal handler may call it. False: the address is in no range of the list. */
bool hth_sigbus_guard_handle(const void *address);

#endif
