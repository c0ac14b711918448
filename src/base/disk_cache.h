/* Small files that outlive a run, in the user's cache directory: $HEARTH_CACHE, else hearth/ in
 * $XDG_CACHE_HOME, else in ~/.cache. An empty HEARTH_CACHE keeps nothing. What is kept is never needed: any
 * failure reads as nothing kept, and what was kept may be deleted at any time. */
#ifndef HTH_BASE_KEEP_H
#define HTH_BASE_KEEP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The longest name; letters, digits, '.', '-' and '_'. */
enum { HTH_DISKCACHE_NAME = 64, HTH_DISKCACHE_MAX = 64 << 20 };

/* What was kept under this name by whoever had the same mark (a hash of all that it depends on), byte for
 * byte as it was written; freed by hth_free. NULL: nothing, or damaged, or of another mark. */
uint8_t *hth_diskcache_get(const char *name, uint64_t mark, size_t *n);

/* Replaces what was kept under this name, as a whole or not at all. False: it is not kept, which
 * a warning says, each time, where there is a folder to keep it in. */
bool hth_diskcache_put(const char *name, uint64_t mark, const void *bytes, size_t n);

#endif
