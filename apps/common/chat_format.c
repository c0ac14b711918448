/* Reads --template before a model is opened, so that what is wrong with it is told at once. */
#define _GNU_SOURCE
#include "common/chat_format.h"

#include "chat/chat_formats.h"
#include "chat/template.h"
#include "common/buffer.h"
#include "common/input.h"
#include "common/output.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool refuse_name(const char *given)
{
    buffer names = {0};
    const char *known;
    for (size_t i = 0; (known = hearth_chat_format(i)) != NULL; i++)
        if ((i > 0 && !buffer_add(&names, ", ", 2)) || !buffer_add(&names, known, strlen(known))) break;
    report_text("chat format '%s' is not known; there are %s", given, names.bytes ? names.bytes : "none");
    free(names.bytes);
    return false;
}

static bool read_template(const char *path, chat_format *out)
{
    hth_template *parsed;
    hearth_error err;
    out->text = read_whole(path, &out->n);
    if (!out->text) return false;
    if (hth_template_open(out->text, out->n, &parsed, &err) == HEARTH_OK) {
        hth_template_close(parsed);
        return true;
    }
    report_text("%s: %s", path, err.message);
    chat_format_free(out);
    return false;
}

bool chat_format_read(const char *given, chat_format *out)
{
    *out = (chat_format){0};
    if (!given) return true;
    if (!hth_chat_format_find((hth_str){given, strlen(given)})) {
        const char *end = strrchr(given, '.');
        bool is_file = access(given, F_OK) == 0 || strchr(given, '/') || (end && strcmp(end, ".jinja") == 0);
        return is_file ? read_template(given, out) : refuse_name(given);
    }
    *out = (chat_format){.text = strdup(given), .n = strlen(given), .is_name = true};
    if (!out->text) report_text("out of memory");
    return out->text;
}

void chat_format_free(chat_format *f)
{
    free(f->text);
    *f = (chat_format){0};
}

hearth_status chat_format_open(const chat_format *f, const hearth_model *model, hearth_chat **out,
                               hearth_error *err)
{
    return !f->text || f->is_name ? hearth_chat_open(model, f->text, out, err)
                                  : hearth_chat_open_template(model, f->text, f->n, out, err);
}

const char *wanted_variables(const args *a)
{
    const char *reasoning = args_text(a, "reasoning", "auto");
    if (args_has(a, "template-vars")) return args_text(a, "template-vars", NULL);
    if (strcmp(reasoning, "off") == 0 || args_int(a, "reasoning-budget", -1) == 0) return "{\"enable_thinking\": false}";
    return strcmp(reasoning, "on") == 0 ? "{\"enable_thinking\": true}" : NULL;
}
