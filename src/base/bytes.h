/* Bytes as people read them, and as they write them behind --vram: units of 1024. */
#ifndef HTH_BASE_BYTES_H
#define HTH_BASE_BYTES_H

#include <stdint.h>

/* Handed out by value, for the arguments of a message: hth_bytes_shown(n).text. */
typedef struct hth_bytes {
    char text[40];
} hth_bytes;

/* "512 bytes", "8.00 KiB", "5.75 MiB", "7.50 GiB", to the nearest; UINT64_MAX: "no limit". */
hth_bytes hth_bytes_shown(uint64_t bytes);
/* What an option takes to allow so many: "512", "8K", "5.75M", rounded up. */
hth_bytes hth_bytes_wanted(uint64_t bytes);

#endif
