/* What commands say: messages and progress on stderr, text on stdout with every error seen and terminal escapes
 * made visible; and Ctrl-C. */
#ifndef HEARTH_APPS_COMMON_OUTPUT_H
#define HEARTH_APPS_COMMON_OUTPUT_H

#include <hearth/hearth.h>
#include <stdarg.h>
#include <stdio.h>

/* ---- messages ------------------------------------------------------------------------
 * Each is one line on stderr, "hearth: ...", and shows control bytes of what it quotes as \xNN. */

/* quiet: results, warnings and errors alone; verbose: notes and progress where stderr is no terminal too. */
void set_verbosity(bool quiet, bool verbose);
bool is_quiet(void);
/* What was asked for by an option: --check, --stats. */
void print_requested(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The line at the start, and how the work ended: unless quiet. */
void print_status(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* What a person who waits may want to know: on a terminal, or when verbose. */
void print_note(const char *format, ...) __attribute__((format(printf, 1, 2)));
void print_warning(const char *format, ...) __attribute__((format(printf, 1, 2)));
void print_failure(const char *format, va_list list) __attribute__((format(printf, 1, 0)));
/* Prints the message and returns EXIT_OTHER; ARGUMENT gives that too: the usage was right, the value was
 * not. */
int report(const hearth_error *err);
/* The same of a text. */
int report_text(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* A name or a text of a file for a line of a table: control bytes appear as \xNN. Stays until the fourth call
 * after it. */
const char *printable(const char *text);

/* False when what was written is lost; finish_stdout says why. */
bool flush_stdout(void);
/* Flushes stdout; EXIT_OTHER with a message when anything written was lost. */
int finish_stdout(void);

/* ---- text on a terminal ---------------------------------------------------------- */

/* Writes n bytes of a model's text to stdout. Unless raw, control characters but
 * newline and tab, and C1 controls, appear as \xNN: a text cannot drive the
 * terminal. False when stdout is lost. */
bool write_text(const char *text, size_t n, bool raw);
/* Says that these bytes of a text were written to stdout by other means. */
void stdout_wrote(const char *text, size_t n);
/* Ends the line of what write_text wrote, on stdout, before anything else is written anywhere. */
void finish_line(void);
/* Before a line on stderr: progress is taken off the terminal; and where stderr goes where stdout does, the line
 * begins with a newline in mid-text. stdout itself gets none. */
void begin_stderr_line(void);
/* How often it began one. */
unsigned text_breaks(void);
/* Whether the byte at text[i] is one that would be made visible, and how many of them
 * belong together (2 for a C1 control). */
size_t control_size(const char *text, size_t i, size_t n);

/* ---- progress ----------------------------------------------------------------------- */

/* A bar with counts, rate and time left on a terminal, silent for the first second. Elsewhere nothing, or with
 * --verbose a line every ten seconds. */
typedef struct progress {
    const char *what, *unit;              /* "reading", "MB"; NULL: neither counts nor rate are shown */
    double unit_size;                     /* of the numbers in one unit */
    uint64_t open_ns, start_ns, shown_ns; /* start: when nothing was done the last time */
} progress;
void progress_init(progress *p, const char *what, const char *unit, double unit_size);
void progress_update(progress *p, uint64_t done, uint64_t total);
void progress_end(progress *p);
/* The same as a hearth_progress_fn; user is a progress. False once Ctrl-C was pressed. */
bool progress_show(void *user, uint64_t done, uint64_t total);

/* ---- interruption ------------------------------------------------------------------------ */

/* From here on the first Ctrl-C only sets a flag; a second one ends the program. */
void install_signal_handlers(void);
/* While it is on, Ctrl-C ends the program at once: nothing would be lost. Returns what it was. progress_show turns it
 * off. */
bool interrupt_at_once(bool on);
int interrupted(void);                    /* the signal, or 0 */
const volatile int *interrupt_flag(void); /* the same, for evaluations that end by it */
/* For programs that go on after a Ctrl-C: it only ever sets the flag, until
 * clear_interrupt. SIGTERM and SIGHUP set the flag too, for good. */
void install_chat_signal_handlers(void);
void clear_interrupt(void);
/* The signal that asked the program to end, or 0. */
int termination_signal(void);

#endif
