/* Parses arguments by the option table. main.c calls it through command_run. Every value is checked here, so
 * commands receive valid values only. */
#include "common/options/options.h"

#include "common/model_name.h"
#include "common/output.h"
#include "common/options/spelling.h"
#include "convert/ftype.h"
#include "store/disk.h"

#include <assert.h>
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { MAX_GIVEN = 256, MAX_OPERANDS = 64, MAX_IGNORED = 64 };

typedef struct given {
    const option_spec *spec;
    const char *value; /* in argv, or a path of model_name.c */
} given;

struct args {
    const command *command;
    given given[MAX_GIVEN];
    size_t n_given;
    const char *operands[MAX_OPERANDS];
    unsigned n_operand;
    bool wants_help, wants_version;
    const char *instead; /* the command that an option means */
    bool is_remote; /* the first operand is of --hf-repo */
    const foreign_option *ignored[MAX_IGNORED]; /* options that were accepted and have no effect */
    const char *ignored_words[MAX_IGNORED];
    size_t n_ignored;
};

/* clang-format off: a table */
const option_spec general_options[] = {
    OPT_FLAG("quiet", 'q', "only results, warnings and errors: no start line, no progress", ADVANCED),
    OPT_FLAG("verbose", 'v', "progress and notes even if stderr is not a terminal", ADVANCED),
    {0},
};

const option_spec model_option[] = {
    OPT_FILE("model", 'm', "MODEL", "the model, instead of the first operand", ADVANCED),
    OPT_TEXT("hf-repo", 0, "REPO[:QUANT]", "a model of Hugging Face, downloaded as by hearth pull if it is not here", ADVANCED),
    OPT_TEXT("hf-file", 0, "FILE", "a file of --hf-repo, instead of a quantisation", ADVANCED),
    OPT_FLAG("offline", 0, "--hf-repo takes what is here, without a network", ADVANCED),
    {0},
};
/* clang-format on */

const option_spec *command_options(const command *c, size_t i_group)
{
    size_t n = sizeof c->groups / sizeof *c->groups;
    if (i_group < n) return c->groups[i_group];
    if (i_group == n) return c->models & 1 ? model_option : NULL;
    return general_options;
}
_Static_assert(N_OPTION_GROUP == sizeof((command){0}.groups) / sizeof((command){0}.groups[0]) + 2,
               "groups of commands");

int usage_error(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    print_failure(format, list);
    va_end(list);
    return EXIT_USAGE;
}

/* ---- numbers --------------------------------------------------------------------- */

bool parse_uint(const char *text, uint64_t *value)
{
    uint64_t v = 0;
    if (!*text) return false;
    for (; *text; text++) {
        if (*text < '0' || *text > '9') return false;
        if (__builtin_mul_overflow(v, (uint64_t)10, &v) ||
            __builtin_add_overflow(v, (uint64_t)(*text - '0'), &v))
            return false;
    }
    *value = v;
    return true;
}

static bool parse_int(const char *text, int64_t *value)
{
    uint64_t v;
    bool minus = *text == '-';
    if (!parse_uint(text + minus, &v) || v > INT64_MAX) return false;
    *value = minus ? -(int64_t)v : (int64_t)v;
    return true;
}

bool parse_float(const char *text, double *value)
{
    if (!*text || strlen(text) > 60 || strspn(text, "0123456789.+-eE") != strlen(text)) return false;
    char *end;
    double v = strtod(text, &end); /* the program keeps the C locale for numbers */
    if (*end || v - v != 0.0) return false;
    *value = v;
    return true;
}

bool parse_size(const char *text, uint64_t *bytes)
{
    static const char units[] = "KMGTkmgt";
    char number[40];
    size_t n = strlen(text);
    double v;
    if (strcmp(text, "auto") == 0) return *bytes = 0, true;
    if (n == 0 || n >= sizeof number) return false;
    memcpy(number, text, n + 1);
    const char *unit = strchr(units, number[n - 1]);
    if (unit) number[n - 1] = '\0';
    if (!unit && text[strspn(text, "0123456789")]) return false;
    if (!unit && !parse_uint(text, bytes)) *bytes = UINT64_MAX;
    if (!unit) return true;
    if (strspn(number, "0123456789.") != strlen(number) || !parse_float(number, &v)) return false;
    v *= (double)((uint64_t)1024 << (10 * ((unit - units) % 4)));
    *bytes = v < 0x1p63 ? (uint64_t)v : UINT64_MAX;
    return true;
}

