/* What verbs read beside models: prompts, texts to measure, lists of ids; and the check that none of it would
 * be overwritten. */
#ifndef HEARTH_APPS_COMMON_INPUT_H
#define HEARTH_APPS_COMMON_INPUT_H

#include "common/options.h"

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

/* A file that a verb reads, and what it is called when it would be lost ("the model"). path NULL: none is;
 * "-": stdin. */
typedef struct input {
    const char *path, *name;
} input;

/* Whether a verb that reads these may write out: a file, and none of them by whatever name. 0, or the exit
 * status after a message. */
int check_output(const args *a, const char *out, const input *inputs, size_t n);
/* The same for two outputs of one verb, which must not be one file, by whatever names. */
int check_two_outputs(const char *one, const char *other);
/* Where what is written to this name lies (PATH_MAX bytes): links are followed, and the file need not be there.
 * False where a folder is not. */
bool find_place(const char *path, char *place);
/* --force, of verbs that write GGUF files: without it a file that is there must be one that Hearth made. */
extern const option_spec output_options[];

/* Ids as decimal numbers with white space between, below n_vocab (0: any that fit
 * an id). NULL after a message. Freed with free. */
int32_t *read_ids(const char *path, uint32_t n_vocab, size_t *n);

#endif
