/* A table is collected while it is written, because its columns are as wide as their widest cells. */
#define _GNU_SOURCE
#include "common/terminal/table.h"

#include "common/buffer.h"
#include "common/output.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { MAX_COLUMN = 24, USUAL_COLUMNS = 80, MIN_BAR = 8 };

static buffer lines; /* lines of the table that is being written, on a terminal */
static unsigned bars;

bool shows_bars(void) { return isatty(STDOUT_FILENO) == 1; }

bar_text bar_of(double share, unsigned width)
{
    static const char *const parts[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
    bar_text b = {""};
    if (width > BAR_COLUMNS) width = BAR_COLUMNS;
    unsigned eighths = share > 0.0 ? (unsigned)((share < 1.0 ? share : 1.0) * 8.0 * width + 0.5) : 0;
    for (unsigned i = 0; i < eighths / 8; i++) strcat(b.text, "█");
    strcat(b.text, parts[eighths % 8]);
    return b;
}

void table_begin(unsigned bar_column) { lines.n = 0, bars = bar_column; }

void table_add(const char *format, ...)
{
    char part[1000];
    va_list list;
    va_start(list, format);
    if (shows_bars()) {
        int n = vsnprintf(part, sizeof part, format, list);
        if (n > 0 && !buffer_add(&lines, part, (size_t)n < sizeof part ? (size_t)n : sizeof part - 1))
            report_text("out of memory for a table");
    } else {
        vprintf(format, list);
    }
    va_end(list);
}

/* ---- drawing ------------------------------------------------------------------------------ */

typedef struct cell {
    const char *text;
    size_t n;
} cell;

/* Divides a line into its cells, without the spaces around them. Returns how many. */
static size_t divide(const char *line, size_t n, cell cells[MAX_COLUMN])
{
    size_t n_cell = 0;
    const char *end = line + n, *p = memchr(line, '|', n);
    while (p && ++p < end && n_cell < MAX_COLUMN) {
        const char *next = memchr(p, '|', (size_t)(end - p)), *last = next;
        if (!next) break;
        while (p < last && *p == ' ') p++;
        while (last > p && last[-1] == ' ') last--;
        cells[n_cell++] = (cell){p, (size_t)(last - p)};
        p = next;
    }
    return n_cell;
}

static unsigned width_of(cell c)
{
    unsigned width = 0, columns;
    for (size_t i = 0; i < c.n; width += columns) i += character_size(c.text + i, c.n - i, &columns);
    return width;
}

static bool is_number(cell c) { return c.n > 0 && (strchr("0123456789", *c.text) || (*c.text == '-' && c.n > 0)); }

/* The line between head and rows: nothing but dashes. */
static bool is_rule(const cell *cells, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (cells[i].n < 3 || strspn(cells[i].text, "-: ") < cells[i].n) return false;
    return n > 0;
}

static void print_cell(cell c, unsigned width, bool to_right)
{
    int space = (int)(width - width_of(c));
    printf("%*s%.*s%*s", to_right ? space : 0, "", (int)c.n, c.text, to_right ? 0 : space, "");
}

typedef struct drawing {
    unsigned widths[MAX_COLUMN], all;
    bool numbers[MAX_COLUMN]; /* the rows have numbers there */
    double most;              /* largest value of the column with bars */
} drawing;

static const char *next_line(const char *line, size_t *n, cell cells[MAX_COLUMN], size_t *n_cell)
{
    *n = strcspn(line, "\n");
    *n_cell = divide(line, *n, cells);
    return line + *n + (line[*n] == '\n');
}

static drawing measure(void)
{
    drawing d = {.all = 0};
    size_t n, n_cell;
    cell cells[MAX_COLUMN];
    bool is_head = true;
    for (const char *line = lines.bytes; *line; is_head = false) {
        line = next_line(line, &n, cells, &n_cell);
        if (is_rule(cells, n_cell)) continue;
        for (size_t i = 0; i < n_cell; i++) {
            if (width_of(cells[i]) > d.widths[i]) d.widths[i] = width_of(cells[i]);
            if (!is_head && is_number(cells[i])) d.numbers[i] = true;
        }
        if (bars > 0 && bars <= n_cell && !is_head && strtod(cells[bars - 1].text, NULL) > d.most)
            d.most = strtod(cells[bars - 1].text, NULL);
    }
    for (size_t i = 0; i < MAX_COLUMN; i++) d.all += d.widths[i] ? d.widths[i] + 2 : 0;
    return d;
}

static unsigned terminal_columns(void)
{
    struct winsize size;
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col : USUAL_COLUMNS;
}

static double share_of(const drawing *d, const cell *cells)
{
    return d->most > 0.0 ? strtod(cells[bars - 1].text, NULL) / d->most : 0.0;
}

/* Prints a bar for each row below a table that leaves no columns for them: the row's first cell, and its bar. */
static void draw_below(const drawing *d, unsigned columns)
{
    size_t n, n_cell, i_line = 0;
    cell cells[MAX_COLUMN];
    const unsigned room = columns > d->widths[0] + 3 ? columns - d->widths[0] - 3 : 0;
    printf("\n");
    for (const char *line = lines.bytes; *line; i_line++) {
        line = next_line(line, &n, cells, &n_cell);
        if (i_line == 0 || is_rule(cells, n_cell) || bars > n_cell) continue;
        print_cell(cells[0], d->widths[0], d->numbers[0]);
        printf("  %s\n", bar_of(share_of(d, cells), room).text);
    }
}

static void draw(const drawing *d)
{
    size_t n, n_cell;
    cell cells[MAX_COLUMN];
    bool is_head = true, dims = shows_style(STDOUT_FILENO);
    const unsigned columns = terminal_columns(), room = columns > d->all + 1 ? columns - d->all - 1 : 0;
    const bool beside = bars > 0 && room >= MIN_BAR;
    for (const char *line = lines.bytes; *line; is_head = false) {
        line = next_line(line, &n, cells, &n_cell);
        if (is_rule(cells, n_cell)) continue;
        if (is_head && dims) printf("\x1b[2m");
        for (size_t i = 0; i < n_cell; i++) {
            print_cell(cells[i], d->widths[i], d->numbers[i]);
            if (i + 1 < n_cell || beside) printf("  ");
        }
        if (is_head && dims) printf("\x1b[m");
        if (!is_head && beside && bars <= n_cell) printf("%s", bar_of(share_of(d, cells), room).text);
        printf("\n");
    }
    if (bars > 0 && !beside && d->most > 0.0) draw_below(d, columns);
}

void table_end(void)
{
    if (!lines.bytes || lines.n == 0) return;
    const drawing d = measure();
    draw(&d);
    free(lines.bytes);
    lines = (buffer){0};
}
