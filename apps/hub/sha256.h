/* SHA-256 (FIPS 180-4), incremental, to verify files against the hashes that a hub announces. */
#ifndef HEARTH_APPS_HUB_SHA256_H
#define HEARTH_APPS_HUB_SHA256_H

#include <stddef.h>
#include <stdint.h>

enum { SHA256_BLOCK = 64, SHA256_HEX = 65 };

typedef struct sha256 {
    uint32_t state[8];
    uint64_t n; /* bytes so far */
    uint8_t block[SHA256_BLOCK];
} sha256;

void sha256_init(sha256 *s);
void sha256_add(sha256 *s, const void *bytes, size_t n);
/* Finishes: 64 lower-case hexadecimal digits, terminated. */
void sha256_end(sha256 *s, char hex[SHA256_HEX]);

#endif
