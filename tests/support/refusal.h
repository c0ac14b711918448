/* Malformed files and what the reader says about them: each must be refused with one line
 * that begins with its name and holds certain words, keep no memory, and take no time.
 * Counts what it opened, so that a test can say how slow the slowest was. */
#ifndef HEARTH_TESTS_SUPPORT_REFUSAL_H
#define HEARTH_TESTS_SUPPORT_REFUSAL_H

#include "support/models/gguf_build.h"

#include <hearth/hearth.h>

/* Opens the bytes, in memory of exactly their size: refused with `status` and a line that begins with "bad.gguf: "
 * and holds `words` (parts separated by '|'). `id` is the class of the catalogue, for messages. */
void refusal_check(const gguf_bytes *b, hearth_status status, const char *id, const char *words);
/* The same bytes are taken. */
void refusal_check_accepted(const gguf_bytes *b, const char *id);

/* What one opening of them gives, counted like the others. */
hearth_status refusal_open(const gguf_bytes *b, const char *id, hearth_error *why);

/* Prints how many files were refused since the program began and which took longest. */
void refusal_report(void);

#endif
