/* The option table: one description of each command, from which parsing, --help, the man page and shell
 * completions are generated. */
#ifndef HEARTH_APPS_COMMON_OPTIONS_H
#define HEARTH_APPS_COMMON_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { EXIT_OTHER = 1, EXIT_USAGE = 2, EXIT_SIGNAL = 128 /* plus the number of the signal that ended the program */ };

enum { OPTION_LIST_MAX = 16 }; /* numbers of one list */
enum { OPTION_EACH_MAX = 4 };  /* values of an OPTION_EACH: HEARTH_MAX_GPU */

typedef enum option_kind {
    OPTION_FLAG,
    OPTION_UINT, /* min..max */
    OPTION_INT,
    OPTION_FLOAT,
    OPTION_TEXT,      /* any bytes */
    OPTION_FILE,      /* a path; completed as one */
    OPTION_CHOICE,    /* one of choices in lower case, separated by '|'; case is ignored */
    OPTION_UINT_LIST, /* numbers separated by commas */
    OPTION_SIZE,      /* bytes, suffix K, M, G or T of 1024 allowed, or "auto", which is 0; min..max */
} option_kind;

typedef enum option_flag {
    OPTION_REPEATS = 1,  /* may be given more than once */
    OPTION_ADVANCED = 2, /* --help lists only the name; the man page describes it */
    /* An OPTION_UINT in which -1 is UINT64_MAX in any range, and means no limit. It has up to two choices: a word for
     * -1, then a word for max. */
    OPTION_OPEN = 4,
    /* An OPTION_CHOICE that may stand without a value: the next word is one only if it is a choice. */
    OPTION_BARE = 16,
    OPTION_EACH = 32, /* an OPTION_SIZE that may have several values with commas between them */
    OPTION_ESCAPES = 128, /* --escape is about this text */
    OPTION_SAME = 64, /* may be given again with the same value */
    OPTION_AUTO = 256, /* -1 is as if it was not given, as llama.cpp has it */
    /* Names a model: by its path or by its name in hearth list, or is the word of choices. */
    OPTION_MODEL = 8,
} option_flag;

typedef struct option_spec {
    const char *name; /* without dashes */
    char letter;      /* 0: none */
    option_kind kind;
    const char *value; /* name of the value in help; NULL for flags */
    const char *help;
    double min, max;
    const char *choices; /* separated by '|'; of texts and files: words that completions offer, among others */
    unsigned flags;      /* bits of option_flag */
} option_spec;

