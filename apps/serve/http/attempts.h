/* Wrong keys, by the address that they come from: a client that guesses is told to wait. A key that was right from an
 * address before stays so meanwhile, as many clients may share the address of a proxy. */
#ifndef HEARTH_APPS_SERVE_HTTP_ATTEMPTS_H
#define HEARTH_APPS_SERVE_HTTP_ATTEMPTS_H

#include "serve/http/access.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    ATTEMPTS_MAX = 5, /* wrong keys of an address in ATTEMPTS_SECONDS; then its requests with keys wait for their end */
    ATTEMPTS_SECONDS = 60,
    ATTEMPTS_ADDRESSES = 256, /* addresses in the table; a new one replaces the least recently used */
    ATTEMPTS_ADDRESS = 16,
};

typedef struct attempts_entry {
    uint8_t address[ATTEMPTS_ADDRESS];
    uint64_t used_ns, begin_ns; /* times of the last request, and of the begin of the window that counts wrong keys */
    unsigned n_wrong;
    uint8_t right[ACCESS_MAX_KEYS / 8]; /* bits of keys */
} attempts_entry;

/* Zero-initialised: no request has come yet. */
typedef struct attempts {
    attempts_entry at[ATTEMPTS_ADDRESSES];
} attempts;

/* A request with a key has come from an address: i_key, from 1, or 0 if it is wrong. Returns 0, or the seconds that it has
 * to wait; then the answer must not tell whether the key is right. now_ns: by base/clock.h. */
unsigned attempts_note(attempts *a, const uint8_t address[ATTEMPTS_ADDRESS], unsigned i_key, uint64_t now_ns);

#endif