/* ---- checks of one value ------------------------------------------------------------- */

static int out_of_range(const option_spec *o, const char *value)
{
    const char *open = o->flags & OPTION_OPEN ? "-1 and " : "";
    if (o->max >= 0x1p64)
        return usage_error("--%s %s: allowed are %s%.0f to 2^64 - %d", o->name, value, open, o->min,
                           *open ? 2 : 1);
    return usage_error("--%s %s: allowed are %s%.15g to %.15g", o->name, value, open, o->min, o->max);
}

/* The index of a word among choices; -1: not found. */
static int find_choice(const char *choices, const char *value)
{
    size_t n = strlen(value);
    int i = 0;
    for (const char *c = choices; *c; i++) {
        size_t len = strcspn(c, "|");
        if (len == n && strncasecmp(c, value, n) == 0) return i;
        c += len + (c[len] == '|');
    }
    return -1;
}

/* Parses a number of an OPTION_UINT. */
static bool read_uint(const option_spec *o, const char *text, uint64_t *value)
{
    int word = o->choices ? find_choice(o->choices, text) : -1;
    bool open = o->flags & OPTION_OPEN && (word == 0 || strcmp(text, "-1") == 0);
    if (open) return *value = UINT64_MAX, true;
    if (word == 1) return *value = (uint64_t)o->max, true;
    return parse_uint(text, value);
}

static bool is_whole(const char *text)
{
    text += *text == '-';
    return *text && text[strspn(text, "0123456789")] == '\0';
}

static int check_list(const option_spec *o, const char *value)
{
    char part[32];
    unsigned n_part = 0;
    for (const char *p = value;; p++) {
        size_t n = strcspn(p, ",");
        uint64_t v;
        if (n >= sizeof part) return usage_error("--%s %s: numbers with commas are wanted", o->name, value);
        memcpy(part, p, n);
        part[n] = '\0';
        if (!parse_uint(part, &v))
            return usage_error("--%s %s: numbers with commas are wanted", o->name, value);
        if ((double)v < o->min || (double)v > o->max) return out_of_range(o, part);
        if (++n_part > OPTION_LIST_MAX)
            return usage_error("--%s: more than %d numbers", o->name, OPTION_LIST_MAX);
        p += n;
        if (!*p) return 0;
    }
}

static int check_size(const option_spec *o, const char *value)
{
    uint64_t u;
    if (!parse_size(value, &u) || ((double)u < o->min && strcmp(value, "auto") != 0))
        return usage_error(
            "--%s '%s': expected bytes, at least %.0f, as 500M or 7.5g, with K, M, G, T or no unit; or "
            "auto",
            o->name, value, o->min);
    if ((double)u > o->max)
        return usage_error("--%s '%s': too large, expected at most %.0f bytes", o->name, value, o->max);
    return 0;
}

/* The next of the values with commas between them, cut to the size of part; NULL: there is none. */
static const char *next_part(const char *p, char *part, size_t size)
{
    if (!p || !*p) return NULL;
    size_t n = strcspn(p, ","), kept = n < size ? n : size - 1;
    memcpy(part, p, kept);
    part[kept] = '\0';
    return p + n + (p[n] == ',' && p[n + 1]);
}

static int check_sizes(const option_spec *o, const char *value)
{
    char part[64];
    unsigned n = 0;
    int status = *value ? 0 : check_size(o, value);
    for (const char *p = value; !status && (p = next_part(p, part, sizeof part)); n++) status = check_size(o, part);
    return !status && n > OPTION_EACH_MAX ? usage_error("--%s: more than %d values", o->name, OPTION_EACH_MAX) : status;
}

