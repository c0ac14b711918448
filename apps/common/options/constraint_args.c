/* Opens what the options of constraint_args.h ask for. */
#define _GNU_SOURCE
#include "common/options/constraint_args.h"

#include "common/input.h"
#include "common/options/model_args.h"
#include "common/output.h"
#include "base/status.h"

#include <stdlib.h>
#include <string.h>

static const char *const kinds[] = {"json-schema", "json-object", "grammar", "choice"};

int constraint_check(const args *a)
{
    const char *first = NULL;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (!args_has(a, kinds[i])) continue;
        if (first) return usage_error("--%s and --%s contradict each other", first, kinds[i]);
        first = kinds[i];
    }
    if (first && command_offers(a, "ignore-eos") && args_has(a, "ignore-eos"))
        return usage_error("--%s: the text ends where it is complete; leave --ignore-eos out", first);
    return 0;
}

/* A schema begins with a brace, or is a word; a grammar has rules. Anything else is the name of a file. */
static bool is_text(const char *value, bool is_grammar)
{
    const char *begin = value + strspn(value, " \t\r\n");
    if (is_grammar) return strstr(value, "::=") != NULL;
    return *begin == '{' || strcmp(begin, "true") == 0 || strcmp(begin, "false") == 0;
}

/* The text of the options, freed with free. *file: the one that it is from, or NULL. NULL: an error was reported. */
static char *text_of(const args *a, hearth_constraint_options *o, const char **file)
{
    bool is_grammar = o->kind == HEARTH_CONSTRAINT_GRAMMAR;
    const char *value = args_text(a, is_grammar ? "grammar" : "json-schema", "");
    char *text = NULL;
    if (is_text(value, is_grammar)) {
        o->n = strlen(value);
        text = strdup(value);
        if (!text) report_text("out of memory for a constraint");
    } else {
        text = read_whole(value, &o->n);
        *file = value;
        if (text && !make_plain(value, text, &o->n)) {
            free(text);
            return NULL;
        }
    }
    return text;
}

static hearth_status open_choices(const args *a, const hearth_model *model, hearth_constraint **constraint,
                                  hearth_error *err)
{
    hearth_constraint_options o = {.kind = HEARTH_CONSTRAINT_CHOICES};
    const char **list;
    while (args_text_at(a, "choice", o.n_choice)) o.n_choice++;
    list = malloc(o.n_choice * sizeof *list);
    if (!list) return hth_fail_memory(err, o.n_choice * sizeof *list, "the choices");
    for (size_t i = 0; i < o.n_choice; i++) list[i] = args_text_at(a, "choice", i);
    o.choices = list;
    hearth_status st = hearth_constraint_open(model, &o, constraint, err);
    free(list);
    return st;
}

bool constraint_open(const args *a, const hearth_model *model, hearth_constraint **constraint)
{
    hearth_constraint_options o = {.kind = HEARTH_CONSTRAINT_JSON_OBJECT};
    hearth_error err = {.status = HEARTH_OK};
    const char *file = NULL;
    char *text = NULL;
    bool is_schema = args_has(a, "json-schema"), is_grammar = args_has(a, "grammar"),
         has_choices = args_has(a, "choice");
    *constraint = NULL;
    if (!is_schema && !is_grammar && !has_choices && !args_has(a, "json-object")) return true;
    if (is_schema) o.kind = HEARTH_CONSTRAINT_JSON_SCHEMA;
    if (is_grammar) o.kind = HEARTH_CONSTRAINT_GRAMMAR;
    if (is_schema || is_grammar) {
        text = text_of(a, &o, &file);
        if (!text) return false;
        o.text = text;
    }
    hearth_status st = has_choices ? open_choices(a, model, constraint, &err)
                                   : hearth_constraint_open(model, &o, constraint, &err);
    if (st != HEARTH_OK && err.status != HEARTH_OK) {
        if (file) report_text("%s: %s", file, err.message);
        else report(&err);
    }
    free(text);
    return st == HEARTH_OK;
}
