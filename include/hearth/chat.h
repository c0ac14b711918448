/* Conversations: the prompt of one, and the parts of an answer. */
#ifndef HEARTH_CHAT_H
#define HEARTH_CHAT_H

#include <hearth/model.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How a conversation becomes the text that a model was trained on: the template in its file, another one, or a
 * format by name. Immutable; any number of threads may use it. */
typedef struct hearth_chat hearth_chat;

/* Opens a chat. format NULL: the template in the model's file (tokenizer.chat_template). If it cannot be parsed: a
 * warning, and the format that it most likely implements. A second one, tokenizer.chat_template.tool_use, renders
 * conversations with functions or calls.
 * Errors: UNSUPPORTED: there is no template, no format has that name (the message lists them), or the template has
 * what this subset of Jinja does not support, and no format is like it; FORMAT: the same, with bad syntax; MEMORY.
 * Ownership: *out is the caller's, until hearth_chat_close, and keeps the model.
 * Threads: any. */
HEARTH_API hearth_status hearth_chat_open(const hearth_model *model, const char *format,
                                          hearth_chat **out, hearth_error *err);

/* Opens a Jinja template of source[n] bytes. Messages name its line.
 * Errors: FORMAT: bad syntax; UNSUPPORTED: what this subset does not support, or beyond its limits; MEMORY.
 * Ownership: *out is the caller's, until hearth_chat_close, and keeps the model.
 * Threads: any. */
HEARTH_API hearth_status hearth_chat_open_template(const hearth_model *model, const char *source,
                                                   size_t n, hearth_chat **out, hearth_error *err);

/* Closes a chat. What was opened with it does not need it any more.
 * Errors: none.
 * Ownership: gives up the caller's reference.
 * Threads: any, but not beside another function of it. */
HEARTH_API void hearth_chat_close(hearth_chat *chat);

/* Returns "template of the file", "template", or the name of a format.
 * Errors: none.
 * Ownership: the text is the library's, and stays.
 * Threads: any. */
HEARTH_API const char *hearth_chat_name(const hearth_chat *chat);

/* Returns the Jinja template as it is written: *n bytes and a NUL; NULL, and 0: the chat has a format by name.
 * Errors: none.
 * Ownership: the chat's, valid until it is closed.
 * Threads: any. */
HEARTH_API const char *hearth_chat_source(const hearth_chat *chat, size_t *n);

/* Returns the name of the i-th format; NULL past the last.
 * Errors: none.
 * Ownership: the text is the library's, and stays.
 * Threads: any. */
HEARTH_API const char *hearth_chat_format(size_t i);

typedef struct hearth_message {
    const char *role;    /* "system", "user", "assistant", "tool": at most 64 letters, digits, - and _; counts as
                            template text */
    const char *content; /* n arbitrary bytes */
    size_t n;
    const char *members; /* a JSON object of more members, in OpenAI's form: "name", "reasoning_content", "tool_calls",
                            "tool_call_id"; or NULL. Arguments of calls, which are a text there, become an object for
                            the template, and are written as that text. Formats by name use none of them */
    const void *reserved[2];
} hearth_message;

typedef struct hearth_chat_options {
    size_t size;                /* of this struct: Versions in hearth.h */
    bool add_generation_prompt; /* end the text with the prompt for the model's answer */
    const int64_t *local_time;  /* local time in seconds since 1970, for templates that write the date; NULL: they
                                   get none */
    const char *variables;      /* a JSON object of more variables for the template, or NULL. Those with a name of
                                   the template's own ("messages") take its place */
    const char *tools;          /* the functions that the model may call, a JSON array in OpenAI's form, or NULL. A
                                   template that shows none is given them as a text of the system's */
} hearth_chat_options;

/* Returns zeros, and size.
 * Errors: none.
 * Ownership: nothing is kept.
 * Threads: any. */
HEARTH_API hearth_chat_options hearth_chat_defaults(void);

/* Gives the text of a conversation of messages[n_message]: (*text)[*n], and a NUL.
 * Errors: ARGUMENT: the template rejects the messages, a role is not such a word, or a field is wrong; FORMAT: the
 * template cannot compute something, or members, variables or tools are no JSON; UNSUPPORTED: beyond its limits, or
 * the vocabulary is not; MEMORY.
 * Ownership: *text is the caller's, to be freed with hearth_free.
 * Threads: any. */
