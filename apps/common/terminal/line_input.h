/* Reads lines from a terminal or a pipe. On a terminal, if the program was built with libedit, lines can be
 * edited and recalled from a history file. Otherwise they are read unchanged. */
#ifndef HEARTH_APPS_COMMON_LINE_INPUT_H
#define HEARTH_APPS_COMMON_LINE_INPUT_H

#include <stdbool.h>
#include <stddef.h>

typedef struct lines lines;

typedef enum lines_status {
    LINES_OK,
    LINES_END,         /* Ctrl-D, or end of file */
    LINES_INTERRUPTED, /* Ctrl-C: the line is discarded; interrupted() returns the signal */
    LINES_FAILED,      /* an error was reported */
} lines_status;

/* history: a name below $XDG_STATE_HOME/hearth, unless $HEARTH_HISTORY names another file; NULL: none. An empty
 * $HEARTH_HISTORY means none too. A file that is not a history is left unchanged and not used. NULL: an error
 * was reported. */
lines *lines_open(const char *history);
void lines_close(lines *l);
/* Path of the history file; "": none. */
const char *lines_history(const lines *l);
/* Whether stdin and stdout are a terminal. */
bool lines_are_typed(const lines *l);

/* Reads the next line without its newline (\r\n from a pipe counts as one), terminated, valid until the next
 * call. *more: more text that was pasted with the line is available and belongs to it. */
lines_status lines_read(lines *l, const char *prompt, char **line, size_t *n, bool *more);

#endif
