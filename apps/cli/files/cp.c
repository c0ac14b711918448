/* hearth cp: gives a downloaded model another name. */
#include "cli/commands.h"
#include "common/output.h"
#include "hub/hub.h"

static int run_cp(const args *a)
{
    hub_models models;
    hearth_error err;
    const hub_model *found;
    char name[HUB_NAME];
    hearth_status st = hub_find_models(&models, &err);
    if (st != HEARTH_OK) return report(&err);
    st = hub_find_name(&models, args_operand(a, 0), &found, &err);
    if (st == HEARTH_OK) st = hub_copy(found, args_operand(a, 1), name, &err);
    if (st == HEARTH_OK) printf("%s is %s too\n", printable(found->name), printable(name));
    hub_free_models(&models);
    return st == HEARTH_OK ? 0 : report(&err);
}

const command command_cp = {
    .name = "cp",
    .operands = "NAME NEW",
    .summary = "give a downloaded model another name",
    .details = "NAME as in hearth list, or a unique part of it; NEW is ORG/NAME or a word. Both\n"
               "names share the bytes on the disk, and hearth rm removes one of them. Only\n"
               "models in the cache of Hugging Face are copied so.\n",
    .example = "hearth cp SmolLM2-360M small",
    .run = run_cp,
};
