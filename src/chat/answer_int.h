/* State of an answer that is divided, for answer*.c only. The text that is not decided yet is held; each step takes a
 * part of its beginning, or says that more must come first. */
#ifndef HTH_CHAT_ANSWER_INT_H
#define HTH_CHAT_ANSWER_INT_H

#include "base/alloc.h"
#include "chat/answer.h"

typedef enum hth_answer_step {
    HTH_STEP_DONE, /* something was taken, or the state has changed: go on */
    HTH_STEP_WAIT, /* the rest can only be read when more has come */
} hth_answer_step;

typedef hth_answer_step hth_answer_state(hth_answer *a);

/* State of a scan over one JSON value. */
typedef struct hth_json_scan {
    uint32_t depth;
    bool in_text, escaped, started;
} hth_json_scan;

struct hth_answer {
    hth_answer_options o;
    hth_answer_state *state;
    char *held; /* [n] */
    size_t n, capacity;
    size_t at;        /* bytes of the held text that the state has read */
    bool final;       /* nothing follows */
    bool has_text;    /* text was given */
    bool skip_space;  /* white space that comes next is no text */
    bool is_bare;     /* a call without its mark, which must be of a given function */
    bool has_memory;  /* false: memory ran out */
    char *opened; /* [n_opened] what opened that which may be a call: a mark, with the white space around it */
    size_t n_opened, opened_capacity;
    uint32_t n_call;
    hth_json_scan scan; /* scan over arguments */
    char name[520];     /* name of the called function */
    uint32_t n_argument, n_message;
};

/* Gives bytes to the caller. */
void hth_answer_give(hth_answer *a, hearth_answer_kind kind, const char *text, size_t n);
void hth_answer_take(hth_answer *a, size_t n);              /* drops n held bytes */
/* Drops n held bytes, which are text if no call comes. */
void hth_answer_set_aside(hth_answer *a, size_t n);
void hth_answer_go(hth_answer *a, hth_answer_state *state); /* the next state */
/* Length of the white space at `from`. */
size_t hth_answer_space(const hth_answer *a, size_t from);
/* The first place of mark at or behind `from`; SIZE_MAX: none. */
size_t hth_answer_find(const hth_answer *a, size_t from, const char *mark);
/* Whether mark stands at `at`: 1, 0, or -1 if it may yet. */
int hth_answer_has(const hth_answer *a, size_t at, const char *mark);
/* Bytes at the end of the held text with which mark may begin. */
size_t hth_answer_unsure(const hth_answer *a, const char *mark);

/* Goes over one JSON value from `*at` on: true when it is complete; *at is then behind it. */
bool hth_json_scan_value(hth_json_scan *s, const char *text, size_t n, size_t *at);

/* A call begins with this name. False: it is no name. */
bool hth_answer_begin_call(hth_answer *a, const char *name, size_t n);
/* Ends a call that turns out to be none: the held bytes become text, with the mark before them. */
hth_answer_step hth_answer_no_call(hth_answer *a);

/* How the value of an argument is written. */
typedef enum hth_value_form {
    HTH_VALUE_ANY,     /* a text or JSON, as the function's schema says */
    HTH_VALUE_TEXT,    /* a text as it is */
    HTH_VALUE_JSON,    /* as ANY, whatever the schema says */
    HTH_VALUE_LITERAL, /* in quotes */
} hth_value_form;

/* answer_arguments.c: a member of the object of arguments; texts of `held`. */
void hth_answer_give_argument(hth_answer *a, hth_str key, hth_str value, hth_value_form form);
/* The arguments are complete. */
hth_answer_step hth_answer_end_arguments(hth_answer *a, hth_answer_state *next);
/* The end of a literal at `at` of the held text: before a comma, or the bracket around it; SIZE_MAX: more must come. */
size_t hth_literal_end(const hth_answer *a, size_t at);
/* The character of an escape of JSON at `at`, behind its backslash; two escapes can be one character (UTF-16). Returns the
 * bytes that it takes there. */
size_t hth_answer_read_escape(const char *at, size_t left, char *out, size_t *n);

/* States. */
hth_answer_state hth_answer_text;      /* answer.c: text between marks */
hth_answer_state hth_answer_call;      /* answer_calls.c: a mark that opens a call was taken */
hth_answer_state hth_answer_bare_call; /* a call without a mark may begin here */
hth_answer_state hth_answer_head;      /* an object with a name and arguments */
hth_answer_state hth_answer_json_arguments;
hth_answer_state hth_answer_elements;      /* answer_elements.c */
hth_answer_state hth_answer_bare_elements; /* behind call_open, without the mark before it */
hth_answer_state hth_answer_literals;      /* answer_literals.c */
hth_answer_state hth_answer_recipient;     /* answer_recipients.c: the line of a part, behind its mark */
hth_answer_state hth_answer_harmony;       /* answer_harmony.c */

#endif
