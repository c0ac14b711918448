/* Tables and bars on stdout: drawn on a terminal, Markdown in a pipe or a file. */
#ifndef HEARTH_APPS_COMMON_TABLE_H
#define HEARTH_APPS_COMMON_TABLE_H

#include <stdbool.h>

/* Begins a table, whose lines are added as Markdown: "| a | b |\n|---|---|\n| 1 | 2 |\n". bar_column: from 1, that of which
 * a terminal also shows bars by its first number; 0: none. */
void table_begin(unsigned bar_column);
/* Adds a part of a line. In a pipe it is printed as it is. */
void table_add(const char *format, ...) __attribute__((format(printf, 1, 2)));
void table_end(void);

enum { BAR_COLUMNS = 30 };

/* Whether stdout is a terminal: the others get no bars. */
bool shows_bars(void);
/* A bar of share * width columns, which is at most BAR_COLUMNS; shares beyond 0 and 1 are cut. */
typedef struct bar_text {
    char text[3 * BAR_COLUMNS + 4]; /* a block has 3 bytes */
} bar_text;
bar_text bar_of(double share, unsigned width);

#endif
