/* Wraps text word by word as it arrives. The width is read before each word, so that a resize needs no signal
 * handler. */
#define _GNU_SOURCE
#include "common/terminal/word_wrap.h"

#include "common/output.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { DEFAULT_WIDTH = 80, TAB = 8 };

void wrap_init(wrap *w)
{
    *w = (wrap){.on = isatty(STDOUT_FILENO) == 1, .breaks = text_breaks(), .can_dim = shows_style(STDOUT_FILENO)};
}

static unsigned terminal_width(void)
{
    struct winsize size;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col < 2) return DEFAULT_WIDTH;
    return size.ws_col;
}

/* Writes the character at p, as shown, to out[16]; *width in columns. Returns the number of its bytes. */
static size_t show_character(const char *p, size_t n, char out[16], unsigned *width)
{
    size_t control = control_size(p, 0, n), size = character_size(p, n, width);
    if (control > 0) {
        snprintf(out, 16, control == 2 ? "\\x%02x\\x%02x" : "\\x%02x", (unsigned char)p[0],
                 control == 2 ? (unsigned char)p[1] : 0u);
        return size;
    }
    memcpy(out, p, size);
    out[size] = '\0';
    return size;
}

static bool put(const char *bytes, size_t n)
{
    stdout_wrote(bytes, n);
    return fwrite(bytes, 1, n, stdout) == n;
}

static bool new_line(wrap *w)
{
    w->column = 0;
    w->spaces = 0;
    return put("\n", 1);
}

/* Splits a word that is longer than a line. */
static bool put_cut(wrap *w, unsigned limit)
{
    char shown[16];
    unsigned width;
    for (size_t at = 0; at < w->n;) {
        size_t size = show_character(w->word + at, w->n - at, shown, &width);
        if (w->column > 0 && w->column + width > limit && !new_line(w)) return false;
        if (!put(w->word + at, size)) return false;
        w->column += width;
        at += size;
    }
    return true;
}

static bool put_word(wrap *w)
{
    if (w->n == 0) return true;
    unsigned limit = terminal_width();
    if (w->column > 0 && w->column + w->spaces + w->width > limit && !new_line(w)) return false;
    for (; w->spaces > 0; w->spaces--, w->column++)
        if (!put(" ", 1)) return false;
    bool fits = w->column + w->width <= limit, ok = fits ? put(w->word, w->n) : put_cut(w, limit);
    if (fits) w->column += w->width;
    w->n = w->width = 0;
    return ok;
}

static bool add_character(wrap *w, const char *shown, unsigned width)
{
    size_t n = strlen(shown);
    if (w->n + n > sizeof w->word && !put_word(w)) return false;
    memcpy(w->word + w->n, shown, n);
    w->n += n;
    w->width += width;
    return true;
}

bool wrap_write(wrap *w, const char *text, size_t n)
{
    if (!w->on) return write_text(text, n, false);
    if (w->breaks != text_breaks()) w->breaks = text_breaks(), w->column = w->spaces = 0;
    for (size_t i = 0; i < n;) {
        char shown[16];
        unsigned width;
        if (text[i] == '\n') {
            if (!put_word(w) || !new_line(w)) return false;
            i++;
        } else if (text[i] == ' ' || text[i] == '\t') {
            if (!put_word(w)) return false;
            w->spaces += text[i] == ' ' ? 1 : TAB - (w->column + w->spaces) % TAB;
            i++;
        } else {
            i += show_character(text + i, n - i, shown, &width);
            if (width > 1 && shown[0] != '\\' && !put_word(w)) return false; /* a line may end before it */
            if (!add_character(w, shown, width)) return false;
            if (width > 1 && shown[0] != '\\' && !put_word(w)) return false; /* and after it */
        }
    }
    return flush_stdout();
}

bool wrap_dim(wrap *w, bool dim)
{
    if (!w->can_dim || w->is_dim == dim) return true;
    if (!put_word(w)) return false;
    w->is_dim = dim;
    return fputs(dim ? "\033[2m" : "\033[22m", stdout) != EOF && flush_stdout();
}

bool wrap_line(wrap *w)
{
    if (!put_word(w)) return false;
    w->spaces = 0;
    bool begins = w->breaks != text_breaks() || w->column == 0;
    return (begins || new_line(w)) && flush_stdout();
}

bool wrap_end(wrap *w) { return put_word(w) && wrap_dim(w, false) && flush_stdout(); }
