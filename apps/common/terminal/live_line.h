/* A line of figures below a model's text on a terminal. It is drawn one row below the cursor, which then returns, and
 * erased before text reaches that row: a terminal keeps no mode that would have to be restored, whenever the program
 * ends, and whatever its size becomes. output.c tells it what is written; live_stats.c says what it shows. */
#ifndef HEARTH_APPS_COMMON_LIVE_LINE_H
#define HEARTH_APPS_COMMON_LIVE_LINE_H

#include <stdbool.h>
#include <stddef.h>

/* Whether stderr is a terminal that moves its cursor (TERM is not dumb). */
bool live_line_is_possible(void);

/* From now on the line may be shown; the text on stdout is at the start of a line. */
void live_line_open(void);
/* Erases the line; it is not shown any more. */
void live_line_close(void);
/* Draws the line, cut to the width of the terminal, at most 4 times within a second. Not where text has just filled its
 * row, or the terminal is too small. text: one column for each character. */
void live_line_show(const char *text);
bool live_line_is_shown(void);
/* Columns that the line has; 0: the terminal is too small. */
unsigned live_line_width(void);

/* output.c calls these: live_line_text before it writes the text to stdout, live_line_hide before it writes to stderr,
 * and live_line_hide_at_exit when a signal handler ends the program. */
void live_line_text(const char *text, size_t n);
void live_line_hide(void);
void live_line_hide_at_exit(void);

#endif