static int check_value(const option_spec *o, const char *value)
{
    uint64_t u;
    int64_t i;
    double f;
    switch (o->kind) {
    case OPTION_UINT:
        if (!read_uint(o, value, &u)) {
            if (is_whole(value)) return out_of_range(o, value);
            return usage_error("--%s '%s': expected a whole number%s%s", o->name, value,
                               o->choices ? ", or one of " : "", o->choices ? o->choices : "");
        }
        if (o->flags & OPTION_OPEN && u == UINT64_MAX) /* UINT64_MAX means -1 */
            return is_whole(value) && *value != '-' ? out_of_range(o, value) : 0;
        return (double)u < o->min || (double)u > o->max ? out_of_range(o, value) : 0;
    case OPTION_INT:
        if (!parse_int(value, &i) && is_whole(value)) return out_of_range(o, value);
        if (!parse_int(value, &i)) return usage_error("--%s '%s': expected a whole number", o->name, value);
        return (double)i < o->min || (double)i > o->max ? out_of_range(o, value) : 0;
    case OPTION_FLOAT:
        if (!parse_float(value, &f)) return usage_error("--%s '%s': expected a number", o->name, value);
        return f < o->min || f > o->max ? out_of_range(o, value) : 0;
    case OPTION_CHOICE:
        if (find_choice(o->choices, value) >= 0) return 0;
        return usage_error("--%s '%s': expected one of %s", o->name, value, o->choices);
    case OPTION_UINT_LIST: return check_list(o, value);
    case OPTION_SIZE: return o->flags & OPTION_EACH ? check_sizes(o, value) : check_size(o, value);
    case OPTION_FLAG:
    case OPTION_TEXT:
    case OPTION_FILE: break;
    }
    return 0;
}

/* ---- parsing --------------------------------------------------------------------------- */

static const option_spec *find_option(const command *c, const char *name)
{
    FOR_EACH_OPTION(c, o)
    if (strcmp(o->name, name) == 0) return o;
    return NULL;
}

static const option_spec *find_letter(const command *c, char letter)
{
    FOR_EACH_OPTION(c, o)
    if (o->letter == letter) return o;
    return NULL;
}

/* Whether a word of n bytes, dashes included, is a prefix of the option's name or of another spelling of it. */
static bool begins_option(const option_spec *o, const char *word, size_t n)
{
    if (n > 2 && strncmp(o->name, word + 2, n - 2) == 0) return true;
    bool begins = false;
    FOR_EACH_WORD(other_spellings(o->name), w, length) begins |= length >= n && memcmp(w, word, n) == 0;
    return begins;
}

/* Finds the option for a word of n bytes, dashes included: an exact spelling, or a unique prefix of a long
 * name. NULL with *bad set: the prefix is ambiguous, and an error was reported. */
static const option_spec *match_option(const command *c, const char *word, size_t n, int *bad)
{
    const option_spec *found = NULL;
    bool is_long = word[1] == '-';
    FOR_EACH_OPTION(c, o)
    {
        bool same = is_long && strlen(o->name) == n - 2 && memcmp(o->name, word + 2, n - 2) == 0;
        if (same || lists_word(other_spellings(o->name), word, n)) return o;
    }
    if (!is_long || n < 3 || find_foreign_option(c->name, word, n)) return NULL;
    FOR_EACH_OPTION(c, o)
    {
        if (!begins_option(o, word, n)) continue;
        if (found) {
            *bad =
                usage_error("%.*s may be --%s or --%s; write more of it", (int)n, word, found->name, o->name);
            return NULL;
        }
        found = o;
    }
    return found;
}

/* Offers the option's long name and its other spellings, with their dashes. */
static void offer_spellings(nearest *near, const option_spec *o)
{
    char name[MAX_WORD + 1];
    snprintf(name, sizeof name, "--%s", o->name);
    nearest_offer(near, name);
    FOR_EACH_WORD(other_spellings(o->name), w, length)
    {
        snprintf(name, sizeof name, "%.*s", (int)length, w);
        nearest_offer(near, name);
    }
}

/* Reports an unknown option, a word of n bytes, with the likely intended one. */
static int unknown_option(const command *c, const char *word, size_t n)
{
    char asked[MAX_WORD + 8];
    snprintf(asked, sizeof asked, "%.*s", (int)n, word);
    nearest near = nearest_to(asked);
    FOR_EACH_OPTION(c, o) offer_spellings(&near, o);
    if (*near.name)
        return usage_error("%.*s: no such option; %s is the nearest; see hearth %s --help", (int)n, word,
                           near.name, c->name);
    return usage_error("%.*s: no such option; see hearth %s --help", (int)n, word, c->name);
}

