/* hearth rm: removes a model that hearth pull downloaded. */
#include "base/format_bytes.h"
#include "base/same.h"
#include "cli/commands.h"
#include "common/output.h"
#include "hub/hub.h"

#include <string.h>
#include <sys/stat.h>

/* Finds a model by name, or by the path of a listed model. */
static hearth_status find(const hub_models *models, const char *text, const hub_model **found,
                          hearth_error *err)
{
    struct stat st;
    bool is_file = stat(text, &st) == 0 && S_ISREG(st.st_mode);
    for (size_t i = 0; is_file && i < models->n; i++)
        if (hth_same_file(models->at[i].path, text)) {
            *found = &models->at[i];
            return HEARTH_OK;
        }
    if (is_file)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT,
                        "%s: is not of hearth pull, so it stays: rm removes files", text);
    return hub_find_name(models, text, found, err);
}

static int run_rm(const args *a)
{
    hub_models models;
    hearth_error err;
    const hub_model *found;
    uint64_t freed = 0;
    if (!*args_operand(a, 0)) return usage_error("the name of the model is empty");
    hearth_status st = hub_find_models(&models, &err);
    if (st != HEARTH_OK) return report(&err);
    st = find(&models, args_operand(a, 0), &found, &err);
    if (st != HEARTH_OK) hub_remove_begun(args_operand(a, 0), &freed);
    if (st != HEARTH_OK && freed > 0) {
        printf("removed the begun download of %s: %s freed\n", printable(args_operand(a, 0)),
               hth_format_bytes(freed).text);
        hub_free_models(&models);
        return 0;
    }
    if (st == HEARTH_OK) st = hub_remove(found, &freed, &err);
    if (st == HEARTH_OK)
        printf("removed %s: %s freed\n", printable(found->name), hth_format_bytes(freed).text);
    hub_free_models(&models);
    return st == HEARTH_OK ? 0 : report(&err);
}

const command command_rm = {
    .name = "rm",
    .operands = "NAME",
    .summary = "remove a downloaded model",
    .details = "NAME as in hearth list, or a unique part of it. Only the cache of Hugging Face\n"
               "is changed, whichever program filled it: models of other programs and files\n"
               "elsewhere are refused. There is no confirmation.\n",
    .example = "hearth rm SmolLM2-360M",
    .run = run_rm,
};
