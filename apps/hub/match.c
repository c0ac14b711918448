/* Matches a name, a part of one, or a near misspelling to a listed model. */
#define _GNU_SOURCE
#include "hub/parts.h"

#include "base/distance.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

size_t hub_match(const hub_models *models, const char *text, const hub_model **found)
{
    size_t n[2] = {0, 0};
    const hub_model *first[2] = {NULL, NULL};
    for (size_t i = models->n; i-- > 0;) {
        const hub_model *m = &models->at[i];
        if (hub_equal(m->name, text)) first[0] = m, n[0]++;
        if (hub_find_text(m->name, text)) first[1] = m, n[1]++;
    }
    *found = n[0] ? first[0] : first[1];
    return n[0] ? n[0] : n[1];
}

static void lower(const char *text, char out[HUB_NAME])
{
    size_t i = 0;
    for (; text[i] && i + 1 < HUB_NAME; i++) out[i] = (char)tolower((unsigned char)text[i]);
    out[i] = '\0';
}

/* NULL: none is near enough to be a typing error. */
static const hub_model *nearest(const hub_models *models, const char *text)
{
    const hub_model *best = NULL;
    char word[HUB_NAME], name[HUB_NAME];
    size_t min = strlen(text) / 3 + 1;
    lower(text, word);
    for (size_t i = 0; i < models->n && strlen(text) < HUB_NAME; i++) {
        lower(models->at[i].name, name);
        size_t d = hth_edit_distance(word, name, true);
        if (d < min) best = &models->at[i], min = d;
    }
    return best;
}

static hearth_status refuse_unknown(const hub_models *models, const char *text, hearth_error *err)
{
    const hub_model *near = nearest(models, text);
    const char *colon = strchr(text, ':');
    char repo[200] = "";
    size_t n = colon ? (size_t)(colon - text) : strlen(text);
    if (n < sizeof repo) snprintf(repo, sizeof repo, "%.*s", (int)n, text);
    if (access(text, F_OK) == 0)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT, "%.200s: this is a file; a model by its name in hearth list is expected", text);
    if (near)
        return hth_fail(err, HEARTH_ERROR_ARGUMENT,
                        "%.200s: no such file, and no model is called so; is it %s? See hearth list", text,
                        near->name);
    if (strchr(repo, '/') && hub_is_repo(repo))
        return hth_fail(err, HEARTH_ERROR_ARGUMENT,
                        "%.200s: no such file, and no model is called so; hearth pull %.200s brings it, if "
                        "the hub has it",
                        text, text);
    return hth_fail(err, HEARTH_ERROR_ARGUMENT,
                    "%.200s: no such file, and no model is called so; hearth list shows those that are here",
                    text);
}

/* Lists the candidates that fit the message. */
static hearth_status fail_ambiguous(const hub_models *models, const char *text, size_t n_match,
                                    hearth_error *err)
{
    char list[400] = "";
    size_t n = 0, n_named = 0;
    bool exact = false;
    for (size_t i = 0; i < models->n; i++) exact |= hub_equal(models->at[i].name, text);
    for (size_t i = 0; i < models->n; i++) {
        const hub_model *m = &models->at[i];
        if (exact ? !hub_equal(m->name, text) : !hub_find_text(m->name, text)) continue;
        const char *shown = exact ? m->path : m->name; /* equal names differ in their paths only */
        size_t more = strlen(shown) + 2;
        if (n + more + 20 > sizeof list) break;
        n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", n_named++ ? ", " : "", shown);
    }
    if (n_named < n_match)
        snprintf(list + n, sizeof list - n, "%s%zu more", n_named ? ", " : "", n_match - n_named);
    return hth_fail(err, HEARTH_ERROR_ARGUMENT, "'%.100s' could be %zu models: %s%s", text, n_match, list,
                    exact ? "; name the path" : "");
}

hearth_status hub_find_name(const hub_models *models, const char *text, const hub_model **found,
                            hearth_error *err)
{
    size_t n = *text ? hub_match(models, text, found) : 0;
    if (n == 1) return HEARTH_OK;
    return n == 0 ? refuse_unknown(models, text, err) : fail_ambiguous(models, text, n, err);
}

static bool looks_like_path(const char *text)
{
    size_t n = strlen(text);
    return n == 0 || text[0] == '/' || text[0] == '.' || (n > 5 && hub_equal(text + n - 5, ".gguf"));
}

hearth_status hub_resolve(const char *operand, char path[HUB_PATH], hearth_error *err)
{
    struct stat st;
    hub_models models;
    const hub_model *found = NULL;
    bool is_there = stat(operand, &st) == 0, is_path = looks_like_path(operand);
    if (is_there || !*operand || operand[0] == '/')
        return hub_path(path, "%s", operand) || !*operand
                   ? HEARTH_OK
                   : hth_fail(err, HEARTH_ERROR_ARGUMENT, "%.200s...: is too long", operand);
    hearth_status status = hub_find_models(&models, err);
    if (status != HEARTH_OK) return status;
    /* An operand that looks like a path and is not a name is opened as a file, so that the message is the
     * system's. */
    if (is_path && hub_match(&models, operand, &found) == 0) {
        if (!hub_path(path, "%s", operand))
            status = hth_fail(err, HEARTH_ERROR_ARGUMENT, "%.200s...: is too long", operand);
    } else {
        status = hub_find_name(&models, operand, &found, err);
        if (status == HEARTH_OK && !hub_path(path, "%s", found->path))
            status = hth_fail(err, HEARTH_ERROR_ARGUMENT, "%.200s: its path is too long", operand);
    }
    hub_free_models(&models);
    return status;
}
