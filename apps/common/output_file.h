/* Checks of an output file before any work is done: no input is overwritten, and no file that Hearth did not
 * make. */
#ifndef HEARTH_APPS_COMMON_OUTPUT_FILE_H
#define HEARTH_APPS_COMMON_OUTPUT_FILE_H

#include "common/options/options.h"

#include <stdbool.h>
#include <stddef.h>

/* --force, for commands that write files. */
#define FORCE_OPTION OPT_FLAG("force", 0, "replace a file of another kind, or not made by Hearth", ADVANCED)
extern const option_spec output_options[];

/* Files of saved sessions (hearth_session_save) begin so. */
#define SAVED_SESSION_MAGIC "HTHSESSN"

typedef enum output_kind {
    OUTPUT_MODEL,
    OUTPUT_SYNTHETIC, /* a model of hearth synth; it never replaces another model */
    OUTPUT_PROFILE,
    OUTPUT_PREDICTORS,
    OUTPUT_THRESHOLDS,
    OUTPUT_PLACEMENT,
    OUTPUT_IMATRIX,
    OUTPUT_PAGE,   /* page of hearth study */
    OUTPUT_TABLE,  /* table of hearth study */
    OUTPUT_SESSION,
    OUTPUT_LOGITS, /* floats without a header */
} output_kind;

/* A file that a command reads, and its name in messages ("the model"). path NULL: none; "-": stdin. */
typedef struct input {
    const char *path, *name;
} input;

/* Checks that a command with these inputs may write `out`: it is not an input under any name, and without
 * --force it is new, empty, or of the same kind and made by Hearth. Returns 0, or the exit status after an
 * error was reported. */
int check_output(const args *a, const char *out, output_kind kind, const input *inputs, size_t n);
/* Whether two names, of files that need not exist, are those of one file. */
bool name_one_file(const char *one, const char *other);
/* Checks that two outputs of one command are different files, under any names. */
int check_two_outputs(const char *one, const char *other);

#endif
