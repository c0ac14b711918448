/* A chat of hearth.h, for chat.c, answer.c and constraint.c. */
#ifndef HTH_ENGINE_CHAT_INT_H
#define HTH_ENGINE_CHAT_INT_H

#include "chat/answer.h"
#include "chat/chat_formats.h"
#include "chat/functions.h"
#include "engine/engine.h"

struct hearth_chat {
    hth_ref ref; /* references of the caller and of answers */
    const hearth_model *model;
    hth_template *template;        /* NULL: format renders */
    const hth_chat_format *format; /* NULL: template renders */
    const char *name;
    char *source; /* [n_source] and a NUL; NULL without a template */
    size_t n_source;
    hth_template *with_functions;         /* template of requests with functions; NULL: the same one */
    const hth_call_format *calls;         /* NULL: the template shows no functions */
    bool shows_calls;                     /* it shows calls, too */
    const hth_reasoning_marks *reasoning; /* NULL: none */
};

static inline bool hth_chat_shows_functions(const hearth_chat *chat) { return chat->template && chat->calls; }
/* How the model writes calls. */
static inline const hth_call_format *hth_chat_calls(const hearth_chat *chat)
{
    return chat->calls ? chat->calls : hth_call_format_plain();
}

/* A conversation as a text, with a NUL behind it, and as ids; both are freed with hearth_free. */
typedef struct hth_chat_prompt {
    char *text;
    size_t n_text;
    int32_t *ids; /* NULL: they are not wanted */
    size_t n_ids;
} hth_chat_prompt;
/* Renders once for what hearth_chat_render and hearth_chat_tokenize give. */
hearth_status hth_chat_make_prompt(const hearth_chat *chat, const hearth_message *messages, size_t n_message,
                                   const hearth_chat_options *options, bool with_ids, hth_chat_prompt *out,
                                   hearth_error *err);

#endif
