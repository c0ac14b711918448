/* XXH3 from the system's xxhash.h, compiled in. */
#define XXH_INLINE_ALL
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#pragma GCC diagnostic ignored "-Wcast-qual"
#pragma GCC diagnostic ignored "-Wundef"
#include <xxhash.h>
#pragma GCC diagnostic pop

#include "base/hash.h"

uint64_t hth_hash(const void *bytes, size_t n) { return XXH3_64bits(bytes, n); }

uint64_t hth_hash_more(uint64_t h, const void *bytes, size_t n)
{
    return XXH3_64bits_withSeed(bytes, n, h);
}
