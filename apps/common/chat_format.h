/* The option --template: a chat format by name, or a file with a Jinja template. */
#ifndef HEARTH_APPS_COMMON_CHAT_FORMAT_H
#define HEARTH_APPS_COMMON_CHAT_FORMAT_H

#include "common/options/options.h"

#include <hearth/hearth.h>

/* The rows of an option table for what a template is given beside the messages. */
#define TEMPLATE_VARIABLE_OPTIONS                                                                            \
    OPT_TEXT("template-vars", 0, "JSON", "its variables: {\"enable_thinking\": false}"),                     \
        OPT_CHOICE("reasoning", 0, "HOW", "on|off|auto", "enable_thinking of the template; auto: as it says"), \
        OPT_INT("reasoning-budget", 0, "N", -1, 0, "0: the same as --reasoning off; -1: no limit", ADVANCED)

typedef struct chat_format {
    char *text; /* [n] the name, or the template; NULL: none is given, and that of the model is taken */
    size_t n;
    bool is_name;
} chat_format;

/* given NULL: none. A file is read, and its template parsed. False: an error was reported. */
bool chat_format_read(const char *given, chat_format *out);
void chat_format_free(chat_format *f);
/* As hearth_chat_open or hearth_chat_open_template. */
hearth_status chat_format_open(const chat_format *f, const hearth_model *model, hearth_chat **out,
                               hearth_error *err);

/* The variables of these options as JSON; NULL: none are given. */
const char *wanted_variables(const args *a);

#endif