/* Whether an option that was given has the same value now. */
static bool is_same_again(const args *a, const option_spec *o, const char *value)
{
    const char *before = args_text(a, o->name, NULL);
    return o->flags & OPTION_SAME && before && value && strcasecmp(before, value) == 0;
}

static int take(args *a, const option_spec *o, char *value)
{
    if (!(o->flags & OPTION_REPEATS) && args_has(a, o->name) && !is_same_again(a, o, value))
        return usage_error(o->flags & OPTION_SAME ? "--%s is given with two values, and there is one"
                                                  : "--%s is given twice", o->name);
    if (a->n_given == MAX_GIVEN) return usage_error("more than %d options", MAX_GIVEN);
    if (o->flags & OPTION_AUTO && value && strcmp(value, "-1") == 0) return 0;
    int bad = value ? check_value(o, value) : 0;
    if (bad) return bad;
    for (char *c = o->kind == OPTION_CHOICE ? value : NULL; c && *c; c++)
        *c = (char)tolower((unsigned char)*c);
    a->given[a->n_given++] = (given){o, value};
    return 0;
}

/* Whether n bytes are a prefix of a long name, as if it was written with one dash: -prompt is not -p. */
static bool is_long_name(const command *c, const char *text, size_t n)
{
    FOR_EACH_OPTION(c, o)
    if (n >= 3 && strncmp(o->name, text, n) == 0) return true;
    return false;
}

/* Whether the text after an option letter can be its value: -n12, but -nope is not -n, and -qx is not -q. */
static bool goes_with_letter(const option_spec *o, const char *value)
{
    bool is_number = o->kind != OPTION_TEXT && o->kind != OPTION_FILE && o->kind != OPTION_CHOICE;
    return o->kind != OPTION_FLAG && (!is_number || value[-1] == '=' || strchr("-+.0123456789", *value));
}

/* Takes an option of another program, word of n bytes at argv[*i], that changes nothing here; else refuses it. */
static int take_foreign(args *a, const foreign_option *f, char **argv, int argc, int *i, size_t n)
{
    const char *word = argv[*i], *value = word[n] == '=' ? word + n + 1 : NULL, *next = *i + 1 < argc ? argv[*i + 1] : NULL;
    bool needs_value = f->kind == FOREIGN_VALUE || f->kind == FOREIGN_UNDONE,
         takes_next = needs_value || (next && f->values && find_choice(f->values, next) >= 0);
    if (f->kind == FOREIGN_COMMAND) {
        a->instead = f->answer;
        return 0;
    }
    if (f->kind == FOREIGN_REFUSED) return usage_error("%.*s: %s", (int)n, word, f->answer);
    if (!value && takes_next) value = next, *i += next != NULL;
    if (!value && needs_value) return usage_error("%.*s needs a value", (int)n, word);
    if (value && needs_value && f->values && find_choice(f->values, value) < 0)
        return usage_error("%.*s %s: %s", (int)n, word, value, f->answer);
    if (a->n_ignored == MAX_IGNORED) return usage_error("more than %d options that are not needed", MAX_IGNORED);
    a->ignored_words[a->n_ignored] = word;
    a->ignored[a->n_ignored++] = f;
    return 0;
}

/* Parses one option at argv[*i]. Its value follows =, follows a letter, or is the next word. */
static int parse_option(args *a, int argc, char **argv, int *i)
{
    char *word = argv[*i], *value = NULL;
    size_t n = strcspn(word, "=");
    int bad = 0;
    const option_spec *o = match_option(a->command, word, n, &bad);
    if (bad) return bad;
    if (!o && n == 2) o = find_letter(a->command, word[1]);
    const foreign_option *foreign = o ? NULL : find_foreign_option(a->command->name, word, n);
    if (foreign) return take_foreign(a, foreign, argv, argc, i, n);
    if (o) {
        if (word[n] == '=') value = word + n + 1;
    } else if (word[1] != '-' && !is_long_name(a->command, word + 1, n - 1)) {
        o = find_letter(a->command, word[1]);
        if (o && word[2]) value = word + 2 + (word[2] == '=');
        if (value && !goes_with_letter(o, value)) o = NULL;
    }
    if (!o) return unknown_option(a->command, word, n);
    if (o->kind == OPTION_FLAG) return value ? usage_error("--%s takes no value", o->name) : take(a, o, NULL);
    bool bare = o->flags & OPTION_BARE;
    if (!value && *i + 1 < argc && (!bare || find_choice(o->choices, argv[*i + 1]) >= 0)) value = argv[++*i];
    if (!value && !bare) return usage_error("--%s needs a value: %s", o->name, o->value);
    return take(a, o, value);
}

