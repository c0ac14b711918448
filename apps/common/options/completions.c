/* Completions for bash, zsh and fish, generated from the option table: commands, options, and what stands behind them.
 * Names of models are those that `hearth list --names` prints when the user asks for them. */
#include "common/options/options.h"
#include "common/options/spelling.h"
#include "convert/ftype.h"

#include <hearth/hearth.h>
#include <stdio.h>
#include <string.h>

#define SHELLS "bash zsh fish"

/* ---- what an option or an operand takes ------------------------------------------------------------------- */

typedef struct taken {
    char words[1024]; /* separated by spaces */
    bool files, models;
} taken;

/* Adds the words of a list with separators of one or two characters. */
static void add_words(taken *t, const char *list)
{
    for (size_t at = strlen(t->words); *list && at + 2 < sizeof t->words; list++) {
        bool separates = strchr("|, ", *list);
        if (!separates) t->words[at++] = *list, t->words[at] = '\0';
        else if (at > 0 && t->words[at - 1] != ' ') t->words[at++] = ' ', t->words[at] = '\0';
    }
}

static taken option_takes(const option_spec *o)
{
    taken t = {.files = o->kind == OPTION_FILE, .models = o->flags & OPTION_MODEL || o == model_option};
    add_words(&t, o->choices ? o->choices : "");
    if (o->kind == OPTION_TEXT && strcmp(o->value, "TYPE") == 0) add_words(&t, hth_ftype_list());
    for (size_t i = 0; o->kind == OPTION_FILE && strcmp(o->value, "NAME|FILE") == 0 && hearth_chat_format(i);
         i++) {
        add_words(&t, " ");
        add_words(&t, hearth_chat_format(i));
    }
    return t;
}

/* Copies word i of the operands of a command: "MODEL", "[MODEL...]", "OUT". False: there are fewer. */
static bool operand_word(const command *c, unsigned i, char word[MAX_WORD])
{
    const char *p = c->operands;
    for (; i > 0 && *p; i--) p += strcspn(p, " "), p += strspn(p, " ");
    snprintf(word, MAX_WORD, "%.*s", (int)strcspn(p, " "), p);
    return *p;
}

static bool repeats(const char *operand) { return strstr(operand, "...") != NULL; }

static taken operand_takes(const command *c, unsigned i, const char *word)
{
    static const char files[] = "FILE IN OUT";
    taken t = {.models = command_names_model(c, i) || strcmp(word, "NAME") == 0};
    t.files = command_names_model(c, i) || lists_word(files, word, strlen(word));
    if (strcmp(word, "TYPE") == 0) add_words(&t, hth_ftype_list());
    return t;
}

/* Quotes text in single quotes; they end and begin again around a single quote. */
static void quoted(const char *text)
{
    putchar('\'');
    for (; *text; text++) {
        if (*text == '\'') fputs("'\\''", stdout);
        else putchar(*text);
    }
    putchar('\'');
}

/* ---- bash ----------------------------------------------------------------------------------------------------- */

