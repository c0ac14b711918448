/* The disk cache: small files that outlive a run, in the folder that a model names (switches.h), else $HEARTH_CACHE, else hearth/ in $XDG_CACHE_HOME, else
 * ~/.cache/hearth. An empty HEARTH_CACHE disables it. No caller depends on an entry: any failure reads as a miss,
 * and entries may be deleted at any time. */
#ifndef HTH_BASE_DISK_CACHE_H
#define HTH_BASE_DISK_CACHE_H

#include "base/switches.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The longest name; letters, digits, '.', '-' and '_'. HTH_DISKCACHE_MAX: bytes of an entry. */
enum { HTH_DISKCACHE_NAME = 64, HTH_DISKCACHE_MAX = 64 << 20 };
/* Bytes of the folder's path, with the NUL. */
enum { HTH_DISKCACHE_PATH = HTH_SETTINGS_PATH };

/* The folder, which is made if it is missing. False: there is none. */
bool hth_diskcache_folder(char to[HTH_DISKCACHE_PATH]);

/* The entry of this name, if it was stored under the same key (a hash of all that it depends on), byte for byte.
 * Freed by hth_free. NULL: none, damaged, or of another key. */
uint8_t *hth_diskcache_get(const char *name, uint64_t key, size_t *n);

/* Replaces the entry of this name atomically. False: not stored; if there is a cache folder, a warning says so
 * each time. */
bool hth_diskcache_put(const char *name, uint64_t key, const void *bytes, size_t n);

#endif
