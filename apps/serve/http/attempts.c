/* A table of the addresses that asked last. */
#include "serve/http/attempts.h"

#include <string.h>

/* The entry of an address; a new one takes the place of the one that was used longest ago. */
static attempts_entry *entry_of(attempts *a, const uint8_t address[ATTEMPTS_ADDRESS])
{
    attempts_entry *oldest = &a->at[0];
    for (size_t i = 0; i < ATTEMPTS_ADDRESSES; i++) {
        attempts_entry *e = &a->at[i];
        if (e->used_ns > 0 && memcmp(e->address, address, ATTEMPTS_ADDRESS) == 0) return e;
        if (e->used_ns < oldest->used_ns) oldest = e;
    }
    *oldest = (attempts_entry){.used_ns = 0};
    memcpy(oldest->address, address, ATTEMPTS_ADDRESS);
    return oldest;
}

unsigned attempts_note(attempts *a, const uint8_t address[ATTEMPTS_ADDRESS], unsigned i_key, uint64_t now_ns)
{
    const uint64_t second = 1000000000, period = ATTEMPTS_SECONDS * second;
    attempts_entry *e = entry_of(a, address);
    e->used_ns = now_ns;
    if (now_ns - e->begin_ns >= period) e->begin_ns = now_ns, e->n_wrong = 0;
    unsigned i = i_key > 0 ? i_key - 1 : 0;
    bool was_right = i_key > 0 && e->right[i / 8] >> i % 8 & 1;
    if (e->n_wrong >= ATTEMPTS_MAX && !was_right)
        return (unsigned)((e->begin_ns + period - now_ns + second - 1) / second);
    if (i_key > 0) e->right[i / 8] |= (uint8_t)(1 << i % 8);
    else e->n_wrong++;
    return 0;
}