/* The number of operands: of those that cannot be left out, or at most. */
static unsigned count_operands(const command *c, bool required)
{
    unsigned n = 0;
    if (!required && strstr(c->operands, "...")) return MAX_OPERANDS;
    for (const char *p = c->operands; *p; p += strcspn(p, " "), p += *p == ' ') n += !required || *p != '[';
    return n;
}

/* Makes a model given with -m or --hf-repo the first operand. */
static int put_model_first(args *a)
{
    const command *c = a->command;
    const char *model = command_offers(a, "model") ? args_text(a, "model", NULL) : NULL,
               *repo = command_offers(a, "hf-repo") ? args_text(a, "hf-repo", NULL) : NULL;
    if (model && repo) return usage_error("--model and --hf-repo contradict each other; give one of them");
    if (!repo && command_offers(a, "hf-file") && args_has(a, "hf-file"))
        return usage_error("--hf-file %s: --hf-repo says of which repository", args_text(a, "hf-file", ""));
    if (repo) model = repo;
    if (model && a->n_operand == count_operands(c, false))
        return usage_error("--%s %s and the model '%s' are both given", repo ? "hf-repo" : "model", model, a->operands[0]);
    if (model) {
        memmove(a->operands + 1, a->operands, a->n_operand++ * sizeof *a->operands);
        a->operands[0] = model;
    }
    a->is_remote = repo || (command_offers(a, "hf-repo") && a->n_operand > 0 && is_remote_model(a->operands[0]));
    return 0;
}

static int parse(args *a, int argc, char **argv)
{
    bool only_operands = false;
    for (int i = 0; i < argc; i++) {
        const char *word = argv[i];
        if (!only_operands && strcmp(word, "--") == 0) {
            only_operands = true;
        } else if (!only_operands && strcmp(word, "--version") == 0) {
            a->wants_version = true;
            return 0;
        } else if (!only_operands &&
                   (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "-help") == 0)) {
            a->wants_help = true;
            return 0;
        } else if (!only_operands && word[0] == '-' && word[1]) {
            int bad = parse_option(a, argc, argv, &i);
            if (bad || a->instead) return bad;
        } else if (a->n_operand == count_operands(a->command, false)) {
            return usage_error("'%s' is one argument too many; usage: hearth %s%s%s [options]", word,
                               a->command->name, *a->command->operands ? " " : "", a->command->operands);
        } else {
            a->operands[a->n_operand++] = word;
        }
    }
    int bad = put_model_first(a);
    if (bad) return bad;
    if (a->n_operand >= count_operands(a->command, true)) return 0;
    const char *missing = a->command->operands;
    for (unsigned i = 0; i < a->n_operand; i++) missing += strcspn(missing, " ") + 1;
    /* hearth quantize IN TYPE */
    if (strncmp(missing, "TYPE", 4) == 0 && a->n_operand > 0 && hth_ftype_find(a->operands[a->n_operand - 1]))
        return usage_error("missing: OUT, the file to write, before '%s'; usage: hearth %s %s [options]",
                           a->operands[a->n_operand - 1], a->command->name, a->command->operands);
    const char *optional = strstr(missing, " [");
    int n = (int)(optional ? (size_t)(optional - missing) : strlen(missing));
    return usage_error("missing: %.*s; usage: hearth %s %s [options]; see hearth %s --help", n, missing,
                       a->command->name, a->command->operands, a->command->name);
}

