/* Divides the text of an answer into reasoning, text and calls of functions, byte by byte as it comes. What is not
 * what the format says stays text: nothing that a model writes is an error. Limits: none but memory. */
#ifndef HTH_CHAT_ANSWER_H
#define HTH_CHAT_ANSWER_H

#include "chat/call_format.h"

#include <hearth/hearth.h>

typedef struct hth_answer_options {
    const hth_call_format *calls;         /* NULL: calls are text */
    const hth_reasoning_marks *reasoning; /* NULL: there is none */
    bool in_reasoning;                    /* it has begun */
    const char *tools;                    /* the functions as JSON, or NULL; for the types of arguments */
    hearth_answer_fn *fn;
    void *user;
} hth_answer_options;

typedef struct hth_answer hth_answer;

/* tools must outlive the answer. MEMORY. */
hearth_status hth_answer_open(const hth_answer_options *o, hth_answer **out, hearth_error *err);
void hth_answer_close(hth_answer *a);
/* MEMORY. */
hearth_status hth_answer_push(hth_answer *a, const char *text, size_t n, hearth_error *err);
/* Ends the answer: gives the held bytes to fn. MEMORY. */
hearth_status hth_answer_finish(hth_answer *a, hearth_error *err);
/* Whether a token's text is a mark of the formats, so that it is text of the answer even as a control token. */
bool hth_answer_is_mark(const hth_answer_options *o, hth_str token);

#endif
