/* What commands read beside models: prompts, texts to measure, lists of ids. */
#ifndef HEARTH_APPS_COMMON_INPUT_H
#define HEARTH_APPS_COMMON_INPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The whole of a file, or of stdin for "-" (freed with free). NULL after report. */
char *read_whole(const char *path, size_t *n);

/* Makes of text[n], which is terminated, what its writer meant: \r\n is a newline, a mark of UTF-8 in front is
 * dropped. False after a message where it is UTF-16. */
bool make_plain(const char *path, char *text, size_t *n);

/* The whole of a prompt, made plain, but for one last newline. */
char *read_prompt(const char *path, size_t *n);

/* The whole of a text to measure or to train on, made plain: not empty, and no byte is 0, as in a binary file, of
 * which nothing true could be learned. */
char *read_text_file(const char *path, size_t *n);

/* Ids as decimal numbers with white space, commas or brackets between, below n_vocab (0: any that fit
 * an id). NULL after a message. Freed with free. */
int32_t *read_ids(const char *path, uint32_t n_vocab, size_t *n);

#endif
