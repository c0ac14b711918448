/* Draws with the cursor alone. A row of text ends where the terminal wraps it, so the columns of the text are counted:
 * at the end of a row the cursor must not be moved, since terminals forget then that the next character wraps. A wrong
 * count, as of characters whose width terminals disagree about, spoils a cell at worst until the next row. */
#define _GNU_SOURCE
#include "common/terminal/live_line.h"

#include "base/clock.h"
#include "common/output.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { MAX_DRAWN = 4, MIN_ROWS = 3, MIN_COLUMNS = 20, TAB = 8 };
static const uint64_t second = 1000000000u;

static struct {
    bool is_open, has_text;       /* has_text: stdout is the same terminal, so that columns are known */
    size_t column;                /* columns of the text since its line began */
    uint64_t drawn_ns[MAX_DRAWN]; /* the last times at which it was drawn */
    unsigned i_drawn;
} line;
static volatile sig_atomic_t is_shown;

#define ERASE_BELOW "\033[J"

bool live_line_is_possible(void)
{
    const char *terminal = getenv("TERM");
    return terminal && *terminal && strcmp(terminal, "dumb") != 0 && isatty(STDERR_FILENO) == 1;
}

void live_line_open(void)
{
    set_utf8_locale();
    line.is_open = true, line.has_text = stdout_is_stderr(), line.column = 0;
}

void live_line_close(void)
{
    live_line_hide();
    line.is_open = false;
}

bool live_line_is_shown(void) { return is_shown; }

unsigned live_line_width(void)
{
    struct winsize size;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row < MIN_ROWS || size.ws_col < MIN_COLUMNS) return 0;
    return size.ws_col;
}

/* ---- what is written elsewhere --------------------------------------------------------------- */

void live_line_hide(void)
{
    if (!is_shown) return;
    fputs(ERASE_BELOW, stderr);
    is_shown = 0;
}

void live_line_hide_at_exit(void)
{
    ssize_t ignored = is_shown ? write(STDERR_FILENO, ERASE_BELOW, sizeof ERASE_BELOW - 1) : 0;
    (void)ignored;
}

/* Column after a character that takes so many columns; wide ones do not fit into the last one. */
static size_t column_after(size_t column, unsigned columns, unsigned width)
{
    if (columns > 1 && width > 0 && column % width == width - 1) column++;
    return column + columns;
}

void live_line_text(const char *text, size_t n)
{
    if (!line.is_open || !line.has_text) return;
    unsigned width = is_shown ? live_line_width() : 0, columns;
    size_t before = line.column;
    bool leaves_row = is_shown && width == 0;
    for (size_t i = 0; i < n;) {
        bool is_break = text[i] == '\n', is_tab = text[i] == '\t';
        i += character_size(text + i, n - i, &columns);
        if (is_tab) columns = TAB - (unsigned)(line.column % TAB);
        line.column = is_break ? 0 : column_after(line.column, columns, width);
        leaves_row = leaves_row || is_break || (width > 0 && line.column / width != before / width);
    }
    if (leaves_row) live_line_hide();
}

/* ---- drawing --------------------------------------------------------------------------------- */

/* Bytes of the first n characters of a UTF-8 text. */
static int size_of_start(const char *text, unsigned n)
{
    const char *p = text;
    for (; *p && n > 0; n--)
        for (p++; (*p & 0xc0) == 0x80;) p++;
    return (int)(p - text);
}

void live_line_show(const char *text)
{
    uint64_t now = hth_clock_ns(), *oldest = &line.drawn_ns[line.i_drawn % MAX_DRAWN];
    if (!line.is_open || (*oldest && now - *oldest < second)) return;
    unsigned width = live_line_width();
    bool is_full = line.column > 0 && width > 0 && line.column % width == 0;
    if (width == 0 || is_full) return;
    *oldest = now, line.i_drawn++;
    /* Below the text: a row down and up again scrolls if that is needed. The line does not wrap. */
    fprintf(stderr, ERASE_BELOW "\033D\033[A\0337\r\n\033[?7l\033[2m%.*s\033[m\033[?7h\0338",
            size_of_start(text, width - 1), text);
    is_shown = 1;
}
