/* Reads lines with libedit or getline. libedit sets the terminal, edits and keeps the history. Characters come
 * through next_character, which handles Ctrl-C (a flag, set by output.c) and detects pasted text: bytes that
 * are available right after a newline. */
#define _GNU_SOURCE
#include "common/terminal/line_input.h"

#include "base/system/folder.h"
#include "base/format_errno.h"
#include "common/input.h"
#include "common/output.h"
#include "common/text_file.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <wchar.h>

#ifdef HEARTH_LIBEDIT
#include <histedit.h>
#endif

enum { PASTE_MS = 10, WAIT_MS = 200 };

struct lines {
    bool typed;
    char *line; /* buffer of getline */
    size_t capacity;
#ifdef HEARTH_LIBEDIT
    EditLine *el;
    History *history;
    HistEvent event;
    char path[1024]; /* path of the history file; "": none */
    char prompt[32];
    bool more;
#endif
};

const char *lines_history(const lines *l)
{
#ifdef HEARTH_LIBEDIT
    return l->path;
#else
    (void)l;
    return "";
#endif
}

bool lines_are_typed(const lines *l) { return l->typed; }

static bool input_pending(int wait_ms)
{
    struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};
    return poll(&p, 1, wait_ms) == 1 && p.revents & POLLIN;
}

#ifdef HEARTH_LIBEDIT

/* ---- the terminal ------------------------------------------------------------------------------- */

static volatile sig_atomic_t resized, resumed;

static void on_resize(int signal_number)
{
    if (signal_number == SIGWINCH) resized = 1;
    else resumed = 1;
}

static void attach_terminal(void)
{
    struct sigaction action = {.sa_handler = on_resize};
    sigaction(SIGWINCH, &action, NULL);
    sigaction(SIGCONT, &action, NULL);
}

/* Terminal rows from the row of the prompt to that of the cursor. */
static int rows_above_cursor(EditLine *el)
{
    struct winsize size;
    const LineInfoW *line = el_wline(el);
    lines *l;
    el_get(el, EL_CLIENTDATA, &l);
    int column = (int)strlen(l->prompt);
    for (const wchar_t *c = line->buffer; c < line->cursor; c++) {
        int width = wcwidth(*c);
        column += width < 0 ? 2 : width; /* a control character is shown as ^X */
    }
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? column / size.ws_col : 0;
}

/* After a stop (SIGCONT) the shell has changed the terminal modes without libedit's knowledge, so libedit is
 * made to set them again. The line is redrawn from its start, because a terminal re-wraps it after a change of
 * its width. */
static void update_terminal(EditLine *el)
{
    if (resumed) {
        el_set(el, EL_PREP_TERM, 0);
        el_set(el, EL_PREP_TERM, 1);
    }
    int above = resumed ? 0 : rows_above_cursor(el); /* the shell left the cursor on a new row */
    if (resized) el_resize(el);
    if (above > 0) printf("\033[%dA", above);
    fputs("\r\033[J", stdout);
    fflush(stdout);
    el_set(el, EL_REFRESH);
    resized = resumed = 0;
}

static int read_byte(unsigned char *c)
{
    for (;;) {
        ssize_t got = read(STDIN_FILENO, c, 1);
        if (got >= 0) return (int)got;
        if (errno != EINTR || interrupted()) return -1;
    }
}

/* Reads the bytes of one character; U+FFFD for invalid bytes. Otherwise returns the result of read. */
static int read_character(wchar_t *out)
{
    unsigned char c;
    mbstate_t state = {0};
    for (size_t n = 0; n < 4; n++) {
        int got = read_byte(&c);
        if (got <= 0) return got;
        size_t done = mbrtowc(out, (const char *)&c, 1, &state);
        if (done == (size_t)-2) continue;
        if (done == (size_t)-1) *out = 0xFFFD;
        break;
    }
    return 1;
}

/* Reads one character: 0 at the end, -1 after Ctrl-C. A Ctrl-D typed before the editor set the terminal arrives
 * as NUL, which the editor would treat as a key, so it is dropped. */
static int next_character(EditLine *el, wchar_t *out)
{
    lines *l;
    int got;
    el_get(el, EL_CLIENTDATA, &l);
    do {
        while (!input_pending(WAIT_MS)) {
            if (interrupted()) return -1;
            if (resized || resumed) update_terminal(el);
        }
        got = read_character(out);
    } while (got > 0 && *out == L'\0');
    if (got > 0 && (*out == L'\r' || *out == L'\n')) l->more = input_pending(PASTE_MS);
    return got;
}

static char *show_prompt(EditLine *el)
{
    lines *l;
    el_get(el, EL_CLIENTDATA, &l);
    return l->prompt;
}

/* ---- the history file --------------------------------------------------------------------------- */

/* Creates the folder of the history file. "": no history is possible or requested. */
static void find_history(const char *name, char out[1024])
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME"), *given = getenv("HEARTH_HISTORY");
    char folder[900];
    int n = 0;
    out[0] = '\0';
    if (!name) return;
    if (given && strlen(given) < 1024) strcpy(out, given);
    if (given) return;
    if (state && state[0] == '/') n = snprintf(folder, sizeof folder, "%s/hearth", state);
    else if (home && home[0] == '/') n = snprintf(folder, sizeof folder, "%s/.local/state/hearth", home);
    if (n <= 0 || (size_t)n >= sizeof folder) return;
    if (hth_folder_make_parents(folder, 0700, NULL) != HEARTH_OK ||
        hth_folder_make(folder, 0700, NULL) != HEARTH_OK)
        return;
    snprintf(out, 1024, "%s/%s", folder, name);
}

