/* Decides which files a command may replace. */
#define _GNU_SOURCE
#include "common/output_file.h"

#include "base/format_errno.h"
#include "base/same.h"
#include "common/output.h"
#include "common/text_file.h"
#include "file/gguf.h"
#include "file/imatrix.h"
#include "model/model.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

const option_spec output_options[] = {FORCE_OPTION, {0}};

/* Identification of each kind of file: its general.architecture or another one, the command that made it, or the text
 * that it begins with. */
static const struct {
    const char *words, *architecture, *made_by, *text, *other_architecture;
} kinds[] = {
    [OUTPUT_MODEL] = {"a model that Hearth made", NULL, NULL, NULL, NULL},
    [OUTPUT_SYNTHETIC] = {"a model of hearth synth", NULL, "synth", NULL, NULL},
    [OUTPUT_PROFILE] = {"a profile", "hearth.profile", NULL, NULL, "hearth.trace"},
    [OUTPUT_PREDICTORS] = {"a file of predictors", "hearth.predictors", NULL, NULL, NULL},
    [OUTPUT_THRESHOLDS] = {"a file of thresholds", "hearth.thresholds", NULL, NULL, NULL},
    [OUTPUT_PLACEMENT] = {"a placement", "hearth.placement", NULL, NULL, NULL},
    [OUTPUT_IMATRIX] = {"an importance matrix of hearth imatrix", NULL, HTH_IMATRIX_TYPE, NULL, NULL},
    [OUTPUT_PAGE] = {"a page of hearth study", NULL, NULL, "<!DOCTYPE html>\n<!-- The page that `hearth study", NULL},
    [OUTPUT_TABLE] = {"a table of hearth study", NULL, NULL, "layer,measure,x,value\n", NULL},
    [OUTPUT_SESSION] = {"a saved session", NULL, NULL, SAVED_SESSION_MAGIC, NULL},
    [OUTPUT_LOGITS] = {NULL, NULL, NULL, NULL, NULL},
};

/* A model and an importance matrix record the command that made them; a sidecar has its architecture. A file that is not a GGUF file is
 * not an error. */
static hearth_status check_gguf(const char *path, output_kind kind, bool *is_ours, hearth_error *err)
{
    hth_gguf *file;
    hth_str architecture = {0}, made_by = {0};
    *is_ours = false;
    hearth_status st = hth_gguf_open(path, &file, err);
    if (st != HEARTH_OK) return st == HEARTH_ERROR_MEMORY || st == HEARTH_ERROR_IO ? st : HEARTH_OK;
    hth_gguf_get_text(file, "general.architecture", &architecture, NULL, NULL);
    hth_gguf_get_text(file, HTH_KEY_MADE_BY, &made_by, NULL, NULL);
    const char *other = kinds[kind].other_architecture;
    if (kinds[kind].architecture)
        *is_ours = hth_str_eq(architecture, kinds[kind].architecture) || (other && hth_str_eq(architecture, other));
    else if (kinds[kind].made_by) *is_ours = hth_str_eq(made_by, kinds[kind].made_by);
    else *is_ours = made_by.n > 0 && !hth_str_eq(made_by, HTH_IMATRIX_TYPE);
    hth_gguf_close(file);
    return HEARTH_OK;
}

int check_output(const args *a, const char *out, output_kind kind, const input *inputs, size_t n)
{
    struct stat there;
    if (strcmp(out, "-") == 0) return usage_error("the output is a file; '-' is not one");
    if (out[0] == '\0') return usage_error("the output needs a name");
    for (size_t i = 0; i < n; i++) {
        const char *path = inputs[i].path;
        if (path && strcmp(path, "-") != 0 && hth_same_file(path, out))
            return usage_error("%s is read and written: %s would be lost", out, inputs[i].name);
    }
    if (stat(out, &there) != 0) {
        /* A file that may not be looked at is no file that is not there. The writer reports what else is wrong. */
        if (errno != EACCES) return 0;
        return report_text("%s: %s", out, hth_format_errno(errno).text);
    }
    if (args_has(a, "force") || !S_ISREG(there.st_mode) || there.st_size == 0)
        return 0;
    if (kind == OUTPUT_LOGITS) return usage_error("%s exists; --force replaces it", out);
    bool ours = kinds[kind].text && is_empty_or_begins(out, kinds[kind].text);
    hearth_error err;
    if (!kinds[kind].text && check_gguf(out, kind, &ours, &err) != HEARTH_OK) return report(&err);
    if (ours) return 0;
    return usage_error("%s exists and is not %s; --force replaces it", out, kinds[kind].words);
}

bool name_one_file(const char *one, const char *other)
{
    char places[2][HTH_PATH_MAX];
    if (strcmp(one, other) == 0 || hth_same_file(one, other)) return true;
    return hth_atomic_writer_target(one, places[0]) && hth_atomic_writer_target(other, places[1]) &&
           strcmp(places[0], places[1]) == 0;
}

int check_two_outputs(const char *one, const char *other)
{
    if (!name_one_file(one, other)) return 0;
    return usage_error("%s and %s are one file: each output needs its own", one, other);
}
