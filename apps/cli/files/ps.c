/* hearth ps and hearth stop: the models that a server has in memory. */
#define _GNU_SOURCE
#include "base/format_bytes.h"
#include "cli/commands.h"
#include "common/ask_server.h"
#include "common/json.h"
#include "common/output.h"
#include "text/json.h"

#include <stdlib.h>
#include <string.h>

static const option_spec ps_options[] = {
    SERVER_OPTIONS, OPT_FLAG("json", 0, "print the server's answer"), {0}};
static const option_spec stop_options[] = {SERVER_OPTIONS, {0}};

static const char *word_of(const hth_json *object, const char *name)
{
    const char *text = hth_json_text(hth_json_member(object, name));
    return text ? text : "";
}

static uint64_t number_of(const hth_json *object, const char *name)
{
    const hth_json *v = hth_json_member(object, name);
    return hth_json_kind_of(v) == HTH_JSON_INTEGER && v->integer > 0 ? (uint64_t)v->integer : 0;
}

static void print_models(const hth_json *models)
{
    int width = 4;
    for (const hth_json *m = hth_json_first(models); m; m = m->next)
        if ((int)strlen(printable(word_of(m, "name"))) > width)
            width = (int)strlen(printable(word_of(m, "name")));
    printf("%-*s  %10s  %s\n", width, "NAME", "SIZE", "CONTEXT");
    for (const hth_json *m = hth_json_first(models); m; m = m->next)
        printf("%-*s  %10s  %7llu\n", width, printable(word_of(m, "name")),
               hth_format_bytes(number_of(m, "size")).text,
               (unsigned long long)number_of(m, "context_length"));
}

/* The answer of /api/ps, closed with hth_json_close; *text: as it came, freed with free. NULL: an error was reported. */
static hth_json *ask_models(const args *a, char **text)
{
    size_t n;
    hearth_error err;
    *text = ask_server(a, "/api/ps", NULL, &n);
    hth_json *document = *text ? hth_json_open(*text, n, NULL, &err) : NULL;
    if (*text && !document) report(&err);
    return document;
}

static int run_ps(const args *a)
{
    char *text;
    hth_json *document = ask_models(a, &text);
    if (document && args_has(a, "json")) printf("%s\n", text);
    else if (document) print_models(hth_json_member(document, "models"));
    int status = document ? 0 : EXIT_OTHER;
    hth_json_close(document);
    free(text);
    return status;
}

/* A server of one model takes any name for it: stop must not. */
static bool is_there(const args *a, const char *name)
{
    char *text;
    hth_json *document = ask_models(a, &text);
    bool found = false;
    for (const hth_json *m = hth_json_first(hth_json_member(document, "models")); m; m = m->next)
        found |= strcmp(word_of(m, "name"), name) == 0;
    if (document && !found) report_text("'%s' is not in memory; hearth ps lists what is", name);
    hth_json_close(document);
    free(text);
    return found;
}

static int run_stop(const args *a)
{
    const char *name = args_operand(a, 0);
    char *body = NULL, *answer = NULL;
    size_t n;
    if (!is_there(a, name)) return EXIT_OTHER;
    FILE *f = open_memstream(&body, &n);
    if (!f) return report_text("out of memory for a request");
    json j = json_begin(f);
    json_word(&j, "model", name);
    json_int(&j, "keep_alive", 0);
    json_end(&j);
    if (fclose(f) == 0) answer = ask_server(a, "/api/generate", body, &n);
    if (answer) print_status("%s leaves memory", printable(name));
    free(body);
    free(answer);
    return answer ? 0 : EXIT_OTHER;
}

const command command_ps = {
    .name = "ps",
    .operands = "",
    .summary = "list the models that a server has in memory",
    .details = "Asks a hearth serve that runs. HEARTH_API_KEY is the key, if it wants one.\n",
    .example = "hearth ps --port 8080",
    .groups = {ps_options},
    .run = run_ps,
};

const command command_stop = {
    .name = "stop",
    .operands = "NAME",
    .summary = "let a server drop a model from memory",
    .details = "NAME as hearth ps shows it. The model leaves when its requests have ended; the\n"
               "next request for it loads it again. HEARTH_API_KEY is the key, if one is wanted.\n",
    .example = "hearth stop model.gguf",
    .groups = {stop_options},
    .run = run_stop,
};
