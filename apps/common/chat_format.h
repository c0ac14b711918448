/* The option --template: a chat format by name, or a file with a Jinja template. */
#ifndef HEARTH_APPS_COMMON_CHAT_FORMAT_H
#define HEARTH_APPS_COMMON_CHAT_FORMAT_H

#include <hearth/hearth.h>

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

#endif
