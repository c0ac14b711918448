/* Output generated from the option table: --help and the man page. */
#include "common/options/options.h"

#include "common/output.h"
#include "common/options/spelling.h"

#include <assert.h>
#include <hearth/hearth.h>
#include <stdio.h>
#include <string.h>

static void option_words(const option_spec *o, char *out, size_t n)
{
    char letter[5] = "    ";
    if (o->letter) snprintf(letter, sizeof letter, "-%c, ", o->letter);
    snprintf(out, n, "%s--%s%s%s", letter, o->name, o->value ? " " : "", o->value ? o->value : "");
}

enum { SCREEN_LINES = 45, SCREEN_COLUMNS = 78 };

/* Lines of a help without the rarely used options. */
static size_t count_lines(const command *c)
{
    size_t n = 9;
    for (const char *p = c->details; *p; p++) n += *p == '\n';
    FOR_EACH_OPTION(c, o) n += !(o->flags & OPTION_ADVANCED);
    return n;
}

/* The names of rarely used options, as far as the screen has lines for them: the command's own ones come first. */
static void print_rare(const command *c)
{
    size_t column = 0, n_left = SCREEN_LINES - count_lines(c), n_shown = 0, n_more = 0;
    FOR_EACH_OPTION(c, o)
    {
        char words[80];
        if (!(o->flags & OPTION_ADVANCED)) continue;
        snprintf(words, sizeof words, " --%s", o->name);
        if (column == 0) column = (size_t)printf("Also (hearth --man):");
        const size_t end = column + strlen(words) + (n_left == 1 ? strlen(", and 99 more") : 1);
        if (n_more > 0 || (end > SCREEN_COLUMNS && n_left == 1)) {
            n_more++;
            continue;
        }
        if (n_shown++ > 0) column += (size_t)printf(",");
        if (end > SCREEN_COLUMNS) column = (size_t)printf("\n ") - 1, n_left--;
        column += (size_t)printf("%s", words);
    }
    if (n_more > 0) printf(", and %zu more", n_more);
    if (column > 0) putchar('\n');
}

void command_print_help(const command *c)
{
    printf("hearth %s%s%s [options]\n%s\n\n%s", c->name, c->operands[0] ? " " : "", c->operands, c->summary,
           c->details);
    const char *title = "\nOptions:\n";
    FOR_EACH_OPTION(c, o)
    {
        char words[80];
        if (o->flags & OPTION_ADVANCED) continue;
        option_words(o, words, sizeof words);
        printf("%s  %-26s %s\n", title, words, o->help);
        title = "";
    }
    if (*title) putchar('\n');
    print_rare(c);
    printf("\nExample:\n  %s\n", c->example);
}

void commands_print_help(const command *const *commands)
{
    printf("hearth %s: runs large language models on the machine at hand\n\n", hearth_version());
    printf("usage: hearth COMMAND [arguments] [options]\n\nCommands:\n");
    for (; *commands; commands++) printf("  %-12s %s\n", (*commands)->name, (*commands)->summary);
    printf("\nhearth COMMAND --help tells more. Also: hearth --version, hearth --man,\n"
           "hearth --completions bash|zsh|fish.\n\nExample:\n  hearth run -p \"Once upon a time\"\n");
}

/* ---- man page ------------------------------------------------------------------------- */

/* Escapes text for roff: dashes are minus signs, and a point at the start of a line is not a request. */
static void roff(const char *text)
{
    bool at_start = true;
    for (; *text; text++) {
        if (at_start && (*text == '.' || *text == '\'')) fputs("\\&", stdout);
        if (*text == '-' || *text == '\\') putchar('\\');
        putchar(*text == '\\' ? 'e' : *text);
        at_start = *text == '\n';
    }
}

/* "\-c \-\-ctx \-\-ctx\-size \-\-context" */
static void print_spellings(const option_spec *o)
{
    if (o->letter) printf("\\-%c ", o->letter);
    printf("\\-\\-");
    roff(o->name);
    if (*other_spellings(o->name)) putchar(' '), roff(other_spellings(o->name));
}

static void print_stability(const command *const *commands)
{
    printf(
        ".SH STABILITY\nOptions may be shortened to any beginning that is not ambiguous; a value follows as "
        "the next word or after =. Commands and the options in this table keep their names, in all "
        "spellings, their values and their meaning; scripts should write them in full.\n");
    for (const command *const *c = commands; *c; c++) {
        const char *between = "";
        printf(".TP\n.B %s\n", (*c)->name);
        FOR_EACH_OPTION(*c, o)
        {
            if (o->flags & OPTION_ADVANCED) continue;
            printf("%s", between);
            print_spellings(o);
            between = ",\n";
        }
        printf("\n");
    }
    printf(".PP\nOptions that are not in the table may change with a new minor version, named in "
           "CHANGELOG.md; \\-m \\-\\-model, \\-q \\-\\-quiet and \\-v \\-\\-verbose stay. Results named in "
           "JSON keep their keys; "
           "keys may be added.\n");
}

/* Whether several commands have this table of options, which the man page then describes once. */
static bool is_common(const command *const *commands, const option_spec *group)
{
    size_t n = 0;
    for (; *commands; commands++)
        for (size_t g = 0; g < N_OPTION_GROUP; g++) n += command_options(*commands, g) == group;
    return n > 1;
}