static const char bash_functions[] =
    "# _hearth_offer WORD...: those that begin with $cur; $cut is what readline does not replace.\n"
    "_hearth_offer() {\n"
    "  local word\n"
    "  for word; do\n"
    "    if [[ $word == \"$cur\"* ]]; then COMPREPLY+=(\"$front${word#\"$cut\"}\"); fi\n"
    "  done\n"
    "}\n"
    "_hearth() {\n"
    "  local IFS=$' \\t\\n' words=() lines=() word= glue= i\n"
    "  COMPREPLY=()\n"
    "  # Names of models have colons, at which bash cuts words.\n"
    "  for word in \"${COMP_WORDS[@]:0:COMP_CWORD+1}\"; do\n"
    "    if [[ ${#words[@]} -gt 1 && ( $glue || $word == [:=]* ) ]]; then words[${#words[@]}-1]+=$word\n"
    "    else words+=(\"$word\"); fi\n"
    "    glue=\n"
    "    if [[ $word == *[:=] ]]; then glue=1; fi\n"
    "  done\n"
    "  if [[ ${#COMP_WORDS[@]} -le COMP_CWORD ]]; then words+=(''); fi\n"
    "  local n=${#words[@]} takes= models= files= operand=0 ends= pending= cut= front=\n"
    "  local cur=${words[n-1]} command=${words[1]-}\n"
    "  for ((i = 2; i < n - 1; i++)); do\n"
    "    word=${words[i]}\n"
    "    if [[ $pending ]]; then pending=\n"
    "    elif [[ $ends || $word != -?* ]]; then operand=$((operand + 1))\n"
    "    elif [[ $word == -- ]]; then ends=1\n"
    "    elif [[ $word != *=* ]] && _hearth_option \"$command\" \"$word\"; then pending=$word; fi\n"
    "  done\n"
    "  if [[ $cur == --*=* && ! $pending && ! $ends ]]; then\n"
    "    if [[ ${COMP_WORDBREAKS-} != *=* ]]; then front=${cur%%=*}=; fi\n"
    "    pending=${cur%%=*}\n"
    "    cur=${cur#*=}\n"
    "  fi\n"
    "  takes= models= files=\n"
    "  if [[ $n -le 2 ]]; then takes=$_hearth_first\n"
    "  elif [[ $n == 3 && $command == --completions ]]; then takes='" SHELLS "'\n"
    "  elif [[ $pending ]]; then _hearth_option \"$command\" \"$pending\" || :\n"
    "  elif [[ $cur == -* && ! $ends ]]; then _hearth_options \"$command\"\n"
    "  else _hearth_operand \"$command\" $operand; fi\n"
    "  cur=${cur//\\\\/}\n"
    "  cur=${cur#[\\\"\\']}\n"
    "  if [[ ${COMP_WORDBREAKS-} == *:* && $cur == *:* ]]; then cut=${cur%\"${cur##*:}\"}; fi\n"
    "  _hearth_offer $takes\n"
    "  if [[ $models ]]; then\n"
    "    mapfile -t lines < <(\"${words[0]/#\\~/$HOME}\" list --names 2>/dev/null)\n"
    "    _hearth_offer \"${lines[@]}\"\n"
    "  fi\n"
    "  if [[ $files ]]; then\n"
    "    mapfile -t lines < <(compgen -f -- \"$cur\")\n"
    "    _hearth_offer \"${lines[@]}\"\n"
    "  fi\n"
    "  # Readline quotes what has spaces, and ends folders with a slash.\n"
    "  if [[ $models || $files ]]; then compopt -o filenames 2>/dev/null; fi\n"
    "  return 0\n"
    "}\n"
    "complete -F _hearth hearth\n";

static void print_bash_taken(const taken *t)
{
    printf("takes='%s'%s%s", t->words, t->files ? " files=1" : "", t->models ? " models=1" : "");
}

static void print_bash_options(const command *c)
{
    printf("  %s) takes='", c->name);
    FOR_EACH_OPTION(c, o)
    {
        printf("--%s ", o->name);
        if (o->letter) printf("-%c ", o->letter);
    }
    printf("--help' ;;\n");
}

/* An OPTION_BARE has a value only behind =: the next word may be an operand. */
static void print_bash_option_values(const command *c)
{
    printf("  %s)\n    case $2 in\n", c->name);
    FOR_EACH_OPTION(c, o)
    {
        if (o->kind == OPTION_FLAG) continue;
        taken t = option_takes(o);
        printf("    --%s", o->name);
        if (o->letter) printf("|-%c", o->letter);
        FOR_EACH_WORD(other_spellings(o->name), w, n) printf("|%.*s", (int)n, w);
        printf(") ");
        print_bash_taken(&t);
        printf("%s ;;\n", o->flags & OPTION_BARE ? "; return 1" : "");
    }
    printf("    *) return 1 ;;\n    esac ;;\n");
}

static void print_bash_operands(const command *c)
{
    char word[MAX_WORD];
    for (unsigned i = 0; operand_word(c, i, word); i++) {
        taken t = operand_takes(c, i, word);
        printf("  %s:%s) ", c->name, repeats(word) ? "*" : (const char[]){(char)('0' + i), '\0'});
        print_bash_taken(&t);
        printf(" ;;\n");
    }
}

