/* The messages of a chat request, as hearth_chat_render takes them. */
#ifndef HEARTH_APPS_SERVE_MESSAGES_H
#define HEARTH_APPS_SERVE_MESSAGES_H

#include "serve/fields.h"

enum { MAX_MESSAGES = 4096 };

typedef struct messages {
    hearth_message *at; /* their texts are the document's, or in joined */
    char **joined;      /* [n] texts of parts; NULL: none */
    size_t n;
} messages;

/* Reads the field "messages": roles system, developer (as system), user, assistant, tool and function (as tool);
 * contents that are a text, null, or an array of text parts. False: f->problem says why. */
bool messages_read(fields *f, messages *out);
void messages_free(messages *m);

#endif