static void print_man_option(const option_spec *o)
{
    char words[80];
    option_words(o, words, sizeof words);
    printf(".TP\n.B ");
    roff(words + strspn(words, " "));
    putchar('\n');
    roff(o->help);
    if (*other_spellings(o->name)) {
        printf(" (also ");
        roff(other_spellings(o->name));
        putchar(')');
    }
    putchar('\n');
}

/* The options of a command; of common ones the names. */
static void print_man_command_options(const command *const *commands, const command *c)
{
    for (size_t g = 0; g < N_OPTION_GROUP; g++) {
        const option_spec *group = command_options(c, g);
        if (!group || is_common(commands, group)) continue;
        for (const option_spec *o = group; o->name; o++) print_man_option(o);
    }
    const char *between = ".PP\nAlso, see COMMON OPTIONS: ";
    for (size_t g = 0; g < N_OPTION_GROUP; g++) {
        const option_spec *group = command_options(c, g);
        if (!group || !is_common(commands, group)) continue;
        for (const option_spec *o = group; o->name; o++) {
            printf("%s\\-\\-", between);
            roff(o->name);
            between = ",\n";
        }
    }
    putchar('\n');
}

static bool has_option(const option_spec *group, const char *name)
{
    for (; group->name; group++)
        if (strcmp(group->name, name) == 0) return true;
    return false;
}

/* The options of common tables, each once. */
static void print_man_common(const command *const *commands)
{
    const option_spec *printed[8];
    size_t n = 0;
    printf(".SH COMMON OPTIONS\n");
    for (const command *const *c = commands; *c; c++) {
        for (size_t g = 0; g < N_OPTION_GROUP; g++) {
            const option_spec *group = command_options(*c, g);
            if (!group || !is_common(commands, group)) continue;
            for (const option_spec *o = group; o->name; o++) {
                size_t i = 0;
                while (i < n && !has_option(printed[i], o->name)) i++;
                if (i == n) print_man_option(o);
            }
            size_t i = 0;
            while (i < n && printed[i] != group) i++;
            assert(i < sizeof printed / sizeof *printed);
            if (i == n) printed[n++] = group;
        }
    }
}

void commands_print_man(const command *const *commands)
{
    printf(".TH HEARTH 1 \"\" \"hearth %s\"\n.SH NAME\nhearth \\- run large language models on the machine "
           "at hand\n",
           hearth_version());
    printf(".SH SYNOPSIS\n");
    for (const command *const *c = commands; *c; c++) {
        printf(".B hearth %s\n", (*c)->name);
        roff((*c)->operands);
        printf("%s[options]\n.br\n", (*c)->operands[0] ? " " : "");
    }
    for (const command *const *c = commands; *c; c++) {
        printf(".SH %s\n", (*c)->name);
        roff((*c)->summary);
        printf("\n.PP\n");
        roff((*c)->details);
        print_man_command_options(commands, *c);
        printf(".PP\nExample:\n.PP\n.RS\n.nf\n");
        roff((*c)->example);
        printf("\n.fi\n.RE\n");
        flush_stdout(); /* it keeps the reason of a failure */
    }
    print_man_common(commands);
    print_stability(commands);
    printf(".SH SIGNALS\nAfter Ctrl-C, SIGTERM or SIGHUP run prints what was generated, with \\-\\-json too, "
           "and writes the file of \\-\\-save\\-session, and other commands what is complete. A signal while a model or a prompt is read, and a second one, "
           "end the program at once, without output.\n");
    printf(".SH EXIT STATUS\n0 on success, 2 for wrong usage, 130 when interrupted (Ctrl-C), 143 and 129 "
           "after SIGTERM and SIGHUP, 141 if the reader of standard output ends early, 1 for every other "
           "failure.\n");
    printf(
        ".SH ENVIRONMENT\n.TP\n.B HEARTH_CPU\nhighest level of kernels to use: generic, avx2, avx512, neon, "
        "dotprod, i8mm. Never changes a result.\n"
        ".TP\n.B HEARTH_PIN\n0: threads may move between cores, as with \\-\\-no\\-pin; 1: each is pinned to "
        "one.\n"
        ".TP\n.B HEARTH_HUGE_PAGES\n0: weights, states and caches on ordinary pages, which some virtual machines read "
        "faster; 1: on huge pages where the system has them.\n"
        ".TP\n.B HEARTH_IO\nhow weights are read, as \\-\\-io: auto, uring, pread, mmap or sim:DISK. The option goes "
        "before it.\n"
        ".TP\n.B HEARTH_CACHE\nfolder for calibrations, placements, compiled shaders and facts about models. "
        "Default: hearth in $XDG_CACHE_HOME, or in ~/.cache. Empty: no cache.\n"
        ".TP\n.B HEARTH_HISTORY\nfile for what is typed in chat. Default: hearth/history in $XDG_STATE_HOME, "
        "or in ~/.local/state. Empty, or another kind of file: nothing is saved, as with "
        "\\-\\-no\\-history.\n");
    printf(".TP\n.B HEARTH_MODELS\nfolders with models, separated by ':', for list and for names of models.\n"
           ".TP\n.B HF_HUB_CACHE, HF_HOME\ncache of Hugging Face; default: ~/.cache/huggingface/hub.\n"
           ".TP\n.B HF_TOKEN, HF_ENDPOINT\ntoken and address of the hub, for pull.\n"
           ".TP\n.B HEARTH_API_KEY\na key that clients of serve must send.\n"
           ".TP\n.B OLLAMA_MODELS, LLAMA_CACHE\nfolders of models of Ollama and llama.cpp, if not the usual "
           "ones.\n");
}
