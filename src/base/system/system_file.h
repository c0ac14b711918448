/* Reads what the kernel tells in /proc and /sys. It writes these texts, but a container may replace them, so every number
 * is read with its bounds. */
#ifndef HTH_BASE_SYSTEM_FILE_H
#define HTH_BASE_SYSTEM_FILE_H

#include <stdbool.h>
#include <stdint.h>

enum { HTH_SYSTEM_TEXT = 16384, HTH_SYSTEM_PATH = 512 };

/* Reads the start of the file at folder/name, or foldername if name begins with '/', terminated. False: there is none,
 * or it is empty. */
bool hth_system_read(const char *folder, const char *name, char text[HTH_SYSTEM_TEXT]);

/* Reads a decimal number at *p and advances *p. Saturates at the maximum; 0 where there is no digit. */
uint64_t hth_system_number(const char **p);

/* Start of the value in a line "key: value" or "key value". NULL: there is no such line. */
const char *hth_system_value(const char *text, const char *key);
/* A value in kB as bytes, saturated; 0: there is no such line. */
uint64_t hth_system_kilobytes(const char *text, const char *key);

#endif