HEARTH_API hearth_status hearth_chat_render(const hearth_chat *chat, const hearth_message *messages,
                                            size_t n_message, const hearth_chat_options *options,
                                            char **text, size_t *n, hearth_error *err);

/* Gives the ids of a conversation, (*ids)[*n_ids], with one begin-of-text token if the vocabulary requires it. The
 * texts of control tokens become these tokens where the template wrote them, never in message content.
 * Errors: as of hearth_chat_render.
 * Ownership: *ids is the caller's, to be freed with hearth_free.
 * Threads: any. */
HEARTH_API hearth_status hearth_chat_tokenize(const hearth_chat *chat, const hearth_message *messages,
                                              size_t n_message, const hearth_chat_options *options,
                                              int32_t **ids, size_t *n_ids, hearth_error *err);

/* ---- answers ---------------------------------------------------------------- */

/* Divides what a chat model generates into reasoning, text and calls of functions, by the marks that its template has.
 * For one answer. Used by one thread at a time, on which fn runs. */
typedef struct hearth_answer hearth_answer;

typedef enum hearth_answer_kind {
    HEARTH_ANSWER_TEXT = 0,
    HEARTH_ANSWER_REASONING,
    HEARTH_ANSWER_CALL,      /* a call begins: the name of its function */
    HEARTH_ANSWER_ARGUMENTS, /* a part of the arguments of that call; all parts together are JSON, if the model kept
                                to its format */
} hearth_answer_kind;

/* n > 0 bytes that are valid during the call; characters are whole where the model generates UTF-8. */
typedef void hearth_answer_fn(void *user, hearth_answer_kind kind, const char *text, size_t n);

typedef struct hearth_answer_options {
    size_t size;             /* of this struct: Versions in hearth.h */
    const hearth_chat *chat; /* NULL: all is text */
    bool at_start;           /* as of a detokenizer */
    bool in_reasoning;       /* the prompt has begun the reasoning (hearth_chat_is_reasoning), if the chat has any */
    const char *tools;       /* as given to the chat; NULL: calls of functions are text as any other */
    hearth_answer_fn *fn;    /* gets the parts; must not be NULL */
    void *user;              /* passed to fn: valid until the answer is closed */
} hearth_answer_options;

/* Returns zeros, and size.
 * Errors: none.
 * Ownership: nothing is kept.
 * Threads: any. */
HEARTH_API hearth_answer_options hearth_answer_defaults(void);

/* Returns whether a prompt of hearth_chat_tokenize, ids[n_ids], ends within reasoning; false also for ids out of
 * range.
 * Errors: none.
 * Ownership: nothing is kept.
 * Threads: any. */
HEARTH_API bool hearth_chat_is_reasoning(const hearth_chat *chat, const int32_t *ids, size_t n_ids);

/* Opens an answer of the model.
 * Errors: ARGUMENT: an option; UNSUPPORTED, FORMAT: the vocabulary is not supported, or none; MEMORY.
 * Ownership: *out is the caller's, until hearth_answer_close, and keeps the model, not the chat. user is passed to fn
 * as it is.
 * Threads: any. */
HEARTH_API hearth_status hearth_answer_open(const hearth_model *model, const hearth_answer_options *options,
                                            hearth_answer **out, hearth_error *err);

/* Closes an answer. What was kept back is dropped.
 * Errors: none.
 * Ownership: gives it up.
 * Threads: any, but not beside another function of it. */
HEARTH_API void hearth_answer_close(hearth_answer *answer);

/* Takes a token. What may be the beginning of a mark is kept back.
 * Errors: ARGUMENT: id exceeds the rows of the model, or the answer is finished; MEMORY.
 * Ownership: nothing is kept. The text that fn gets is valid during its call.
 * Threads: one at a time. fn is called on the calling thread. */
HEARTH_API hearth_status hearth_answer_push(hearth_answer *answer, int32_t id, hearth_error *err);

/* Gives what was kept back. No token can follow.
 * Errors: MEMORY.
 * Ownership: as of hearth_answer_push.
 * Threads: one at a time. fn is called on the calling thread. */
HEARTH_API hearth_status hearth_answer_finish(hearth_answer *answer, hearth_error *err);

#ifdef __cplusplus
}
#endif
#endif