static void print_bash(const command *const *commands)
{
    printf("# Completions of hearth for bash 4.4 or later.\n_hearth_first='");
    for (const command *const *c = commands; *c; c++) printf("%s ", (*c)->name);
    printf("--help --version --man --completions'\n_hearth_options() {\n  case $1 in\n");
    for (const command *const *c = commands; *c; c++) print_bash_options(*c);
    printf("  esac\n}\n# What stands behind option $2 of command $1; false: nothing has to.\n"
           "_hearth_option() {\n  case $1 in\n");
    for (const command *const *c = commands; *c; c++) print_bash_option_values(*c);
    printf("  *) return 1 ;;\n  esac\n}\n_hearth_operand() {\n  case $1:$2 in\n");
    for (const command *const *c = commands; *c; c++) print_bash_operands(*c);
    printf("  esac\n}\n%s", bash_functions);
}

/* ---- zsh ------------------------------------------------------------------------------------------------------ */

static const char zsh_functions[] =
    "_hearth_or_files() {\n"
    "  _alternative \"words:word:($*)\" 'files:file:_files'\n"
    "}\n"
    "_hearth_names() {\n"
    "  local -a names=(${(f)\"$(_call_program models $program list --names 2>/dev/null)\"})\n"
    "  _alternative \"words:word:($*)\" 'names:model:compadd -a names'\n"
    "}\n"
    "_hearth_or_models() {\n"
    "  local -a names=(${(f)\"$(_call_program models $program list --names 2>/dev/null)\"})\n"
    "  _alternative \"words:word:($*)\" 'names:model:compadd -a names' 'files:file:_files'\n"
    "}\n";

/* Escapes brackets and colons, which have meanings in zsh option texts. */
static void zsh_text(const char *text)
{
    for (; *text; text++) {
        if (*text == '[' || *text == ']' || *text == ':') putchar('\\');
        if (*text == '\'') fputs("'\\''", stdout);
        else putchar(*text);
    }
}

static void print_zsh_action(const taken *t)
{
    if (t->models) printf(" _hearth_%s %s", t->files ? "or_models" : "names", t->words);
    else if (t->files) printf(" _hearth_or_files %s", t->words);
    else if (*t->words) printf("(%s)", t->words);
    else putchar(' ');
}

/* One spelling: '(-c --ctx)--ctx=[context]:N: '. */
static void print_zsh_spelling(const option_spec *o, bool is_letter)
{
    printf(" \\\n      '");
    if (o->flags & OPTION_REPEATS) putchar('*');
    else if (o->letter) printf("(-%c --%s)", o->letter, o->name);
    if (is_letter) printf("-%c", o->letter);
    else printf("--%s", o->name);
    if (o->flags & OPTION_BARE) fputs("=-", stdout); /* the value stands behind =, if there is one */
    else if (o->kind != OPTION_FLAG) putchar(is_letter ? '+' : '=');
    putchar('[');
    zsh_text(o->help);
    putchar(']');
    if (o->kind != OPTION_FLAG) {
        taken t = option_takes(o);
        putchar(':');
        if (o->flags & OPTION_BARE) putchar(':');
        zsh_text(o->value);
        putchar(':');
        print_zsh_action(&t);
    }
    putchar('\'');
}

static void print_zsh_command(const command *c)
{
    char word[MAX_WORD];
    printf("    %s) _arguments '--help[help for this command]'", c->name);
    FOR_EACH_OPTION(c, o)
    {
        if (o->letter) print_zsh_spelling(o, true);
        print_zsh_spelling(o, false);
    }
    for (unsigned i = 0; operand_word(c, i, word); i++) {
        taken t = operand_takes(c, i, word);
        if (repeats(word)) printf(" \\\n      '*:");
        else printf(" \\\n      '%u:", i + 1);
        zsh_text(word);
        putchar(':');
        print_zsh_action(&t);
        putchar('\'');
    }
    printf(" && found=0 ;;\n");
}

