/* Resolves names of models when arguments are parsed, so that all later code sees paths. */
#include "common/model_name.h"

#include "common/options.h"
#include "common/output.h"
#include "hub/hub.h"

#include <stdlib.h>
#include <string.h>

int resolve_model(const char *name, const char **path)
{
    enum { MAX_MODELS = 80 }; /* operands and options of one command that are models */
    static char *resolved[MAX_MODELS];
    static size_t n;
    char found[HUB_PATH];
    hearth_error err;
    if (!*name) return usage_error("the name of the model is empty");
    if (hub_resolve(name, found, &err) != HEARTH_OK) return report(&err);
    *path = name;
    if (strcmp(found, name) == 0) return 0;
    if (n == MAX_MODELS) return usage_error("more than %d models", MAX_MODELS);
    resolved[n] = malloc(strlen(found) + 1);
    if (!resolved[n]) return report_text("out of memory for a path");
    *path = strcpy(resolved[n++], found);
    return 0;
}
