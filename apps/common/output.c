/* Messages, text output, progress and Ctrl-C for all commands. */
#define _GNU_SOURCE
#include "common/output.h"

#include "base/clock.h"
#include "base/format_errno.h"
#include "base/same.h"
#include "common/options/field_names.h"
#include "common/terminal/live_line.h"
#include "common/options/options.h"
#include "text/utf8.h"

#include <errno.h>
#include <locale.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <wchar.h>

/* Lines come from the threads of a server. */
static pthread_mutex_t stderr_lock = PTHREAD_MUTEX_INITIALIZER;

static int write_errno; /* errno of the first failed write to stdout */

bool flush_stdout(void)
{
    if (fflush(stdout) == 0) return true;
    if (write_errno == 0) write_errno = errno;
    return false;
}

static bool quiet, verbose;

void set_verbosity(bool is_quiet, bool is_verbose) { quiet = is_quiet, verbose = is_verbose; }
bool is_quiet(void) { return quiet; }

/* Escapes one byte, a two-byte C1 control, or an invalid byte to `out`. Returns the number of bytes consumed. */
static size_t escape(const char *text, size_t n, char out[9])
{
    size_t size = control_size(text, 0, n);
    if (*text == '\n' || *text == '\t') size = 1;
    if (size == 0) return out[0] = *text, out[1] = '\0', 1;
    for (size_t i = 0; i < size; i++) sprintf(out + 4 * i, "\\x%02x", (unsigned char)text[i]);
    return size;
}

const char *printable(const char *text)
{
    static char lines[4][1200];
    static unsigned turn;
    char *line = lines[turn++ % 4], piece[9];
    size_t used = 0, i = 0, n = strlen(text);
    while (i < n && used + sizeof piece + 3 < sizeof lines[0]) {
        i += escape(text + i, n - i, piece);
        used += (size_t)sprintf(line + used, "%s", piece);
    }
    if (i < n) used += (size_t)sprintf(line + used, "...");
    line[used] = '\0';
    return line;
}

bool shows_style(int fd)
{
    const char *terminal = getenv("TERM"), *no_color = getenv("NO_COLOR");
    return isatty(fd) == 1 && terminal && *terminal && strcmp(terminal, "dumb") != 0 && !(no_color && *no_color);
}

/* head: what stands before the message. */
static void __attribute__((format(printf, 3, 0)))
print_styled(bool is_dim, const char *head, const char *format, va_list list)
{
    char said[1000], line[1000];
    vsnprintf(said, sizeof said, format, list);
    name_options(line, sizeof line, said);
    pthread_mutex_lock(&stderr_lock);
    flush_stdout();
    begin_stderr_line();
    fprintf(stderr, "%s%s%s%s\n", is_dim ? "\x1b[2m" : "", head, printable(line), is_dim ? "\x1b[m" : "");
    pthread_mutex_unlock(&stderr_lock);
}

static void __attribute__((format(printf, 2, 0))) print_line(const char *head, const char *format, va_list list)
{
    print_styled(false, head, format, list);
}

void print_requested(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    print_line("hearth: ", format, list);
    va_end(list);
}

void print_status(const char *format, ...)
{
    va_list list;
    if (quiet) return;
    va_start(list, format);
    print_line("hearth: ", format, list);
    va_end(list);
}

void print_aside(const char *format, ...)
{
    va_list list;
    if (quiet) return;
    va_start(list, format);
    print_styled(shows_style(STDERR_FILENO), "hearth: ", format, list);
    va_end(list);
}

void print_start(const char *format, ...)
{
    va_list list;
    if (quiet) return;
    va_start(list, format);
    print_styled(shows_style(STDERR_FILENO), "", format, list);
    va_end(list);
}

void print_note(const char *format, ...)
{
    va_list list;
    if (quiet || (!verbose && isatty(STDERR_FILENO) != 1)) return;
    va_start(list, format);
    print_line("hearth: ", format, list);
    va_end(list);
}

void print_warning(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    print_line("hearth: warning: ", format, list);
    va_end(list);
}

void print_failure(const char *format, va_list list) { print_line("hearth: ", format, list); }

int report_text(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    print_failure(format, list);
    va_end(list);
    return EXIT_OTHER;
}

int report(const hearth_error *err) { return report_text("%s", err->message); }

int finish_stdout(void)
{
    if (flush_stdout() && !ferror(stdout)) return 0;
    if (write_errno == EPIPE) return EXIT_SIGNAL + SIGPIPE; /* the reader, for example head, has closed the pipe */
    fprintf(stderr, "hearth: stdout: %s\n", write_errno ? hth_format_errno(write_errno).text : "write failed");
    return EXIT_OTHER;
}

