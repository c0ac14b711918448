/* Lines from a person or a pipe. On a terminal, and where the program was built with
 * libedit, they can be edited and come back from a history file; otherwise they are
 * read as they are. */
#ifndef HEARTH_APPS_COMMON_LINES_H
#define HEARTH_APPS_COMMON_LINES_H

#include <stdbool.h>
#include <stddef.h>

typedef struct lines lines;

typedef enum lines_status {
    LINES_OK,
    LINES_END,         /* Ctrl-D, or the end of the file */
    LINES_INTERRUPTED, /* Ctrl-C: what was typed is gone; interrupted() says so */
    LINES_FAILED,      /* after a message */
} lines_status;

/* history: a name below $XDG_STATE_HOME/hearth, unless $HEARTH_HISTORY is another file; NULL: none. An empty
 * $HEARTH_HISTORY is none too, and so is a file that holds something else, which stays as it is. NULL after a message. */
lines *lines_open(const char *history);
void lines_close(lines *l);
/* The file in which lines are kept; "": none. */
const char *lines_history(const lines *l);
/* Whether stdin and stdout are a terminal. */
bool lines_are_typed(const lines *l);

/* The next line without its newline (\r\n from a pipe is one), terminated, valid until the next call. *more: text
 * that was pasted together with it lies ready, so it belongs to it. */
lines_status lines_read(lines *l, const char *prompt, char **line, size_t *n, bool *more);

#endif