/* Rows of an option table: name, letter, value and range as far as the kind has them, help, further fields. */
#define OPT_ROW(KIND, NAME, LETTER, VALUE, LEAST, MOST, ...)                                                 \
    {.kind = OPTION_##KIND, .name = NAME, .letter = LETTER, .value = VALUE, .min = LEAST, .max = MOST, .help = __VA_ARGS__}
#define OPT_FLAG(NAME, LETTER, ...) OPT_ROW(FLAG, NAME, LETTER, NULL, 0, 0, __VA_ARGS__)
#define OPT_TEXT(NAME, LETTER, VALUE, ...) OPT_ROW(TEXT, NAME, LETTER, VALUE, 0, 0, __VA_ARGS__)
#define OPT_FILE(NAME, LETTER, VALUE, ...) OPT_ROW(FILE, NAME, LETTER, VALUE, 0, 0, __VA_ARGS__)
#define OPT_UINT(NAME, LETTER, VALUE, LEAST, ...) OPT_ROW(UINT, NAME, LETTER, VALUE, LEAST, __VA_ARGS__)
#define OPT_INT(NAME, LETTER, VALUE, LEAST, ...) OPT_ROW(INT, NAME, LETTER, VALUE, LEAST, __VA_ARGS__)
#define OPT_FLOAT(NAME, LETTER, VALUE, LEAST, ...) OPT_ROW(FLOAT, NAME, LETTER, VALUE, LEAST, __VA_ARGS__)
#define OPT_SIZE(NAME, LETTER, VALUE, LEAST, ...) OPT_ROW(SIZE, NAME, LETTER, VALUE, LEAST, __VA_ARGS__)
#define OPT_UINT_LIST(NAME, LETTER, VALUE, LEAST, ...) OPT_ROW(UINT_LIST, NAME, LETTER, VALUE, LEAST, __VA_ARGS__)
#define OPT_CHOICE(NAME, LETTER, VALUE, CHOICES, ...)                                                        \
    OPT_ROW(CHOICE, NAME, LETTER, VALUE, 0, 0, __VA_ARGS__, .choices = CHOICES)
#define ADVANCED .flags = OPTION_ADVANCED

/* Every command with an option of OPTION_ESCAPES has this one, too. */
#define ESCAPE_OPTION OPT_FLAG("escape", 'e', "\\n, \\t, \\xNN in texts of options are these characters", ADVANCED)

/* -q -v, for every command. */
extern const option_spec general_options[];
/* -m, for every command whose first operand is a model. */
extern const option_spec model_option[];

typedef struct args args;

typedef struct command {
    const char *name;
    const char *operands; /* "[MODEL]", "IN OUT TYPE": words in brackets may be left out, and "[MODEL...]" repeated */
    const char *summary;          /* one line */
    const char *details;          /* some lines for --help and the man page */
    const char *example;          /* one command line */
    const option_spec *groups[4]; /* tables that end with a NULL name */
    unsigned models;              /* bit i: operand i names a model, by its path or by its name in hearth list */
    int (*run)(const args *a);
} command;

/* ---- queries of a command -------------------------------------------------------- */

const char *args_operand(const args *a, unsigned i); /* NULL when not given */
bool args_has(const args *a, const char *name);
bool args_are_none(const args *a); /* neither options nor operands were given */
/* Whether the command has such an option. */
bool command_offers(const args *a, const char *name);
uint64_t args_uint(const args *a, const char *name, uint64_t otherwise);
/* The value of an OPTION_SIZE, in bytes; of several the first. */
uint64_t args_size(const args *a, const char *name, uint64_t otherwise);
/* Copies the values of an OPTION_EACH. Returns how many; 0: not given. */
size_t args_sizes(const args *a, const char *name, uint64_t *values, size_t n_max);
int64_t args_int(const args *a, const char *name, int64_t otherwise);
double args_float(const args *a, const char *name, double otherwise);
/* NULL also if an OPTION_BARE has no value. */
const char *args_text(const args *a, const char *name, const char *otherwise);
/* The i-th value of a repeatable option; NULL: no more. */
const char *args_text_at(const args *a, const char *name, size_t i);
/* Copies the numbers of a list to values. Returns how many; 0: not given. */
size_t args_list(const args *a, const char *name, uint64_t *values, size_t n_max);

/* ---- the table as a whole -------------------------------------------------------- */

/* Runs a statement for every option of a command; options of all commands are last. */
enum { N_OPTION_GROUP = 6 };
/* Whether an operand is a path or a name of a model. */
bool command_names_model(const command *c, unsigned i_operand);
const option_spec *command_options(const command *c,
                                   size_t i_group); /* NULL: the command has no such group */
#define FOR_EACH_OPTION(V, O)                                                                                \
    for (size_t g_ = 0; g_ < N_OPTION_GROUP; g_++)                                                           \
        for (const option_spec *O = command_options(V, g_); O && O->name; O++)

/* Parses and runs a command; prints usage errors and returns the exit status. *instead: the name of the command that an
 * option of another program means; then nothing was run. */
int command_run(const command *c, int argc, char **argv, const char **instead);
void command_print_help(const command *c);
void commands_print_help(const command *const *commands);
void commands_print_man(const command *const *commands);
/* shell: bash, zsh or fish. False: none of them. */
bool commands_print_completions(const command *const *commands, const char *shell);

/* Prints "hearth: ..." to stderr and returns EXIT_USAGE. */
int usage_error(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Parses a whole number in decimal digits, without sign or space. False: it is not one. */
bool parse_uint(const char *text, uint64_t *value);
/* Parses bytes: 4096, 500M, 7.5G; "auto" is 0, what does not fit is UINT64_MAX. */
bool parse_size(const char *text, uint64_t *bytes);
/* Parses a finite decimal number. The decimal mark is a point in every locale. */
bool parse_float(const char *text, double *value);

#endif