/* Options that exclude each other. */
static const char *const exclusive[][2] = {{"cpu-moe", "n-cpu-moe"},
                                           {"cpu-moe", "override-tensor"},
                                           {"cpu-moe", "placement"},
                                           {"gpu-layers", "placement"},
                                           {"n-cpu-moe", "override-tensor"},
                                           {"n-cpu-moe", "placement"},
                                           {"override-tensor", "placement"},
                                           {"greedy", "temperature"},
                                           {"ids", "pieces"},
                                           {"io", "mmap"},
                                           {"reasoning", "template-vars"},
                                           {"reasoning-budget", "template-vars"},
                                           {"rope-freq-scale", "rope-scale"},
                                           {"system", "system-file"},
                                           {"quiet", "verbose"}};

static int check_exclusive(const args *a)
{
    for (size_t i = 0; i < sizeof exclusive / sizeof *exclusive; i++) {
        const char *x = exclusive[i][0], *y = exclusive[i][1];
        if (command_offers(a, x) && command_offers(a, y) && args_has(a, x) && args_has(a, y))
            return usage_error("--%s and --%s contradict each other; give one of them", x, y);
    }
    return 0;
}

/* A model that is read whole comes from this machine's disk at its own speed, whatever disk is simulated. */
static int check_simulated_disk(const args *a)
{
    static const char readers[] = "run chat serve bench perplexity compare imatrix logits";
    const char *name = a->command->name;
    if (!lists_word(readers, name, strlen(name)) || args_has(a, "ram")) return 0;
    const char *io = args_text(a, "io", "");
    if (!hth_disk_is_simulated(io)) return 0;
    return usage_error(
        "--io %s: a simulated disk needs --ram BYTES; without it the model is read whole, from the real "
        "one",
        io);
}

/* The last operand of a command may stand for more of its kind. */
bool command_names_model(const command *c, unsigned i)
{
    unsigned last = 0;
    for (const char *p = c->operands; *p; p++) last += *p == ' ';
    return c->models >> (i < last ? i : last) & 1;
}

/* Resolves names of models to paths. "-" is standard input if a command accepts it. */
static int resolve_models(args *a)
{
    int bad = 0;
    for (unsigned i = 0; i < a->n_operand && !bad; i++)
        if (i == 0 && a->is_remote)
            bad = fetch_model(a->operands[0], args_text(a, "hf-file", NULL), args_has(a, "offline"), &a->operands[0]);
        else if (command_names_model(a->command, i) && strcmp(a->operands[i], "-") != 0)
            bad = resolve_model(a->operands[i], &a->operands[i]);
    for (size_t i = 0; i < a->n_given && !bad; i++) {
        const option_spec *o = a->given[i].spec;
        if (!(o->flags & OPTION_MODEL) || (o->choices && strcmp(o->choices, a->given[i].value) == 0)) continue;
        bad = resolve_model(a->given[i].value, &a->given[i].value);
    }
    return bad;
}

static int hex_digit(char c)
{
    const char *digits = "0123456789abcdef", *found = c ? strchr(digits, tolower((unsigned char)c)) : NULL;
    return found ? (int)(found - digits) : -1;
}

/* Replaces \n, \r, \t, \\, \', \" and \xNN by the bytes that they stand for. A zero byte would end the text. */
static void unescape(char *text)
{
    static const char names[] = "nrt\\'\"", bytes[] = "\n\r\t\\'\"";
    char *to = text;
    for (const char *from = text; *from;) {
        const char *name = from[0] == '\\' && from[1] ? strchr(names, from[1]) : NULL;
        int high = from[0] == '\\' && from[1] == 'x' ? hex_digit(from[2]) : -1, low = high >= 0 ? hex_digit(from[3]) : -1;
        if (name) *to++ = bytes[name - names], from += 2;
        else if (low >= 0 && (high | low) != 0) *to++ = (char)(high << 4 | low), from += 4;
        else *to++ = *from++;
    }
    *to = '\0';
}

static void unescape_texts(const args *a)
{
    if (!command_offers(a, "escape") || !args_has(a, "escape")) return;
    for (size_t i = 0; i < a->n_given; i++)
        if (a->given[i].spec->flags & OPTION_ESCAPES) unescape((char *)(uintptr_t)a->given[i].value);
}