/* ---- text on a terminal ---------------------------------------------------------------- */

/* Escape sequences begin with a control byte, or with a C1 control, which in UTF-8 is C2 80..9F. A C2 at the
 * end of a chunk is never separated from its second byte, because detokenizers return whole characters. */
size_t control_size(const char *text, size_t i, size_t n)
{
    unsigned char c = (unsigned char)text[i];
    if (c < 0x20) return c != '\n' && c != '\t';
    if (c == 0x7f) return 1;
    return c == 0xc2 && i + 1 < n && (unsigned char)text[i + 1] < 0xa0 ? 2 : 0;
}

size_t character_size(const char *text, size_t n, unsigned *columns)
{
    uint32_t cp = 0;
    size_t control = control_size(text, 0, n), size = hth_text_utf8_decode(text, n, &cp);
    int width = control > 0 ? 4 * (int)control : size > 0 ? wcwidth((wchar_t)cp) : 1;
    *columns = width > 0 ? (unsigned)width : 0;
    return control > 0 ? control : size > 0 ? size : 1;
}

void set_utf8_locale(void)
{
    wchar_t c;
    mbstate_t state = {0};
    setlocale(LC_CTYPE, "");
    if (mbrtowc(&c, "\xC3\xA9", 2, &state) != 2 || c != 0xE9) setlocale(LC_CTYPE, "C.UTF-8");
}

static bool in_line; /* inside a line of text, after its first byte */
static unsigned n_break;
static const progress *on_screen; /* the progress whose line is on the terminal; NULL: none */

enum { USUAL_LIMIT = 79, MAX_LIMIT = 120 };

/* The longest line that does not wrap on the terminal. */
static int line_limit(void)
{
    struct winsize size;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col < 2) return USUAL_LIMIT;
    return size.ws_col <= MAX_LIMIT ? size.ws_col - 1 : MAX_LIMIT;
}

/* Clears the line so that other output can be written. */
static void clear_progress(void)
{
    if (on_screen) fprintf(stderr, "\r%*s\r", line_limit(), "");
    on_screen = NULL;
}

static bool same_place(int a, int b)
{
    struct stat x, y;
    return fstat(a, &x) == 0 && fstat(b, &y) == 0 && hth_same_stat(&x, &y);
}

bool stdout_is_stderr(void) { return same_place(STDOUT_FILENO, STDERR_FILENO); }

void stdout_wrote(const char *text, size_t n)
{
    live_line_text(text, n);
    if (n > 0) in_line = text[n - 1] != '\n';
}

void finish_line(void)
{
    putchar('\n');
    flush_stdout();
    in_line = false;
}

void begin_stderr_line(void)
{
    clear_progress();
    live_line_hide();
    if (!in_line || !stdout_is_stderr()) return;
    live_line_text("\n", 1);
    fputc('\n', stderr);
    in_line = false, n_break++;
}

unsigned text_breaks(void) { return n_break; }

bool write_text(const char *text, size_t n, bool raw)
{
    stdout_wrote(text, n);
    for (size_t i = 0; i < n; i++) {
        size_t size = raw ? 0 : control_size(text, i, n);
        if (size == 0 && putchar(text[i]) == EOF) return false;
        for (size_t k = 0; k < size; k++)
            if (printf("\\x%02x", (unsigned char)text[i + k]) < 0) return false;
        i += size > 1;
    }
    return flush_stdout();
}

/* ---- progress ------------------------------------------------------------------------------ */

void progress_init(progress *p, const char *what, const char *unit, double unit_size)
{
    uint64_t now = hth_clock_ns();
    *p = (progress){.what = what, .unit = unit, .unit_size = unit_size, .open_ns = now, .start_ns = now};
}

/* Adds a part of the line, unless the line exceeds the limit with it. */
static void __attribute__((format(printf, 3, 4))) add_part(char *line, size_t limit, const char *format, ...)
{
    size_t n = strlen(line);
    va_list list;
    va_start(list, format);
    int more = vsnprintf(line + n, limit + 1 - n, format, list);
    va_end(list);
    if (more < 0 || (size_t)more > limit - n) line[n] = '\0';
}

bool progress_is_shown(void) { return !quiet && (verbose || isatty(STDERR_FILENO) == 1); }

