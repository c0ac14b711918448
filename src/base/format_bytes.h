/* Byte counts as text, for messages and as arguments of --vram: units of 1024. */
#ifndef HTH_BASE_FORMAT_BYTES_H
#define HTH_BASE_FORMAT_BYTES_H

#include <stdint.h>

/* Returned by value, for the arguments of a message: hth_format_bytes(n).text. */
typedef struct hth_byte_text {
    char text[40];
} hth_byte_text;

/* "512 bytes", "8.00 KiB", "5.75 MiB", "7.50 GiB", rounded to nearest; UINT64_MAX: "no limit". */
hth_byte_text hth_format_bytes(uint64_t bytes);
/* The argument of an option that allows this many bytes: "512", "8K", "5.75M", rounded up. */
hth_byte_text hth_format_size_arg(uint64_t bytes);

#endif
