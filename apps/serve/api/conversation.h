/* The messages of a request, as hearth_chat_render takes them. Each API reads its own form into them. */
#ifndef HEARTH_APPS_SERVE_API_CONVERSATION_H
#define HEARTH_APPS_SERVE_API_CONVERSATION_H

#include "common/buffer.h"
#include "serve/api/fields.h"

enum { MAX_MESSAGES = 4096 };

typedef struct conversation {
    hearth_message *at; /* [n] their texts are a document's, or in owned */
    size_t n, capacity;
    char **owned; /* [n_owned] */
    hth_arena documents; /* holds parsed JSON of stored items */
    size_t n_owned, owned_capacity;
    bool keeps_billing; /* a billing header at the beginning of a system's text stays in it */
} conversation;

/* One message more; its texts live as long as the conversation. members: a line that was begun, which this ends;
 * NULL: it has none. False: memory ran out. */
bool conversation_add(conversation *c, const char *role, const char *content, size_t n, json_line *members);
/* A text that the conversation frees. False, and it is freed: NULL, or memory ran out. */
bool conversation_own(conversation *c, char *text);
void conversation_free(conversation *c);

/* Reads the field "messages" of OpenAI's chat API, which Ollama's has as well: roles system, developer (as system),
 * user, assistant, tool and function (as tool); contents that are a text, null, or an array of text parts; calls of
 * functions, their ids, names, reasoning. False: f->problem says why. */
bool conversation_read(fields *f, conversation *out);

/* Calls fn, whose user is the conversation, for each object of the field "messages", which must be there. */
bool messages_each(fields *f, fields_fn *read, conversation *out);

/* The field "images" of Ollama's messages and requests: an empty array is taken. */
bool images_refuse(fields *f);

/* The text of a value that is a text or an array of objects with the member "text" and one of the types, a list like
 * "text|input_text"; others are refused by name. *text: the document's, or owned by the conversation. */
bool content_read(fields *f, const char *name, const char *types, conversation *owner, const char **text,
                  size_t *n);
/* Writes {"id", "type", "function": {"name", "arguments"}} into an array of calls; arguments: n bytes of any text. */
void call_write(json *j, const char *id, const char *name, const char *arguments, size_t n);
/* The text of the arguments of a call that a client sends back: a text is itself, whatever the model wrote; nothing is
 * "{}"; another value its JSON, owned by the conversation. */
bool arguments_read(fields *f, const char *name, conversation *owner, const char **text, size_t *n);
/* Writes arguments where an API has an object: what is none is the one member of it. */
void arguments_write_object(json *j, const char *key, const char *arguments, size_t n);

/* An answer of the assistant's that comes in parts: each is set before turn_end adds the message. */
typedef struct assistant_turn {
    conversation *owner;
    const char *text, *reasoning;
    size_t n_text, n_reasoning;
    json_line members;
    bool has_text, has_reasoning, has_calls;
} assistant_turn;

/* text and reasoning live as long as the conversation. False: memory ran out. */
bool turn_call(assistant_turn *t, const char *id, const char *name, const char *arguments, size_t n);
/* Adds the message, if there is one. */
bool turn_end(assistant_turn *t);
/* Drops it. */
void turn_drop(assistant_turn *t);

#endif