/* Whether the file is new, empty, or a history of libedit. Opening a pipe without a writer would block, and
 * other files are not replaced. */
static bool is_usable_history(const char *path)
{
    struct stat st;
    if (stat(path, &st) != 0) return true;
    if (!S_ISREG(st.st_mode)) return false;
    if (is_empty_or_begins(path, "_HiStOrY_V2_\n")) return true;
    print_warning(
        "%s is not a readable file of chat history: it stays as it is, and what is typed is not kept", path);
    return false;
}

/* libedit changes the mode of the file that it writes to, so it gets a stream instead of a path. */
static bool write_history(lines *l, int fd)
{
    int own = dup(fd);
    FILE *out = own >= 0 ? fdopen(own, "w") : NULL;
    if (!out) return close(own), false;
    bool ok = history(l->history, &l->event, H_SAVE_FP, out) >= 0;
    return fclose(out) == 0 && ok;
}

/* Saves the history, readable by its owner only. A link to the file stays a link. Failures are not reported,
 * because the message would be in the conversation. */
static void save_history(lines *l)
{
    hth_atomic_writer sink;
    hearth_error err;
    if (!l->path[0]) return;
    if (hth_atomic_writer_open_private(&sink, l->path, &err) == HEARTH_OK && write_history(l, sink.fd))
        hth_atomic_writer_finish(&sink, &err);
    hth_atomic_writer_close(&sink);
}

static bool open_editor(lines *l, const char *name)
{
    l->history = history_init();
    l->el = el_init("hearth", stdin, stdout, stderr);
    if (!l->el || !l->history) return false;
    history(l->history, &l->event, H_SETSIZE, 1000);
    history(l->history, &l->event, H_SETUNIQUE, 1);
    find_history(name, l->path);
    if (!is_usable_history(l->path)) l->path[0] = '\0';
    if (l->path[0]) history(l->history, &l->event, H_LOAD, l->path);
    el_set(l->el, EL_CLIENTDATA, l);
    el_set(l->el, EL_EDITOR, "emacs");
    el_set(l->el, EL_SIGNAL, 0);
    el_set(l->el, EL_PROMPT, show_prompt);
    el_set(l->el, EL_HIST, history, l->history);
    el_set(l->el, EL_BIND, "^R", "em-inc-search-prev", NULL);
    el_wset(l->el, EL_GETCFN, next_character);
    attach_terminal();
    return true;
}

static lines_status edit_line(lines *l, const char *prompt, char **line, size_t *n, bool *more)
{
    int count = 0;
    snprintf(l->prompt, sizeof l->prompt, "%s", prompt);
    l->more = false;
    resized = resumed = 0; /* el_gets reads the size itself */
    const char *got = el_gets(l->el, &count);
    if (interrupted() || !got || count <= 0) {
        fputc('\n', stdout);
        fflush(stdout);
        return interrupted() ? LINES_INTERRUPTED : LINES_END;
    }
    free(l->line);
    l->line = strndup(got, (size_t)count);
    if (!l->line) {
        report_text("out of memory for a line");
        return LINES_FAILED;
    }
    *n = strcspn(l->line, "\n");
    l->line[*n] = '\0';
    if (*n > 0) {
        history(l->history, &l->event, H_ENTER, l->line);
        save_history(l);
    }
    *line = l->line;
    *more = l->more;
    return LINES_OK;
}

#endif

/* ---- plain lines -------------------------------------------------------------------------------------- */

static lines_status plain_line(lines *l, const char *prompt, char **line, size_t *n, bool *more)
{
    if (l->typed) {
        fputs(prompt, stdout);
        fflush(stdout);
    }
    errno = 0;
    ssize_t got = getline(&l->line, &l->capacity, stdin);
    if (interrupted()) {
        clearerr(stdin);
        if (l->typed) fputc('\n', stdout);
        return LINES_INTERRUPTED;
    }
    if (got < 0 && !feof(stdin)) { /* out of memory sets neither the error nor the end flag */
        report_text("stdin: %s", hth_format_errno(errno).text);
        return LINES_FAILED;
    }
    if (got < 0) {
        if (l->typed) fputc('\n', stdout);
        return LINES_END;
    }
    *n = (size_t)got;
    if (!make_plain("stdin", l->line, n)) return LINES_FAILED;
    if (*n > 0 && l->line[*n - 1] == '\n') l->line[--*n] = '\0';
    *line = l->line;
    *more = l->typed && input_pending(PASTE_MS);
    return LINES_OK;
}

/* ---- common ---------------------------------------------------------------------------------------------- */

lines *lines_open(const char *history_name)
{
    lines *l = calloc(1, sizeof *l);
    if (!l) {
        report_text("out of memory for the editor");
        return NULL;
    }
    l->typed = isatty(STDIN_FILENO) == 1 && isatty(STDOUT_FILENO) == 1;
    set_utf8_locale();
#ifdef HEARTH_LIBEDIT
    if (l->typed && !open_editor(l, history_name)) {
        report_text("out of memory for the editor");
        lines_close(l);
        return NULL;
    }
#else
    (void)history_name;
#endif
    return l;
}

void lines_close(lines *l)
{
    if (!l) return;
#ifdef HEARTH_LIBEDIT
    if (l->el) el_end(l->el);
    if (l->history) history_end(l->history);
#endif
    free(l->line);
    free(l);
}

lines_status lines_read(lines *l, const char *prompt, char **line, size_t *n, bool *more)
{
    *more = false;
#ifdef HEARTH_LIBEDIT
    if (l->el) return edit_line(l, prompt, line, n, more);
#endif
    return plain_line(l, prompt, line, n, more);
}
