/* Inputs of commands other than models: prompts, texts to measure, lists of ids. */
#ifndef HEARTH_APPS_COMMON_INPUT_H
#define HEARTH_APPS_COMMON_INPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Reads a whole file, or stdin for "-" (freed with free). NULL: an error was reported. */
char *read_whole(const char *path, size_t *n);

/* Normalises text[n], which is terminated: \r\n becomes a newline, a UTF-8 byte order mark is dropped. False:
 * it is UTF-16, and an error was reported. */
bool make_plain(const char *path, char *text, size_t *n);

/* Reads a whole prompt, made plain, without one trailing newline. */
char *read_prompt(const char *path, size_t *n);

/* Reads a whole text for measurement or training, made plain. It must not be empty and must not contain a zero
 * byte, which marks a binary file. */
char *read_text_file(const char *path, size_t *n);

/* Reads ids as decimal numbers separated by white space, commas or brackets. Each must be below n_vocab (0: any
 * that fits an id). NULL: an error was reported. Freed with free. */
int32_t *read_ids(const char *path, uint32_t n_vocab, size_t *n);

#endif
