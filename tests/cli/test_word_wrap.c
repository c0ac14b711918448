/* Answers on a terminal that the test makes: where lines end, wide characters, resizing,
 * and escapes that cannot reach it. */
#include "common/output.h"
#include "common/terminal/word_wrap.h"
#include "support/test.h"

#include <fcntl.h>
#include <locale.h>
#include <sys/ioctl.h>
#include <termios.h>

typedef struct terminal {
    int outer, inner, saved;
} terminal;

static void set_width(const terminal *t, unsigned short columns)
{
    struct winsize size = {.ws_row = 24, .ws_col = columns};
    ioctl(t->inner, TIOCSWINSZ, &size);
}

static bool make_terminal(terminal *t)
{
    struct termios modes;
    t->outer = posix_openpt(O_RDWR | O_NOCTTY);
    if (t->outer < 0 || grantpt(t->outer) != 0 || unlockpt(t->outer) != 0) return false;
    t->inner = open(ptsname(t->outer), O_RDWR | O_NOCTTY);
    if (t->inner < 0 || tcgetattr(t->inner, &modes) != 0) return false;
    modes.c_oflag &= ~(tcflag_t)OPOST;
    tcsetattr(t->inner, TCSANOW, &modes);
    return true;
}

/* From here on stdout is the terminal. Where the machine makes none, the case is skipped. */
static bool open_terminal(terminal *t, unsigned short columns)
{
    if (!make_terminal(t)) {
        test_skip("no terminals can be made here");
        return false;
    }
    set_width(t, columns);
    fflush(stdout);
    t->saved = dup(STDOUT_FILENO);
    return dup2(t->inner, STDOUT_FILENO) >= 0;
}

/* What came out of it; stdout is itself again. What was written may come in several
 * pieces and late; the end is an error of the read, once the inner side is closed. */
static size_t close_terminal(terminal *t, char *out, size_t capacity)
{
    size_t n = 0;
    ssize_t got;
    fflush(stdout);
    dup2(t->saved, STDOUT_FILENO);
    close(t->inner);
    while (n < capacity - 1 && (got = read(t->outer, out + n, capacity - 1 - n)) > 0) n += (size_t)got;
    out[n] = '\0';
    close(t->outer);
    close(t->saved);
    return n;
}

/* Each piece is written by itself; between pieces NULL sets the width to `later`. */
static void expect(unsigned short columns, unsigned short later, const char *const *pieces,
                   const char *wanted)
{
    static char out[4000];
    terminal t;
    wrap w;
    if (!open_terminal(&t, columns)) return;
    wrap_init(&w);
    bool ok = true;
    for (; *pieces; pieces++) {
        if (strcmp(*pieces, "RESIZE") == 0) set_width(&t, later);
        else if (strcmp(*pieces, "LINE") == 0) ok = wrap_line(&w) && ok;
        else ok = wrap_write(&w, *pieces, strlen(*pieces)) && ok;
    }
    ok = wrap_end(&w) && ok;
    close_terminal(&t, out, sizeof out);
    CHECK(ok);
    CHECK_TEXT(out, wanted);
}

#define EXPECT(COLUMNS, WANTED, ...) expect(COLUMNS, 0, (const char *const[]){__VA_ARGS__, NULL}, WANTED)

TEST(a_warning_in_mid_line_begins_a_line_and_so_does_the_text_behind_it)
{
    char out[200];
    terminal t;
    wrap w;
    if (!open_terminal(&t, 20)) return;
    int saved = dup(STDERR_FILENO);
    dup2(t.inner, STDERR_FILENO);
    wrap_init(&w);
    CHECK(wrap_write(&w, "four word line ", 15));
    begin_stderr_line();
    fputs("warning\n", stderr);
    CHECK(wrap_write(&w, "another line\n", 13));
    dup2(saved, STDERR_FILENO);
    close(saved);
    close_terminal(&t, out, sizeof out);
    CHECK(strcmp(out, "four word line\nwarning\nanother line\n") == 0);
}

TEST(lines_end_at_spaces)
{
    EXPECT(10, "one two\nthree four\nfive", "one two three four five");
    EXPECT(10, "one two\nthree four\nfive", "on", "e tw", "o three", " four five");
    EXPECT(10, "1234567890\nx", "1234567890 x");
    EXPECT(10, "a\n\nb  c", "a\n\nb  c");
    EXPECT(10, "a       b\nc", "a       b c"); /* the space at the end of a line goes */
    EXPECT(10, "a       bc", "a       bc");
    EXPECT(20, "a       b\nc       d", "a\tb\nc\td");
    EXPECT(80, "", "");
}

TEST(a_line_begins_once)
{
    EXPECT(10, "one\ntwo", "one ", "LINE", "two");
    EXPECT(10, "one\ntwo", "one\n", "LINE", "two");
    EXPECT(10, " one\ntwo", "LINE", " one", "LINE", "LINE", "two");
    EXPECT(10, "one two\nfour\nfive", "one two fo", "ur", "LINE", "five");
}

TEST(long_words_are_cut)
{
    EXPECT(10, "abcdefghij\nklmnopqrst\nuv wx", "abcdefghijklmnopqrstuv wx");
    EXPECT(10, "ab\nabcdefghij\nkl", "ab abcdefghijkl");
}

TEST(a_word_longer_than_the_buffer_comes_whole)
{
    static char word[2001], out[4000];
    terminal t;
    wrap w;
    memset(word, 'x', 2000);
    if (!open_terminal(&t, 1000)) return;
    wrap_init(&w);
    CHECK(wrap_write(&w, word, 2000) && wrap_end(&w));
    size_t n = close_terminal(&t, out, sizeof out), n_x = 0;
    for (size_t i = 0; i < n; i++) n_x += out[i] == 'x';
    CHECK_INT(n_x, 2000);
}

#define NI "\xE6\x97\xA5" /* two columns wide */

TEST(wide_characters_count_as_two_and_may_end_a_line)
{
    EXPECT(10, NI NI NI NI NI "\n" NI, NI NI NI NI NI NI);
    EXPECT(10, "abc" NI NI NI "\n" NI, "abc" NI NI NI NI);
    EXPECT(11,
           "e\xCC\x81"
           "bcdefghi j",
           "e\xCC\x81"
           "bcdefghi j"); /* a combining mark has no width */
    EXPECT(10,
           "e\xCC\x81"
           "bcdefghi\njk",
           "e\xCC\x81"
           "bcdefghi jk");
}

TEST(a_resized_terminal_is_heard)
{
    expect(20, 10, (const char *const[]){"one two three ", "RESIZE", "four five six", NULL},
           "one two three\nfour five\nsix");
}

TEST(escapes_of_a_model_are_shown)
{
    EXPECT(40, "\\x1b[31mred\\x07 \\x7f \\xc2\\x9b x", "\x1b[31mred\x07 \x7f \xC2\x9B x");
    EXPECT(10, "abcdefgh\n\\x1b[2J", "abcdefgh \x1b[2J");
    EXPECT(40, "\\x0d\\x08", "\r\b");
}

TEST(ill_formed_bytes_pass)
{
    EXPECT(40,
           "a\xFF"
           "b",
           "a\xFF"
           "b");
}

int main(int argc, char **argv)
{
    setlocale(LC_CTYPE, "C.UTF-8");
    return test_run_all(argc, argv);
}
