/* hearth chat without a model: lets the user choose from the models of hearth list. */
#define _GNU_SOURCE
#include "cli/run/chat.h"

#include "base/format_bytes.h"
#include "hub/hub.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_SHOWN = 30 };

static void show(const hub_models *models)
{
    for (size_t i = 0; i < models->n && i < MAX_SHOWN; i++)
        fprintf(stderr, "  %2zu  %s  %s\n", i + 1, printable(models->at[i].name),
                hth_format_bytes(models->at[i].size).text);
    if (models->n > MAX_SHOWN) fprintf(stderr, "      and %zu more: hearth list\n", models->n - MAX_SHOWN);
}

/* Reads a number of the list, 1 to n; 0: end of input. */
static size_t ask(size_t n)
{
    char *line = NULL;
    size_t capacity = 0, chosen = 0;
    uint64_t number;
    while (chosen == 0 && !interrupted()) {
        fprintf(stderr, "Which one? [1-%zu] ", n);
        ssize_t got = getline(&line, &capacity, stdin);
        if (got <= 0) break;
        line[strcspn(line, "\n")] = '\0';
        if (parse_uint(line, &number) && number >= 1 && number <= n) chosen = (size_t)number;
    }
    free(line);
    return chosen;
}

int chat_choose_model(char path[CHAT_PATH])
{
    hub_models models;
    hearth_error err;
    int status = EXIT_USAGE;
    if (hub_find_models(&models, &err) != HEARTH_OK) return report(&err);
    if (models.n == 0) {
        report_text("there is no model to talk with yet. A small one, 0.3 GiB:");
        fputs("  hearth pull bartowski/SmolLM2-360M-Instruct-GGUF:Q4_K_M, then hearth chat SmolLM2\n",
              stderr);
    } else if (isatty(STDIN_FILENO) != 1 || isatty(STDERR_FILENO) != 1) {
        report_text("chat wants a model: hearth chat NAME, with a name of hearth list (%zu are there)",
                    models.n);
    } else {
        show(&models);
        size_t chosen = ask(models.n < MAX_SHOWN ? models.n : MAX_SHOWN);
        if (chosen > 0) snprintf(path, CHAT_PATH, "%s", models.at[chosen - 1].path), status = 0;
        else fputc('\n', stderr);
        if (interrupted()) status = EXIT_SIGNAL + interrupted();
    }
    hub_free_models(&models);
    return status;
}