void progress_update(progress *p, uint64_t done, uint64_t total)
{
    const uint64_t second = 1000000000u;
    bool terminal = isatty(STDERR_FILENO) == 1;
    uint64_t now = hth_clock_ns(), every = terminal ? second / 5 : 10 * second;
    if (done == 0) p->start_ns = now;
    if (!progress_is_shown()) return;
    if (now - p->open_ns < second || now - p->shown_ns < every) return;
    p->shown_ns = now;
    pthread_mutex_lock(&stderr_lock);
    if (terminal) on_screen = p;
    live_line_hide();
    double seconds = (double)(now - p->start_ns) * 1e-9, rate = done > 0 ? (double)done / seconds : 0.0;
    double share = total ? (double)done / (double)total : 0.0;
    char bar[24] = "", line[256] = "";
    size_t limit = terminal ? (size_t)line_limit() : sizeof line - 1;
    if (terminal && limit >= USUAL_LIMIT) {
        for (int i = 0; i < 20; i++) bar[1 + i] = share * 20.0 > i ? '#' : '.';
        bar[0] = '[', bar[21] = ']', bar[22] = ' ';
    }
    add_part(line, limit, "%s ", p->what);
    add_part(line, limit, "%s%3.0f %%", bar, share * 100.0);
    bool counted = p->unit_size == 1.0; /* "12/512 tokens  33.1/s"; else "1.5/270.9 MiB  4.1 MiB/s" */
    if (p->unit)
        add_part(line, limit, "  %.*f/%.*f %s  %.1f%s%s/s", !counted, (double)done / p->unit_size, !counted,
                 (double)total / p->unit_size, p->unit, rate / p->unit_size, counted ? "" : " ",
                 counted ? "" : p->unit);
    if (rate > 0.0) add_part(line, limit, "  %.0f s left", (double)(total - done) / rate);
    if (terminal) fprintf(stderr, "\r%-*s", line_limit(), line); /* over a longer one */
    else fprintf(stderr, "%s\n", line);
    pthread_mutex_unlock(&stderr_lock);
}

void progress_end(progress *p)
{
    pthread_mutex_lock(&stderr_lock);
    if (on_screen == p) clear_progress();
    pthread_mutex_unlock(&stderr_lock);
}

/* ---- interruption ------------------------------------------------------------------------------ */

static volatile sig_atomic_t stop, often, end_signal, at_once;

/* Whether the signal is the last one again: timeout(1), for example, sends its signal to the process and to the group
 * that the process is in. */
static bool is_repeated(int signal_number)
{
    static _Atomic uint64_t last_ns;
    static _Atomic int last_signal;
    const uint64_t same_ns = 100000000u;
    uint64_t now = hth_clock_ns();
    bool repeated = last_signal == signal_number && now - last_ns < same_ns;
    last_signal = signal_number;
    if (!repeated) last_ns = now;
    return repeated;
}

static void on_interrupt(int signal_number)
{
    static const char message[] = "\nhearth: interrupted\n";
    bool ends = signal_number != SIGINT;
    if (is_repeated(signal_number)) return;
    if (at_once) {
        ssize_t ignored = write(STDERR_FILENO, message, sizeof message - 1);
        (void)ignored;
        _exit(EXIT_SIGNAL + signal_number);
    }
    if (often ? ends && end_signal : stop) {
        live_line_hide_at_exit();
        _exit(EXIT_SIGNAL + signal_number);
    }
    if (often && ends) end_signal = signal_number;
    stop = signal_number;
}

void install_signal_handlers(void)
{
    static const int caught[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction action = {.sa_handler = on_interrupt}, before;
    for (size_t i = 0; i < sizeof caught / sizeof *caught; i++) /* ignored: by nohup, or by & of a shell */
        if (sigaction(caught[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
            sigaction(caught[i], &action, NULL);
}

void install_chat_signal_handlers(void)
{
    often = 1;
    install_signal_handlers();
}

bool interrupt_at_once(bool on)
{
    bool before = at_once;
    at_once = on;
    return before;
}

void clear_interrupt(void)
{
    if (!end_signal) __atomic_store_n(&stop, 0, __ATOMIC_RELAXED);
}

/* hearth serve calls it on another thread than clear_interrupt. */
void interrupt_evaluations(void) { __atomic_store_n(&stop, 1, __ATOMIC_RELAXED); }
int interrupted(void) { return __atomic_load_n(&stop, __ATOMIC_RELAXED); }
const volatile int *interrupt_flag(void) { return &stop; }
int termination_signal(void) { return end_signal; }

bool progress_show(void *user, uint64_t done, uint64_t total)
{
    at_once = 0;
    progress_update(user, done, total);
    return !interrupted();
}