static void print_zsh(const command *const *commands)
{
    printf("#compdef hearth\n# Completions of hearth for zsh.\n%s_hearth() {\n"
           "  local program=$words[1] curcontext=$curcontext context state state_descr line found=1\n"
           "  typeset -A opt_args\n"
           "  local -a subcommands=(",
           zsh_functions);
    for (const command *const *c = commands; *c; c++) {
        printf("\n    '%s:", (*c)->name);
        zsh_text((*c)->summary);
        putchar('\'');
    }
    printf(
        "\n  )\n  _arguments -C '(- *)--help[commands]' '(- *)--version[version]' '(- *)--man[man page]' \\\n"
        "    '(- *)--completions[completions for a shell]:shell:(" SHELLS ")' \\\n"
        "    '1:command:->command' '*::argument:->argument' && found=0\n"
        "  case $state in\n"
        "  command) _describe -t commands command subcommands && found=0 ;;\n"
        "  argument)\n    case $words[1] in\n");
    for (const command *const *c = commands; *c; c++) print_zsh_command(*c);
    printf("    esac ;;\n  esac\n  return found\n}\n"
           "if [[ $funcstack[1] == _hearth ]]; then _hearth \"$@\"; else compdef _hearth hearth; fi\n");
}

/* ---- fish ----------------------------------------------------------------------------------------------------- */

static const char fish_functions[] =
    "# Completions of hearth for fish.\n"
    "function __hearth_first\n"
    "    test (count (commandline -opc)) -eq 1\n"
    "end\n"
    "function __hearth_at\n"
    "    set -l words (commandline -opc)\n"
    "    test (count $words) -gt 1; and test $words[2] = $argv[1]\n"
    "end\n"
    "function __hearth_models\n"
    "    set -l words (commandline -opc)\n"
    "    eval $words[1] list --names 2>/dev/null\n"
    "end\n"
    "complete -c hearth -n __hearth_first -f\n"
    "complete -c hearth -n __hearth_first -l help -d 'commands'\n"
    "complete -c hearth -n __hearth_first -l version -d 'version'\n"
    "complete -c hearth -n __hearth_first -l man -d 'man page'\n"
    "complete -c hearth -n '__hearth_first; or __hearth_at --completions' -l completions -x -a '" SHELLS
    "' -d 'completions for a shell'\n";

static void print_fish_arguments(const taken *t)
{
    const char *between = "";
    if (!*t->words && !t->models) return;
    printf(" -a '");
    if (*t->words) printf("%s", t->words), between = " ";
    if (t->models) printf("%s(__hearth_models)", between);
    putchar('\'');
}

static void print_fish_option(const command *c, const option_spec *o)
{
    printf("complete -c hearth -n '__hearth_at %s' -l %s", c->name, o->name);
    if (o->letter) printf(" -s %c", o->letter);
    if (o->kind != OPTION_FLAG) {
        taken t = option_takes(o);
        if (!(o->flags & OPTION_BARE)) printf(t.files ? " -r -F" : " -x");
        print_fish_arguments(&t);
    }
    printf(" -d ");
    quoted(o->help);
    putchar('\n');
}

static void print_fish(const command *const *commands)
{
    fputs(fish_functions, stdout);
    for (const command *const *c = commands; *c; c++) {
        taken all = {.words = ""};
        char word[MAX_WORD];
        printf("complete -c hearth -n __hearth_first -a %s -d ", (*c)->name);
        quoted((*c)->summary);
        putchar('\n');
        for (unsigned i = 0; operand_word(*c, i, word); i++) {
            taken t = operand_takes(*c, i, word);
            all.files |= t.files, all.models |= t.models;
            add_words(&all, t.words);
        }
        printf("complete -c hearth -n '__hearth_at %s'%s", (*c)->name, all.files ? "" : " -f");
        print_fish_arguments(&all);
        printf("\ncomplete -c hearth -n '__hearth_at %s' -l help -d 'help for this command'\n", (*c)->name);
        FOR_EACH_OPTION(*c, o) print_fish_option(*c, o);
    }
}

bool commands_print_completions(const command *const *commands, const char *shell)
{
    if (strcmp(shell, "bash") == 0) {
        print_bash(commands);
    } else if (strcmp(shell, "zsh") == 0) {
        print_zsh(commands);
    } else if (strcmp(shell, "fish") == 0) {
        print_fish(commands);
    } else {
        return false;
    }
    return true;
}