/* One line for all that are not needed, of which --verbose says why, and one for each that leaves something undone. */
static void warn_of_ignored(const args *a)
{
    char line[700];
    size_t n = 0;
    for (size_t i = 0; i < a->n_ignored && n < sizeof line; i++)
        if (a->ignored[i]->kind != FOREIGN_UNDONE)
            n += (size_t)snprintf(line + n, sizeof line - n, "%s%.*s", n ? ", " : "",
                                  (int)strcspn(a->ignored_words[i], "="), a->ignored_words[i]);
    if (n > 0) print_warning("not needed here, and without effect: %s", line);
    for (size_t i = 0; i < a->n_ignored; i++) {
        const char *word = a->ignored_words[i], *answer = a->ignored[i]->answer;
        int length = (int)strcspn(word, "=");
        if (a->ignored[i]->kind == FOREIGN_UNDONE) print_warning("%.*s has no effect here: %s", length, word, answer);
        else if (args_has(a, "verbose")) print_note("%.*s: %s", length, word, answer);
    }
}

int command_run(const command *c, int argc, char **argv, const char **instead)
{
    args a = {.command = c};
    int bad = parse(&a, argc, argv);
    *instead = a.instead;
    if (a.instead) return 0;
    if (a.wants_version) {
        printf("hearth %s\n", hearth_version());
        return 0;
    }
    if (a.wants_help) {
        command_print_help(c);
        return 0;
    }
    if (!bad) bad = check_exclusive(&a);
    if (!bad) bad = check_simulated_disk(&a);
    if (bad) return bad;
    set_verbosity(args_has(&a, "quiet"), args_has(&a, "verbose"));
    warn_of_ignored(&a);
    unescape_texts(&a);
    bad = resolve_models(&a);
    return bad ? bad : c->run(&a);
}

/* ---- queries ------------------------------------------------------------------------------ */

static const given *find_given(const args *a, const char *name, size_t skip)
{
    assert(find_option(a->command, name)); /* a command queries its own options only */
    for (size_t i = 0; i < a->n_given; i++)
        if (strcmp(a->given[i].spec->name, name) == 0 && skip-- == 0) return &a->given[i];
    return NULL;
}

const char *args_operand(const args *a, unsigned i) { return i < a->n_operand ? a->operands[i] : NULL; }
bool args_has(const args *a, const char *name) { return find_given(a, name, 0) != NULL; }

bool args_are_none(const args *a) { return a->n_given == 0 && a->n_operand == 0; }

bool command_offers(const args *a, const char *name) { return find_option(a->command, name) != NULL; }

uint64_t args_uint(const args *a, const char *name, uint64_t otherwise)
{
    const given *g = find_given(a, name, 0);
    if (g) read_uint(g->spec, g->value, &otherwise);
    return otherwise;
}

uint64_t args_size(const args *a, const char *name, uint64_t otherwise)
{
    return args_sizes(a, name, &otherwise, 1), otherwise;
}

size_t args_sizes(const args *a, const char *name, uint64_t *values, size_t n_max)
{
    const given *g = find_given(a, name, 0);
    char part[64];
    size_t n = 0;
    for (const char *p = g ? g->value : NULL; n < n_max && (p = next_part(p, part, sizeof part)); n++)
        parse_size(part, &values[n]);
    return n;
}

int64_t args_int(const args *a, const char *name, int64_t otherwise)
{
    const given *g = find_given(a, name, 0);
    if (g) parse_int(g->value, &otherwise);
    return otherwise;
}

double args_float(const args *a, const char *name, double otherwise)
{
    const given *g = find_given(a, name, 0);
    if (g) parse_float(g->value, &otherwise);
    return otherwise;
}

const char *args_text(const args *a, const char *name, const char *otherwise)
{
    const given *g = find_given(a, name, 0);
    return g ? g->value : otherwise;
}

const char *args_text_at(const args *a, const char *name, size_t i)
{
    const given *g = find_given(a, name, i);
    return g ? g->value : NULL;
}

size_t args_list(const args *a, const char *name, uint64_t *values, size_t n_max)
{
    const given *g = find_given(a, name, 0);
    size_t n = 0;
    for (const char *p = g ? g->value : ""; *p && n < n_max; n++) {
        values[n] = strtoull(p, NULL, 10);
        p += strcspn(p, ",");
        p += *p == ',';
    }
    return n;
}
