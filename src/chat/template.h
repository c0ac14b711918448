/* Chat templates: the subset of Jinja that models use. Neither messages nor templates are trusted. The result is a
 * list of parts: bytes that the template wrote are template text, bytes that came in as message content are not,
 * through every string operation. Special tokens may be searched only in template text, so a message that contains
 * `<|im_end|>` cannot produce the token. Semantics are those of Python's Jinja2 with trim_blocks and
 * lstrip_blocks, except that case applies to ASCII only and that lists can be appended to. */
#ifndef HTH_CHAT_TEMPLATE_H
#define HTH_CHAT_TEMPLATE_H

#include "text/tokenizer.h"

/* Limits. Exceeding one is an error, never a hang. */
enum {
    HTH_TEMPLATE_MAX_SOURCE = 4 << 20,  /* bytes of a template */
    HTH_TEMPLATE_MAX_NESTING = 64,      /* nesting of statements and expressions */
    HTH_TEMPLATE_MAX_CALLS = 64,        /* nested macro calls */
    HTH_TEMPLATE_MAX_NODES = 1000000,   /* evaluated per rendering */
    HTH_TEMPLATE_MAX_OUTPUT = 16 << 20, /* bytes of text */
    HTH_TEMPLATE_MAX_MEMORY = 16 << 20, /* bytes in use while parsing, and while rendering */
};

typedef struct hth_template hth_template;

/* Parses n bytes. The template is then immutable; any number of threads may render with it. FORMAT for bad syntax,
 * UNSUPPORTED for an unknown construct, filter or test and for limits. The message names the line. */
hearth_status hth_template_open(const char *source, size_t n, hth_template **out, hearth_error *err);
void hth_template_close(hth_template *t);

/* role is a word of letters, digits, - and _ (at most 64). It counts as template text, because templates make
 * special tokens of it. content may be any bytes. */
typedef struct hth_message {
    hth_str role, content;
    hth_str members; /* a JSON object of more members, or empty: hearth_message */
    const hth_text_part *parts; /* [n_part] content again, some of which is template text; NULL: nothing of it is */
    size_t n_part;
} hth_message;

typedef struct hth_template_input {
    const hth_message *messages;
    size_t n_message;
    bool add_generation_prompt;
    hth_str bos, eos;       /* texts of these tokens, or empty */
    const int64_t *seconds; /* local time since 1970; NULL: strftime_now is not defined */
    hth_str variables;      /* a JSON object whose members become variables, or empty */
    hth_str tools;          /* a JSON array that becomes a variable, or empty */
} hth_template_input;

/* The whole text and its parts. Adjacent parts differ in is_template. */
typedef struct hth_rendered {
    char *text;
    size_t n;
    hth_text_part *parts; /* point into text */
    size_t n_part;
} hth_rendered;

/* ARGUMENT if the template rejects the messages (raise_exception) or a role is not a word; FORMAT if the template
 * cannot compute something ('+' of text and number); UNSUPPORTED for limits and unknown methods. *out is then
 * empty. */
hearth_status hth_template_render(const hth_template *t, const hth_template_input *in, hth_rendered *out,
                                  hearth_error *err);
void hth_rendered_free(hth_rendered *r);

/* True if role is valid in a message. */
bool hth_message_role_ok(hth_str role);

#endif
