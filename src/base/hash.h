/* Hashes of bytes: XXH3, 64 bits. Not for input that an attacker chooses. */
#ifndef HTH_BASE_HASH_H
#define HTH_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

uint64_t hth_hash(const void *bytes, size_t n);
/* The hash of several buffers in sequence: h = hth_hash_more(h, ...), starting from 0. */
uint64_t hth_hash_more(uint64_t h, const void *bytes, size_t n);

#endif
