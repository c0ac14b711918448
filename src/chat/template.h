/* Chat templates: the subset of Jinja that models use, over messages that are not
 * trusted, by templates that are not either. What comes out is a list of parts: bytes
 * that the template wrote are frame, bytes that came in as message content are not,
 * through every operation on strings. Special tokens may be looked for in frame parts
 * only, so nobody can write `<|im_end|>` into a message and have it become the token.
 * What a template means is what Python's Jinja2 makes of it, with trim_blocks and
 * lstrip_blocks; letters have cases in ASCII alone, and lists can be appended to. */
#ifndef HTH_TEXT_TEMPLATE_H
#define HTH_TEXT_TEMPLATE_H

#include "text/tokenizer.h"

/* Limits. A template or a conversation beyond them is a status, never a hang. */
enum {
    HTH_TEMPLATE_MAX_SOURCE = 4 << 20,  /* bytes of a template */
    HTH_TEMPLATE_MAX_NESTING = 64,      /* of its statements and expressions */
    HTH_TEMPLATE_MAX_CALLS = 64,        /* macros in macros */
    HTH_TEMPLATE_MAX_NODES = 1000000,   /* evaluated for one rendering */
    HTH_TEMPLATE_MAX_OUTPUT = 16 << 20, /* bytes of text */
    HTH_TEMPLATE_MAX_MEMORY = 16 << 20, /* bytes held while parsing, and while rendering */
};

typedef struct hth_template hth_template;

/* Parses n bytes. Immutable afterwards; any number of threads may render with it.
 * FORMAT for bad syntax, UNSUPPORTED for a construct, filter or test that is not
 * known and for limits; the message names the line. */
hearth_status hth_template_open(const char *source, size_t n, hth_template **out, hearth_error *err);
void hth_template_close(hth_template *t);

/* role is a word of letters, digits, - and _ (at most 64): it is taken as frame,
 * because templates make special tokens of it. content may be any bytes. */
typedef struct hth_message {
    hth_str role, content;
} hth_message;

typedef struct hth_template_input {
    const hth_message *messages;
    size_t n_message;
    bool add_generation_prompt;
    hth_str bos, eos;      /* texts of these tokens, or empty */
    const int64_t *seconds; /* local time since 1970; NULL: strftime_now is not defined */
    hth_str variables;     /* a JSON object whose members become variables, or empty */
} hth_template_input;

/* The text as a whole and in parts; neighbouring parts differ in is_template. */
typedef struct hth_rendered {
    char *text;
    size_t n;
    hth_text_part *parts; /* pointers into text */
    size_t n_part;
} hth_rendered;

/* ARGUMENT when the template refuses the messages (raise_exception) or a role is no
 * word; FORMAT for what the template cannot compute ('+' of text and number);
 * UNSUPPORTED for limits and unknown methods. *out is empty then. */
hearth_status hth_template_render(const hth_template *t, const hth_template_input *in, hth_rendered *out,
                                  hearth_error *err);
void hth_rendered_free(hth_rendered *r);

/* Whether role may stand in a message. */
bool hth_message_role_ok(hth_str role);

#endif
