/* Output of commands: messages and progress on stderr, text on stdout with all errors detected and terminal
 * escapes made visible; and Ctrl-C handling. */
#ifndef HEARTH_APPS_COMMON_OUTPUT_H
#define HEARTH_APPS_COMMON_OUTPUT_H

#include <hearth/hearth.h>
#include <stdarg.h>
#include <stdio.h>

/* ---- messages ------------------------------------------------------------------------
 * Each is one line on stderr, "hearth: ...". Control bytes of quoted texts are shown as \xNN. */

/* quiet: only results, warnings and errors. verbose: notes and progress even if stderr is not a terminal. */
void set_verbosity(bool quiet, bool verbose);
bool is_quiet(void);
/* Output that an option requests: --check, --stats. */
void print_requested(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The line at the start, and how the work ended. Not if quiet. */
void print_status(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Prints a line that is dim on a terminal, so that it is no part of the text. */
void print_aside(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Prints such a line without "hearth: ", for the line at the start, which has 80 columns. */
void print_start(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Information for a user who waits: on a terminal, or if verbose. */
void print_note(const char *format, ...) __attribute__((format(printf, 1, 2)));
void print_warning(const char *format, ...) __attribute__((format(printf, 1, 2)));
void print_failure(const char *format, va_list list) __attribute__((format(printf, 1, 0)));
/* Prints the message and returns EXIT_OTHER. ARGUMENT returns that too: the usage was correct, the value was
 * not. */
int report(const hearth_error *err);
/* The same for a text. */
int report_text(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Escapes a name or a text of a file for a table: control bytes become \xNN. Valid until the fourth following
 * call. */
const char *printable(const char *text);

/* False: written data was lost; finish_stdout reports why. */
bool flush_stdout(void);
/* Flushes stdout. EXIT_OTHER, with a message, if any data was lost. */
int finish_stdout(void);

/* ---- text on a terminal ---------------------------------------------------------- */

/* Writes n bytes of a model's text to stdout. Unless raw, control characters except newline and tab, and C1
 * controls, are written as \xNN, so that a text cannot control the terminal. False: stdout failed. */
bool write_text(const char *text, size_t n, bool raw);
/* Records that these bytes of a text are written to stdout by other means, now. */
void stdout_wrote(const char *text, size_t n);
/* Ends the line of write_text on stdout, before anything else is written anywhere. */
void finish_line(void);
/* Called before a line on stderr: clears the progress line. If stderr and stdout go to the same place, starts a
 * new line in the middle of a text. Writes nothing to stdout. */
void begin_stderr_line(void);
/* How often begin_stderr_line started a new line. */
unsigned text_breaks(void);
/* Whether the byte at text[i] is a control that is escaped: 0, or the number of its bytes (2 for a C1 control). */
size_t control_size(const char *text, size_t i, size_t n);
/* Bytes of the first character of text[n], and the columns of a terminal that it takes as write_text shows it. */
size_t character_size(const char *text, size_t n, unsigned *columns);
/* Characters are UTF-8 in any locale; numbers keep the C format. */
void set_utf8_locale(void);
/* Whether a descriptor is a terminal that shows dim text, and NO_COLOR does not forbid it. */
bool shows_style(int fd);
/* Whether stdout and stderr are the same file or terminal. */
bool stdout_is_stderr(void);

/* ---- progress ----------------------------------------------------------------------- */

/* On a terminal: a bar with counts, rate and remaining time, hidden for the first second. Elsewhere: nothing,
 * or with --verbose a line every ten seconds. */
typedef struct progress {
    const char *what, *unit;              /* "reading", "MB"; NULL: neither counts nor rate are shown */
    double unit_size;                     /* how much of a count is one unit: 0x1p20 bytes for MiB */
    uint64_t open_ns, start_ns, shown_ns; /* start: the last time at which nothing was done */
} progress;
void progress_init(progress *p, const char *what, const char *unit, double unit_size);
void progress_update(progress *p, uint64_t done, uint64_t total);
void progress_end(progress *p);
/* Whether it is shown anywhere. */
bool progress_is_shown(void);
/* As a hearth_progress_fn; user is a progress. False: Ctrl-C was pressed. */
bool progress_show(void *user, uint64_t done, uint64_t total);

/* ---- interruption ------------------------------------------------------------------------ */

/* From now on the first Ctrl-C only sets a flag; a second one ends the program. */
void install_signal_handlers(void);
/* While on, Ctrl-C ends the program at once, because nothing would be lost. Returns the previous value.
 * progress_show turns it off. */
bool interrupt_at_once(bool on);
int interrupted(void);                    /* the signal, or 0 */
void interrupt_evaluations(void); /* as a signal would, from any thread; clear_interrupt ends it */
const volatile int *interrupt_flag(void); /* the same, for evaluations that stop on it */
/* As install_signal_handlers, for a program that continues after Ctrl-C: every Ctrl-C only sets the flag, which
 * clear_interrupt resets. SIGTERM and SIGHUP set the flag permanently. */
void install_chat_signal_handlers(void);
void clear_interrupt(void);
/* The signal that requested termination, or 0. */
int termination_signal(void);

#endif
